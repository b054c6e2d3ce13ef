//! What a device does of its own accord.

use adsum_client::{Client, Meta, RoomId};
use adsum_core::Activity;
use adsum_tests::history::{Event, Gone, Said};
use rand::RngExt;

use super::{super::prefs, Call, Link, Person};

/// What came of it.
pub(super) enum Act {
    /// Nothing to wait for.
    None,
    /// The server is asked for something.
    Call(Call),
    /// It is gone for so long, in ms of the defaults.
    Gone(u64),
    /// It says nothing for so long, in ms of the defaults.
    Silent(u64),
}

impl Person {
    pub(super) async fn act(&mut self, client: &Client) -> Act {
        match self.rng.random_range(0..100) {
            0..36 => self.mark(client),
            36..48 => self.activity(client),
            48..64 => self.room(client),
            64..72 => {
                self.link = Link::Down;
                self.blind();
                let at = self.scene.record.now();
                self.gone_at(at, Gone::Broken { returns: true });
                client.sever().await;
                Act::None
            }
            72..80 => self.goodbye(client).await,
            80..83 if self.scene.size.vanishing => {
                Act::Silent(self.rng.random_range(5_000..100_000))
            }
            83..87 if self.scene.size.vanishing => {
                self.link = Link::Away;
                self.blind();
                let at = self.scene.record.now();
                self.gone_at(at, Gone::Broken { returns: false });
                client.close().await;
                Act::Gone(self.rng.random_range(20_000..80_000))
            }
            // The first device speaks for the user.
            87..97 if self.scene.size.settings && self.device == "d0" => {
                prefs::change(&self.scene, &self.user, &mut self.rng);
                Act::None
            }
            _ => Act::None,
        }
    }

    fn say(&mut self, change: impl FnOnce(&mut Said)) {
        let before = self.said.clone();
        change(&mut self.said);
        self.before = Some((self.scene.record.now(), before));
        let (user, device) = self.names();
        let said = self.said.clone();
        self.scene.record.note(Event::Change { user, device, said });
    }

    fn mark(&mut self, client: &Client) -> Act {
        self.say(|said| said.mark += 1);
        let Ok(meta) = Meta::new(self.said.mark.to_string(), 100) else {
            return Act::None;
        };
        let client = client.clone();
        Act::Call(Box::pin(async move {
            client.set_meta(Some(meta)).await.is_ok()
        }))
    }

    fn activity(&mut self, client: &Client) -> Act {
        let next = match self.said.activity {
            Activity::Online => Activity::Away,
            Activity::Away => Activity::Online,
        };
        self.say(|said| said.activity = next);
        let client = client.clone();
        Act::Call(Box::pin(
            async move { client.set_activity(next).await.is_ok() },
        ))
    }

    /// In or out of a room: of its own or of another one.
    fn room(&mut self, client: &Client) -> Act {
        let n = self.n + self.rng.random_range(0..3);
        let name = self.scene.room(n);
        let Ok(room) = RoomId::new(name.as_str()) else {
            return Act::None;
        };
        let client = client.clone();
        if self.said.rooms.contains(&name) {
            self.say(|said| said.rooms.retain(|r| *r != name));
            Act::Call(Box::pin(async move { client.part(room).await.is_ok() }))
        } else {
            self.say(|said| {
                said.rooms.push(name);
                said.rooms.sort();
            });
            Act::Call(Box::pin(
                async move { client.join(room, None).await.is_ok() },
            ))
        }
    }

    async fn goodbye(&mut self, client: &Client) -> Act {
        self.link = Link::Away;
        self.blind();
        let (user, device) = self.names();
        self.scene.truth.gone(&user, &device);
        let at = self.scene.record.now();
        let told = client.leave().await.is_ok();
        // A goodbye that nobody answered may have been heard or not; then the socket lingers.
        let how = if told { Gone::Goodbye } else { Gone::Silent };
        self.gone_at(at, how);
        Act::Gone(self.rng.random_range(1_000..60_000))
    }
}

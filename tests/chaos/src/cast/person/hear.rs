//! What a device's client tells: connections that come and go, and what it watches.

use adsum_client::{Client, EndReason, Event as Told};
use adsum_tests::history::{Event, Gone};
use rand::RngExt;

use super::{
    super::sight::{leaving, seen},
    Link, Person,
};

impl Person {
    /// Takes what the client tells; answers for how long the device is away, if it is over.
    pub(super) async fn hear(&mut self, event: Told, client: &Client) -> Option<u64> {
        match event {
            Told::Connected { endpoint, conn, .. } => self.connected(&endpoint, conn.get()),
            Told::Disconnected => return self.disconnected(client).await,
            Told::Joined { topic, item } => {
                let sight = self.sight(&topic)?;
                sight.diff(vec![seen(&item)], vec![], vec![]);
            }
            Told::Updated { topic, item } => {
                let sight = self.sight(&topic)?;
                sight.diff(vec![], vec![seen(&item)], vec![]);
            }
            Told::Left { topic, left } => {
                let sight = self.sight(&topic)?;
                sight.diff(vec![], vec![], vec![leaving(&left)]);
            }
            Told::Synced {
                topic, complete, ..
            } => {
                // While a part has not answered, what was known before and what is told now are
                // mixed; the picture counts once it is whole.
                let sight = self.sight(&topic)?;
                if complete {
                    sight.synced(true);
                }
            }
            Told::Ended(reason) => return Some(self.ended(&reason)),
            _ => {}
        }
        None
    }

    fn sight(&mut self, topic: &adsum_client::Topic) -> Option<&mut super::Sight> {
        let mut sights = self.sights.iter_mut();
        sights.find(|(t, _)| t == topic).map(|(_, sight)| sight)
    }

    fn connected(&mut self, endpoint: &str, conn: u64) {
        let at = self.scene.record.of_conn(conn);
        let (user, device) = self.names();
        if self.link == Link::Up {
            // Sent away by a gateway that drains: the next connection stands before the last
            // one is dropped.
            self.gone_at(at, Gone::Broken { returns: true });
        }
        let said = match &self.before {
            Some((until, before)) if at < *until => before.clone(),
            _ => self.said.clone(),
        };
        self.gateway = self.scene.gate(endpoint).unwrap_or_default();
        self.link = Link::Up;
        self.scene.truth.here(&user, &device);
        self.scene.record.note_at(
            at,
            Event::Hello {
                user: user.clone(),
                device: device.clone(),
                conn,
                gateway: Some(self.gateway.clone()),
                said: said.clone(),
            },
        );
        let now = self.scene.record.now();
        if now - at < self.scene.times.answer() * 4 / 5 {
            self.scene
                .record
                .note(Event::Recorded { user, device, said });
        }
        let gateway = self.gateway.clone();
        self.sights
            .iter_mut()
            .for_each(|(_, sight)| sight.begin(&gateway));
    }

    /// Lost, without our doing: comes back by itself, but for some of those whose gateway died.
    async fn disconnected(&mut self, client: &Client) -> Option<u64> {
        self.blind();
        if self.link != Link::Up {
            return None;
        }
        let lost = self.scene.lately_killed(&self.gateway);
        let returns = !(lost && !self.scene.is_calm() && self.rng.random_bool(0.15));
        let at = self.scene.record.now();
        self.gone_at(at, Gone::Broken { returns });
        self.link = if returns { Link::Down } else { Link::Away };
        if returns {
            return None;
        }
        client.close().await;
        Some(self.rng.random_range(40_000..90_000))
    }

    fn ended(&mut self, reason: &EndReason) -> u64 {
        self.blind();
        let (user, device) = self.names();
        let word = match reason {
            EndReason::Left | EndReason::ClosedByApp => return 500,
            reason => reason.to_string(),
        };
        self.scene.record.note(Event::Ousted { user, device, word });
        if self.link != Link::Away {
            let at = self.scene.record.now();
            self.gone_at(at, Gone::Silent);
            self.link = Link::Away;
        }
        500
    }
}

//! A person at work: connects through the Service, says something now and then, says goodbye and
//! comes back; a third of them only stay. All of it is noted as their own client knows it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_client::{Client, DeviceId, Event as Told, Kind, Meta, RoomId};
use adsum_core::Activity;
use adsum_tests::history::{Event, Gone, Said};
use anyhow::Result;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use super::{Scene, sight::GATEWAY};

const DEVICE: &str = "d0";
const ROOMS: usize = 8;

pub(crate) fn room(n: usize) -> String {
    format!("room-{}", n % ROOMS)
}

struct Person {
    scene: Scene,
    user: String,
    said: Said,
    /// What was said until when: a hello may be older than the last word.
    before: Option<(u64, Said)>,
    up: Arc<AtomicBool>,
    acts: bool,
}

/// Lives until the load is dropped.
pub(crate) async fn live(scene: Scene, n: usize) {
    // All at once would be a fault of its own.
    sleep(Duration::from_millis(rand::random_range(0..1_500))).await;
    let mut person = Person {
        user: format!("user-{n}"),
        said: Said {
            activity: Activity::Online,
            rooms: vec![room(n)],
            mark: 0,
        },
        before: None,
        up: Arc::default(),
        acts: !n.is_multiple_of(3),
        scene,
    };
    loop {
        if let Err(error) = person.life().await {
            println!("{}: {error:#}", person.user);
        }
        if person.scene.is_calm() {
            return;
        }
        sleep(Duration::from_millis(rand::random_range(500..3_000))).await;
    }
}

impl Person {
    /// From the first connection to the goodbye.
    async fn life(&mut self) -> Result<()> {
        let (client, mut events) = Client::builder()
            .endpoint(self.scene.server.as_str())
            .token(self.scene.token(&self.user)?)
            .timing(self.scene.times.timing())
            .device(DeviceId::new(DEVICE)?)
            .kind(Kind::new(DEVICE)?)
            .meta(Meta::new(self.said.mark.to_string(), 100)?)
            .room(RoomId::new(self.said.rooms[0].as_str())?)
            .spawn()?;
        let (mut act_at, mut call) = (Instant::now() + gap(), None::<JoinHandle<()>>);
        loop {
            let idle = call.as_ref().is_none_or(JoinHandle::is_finished);
            let acting = self.acts && idle && !self.scene.is_calm() && self.up.load(Relaxed);
            tokio::select! {
                event = events.next() => match event {
                    Some(Told::Connected { conn, .. }) => self.connected(conn.get()),
                    Some(Told::Disconnected) => self.lost(),
                    Some(Told::Ended(reason)) => {
                        let (user, device) = self.names();
                        let word = reason.to_string();
                        self.note(Event::Ousted { user, device, word });
                        return Ok(());
                    }
                    Some(_) => {}
                    None => return Ok(()),
                },
                () = sleep_until(act_at), if acting => {
                    act_at = Instant::now() + gap();
                    if rand::random_range(0..6) == 0 {
                        self.up.store(false, Relaxed);
                        self.gone(self.scene.record.now(), Gone::Goodbye);
                        client.leave().await?;
                        return Ok(());
                    }
                    call = Some(self.say(&client)?);
                }
                // What was in the way may be over.
                () = sleep(Duration::from_millis(200)), if self.acts && !acting => {}
            }
        }
    }

    fn names(&self) -> (String, String) {
        (self.user.clone(), DEVICE.to_owned())
    }

    fn note(&self, event: Event) {
        self.scene.record.note(event);
    }

    fn connected(&mut self, conn: u64) {
        let at = self.scene.record.of_conn(conn);
        if self.up.swap(true, Relaxed) {
            // Sent elsewhere by a gateway that drains: the next connection stands before the last
            // one is dropped.
            self.gone(at, Gone::Broken { returns: true });
        }
        let said = match &self.before {
            Some((until, before)) if at < *until => before.clone(),
            _ => self.said.clone(),
        };
        let (user, device) = self.names();
        self.scene.record.note_at(
            at,
            Event::Hello {
                user: user.clone(),
                device: device.clone(),
                conn,
                gateway: Some(GATEWAY.to_owned()),
                said: said.clone(),
            },
        );
        if self.scene.record.now() - at < self.certain() {
            self.note(Event::Recorded { user, device, said });
        }
    }

    /// An answer within this time means that it is written; a later one that it will be.
    fn certain(&self) -> u64 {
        self.scene.times.answer() * 4 / 5
    }

    fn lost(&self) {
        if self.up.swap(false, Relaxed) {
            let at = self.scene.record.now();
            self.gone(at, Gone::Broken { returns: true });
        }
    }

    fn gone(&self, at: u64, how: Gone) {
        let (user, device) = self.names();
        let gone = Event::Gone { user, device, how };
        self.scene.record.note_at(at, gone);
    }

    /// One more word.
    fn say(&mut self, client: &Client) -> Result<JoinHandle<()>> {
        self.before = Some((self.scene.record.now(), self.said.clone()));
        self.said.mark += 1;
        let ((user, device), said) = (self.names(), self.said.clone());
        let (name, which, word) = (user.clone(), device.clone(), said.clone());
        self.note(Event::Change {
            user: name,
            device: which,
            said: word,
        });
        let meta = Meta::new(said.mark.to_string(), 100)?;
        let (client, record, up) = (client.clone(), self.scene.record.clone(), self.up.clone());
        let certain = Duration::from_millis(self.certain());
        Ok(tokio::spawn(async move {
            let begun = Instant::now();
            let done = client.set_meta(Some(meta)).await.is_ok();
            if done && begun.elapsed() < certain && up.load(Relaxed) {
                record.note(Event::Recorded { user, device, said });
            }
        }))
    }
}

fn gap() -> Duration {
    Duration::from_millis(rand::random_range(700..3_000))
}

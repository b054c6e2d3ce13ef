//! One device of one user, with our own client: it connects, beats, changes, moves between
//! gateways, sleeps, vanishes, says goodbye and comes back.

mod act;
mod hear;

use std::{pin::Pin, time::Duration};

use adsum_client::{
    Client, DeviceId, Encoding, Events, Freeze, Kind, Meta, Mode, RoomId, Topic, Transport, UserId,
};
use adsum_core::Activity;
use adsum_tests::history::{Event, Gone, Said, View};
use anyhow::Result;
use rand::{RngExt, rngs::StdRng};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Scene, sight::Sight};
use act::Act;

/// Where the device stands, as its own client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// Not there: gone, or not come yet.
    Away,
    /// Connected.
    Up,
    /// Lost its connection, and comes back by itself.
    Down,
}

type Call = Pin<Box<dyn Future<Output = bool> + Send>>;

struct Person {
    scene: Scene,
    n: usize,
    user: String,
    device: String,
    said: Said,
    /// What it said until when: a hello may be older than the last word.
    before: Option<(u64, Said)>,
    link: Link,
    gateway: String,
    sights: Vec<(Topic, Sight)>,
    rng: StdRng,
}

/// Lives until the round is over.
pub(crate) async fn live(scene: Scene, n: usize, mut rng: StdRng) {
    let device = if n % 6 == 5 { "d1" } else { "d0" };
    let said = Said {
        activity: Activity::Online,
        rooms: vec![scene.room(n)],
        mark: 0,
    };
    // All at once would be a fault of its own.
    let spread = 1_000 + scene.size.clients as u64 * 2;
    sleep(Duration::from_millis(rng.random_range(0..spread))).await;
    let mut person = Person {
        user: scene.user(n),
        device: device.to_owned(),
        said,
        before: None,
        link: Link::Away,
        gateway: String::new(),
        sights: Vec::new(),
        n,
        scene,
        rng,
    };
    while !person.scene.is_calm() {
        let away = person.life().await.unwrap_or(1_000);
        let away = person.scene.times.of(away);
        tokio::select! {
            () = sleep(away) => {}
            () = person.scene.calmed() => {}
        }
    }
}

impl Person {
    /// From the first connection until it is gone; answers for how long, in ms of the defaults.
    async fn life(&mut self) -> Result<u64> {
        let (client, mut events) = self.spawn()?;
        let mut act_at = Instant::now() + self.gap();
        let mut call: Option<(Call, Instant, Said)> = None;
        loop {
            let calm = self.scene.is_calm();
            let acting = !calm && call.is_none() && self.link == Link::Up;
            tokio::select! {
                event = events.next() => {
                    let Some(event) = event else { return Ok(500) };
                    if let Some(away) = self.hear(event, &client).await {
                        return Ok(away);
                    }
                }
                done = async { match &mut call {
                    Some((call, ..)) => call.await,
                    None => std::future::pending().await,
                } } => {
                    if let Some((_, begun, said)) = call.take().filter(|_| done) {
                        self.recorded(begun, said);
                    }
                }
                () = sleep_until(act_at), if acting => {
                    act_at = Instant::now() + self.gap();
                    match self.act(&client).await {
                        Act::Call(next) => call = Some((next, Instant::now(), self.said.clone())),
                        Act::Gone(away) => return Ok(away),
                        Act::Silent(quiet) => {
                            self.sleep(&client, quiet).await;
                            act_at = Instant::now() + self.gap();
                        }
                        Act::None => {}
                    }
                }
                () = self.scene.calmed(), if !calm => {}
            }
        }
    }

    /// So long between two doings that all together do about as much as was asked for.
    fn gap(&mut self) -> Duration {
        let mean = self.scene.size.clients as u64 * 1_000 / self.scene.size.actions_per_second;
        Duration::from_millis(self.rng.random_range(mean / 4..mean * 7 / 4 + 1))
    }

    fn spawn(&mut self) -> Result<(Client, Events)> {
        let transport = match self.n % 10 {
            0 => Transport::Grpc,
            n if n % 2 == 0 => Transport::WebSocket(Encoding::Json),
            _ => Transport::WebSocket(Encoding::Protobuf),
        };
        let mut builder = Client::builder()
            .endpoints(self.scene.endpoints())
            .token(self.scene.pass(&self.user))
            .timing(self.scene.times.timing())
            .transport(transport)
            .device(DeviceId::new(self.device.as_str())?)
            .kind(Kind::new(self.device.as_str())?)
            .activity(self.said.activity)
            .meta(Meta::new(self.said.mark.to_string(), 100)?)
            .event_capacity(100_000);
        for room in &self.said.rooms {
            builder = builder.room(RoomId::new(room.as_str())?);
        }
        self.look()?;
        for (topic, _) in &self.sights {
            builder = builder.watch(topic.clone(), Mode::Members);
        }
        Ok(builder.spawn()?)
    }

    /// Some watch, too: their room, and somebody.
    fn look(&mut self) -> Result<()> {
        self.sights.clear();
        if !self.n.is_multiple_of(25) {
            return Ok(());
        }
        let room = Topic::Room(RoomId::new(self.scene.room(self.n))?);
        let peer = Topic::User(UserId::new(self.scene.user(self.n + 1))?);
        for (n, topic) in [room, peer].into_iter().enumerate() {
            let view = View {
                gateway: String::new(),
                topic: topic.to_string(),
                eyes: Some(self.user.clone()),
                all: false,
            };
            let life = self.rng.random::<u32>();
            let name = format!("{}.{}.{life:x}.{n}", self.user, self.device);
            self.sights
                .push((topic, Sight::new(&self.scene, name, view)));
        }
        Ok(())
    }

    fn names(&self) -> (String, String) {
        (self.user.clone(), self.device.clone())
    }

    fn recorded(&self, begun: Instant, said: Said) {
        // A later answer may only say that it will be.
        let within = Duration::from_millis(self.scene.times.answer() * 4 / 5);
        if self.link == Link::Up && begun.elapsed() < within {
            let (user, device) = self.names();
            self.scene
                .record
                .note(Event::Recorded { user, device, said });
        }
    }

    fn gone_at(&mut self, at: u64, how: Gone) {
        let (user, device) = self.names();
        if !matches!(how, Gone::Broken { returns: true }) {
            self.scene.truth.gone(&user, &device);
        }
        self.scene
            .record
            .note_at(at, Event::Gone { user, device, how });
    }

    fn blind(&mut self) {
        self.sights.iter_mut().for_each(|(_, sight)| sight.end());
    }

    /// Says and reads nothing for a while, and then comes back on another connection: the old
    /// one may be closed or not, but it is not what a device does that was asleep.
    async fn sleep(&mut self, client: &Client, quiet: u64) {
        self.link = Link::Away;
        self.blind();
        self.gone_at(self.scene.record.now(), Gone::Silent);
        client.freeze(Freeze::ALL).await;
        tokio::select! {
            () = sleep(self.scene.times.of(quiet)) => {}
            // It does not wake up any more.
            () = self.scene.calmed() => std::future::pending().await,
        }
        client.thaw().await;
        client.sever().await;
    }
}

//! The shell around the router: one task that hears from links, watchers and members, asks the
//! router what to do, and does it. It never waits for a link.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use adsum_core::{
    membership::{Members, Membership},
    store::Shard,
};
use adsum_proto::{TopicKey, feed::gateway_frame::Frame};
use futures::{StreamExt, stream::BoxStream};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connect::Connector,
    link::{Link, LinkId, Note},
    router::{Action, Router},
    shared::Shared,
};

const TICK: Duration = Duration::from_millis(100);
/// Batches that may wait for the router before links stop reading.
const NOTES: usize = 256;
/// Frames that may wait for a dispatcher that does not read; it has failed when more are.
const ORDERS: usize = 4096;

pub(super) struct Driver {
    shared: Arc<Shared>,
    membership: Arc<dyn Membership>,
    connector: Connector,
    router: Router,
    links: HashMap<LinkId, Handle>,
    notes: mpsc::Sender<(LinkId, Note)>,
    /// Topics without watchers, and when to drop them.
    lingering: HashMap<TopicKey, Instant>,
    ticked: Instant,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Handle {
    orders: mpsc::Sender<Frame>,
    stop: CancellationToken,
}

impl Driver {
    pub(super) fn spawn(
        shared: Arc<Shared>,
        membership: Arc<dyn Membership>,
        connector: Connector,
        stop: CancellationToken,
        tasks: &TaskTracker,
    ) {
        let (notes, inbox) = mpsc::channel(NOTES);
        let config = Arc::clone(&shared.config);
        let router = Router::new(config, Arc::clone(&shared.metrics), Instant::now());
        let driver = Self {
            shared,
            membership,
            connector,
            router,
            links: HashMap::new(),
            notes,
            lingering: HashMap::new(),
            ticked: Instant::now(),
            stop,
            tasks: tasks.clone(),
        };
        tasks.spawn(driver.run(inbox));
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<(LinkId, Note)>) {
        let mut members: BoxStream<'static, Arc<Members>> = self
            .membership
            .watch()
            .chain(futures::stream::pending())
            .boxed();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = self.stop.clone();
        let mut known = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some((link, note)) = inbox.recv() => self.note(link, note),
                () = self.shared.topics.wait() => self.topics(),
                Some(members) = members.next() => {
                    known = true;
                    self.router.members(&members, Instant::now());
                }
                // Before the members are known there is nobody to miss.
                _ = tick.tick(), if known => {
                    // What came while nobody looked is heard before anyone is found silent.
                    for _ in 0..NOTES {
                        let Ok((link, note)) = inbox.try_recv() else { break };
                        self.note(link, note);
                    }
                    self.tick();
                }
            }
            self.act();
        }
        self.shared.topics.close();
    }

    fn note(&mut self, link: LinkId, note: Note) {
        let now = Instant::now();
        match note {
            Note::Up => self.router.up(link, now),
            Note::Seen(seen) => {
                for seen in &seen {
                    self.router.seen(link, seen, now);
                }
            }
            Note::Down => {
                self.links.remove(&link);
                self.router.down(link, now);
            }
        }
    }

    /// Watchers came to topics without any, or the last one went.
    fn topics(&mut self) {
        let now = Instant::now();
        let mut wanted = Vec::new();
        for key in self.shared.topics.changed() {
            match self.shared.topics.get(&key) {
                Some(topic) if topic.watchers() > 0 => {
                    self.lingering.remove(&key);
                    wanted.push((key, topic.only));
                }
                _ => {
                    self.lingering.insert(key, now + self.shared.config.linger);
                }
            }
        }
        self.router.want(wanted, now);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        let late = (now - self.ticked).saturating_sub(TICK);
        self.ticked = now;
        // We were away ourselves: what was said meanwhile is still to be read.
        if late >= self.shared.config.silent_after / 4 {
            self.router.slept(late, now);
        }
        let due = self.lingering.iter().filter(|(_, until)| **until <= now);
        let due: HashSet<TopicKey> = due.map(|(key, _)| key.clone()).collect();
        if !due.is_empty() {
            self.lingering.retain(|key, _| !due.contains(key));
            let gone = due.into_iter().filter(|key| self.shared.topics.forget(key));
            let gone: Vec<_> = gone.collect();
            self.router.unwant(&gone, now);
        }
        self.router.tick(now);
    }

    fn act(&mut self) {
        let mut stale: Vec<(Shard, bool)> = Vec::new();
        loop {
            let actions = self.router.actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    Action::Open { link, member } => self.open(link, member),
                    Action::Close { link } => self.close(link),
                    Action::Send { link, frame } => self.send(link, frame),
                    Action::Stale { shard, stale: now } => stale.push((shard, now)),
                }
            }
        }
        if !stale.is_empty() {
            let count = stale.iter().filter(|(_, s)| *s).count();
            tracing::info!(
                stale = count,
                healed = stale.len() - count,
                "shards changed"
            );
            self.shared.topics.set_stale(&stale, &self.shared.metrics);
        }
        self.shared.metrics.links.set(self.links.len());
    }

    fn open(&mut self, id: LinkId, member: Arc<adsum_core::membership::Member>) {
        let (orders, from_router) = mpsc::channel(ORDERS);
        let stop = self.stop.child_token();
        let link = Link {
            id,
            node: self.membership.node(),
            member,
            connector: Arc::clone(&self.connector),
            shared: Arc::clone(&self.shared),
            notes: self.notes.clone(),
        };
        self.links.insert(
            id,
            Handle {
                orders,
                stop: stop.clone(),
            },
        );
        self.tasks.spawn(async move {
            stop.run_until_cancelled(link.run(from_router)).await;
        });
    }

    fn close(&mut self, link: LinkId) {
        if let Some(handle) = self.links.remove(&link) {
            handle.stop.cancel();
        }
    }

    fn send(&mut self, link: LinkId, frame: Frame) {
        let Some(handle) = self.links.get(&link) else {
            return;
        };
        if handle.orders.try_send(frame).is_err() {
            tracing::info!("feed closed: dispatcher reads too slowly");
            self.close(link);
            self.shared.metrics.failures.add(1);
            self.router.down(link, Instant::now());
        }
    }
}

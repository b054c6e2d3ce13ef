//! A feed, the members it knows, and the dispatchers behind them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use adsum_core::{
    NodeId, RoomId, TenantId, Topic, UserId,
    membership::{Member, Members, Membership, MembershipError, Owners, Role},
    ring::{Placement, ShardRing},
};
use adsum_gateway::feed::{Feed, FeedConfig, Watch, memory};
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::{mpsc, watch};

use super::{
    NEVER,
    dispatcher::{Fake, Fakes, Session},
    within,
};

struct FakeMembership(watch::Sender<Arc<Members>>);

#[async_trait::async_trait]
impl Membership for FakeMembership {
    fn node(&self) -> NodeId {
        NodeId::new("gateway").unwrap()
    }
    fn watch_node(&self) -> BoxStream<'static, Option<NodeId>> {
        futures::stream::pending().boxed()
    }
    fn members(&self) -> Arc<Members> {
        self.0.borrow().clone()
    }
    fn watch(&self) -> BoxStream<'static, Arc<Members>> {
        let mut from = self.0.subscribe();
        from.mark_changed();
        futures::stream::unfold(from, async |mut from| {
            from.changed().await.ok()?;
            let members = from.borrow_and_update().clone();
            Some((members, from))
        })
        .boxed()
    }
    fn owners(&self) -> Arc<Owners> {
        Arc::default()
    }
    fn watch_owners(&self) -> BoxStream<'static, Arc<Owners>> {
        futures::stream::pending().boxed()
    }
    async fn campaign(&self, _: u16) -> Result<bool, MembershipError> {
        Ok(false)
    }
    async fn prove(&self, _: u16) -> Result<bool, MembershipError> {
        Ok(false)
    }
    async fn resign(&self, _: u16) -> Result<(), MembershipError> {
        Ok(())
    }
    fn lease_left(&self) -> Duration {
        NEVER
    }
    async fn leave(&self) -> Result<(), MembershipError> {
        Ok(())
    }
}

/// A feed, its dispatchers and what they are asked.
pub(crate) struct World {
    pub(crate) feed: Feed,
    pub(crate) shards: u16,
    pub(crate) epochs: Arc<Mutex<Vec<(u16, u64)>>>,
    fakes: Fakes,
    members: Arc<FakeMembership>,
    doors: HashMap<String, mpsc::UnboundedReceiver<Session>>,
}

impl World {
    pub(crate) fn new(shards: u16, nodes: &[&str]) -> Self {
        Self::with(shards, nodes, |_| {})
    }

    pub(crate) fn with(shards: u16, nodes: &[&str], tune: impl FnOnce(&mut FeedConfig)) -> Self {
        let mut config = FeedConfig::new("test", 1, shards);
        tune(&mut config);
        let members = Arc::new(FakeMembership(watch::Sender::new(Arc::default())));
        let fakes = Fakes::default();
        let (dial, epochs) = (fakes.clone(), Arc::<Mutex<Vec<_>>>::default());
        let seen = Arc::clone(&epochs);
        let feed = Feed::start(
            config,
            ShardRing::new(shards),
            members.clone(),
            memory(move |member| dial.dial(member)),
            Arc::new(move |shard, epoch| seen.lock().unwrap().push((shard, epoch))),
        );
        let mut world = Self {
            feed: feed.unwrap(),
            shards,
            epochs,
            fakes,
            members,
            doors: HashMap::new(),
        };
        nodes.iter().for_each(|node| world.build(node));
        world.announce(nodes);
        world
    }

    /// A dispatcher that nobody knows yet.
    pub(crate) fn build(&mut self, node: &str) {
        let (sessions, door) = mpsc::unbounded_channel();
        let fake = Fake {
            down: false,
            deaf: false,
            sessions,
        };
        self.fakes.0.lock().unwrap().insert(node.into(), fake);
        self.doors.insert(node.into(), door);
    }

    /// These are the members now.
    pub(crate) fn announce(&self, nodes: &[&str]) {
        let member = |node: &&str| {
            let id = NodeId::new(*node).unwrap();
            let member = Member {
                node: id.clone(),
                address: String::new(),
                roles: vec![Role::Dispatcher],
                zone: String::new(),
                version: String::new(),
            };
            (id, Arc::new(member))
        };
        let nodes = nodes.iter().map(member).collect();
        self.members.0.send_replace(Arc::new(Members {
            nodes,
            stale: false,
        }));
    }

    /// Refuses connections, or takes them again.
    pub(crate) fn set_down(&self, node: &str, down: bool) {
        self.fakes.0.lock().unwrap().get_mut(node).unwrap().down = down;
    }

    /// Takes connections and answers nothing.
    pub(crate) fn set_deaf(&self, node: &str) {
        self.fakes.0.lock().unwrap().get_mut(node).unwrap().deaf = true;
    }

    pub(crate) async fn session(&mut self, node: &str) -> Session {
        let door = self.doors.get_mut(node).unwrap();
        within("a stream", door.recv()).await.unwrap()
    }

    /// All streams to a node from now on.
    pub(crate) fn door(&mut self, node: &str) -> mpsc::UnboundedReceiver<Session> {
        self.doors.remove(node).unwrap()
    }

    pub(crate) fn watch(&self, room: &str) -> Watch {
        let room = RoomId::new(room).unwrap();
        self.feed.watch(tenant(), Topic::Room(room))
    }

    /// The nodes in the order in which they should serve the shard.
    pub(crate) fn order<'a>(&self, shard: u16, nodes: &[&'a str]) -> Vec<&'a str> {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        let placement = Placement::new(self.shards, &nodes);
        placement.order(shard).map(|n| nodes[n]).collect()
    }
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

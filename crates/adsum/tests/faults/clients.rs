//! Clients of a gateway, as the store knows them: held by the gateway's own holder, which renews,
//! and opens everything again when its shard began a new epoch or has forgotten it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    Activity, Conn, Membership, Meta, NodeId, Reason, RoomId, SessionKey, State, hold::Word,
    store::Store,
};
use adsum_gateway::holder::{Holder, HolderConfig, Tell};
use anyhow::Result;
use tokio_util::task::TaskTracker;

type Connected = BTreeMap<SessionKey, (Conn, State)>;

/// A gateway with its clients.
pub(crate) struct Gateway {
    holder: Holder,
    connected: Mutex<Connected>,
    /// States that the store acknowledged.
    pub(crate) recorded: Arc<AtomicU64>,
    /// Words that nobody should have heard: every connection here is the newest of its device.
    pub(crate) wrong: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    pub(crate) fn new(store: Arc<dyn Store>, name: &str, renew: Duration) -> Result<Self> {
        let (recorded, wrong) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(Mutex::new(Vec::new())),
        );
        let (counter, words) = (recorded.clone(), wrong.clone());
        let tell: Tell = Arc::new(move |key, conn, word| match word {
            Word::Recorded(_) => drop(counter.fetch_add(1, Relaxed)),
            Word::Closed(_) => {}
            Word::Replaced | Word::Kicked | Word::Away | Word::Superseded(_) => {
                words
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(format!("{key:?} {conn:?} {word:?}"));
            }
        });
        let config = HolderConfig {
            renew,
            calm: renew * 2,
            stuck: renew * 60,
            gather: Duration::ZERO,
            backlog: 10_000,
        };
        let node = NodeId::new(name)?;
        let holder = Holder::start(store, &node, 1, config, &tell, &TaskTracker::new())?;
        Ok(Self {
            holder,
            connected: Mutex::default(),
            recorded,
            wrong,
        })
    }

    fn connected(&self) -> MutexGuard<'_, Connected> {
        self.connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What this gateway's clients should look like to everybody.
    pub(crate) fn truth(&self) -> Connected {
        self.connected().clone()
    }

    /// A client connects, with a connection newer than all before.
    pub(crate) fn connect(&self, key: &SessionKey, conn: u64, state: State) -> Result<()> {
        let conn = Conn::new(conn)?;
        self.holder.hello(key.clone(), conn, state.clone(), None)?;
        self.connected().insert(key.clone(), (conn, state));
        Ok(())
    }

    /// A client changes its state.
    pub(crate) fn change(&self, key: &SessionKey, state: State) -> Result<()> {
        let mut connected = self.connected();
        if let Some((conn, known)) = connected.get_mut(key) {
            self.holder.set(key.clone(), *conn, state.clone(), None)?;
            *known = state;
        }
        Ok(())
    }

    /// A client says goodbye.
    pub(crate) fn leave(&self, key: &SessionKey) -> Result<()> {
        if let Some((conn, _)) = self.connected().remove(key) {
            self.holder
                .end(key.clone(), conn, Reason::Leave, Duration::ZERO)?;
        }
        Ok(())
    }
}

/// A state that differs from that of every other number.
pub(crate) fn state(number: u64) -> State {
    let stay = |n: u64| RoomId::new(format!("room-{n}")).map(|room| (room, Membership::default()));
    State {
        activity: if number.is_multiple_of(2) {
            Activity::Online
        } else {
            Activity::Away
        },
        meta: Meta::new(format!("{{\"n\":{number}}}"), 100).ok(),
        rooms: [number % 5, 5 + number % 3]
            .into_iter()
            .filter_map(|n| stay(n).ok())
            .collect(),
        ..State::default()
    }
}

/// The same but for the times, which the store gives.
pub(crate) fn alike(stored: &State, said: &State) -> bool {
    let timeless = |state: &State| {
        let mut state = state.clone();
        state.rooms.iter_mut().for_each(|(_, stay)| stay.since = 0);
        state
    };
    timeless(stored) == timeless(said)
}

//! The membership of one process: the embedded default, where the only node is always elected.
//! Tests put several nodes into one [`LocalCluster`] and take their leases away.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adsum_core::NodeId;
use adsum_core::membership::{Member, Members, MembershipError, Owners};
use tokio::sync::watch;

use crate::{profile::Profile, views::Views};

mod node;

pub use node::LocalMembership;

/// A cluster inside one process. Clones are the same cluster.
#[derive(Clone, Default)]
pub struct LocalCluster {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    views: Views,
}

#[derive(Default)]
struct State {
    seats: BTreeMap<u64, Seat>,
    next: u64,
    owners: Owners,
    away: bool,
}

/// A node's place, which it keeps while its ids change.
struct Seat {
    profile: Profile,
    member: Arc<Member>,
    identity: watch::Sender<Identity>,
}

/// Who a node is, and whether it has a lease.
#[derive(Clone)]
struct Identity {
    node: NodeId,
    held: bool,
}

impl Identity {
    fn of(member: &Member) -> Self {
        Self {
            node: member.node.clone(),
            held: true,
        }
    }
}

impl LocalCluster {
    /// An empty cluster.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node.
    ///
    /// # Errors
    /// When its name can't be part of an id, or the registry is away.
    pub fn join(&self, profile: Profile) -> Result<LocalMembership, MembershipError> {
        let mut state = self.state();
        state.available()?;
        let member = Arc::new(profile.member()?);
        let identity = watch::Sender::new(Identity::of(&member));
        let seat = state.next;
        state.next += 1;
        state.seats.insert(
            seat,
            Seat {
                profile,
                member,
                identity: identity.clone(),
            },
        );
        self.publish(&state);
        Ok(LocalMembership {
            cluster: self.clone(),
            seat,
            identity,
        })
    }

    /// Ends a node's lease: its shards are free, and it comes back at once under another id.
    /// `false` if there is no such node. A hook for tests.
    pub fn expire(&self, node: &NodeId) -> bool {
        let mut state = self.state();
        let found = state
            .seats
            .iter()
            .find(|(_, seat)| seat.member.node == *node);
        let Some(seat) = found.map(|(seat, _)| *seat) else {
            return false;
        };
        state.renew(seat);
        self.publish(&state);
        true
    }

    /// Takes the registry away from all nodes, longer than a lease lives, or gives it back: then
    /// all come back under other ids. A hook for tests.
    pub fn set_available(&self, available: bool) {
        let mut state = self.state();
        if std::mem::replace(&mut state.away, !available) != available {
            return;
        }
        let seats: Vec<u64> = state.seats.keys().copied().collect();
        for seat in seats {
            if available {
                state.renew(seat);
            } else if let Some(seat) = state.seats.get(&seat) {
                seat.lose();
            }
        }
        self.publish(&state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Published under the lock, so that no older state overtakes a newer one.
    fn publish(&self, state: &State) {
        let member = |seat: &Seat| (seat.member.node.clone(), Arc::clone(&seat.member));
        let nodes = state.seats.values().map(member).collect();
        self.shared.views.publish(
            Members {
                nodes,
                stale: state.away,
            },
            state.owners.clone(),
        );
    }
}

impl Seat {
    fn lose(&self) {
        self.identity.send_modify(|identity| identity.held = false);
    }
}

impl State {
    fn available(&self) -> Result<(), MembershipError> {
        if self.away {
            return Err(MembershipError::Unavailable(
                "taken away by a test".to_owned(),
            ));
        }
        Ok(())
    }

    /// The node of a seat, if it has a lease.
    fn node(&self, seat: u64) -> Result<NodeId, MembershipError> {
        let left = || MembershipError::Refused("this node has left".to_owned());
        let seat = self.seats.get(&seat).ok_or_else(left)?;
        self.available()?;
        Ok(seat.member.node.clone())
    }

    /// Frees what a node owned.
    fn free(&mut self, node: &NodeId) {
        self.owners.retain(|_, owner| owner != node);
    }

    /// A new id for a seat, which owns nothing.
    fn renew(&mut self, seat: u64) {
        let Some(seat) = self.seats.get_mut(&seat) else {
            return;
        };
        let old = seat.member.node.clone();
        // The same profile was accepted when the node joined.
        if let Ok(member) = seat.profile.member() {
            seat.member = Arc::new(member);
            seat.identity.send_replace(Identity::of(&seat.member));
        }
        self.free(&old);
    }
}

impl fmt::Debug for LocalCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("LocalCluster")
            .field("owners", &state.owners)
            .finish_non_exhaustive()
    }
}

//! Follows one shard: pushes for speed, the log for truth, a reload on any doubt.

use std::{collections::HashMap, sync::Arc};

use adsum_core::{
    Change, Event, Reason, SessionKey, TopicState, Version, View, load,
    plant::{Plant, planted},
    store::{Position, Result, Shard, Store},
};

use adsum_proto::Check;
use adsum_telemetry::metrics::metrics;

use crate::{clock::wall_us, traces::Traces};

/// Entries read from the log in one call.
const PAGE: usize = 1000;

/// One look in so many reads the log whatever a glance says.
const GLANCES: u32 = 8;

/// A state on its way, with the times of its way.
#[derive(Debug)]
pub struct Routed {
    /// The state.
    pub state: TopicState,
    /// When it was committed: wall clock of the shard, µs; 0 when not known.
    pub committed_us: u64,
    /// When it was handed on: wall clock of this node, µs.
    pub routed_us: u64,
}

/// What a look at the shard brought.
#[derive(Debug)]
pub enum News {
    /// The view follows the shard; these states are new, each topic and user once.
    Current(Vec<Arc<Routed>>),
    /// The same, and whoever watches must get every topic whole: the view was loaded, or an
    /// epoch has settled.
    Whole(Vec<Arc<Routed>>),
    /// There is nothing to follow now: the shard was not born yet, or an older copy of it
    /// answered. The picture stays, but nobody may be told that it is current.
    Behind,
}

/// The view of a shard, and how far its log was read.
pub struct Tail {
    store: Arc<dyn Store>,
    shard: Shard,
    history: usize,
    view: Option<View>,
    read: u64,
    /// States of changes that are in the view and were not handed on yet: what a look or a burst
    /// of pushes took before it met a hole or an error must not be forgotten.
    fresh: Fresh,
    /// Sessions whose gateways have to look at them, still to be told.
    checks: Vec<Check>,
    pub(crate) traces: Traces,
    /// Changes that the last look found in the log and that were not in the view.
    pub(crate) lag: u64,
    /// Looks in a row that only asked whether there is anything new.
    glances: u32,
}

impl Tail {
    /// Nothing is known of the shard yet. The view will remember `history` touched topics.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, shard: Shard, history: usize) -> Self {
        Self {
            store,
            shard,
            history,
            view: None,
            read: 0,
            fresh: Fresh::default(),
            checks: Vec::new(),
            traces: Traces::default(),
            lag: 0,
            glances: 0,
        }
    }

    /// The view, once it was loaded.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// What gateways have to be told of their sessions, since the last time this was asked.
    pub fn checks(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.checks)
    }

    /// Takes pushed changes that follow the view without a hole. `None`: look at the log.
    pub fn push(&mut self, changes: &[Change]) -> Option<Vec<Arc<Routed>>> {
        let view = self.view.as_mut()?;
        let taken = wall_us();
        metrics().changes.add(changes.len());
        for change in changes {
            let at = view.version();
            if change.version <= at {
                continue;
            }
            let follows = change.version == Version::new(at.epoch, self.read + 1);
            // Once an epoch has settled the view must be loaded anew.
            if !follows || matches!(change.event, Event::Settled | Event::Epoch) {
                return None;
            }
            self.read += 1;
            self.checks.extend(checks(view, change));
            let states = view.apply(change);
            self.fresh
                .add((self.shard, taken), change, states, &mut self.traces);
        }
        Some(self.fresh.take())
    }

    /// Whether the log ends where the view does, as far as a glance can tell. It does not see that
    /// a server took the place of another, but the first change there does, and some looks do.
    async fn unmoved(&mut self) -> Result<bool> {
        let Some(view) = self.view.as_ref().filter(|view| !view.settling()) else {
            return Ok(false);
        };
        let last = Version::new(view.version().epoch, self.read);
        self.glances = (self.glances + 1) % GLANCES;
        Ok(self.glances > 0 && self.store.ends_with(self.shard, last).await?)
    }

    /// Reads the log up to its end; loads the view if there is none, or if that fails.
    ///
    /// # Errors
    /// When the shard can't be read now: the view stays as it is.
    pub async fn poll(&mut self) -> Result<News> {
        if self.unmoved().await? {
            self.lag = 0;
            return Ok(News::Current(self.fresh.take()));
        }
        loop {
            let Some(view) = self.view.as_mut() else {
                return self.reload().await;
            };
            let page = self.store.log(self.shard, self.read, PAGE).await?;
            let Some(mut position) = page.position else {
                return Ok(News::Behind);
            };
            let taken = wall_us();
            metrics().changes.add(page.entries.len());
            self.lag = match position.epoch == view.version().epoch {
                true => position.seq.saturating_sub(self.read),
                false => page.entries.len() as u64,
            };
            position.settling &= !planted(Plant::NoSettling);
            if page.entries.len() == 1 && planted(Plant::LostLastPush) {
                return Ok(News::Current(self.fresh.take()));
            }
            self.store.observe(self.shard, position.epoch);
            match follow(view, self.read, position, page.hole) {
                Follow::Behind => return Ok(News::Behind),
                Follow::Reload => return self.reload().await,
                Follow::Settled => {
                    // First what the log still has: whoever was closed since is then told with
                    // the reason, which a picture does not have.
                    for change in &page.entries {
                        self.read = change.version.seq;
                        self.checks.extend(checks(view, change));
                        let states = view.apply(change);
                        self.fresh
                            .add((self.shard, taken), change, states, &mut self.traces);
                    }
                    if self.read < position.seq && !page.entries.is_empty() {
                        continue;
                    }
                    return self.reload().await;
                }
                Follow::Overlay => {
                    // What the old epoch said last comes first: nobody would tell it again
                    // before the new one has settled.
                    let old = view.version().epoch;
                    for change in page.entries.iter().filter(|c| c.version.epoch == old) {
                        self.read = change.version.seq;
                        self.checks.extend(checks(view, change));
                        let states = view.apply(change);
                        self.fresh
                            .add((self.shard, taken), change, states, &mut self.traces);
                    }
                    let more = page.entries.len() == PAGE;
                    if more && page.entries.iter().all(|c| c.version.epoch == old) {
                        continue;
                    }
                    // The new epoch's entries may have lower numbers than what was lost.
                    tracing::info!(
                        shard = self.shard,
                        epoch = position.epoch,
                        "new epoch, settling"
                    );
                    view.begin_epoch(position.epoch);
                    self.read = 0;
                    continue;
                }
                Follow::Apply => {}
            }
            for change in &page.entries {
                self.read = change.version.seq;
                self.checks.extend(checks(view, change));
                let states = view.apply(change);
                self.fresh
                    .add((self.shard, taken), change, states, &mut self.traces);
            }
            if self.read >= position.seq || page.entries.is_empty() {
                self.read = position.seq;
                return Ok(News::Current(self.fresh.take()));
            }
        }
    }

    /// What the log still has, up to an entry at least.
    async fn log_up_to(&self, seq: u64) -> Result<Vec<Change>> {
        let (mut log, mut read) = (Vec::new(), 0);
        while read < seq {
            let page = self.store.log(self.shard, read, PAGE).await?;
            let Some(last) = page.entries.last() else {
                break;
            };
            read = last.version.seq;
            log.extend(page.entries);
        }
        Ok(log)
    }

    async fn reload(&mut self) -> Result<News> {
        let Some(mut snapshot) = load(&*self.store, self.shard).await? else {
            return Ok(News::Behind);
        };
        snapshot.position.settling &= !planted(Plant::NoSettling);
        let Position {
            epoch,
            seq,
            settling,
            ..
        } = snapshot.position;
        self.store.observe(self.shard, epoch);
        let Some(view) = self.view.as_mut() else {
            let mut view = View::new(snapshot, self.history);
            if settling {
                view.recall(&self.log_up_to(seq).await?);
            }
            self.view = Some(view);
            self.read = seq;
            return Ok(News::Whole(Vec::new()));
        };
        // An older copy answered, or a new epoch began meanwhile, which the next look lays over
        // the picture that is there.
        if Version::new(epoch, seq) < view.version() || (settling && epoch != view.version().epoch)
        {
            return Ok(News::Behind);
        }
        let whole = view.settling() || epoch != view.version().epoch;
        tracing::info!(shard = self.shard, epoch, seq, whole, "reloaded");
        metrics().view_reloads.one();
        let now = wall_us();
        let routed = |state| {
            Arc::new(Routed {
                state,
                committed_us: now,
                routed_us: now,
            })
        };
        let mut states = self.fresh.take();
        states.extend(view.reconcile(snapshot).into_iter().map(routed));
        self.read = seq;
        Ok(if whole {
            News::Whole(states)
        } else {
            News::Current(states)
        })
    }
}

/// Sessions that were changed without their gateway: closed by a service, or their user prefers
/// something else, which the gateway has to carry through a loss.
fn checks(view: &View, change: &Change) -> Vec<Check> {
    match &change.event {
        Event::Session {
            owner,
            device,
            reason: Some(Reason::Kicked),
            ..
        } => vec![Check {
            session: SessionKey::new(owner.clone(), device.clone()),
            prefs: None,
        }],
        Event::Prefs { owner, prefs } => {
            let devices = view.devices(owner).cloned();
            let check = |device| Check {
                session: SessionKey::new(owner.clone(), device),
                prefs: Some(*prefs),
            };
            devices.map(check).collect()
        }
        _ => Vec::new(),
    }
}

enum Follow {
    Apply,
    Reload,
    /// All is loaded anew, now that the epoch has settled.
    Settled,
    Overlay,
    Behind,
}

fn follow(view: &View, read: u64, position: Position, hole: bool) -> Follow {
    let at = view.version();
    if position.epoch < at.epoch || (position.epoch == at.epoch && position.seq < read) {
        return Follow::Behind;
    }
    if position.epoch > at.epoch {
        return if position.settling {
            Follow::Overlay
        } else {
            Follow::Reload
        };
    }
    if view.settling() {
        // Holes do no harm here: all is loaded anew once it has settled.
        if position.settling {
            Follow::Apply
        } else {
            Follow::Settled
        }
    } else if hole || position.settling {
        Follow::Reload
    } else {
        Follow::Apply
    }
}

/// States of several changes: only the last one of each topic and user is worth telling.
#[derive(Default)]
struct Fresh {
    order: Vec<Option<Arc<Routed>>>,
    places: HashMap<u64, Vec<usize>>,
}

impl Fresh {
    fn add(
        &mut self,
        (shard, taken_us): (Shard, u64),
        change: &Change,
        mut states: Vec<TopicState>,
        traces: &mut Traces,
    ) {
        let (committed_us, routed_us) = (change.at.saturating_mul(1000), wall_us());
        traces.applied(shard, change, &mut states, (taken_us, routed_us));
        for state in states {
            let places = self.places.entry(key_of(&state)).or_default();
            let same = |old: &TopicState| {
                (&old.user, &old.topic, &old.tenant) == (&state.user, &state.topic, &state.tenant)
            };
            let earlier = places
                .iter()
                .copied()
                .find(|p| self.order[*p].as_ref().is_some_and(|old| same(&old.state)));
            if let Some(place) = earlier {
                self.order[place] = None;
                places.retain(|p| *p != place);
            }
            places.push(self.order.len());
            self.order.push(Some(Arc::new(Routed {
                state,
                committed_us,
                routed_us,
            })));
        }
    }

    fn take(&mut self) -> Vec<Arc<Routed>> {
        let Self { order, .. } = std::mem::take(self);
        order.into_iter().flatten().collect()
    }
}

fn key_of(state: &TopicState) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (&state.tenant, &state.topic, &state.user).hash(&mut hasher);
    hasher.finish()
}

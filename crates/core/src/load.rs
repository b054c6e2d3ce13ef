//! A consistent picture of a shard, without stopping it: scan the people page by page while
//! changes go on, then lay the changes of that time over what was read.

use std::collections::{HashMap, hash_map::Entry};

use crate::{
    Change, Event, Person, UserKey,
    store::{Position, Result, Shard, Snapshot, Store, StoreError},
};

/// Entries read from the log in one call.
const PAGE: usize = 1000;
/// A shard that begins a new epoch, or trims its log, during so many loads in a row is not
/// worth another one now.
const TRIES: usize = 5;

/// Loads a shard. `None` if it was never born.
///
/// # Errors
/// What the store says; and [`StoreError::Unavailable`] when the shard moved on too fast.
pub async fn load(store: &dyn Store, shard: Shard) -> Result<Option<Snapshot>> {
    for _ in 0..TRIES {
        let Some(start) = store.log(shard, 0, 0).await?.position else {
            return Ok(None);
        };
        let people = scan(store, shard).await?;
        if let Some(snapshot) = replay(store, shard, start, people).await? {
            return Ok(Some(snapshot));
        }
    }
    Err(StoreError::Unavailable(format!(
        "shard {shard} moved on during {TRIES} loads"
    )))
}

async fn scan(store: &dyn Store, shard: Shard) -> Result<HashMap<UserKey, Person>> {
    let mut people = HashMap::new();
    let mut cursor = 0;
    loop {
        let page = store.scan(shard, cursor).await?;
        for (user, person) in page.people {
            keep_newer(&mut people, user, person);
        }
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(people),
        }
    }
}

/// A user can come twice in one scan; the later record is never the older one, but a page may
/// be: compare.
fn keep_newer(people: &mut HashMap<UserKey, Person>, user: UserKey, person: Person) {
    match people.entry(user) {
        Entry::Occupied(mut known) if known.get().version <= person.version => {
            known.insert(person);
        }
        Entry::Occupied(_) => {}
        Entry::Vacant(free) => {
            free.insert(person);
        }
    }
}

/// Lays what happened since `start` over the scan. `None` if that can't be known any more.
async fn replay(
    store: &dyn Store,
    shard: Shard,
    start: Position,
    mut people: HashMap<UserKey, Person>,
) -> Result<Option<Snapshot>> {
    let mut at = start.seq;
    loop {
        let page = store.log(shard, at, PAGE).await?;
        let Some(position) = page.position else {
            return Ok(None);
        };
        if page.hole || position.epoch != start.epoch {
            return Ok(None);
        }
        for change in &page.entries {
            at = change.version.seq;
            apply(&mut people, change);
        }
        if at >= position.seq {
            let settling = start.settling || position.settling;
            let position = Position {
                settling,
                ..position
            };
            return Ok(Some(Snapshot { position, people }));
        }
        if page.entries.is_empty() {
            return Ok(None);
        }
    }
}

/// After-images are the whole truth of a session, so laying one over a newer record of the same
/// user would go back: such records already contain it.
fn apply(people: &mut HashMap<UserKey, Person>, change: &Change) {
    match &change.event {
        Event::Epoch | Event::Settled => {}
        Event::Prefs { owner, prefs } => {
            if let Some(person) = people.get_mut(owner).filter(|p| p.version < change.version) {
                person.prefs = *prefs;
                person.version = change.version;
            }
        }
        Event::Session {
            owner,
            device,
            after,
            prefs,
            ..
        } => {
            if people
                .get(owner)
                .is_some_and(|p| p.version >= change.version)
            {
                return;
            }
            match after {
                Some(session) => {
                    let person = people.entry(owner.clone()).or_default();
                    person.sessions.insert(device.clone(), session.clone());
                    person.prefs = *prefs;
                    person.version = change.version;
                }
                None => {
                    let Some(person) = people.get_mut(owner) else {
                        return;
                    };
                    person.sessions.remove(device);
                    person.prefs = *prefs;
                    person.version = change.version;
                    if person.sessions.is_empty() {
                        people.remove(owner);
                    }
                }
            }
        }
    }
}

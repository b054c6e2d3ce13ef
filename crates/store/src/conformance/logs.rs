//! The log, pictures made of it, pushes, bulk reads, and limits.

use std::{collections::HashMap, time::Duration};

use adsum_core::{
    Change, Conn, Event, Invalid, Limits, Meta, Person, Preference, UserId, UserKey,
    store::{Alter, Push, Store, StoreError},
};
use futures::StreamExt;

use super::{Labs, kit::*};
use crate::{Options, load};

/// A reader that fell behind is told that entries are gone; a reload brings it up again.
pub async fn a_trimmed_log_is_a_hole_that_needs_a_reload(labs: &dyn Labs) {
    let kit = Kit::with(
        labs,
        Options {
            log_len: 100,
            ..options()
        },
    )
    .await;
    for n in 0..99 {
        kit.opened(&format!("u{n}/web"), "a~1", (1, 1)).await;
    }
    let page = kit.store.log(S, 0, 1000).await.unwrap();
    assert_eq!(
        (page.entries.len(), page.hole),
        (100, false),
        "as long as allowed"
    );
    kit.opened("late/web", "a~1", (1, 1)).await;
    let position = kit.position().await;
    assert_eq!((position.seq, position.first), (101, 65), "64 at once");
    let page = kit.store.log(S, 0, 1000).await.unwrap();
    assert_eq!((page.entries.len(), page.hole), (37, true));
    assert!(kit.store.log(S, 63, 9).await.unwrap().hole);
    let page = kit.store.log(S, 64, 9).await.unwrap();
    assert_eq!(
        (page.entries.len(), page.hole),
        (9, false),
        "nothing is missing after 64"
    );
    assert!(
        kit.store.log(S, 0, 0).await.unwrap().hole,
        "a question for the position says it too"
    );
    let snapshot = load(&*kit.store, S).await.unwrap().unwrap();
    assert_eq!((snapshot.people.len(), snapshot.position), (100, position));
}

/// By bytes as by entries; the newest entry always stays.
pub async fn a_log_is_bounded_by_bytes(labs: &dyn Labs) {
    let kit = Kit::with(
        labs,
        Options {
            log_max_bytes: 20_000,
            ..options()
        },
    )
    .await;
    let size = |log: &[Change]| {
        log.iter()
            .map(|c| adsum_core::codec::encode_change(c).len() as u64)
            .sum::<u64>()
    };
    let meta = |n: usize| Some(Meta::new(format!("\"{}\"", "x".repeat(n)), 2048).unwrap());
    let mut most = 0;
    for n in 0..100 {
        let mut op = open(&format!("u{n}/web"), "a~1", (1, 1), &[]);
        op.state.meta = meta(n * 15);
        kit.store.open(op).await.unwrap();
        let log = kit.log().await;
        most = most.max(size(&log));
        assert!(size(&log) <= 20_000, "{}", size(&log));
        assert!(!log.is_empty());
    }
    assert!(most > 18_000, "as much as allowed: {most}");
    let kit = Kit::with(
        labs,
        Options {
            log_max_bytes: 10,
            ..options()
        },
    )
    .await;
    kit.opened("ann/web", "a~1", (1, 1)).await;
    let log = kit.log().await;
    assert_eq!((log.len(), log[0].version.seq), (1, 2), "only the newest");
}

/// Page by page, without gaps, up to where it stands.
pub async fn a_log_is_read_in_pages(labs: &dyn Labs) {
    let kit = Kit::new(labs).await;
    for n in 0..10 {
        kit.opened(&format!("u{n}/web"), "a~1", (1, 1)).await;
    }
    let all = kit.log().await;
    assert_eq!(
        all.iter().map(|c| c.version.seq).collect::<Vec<_>>(),
        (1..=11).collect::<Vec<_>>()
    );
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(0, |c: &Change| c.version.seq);
        let page = kit.store.log(S, after, 4).await.unwrap();
        assert!(!page.hole && page.entries.len() <= 4);
        assert_eq!(page.position.unwrap().seq, 11);
        if page.entries.is_empty() {
            break;
        }
        paged.extend(page.entries);
    }
    assert_eq!(paged, all);
    let beyond = kit.store.log(S, 500, 4).await.unwrap();
    assert!(beyond.entries.is_empty() && !beyond.hole);
    assert!(kit.store.log(S, 3, 0).await.unwrap().entries.is_empty());
}

/// Scanned in pages while people come, go and change; the log makes it whole.
pub async fn a_snapshot_loaded_under_changes_equals_the_truth(labs: &dyn Labs) {
    let kit = Kit::with(
        labs,
        Options {
            log_len: 100_000,
            ..options()
        },
    )
    .await;
    for n in 0..700 {
        kit.opened(&format!("u{n}/web"), "a~1", (1, 1)).await;
    }
    let writer = kit.lab.caller().await;
    let busy = tokio::spawn(async move {
        for round in 1..150_u64 {
            let path = |n: u64| format!("u{}/web", n % 700);
            let moved = open(&path(round * 7), "a~1", (round + 1, 1), &["r"]);
            writer.open(moved).await.unwrap();
            let kicked = key(&path(round * 11)).owner;
            writer.kick(&kicked, None).await.unwrap();
            let new = open(&format!("n{round}/web"), "a~1", (1, 1), &[]);
            writer.open(new).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let mut loads = 0;
    while loads == 0 || !busy.is_finished() {
        let snapshot = load(&*kit.store, S).await.unwrap().unwrap();
        let truth = replay(&*kit.store, snapshot.position.seq).await;
        same_people(&snapshot.people, &truth);
        loads += 1;
        tokio::task::yield_now().await;
    }
    busy.await.unwrap();
    let last = load(&*kit.store, S).await.unwrap().unwrap();
    assert_eq!(last.position, kit.position().await);
    let users: Vec<UserKey> = last.people.keys().cloned().collect();
    for (user, read) in users.iter().zip(kit.store.read(&users).await.unwrap()) {
        assert_eq!(read.person.as_ref(), last.people.get(user), "{user:?}");
    }
    same_people(&last.people, &replay(&*kit.store, last.position.seq).await);
}

/// The truth at an entry, from the whole log.
async fn replay(store: &dyn Store, until: u64) -> HashMap<UserKey, Person> {
    let mut people: HashMap<UserKey, Person> = HashMap::new();
    let page = store.log(S, 0, usize::MAX >> 1).await.unwrap();
    assert!(!page.hole);
    for change in page.entries.into_iter().filter(|c| c.version.seq <= until) {
        let Event::Session {
            owner,
            device,
            after,
            prefs,
            ..
        } = change.event
        else {
            continue;
        };
        let person = people.entry(owner.clone()).or_default();
        (person.prefs, person.version) = (prefs, change.version);
        match after {
            Some(session) => drop(person.sessions.insert(device, session)),
            None => drop(person.sessions.remove(&device)),
        }
        if person.sessions.is_empty() {
            people.remove(&owner);
        }
    }
    people
}

fn same_people(left: &HashMap<UserKey, Person>, right: &HashMap<UserKey, Person>) {
    assert_eq!(left.len(), right.len());
    for (user, person) in left {
        let other = &right[user];
        assert_eq!(person.version, other.version, "{user:?}");
        // Stamps and holders move without a change; those are nobody's business.
        let alike = person.sessions.iter().zip(&other.sessions);
        assert_eq!(person.sessions.len(), other.sessions.len());
        assert!(
            alike
                .into_iter()
                .all(|(a, b)| a.0 == b.0 && a.1.looks_like(b.1)),
            "{user:?}"
        );
    }
}

/// The entry itself, in order, from the moment of the subscription.
pub async fn a_subscriber_hears_every_committed_change(labs: &dyn Labs) {
    let kit = Kit::with(
        labs,
        Options {
            shards: 2,
            ..options()
        },
    )
    .await;
    let in_shard = |shard| {
        (0..)
            .map(|n| format!("u{n}/web"))
            .find(|path| kit.store.shard_of(&key(path).owner) == shard)
    };
    let (here, there) = (in_shard(0).unwrap(), in_shard(1).unwrap());
    kit.opened(&here, "a~1", (1, 1)).await;
    let seq = kit.seq().await;
    let mut pushes = kit.store.subscribe(S).await.unwrap();
    let other = kit.lab.caller().await;
    other
        .open(open(&here, "a~1", (1, 2), &["r"]))
        .await
        .unwrap();
    other.open(open(&there, "a~1", (1, 1), &[])).await.unwrap();
    kit.prefer(here.split('/').next().unwrap(), Preference::Status(None), 1)
        .await;
    kit.close(&here, (1, 3)).await;
    kit.lab.fail_over(S).await;
    kit.claim().await;
    let log: Vec<_> = kit
        .log()
        .await
        .into_iter()
        .filter(|c| c.version.seq > seq)
        .collect();
    assert_eq!(log.len(), 4);
    let mut heard = Vec::new();
    while heard.len() < log.len() {
        let push = tokio::time::timeout(Duration::from_secs(10), pushes.next()).await;
        match push
            .expect("a push in time")
            .expect("the feed does not end")
        {
            Push::Change(change) => heard.push(*change),
            Push::Lost => {}
        }
    }
    assert_eq!(heard, log);
}

/// Any number of users of any shards, strangers included.
pub async fn reads_are_answered_in_the_order_asked(labs: &dyn Labs) {
    let kit = Kit::with(
        labs,
        Options {
            shards: 4,
            ..options()
        },
    )
    .await;
    let names: Vec<_> = (0..50).map(|n| format!("u{n}")).collect();
    for name in names.iter().step_by(2) {
        kit.opened(&format!("{name}/{name}"), "a~1", (1, 1)).await;
    }
    let users: Vec<_> = names
        .iter()
        .rev()
        .chain(&names[..3])
        .map(|n| user(n))
        .collect();
    let reads = kit.store.read(&users).await.unwrap();
    assert_eq!(reads.len(), 53);
    for (user, read) in users.iter().zip(reads) {
        let here = user.user.as_str()[1..]
            .parse::<u32>()
            .unwrap()
            .is_multiple_of(2);
        let devices: Vec<_> = read.person.iter().flat_map(|p| p.sessions.keys()).collect();
        assert_eq!(!devices.is_empty(), here);
        assert!(devices.iter().all(|d| d.as_str() == user.user.as_str()));
    }
    assert!(kit.store.read(&[]).await.unwrap().is_empty());
}

/// Bad input is refused by name, and not even a birth is written.
pub async fn limits_are_checked_before_anything_is_written(labs: &dyn Labs) {
    let limits = Limits {
        meta_bytes: 8,
        rooms: 2,
        contacts: 3,
    };
    let kit = Kit::with(
        labs,
        Options {
            limits,
            ..options()
        },
    )
    .await;
    let long = || Some(Meta::new("\"0123456789\"", 100).unwrap());
    let rooms = Invalid::TooManyRooms { count: 3, limit: 2 };
    let meta = Invalid::MetaTooLarge { size: 12, limit: 8 };
    let mut in_room = state(&["r"]);
    in_room
        .rooms
        .iter_mut()
        .for_each(|(_, stay)| stay.meta = long());
    let mut own = state(&[]);
    own.meta = long();
    for (bad, wanted) in [
        (state(&["a", "b", "c"]), rooms),
        (in_room, meta.clone()),
        (own, meta),
    ] {
        let wanted = StoreError::Invalid(wanted);
        assert!(!wanted.retry());
        let op = super::kit::open("ann/web", "a~1", (1, 1), &[]);
        let op = adsum_core::store::Open {
            state: bad.clone(),
            ..op
        };
        assert_eq!(kit.store.open(op).await, Err(wanted.clone()));
        let (key, stamp) = (key("ann/web"), stamp(1, 1));
        let op = Alter {
            key,
            stamp,
            state: bad.clone(),
            origin: None,
        };
        assert_eq!(kit.store.alter(op).await, Err(wanted.clone()));
        let good = touch("ann/web", (1, 1), 100);
        let op = adsum_core::store::Touch {
            state: bad,
            ..good.clone()
        };
        assert_eq!(kit.store.touch(vec![good, op]).await, Err(wanted));
    }
    let list = (0..4)
        .map(|n| UserId::new(format!("u{n}")).unwrap())
        .collect();
    let wanted = StoreError::Invalid(Invalid::TooManyContacts { count: 4, limit: 3 });
    let preferred = kit
        .store
        .prefer(&user("ann"), Preference::Contacts(list), 1)
        .await;
    assert_eq!(preferred.map(drop), Err(wanted));
    assert_eq!(
        kit.store.log(S, 0, 9).await.unwrap().position,
        None,
        "not even born"
    );
    let mut fits = open("ann/web", "a~1", (Conn::MAX, 1), &["a", "b"]);
    fits.state.meta = Some(Meta::new("\"123456\"", 8).unwrap());
    assert!(
        committed(&kit.store.open(fits).await.unwrap().value),
        "exactly the limits"
    );
}

//! Sessions, beats, holders and preferences: what each function answers.

use std::sync::atomic::Ordering::Relaxed;

use adsum_core::{
    Conn, Holder, Invalid, Manual, Preference, Prefs, Reason, RoomId, UserId, Visibility,
    store::{
        Alter, Altered, Closed, Fence, Lease, Opened, Preferred, Renewed, Store, StoreError, Swept,
        Touched,
    },
};
use anyhow::{Result, ensure};

use crate::lab::{
    Lab, START, close, holder, key, open, options, settle, stamp, state, touch, user,
};

#[tokio::test]
async fn sessions_open_change_and_close() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    let phone = key("ann", "phone");
    let op = open(phone.clone(), "a", stamp(5, 1), state(&["x"]));

    let first = store.open(op.clone()).await?;
    let Opened::Ok {
        session,
        committed: true,
        ..
    } = &first.value
    else {
        panic!("{first:?}");
    };
    assert_eq!(
        (session.opened_at, first.at, first.epoch),
        (START, START, START + 1)
    );
    let again = store.open(op.clone()).await?;
    assert!(matches!(
        again.value,
        Opened::Ok {
            committed: false,
            ..
        }
    ));

    lab.wait(10);
    let moved = store
        .open(open(phone.clone(), "b", stamp(6, 1), state(&["x"])))
        .await?;
    let Opened::Ok {
        session,
        committed: false,
        ..
    } = moved.value
    else {
        panic!("a silent reconnect makes no change");
    };
    assert_eq!(session.holder, Holder::Gateway(holder("b")));
    assert_eq!(session.state.rooms[&RoomId::new("x")?].since, START);
    assert_eq!(store.held(0, &holder("a"), None, 9).await?, []);
    assert_eq!(
        store.held(0, &holder("b"), None, 9).await?,
        std::slice::from_ref(&phone)
    );
    let old = store.open(op).await?.value;
    assert_eq!(
        old,
        Opened::Superseded {
            conn: Conn::new(6)?
        }
    );

    let alter = |conn, rev, rooms: &[&str]| Alter {
        key: phone.clone(),
        stamp: stamp(conn, rev),
        state: state(rooms),
        origin: None,
    };
    let newer = store.alter(alter(7, 1, &[])).await?.value;
    assert_eq!(newer, Altered::Unknown);
    let older = store.alter(alter(5, 9, &[])).await?.value;
    assert_eq!(
        older,
        Altered::Superseded {
            conn: Conn::new(6)?
        }
    );
    let late = store.alter(alter(6, 1, &["y"])).await?.value;
    assert!(matches!(
        late,
        Altered::Ok {
            committed: false,
            ..
        }
    ));
    let same = store.alter(alter(6, 2, &["x"])).await?.value;
    assert!(matches!(
        same,
        Altered::Ok {
            committed: false,
            ..
        }
    ));
    let other = store.alter(alter(6, 3, &[])).await?.value;
    assert!(matches!(
        other,
        Altered::Ok {
            committed: true,
            ..
        }
    ));

    let older = store.close(close(phone.clone(), stamp(5, 9))).await?.value;
    assert_eq!(
        older,
        Closed::Superseded {
            conn: Conn::new(6)?
        }
    );
    let late = store.close(close(phone.clone(), stamp(6, 3))).await?.value;
    assert_eq!(late, Closed::Ok { committed: false });
    let closed = store.close(close(phone.clone(), stamp(6, 4))).await?.value;
    assert_eq!(closed, Closed::Ok { committed: true });
    let back = store
        .open(open(phone.clone(), "b", stamp(6, 5), state(&[])))
        .await?
        .value;
    assert_eq!(
        back,
        Opened::Superseded {
            conn: Conn::new(6)?
        }
    );
    let read = store.read(&[user("ann"), user("bob")]).await?;
    assert_eq!(
        (read[0].last_seen, &read[0].person),
        (Some(START + 10), &None)
    );
    assert_eq!((read[1].last_seen, read[1].settling), (None, true));
    Ok(())
}

#[tokio::test]
async fn touch_takes_many_and_judges_each() -> Result<()> {
    let lab = Lab::new(options(4)).await?;
    let mut ops: Vec<_> = (0..2100)
        .map(|n| touch(key(&format!("u{n}"), "web"), stamp(1, 1), state(&["lobby"])))
        .collect();
    ops.push(touch(key("u7", "web"), stamp(1, 1), state(&[])));
    ops.push(touch(key("u7", "web"), stamp(1, 2), state(&[])));
    ops.push(touch(key("u7", "app"), stamp(1, 1), state(&[])));
    let answers = lab.store.touch(ops).await?;
    let committed = answers
        .iter()
        .map(|a| a.value == Touched::Ok { committed: true });
    assert_eq!(committed.filter(|c| *c).count(), 2102);
    assert_eq!(answers[2100].value, Touched::Ok { committed: false });
    let all: Vec<_> = (0..2100).map(|n| user(&format!("u{n}"))).collect();
    let read = lab.store.read(&all).await?;
    assert!(read.iter().all(|u| u.person.is_some()));
    assert_eq!(read[7].person.as_ref().unwrap().sessions.len(), 2);
    lab.store
        .close(close(key("u7", "web"), stamp(3, 1)))
        .await?;
    let late = lab
        .store
        .touch(vec![touch(key("u7", "web"), stamp(2, 1), state(&[]))])
        .await?;
    assert_eq!(
        late[0].value,
        Touched::Superseded {
            conn: Conn::new(3)?
        }
    );
    assert_eq!(lab.store.touch(vec![]).await?, []);
    Ok(())
}

#[tokio::test]
async fn holders_renew_drain_and_expire() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    let unknown = store.renew(0, &holder("a"), Lease::Usual).await?.value;
    assert_eq!(unknown, Renewed::Gone);
    for n in 0..5 {
        let op = open(key(&format!("u{n}"), "d"), "a", stamp(1, 1), state(&[]));
        store.open(op).await?;
    }
    store
        .open(open(key("x", "d"), "ab", stamp(1, 1), state(&[])))
        .await?;
    let held = store.renew(0, &holder("a"), Lease::Usual).await?.value;
    assert_eq!(held, Renewed::Ok { held: 5 });

    let fence = settle(&lab, &["a", "ab"]).await?;
    let old = Fence {
        number: fence.number - 1,
        ..fence
    };
    assert_eq!(store.sweep(0, old, 9).await?.value, Swept::Refused);
    store.renew(0, &holder("a"), Lease::Drain(1_000)).await?;
    lab.wait(1_001);
    let part = store.sweep(0, fence, 2).await?.value;
    assert_eq!(
        part,
        Swept::Ok {
            closed: 2,
            next_ms: Some(0)
        }
    );
    let gone = store
        .open(open(key("y", "d"), "a", stamp(1, 1), state(&[])))
        .await?
        .value;
    assert_eq!(gone, Opened::Gone);
    assert_eq!(
        store.renew(0, &holder("a"), Lease::Usual).await?.value,
        Renewed::Gone
    );
    // The clock goes back: the condemned stay due.
    lab.clock.fetch_sub(5_000, Relaxed);
    let rest = store.sweep(0, fence, 100).await?.value;
    ensure!(
        matches!(
            rest,
            Swept::Ok {
                closed: 3,
                next_ms: Some(_)
            }
        ),
        "{rest:?}"
    );
    let page = store.log(0, 0, 1000).await?;
    let reasons = page
        .entries
        .iter()
        .filter_map(|change| match &change.event {
            adsum_core::Event::Session { reason, .. } => *reason,
            _ => None,
        });
    assert_eq!(reasons.collect::<Vec<_>>(), [Reason::Disconnect; 5]);
    Ok(())
}

#[tokio::test]
async fn preferences_go_by_version() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let store = &lab.store;
    let ann = user("ann");
    let set = |p, v| store.prefer(&ann, p, v);
    assert_eq!(store.contacts(&ann).await?, None);
    let hidden = Preference::Status(Some(Manual::Invisible));
    let Preferred::Ok(prefs) = set(hidden.clone(), 5).await?.value else {
        panic!()
    };
    assert_eq!((prefs.status.version, prefs.frozen_at), (5, 0));
    assert!(matches!(
        set(hidden.clone(), 5).await?.value,
        Preferred::Ok(_)
    ));
    assert!(matches!(
        set(Preference::Status(None), 5).await?.value,
        Preferred::Stale(_)
    ));
    assert!(matches!(set(hidden, 4).await?.value, Preferred::Stale(_)));
    let list = vec![UserId::new("bob")?, UserId::new("al")?];
    set(Preference::Contacts(list.clone()), 3).await?;
    assert_eq!(store.contacts(&ann).await?, Some((3, list)));
    set(Preference::Contacts(vec![]), 4).await?;
    assert_eq!(store.contacts(&ann).await?, Some((4, vec![])));
    for version in [0, Conn::MAX + 1] {
        let refused = set(Preference::Visibility(Visibility::Nobody), version).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))));
    }
    let many = vec![UserId::new("x")?; 5001];
    let invalid = set(Preference::Contacts(many), 9).await;
    assert!(matches!(
        invalid,
        Err(StoreError::Invalid(Invalid::TooManyContacts { .. }))
    ));
    store.purge(&ann).await?;
    assert_eq!(store.contacts(&ann).await?, None);
    assert_eq!(store.read(&[ann]).await?[0].prefs, Prefs::default());
    Ok(())
}

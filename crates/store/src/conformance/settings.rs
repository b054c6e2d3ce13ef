//! Preferences, contacts, last seen, and forgetting.

use adsum_core::{
    Event, Manual, Preference, Prefs, UserId, Versioned, Visibility,
    store::{Due, Opened, Preferred},
};

use super::{Labs, kit::*};

const fn status(value: Option<Manual>) -> Preference {
    Preference::Status(value)
}

const INVISIBLE: Preference = status(Some(Manual::Invisible));

fn contacts(names: &[&str]) -> Preference {
    Preference::Contacts(names.iter().map(|n| UserId::new(*n).unwrap()).collect())
}

/// Higher wins; the same again is fine; the same version with another value is stale.
pub async fn a_preference_is_taken_by_its_version(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let seq = kit.seq().await;
    let busy = status(Some(Manual::Busy));
    let Preferred::Ok(prefs) = kit.prefer("ann", busy.clone(), 10).await else {
        panic!("it is the first");
    };
    assert_eq!(
        prefs.status,
        Versioned {
            value: Some(Manual::Busy),
            version: 10
        }
    );
    let read = kit.read("ann").await;
    let person = read.person.unwrap();
    assert_eq!((read.prefs, person.prefs), (prefs, prefs));
    assert_eq!(person.version.seq, seq + 1);
    assert_eq!(
        kit.prefer("ann", busy.clone(), 10).await,
        Preferred::Ok(prefs),
        "a retry"
    );
    assert_eq!(
        kit.prefer("ann", status(None), 10).await,
        Preferred::Stale(prefs)
    );
    assert_eq!(
        kit.prefer("ann", status(None), 9).await,
        Preferred::Stale(prefs)
    );
    assert_eq!(
        kit.prefer("ann", busy.clone(), 9).await,
        Preferred::Stale(prefs)
    );
    assert_eq!(kit.seq().await, seq + 1, "one change in all this");
    let Preferred::Ok(both) = kit
        .prefer("ann", Preference::Visibility(Visibility::Nobody), 3)
        .await
    else {
        panic!("each setting has its own version");
    };
    assert_eq!(
        both.visibility,
        Versioned {
            value: Visibility::Nobody,
            version: 3
        }
    );
    assert_eq!(both.status, prefs.status);
    assert!(matches!(
        kit.prefer("ann", busy, 11).await,
        Preferred::Ok(_)
    ));
    assert_eq!(
        kit.told_after(seq).await,
        ["ann prefs", "ann prefs", "ann prefs"]
    );
    let last = kit.log().await.pop().unwrap();
    assert_eq!(
        last.event,
        Event::Prefs {
            owner: user("ann"),
            prefs: kit.read("ann").await.prefs
        }
    );
    assert!(
        kit.store
            .prefer(&user("ann"), status(None), 0)
            .await
            .is_err()
    );
    assert!(
        kit.store
            .prefer(&user("ann"), status(None), 1 << 53)
            .await
            .is_err()
    );
}

/// The list is kept apart; the version is part of the preferences.
pub async fn contacts_are_kept_with_their_version(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let ann = user("ann");
    assert_eq!(kit.store.contacts(&ann).await.unwrap(), None);
    let Preferred::Ok(prefs) = kit.prefer("ann", contacts(&["zoe", "bob"]), 4).await else {
        panic!("it is the first");
    };
    assert_eq!(
        prefs,
        Prefs {
            contacts: 4,
            ..Prefs::default()
        }
    );
    let list = |names: &[&str]| {
        names
            .iter()
            .map(|n| UserId::new(*n).unwrap())
            .collect::<Vec<_>>()
    };
    let kept = kit.store.contacts(&ann).await.unwrap();
    assert_eq!(kept, Some((4, list(&["zoe", "bob"]))), "in the order given");
    let retry = kit.prefer("ann", contacts(&["zoe", "bob"]), 4).await;
    assert_eq!(retry, Preferred::Ok(prefs));
    assert_eq!(
        kit.prefer("ann", contacts(&["bob"]), 4).await,
        Preferred::Stale(prefs)
    );
    assert_eq!(
        kit.prefer("ann", contacts(&[]), 3).await,
        Preferred::Stale(prefs)
    );
    assert!(matches!(
        kit.prefer("ann", contacts(&[]), 5).await,
        Preferred::Ok(_)
    ));
    assert_eq!(
        kit.store.contacts(&ann).await.unwrap(),
        Some((5, vec![])),
        "an empty list is one"
    );
    assert_eq!(kit.read("ann").await.prefs.contacts, 5);
}

/// Whoever finds the last session gone finds when that was, at every moment.
pub async fn last_seen_is_written_before_the_session_goes(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (1, 1)).await;
    kit.opened("ann/phone", "a~1", (1, 1)).await;
    kit.close("ann/phone", (1, 2)).await;
    assert_eq!(kit.read("ann").await.last_seen, None, "one is left");
    kit.lab.advance(50);
    kit.close("ann/web", (1, 2)).await;
    let read = kit.read("ann").await;
    assert_eq!((read.person, read.last_seen), (None, Some(kit.now())));
    let reader = kit.lab.caller().await;
    kit.opened("bob/web", "a~1", (1, 1)).await;
    let watch = tokio::spawn(async move {
        for _ in 0..200 {
            let read = reader.read(&[user("bob")]).await.unwrap().remove(0);
            assert!(
                read.person.is_some() || read.last_seen.is_some(),
                "neither here nor seen"
            );
            tokio::task::yield_now().await;
        }
    });
    for n in 1..40 {
        kit.close("bob/web", (n, 2)).await;
        tokio::task::yield_now().await;
        kit.opened("bob/web", "a~1", (n + 1, 1)).await;
        tokio::task::yield_now().await;
    }
    watch.await.unwrap();
    let seen = kit.read("bob").await.last_seen;
    assert!(seen.is_some(), "it stays while somebody is here again");
}

/// What the public last seen was when the user turned invisible, it stays.
pub async fn invisible_freezes_last_seen(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (1, 1)).await;
    let frozen = kit.now();
    let Preferred::Ok(prefs) = kit.prefer("ann", INVISIBLE, 1).await else {
        panic!("it is the first");
    };
    assert_eq!(prefs.frozen_at, frozen);
    kit.lab.advance(1_000);
    let Preferred::Ok(prefs) = kit.prefer("ann", INVISIBLE, 2).await else {
        panic!("it is newer");
    };
    assert_eq!(prefs.frozen_at, frozen, "already invisible");
    kit.close("ann/web", (1, 2)).await;
    assert_eq!(kit.read("ann").await.last_seen, Some(frozen));
    kit.opened("ann/web", "a~1", (2, 1)).await;
    kit.lab.advance(1_000);
    let Preferred::Ok(prefs) = kit.prefer("ann", status(None), 3).await else {
        panic!("it is newer");
    };
    assert_eq!(prefs.frozen_at, 0);
    kit.close("ann/web", (2, 2)).await;
    assert_eq!(
        kit.read("ann").await.last_seen,
        Some(kit.now()),
        "visible again, seen again"
    );
}

/// The moment from which others may know that the user is there.
pub async fn coming_out_of_hiding_has_its_time(labs: &dyn Labs) {
    const NOBODY: Preference = Preference::Visibility(Visibility::Nobody);
    const CONTACTS: Preference = Preference::Visibility(Visibility::Contacts);
    const EVERYONE: Preference = Preference::Visibility(Visibility::Everyone);
    const BUSY: Preference = Preference::Status(Some(Manual::Busy));
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (1, 1)).await;
    let mut shown_at = 0;
    let steps = [
        (BUSY, false),
        (INVISIBLE, false),
        (INVISIBLE, false),
        (status(None), true),
        (BUSY, false),
        (CONTACTS, false),
        (EVERYONE, true),
        (NOBODY, false),
        (contacts(&["bob"]), false),
        (CONTACTS, true),
        (CONTACTS, false),
        (EVERYONE, true),
    ];
    for (version, (setting, comes_out)) in (1..).zip(steps) {
        kit.lab.advance(1_000);
        let Preferred::Ok(prefs) = kit.prefer("ann", setting.clone(), version).await else {
            panic!("{setting:?} is newer");
        };
        if comes_out {
            shown_at = kit.now();
        }
        assert_eq!(prefs.shown_at, shown_at, "{setting:?}");
    }
    let person = kit.read("ann").await.person.unwrap();
    let item = person.item(&UserId::new("ann").unwrap()).unwrap();
    assert_eq!(item.since, shown_at, "not the first open");
}

/// Without sessions there is nothing newer to hide than the last seen.
pub async fn turning_invisible_while_away_keeps_the_last_seen(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (1, 1)).await;
    kit.close("ann/web", (1, 2)).await;
    let left = kit.now();
    kit.lab.advance(1_000);
    for (who, frozen) in [("ann", left), ("new", 0)] {
        let Preferred::Ok(prefs) = kit.prefer(who, INVISIBLE, 1).await else {
            panic!("it is the first");
        };
        assert_eq!(prefs.frozen_at, frozen, "{who}");
        let path = format!("{who}/web");
        kit.opened(&path, "a~1", (2, 1)).await;
        kit.close(&path, (2, 2)).await;
    }
    assert_eq!(kit.read("ann").await.last_seen, Some(left));
    assert_eq!(
        kit.read("new").await.last_seen,
        None,
        "never seen in public"
    );
}

/// A gateway carries status and visibility through a loss; the newer wins, contacts never.
pub async fn carried_preferences_win_by_their_version(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let carried = Prefs {
        status: Versioned {
            value: Some(Manual::Invisible),
            version: 7,
        },
        visibility: Versioned {
            value: Visibility::Contacts,
            version: 2,
        },
        contacts: 99,
        frozen_at: 123,
        shown_at: 45,
    };
    kit.prefer("ann", Preference::Visibility(Visibility::Nobody), 3)
        .await;
    let seq = kit.seq().await;
    let mut op = open("ann/web", "a~1", (1, 1), &[]);
    op.prefs = Some(carried);
    let Opened::Ok {
        prefs,
        committed: true,
        ..
    } = kit.store.open(op.clone()).await.unwrap().value
    else {
        panic!("it opens");
    };
    let visibility = Versioned {
        value: Visibility::Nobody,
        version: 3,
    };
    assert_eq!(
        prefs,
        Prefs {
            visibility,
            contacts: 0,
            ..carried
        }
    );
    let read = kit.read("ann").await;
    assert_eq!((read.prefs, read.person.unwrap().prefs), (prefs, prefs));
    assert_eq!(
        kit.told_after(seq).await,
        ["ann/web"],
        "the open tells it all"
    );
    // Carried again and nothing new: nothing to tell.
    op.stamp = stamp(1, 2);
    assert!(!committed(&kit.store.open(op.clone()).await.unwrap().value));
    // Something newer is visible even though the session is the same.
    op.stamp = stamp(1, 3);
    op.prefs = Some(Prefs {
        status: Versioned {
            value: None,
            version: 8,
        },
        ..Prefs::default()
    });
    let Opened::Ok {
        prefs,
        committed: true,
        ..
    } = kit.store.open(op).await.unwrap().value
    else {
        panic!("it is a change");
    };
    assert_eq!((prefs.status.version, prefs.frozen_at), (8, 0));
    assert_eq!(kit.read("ann").await.prefs, prefs);
}

/// Nothing is left but tombstones, which guard against late operations.
pub async fn purge_forgets_a_user(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.touch("ann/tv", (5, 1), 1_000).await;
    kit.prefer("ann", INVISIBLE, 1).await;
    kit.prefer("ann", contacts(&["bob"]), 1).await;
    let seq = kit.seq().await;
    kit.store.purge(&user("ann")).await.unwrap();
    assert_eq!(
        kit.told_after(seq).await,
        ["ann/tv kicked", "ann/web kicked", "ann prefs"]
    );
    let read = kit.read("ann").await;
    assert_eq!(
        (read.person, read.prefs, read.last_seen),
        (None, Prefs::default(), None)
    );
    assert_eq!(kit.store.contacts(&user("ann")).await.unwrap(), None);
    assert!(kit.held("a~1").await.is_empty());
    assert_eq!(kit.deadline(&Due::Session(key("ann/tv"))).await, None);
    assert_eq!(kit.open("ann/web", "b~1", (5, 9), &[]).await, superseded(5));
    let seq = kit.seq().await;
    kit.store.purge(&user("ann")).await.unwrap();
    kit.store.purge(&user("nil")).await.unwrap();
    assert_eq!(kit.seq().await, seq, "there was nothing left to tell");
    assert!(
        matches!(kit.prefer("ann", status(None), 1).await, Preferred::Ok(_)),
        "from the start"
    );
}

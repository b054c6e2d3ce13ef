//! Who keeps sessions alive: gateways that renew, drain or vanish, and sessions that touch.

use adsum_core::{
    Holder,
    store::{Due, Opened, Renewed, Touch, Touched},
};

use super::{Labs, kit::*};

/// A renewal answers the epoch and how many the shard believes are held, or `gone`.
pub async fn renew_tells_a_new_epoch_a_differing_number_or_gone(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    assert_eq!(kit.renew("a~1").await, Renewed::Gone, "never heard of");
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.opened("bob/web", "a~1", (5, 1)).await;
    let first = kit.renewed("a~1").await;
    assert_eq!(
        (first.value, first.at),
        (Renewed::Ok { held: 2 }, kit.now())
    );
    let deadline = kit.now() + kit.lab.options().holder_ms;
    assert_eq!(
        kit.deadline(&Due::Holder(holder("a~1"))).await,
        Some(deadline)
    );
    kit.opened("bob/web", "b~1", (6, 1)).await;
    assert_eq!(
        kit.renew("a~1").await,
        Renewed::Ok { held: 1 },
        "one moved away"
    );
    kit.lab.fail_over(S).await;
    let second = kit.renewed("a~1").await;
    assert_eq!(second.value, Renewed::Ok { held: 1 });
    assert!(second.epoch > first.epoch, "a new epoch");
    kit.lab.flush(S).await;
    let third = kit.renewed("a~1").await;
    assert_eq!(third.value, Renewed::Gone);
    assert!(third.epoch > second.epoch);
}

/// At its deadline a holder still counts; after it, only a renewal before the sweep revives it.
pub async fn an_expired_holder_is_gone_for_opens_until_it_renews(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.pass(kit.lab.options().holder_ms).await;
    assert_eq!(
        kit.swept(10).await.0,
        0,
        "exactly at the deadline nobody is closed"
    );
    assert!(kit.opened("bob/web", "a~1", (5, 1)).await);
    kit.lab.advance(1);
    assert_eq!(kit.open("cid/web", "a~1", (5, 1), &[]).await, Opened::Gone);
    assert_eq!(kit.read("cid").await.person, None);
    assert_eq!(kit.renew("a~1").await, Renewed::Ok { held: 2 });
    assert!(kit.opened("cid/web", "a~1", (5, 1)).await);
}

/// The first sweep of an expired holder condemns it, even if that sweep can't finish it.
pub async fn a_condemned_holder_is_gone_for_good(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    for path in ["ann/web", "bob/web", "cid/web"] {
        kit.opened(path, "a~1", (5, 1)).await;
    }
    let seq = kit.seq().await;
    kit.pass(kit.lab.options().holder_ms + 1).await;
    assert_eq!(kit.swept(2).await, (2, Some(0)));
    assert_eq!(kit.renew("a~1").await, Renewed::Gone);
    assert_eq!(kit.open("dan/web", "a~1", (5, 1), &[]).await, Opened::Gone);
    let due = Due::Condemned(holder("a~1"));
    assert!(kit.deadline(&due).await.is_some());
    assert_eq!(kit.swept(2).await, (1, None));
    assert_eq!(kit.deadline(&due).await, None);
    let told = kit.told_after(seq).await;
    assert_eq!(
        told,
        [
            "ann/web node_lost",
            "bob/web node_lost",
            "cid/web node_lost"
        ]
    );
    assert!(
        kit.opened("dan/web", "a~1", (5, 1)).await,
        "forgotten, so it is a new one"
    );
    assert!(
        kit.opened("ann/web", "b~1", (5, 1)).await,
        "a sweep leaves no tombstone"
    );
}

/// Whoever has not returned by the deadline of a drain has disconnected; no node was lost.
pub async fn a_drained_holder_ends_as_disconnect(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.opened("bob/web", "a~1", (5, 1)).await;
    let seq = kit.seq().await;
    assert_eq!(kit.drain("a~1", 8_000).await, Renewed::Ok { held: 2 });
    let until = kit.now() + 8_000;
    assert_eq!(
        kit.deadlines().await,
        [(Due::Draining(holder("a~1")), until)]
    );
    assert!(
        !kit.opened("bob/web", "b~1", (6, 1)).await,
        "bob came back elsewhere"
    );
    assert!(
        kit.opened("eve/web", "a~1", (5, 1)).await,
        "until then it may still hold"
    );
    kit.pass(8_000).await;
    assert_eq!(kit.swept(1).await.0, 0);
    kit.lab.advance(1);
    assert_eq!(kit.open("cid/web", "a~1", (5, 1), &[]).await, Opened::Gone);
    assert_eq!(kit.swept(1).await, (1, Some(0)));
    assert_eq!(kit.renew("a~1").await, Renewed::Gone);
    assert_eq!(kit.swept(2).await.0, 1);
    let told = kit.told_after(seq).await;
    assert_eq!(
        told,
        ["eve/web", "ann/web disconnect", "eve/web disconnect"]
    );
}

/// A gateway that stays after all renews as before.
pub async fn a_renewal_ends_a_drain(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.drain("a~1", 100).await;
    kit.lab.advance(101);
    assert_eq!(kit.renew("a~1").await, Renewed::Ok { held: 1 });
    let until = kit.now() + kit.lab.options().holder_ms;
    assert_eq!(kit.deadlines().await, [(Due::Holder(holder("a~1")), until)]);
}

/// A heartbeat opens what is unknown; without the next one the session times out.
pub async fn a_touched_session_holds_itself_until_its_deadline(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let seq = kit.seq().await;
    assert_eq!(
        kit.touch("ann/tv", (5, 1), 3_000).await,
        Touched::Ok { committed: true }
    );
    let person = kit.read("ann").await.person.unwrap();
    assert_eq!(person.sessions[&device("tv")].holder, Holder::Own);
    kit.lab.advance(2_000);
    assert_eq!(
        kit.touch("ann/tv", (5, 2), 3_000).await,
        Touched::Ok { committed: false }
    );
    let until = kit.now() + 3_000;
    assert_eq!(
        kit.deadlines().await,
        [(Due::Session(key("ann/tv")), until)]
    );
    kit.pass(2_999).await;
    assert_eq!(kit.swept(10).await, (0, Some(1)));
    kit.lab.advance(1);
    assert_eq!(kit.swept(10).await, (1, None), "at its deadline it is over");
    assert_eq!(kit.told_after(seq).await, ["ann/tv", "ann/tv timeout"]);
    assert_eq!(kit.read("ann").await.last_seen, Some(kit.now()));
}

/// Beats open no session beyond what their owner may have; whatever is there beats on.
pub async fn beats_open_no_more_sessions_than_a_user_may_have(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let beat = |path: &str, rev| Touch {
        sessions_max: 2,
        ..touch(path, (5, rev), 3_000)
    };
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let beats = vec![beat("ann/tv", 1), beat("ann/car", 1), beat("bob/tv", 1)];
    let answers = kit.store.touch(beats).await.unwrap();
    let values: Vec<_> = answers.iter().map(|answer| answer.value).collect();
    let opened = Touched::Ok { committed: true };
    assert_eq!(values, [opened, Touched::Full, opened]);
    assert_eq!(kit.read("ann").await.person.unwrap().sessions.len(), 2);
    let answers = kit.store.touch(vec![beat("ann/tv", 2)]).await.unwrap();
    assert_eq!(answers[0].value, Touched::Ok { committed: false });
}

/// A duplicate is no sign of life: the first copy was.
pub async fn a_late_touch_does_not_move_the_deadline(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.touch("ann/tv", (5, 2), 3_000).await;
    let before = kit.deadlines().await;
    kit.lab.advance(1_000);
    assert_eq!(
        kit.touch("ann/tv", (5, 2), 3_000).await,
        Touched::Ok { committed: false }
    );
    assert_eq!(
        kit.touch("ann/tv", (5, 1), 3_000).await,
        Touched::Ok { committed: false }
    );
    assert_eq!(kit.deadlines().await, before);
}

/// The one who holds is the one who was heard last, and only that one's end counts.
pub async fn touch_and_open_move_a_session_between_holders(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    kit.opened("ann/web", "a~1", (5, 1)).await;
    let seq = kit.seq().await;
    assert_eq!(
        kit.touch("ann/web", (5, 2), 60_000).await,
        Touched::Ok { committed: false }
    );
    assert!(kit.held("a~1").await.is_empty());
    assert_eq!(kit.renew("a~1").await, Renewed::Ok { held: 0 });
    kit.pass(kit.lab.options().holder_ms + 1).await;
    assert_eq!(
        kit.swept(10).await.0,
        0,
        "the gateway's end is not the session's"
    );
    assert!(!kit.opened("ann/web", "b~1", (5, 3)).await);
    assert_eq!(kit.held("b~1").await, ["ann/web"]);
    assert_eq!(kit.deadline(&Due::Session(key("ann/web"))).await, None);
    kit.touch("ann/web", (6, 1), 100).await;
    kit.close("ann/web", (6, 2)).await;
    assert_eq!(kit.deadline(&Due::Session(key("ann/web"))).await, None);
    assert_eq!(kit.told_after(seq).await, ["ann/web leave"]);
}

/// A batch may span shards and name a session twice.
pub async fn touches_are_judged_one_by_one_and_answered_in_order(labs: &dyn Labs) {
    let kit = Kit::with(
        labs,
        crate::Options {
            shards: 4,
            ..options()
        },
    )
    .await;
    let names: Vec<_> = (0..40).map(|i| format!("u{i}/tv")).collect();
    kit.close("u7/tv", (9, 1)).await;
    let mut batch: Vec<_> = names.iter().map(|n| touch(n, (5, 1), 1000)).collect();
    batch.push(touch("u3/tv", (5, 1), 1000));
    batch.push(touch("u3/tv", (4, 1), 1000));
    batch.push(touch("u3/tv", (6, 1), 1000));
    let answers = kit.store.touch(batch).await.unwrap();
    assert_eq!(answers.len(), 43);
    for (i, answer) in answers.iter().enumerate() {
        let wanted = match i {
            7 => Touched::Superseded { conn: conn(9) },
            40 | 42 => Touched::Ok { committed: false },
            41 => Touched::Superseded { conn: conn(5) },
            _ => Touched::Ok { committed: true },
        };
        assert_eq!(answer.value, wanted, "item {i}");
        assert_eq!(answer.at, kit.now());
    }
    let shards: std::collections::HashSet<_> = names
        .iter()
        .map(|n| kit.store.shard_of(&key(n).owner))
        .collect();
    assert_eq!(shards.len(), 4, "the batch spans all shards");
    assert!(kit.store.touch(vec![]).await.unwrap().is_empty());
}

/// In the order of keys, and nothing of a holder whose name begins alike.
pub async fn held_is_paged_in_the_order_of_keys(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    for path in ["bob/web", "ann/web", "ann2/a", "ann/phone", "zoe/ä"] {
        kit.opened(path, "a~1", (5, 1)).await;
    }
    kit.opened("eve/web", "a~11", (5, 1)).await;
    kit.opened("eve/phone", "a~", (5, 1)).await;
    let all = ["ann/phone", "ann/web", "ann2/a", "bob/web", "zoe/ä"];
    assert_eq!(kit.held("a~1").await, all);
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = kit
            .store
            .held(S, &holder("a~1"), after.as_ref(), 2)
            .await
            .unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        paged.extend(page);
    }
    assert_eq!(paged, all.map(key));
    assert!(kit.held("nobody~1").await.is_empty());
}

/// What must renew, and when.
pub async fn deadlines_are_told_soonest_first(labs: &dyn Labs) {
    let kit = Kit::settled(labs).await;
    let now = kit.now();
    kit.opened("ann/web", "a~1", (5, 1)).await;
    kit.opened("bob/web", "b~1", (5, 1)).await;
    kit.drain("b~1", 500).await;
    kit.touch("cid/tv", (5, 1), 700).await;
    kit.close("dan/web", (5, 1)).await;
    let o = kit.lab.options();
    let wanted = [
        (Due::Draining(holder("b~1")), now + 500),
        (Due::Session(key("cid/tv")), now + 700),
        (Due::Holder(holder("a~1")), now + o.holder_ms),
        (Due::Tomb(key("dan/web")), now + o.tomb_ms),
    ];
    assert_eq!(kit.deadlines().await, wanted);
    assert_eq!(kit.store.deadlines(S, 2).await.unwrap(), wanted[..2]);
}

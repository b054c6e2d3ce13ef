//! Operations that go in one call.

use adsum_core::store::{Alter, Altered, Closed, Opened, Push, Store};
use anyhow::{Result, ensure};
use futures::{StreamExt, future::join_all};
use redis::cmd;

use crate::lab::{Lab, close, key, open, options, stamp, state, user};

/// What is asked for at once goes in one call and comes in one push; one that can't be read harms
/// nobody else.
#[tokio::test]
async fn what_comes_together_goes_together() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let mut pushes = lab.store.subscribe(0).await?;
    lab.store.claim(0).await?;
    let count = async |command: &str| -> Result<u64> {
        let stats: String = lab.raw(cmd("INFO").arg("commandstats")).await?;
        let calls = stats.split(&format!("cmdstat_{command}:calls=")).nth(1);
        let calls = calls.and_then(|rest| rest.split(',').next());
        Ok(calls.map_or(0, |n| n.parse().unwrap()))
    };

    let (called, pushed) = (count("fcall").await?, count("spublish").await?);
    let names: Vec<_> = (0..60).map(|n| format!("user{n}")).collect();
    let store = &lab.store;
    let opens = |conn| {
        let one = move |name: &String| open(key(name, "web"), "a", stamp(conn, 1), state(&["x"]));
        join_all(names.iter().map(move |name| store.open(one(name))))
    };
    for opened in opens(1).await {
        let value = opened?.value;
        ensure!(matches!(value, Opened::Ok { committed, .. } if committed));
    }
    assert_eq!(count("fcall").await? - called, 1);
    assert_eq!(count("spublish").await? - pushed, 1);
    // The epoch's own comes first.
    let versions = pushes.by_ref().take(61).map(|push| match push {
        Push::Change(change) => change.version.seq,
        Push::Lost => 0,
    });
    assert_eq!(
        versions.collect::<Vec<_>>().await,
        (1..=61).collect::<Vec<_>>()
    );

    let people = lab.keys(0).named("people").to_owned();
    let bad = user("user7").encode();
    lab.raw::<()>(cmd("HSET").arg(&people).arg(&bad).arg("garbage"))
        .await?;
    for (name, opened) in names.iter().zip(opens(2).await) {
        match opened {
            Ok(answer) => ensure!(matches!(answer.value, Opened::Ok { .. }) && name != "user7"),
            Err(error) => ensure!(!error.retry() && name == "user7", "{name}: {error}"),
        }
    }
    Ok(())
}

/// A call that fails while it writes leaves a log that takes the next entry, and nothing to be
/// written by another call.
#[tokio::test]
async fn a_call_that_fails_half_way_stops_nobody() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let both = ["ann", "bob"].map(|name| open(key(name, "web"), "a", stamp(1, 1), state(&["x"])));
    for op in both {
        lab.store.open(op).await?;
    }
    let seen = lab.keys(0).named("seen").to_owned();
    lab.raw::<()>(cmd("SET").arg(&seen).arg("no set")).await?;
    let closed = lab.store.close(close(key("ann", "web"), stamp(1, 2)));
    ensure!(closed.await.is_err(), "last seen can't be written");
    lab.raw::<()>(cmd("DEL").arg(&seen)).await?;
    lab.raw::<()>(cmd("ZADD").arg(&seen).arg("+inf").arg(""))
        .await?;

    let alter = Alter {
        key: key("bob", "web"),
        stamp: stamp(1, 2),
        state: state(&["y"]),
        origin: None,
    };
    let altered = lab.store.alter(alter).await?.value;
    ensure!(matches!(
        altered,
        Altered::Ok {
            committed: true,
            ..
        }
    ));
    let closed = lab.store.close(close(key("ann", "web"), stamp(1, 3))).await;
    assert_eq!(closed?.value, Closed::Ok { committed: true });
    let page = lab.store.log(0, 0, 99).await?;
    assert_eq!(
        page.position.map(|p| p.seq),
        Some(page.entries.len() as u64)
    );
    let read = lab.store.read(&[user("ann"), user("bob")]).await?;
    ensure!(read[0].person.is_none() && read[1].person.is_some());
    Ok(())
}

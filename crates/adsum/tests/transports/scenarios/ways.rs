//! Coming, and changing.

use adsum_client::{Activity, Manual, Reason, Status};
use anyhow::{Result, ensure};

use crate::{
    stage::{Plan, Stage},
    world::now_ms,
};

pub(super) async fn join(stage: &Stage) -> Result<()> {
    let began = now_ms();
    let mut watcher = stage
        .watch("wanda", &["room:lobby", "user:ann", "tenant"])
        .await?;
    let plan = Plan::of("ann")
        .device("laptop", "desktop")
        .meta(r#"{"name":"Ann"}"#);
    let ann = stage.arrive(plan).await?;
    for topic in ["user:ann", "tenant"] {
        let item = watcher.joined(topic, "ann").await?;
        ensure!(item.status == Status::Online, "{item:?}");
        let kinds: Vec<_> = item.devices.iter().map(|kind| kind.as_str()).collect();
        ensure!(kinds == ["desktop"], "{item:?}");
        let about = item.meta.as_ref().map(|meta| meta.as_str());
        ensure!(about == Some(r#"{"name":"Ann"}"#), "{item:?}");
        ensure!(
            (began - 1000..now_ms() + 1000).contains(&item.since),
            "{item:?}"
        );
    }
    ann.join("lobby", Some(r#"{"team":"red"}"#)).await?;
    let item = watcher.joined("room:lobby", "ann").await?;
    let about = item.meta.as_ref().map(|meta| meta.as_str());
    ensure!(about == Some(r#"{"team":"red"}"#), "{item:?}");
    ann.part("lobby").await?;
    watcher.left("room:lobby", "ann", Reason::Leave).await?;
    ann.join("lobby", None).await?;
    let again = watcher.joined("room:lobby", "ann").await?;
    let about = again.meta.as_ref().map(|meta| meta.as_str());
    ensure!(
        about == Some(r#"{"name":"Ann"}"#),
        "no meta in the room: {again:?}"
    );
    ensure!(
        again.v > item.v && again.since >= item.since,
        "{item:?} {again:?}"
    );
    // Rooms are no business of those who watch the person or the tenant.
    ann.set_activity(Activity::Away).await?;
    for topic in ["user:ann", "tenant", "room:lobby"] {
        let item = watcher.updated(topic, "ann").await?;
        ensure!(item.status == Status::Away, "{topic}: {item:?}");
    }
    Ok(())
}

pub(super) async fn update(stage: &Stage) -> Result<()> {
    let topics = ["room:lobby", "user:ann"];
    let mut watcher = stage.watch("wanda", &topics).await?;
    let ann = stage.arrive(Plan::of("ann").room("lobby")).await?;
    for topic in topics {
        watcher.joined(topic, "ann").await?;
    }
    ann.set_meta(Some(r#"{"mood":1}"#)).await?;
    for topic in topics {
        let item = watcher.updated(topic, "ann").await?;
        let about = item.meta.as_ref().map(|meta| meta.as_str());
        ensure!(about == Some(r#"{"mood":1}"#), "{topic}: {item:?}");
    }
    for (activity, status) in [
        (Activity::Away, Status::Away),
        (Activity::Online, Status::Online),
    ] {
        ann.set_activity(activity).await?;
        for topic in topics {
            let item = watcher.updated(topic, "ann").await?;
            ensure!(item.status == status, "{topic}: {item:?}");
        }
    }
    for (manual, status) in [
        (Some(Manual::Dnd), Status::Dnd),
        (Some(Manual::Busy), Status::Busy),
        (None, Status::Online),
    ] {
        ann.set_status(manual).await?;
        for topic in topics {
            let item = watcher.updated(topic, "ann").await?;
            ensure!(item.status == status, "{topic}: {item:?}");
        }
    }
    ann.join("lobby", Some(r#"{"typing":true}"#)).await?;
    let item = watcher.updated("room:lobby", "ann").await?;
    let about = item.meta.as_ref().map(|meta| meta.as_str());
    ensure!(about == Some(r#"{"typing":true}"#), "{item:?}");
    // What is the same as before is told to nobody; nor is a room's meta, but in the room.
    ann.join("lobby", Some(r#"{"typing":true}"#)).await?;
    ann.set_activity(Activity::Online).await?;
    ann.set_meta(None).await?;
    let item = watcher.updated("user:ann", "ann").await?;
    ensure!(
        item.meta.is_none() && item.status == Status::Online,
        "{item:?}"
    );
    ann.join("lobby", None).await?;
    let item = watcher.updated("room:lobby", "ann").await?;
    ensure!(item.meta.is_none(), "{item:?}");
    Ok(())
}

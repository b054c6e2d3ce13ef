//! Lines that break, and clients that come back another way.

use adsum_client::{Client, Digest, Event, Mode};
use adsum_proto::client::frame::{ClientBody, Hello, PresenceState, ServerBody, Watch};
use anyhow::{Result, bail, ensure};
use tokio::time::{Instant, sleep_until};

use crate::{
    raw::{Heard, Raw, hello},
    stage::{Plan, Stage, soon, timing},
    watcher::{Watcher, topic},
    world::{LONG_LINGER, Side},
};

/// Breaks and comes back on the other gateway: nobody is told, then or later.
pub(super) async fn linger(stage: &Stage) -> Result<()> {
    let topics = ["room:lobby", "user:ann"];
    let mut watcher = stage.watch("wanda", &topics).await?;
    let plan = Plan::of("ann").room("lobby").meta("1");
    let first = stage.connect(plan.clone()).await?;
    for topic in topics {
        watcher.joined(topic, "ann").await?;
    }
    first.client()?.close().await;
    let broke = Instant::now();
    let second = stage.connect(plan.clone().at(Side::B)).await?;
    second.client()?.sever().await;
    soon("back again", second.client()?.online()).await??;
    // Past the time at which the first one's leave would have been told.
    sleep_until(broke + LONG_LINGER + LONG_LINGER / 4).await;
    second.set_meta(Some("2")).await?;
    for topic in topics {
        let item = watcher.updated(topic, "ann").await?;
        let about = item.meta.as_ref().map(|meta| meta.as_str());
        ensure!(about == Some("2"), "{item:?}");
    }
    Ok(())
}

/// A watcher that comes back on the other gateway knows what it knew.
pub(super) async fn resume(stage: &Stage) -> Result<()> {
    let name = "room:lobby";
    let _ann = stage.arrive(Plan::of("ann").room("lobby")).await?;
    let _bob = stage
        .arrive(Plan::of("bob").room("lobby").meta("1"))
        .await?;
    let builder = Client::builder()
        .transport(stage.wire.transport())
        .timing(timing())
        .token(stage.token("wanda")?)
        .endpoints([stage.endpoint(Side::A), stage.endpoint(Side::B)])
        .watch(topic(name)?, Mode::Members);
    let (client, events) = builder.connect().await?;
    let mut watcher = Watcher::of_client("wanda", client.clone(), events);
    let before = endpoint(&mut watcher).await?;
    let mut known = std::collections::BTreeMap::new();
    watcher
        .converge(name, &mut known, |known| known.len() == 2)
        .await?;
    // A state that was not complete is asked for again; only then is there something to resume.
    while !client.view(&topic(name)?).is_some_and(|view| view.complete) {
        watcher.synced(name).await?;
    }
    client.sever().await;
    let after = loop {
        match watcher.other().await? {
            Event::Connected { endpoint, .. } => break endpoint,
            Event::Disconnected => {}
            other => bail!("{other:?}"),
        }
    };
    ensure!(
        stage.endpoint(Side::A) == stage.endpoint(Side::B) || after != before,
        "{after}"
    );
    while !watcher.synced(name).await?.1 {}
    ensure!(watcher.unasked(name)? == 0, "who stayed is told again");
    // The same by hand, and with a digest that fits nothing.
    let view = client.view(&topic(name)?).unwrap_or_else(|| unreachable!());
    ensure!(view.members.len() == 2, "{view:?}");
    let state = first_state(stage, view.digest).await?;
    ensure!(state.members.is_none(), "not unchanged: {state:?}");
    let state = first_state(stage, Digest::default()).await?;
    let members = state.members.map(|members| members.members.len());
    ensure!(members == Some(2), "{members:?}");
    // And what changes from then on is told.
    stage.mark(&mut watcher, name).await
}

async fn endpoint(watcher: &mut Watcher) -> Result<std::sync::Arc<str>> {
    match watcher.other().await? {
        Event::Connected { endpoint, .. } => Ok(endpoint),
        other => bail!("{other:?}"),
    }
}

async fn first_state(stage: &Stage, digest: Digest) -> Result<PresenceState> {
    let watch = Watch {
        topic: topic("room:lobby")?,
        mode: Mode::Members,
        digest: Some(digest),
    };
    let wish = Hello {
        watch: vec![watch],
        ..hello(&stage.token("ruth")?)
    };
    let mut raw = Raw::open(stage.wire, stage.address(Side::B)).await?;
    raw.send("hello", ClientBody::Hello(Box::new(wish))).await?;
    loop {
        match raw.hear().await? {
            Heard::Frame(frame) => {
                if let ServerBody::PresenceState(state) = frame.body {
                    return Ok(state);
                }
            }
            Heard::Closed(number) => bail!("closed with {number}"),
        }
    }
}

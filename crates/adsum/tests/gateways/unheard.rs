//! Dispatchers that can't be heard: who watches is told that the picture may be old, and when it
//! is not any more.

use adsum_client::{Event, Events, Mode, RoomId, Topic};
use anyhow::{Context, Result, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{Duration, timeout},
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::world::{World, builder, url};

async fn told(events: &mut Events, wanted: bool) -> Result<()> {
    let told = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::Stale { stale, .. } if stale == wanted) {
                return Ok(());
            }
        }
        anyhow::bail!("the client has ended")
    };
    let told = timeout(Duration::from_secs(60), told).await;
    told.with_context(|| format!("nobody was told: stale {wanted}"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_told_that_the_picture_may_be_old() -> Result<()> {
    let world = World::new("unheard").await?;
    let gateway = world.gateway("gateway").await?;
    let gateways = [url(&gateway)];
    let room = RoomId::new("lobby")?;
    let topic = Topic::Room(room.clone());
    let (_ann, _) = builder("ann", &gateways).room(room).connect().await?;
    let watching = |user| builder(user, &gateways).watch(topic.clone(), Mode::Members);
    let (wanda, mut events) = watching("wanda").connect().await?;
    adsum_tests::eventually("ann is seen", Duration::from_secs(30), || async {
        let view = wanda.view(&topic).context("nothing is known")?;
        ensure!(view.members.len() == 1 && !view.stale, "{view:?}");
        Ok(())
    })
    .await?;

    for node in world.back() {
        node.process().pause()?;
    }
    told(&mut events, true).await?;
    let view = wanda.view(&topic).context("nothing is known")?;
    ensure!(view.stale && view.members.len() == 1, "{view:?}");
    // Whoever comes now is told so with the state.
    let (_walt, mut newcomer) = watching("walt").connect().await?;
    told(&mut newcomer, true).await?;

    for node in world.back() {
        node.process().resume()?;
    }
    told(&mut events, false).await?;
    told(&mut newcomer, false).await?;
    let view = wanda.view(&topic).context("nothing is known")?;
    ensure!(!view.stale && view.members.len() == 1, "{view:?}");
    Ok(())
}

/// What is told next of this type.
async fn next(socket: &mut WebSocketStream<TcpStream>, kind: &str) -> Result<Value> {
    let next = async {
        loop {
            let message = socket.next().await.context("closed")??;
            let Message::Text(text) = message else {
                continue;
            };
            let frame: Value = serde_json::from_str(&text)?;
            if frame["type"] == kind {
                return anyhow::Ok(frame);
            }
        }
    };
    let next = timeout(Duration::from_secs(20), next).await;
    next.with_context(|| format!("no {kind}"))?
}

/// Without the client library, which would ask again by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_state_comes_again_when_it_is_complete() -> Result<()> {
    let world = World::new("incomplete").await?;
    let gateway = world.gateway("gateway").await?;
    let room = RoomId::new("den")?;
    let (_ann, _) = builder("ann", &[url(&gateway)])
        .room(room)
        .connect()
        .await?;
    world.settled().await?;

    for node in world.back() {
        node.process().pause()?;
    }
    let tcp = TcpStream::connect(gateway.public()).await?;
    let (mut walt, _) = client_async(format!("{}/v1/ws", url(&gateway)), tcp).await?;
    let hello = json!({
        "type": "hello", "token": "dev:acme:walt", "watch": [{"topic": "room:den"}],
    });
    walt.send(Message::text(hello.to_string())).await?;
    let state = next(&mut walt, "presence_state").await?;
    ensure!(state["complete"] == false, "{state}");
    ensure!(state["members"] == json!([]), "{state}");

    for node in world.back() {
        node.process().resume()?;
    }
    let state = next(&mut walt, "presence_state").await?;
    ensure!(state["complete"] == true, "{state}");
    ensure!(state["members"][0]["user"] == "ann", "{state}");
    Ok(())
}

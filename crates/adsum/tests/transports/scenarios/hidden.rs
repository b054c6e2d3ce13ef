//! Those who do not want to be seen.

use adsum_client::{Manual, Reason, Status};
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{
    stage::{Plan, Stage, soon},
    world::Side,
};

pub(super) async fn invisible(stage: &Stage) -> Result<()> {
    let topics = ["room:lobby", "user:ann"];
    let mut watcher = stage.watch("wanda", &topics).await?;
    let plan = Plan::of("ann").room("lobby").status(Manual::Invisible);
    let ann = stage.arrive(plan).await?;
    // Nothing is seen by others, and everything by the user.
    stage.mark(&mut watcher, "room:lobby").await?;
    let me = stage.http(Side::B, stage.token("ann")?);
    let truth = me.get("/v1/users/ann").await?.ok()?.json()?;
    ensure!(truth["status"] == "invisible", "{truth}");
    for topic in topics {
        let mut told = me.events(&format!("topic={topic}")).await?;
        loop {
            let event = soon("their own truth", told.recv())
                .await?
                .context("ended")?;
            if event.data.contains(r#""user":"ann","status":"invisible""#) {
                break;
            }
        }
    }
    let other = stage.http(Side::B, stage.token("wanda")?);
    let seen = other.get("/v1/users/ann").await?.ok()?.json()?;
    ensure!(
        seen == json!({"user": "ann", "status": "offline", "devices": []}),
        "{seen}"
    );
    // Visible, while watched; since they show themselves, and not since they came.
    let hidden_since = truth["since"].as_u64().context("since")?;
    ann.set_status(None).await?;
    for topic in topics {
        let item = watcher.joined(topic, "ann").await?;
        ensure!(item.status == Status::Online, "{item:?}");
        ensure!(item.since > hidden_since, "{item:?} since {hidden_since}");
    }
    // Invisible, while watched: just as if they had left.
    ann.set_status(Some(Manual::Invisible)).await?;
    for topic in topics {
        let left = watcher.left(topic, "ann", Reason::Leave).await?;
        ensure!(left.last_seen.is_some_and(|at| at.ago_s() < 30), "{left:?}");
    }
    let last_seen = async || {
        let told = other.get("/v1/users/ann/last_seen").await?.ok()?.json()?;
        anyhow::Ok(told["last_seen"].as_str().map(str::to_owned))
    };
    let frozen = last_seen().await?;
    ensure!(frozen.is_some(), "they were seen before");
    ann.set_meta(Some("1")).await?;
    ann.leave().await?;
    stage.mark(&mut watcher, "room:lobby").await?;
    let after = last_seen().await?;
    ensure!(after == frozen, "last seen was {frozen:?} and is {after:?}");
    let count = other.get("/v1/rooms/lobby/count").await?.ok()?.json()?;
    ensure!(count["count"] == 2, "the two marks: {count}");
    ensure!(watcher.unasked("user:ann")? == 0, "something was told");
    Ok(())
}

pub(super) async fn contacts_only(stage: &Stage) -> Result<()> {
    let topics = ["room:lobby", "user:cora"];
    let mut wanda = stage.watch("wanda", &topics).await?;
    let mut sam = stage.watch("sam", &topics).await?;
    let prefs = stage.prefs("cora", Side::A)?;
    prefs.set_contacts(&["wanda"]).await?;
    prefs.set_visibility("contacts").await?;
    let cora = stage.arrive(Plan::of("cora").room("lobby")).await?;
    for topic in topics {
        wanda.joined(topic, "cora").await?;
    }
    stage.mark(&mut sam, "room:lobby").await?;
    // The list changes at run time.
    cora.prefs().set_contacts(&["sam"]).await?;
    for topic in topics {
        sam.joined(topic, "cora").await?;
    }
    stage_mark_then_left(&mut wanda, &topics).await?;
    cora.set_meta(Some("1")).await?;
    for topic in topics {
        sam.updated(topic, "cora").await?;
    }
    cora.prefs().set_visibility("nobody").await?;
    for topic in topics {
        sam.left(topic, "cora", Reason::Leave).await?;
    }
    cora.prefs().set_visibility("everyone").await?;
    for topic in topics {
        sam.joined(topic, "cora").await?;
        wanda.joined(topic, "cora").await?;
    }
    cora.leave().await?;
    for topic in topics {
        sam.left(topic, "cora", Reason::Leave).await?;
        wanda.left(topic, "cora", Reason::Leave).await?;
    }
    Ok(())
}

/// The mark of the other watcher is in the same room.
async fn stage_mark_then_left(
    watcher: &mut crate::watcher::Watcher,
    topics: &[&str; 2],
) -> Result<()> {
    use crate::watcher::topic;
    use adsum_client::Event;
    for name in topics {
        loop {
            match watcher.next(&topic(name)?).await? {
                Event::Joined { item, .. } if item.user.as_str().starts_with("mark-") => {}
                Event::Left { left, .. } if left.user.as_str() == "cora" => {
                    ensure!(left.reason == Some(Reason::Leave), "{left:?}");
                    break;
                }
                other => anyhow::bail!("{name}: cora was to leave, and then came {other:?}"),
            }
        }
    }
    Ok(())
}

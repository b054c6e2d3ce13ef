//! Those who only watch, without being there: each on one gateway, with the eyes of a user, of a
//! stranger, or of a service that sees everybody.

use std::time::Duration;

use adsum_tests::history::View;
use rand::{RngExt, rngs::StdRng};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    Gate, Scene,
    http::Events,
    sight::{Sight, leaving_in, seen_in},
};

/// How soon one comes back whose stream ended.
const BACK: Duration = Duration::from_millis(200);

/// Who watches what.
pub(crate) struct Plan {
    gate: Gate,
    view: View,
    token: String,
    name: String,
}

/// On every gateway: the tenant, by a service, by a stranger and by a user; rooms and users.
pub(crate) fn plans(scene: &Scene, rng: &mut StdRng) -> Vec<Plan> {
    let mut plans = Vec::new();
    for gate in scene.gates.iter() {
        let mut watches = vec![
            ("tenant".to_owned(), None, true),
            ("tenant".to_owned(), None, false),
            ("tenant".to_owned(), Some(rng.random_range(0..3)), false),
        ];
        for n in 0..3 {
            let room = scene.room(rng.random_range(0..scene.size.rooms));
            watches.push((format!("room:{room}"), (n > 0).then_some(n), n == 2));
            let user = scene.user(rng.random_range(0..scene.size.clients.max(1)));
            watches.push((format!("user:{user}"), (n > 0).then_some(n), false));
        }
        for (n, (topic, eyes, all)) in watches.into_iter().enumerate() {
            // Who sees everybody is a service, and has no eyes of its own.
            let eyes = eyes.filter(|_| !all).map(|n| scene.user(n));
            plans.push(Plan {
                gate: gate.clone(),
                token: match &eyes {
                    Some(user) => scene.pass(user),
                    None => scene.service(all),
                },
                name: format!("{}.w{n}", gate.name),
                view: View {
                    gateway: gate.name.clone(),
                    topic,
                    eyes,
                    all,
                },
            });
        }
    }
    plans
}

/// Watches until the round is over.
pub(crate) async fn live(scene: Scene, plan: Plan) {
    let mut sight = Sight::new(&scene, plan.name.clone(), plan.view.clone());
    loop {
        let open = Events::open(plan.gate.address, &plan.token, &plan.view.topic);
        if let Ok(Ok(mut events)) = timeout(scene.times.of(10_000), open).await {
            sight.begin(&plan.gate.name);
            while let Ok(Some(frame)) = events.next().await {
                hear(&mut sight, &frame);
            }
            sight.end();
        }
        sleep(BACK).await;
    }
}

fn hear(sight: &mut Sight, frame: &Value) {
    match frame["type"].as_str() {
        Some("presence_state") => {
            let complete = frame["complete"].as_bool().unwrap_or(true);
            sight.state(seen_in(&frame["members"]), complete);
        }
        Some("presence_diff") => sight.diff(
            seen_in(&frame["joins"]),
            seen_in(&frame["updates"]),
            leaving_in(&frame["leaves"]),
        ),
        _ => {}
    }
}

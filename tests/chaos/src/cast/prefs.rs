//! Lasting settings: who may see a user, and the status that overrides the devices.

use std::{sync::PoisonError, time::Duration};

use adsum_core::{Manual, Visibility};
use adsum_tests::history::{Event, Setting};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Scene, http};

/// Longer than a gateway takes that answers at all.
const LIMIT: Duration = Duration::from_secs(8);

/// A setting that somebody may want.
fn wish(scene: &Scene, rng: &mut StdRng) -> Setting {
    match rng.random_range(0..10) {
        0 | 1 => Setting::Status(Some(Manual::Invisible)),
        2 => Setting::Status(Some(Manual::Busy)),
        3 => Setting::Status(Some(Manual::Dnd)),
        4 | 5 => Setting::Status(None),
        6 => Setting::Visibility(Visibility::Nobody),
        7 => Setting::Visibility(Visibility::Contacts),
        8 => Setting::Visibility(Visibility::Everyone),
        // The first users are those who watch.
        _ => Setting::Contacts((0..rng.random_range(0..3)).map(|n| scene.user(n)).collect()),
    }
}

fn call(setting: &Setting) -> (&'static str, Value) {
    match setting {
        Setting::Status(status) => ("/v1/me/status", json!({ "status": status })),
        Setting::Visibility(who) => ("/v1/me/visibility", json!({ "visibility": word(*who) })),
        Setting::Contacts(list) => ("/v1/me/contacts", json!({ "contacts": list })),
    }
}

const fn word(who: Visibility) -> &'static str {
    match who {
        Visibility::Everyone => "everyone",
        Visibility::Contacts => "contacts",
        Visibility::Nobody => "nobody",
    }
}

/// Asks for something until it is recorded, one setting of a user at a time. A user who got no
/// answer to a request changes nothing more afterwards: that request may be done late, and must
/// then still be what the user wants.
pub(crate) fn change(scene: &Scene, user: &str, rng: &mut StdRng) {
    let begun = {
        let mut asking = scene.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.insert(user.to_owned(), ()).is_none()
    };
    if !begun {
        return;
    }
    let setting = wish(scene, rng);
    let (scene, user) = (scene.clone(), user.to_owned());
    let mut rng = StdRng::seed_from_u64(rng.random());
    tokio::spawn(async move {
        let mut unsure = false;
        let (path, body) = call(&setting);
        let token = scene.pass(&user);
        scene.record.note(Event::Asked {
            user: user.clone(),
            setting,
        });
        loop {
            let address = scene.any_gate(&mut rng).address;
            let answer = http::request(address, &token, "PUT", path, &body, LIMIT).await;
            if answer.is_ok() {
                break;
            }
            unsure |= answer != http::Answer::Refused;
            // The round is over.
            if scene.calm.has_changed().is_err() {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        scene.record.note(Event::Set { user: user.clone() });
        if !unsure {
            let mut asking = scene.asking.lock().unwrap_or_else(PoisonError::into_inner);
            asking.remove(&user);
        }
    });
}

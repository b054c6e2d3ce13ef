//! Sessions without a connection, which hold themselves by heartbeats over HTTP.

use std::time::Duration;

use adsum_core::Activity;
use adsum_tests::history::{Event, Gone, Said};
use rand::{RngExt, rngs::StdRng};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Scene,
    http::{self, Answer},
};

const DEVICE: &str = "beat";

struct Beater {
    scene: Scene,
    user: String,
    said: Said,
    conn: u64,
    rev: u64,
    /// When a beat was last sent that nobody answered: it may still arrive.
    unsure: Option<Instant>,
    rng: StdRng,
}

/// Beats, changes, stops and comes back until the round is over.
pub(crate) async fn live(scene: Scene, n: usize, rng: StdRng) {
    let said = Said {
        activity: Activity::Online,
        rooms: vec![scene.room(n)],
        mark: 0,
    };
    let user = scene.beater(n);
    let mut beater = Beater {
        scene,
        user,
        said,
        conn: 0,
        rev: 0,
        unsure: None,
        rng,
    };
    let jitter = beater.rng.random_range(0..3_000);
    sleep(Duration::from_millis(jitter)).await;
    while !beater.scene.is_calm() {
        beater.life().await;
        let away = beater
            .scene
            .times
            .of(beater.rng.random_range(2_000..60_000));
        tokio::select! {
            () = sleep(away) => {}
            () = beater.scene.calmed() => {}
        }
    }
}

impl Beater {
    async fn life(&mut self) {
        let (user, device) = (self.user.clone(), DEVICE.to_owned());
        self.conn = self.scene.record.conn().max(self.conn + 1);
        self.rev = 0;
        self.scene.record.note(Event::Hello {
            user: user.clone(),
            device,
            conn: self.conn,
            gateway: None,
            said: self.said.clone(),
        });
        self.scene.truth.here(&user, DEVICE);
        loop {
            self.beat().await;
            let pause = Duration::from_millis(self.scene.times.beat() * 9 / 10);
            sleep(pause).await;
            if self.scene.is_calm() {
                continue;
            }
            match self.rng.random_range(0..100) {
                0..40 => self.change(),
                40..46 if self.sure() => return self.stop(),
                46..52 if self.sure() => return self.leave().await,
                _ => {}
            }
        }
    }

    /// Whether no beat of before can still arrive.
    fn sure(&self) -> bool {
        self.unsure
            .is_none_or(|at| at.elapsed() > Duration::from_secs(40))
    }

    fn change(&mut self) {
        self.said.mark += 1;
        self.said.activity = match self.rng.random_bool(0.5) {
            true => Activity::Online,
            false => Activity::Away,
        };
        self.scene.record.note(Event::Change {
            user: self.user.clone(),
            device: DEVICE.to_owned(),
            said: self.said.clone(),
        });
    }

    /// One beat, at another gateway until one takes it.
    async fn beat(&mut self) {
        self.rev += 1;
        let body = json!({
            "device": DEVICE, "conn": self.conn, "rev": self.rev, "kind": DEVICE,
            "activity": self.said.activity, "meta": self.said.mark, "rooms": self.said.rooms,
        });
        loop {
            let begun = Instant::now();
            match self.post("POST", "/v1/heartbeat", &body).await {
                answer if answer.is_ok() => {
                    if begun.elapsed() < Duration::from_millis(self.scene.times.answer() * 4 / 5) {
                        self.scene.record.note(Event::Recorded {
                            user: self.user.clone(),
                            device: DEVICE.to_owned(),
                            said: self.said.clone(),
                        });
                    }
                    return;
                }
                Answer::Unsure => self.unsure = Some(Instant::now()),
                _ => {}
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn post(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let address = self.scene.any_gate(&mut self.rng).address;
        let limit = self.scene.times.of(5_000);
        let token = self.scene.pass(&self.user);
        http::request(address, &token, method, path, body, limit).await
    }

    fn gone(&self, at: u64, how: Gone) {
        self.scene.record.note_at(
            at,
            Event::Gone {
                user: self.user.clone(),
                device: DEVICE.to_owned(),
                how,
            },
        );
    }

    fn stop(&mut self) {
        self.scene.truth.gone(&self.user, DEVICE);
        self.gone(self.scene.record.now(), Gone::Unheld);
    }

    async fn leave(&mut self) {
        let at = self.scene.record.now();
        self.scene.truth.gone(&self.user, DEVICE);
        let path = format!("/v1/sessions/{DEVICE}");
        let answer = self.post("DELETE", &path, &Value::Null).await;
        let how = if answer.is_ok() {
            Gone::Goodbye
        } else {
            Gone::Unheld
        };
        self.gone(at, how);
    }
}

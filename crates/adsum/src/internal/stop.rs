//! `/admin/drain`: stops the node as SIGTERM does, and tells how far it is: one JSON object per
//! line until the process ends. For hooks that run before a node is taken away.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use futures::stream;
use serde::Serialize;

use super::Parts;
use crate::drain::Stage;

/// How often it says something.
const EVERY: Duration = Duration::from_millis(250);

#[derive(Serialize)]
struct Progress {
    stage: Stage,
    connections: usize,
    window_ms: u64,
}

pub(super) async fn drain(State(parts): State<Arc<Parts>>) -> Response {
    parts.drain.ask();
    let lines = stream::unfold(Some(parts), |parts| async move {
        let parts = parts?;
        let mut stages = parts.drain.watch();
        let before = *stages.borrow_and_update();
        if before != Stage::Done {
            // A step, or just time.
            let _ = tokio::time::timeout(EVERY, stages.changed()).await;
        }
        let line = progress(&parts);
        let last = line.stage == Stage::Done;
        let text = serde_json::to_string(&line).map(|text| text + "\n");
        Some((text, (!last).then_some(parts)))
    });
    (
        [(CONTENT_TYPE, "application/x-ndjson")],
        Body::from_stream(lines),
    )
        .into_response()
}

fn progress(parts: &Parts) -> Progress {
    let public = parts.public.as_ref();
    Progress {
        stage: parts.drain.stage(),
        connections: public.map_or(0, |p| p.edge.counters().connections()),
        window_ms: parts.config.times.drain_window_ms,
    }
}

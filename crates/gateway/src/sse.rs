//! The event source door, `/v1/events`: the same states and diffs as Server-Sent Events.
//!
//! `?topic=room:lobby&topic=user:ann&mode=members&token=…`; the token may come as a header
//! instead, which browsers can't set here. The name of an event is the frame's `type`.

use std::{convert::Infallible, net::SocketAddr};

use adsum_proto::client::{Encoding, Fault, Mode, check, frame::Watch};
use adsum_telemetry::metrics::{Transport, metrics};
use axum::{
    Router,
    extract::{ConnectInfo, RawQuery, State},
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
    routing::get,
};
use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::{
    EdgeError,
    http::{self, HttpError, cors, unknown_method},
    observer::{Observer, Told},
    requests::Requests,
};

/// The door.
pub(crate) fn router(requests: Requests) -> Router {
    Router::new()
        .route("/v1/events", get(events))
        .method_not_allowed_fallback(unknown_method)
        .layer(cors())
        .with_state(requests)
}

async fn events(
    State(requests): State<Requests>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    match open(
        &requests,
        peer,
        query.as_deref().unwrap_or_default(),
        &headers,
    ) {
        Ok(observer) => stream(requests, observer),
        Err(error) => HttpError::from(error).into_response(),
    }
}

fn open(
    requests: &Requests,
    peer: SocketAddr,
    query: &str,
    headers: &HeaderMap,
) -> Result<Observer, EdgeError> {
    let (mut topics, mut mode, mut token) = (Vec::new(), Mode::Members, None);
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "topic" => topics.push(check::topic(&value)?),
            "mode" => mode = check::mode(&value)?,
            "token" => token = Some(value.into_owned()),
            _ => {}
        }
    }
    let token = http::token(headers).or(token.as_deref());
    let caller = requests.admit(token, peer.ip())?;
    if topics.is_empty() {
        return Err(Fault::Missing("topic").into());
    }
    let watch = |topic| Watch {
        topic,
        mode,
        digest: None,
    };
    let watches = topics.into_iter().map(watch).collect();
    Observer::open(requests.edge(), caller, Encoding::Json, watches)
}

fn stream(requests: Requests, observer: Observer) -> Response {
    let quiet = KeepAlive::new().interval(observer.heartbeat());
    let shown = metrics().connections.of(Transport::Events).hold();
    let counted = (requests.edge().connections().token(), shown);
    let frames = stream::unfold((observer, counted), |(mut observer, counted)| async move {
        match observer.next().await? {
            Told::Frames(frames) => Some((frames, (observer, counted))),
            Told::Over(_) => None,
        }
    });
    let events = frames.flat_map(|frames| stream::iter(frames.into_iter().map(event)));
    let sse = Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(quiet);
    // Proxies that gather bytes would hold back what is told at once.
    ([("x-accel-buffering", "no")], sse).into_response()
}

fn event(frame: Bytes) -> Event {
    let text = String::from_utf8_lossy(&frame);
    // Every frame begins with its type, as we write them.
    let name = text.split('"').nth(3).unwrap_or("message");
    Event::default().event(name).data(&*text)
}

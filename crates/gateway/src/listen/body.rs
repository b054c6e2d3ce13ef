//! Bodies of requests and answers, watched: a request's must come in time, and an answer's keeps
//! its connection busy until it has ended.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, header::CONTENT_TYPE},
};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use super::load::UnderWay;

/// The body of a request, which must have come as a whole within a time. Streams of gRPC go on as
/// long as they like.
pub(super) fn within(limit: Duration, headers: &HeaderMap, body: Incoming) -> Body {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
    if body.is_end_stream() || kind.starts_with(b"application/grpc") {
        return Body::new(body);
    }
    Body::new(Timed {
        body,
        late: Box::pin(sleep(limit)),
    })
}

struct Timed {
    body: Incoming,
    late: Pin<Box<Sleep>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        self.late.as_mut().poll(cx).map(|()| {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the body took too long");
            Some(Err(axum::Error::new(late)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, under way until it is dropped.
pub(super) struct Counted {
    body: Body,
    _under_way: UnderWay,
}

impl Counted {
    pub(super) fn new(body: Body, under_way: UnderWay) -> Self {
        Self {
            body,
            _under_way: under_way,
        }
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

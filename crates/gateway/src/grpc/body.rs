//! The body of a stream's answer. The library's keeps a buffer as large as the largest frame that
//! the stream ever carried; this one keeps nothing between frames.
//!
//! A call hands its frames to the library as an extension of an answer without any, and
//! [`carry`] puts them into the answer on its way out.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use adsum_proto::client::WireFrame;
use axum::{body::Body, response::Response};
use bytes::{BufMut, Bytes};
use futures::{Stream, StreamExt, stream};
use http_body::Frame;
use prost::Message;
use tonic::{Code, Status};

use super::stream::Frames;

/// Frames that wait together are handed on when they are this long.
const TOGETHER: usize = 32 * 1024;
/// Of a frame: whether it is compressed, and its length.
const HEAD: usize = 5;

/// Frames on their way past the library.
#[derive(Clone)]
struct Carried(Arc<Mutex<Option<Frames>>>);

/// An answer of these frames, for [`carry`].
pub(super) fn answer(frames: Frames) -> tonic::Response<Frames> {
    let mut answer = tonic::Response::new(stream::empty().boxed());
    let carried = Carried(Arc::new(Mutex::new(Some(frames))));
    answer.extensions_mut().insert(carried);
    answer
}

/// Puts the frames that an answer carries into its body.
pub(super) async fn carry(mut response: Response) -> Response {
    let carried = response.extensions_mut().remove::<Carried>();
    let frames = carried.and_then(|c| c.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    match frames {
        Some(frames) => response.map(|_| Body::new(Framed::Open(frames))),
        None => response,
    }
}

enum Framed {
    Open(Frames),
    /// Only this is left to say.
    Ending(Status),
    Over,
}

impl http_body::Body for Framed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Self::Open(frames) = &mut *self {
            let mut together = Vec::new();
            let end = loop {
                match Pin::new(&mut *frames).poll_next(cx) {
                    Poll::Pending if together.is_empty() => return Poll::Pending,
                    Poll::Pending => break None,
                    Poll::Ready(None) => break Some(Status::new(Code::Ok, "")),
                    Poll::Ready(Some(Err(status))) => break Some(status),
                    Poll::Ready(Some(Ok(frame))) => put(&mut together, &frame),
                }
                if together.len() >= TOGETHER {
                    break None;
                }
            };
            if let Some(status) = end {
                *self = Self::Ending(status);
            }
            if !together.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(together.into()))));
            }
        }
        Poll::Ready(match std::mem::replace(&mut *self, Self::Over) {
            Self::Ending(status) => Some(Ok(Frame::trailers(trailers(&status)))),
            Self::Open(_) | Self::Over => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Over)
    }
}

fn put(together: &mut Vec<u8>, frame: &WireFrame) {
    let length = frame.encoded_len();
    // What is longer can't be told; a frame of 4 GiB would be refused long before.
    let Ok(told) = u32::try_from(length) else {
        return;
    };
    together.reserve(HEAD + length);
    together.put_u8(0);
    together.put_u32(told);
    frame.encode_raw(together);
}

fn trailers(status: &Status) -> axum::http::HeaderMap {
    let mut trailers = axum::http::HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Its text can't be a header; its code always can.
        trailers.clear();
        let _ = Status::new(status.code(), "").add_header(&mut trailers);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn body(frames: Vec<Result<WireFrame, Status>>) -> Framed {
        Framed::Open(stream::iter(frames).boxed())
    }

    fn frame(bytes: &'static [u8]) -> Result<WireFrame, Status> {
        Ok(WireFrame::encoded(Bytes::from_static(bytes)))
    }

    #[tokio::test]
    async fn frames_that_wait_go_together_and_the_end_is_told_in_trailers() {
        let whole = body(vec![frame(b"ab"), frame(b""), frame(b"c")]);
        let whole = whole.collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
        let bytes = whole.to_bytes();
        assert_eq!(&bytes[..], b"\0\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x01c");
    }

    #[tokio::test]
    async fn a_stream_that_fails_says_why_after_what_came_before() {
        let failed = Status::new(Code::Aborted, "kicked: \u{e9}");
        let whole = body(vec![frame(b"ab"), Err(failed), frame(b"never")]);
        let whole = whole.collect().await.unwrap();
        let trailers = whole.trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "10");
        assert_eq!(trailers["grpc-message"], "kicked:%20%C3%A9");
        assert_eq!(whole.to_bytes().len(), HEAD + 2);
    }

    #[tokio::test]
    async fn a_long_queue_is_handed_on_in_parts() {
        let long: &'static [u8] = Box::leak(vec![7; TOGETHER / 2].into_boxed_slice());
        let mut body = body((0..4).map(|_| frame(long)).collect());
        let part = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(part.len(), 2 * (HEAD + TOGETHER / 2));
        assert!(!http_body::Body::is_end_stream(&body));
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), part.len());
    }
}

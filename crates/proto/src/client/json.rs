//! Frames as JSON: `{"type": …, "ref": …, …}`. Fields that are not known are ignored, so that a
//! newer peer can say more; a field of the wrong type is refused and named by its path.

mod client_in;
mod client_out;
mod head;
mod out;
mod server_in;
mod server_out;

use bytes::Bytes;

use super::{
    Fault, FrameError, FrameLimits,
    error::excerpt,
    frame::{ClientFrame, Item, Left, ServerFrame},
};
use head::Head;
use out::Out;

pub(super) use server_out::{Body, diff_body, splice, state_body};

/// Lists and objects in one frame; `meta` has a lower bound of its own.
const DEPTH: usize = 64;

/// Reads what a client sent.
///
/// # Errors
/// When it is no frame, or asks for more than the limits allow. The `ref` is kept if it was read.
pub fn decode(
    bytes: impl AsRef<[u8]>,
    limits: &FrameLimits,
) -> std::result::Result<ClientFrame, FrameError> {
    let bytes = bytes.as_ref();
    limits.frame(bytes.len())?;
    let (text, head) = open(bytes)?;
    let body = client_in::read(head.word(), text, limits);
    let (r#ref, body) = head.answer(body)?;
    Ok(ClientFrame {
        r#ref,
        traceparent: head.traceparent(),
        body,
    })
}

/// Reads what a server sent.
///
/// # Errors
/// When it is no frame. `unknown_frame` is from a newer server: ignore it.
pub fn decode_server(bytes: impl AsRef<[u8]>) -> std::result::Result<ServerFrame, FrameError> {
    let (text, head) = open(bytes.as_ref())?;
    let (r#ref, body) = head.answer(server_in::read(head.word(), text))?;
    Ok(ServerFrame { r#ref, body })
}

fn open(bytes: &[u8]) -> std::result::Result<(&str, Head), FrameError> {
    let text = std::str::from_utf8(bytes).map_err(|e| Fault::Malformed(e.to_string()))?;
    if !super::meta::depth_within(bytes, DEPTH) {
        let reason = format!("nested deeper than {DEPTH} levels");
        return Err(Fault::Malformed(reason).into());
    }
    Ok((text, Head::read(text)?))
}

/// Writes what a server sends.
#[must_use]
pub fn encode(frame: &ServerFrame) -> Bytes {
    server_out::write(frame)
}

/// Writes what a client sends.
#[must_use]
pub fn encode_client(frame: &ClientFrame) -> Bytes {
    client_out::write(frame)
}

/// Writes a person, to be shared by all frames that tell of them.
#[must_use]
pub fn encode_item(item: &Item) -> Bytes {
    let mut out = Out::default();
    server_out::item(&mut out, item);
    out.finish()
}

/// Writes a departure, to be shared.
#[must_use]
pub fn encode_left(left: &Left) -> Bytes {
    let mut out = Out::default();
    server_out::left(&mut out, left);
    out.finish()
}

/// Reads one type of frame. The happy path does not track where it is; only what fails is read
/// again to name the place.
fn parse<'de, T: serde::Deserialize<'de>>(text: &'de str) -> std::result::Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| {
        let json = &mut serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize::<_, T>(json) {
            Err(placed) => malformed(&placed.path().to_string(), placed.inner()),
            Ok(_) => Fault::Malformed(error.to_string()),
        }
    })
}

fn malformed(path: &str, error: &serde_json::Error) -> Fault {
    // Paths and messages repeat what the client wrote, and that may be of any length.
    let (path, error) = (excerpt(path), error.to_string());
    let error: String = error.chars().take(256).collect();
    Fault::Malformed(match path.as_str() {
        "" | "." | "?" => error,
        path => format!("{path}: {error}"),
    })
}

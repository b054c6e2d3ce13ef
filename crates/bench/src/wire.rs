//! As much of WebSocket as a client needs: the handshake, masked frames out, plain frames in.

/// What a server may send in one frame.
const LARGEST: usize = 64 << 20;

/// The request that opens a WebSocket.
pub(crate) fn handshake(host: &str, path: &str, subprotocol: &str) -> Vec<u8> {
    // The key is for proxies that answer from a cache; there is none here.
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )
    .into_bytes()
}

/// The end of the answer to the handshake in these bytes; an error if it is not a 101.
pub(crate) fn handshake_end(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    if bytes.starts_with(b"HTTP/1.1 101 ") {
        return Ok(Some(end + 4));
    }
    let line = bytes
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    Err(String::from_utf8_lossy(line).into_owned())
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    Close,
    Other,
}

/// Appends a client's frame. The mask is zero: the rules want one, but it hides nothing here.
pub(crate) fn put(out: &mut Vec<u8>, binary: bool, payload: &[u8]) {
    out.push(if binary { 0x82 } else { 0x81 });
    match payload.len() {
        short @ 0..=125 => out.push(0x80 | short as u8),
        middle @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}

/// A frame: what it is, what it carries, and how long it is with its head.
pub(crate) type Frame<'a> = (Kind, &'a [u8], usize);

/// The first frame in these bytes; `None` if it is not whole.
pub(crate) fn take(bytes: &[u8]) -> Result<Option<Frame<'_>>, String> {
    let [first, second, ..] = *bytes else {
        return Ok(None);
    };
    if second & 0x80 != 0 || first & 0x80 == 0 {
        return Err("a frame that a server may not send, or in pieces".into());
    }
    let (head, length) = match second {
        126 => match bytes.get(2..4) {
            Some(&[a, b]) => (4, usize::from(u16::from_be_bytes([a, b]))),
            _ => return Ok(None),
        },
        127 => match bytes.get(2..10).map(<[u8; 8]>::try_from) {
            Some(Ok(length)) => {
                let length = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
                (10, length)
            }
            _ => return Ok(None),
        },
        short => (2, usize::from(short)),
    };
    if length > LARGEST {
        return Err(format!("a frame of {length} bytes"));
    }
    let kind = match first & 0x0f {
        1 | 2 => Kind::Message,
        8 => Kind::Close,
        _ => Kind::Other,
    };
    let end = head + length;
    Ok(bytes.get(head..end).map(|payload| (kind, payload, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_lengths_are_read() {
        for length in [0, 1, 125, 126, 0xffff, 0x10000] {
            let mut frame = Vec::new();
            put(&mut frame, true, &vec![7; length]);
            // As a server sends it: without the mask.
            let head = frame.len() - length - 4;
            frame.drain(head..head + 4);
            frame[1] &= 0x7f;
            for part in [0, 1, frame.len() - 1] {
                assert_eq!(take(&frame[..part]), Ok(None));
            }
            let (kind, payload, end) = take(&frame).unwrap().unwrap();
            assert_eq!(
                (kind, payload.len(), end),
                (Kind::Message, length, frame.len())
            );
        }
        assert!(take(&[0x82, 0x81, 0, 0, 0, 0, 1]).is_err());
        assert!(take(&[0x82, 127, 255, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn only_a_101_opens() {
        assert_eq!(handshake_end(b"HTTP/1.1 101 Switching"), Ok(None));
        assert_eq!(handshake_end(b"HTTP/1.1 101 S\r\n\r\nx"), Ok(Some(18)));
        let refused = handshake_end(b"HTTP/1.1 503 No\r\nA: b\r\n\r\n");
        assert_eq!(refused, Err("HTTP/1.1 503 No".into()));
    }
}

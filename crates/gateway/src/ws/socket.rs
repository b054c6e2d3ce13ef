//! A WebSocket in two halves that keep next to nothing between frames. What comes in is read by
//! the library, which knows all the ways to get a frame wrong; what goes out is framed here, a few
//! bytes before each payload, and written in one go: the library would keep a buffer as large as
//! the largest frame of each connection for as long as it lives.

use std::{
    future::poll_fn,
    io::{self, ErrorKind, Read, Write},
    pin::Pin,
    task::{Context, Poll},
};

use adsum_proto::client::{Close, Encoding};
use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tungstenite::{
    Error, Message,
    protocol::{Role, WebSocketConfig, WebSocketContext},
};

use crate::connection::{Received, Sink, Source};

/// A client's frames are small; what is larger is read in several steps.
const READ_BUFFER: usize = 512;
/// Payloads up to here are copied behind their heads, so that a batch of them is one write.
const COPIED: usize = 16 * 1024;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PONG: u8 = 0xa;

type Io = TokioIo<Upgraded>;

/// The two halves of a connection.
pub(super) fn open(upgraded: Upgraded, encoding: Encoding, limit: usize) -> (Incoming, Outgoing) {
    let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let binary = encoding == Encoding::Protobuf;
    let incoming = Incoming {
        reader,
        frames: WebSocketContext::new(Role::Server, Some(config)),
        binary,
        lost: false,
    };
    let opcode = if binary { BINARY } else { TEXT };
    (incoming, Outgoing { writer, opcode })
}

/// What comes in.
pub(super) struct Incoming {
    reader: ReadHalf<Io>,
    frames: WebSocketContext,
    binary: bool,
    /// Nobody knows any more where a frame begins.
    lost: bool,
}

impl Source for Incoming {
    const RESETS: bool = true;

    async fn next(&mut self) -> Option<Received> {
        if self.lost {
            self.drain().await;
            return None;
        }
        let message = poll_fn(|cx| self.poll_message(cx)).await;
        self.lost = message.is_err();
        Some(match message {
            Ok(Message::Text(text)) if !self.binary => Received::Bytes(text.into()),
            Ok(Message::Binary(bytes)) if self.binary => Received::Bytes(bytes),
            Ok(Message::Text(_) | Message::Binary(_)) => Received::WrongType,
            Ok(Message::Ping(payload)) => Received::Ping(payload),
            Ok(Message::Pong(_) | Message::Frame(_)) => Received::Alive,
            Ok(Message::Close(_)) => Received::Goodbye,
            Err(Error::Capacity(_)) => Received::TooLarge,
            Err(_) => return None,
        })
    }
}

impl Incoming {
    /// Takes what still comes until the client hangs up, and throws it away.
    async fn drain(&mut self) {
        // On the heap: rarely needed, and the room for it would be kept for every connection.
        let mut rest = vec![0; READ_BUFFER];
        while matches!(self.reader.read(&mut rest).await, Ok(count) if count > 0) {}
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, Error>> {
        let Self { reader, frames, .. } = self;
        match frames.read(&mut Ear { reader, cx }) {
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        }
    }
}

/// The reading half as the library wants it. Its answers to pings and goodbyes go nowhere: they
/// must not get between the pieces of another frame, so the other half writes them.
struct Ear<'a, 'b> {
    reader: &'a mut ReadHalf<Io>,
    cx: &'a mut Context<'b>,
}

impl Read for Ear<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.reader).poll_read(self.cx, &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Ear<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What goes out.
pub(super) struct Outgoing {
    writer: WriteHalf<Io>,
    opcode: u8,
}

impl Outgoing {
    async fn put(&mut self, frames: Vec<Bytes>, pong: Option<Bytes>) -> io::Result<()> {
        let room = |frame: &Bytes| 10 + frame.len().min(COPIED);
        let mut copied = Vec::with_capacity(frames.iter().chain(&pong).map(room).sum());
        if let Some(payload) = pong {
            head(&mut copied, PONG, payload.len());
            copied.extend_from_slice(&payload);
        }
        for frame in frames {
            head(&mut copied, self.opcode, frame.len());
            if frame.len() <= COPIED {
                copied.extend_from_slice(&frame);
            } else {
                self.writer.write_all(&copied).await?;
                copied.clear();
                self.writer.write_all(&frame).await?;
            }
        }
        self.writer.write_all(&copied).await?;
        self.writer.flush().await
    }
}

impl Sink for Outgoing {
    async fn write(&mut self, frames: Vec<Bytes>, pong: Option<Bytes>) -> bool {
        self.put(frames, pong).await.is_ok()
    }

    async fn close(&mut self, close: Close) {
        let mut frame = Vec::new();
        let word = close.word().as_bytes();
        head(&mut frame, CLOSE, 2 + word.len());
        frame.extend_from_slice(&close.code().to_be_bytes());
        frame.extend_from_slice(word);
        // Whoever is gone does not hear it.
        if self.writer.write_all(&frame).await.is_ok() {
            let _ = self.writer.shutdown().await;
        }
    }
}

/// The head of a whole frame from a server: no mask.
fn head(out: &mut Vec<u8>, opcode: u8, length: usize) {
    out.push(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..=125), _) => out.push(short),
        (_, Ok(middle)) => {
            out.push(126);
            out.extend_from_slice(&middle.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// What the library reads of it, as a client.
    fn read(bytes: Vec<u8>) -> Message {
        let mut client = WebSocketContext::new(Role::Client, None);
        client.read(&mut Cursor::new(bytes)).unwrap()
    }

    #[test]
    fn frames_of_all_lengths_are_understood() {
        for length in [0, 1, 125, 126, 127, 255, 256, 65_535, 65_536] {
            let payload = vec![7; length];
            let mut frame = Vec::new();
            head(&mut frame, BINARY, length);
            frame.extend_from_slice(&payload);
            assert_eq!(read(frame), Message::Binary(payload.into()), "{length}");
        }
    }
}

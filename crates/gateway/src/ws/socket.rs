//! A WebSocket in two halves that keep next to nothing between frames. What comes in is read by
//! the library, which knows all the ways to get a frame wrong; what goes out is framed here, a few
//! bytes before each payload, and written in one go: the library would keep a buffer as large as
//! the largest frame of each connection for as long as it lives.

use std::{
    future::poll_fn,
    hint::black_box,
    io::{self, ErrorKind, Read, Write},
    os::fd::AsRawFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use adsum_proto::client::{Close, Encoding};
use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::{rt::TokioIo, server::conn::auto::upgrade::downcast};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest, ReadBuf, ReadHalf, WriteHalf},
    net::TcpStream,
};
use tungstenite::{
    Error, Message,
    error::ProtocolError,
    protocol::{Role, WebSocketConfig, WebSocketContext},
};

use crate::{
    connection::{Received, Sink, Source},
    outbox::{Direct, Draft, HEAD, Writes},
};

/// A client's frames are small; what is larger is read in several steps.
const READ_BUFFER: usize = 128;
/// Payloads up to here are copied behind their heads, so that a batch of them is one write.
const COPIED: usize = 16 * 1024;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PONG: u8 = 0xa;

type Io = TokioIo<Upgraded>;

/// The two halves of a connection.
pub(super) fn open(upgraded: Upgraded, encoding: Encoding, limit: usize) -> (Incoming, Outgoing) {
    let (reader, writer, early) = halves(upgraded);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let incoming = Incoming {
        reader,
        frames: WebSocketContext::from_partially_read(early, Role::Server, Some(config)),
        encoding,
        lost: false,
    };
    (incoming, Outgoing { writer, encoding })
}

/// What a frame of this encoding is to the library at the other end.
const fn opcode(encoding: Encoding) -> u8 {
    match encoding {
        Encoding::Json => TEXT,
        Encoding::Protobuf => BINARY,
    }
}

/// To read from, to write to, and what was read already. Of a plain socket nothing stands between.
fn halves(upgraded: Upgraded) -> (Reader, Writer, Vec<u8>) {
    match downcast::<TokioIo<TcpStream>>(upgraded) {
        Ok(parts) => {
            let socket = Arc::new(parts.io.into_inner());
            let reader = Reader::Plain(Arc::clone(&socket));
            (reader, Writer::Plain(socket), parts.read_buf.to_vec())
        }
        Err(upgraded) => {
            let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
            (Reader::Wrapped(reader), Writer::Wrapped(writer), Vec::new())
        }
    }
}

enum Reader {
    Plain(Arc<TcpStream>),
    /// Within TLS.
    Wrapped(ReadHalf<Io>),
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => poll_plain(socket, cx, buffer),
            Self::Wrapped(reader) => Pin::new(reader).poll_read(cx, buffer),
        }
    }
}

/// Reads what is there. When that is less than there was room for, there is no more, and nobody
/// asks the kernel again only to hear that.
fn poll_plain(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(socket.poll_read_ready(cx))?;
        let room = buffer.initialize_unfilled();
        let mut read = None;
        let tried = socket.try_io(Interest::READABLE, || {
            let (_, count) = rustix::net::recv(socket, &mut *room, RecvFlags::DONTWAIT)?;
            read = Some(count);
            match count {
                0 => Ok(()),
                // What came later is told anew.
                short if short < room.len() => Err(ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        if let Some(count) = read {
            buffer.advance(count);
            return Poll::Ready(Ok(()));
        }
        match tried {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            tried => return Poll::Ready(tried),
        }
    }
}

enum Writer {
    Plain(Arc<TcpStream>),
    /// Within TLS.
    Wrapped(WriteHalf<Io>),
}

impl Writer {
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let socket = match self {
            Self::Wrapped(writer) => return writer.write_all(bytes).await,
            Self::Plain(socket) => socket,
        };
        while !bytes.is_empty() {
            match socket.try_write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Wrapped(writer) => writer.flush().await,
        }
    }

    /// Nothing more is written.
    async fn shutdown(&mut self) {
        // Whoever is gone does not hear it.
        match self {
            Self::Plain(socket) => {
                let _ = rustix::net::shutdown(socket, Shutdown::Write);
            }
            Self::Wrapped(writer) => {
                let _ = writer.shutdown().await;
            }
        }
    }
}

/// A plain socket, for whoever has a frame and nothing waits.
impl Direct for TcpStream {
    fn write(&self, encoding: Encoding, frame: &mut Draft) -> Option<Bytes> {
        let (head, length) = head(opcode(encoding), frame.len());
        let whole = frame.with_head(&head[..length]);
        // Past the runtime, which would have to be asked whether there is room: the kernel tells.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // What is wrong with the socket is found by the connection, which has to write the rest.
        let count = rustix::net::send(self, whole, flags).unwrap_or(0);
        (count < whole.len()).then(|| Bytes::copy_from_slice(&whole[count..]))
    }

    fn warm(&self) {
        black_box(self.as_raw_fd());
    }
}

/// What comes in.
pub(super) struct Incoming {
    reader: Reader,
    frames: WebSocketContext,
    encoding: Encoding,
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
        let binary = self.encoding == Encoding::Protobuf;
        let message = poll_fn(|cx| self.poll_message(cx)).await;
        self.lost = message.is_err();
        Some(match message {
            Ok(Message::Text(text)) if !binary => Received::Bytes(text.into()),
            Ok(Message::Binary(bytes)) if binary => Received::Bytes(bytes),
            Ok(Message::Text(_) | Message::Binary(_)) => Received::WrongType,
            Ok(Message::Ping(payload)) => Received::Ping(payload),
            Ok(Message::Pong(_) | Message::Frame(_)) => Received::Alive,
            Ok(Message::Close(_)) => Received::Goodbye,
            Err(Error::Capacity(_)) => Received::TooLarge,
            Err(Error::Utf8(_)) => Received::Garbage(Close::NotText),
            // The line broke.
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => return None,
            Err(Error::Protocol(_)) => Received::Garbage(Close::Protocol),
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
    reader: &'a mut Reader,
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
    writer: Writer,
    encoding: Encoding,
}

impl Outgoing {
    async fn put(&mut self, writes: Writes) -> io::Result<()> {
        let Writes { rest, pong, frames } = writes;
        let room = |bytes: &Bytes| HEAD + bytes.len().min(COPIED);
        let all = frames.iter().chain(&pong).chain(&rest);
        let mut copied = Vec::with_capacity(all.map(room).sum());
        // Each with its head, but for the rest of one that has had it.
        let rest = rest.map(|rest| (None, rest));
        let pong = pong.map(|pong| (Some(PONG), pong));
        let frames = frames
            .into_iter()
            .map(|frame| (Some(opcode(self.encoding)), frame));
        for (opcode, bytes) in rest.into_iter().chain(pong).chain(frames) {
            if let Some(opcode) = opcode {
                push_head(&mut copied, opcode, bytes.len());
            }
            if bytes.len() <= COPIED {
                copied.extend_from_slice(&bytes);
            } else {
                self.writer.write_all(&copied).await?;
                copied.clear();
                self.writer.write_all(&bytes).await?;
            }
        }
        self.writer.write_all(&copied).await?;
        self.writer.flush().await
    }
}

impl Sink for Outgoing {
    fn direct(&self) -> Option<Arc<dyn Direct>> {
        match &self.writer {
            Writer::Wrapped(_) => None,
            Writer::Plain(socket) => Some(Arc::<TcpStream>::clone(socket)),
        }
    }

    async fn write(&mut self, writes: Writes) -> bool {
        self.put(writes).await.is_ok()
    }

    async fn close(&mut self, close: Close) {
        let mut frame = Vec::new();
        let word = close.word().as_bytes();
        push_head(&mut frame, CLOSE, 2 + word.len());
        frame.extend_from_slice(&close.code().to_be_bytes());
        frame.extend_from_slice(word);
        if self.writer.write_all(&frame).await.is_ok() {
            self.writer.shutdown().await;
        }
    }
}

/// The head of a whole frame from a server, without a mask, and how long it is.
fn head(opcode: u8, length: usize) -> ([u8; HEAD], usize) {
    let mut head = [0; HEAD];
    head[0] = 0x80 | opcode;
    let size = match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..=125), _) => {
            head[1] = short;
            2
        }
        (_, Ok(middle)) => {
            head[1] = 126;
            head[2..4].copy_from_slice(&middle.to_be_bytes());
            4
        }
        _ => {
            head[1] = 127;
            head[2..].copy_from_slice(&(length as u64).to_be_bytes());
            HEAD
        }
    };
    (head, size)
}

fn push_head(out: &mut Vec<u8>, opcode: u8, length: usize) {
    let (head, size) = head(opcode, length);
    out.extend_from_slice(&head[..size]);
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
            push_head(&mut frame, BINARY, length);
            frame.extend_from_slice(&payload);
            assert_eq!(read(frame), Message::Binary(payload.into()), "{length}");
        }
    }
}

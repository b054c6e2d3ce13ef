//! A client's connection, whatever it comes through: one task that reads and writes at the same
//! time, so that a client which does not read is still heard.
//!
//! `client` is the loop and its times, `hello` the way in, `frames` what each frame does,
//! `acks` which answers wait for the store, `strangers` those who have not said hello yet.

mod acks;
mod client;
mod frames;
pub(crate) mod hello;
mod strangers;

use std::{future::Future, net::IpAddr, sync::Arc, time::Duration};

use adsum_proto::client::{Close, Encoding, v1};
use adsum_telemetry::metrics::{Transport, metrics};
use bytes::Bytes;

use crate::{
    outbox::{Batch, Direct, Outbox, Writes},
    requests::Requests,
};
use client::{Client, End};
pub(crate) use strangers::{Stranger, Strangers};

/// What a last frame and a goodbye may take to get through.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// What a transport hands over.
#[derive(Debug)]
pub(crate) enum Received {
    /// A frame as it came.
    Bytes(Bytes),
    /// A frame that the transport has decoded.
    Message(Box<v1::ClientFrame>),
    /// A sign of life that is no frame.
    Alive,
    /// The same, and it is to be echoed.
    Ping(Bytes),
    /// The client closes the connection.
    Goodbye,
    /// Text where there must be bytes, or the other way round.
    WrongType,
    /// A frame that was too large to be read.
    TooLarge,
    /// Nobody can tell what it means or where it ends.
    Garbage(Close),
}

/// Where frames come from.
pub(crate) trait Source: Send {
    /// Whether what was written last is lost if something that came in is never read.
    const RESETS: bool;

    /// The next one; `None` when the client is gone. Must be safe to drop half-way.
    fn next(&mut self) -> impl Future<Output = Option<Received>> + Send;
}

/// Where frames go.
pub(crate) trait Sink: Send {
    /// A way for others to write when nothing waits, if there is one.
    fn direct(&self) -> Option<Arc<dyn Direct>> {
        None
    }

    /// Writes all of it; `false` when the client is gone.
    fn write(&mut self, writes: Writes) -> impl Future<Output = bool> + Send;

    /// Ends the connection, and says why.
    fn close(&mut self, close: Close) -> impl Future<Output = ()> + Send;
}

/// How a client came in.
#[derive(Debug)]
pub(crate) struct Door {
    /// The other end of the connection itself.
    pub(crate) peer: IpAddr,
    pub(crate) encoding: Encoding,
    pub(crate) transport: Transport,
    /// Of use on the way in only.
    pub(crate) brought: Option<Box<Brought>>,
}

/// What came with the handshake, for a hello that has none of its own.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) token: Option<String>,
    /// A `traceparent`.
    pub(crate) trace: Option<String>,
    /// Set when it is served.
    pub(crate) stranger: Option<Stranger>,
}

/// Serves one client until it is gone.
// Not an `async fn`: that would keep room for its arguments twice.
pub(crate) fn run(
    requests: Requests,
    mut door: Door,
    mut source: impl Source,
    mut sink: impl Sink,
) -> impl Future<Output = ()> + Send {
    let edge = requests.edge();
    // A stop waits for it.
    let counted = edge.connections().token();
    let shown = metrics().connections.of(door.transport).hold();
    let outbox = edge.outbox(door.encoding, sink.direct());
    if let Some(brought) = &mut door.brought {
        brought.stranger = Some(edge.stranger(&outbox));
    }
    let mut client = Client::new(requests, door, Arc::clone(&outbox));
    async move {
        let _until_the_end = (&counted, &shown);
        {
            let writer = write(&outbox, &mut sink);
            tokio::pin!(writer);
            let end = tokio::select! {
                end = client.serve(&mut source) => end,
                () = &mut writer => End::Broken,
            };
            client.over(end);
            let goodbye = match end {
                End::Broken => None,
                // An answer is part of a clean end, even if nobody said that it leaves.
                End::Goodbye => Some(Close::Left),
                End::Close(close) => Some(close),
            };
            if let Some(close) = goodbye {
                outbox.close(close);
                // Who does not read the goodbye does not get it. On the heap, as below.
                let goodbye = Box::pin(async {
                    tokio::join!(&mut writer, quiet(&mut source));
                });
                let _ = Box::pin(tokio::time::timeout(CLOSE_WITHIN, goodbye)).await;
            }
        }
        outbox.abandon();
    }
}

/// Takes what the client still sends, and throws it away: a socket that is closed with something
/// unread is reset, and the goodbye with it.
async fn quiet<S: Source>(source: &mut S) {
    while S::RESETS && source.next().await.is_some() {}
}

/// Writes what waits until the connection ends.
pub(crate) async fn write(outbox: &Outbox, sink: &mut impl Sink) {
    loop {
        outbox.wait().await;
        // On the heap, for as long as it takes: most frames are written without this, and the room
        // for it would be kept for every connection.
        if !Box::pin(write_batch(outbox.take(), sink)).await {
            return;
        }
    }
}

/// `false` when the connection has ended.
async fn write_batch(batch: Batch, sink: &mut impl Sink) -> bool {
    if !batch.writes.is_empty() && !sink.write(batch.writes).await {
        return false;
    }
    for (topic, watcher) in batch.dirty {
        topic.restate(watcher);
    }
    if let Some(close) = batch.close {
        sink.close(close).await;
        return false;
    }
    true
}

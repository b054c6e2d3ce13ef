//! One stream to one dispatcher: opens it, puts what comes into the rosters, and tells the router
//! what it needs to know. Any trouble ends it; the router opens another one.

use std::{sync::Arc, time::Duration};

use adsum_core::{NodeId, membership::Member};
use adsum_proto::{
    Malformed,
    feed::{
        self, DispatcherFrame, GatewayFrame, Hello, dispatcher_frame, feed_client::FeedClient,
        gateway_frame,
    },
};
use tokio::{sync::mpsc, time::timeout};
use tonic::{Status, Streaming};

use super::{
    connect::{ConnectError, Connector},
    frames::{Seen, decode},
    shared::Shared,
};

/// One stream; never used again.
pub(super) type LinkId = u64;

/// What a link says to the router.
#[derive(Debug)]
pub(super) enum Note {
    Up,
    Seen(Vec<Seen>),
    Down,
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("no connection: {0}")]
    Connect(ConnectError),
    #[error("no welcome within {0:?}")]
    Late(Duration),
    #[error("{} ({:?})", .0.message(), .0.code())]
    Status(#[from] Status),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the dispatcher speaks protocol {0}")]
    Protocol(u32),
    #[error("the dispatcher ended the stream")]
    Ended,
}

/// What a link is made of.
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) node: NodeId,
    pub(super) member: Arc<Member>,
    pub(super) connector: Connector,
    pub(super) shared: Arc<Shared>,
    pub(super) notes: mpsc::Sender<(LinkId, Note)>,
}

impl Link {
    /// Runs until trouble. Nobody listens for notes any more when the feed stops.
    pub(super) async fn run(self, orders: mpsc::Receiver<gateway_frame::Frame>) {
        let Err(trouble) = self.serve(orders).await;
        let dispatcher = &self.member.node;
        self.shared.metrics.failures.add(1);
        if matches!(trouble, Trouble::Malformed(_)) {
            self.shared.metrics.malformed.add(1);
            tracing::warn!(%dispatcher, error = %trouble, "feed closed: frame makes no sense");
        } else {
            tracing::info!(%dispatcher, error = %trouble, "feed broke");
        }
        let _ = self.notes.send((self.id, Note::Down)).await;
    }

    async fn serve(
        &self,
        orders: mpsc::Receiver<gateway_frame::Frame>,
    ) -> Result<std::convert::Infallible, Trouble> {
        let limit = self.shared.config.connect_timeout;
        let opened = timeout(limit, self.open(orders)).await;
        let mut frames = opened.map_err(|_| Trouble::Late(limit))??;
        let _ = self.notes.send((self.id, Note::Up)).await;
        loop {
            let frame = next(&mut frames).await?;
            let dispatcher_frame::Frame::Batch(batch) = frame else {
                return Err(Malformed::Unknown("frame").into());
            };
            let seen = self.shared.take(decode(batch, self.shared.config.shards)?);
            if !seen.is_empty() {
                // Waits when the router is behind: then the stream's window fills up, and the
                // dispatcher knows what to do.
                let _ = self.notes.send((self.id, Note::Seen(seen))).await;
            }
        }
    }

    async fn open(
        &self,
        mut orders: mpsc::Receiver<gateway_frame::Frame>,
    ) -> Result<Streaming<DispatcherFrame>, Trouble> {
        let config = &self.shared.config;
        let connecting = (self.connector)(Arc::clone(&self.member));
        let channel = connecting.await.map_err(Trouble::Connect)?;
        let mut client = FeedClient::new(channel).max_decoding_message_size(config.message_bytes);
        let mut hello = Some(gateway_frame::Frame::Hello(Hello {
            protocol: feed::PROTOCOL,
            node: self.node.to_string(),
            cluster: config.cluster.clone(),
            layout: config.layout,
            shards: config.shards.into(),
        }));
        let requests = futures::stream::poll_fn(move |cx| {
            let frame = match hello.take() {
                Some(hello) => std::task::Poll::Ready(Some(hello)),
                None => orders.poll_recv(cx),
            };
            frame.map(|frame| frame.map(|frame| GatewayFrame { frame: Some(frame) }))
        });
        let mut frames = client.attach(requests).await?.into_inner();
        match next(&mut frames).await? {
            dispatcher_frame::Frame::Welcome(w) if w.protocol == feed::PROTOCOL => Ok(frames),
            dispatcher_frame::Frame::Welcome(w) => Err(Trouble::Protocol(w.protocol)),
            dispatcher_frame::Frame::Batch(_) => Err(Malformed::Missing("welcome").into()),
        }
    }
}

async fn next(frames: &mut Streaming<DispatcherFrame>) -> Result<dispatcher_frame::Frame, Trouble> {
    let message = frames.message().await?.ok_or(Trouble::Ended)?;
    Ok(message.frame.ok_or(Malformed::Missing("frame"))?)
}

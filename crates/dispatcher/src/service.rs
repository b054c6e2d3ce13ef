//! The dispatcher itself, and the feed that it serves.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use adsum_core::{
    membership::Membership,
    ring::ShardRing,
    store::{Shard, Store},
};
use adsum_proto::feed::{
    DispatcherFrame, GatewayFrame, Hello, PROTOCOL,
    feed_server::{Feed, FeedServer},
    gateway_frame::Frame,
};
use adsum_telemetry::metrics::metrics;
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    config::DispatcherConfig,
    contacts::Lists,
    frames,
    interest::Interest,
    outlet::Outlet,
    shards::{ShardStatus, Shards},
    stream::Stream,
};

/// A gateway that connects and says nothing is not waited for.
const HELLO: Duration = Duration::from_secs(5);
/// Batches on their way to the socket.
const IN_FLIGHT: usize = 2;
/// The largest frame: a part of a very large room.
const MAX_FRAME: usize = 64 << 20;

struct Inner {
    store: Arc<dyn Store>,
    membership: Arc<dyn Membership>,
    config: Arc<DispatcherConfig>,
    ring: Arc<ShardRing>,
    interest: Arc<Interest>,
    lists: Arc<Lists>,
    shards: Arc<Shards>,
    cancel: CancellationToken,
    tracker: TaskTracker,
    streams: AtomicU64,
    queue_peak: Arc<AtomicUsize>,
}

/// A running dispatcher. Stops with [`stop`](Self::stop).
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

impl Dispatcher {
    /// Begins to keep the views that the ring gives this node.
    #[must_use]
    pub fn start(
        store: Arc<dyn Store>,
        membership: Arc<dyn Membership>,
        config: DispatcherConfig,
    ) -> Self {
        let (cancel, tracker) = (CancellationToken::new(), TaskTracker::new());
        let config = Arc::new(config);
        let interest = Arc::new(Interest::default());
        let shards = Shards::new(
            store.clone(),
            config.clone(),
            interest.clone(),
            cancel.clone(),
            tracker.clone(),
        );
        let inner = Arc::new(Inner {
            ring: Arc::new(ShardRing::new(store.shards())),
            lists: Arc::new(Lists::new(store.clone(), config.contacts)),
            streams: AtomicU64::new(0),
            queue_peak: Arc::default(),
            store,
            membership,
            config,
            interest,
            shards,
            cancel,
            tracker: tracker.clone(),
        });
        tracker.spawn(follow_members(inner.clone()));
        Self(inner)
    }

    /// The feed, to be put on a server.
    #[must_use]
    pub fn feed(&self) -> FeedServer<FeedService> {
        FeedServer::new(FeedService(self.0.clone()))
            .max_decoding_message_size(MAX_FRAME)
            .max_encoding_message_size(MAX_FRAME)
    }

    /// How the shards that are followed here stand.
    #[must_use]
    pub fn status(&self) -> BTreeMap<Shard, ShardStatus> {
        self.0.shards.status()
    }

    /// Whether the ring was seen with this node on it: before that, having no shard means nothing.
    #[must_use]
    pub fn placed(&self) -> bool {
        self.0.shards.placed()
    }

    /// The most states that ever waited for one gateway, of at most how many.
    #[must_use]
    pub fn queue_peak(&self) -> (usize, usize) {
        (self.0.queue_peak.load(Relaxed), self.0.config.queue)
    }

    /// Ends all streams and tasks.
    pub async fn stop(&self) {
        self.0.cancel.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }
}

async fn follow_members(inner: Arc<Inner>) {
    let mut members = inner.membership.watch();
    loop {
        tokio::select! {
            () = inner.cancel.cancelled() => return,
            now = members.next() => match now {
                Some(now) => inner.shards.keep_warm(inner.membership.node().as_str(), &now),
                None => return,
            },
        }
    }
}

/// The gRPC side of a dispatcher.
pub struct FeedService(Arc<Inner>);

#[tonic::async_trait]
impl Feed for FeedService {
    type AttachStream = BoxStream<'static, Result<DispatcherFrame, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<GatewayFrame>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let inner = self.0.clone();
        let mut incoming = request.into_inner();
        let hello = tokio::time::timeout(HELLO, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no hello"))??;
        let Some(Frame::Hello(hello)) = hello.and_then(|f| f.frame) else {
            return Err(Status::invalid_argument("the first frame must be a hello"));
        };
        inner.agrees(&hello)?;
        let (out, outgoing) = mpsc::channel(IN_FLIGHT);
        let node = inner.membership.node();
        // The channel is new: there is room for one.
        let _ = out.try_send(Ok(frames::welcome(node.as_str())));
        let stream = Arc::new(inner.stream());
        inner
            .tracker
            .spawn(serve(stream, incoming, out, inner.cancel.clone()));
        tracing::info!(gateway = hello.node, "gateway attached");
        Ok(Response::new(ReceiverStream::new(outgoing).boxed()))
    }
}

impl Inner {
    fn agrees(&self, hello: &Hello) -> Result<(), Status> {
        let refuse = |what: &str, theirs: &dyn std::fmt::Display, ours: &dyn std::fmt::Display| {
            let text = format!("this dispatcher has {what} {ours}, the gateway {theirs}");
            Err(Status::failed_precondition(text))
        };
        let shards = u32::from(self.store.shards());
        if hello.protocol != PROTOCOL {
            return refuse("feed protocol", &hello.protocol, &PROTOCOL);
        }
        if hello.cluster != self.config.cluster {
            return refuse("cluster", &hello.cluster, &self.config.cluster);
        }
        if hello.layout != self.config.layout {
            return refuse("layout", &hello.layout, &self.config.layout);
        }
        if hello.shards != shards {
            return refuse("shards", &hello.shards, &shards);
        }
        Ok(())
    }

    fn stream(&self) -> Stream {
        let id = self.streams.fetch_add(1, Relaxed);
        let outlet = Outlet::new(id, self.ring.clone(), self.config.queue);
        Stream {
            outlet: Arc::new(outlet.with_peak(self.queue_peak.clone())),
            shards: self.shards.clone(),
            interest: self.interest.clone(),
            lists: self.lists.clone(),
            ring: self.ring.clone(),
            count: self.store.shards(),
            contacts: self.config.contacts,
        }
    }
}

/// Reads and writes until either side ends.
async fn serve(
    stream: Arc<Stream>,
    mut incoming: Streaming<GatewayFrame>,
    out: mpsc::Sender<Result<DispatcherFrame, Status>>,
    cancel: CancellationToken,
) {
    let _shown = metrics().streams.hold();
    let reading = async {
        loop {
            match incoming.message().await {
                Ok(Some(frame)) => stream.take(frame)?,
                Ok(None) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
    };
    let ended = tokio::select! {
        ended = reading => ended,
        () = stream.send(out.clone()) => Ok(()),
        () = cancel.cancelled() => Err(Status::unavailable("this dispatcher stops")),
    };
    stream.end();
    if let Err(status) = ended {
        tracing::debug!(code = ?status.code(), reason = status.message(), "stream ended");
        let _ = out.try_send(Err(status));
    }
}

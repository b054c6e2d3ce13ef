//! A dispatcher that does what the test says.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use adsum_core::membership::Member;
use adsum_proto::feed::{
    self, Batch, DispatcherFrame, Frame, GatewayFrame, Take, TopicRef, Welcome, dispatcher_frame,
    feed_server, gateway_frame,
};
use futures::{Stream, StreamExt};
use tokio::{io::DuplexStream, sync::mpsc};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::{mark, within};

type Out = mpsc::UnboundedSender<Result<DispatcherFrame, Status>>;

#[derive(Clone, Default)]
pub(crate) struct Fakes(pub(crate) Arc<Mutex<HashMap<String, Fake>>>);

pub(crate) struct Fake {
    pub(crate) down: bool,
    pub(crate) deaf: bool,
    pub(crate) sessions: mpsc::UnboundedSender<Session>,
}

impl Fakes {
    pub(crate) fn dial(&self, member: &Member) -> io::Result<DuplexStream> {
        let fakes = self.0.lock().unwrap();
        let fake = fakes
            .get(member.node.as_str())
            .ok_or(io::ErrorKind::NotFound)?;
        if fake.down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = tokio::io::duplex(1 << 20);
        if fake.deaf {
            // Takes the connection and never says a word.
            tokio::spawn(async move {
                let _far = far;
                std::future::pending::<()>().await;
            });
            return Ok(near);
        }
        let service = feed_server::FeedServer::new(Door(fake.sessions.clone()));
        let incoming =
            futures::stream::iter([Ok::<_, io::Error>(far)]).chain(futures::stream::pending());
        tokio::spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming),
        );
        Ok(near)
    }
}

struct Door(mpsc::UnboundedSender<Session>);

#[tonic::async_trait]
impl feed_server::Feed for Door {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<DispatcherFrame, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<GatewayFrame>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut frames = request.into_inner();
        let first = frames.message().await?.and_then(|f| f.frame);
        let Some(gateway_frame::Frame::Hello(hello)) = first else {
            return Err(Status::failed_precondition("no hello"));
        };
        assert_eq!((hello.protocol, hello.layout), (feed::PROTOCOL, 1));
        assert_eq!((&*hello.cluster, &*hello.node), ("test", "gateway"));
        let (to_test, orders) = mpsc::unbounded_channel();
        let (out, to_gateway) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(frame)) = frames.message().await {
                let _ = to_test.send(frame.frame.unwrap());
            }
        });
        let welcome = dispatcher_frame::Frame::Welcome(Welcome {
            protocol: feed::PROTOCOL,
            node: "fake".into(),
        });
        let _ = out.send(Ok(DispatcherFrame {
            frame: Some(welcome),
        }));
        let marks = Arc::<Mutex<BTreeMap<u32, Frame>>>::default();
        tokio::spawn(beat(out.clone(), Arc::clone(&marks)));
        let _ = self.0.send(Session { orders, out, marks });
        let stream = futures::stream::unfold(to_gateway, async |mut from| {
            from.recv().await.map(|frame| (frame, from))
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

async fn beat(out: Out, marks: Arc<Mutex<BTreeMap<u32, Frame>>>) {
    while !out.is_closed() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let frames: Vec<_> = marks.lock().unwrap().values().cloned().collect();
        let _ = out.send(Ok(batch(frames)));
    }
}

fn batch(frames: Vec<Frame>) -> DispatcherFrame {
    DispatcherFrame {
        frame: Some(dispatcher_frame::Frame::Batch(Batch { frames })),
    }
}

/// A stream from the gateway, in the hands of the test.
pub(crate) struct Session {
    orders: mpsc::UnboundedReceiver<gateway_frame::Frame>,
    out: Out,
    marks: Arc<Mutex<BTreeMap<u32, Frame>>>,
}

impl Session {
    pub(crate) async fn order(&mut self) -> gateway_frame::Frame {
        within("an order", self.orders.recv())
            .await
            .expect("the gateway went")
    }

    pub(crate) async fn take(&mut self) -> Take {
        match self.order().await {
            gateway_frame::Frame::Take(take) => take,
            other => panic!("no take: {other:?}"),
        }
    }

    pub(crate) async fn add(&mut self) -> Vec<TopicRef> {
        match self.order().await {
            gateway_frame::Frame::Add(add) => add.topics,
            other => panic!("no add: {other:?}"),
        }
    }

    /// What has been ordered and not looked at.
    pub(crate) fn orders(&mut self) -> Vec<gateway_frame::Frame> {
        std::iter::from_fn(|| self.orders.try_recv().ok()).collect()
    }

    pub(crate) fn send(&self, frames: impl IntoIterator<Item = Frame>) {
        let _ = self.out.send(Ok(batch(frames.into_iter().collect())));
    }

    /// Marks the shard, now and with every beat.
    pub(crate) fn mark(&self, shard: u32, seq: u64) {
        self.keep_marking(mark(shard, seq));
    }

    pub(crate) fn keep_marking(&self, mark: Frame) {
        self.marks.lock().unwrap().insert(mark.shard, mark.clone());
        self.send([mark]);
    }

    /// No more marks of any shard.
    pub(crate) fn hush(&self) {
        self.marks.lock().unwrap().clear();
    }

    pub(crate) fn break_off(&self) {
        self.hush();
        let _ = self.out.send(Err(Status::unavailable("killed")));
    }

    /// The stream is of no more use.
    pub(crate) fn is_over(&self) -> bool {
        self.orders.is_closed() && self.orders.is_empty()
    }

    /// The gateway has left the stream.
    pub(crate) async fn ended(&mut self) {
        within("the end", async {
            while self.orders.recv().await.is_some() {}
        })
        .await;
    }
}

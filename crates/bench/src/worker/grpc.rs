//! Clients over gRPC: some streams on each connection. These are the library's, which costs more
//! than the loop of the others: for what the server keeps for them, not for how fast it is.

use std::time::{Duration, Instant};

use adsum_proto::client::{WireFrame, presence_client::PresenceClient, v1};
use anyhow::{Context, Result};
use prost::Message;
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use super::{AT_ONCE, Done, Order, Part};
use crate::{
    args::Spoken,
    speech::{Heard, Line, Speech},
};

const SPEECH: Speech = Speech(Spoken::Protobuf);

/// What a client tells.
enum Told {
    Opened(Duration),
    Left(String),
    Failed(String),
}

/// Serves until there are no more orders.
pub(super) fn run(part: Part, streams: usize, orders: UnboundedReceiver<Order>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (sender, told) = mpsc::unbounded_channel();
    let clients = Clients {
        part,
        streams,
        opened: 0,
        pending: 0,
        channel: None,
        sender,
        told,
        done: Done::default(),
    };
    runtime.block_on(clients.serve(orders))
}

struct Clients {
    part: Part,
    /// On a connection.
    streams: usize,
    opened: usize,
    pending: usize,
    /// The last one that was opened.
    channel: Option<Channel>,
    sender: UnboundedSender<Told>,
    told: UnboundedReceiver<Told>,
    done: Done,
}

impl Clients {
    async fn serve(mut self, mut orders: UnboundedReceiver<Order>) -> Result<()> {
        loop {
            let order = tokio::select! {
                order = orders.recv() => order,
                told = self.told.recv() => {
                    self.hear(told);
                    continue;
                }
            };
            match order {
                Some(Order::Open(count)) => self.open(count).await?,
                Some(Order::Churn(seconds)) => self.hold(Duration::from_secs_f64(seconds)).await,
                None => return Ok(()),
            }
            self.done.say()?;
        }
    }

    fn hear(&mut self, told: Option<Told>) {
        match told {
            Some(Told::Opened(took)) => {
                self.pending -= 1;
                self.done.open += 1;
                self.done.opened(took);
            }
            Some(Told::Left(user)) => self.done.heard(Line::Leave(&user)),
            Some(Told::Failed(why)) => {
                self.pending = self.pending.saturating_sub(1);
                self.done.failed(why);
            }
            None => {}
        }
    }

    async fn open(&mut self, count: usize) -> Result<()> {
        let (begun, before) = (Instant::now(), self.opened);
        while self.opened < count {
            if self.opened - before >= self.part.due(begun.elapsed()) {
                self.hold(Duration::from_millis(1)).await;
                continue;
            }
            self.open_one().await?;
            while self.pending >= AT_ONCE {
                let told = self.told.recv().await;
                self.hear(told);
            }
        }
        while self.pending > 0 {
            let told = self.told.recv().await;
            self.hear(told);
        }
        Ok(())
    }

    async fn open_one(&mut self) -> Result<()> {
        let (begun, n) = (Instant::now(), self.part.first + self.opened);
        if self.opened.is_multiple_of(self.streams) {
            let server = self.part.server(self.opened / self.streams)?;
            let endpoint = Endpoint::from_shared(format!("http://{server}"))?;
            let channel = endpoint.tcp_nodelay(true).connect().await;
            self.channel = Some(channel.with_context(|| format!("connect to {server}"))?);
        }
        let channel = self.channel.clone().context("no connection")?;
        let hello = SPEECH.hello(&self.part.token(&format!("m{n}")), &self.part.hello(n));
        let hello = v1::ClientFrame::decode(hello.as_slice())?;
        let told = self.sender.clone();
        tokio::spawn(async move {
            let why = match live(channel, hello, begun, &told).await {
                Ok(()) => "the stream has ended".into(),
                Err(error) => error.to_string(),
            };
            // Nobody hears it any more at the end.
            let _ = told.send(Told::Failed(why));
        });
        self.opened += 1;
        self.pending += 1;
        Ok(())
    }

    async fn hold(&mut self, time: Duration) {
        let end = sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                told = self.told.recv() => self.hear(told),
            }
        }
    }
}

/// One session, until it ends.
async fn live(
    channel: Channel,
    hello: v1::ClientFrame,
    begun: Instant,
    told: &UnboundedSender<Told>,
) -> Result<()> {
    let (frames, outgoing) = mpsc::channel(1);
    frames.send(hello).await?;
    let mut client = PresenceClient::new(channel);
    let answer = client.connect(ReceiverStream::new(outgoing)).await?;
    let mut incoming: Streaming<WireFrame> = answer.into_inner();
    let mut every = Duration::MAX;
    let mut beat = Instant::now();
    loop {
        let left = every.saturating_sub(beat.elapsed());
        let Ok(frame) = timeout(left, incoming.message()).await else {
            let heartbeat = v1::client_frame::Frame::Heartbeat(v1::Heartbeat {});
            frames
                .send(v1::ClientFrame {
                    frame: Some(heartbeat),
                    ..v1::ClientFrame::default()
                })
                .await?;
            beat = Instant::now();
            continue;
        };
        let Some(frame) = frame? else { return Ok(()) };
        let lines = |line: Line<'_>| {
            if let Line::Leave(user) = line {
                let _ = told.send(Told::Left(user.to_owned()));
            }
        };
        match SPEECH.hear(&frame.encode_to_vec(), lines) {
            Ok(Heard::Welcome { heartbeat_ms }) => {
                (every, beat) = (Duration::from_millis(heartbeat_ms.max(1)), Instant::now());
                let _ = told.send(Told::Opened(begun.elapsed()));
            }
            Ok(Heard::Error(why)) | Err(why) => anyhow::bail!(why),
            Ok(_) => {}
        }
    }
}

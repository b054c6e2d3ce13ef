//! A bare server: says welcome, and writes one frame to all its sockets of a room when told to, in
//! the order in which it is told.

use std::{collections::BTreeMap, io::BufRead};

use adsum_proto::client::{Encoding, v1};
use anyhow::{Context, Result};
use clap::Args;
use prost::Message;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    runtime::Builder,
    sync::mpsc,
};

use super::lines_in;
use crate::args::Spoken;

/// See `args`.
#[derive(Debug, Args)]
pub(crate) struct Server {
    #[arg(long, value_enum)]
    encoding: Spoken,
    #[arg(long)]
    members: usize,
    #[arg(long)]
    diffs: f64,
    /// How many there are, and which of them this is: clients go to them in turn.
    #[arg(long)]
    servers: usize,
    #[arg(long)]
    nth: usize,
    #[arg(long)]
    threads: usize,
}

/// Does what concerns some rooms; there is one for each thread.
type Lane = mpsc::UnboundedSender<(usize, Order)>;

enum Order {
    Enter(OwnedWriteHalf),
    Write,
}

impl Server {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(self.threads)
            .enable_all()
            .build()?;
        let encoding = self.encoding.encoding()?;
        let lane = |_| {
            let (lane, orders) = mpsc::unbounded_channel();
            runtime.spawn(serve(orders, encoding, self.diffs));
            lane
        };
        let lanes: Vec<Lane> = (0..self.threads).map(lane).collect();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        crate::report::say(&listener.local_addr()?.to_string());
        runtime.spawn(accept(listener, lanes.clone(), encoding, move |count| {
            // Rooms fill in the order in which clients come.
            (count * self.servers + self.nth) / self.members
        }));
        // Orders come from the process that started this, and end with it.
        for line in std::io::stdin().lock().lines() {
            let room: usize = line?.trim().parse().context("a room's number")?;
            let _ = lanes[room % lanes.len()].send((room, Order::Write));
        }
        Ok(())
    }
}

async fn accept(
    listener: TcpListener,
    lanes: Vec<Lane>,
    encoding: Encoding,
    room_of: impl Fn(usize) -> usize,
) {
    let mut count = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(half) = greet(stream, encoding).await else {
            continue;
        };
        let room = room_of(count);
        count += 1;
        let _ = lanes[room % lanes.len()].send((room, Order::Enter(half)));
    }
}

async fn serve(
    mut orders: mpsc::UnboundedReceiver<(usize, Order)>,
    encoding: Encoding,
    diffs: f64,
) {
    let mut rooms: BTreeMap<usize, (Vec<u8>, Vec<OwnedWriteHalf>)> = BTreeMap::new();
    while let Some((room, order)) = orders.recv().await {
        let (frame, sockets) = rooms
            .entry(room)
            .or_insert_with(|| (frame(encoding, room, lines_in(diffs, room)), Vec::new()));
        match order {
            Order::Enter(socket) => sockets.push(socket),
            Order::Write => {
                for socket in sockets {
                    // Whoever hung up ended the measurement.
                    let _ = socket.write_all(frame).await;
                }
            }
        }
    }
}

/// Does as a WebSocket server does, as far as the clients here look.
async fn greet(mut stream: TcpStream, encoding: Encoding) -> Result<OwnedWriteHalf> {
    stream.set_nodelay(true)?;
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        stream.read_buf(&mut heard).await?;
    }
    stream
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        .await?;
    stream.read_buf(&mut heard).await?;
    let welcome = match encoding {
        Encoding::Json => json!({ "type": "welcome", "heartbeat_ms": 3_600_000 })
            .to_string()
            .into_bytes(),
        Encoding::Protobuf => proto(v1::server_frame::Frame::Welcome(v1::Welcome {
            heartbeat_ms: 3_600_000,
            ..v1::Welcome::default()
        })),
    };
    stream.write_all(&framed(encoding, &welcome)).await?;
    let (mut reader, writer) = stream.into_split();
    tokio::spawn(async move {
        let mut rest = [0; 64];
        while matches!(reader.read(&mut rest).await, Ok(count) if count > 0) {}
    });
    Ok(writer)
}

/// A diff with so many lines, as the service sends it.
fn frame(encoding: Encoding, room: usize, diffs: usize) -> Vec<u8> {
    let (user, v, since) = (
        format!("x{room}"),
        "1234567890123456-123456",
        1_782_909_296_789_u64,
    );
    let payload = match encoding {
        Encoding::Json => {
            let item = json!({
                "user": user, "status": "online", "devices": ["other"], "since": since, "v": v,
            });
            json!({
                "type": "presence_diff", "topic": format!("room:r{room}"), "offset": 12345,
                "joins": vec![item; diffs],
            })
            .to_string()
            .into_bytes()
        }
        Encoding::Protobuf => {
            let item = v1::Item {
                user,
                status: v1::Status::Online.into(),
                devices: vec!["other".into()],
                since,
                v: v.into(),
                ..v1::Item::default()
            };
            proto(v1::server_frame::Frame::PresenceDiff(v1::PresenceDiff {
                topic: format!("room:r{room}"),
                offset: 12345,
                joins: vec![item; diffs],
                ..v1::PresenceDiff::default()
            }))
        }
    };
    framed(encoding, &payload)
}

fn proto(frame: v1::server_frame::Frame) -> Vec<u8> {
    let frame = v1::ServerFrame {
        frame: Some(frame),
        ..v1::ServerFrame::default()
    };
    frame.encode_to_vec()
}

/// As a server frames it: without a mask.
fn framed(encoding: Encoding, payload: &[u8]) -> Vec<u8> {
    let mut framed = vec![if encoding == Encoding::Json {
        0x81
    } else {
        0x82
    }];
    match payload.len() {
        short @ 0..=125 => framed.push(short as u8),
        middle @ 126..=0xffff => {
            framed.push(126);
            framed.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            framed.push(127);
            framed.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    framed.extend_from_slice(payload);
    framed
}

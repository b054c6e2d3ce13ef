//! A server that does what the test says, frame by frame.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::time::Duration;

use adsum_client::{
    Builder, Client, Code, Conn, DeviceId, Encoding, Event, Events, Item, Kind, Problem, RoomId,
    Status, Timing, Topic, Transport, UserId, Version,
};
use adsum_proto::client::{
    FrameLimits, Ref,
    frame::{
        ClientBody, ClientFrame, Hello, Members, Mode, PresenceState, ServerBody, ServerFrame,
        Welcome,
    },
};
use futures::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::header::SEC_WEBSOCKET_PROTOCOL,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn lobby() -> Topic {
    Topic::Room(RoomId::new("lobby").unwrap())
}

pub fn fast() -> Timing {
    Timing::default().faster(10)
}

pub fn item(user: &str, v: u64) -> Item {
    Item {
        user: UserId::new(user).unwrap(),
        status: Status::Online,
        devices: vec![Kind::default()],
        meta: None,
        since: 1,
        v: Version::new(1, v),
    }
}

pub fn state(offset: u64, items: Option<Vec<Item>>) -> ServerBody {
    ServerBody::PresenceState(PresenceState {
        topic: lobby(),
        offset,
        mode: Mode::Members,
        members: items.map(|members| Members {
            complete: true,
            members,
            count: None,
        }),
        stale: false,
    })
}

pub fn problem(code: Code) -> Problem {
    Problem::new(code, "no")
}

/// A test that waits for ever says nothing.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("takes too long")
}

pub struct Server {
    listener: TcpListener,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener }
    }

    pub fn url(&self) -> String {
        format!("ws://{}", self.listener.local_addr().unwrap())
    }

    pub fn client(&self) -> Builder {
        let builder = Client::builder().endpoint(self.url()).token("dev:acme:ann");
        builder.timing(fast())
    }

    pub async fn accept(&self) -> Peer {
        let (stream, _) = timeout(PATIENCE, self.listener.accept())
            .await
            .expect("nobody connects")
            .unwrap();
        Peer::new(stream).await
    }

    /// Whether nobody connects for a while.
    pub async fn quiet(&self, time: Duration) -> bool {
        timeout(time, self.listener.accept()).await.is_err()
    }

    /// Accepts and welcomes.
    pub async fn welcome(&self) -> (Peer, Hello) {
        let mut peer = self.accept().await;
        let hello = peer.welcome(60_000).await;
        (peer, hello)
    }
}

pub struct Peer {
    socket: WebSocketStream<TcpStream>,
    encoding: Encoding,
}

impl Peer {
    async fn new(stream: TcpStream) -> Self {
        let mut encoding = None;
        #[allow(clippy::result_large_err)]
        let pick = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.uri().path(), "/v1/ws");
            let asked = request.headers()[SEC_WEBSOCKET_PROTOCOL].clone();
            encoding = Encoding::from_subprotocol(asked.to_str().unwrap());
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, asked);
            Ok(response)
        };
        let socket = accept_hdr_async(stream, pick).await.unwrap();
        let encoding = encoding.unwrap();
        Self { socket, encoding }
    }

    pub async fn recv(&mut self) -> Option<ClientFrame> {
        let message = timeout(PATIENCE, self.socket.next()).await.expect("silent");
        match message?.ok()? {
            Message::Text(text) if self.encoding == Encoding::Json => {
                Some(self.decode(text.as_bytes()))
            }
            Message::Binary(bytes) if self.encoding == Encoding::Protobuf => {
                Some(self.decode(&bytes))
            }
            Message::Close(_) => None,
            other => panic!("{other:?}"),
        }
    }

    fn decode(&self, bytes: &[u8]) -> ClientFrame {
        let limits = FrameLimits::default();
        self.encoding.decode(bytes, &limits).unwrap()
    }

    pub async fn next(&mut self) -> ClientFrame {
        self.recv().await.expect("the client is gone")
    }

    /// The next frame that is no heartbeat; those are answered.
    pub async fn said(&mut self) -> ClientFrame {
        loop {
            let frame = self.next().await;
            match frame.body {
                ClientBody::Heartbeat => self.reply(frame.r#ref, ServerBody::Ack).await,
                _ => return frame,
            }
        }
    }

    pub async fn reply(&mut self, r#ref: Option<Ref>, body: ServerBody) {
        let bytes = self.encoding.encode(&ServerFrame { r#ref, body });
        let message = match self.encoding {
            Encoding::Json => Message::Text(bytes.try_into().unwrap()),
            Encoding::Protobuf => Message::Binary(bytes),
        };
        self.socket.send(message).await.unwrap();
    }

    pub async fn news(&mut self, body: ServerBody) {
        self.reply(None, body).await;
    }

    pub async fn hello(&mut self) -> (Option<Ref>, Hello) {
        let frame = self.next().await;
        match frame.body {
            ClientBody::Hello(hello) => (frame.r#ref, *hello),
            other => panic!("{other:?}"),
        }
    }

    pub async fn welcome(&mut self, heartbeat_ms: u64) -> Hello {
        let (r#ref, hello) = self.hello().await;
        let made_up = || DeviceId::new("made-up").unwrap();
        let welcome = Welcome {
            user: UserId::new("ann").unwrap(),
            device: hello.device.clone().unwrap_or_else(made_up),
            conn: hello.conn.unwrap_or_else(|| Conn::new(5).unwrap()),
            heartbeat_ms,
            ttl_ms: 3 * heartbeat_ms,
            server_time: 0,
        };
        self.reply(r#ref, ServerBody::Welcome(welcome)).await;
        hello
    }

    pub async fn refuse(&mut self, r#ref: Option<Ref>, problem: Problem) {
        let number = Code::from_word(&problem.code).and_then(Code::close);
        self.reply(r#ref, ServerBody::Error(problem)).await;
        if let Some(close) = number {
            self.close(close.code()).await;
        }
    }

    pub async fn close(&mut self, number: u16) {
        let frame = CloseFrame {
            code: CloseCode::from(number),
            reason: "".into(),
        };
        self.socket.send(Message::Close(Some(frame))).await.ok();
    }

    /// Waits until the client is gone; what it said last.
    pub async fn gone(&mut self) -> Vec<ClientFrame> {
        let mut last = Vec::new();
        while let Some(frame) = self.recv().await {
            last.push(frame);
        }
        last
    }
}

/// The next event that fits.
pub async fn event<T>(events: &mut Events, fits: impl Fn(&Event) -> Option<T>) -> T {
    let search = async {
        loop {
            let event = events.next().await.expect("no more events");
            if let Some(found) = fits(&event) {
                return found;
            }
        }
    };
    timeout(PATIENCE, search).await.expect("no such event")
}

pub async fn synced(events: &mut Events) -> bool {
    let resumed = |event: &Event| match event {
        Event::Synced { resumed, .. } => Some(*resumed),
        _ => None,
    };
    event(events, resumed).await
}

pub const ALL: [Transport; 2] = [
    Transport::WebSocket(Encoding::Json),
    Transport::WebSocket(Encoding::Protobuf),
];

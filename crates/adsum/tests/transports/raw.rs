//! A connection without our client: for what a client of ours never does.

use std::{net::SocketAddr, time::Duration};

use adsum_proto::client::{
    Encoding, WireFrame,
    frame::{ClientBody, ClientFrame, Hello, Problem, Ref, ServerBody, ServerFrame, Token, Watch},
    presence_client::PresenceClient,
    protobuf, v1,
};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};
use tonic::{Streaming, transport::Channel};

use crate::{
    stage::Wire,
    watcher::{LIMIT, topic},
};

/// A connection.
pub(crate) enum Raw {
    Ws(Box<WebSocketStream<TcpStream>>, Encoding),
    Grpc {
        outgoing: mpsc::Sender<v1::ClientFrame>,
        incoming: Box<Streaming<WireFrame>>,
    },
}

/// What came.
#[derive(Debug)]
pub(crate) enum Heard {
    Frame(ServerFrame),
    /// The end, by its number; 1000 for an end without one.
    Closed(u16),
}

/// A gRPC channel.
pub(crate) async fn channel(address: SocketAddr) -> Result<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    Ok(endpoint.connect().await?)
}

impl Raw {
    pub(crate) async fn open(wire: Wire, address: SocketAddr) -> Result<Self> {
        let encoding = match wire {
            Wire::Proto => Encoding::Protobuf,
            Wire::Grpc => return Self::grpc(address).await,
            _ => Encoding::Json,
        };
        Self::ws(address, encoding).await
    }

    pub(crate) async fn ws(address: SocketAddr, encoding: Encoding) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{address}/v1/ws").into_client_request()?;
        let protocol = HeaderValue::from_static(encoding.subprotocol());
        request
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
        let (socket, response) = client_async(request, stream).await?;
        let chosen = response.headers().get("sec-websocket-protocol");
        let chosen = chosen.and_then(|value| value.to_str().ok());
        ensure!(chosen == Some(encoding.subprotocol()), "chose {chosen:?}");
        Ok(Self::Ws(Box::new(socket), encoding))
    }

    async fn grpc(address: SocketAddr) -> Result<Self> {
        let (outgoing, frames) = mpsc::channel(64);
        let mut client = PresenceClient::new(channel(address).await?);
        let response = client.connect(ReceiverStream::new(frames)).await?;
        let incoming = Box::new(response.into_inner());
        Ok(Self::Grpc { outgoing, incoming })
    }

    /// Opens a connection and is welcomed.
    pub(crate) async fn welcomed(wire: Wire, address: SocketAddr, hello: Hello) -> Result<Self> {
        let mut raw = Self::open(wire, address).await?;
        raw.send("hello", ClientBody::Hello(Box::new(hello)))
            .await?;
        match raw.answer("hello").await? {
            ServerBody::Welcome(_) => Ok(raw),
            other => bail!("no welcome but {other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, r#ref: &str, body: ClientBody) -> Result<()> {
        let frame = ClientFrame {
            r#ref: Some(Ref::new(r#ref.to_owned()).map_err(|e| anyhow::anyhow!("{e:?}"))?),
            traceparent: None,
            body,
        };
        match self {
            Self::Ws(socket, encoding) => {
                let bytes = encoding.encode_client(&frame);
                socket.send(message(*encoding, bytes)?).await?;
            }
            Self::Grpc { outgoing, .. } => outgoing.send(protobuf::to_client(&frame)).await?,
        }
        Ok(())
    }

    /// Sends anything, on a WebSocket.
    pub(crate) async fn say(&mut self, message: Message) -> Result<()> {
        match self {
            Self::Ws(socket, _) => Ok(socket.send(message).await?),
            Self::Grpc { .. } => bail!("not on gRPC"),
        }
    }

    /// Sends anything, on gRPC.
    pub(crate) async fn say_proto(&mut self, frame: v1::ClientFrame) -> Result<()> {
        match self {
            Self::Ws(..) => bail!("not on a WebSocket"),
            Self::Grpc { outgoing, .. } => Ok(outgoing.send(frame).await?),
        }
    }

    /// What comes next.
    pub(crate) async fn hear(&mut self) -> Result<Heard> {
        timeout(LIMIT, self.next()).await.context("nothing came")?
    }

    /// What comes next within a while; else a beat, so that the session lives on.
    pub(crate) async fn hear_beating(&mut self, limit: Duration) -> Result<Option<Heard>> {
        if let Ok(heard) = timeout(limit, self.next()).await {
            return heard.map(Some);
        }
        self.send("beat", ClientBody::Heartbeat).await?;
        Ok(None)
    }

    async fn next(&mut self) -> Result<Heard> {
        match self {
            Self::Ws(socket, encoding) => loop {
                let bytes = match socket.next().await {
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Close(Some(frame)))) => {
                        return Ok(Heard::Closed(frame.code.into()));
                    }
                    Some(Ok(Message::Close(None))) => return Ok(Heard::Closed(1005)),
                    None | Some(Err(_)) => return Ok(Heard::Closed(1006)),
                    Some(Ok(_)) => continue,
                };
                let frame = encoding.decode_server(&bytes);
                let frame = frame.map_err(|e| anyhow::anyhow!("{e:?}: {bytes:?}"))?;
                return Ok(Heard::Frame(frame));
            },
            Self::Grpc { incoming, .. } => match incoming.message().await {
                Ok(Some(frame)) => {
                    let frame = frame.read().map_err(|e| anyhow::anyhow!("{e:?}"))?;
                    Ok(Heard::Frame(frame))
                }
                Ok(None) => Ok(Heard::Closed(1000)),
                Err(status) => {
                    let number = status.metadata().get("adsum-close");
                    let number = number.and_then(|n| n.to_str().ok()?.parse().ok());
                    Ok(Heard::Closed(number.unwrap_or(1006)))
                }
            },
        }
    }

    /// The answer to a frame; what else comes meanwhile is passed over.
    pub(crate) async fn answer(&mut self, to: &str) -> Result<ServerBody> {
        loop {
            match self.hear().await? {
                Heard::Frame(frame) => {
                    if frame.r#ref.as_ref().is_some_and(|r| r.as_str() == to) {
                        return Ok(frame.body);
                    }
                }
                Heard::Closed(number) => bail!("closed with {number} before {to} was answered"),
            }
        }
    }

    /// The next refusal, whatever it answers.
    pub(crate) async fn refusal(&mut self) -> Result<Problem> {
        loop {
            match self.hear().await? {
                Heard::Frame(ServerFrame {
                    body: ServerBody::Error(problem),
                    ..
                }) => return Ok(problem),
                Heard::Frame(_) => {}
                Heard::Closed(number) => bail!("closed with {number} without a word"),
            }
        }
    }

    /// The number it is closed with; what comes before is passed over.
    pub(crate) async fn closed(&mut self) -> Result<u16> {
        loop {
            if let Heard::Closed(number) = self.hear().await? {
                return Ok(number);
            }
        }
    }

    /// The connection stands: a beat is answered.
    pub(crate) async fn stands(&mut self) -> Result<()> {
        self.send("stands", ClientBody::Heartbeat).await?;
        let answer = self.answer("stands").await?;
        ensure!(answer == ServerBody::Ack, "{answer:?}");
        Ok(())
    }
}

fn message(encoding: Encoding, bytes: Bytes) -> Result<Message> {
    Ok(match encoding {
        Encoding::Json => Message::text(String::from_utf8(bytes.to_vec())?),
        Encoding::Protobuf => Message::binary(bytes),
    })
}

/// A hello with a token.
pub(crate) fn hello(token: &str) -> Hello {
    Hello {
        token: Some(Token::new(token)),
        ..Hello::default()
    }
}

/// A wish to watch.
pub(crate) fn watch(text: &str) -> Result<Watch> {
    Ok(Watch {
        topic: topic(text)?,
        mode: adsum_client::Mode::Members,
        digest: None,
    })
}

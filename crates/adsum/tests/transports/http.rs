//! HTTP as a third party would speak it, and Server-Sent Events.

use std::net::SocketAddr;

use adsum_proto::client::{frame::ServerFrame, json};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, sync::mpsc, time::timeout};

use crate::watcher::LIMIT;

/// A caller with a token, or without.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The code of a failure.
    pub(crate) fn code(&self) -> String {
        let json = self.json().unwrap_or_default();
        json["error"]["code"].as_str().unwrap_or("").to_owned()
    }

    /// Itself, if all is well.
    pub(crate) fn ok(self) -> Result<Self> {
        ensure!(self.status < 300, "{}: {}", self.status, self.text());
        Ok(self)
    }
}

impl Http {
    pub(crate) async fn get(&self, path: &str) -> Result<Reply> {
        self.call("GET", path, None).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Reply> {
        self.call("PUT", path, Some(body)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Reply> {
        self.call("POST", path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Reply> {
        self.call("DELETE", path, None).await
    }

    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        self.raw(method, path, body).await
    }

    /// Any body at all.
    pub(crate) async fn raw(&self, method: &str, path: &str, body: Option<Bytes>) -> Result<Reply> {
        let whole = async {
            let response = self.send(method, path, body).await?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok(Reply { status, body })
        };
        let reply = timeout(LIMIT, whole).await;
        reply.with_context(|| format!("no answer to {method} {path}"))?
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.unwrap_or_default()))?;
        Ok(sender.send_request(request).await?)
    }

    /// Opens an event source; what comes is parsed as a browser would, and its text kept.
    pub(crate) async fn events(&self, query: &str) -> Result<mpsc::UnboundedReceiver<Sse>> {
        let response = self
            .send("GET", &format!("/v1/events?{query}"), None)
            .await?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        if status != 200 {
            let body = body.collect().await?.to_bytes();
            let reply = Reply { status, body };
            bail!("{}: {}", reply.status, reply.code());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut rest = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                    let block: Vec<_> = rest.drain(..end + 2).collect();
                    let block = String::from_utf8_lossy(&block).into_owned();
                    if let Some(event) = Sse::parse(&block)
                        && sender.send(event).is_err()
                    {
                        return;
                    }
                }
            }
        });
        Ok(receiver)
    }
}

/// One event.
#[derive(Debug)]
pub(crate) struct Sse {
    pub(crate) name: String,
    pub(crate) data: String,
}

impl Sse {
    /// `None` for a comment.
    fn parse(block: &str) -> Option<Self> {
        let field = |name: &str| {
            let lines = block.lines().filter_map(|line| line.strip_prefix(name));
            let lines: Vec<_> = lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        };
        let data = field("data:")?;
        let name = field("event:").unwrap_or_else(|| "message".to_owned());
        Some(Self { name, data })
    }

    /// The frame in it, whose type must be its name.
    pub(crate) fn frame(&self) -> Result<ServerFrame> {
        let frame = json::decode_server(&self.data).map_err(|e| anyhow::anyhow!("{e:?}"))?;
        ensure!(
            frame.body.word() == self.name,
            "{} is {:?}",
            self.name,
            frame
        );
        Ok(frame)
    }
}

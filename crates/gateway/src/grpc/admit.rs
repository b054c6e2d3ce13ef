//! Who calls comes before what they say: nothing is read of somebody who may not come in.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use adsum_proto::client::Code;
use axum::{
    extract::{ConnectInfo, Request, State},
    http::{Extensions, HeaderValue},
    middleware::Next,
    response::Response,
};
use tonic::transport::server::TcpConnectInfo;

use super::{SERVICE, answer::status};
use crate::{Caller, EdgeError, auth::token_of, requests::Requests};

/// `OUT_OF_RANGE`, as it is spelled in a head.
const OUT_OF_RANGE: &[u8] = b"11";

/// Lets calls in, with their [`Caller`]. A connection may name its own in the first frame, so
/// `Connect` is let in by itself.
pub(super) async fn admit(
    State(requests): State<Requests>,
    mut request: Request,
    next: Next,
) -> Response {
    if !asks(request.uri().path()) {
        return next.run(request).await;
    }
    let caller = match caller(&requests, &request) {
        Ok(caller) => caller,
        Err(error) => return status(&error).into_http(),
    };
    request.extensions_mut().insert(caller);
    coded(next.run(request).await)
}

/// Whether it is a call of the service that needs a token.
fn asks(path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or_default();
    let method = path.strip_prefix(SERVICE).unwrap_or_default();
    method.starts_with('/') && method != "/Connect"
}

fn caller(requests: &Requests, request: &Request) -> Result<Caller, EdgeError> {
    let token = token_of(request.headers())?;
    requests.admit(Some(token), peer(request.extensions()))
}

/// The other end: of the port that all doors share, or of a server of tonic's own.
pub(super) fn peer(extensions: &Extensions) -> IpAddr {
    let shared = extensions.get::<ConnectInfo<SocketAddr>>();
    let tonic = || extensions.get::<TcpConnectInfo>()?.remote_addr();
    let peer = shared.map(|peer| peer.0).or_else(tonic);
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
}

/// The library measures messages, and knows nothing of our codes; what we refuse has one.
fn coded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let status = headers.get("grpc-status").map(HeaderValue::as_bytes);
    if status == Some(OUT_OF_RANGE) && !headers.contains_key("adsum-code") {
        let code = HeaderValue::from_static(Code::FrameTooLarge.as_str());
        headers.insert("adsum-code", code);
    }
    response
}

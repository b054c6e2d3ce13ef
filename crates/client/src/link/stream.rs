//! TCP, with TLS on it or not.

use std::{io, net::IpAddr, net::SocketAddr};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpSocket, TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

use super::Route;
use crate::Transport;

/// Something to read from and write to.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A byte stream to a server.
pub(super) type Stream = Box<dyn Duplex>;

/// Connects.
pub(super) async fn connect(route: &Route) -> io::Result<Stream> {
    let endpoint = &route.endpoint;
    let tcp = dial(&endpoint.host, endpoint.port, route.local).await?;
    // Frames are small and someone waits for each.
    tcp.set_nodelay(true)?;
    let Some(tls) = route.tls.as_ref().filter(|_| endpoint.secure) else {
        return Ok(Box::new(tcp));
    };
    let config = match route.transport {
        Transport::Grpc => &tls.http2,
        Transport::WebSocket(_) => &tls.http1,
    };
    let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(config.clone())
        .connect(name, tcp)
        .await?;
    Ok(Box::new(stream))
}

async fn dial(host: &str, port: u16, local: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(local) = local else {
        return TcpStream::connect((host, port)).await;
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host((host, port)).await? {
        if address.is_ipv4() != local.is_ipv4() {
            continue;
        }
        match dial_from(local, address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn dial_from(local: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match local {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(address).await
}

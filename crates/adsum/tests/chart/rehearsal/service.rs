//! A Service: one address, and connections to any of its endpoints. Those that stand stay where
//! they are, whatever becomes of the list.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

pub(crate) struct Service {
    address: SocketAddr,
    endpoints: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start(ip: Ipv4Addr) -> Result<Self> {
        let listener = TcpListener::bind((ip, 8080)).await?;
        let address = listener.local_addr()?;
        let endpoints: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let list = endpoints.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, any(&list)));
            }
        });
        Ok(Self {
            address,
            endpoints,
            task,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn add(&self, ip: Ipv4Addr) {
        self.endpoints.lock().unwrap().push((ip, 8080).into());
    }

    pub(crate) fn remove(&self, ip: Ipv4Addr) {
        self.endpoints.lock().unwrap().retain(|e| e.ip() != ip);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn any(list: &Mutex<Vec<SocketAddr>>) -> Option<SocketAddr> {
    let list = list.lock().unwrap();
    (!list.is_empty()).then(|| list[rand::random_range(0..list.len())])
}

/// Nobody to go to is a closed connection.
async fn carry(mut client: TcpStream, endpoint: Option<SocketAddr>) {
    let Some(endpoint) = endpoint else { return };
    if let Ok(mut server) = TcpStream::connect(endpoint).await {
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        // Either end may break; the other is told by the end of this.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}

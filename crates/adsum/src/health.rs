//! Asks a node how it is, as a probe or a person would.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the node is ready, and what it says about it.
///
/// # Errors
/// When nothing answers there.
pub(crate) async fn ask(address: SocketAddr) -> Result<(bool, String)> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
    let uri = format!("http://{address}/readyz")
        .parse()
        .context("no address")?;
    let hint = || format!("no node answers at {address}; its internal address is listen.internal");
    let response = tokio::time::timeout(PATIENCE, client.get(uri))
        .await
        .with_context(hint)?
        .with_context(hint)?;
    let ready = response.status().is_success();
    let body = response
        .into_body()
        .collect()
        .await
        .context("the answer broke off")?;
    Ok((
        ready,
        String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    ))
}

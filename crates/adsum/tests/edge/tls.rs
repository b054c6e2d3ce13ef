//! The public port with TLS: both protocols by ALPN, slow handshakes cut off, certificates replaced
//! while it runs.

use std::{path::Path, sync::Arc, time::Duration};

use adsum_tests::{Node, TestDir, eventually};
use anyhow::{Context, Result, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{LIMIT, adsum, closed, log, openssl, options};

/// A new self-signed certificate in `public.pem`; a copy to trust in `<name>.pem`.
fn certificate(folder: &Path, name: &str) -> Result<()> {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        folder,
        &format!(
            "req -x509 {key} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name} -addext \
             subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        ),
    )?;
    std::fs::copy(
        folder.join(format!("{name}.key")),
        folder.join("public.key"),
    )?;
    std::fs::copy(
        folder.join(format!("{name}.pem")),
        folder.join("public.pem"),
    )?;
    Ok(())
}

async fn start(files: &TestDir) -> Result<(Node, TestDir)> {
    certificate(files.path(), "first")?;
    let path = |name: &str| files.path().join(name).display().to_string();
    let options = options()
        .with("TLS__CERT", path("public.pem"))
        .with("TLS__KEY", path("public.key"))
        .with("TIMES__HANDSHAKE_MS", 500);
    crate::support::node(&options).await
}

async fn connect(
    node: &Node,
    trusted: &Path,
    protocol: Option<&[u8]>,
) -> Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    let stream = TcpStream::connect(node.public()).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    Ok(TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?)
}

async fn served(node: &Node, trusted: &Path) -> Result<()> {
    let mut stream = connect(node, trusted, Some(b"http/1.1")).await?;
    let ask = "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = Vec::new();
    // The other side may close without a TLS goodbye.
    let _ = stream.read_to_end(&mut answer).await;
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    Ok(())
}

#[tokio::test]
async fn both_protocols_and_slow_handshakes() -> Result<()> {
    let files = TestDir::new("certificates")?;
    let (node, _folder) = start(&files).await?;
    let first = files.path().join("first.pem");
    let mut slow = TcpStream::connect(node.public()).await?;
    slow.write_all(&[22, 3, 1]).await?;
    let mut plain = TcpStream::connect(node.public()).await?;
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
    served(&node, &first).await?;
    let stream = connect(&node, &first, Some(b"h2")).await?;
    ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice()));
    closed(&mut slow).await?;
    closed(&mut plain).await?;
    served(&node, &first).await?;

    // The commands get through as well.
    let (server, ca) = (
        format!("wss://{}", node.public()),
        first.display().to_string(),
    );
    let mut who = adsum(&["who", "lobby", "--server", &server, "--ca", &ca]);
    let said = tokio::task::spawn_blocking(move || who.output()).await??;
    let text = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_new_certificate_is_taken_and_a_broken_one_is_not() -> Result<()> {
    let files = TestDir::new("certificates")?;
    let (node, folder) = start(&files).await?;
    let path = |name: &str| files.path().join(name);
    let held = connect(&node, &path("first.pem"), None).await?;

    std::fs::write(path("public.pem"), "nothing")?;
    eventually("the broken one is refused", LIMIT, || async {
        ensure!(log(&folder).contains("new certificate refused, the old one stays"));
        Ok(())
    })
    .await?;
    served(&node, &path("first.pem")).await?;

    certificate(files.path(), "second")?;
    eventually("the second is taken", LIMIT, || async {
        served(&node, &path("second.pem")).await
    })
    .await?;
    ensure!(connect(&node, &path("first.pem"), None).await.is_err());
    // One line for what was broken, however often it was looked at.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let said = log(&folder)
        .matches("public.pem has no certificate")
        .count();
    ensure!(said == 1, "said {said} times");
    // Who was connected stays.
    let (mut tcp, _) = held.into_inner();
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_millis(100), tcp.read(&mut byte)).await;
    // Either nothing came, or what TLS 1.3 sends after a handshake.
    ensure!(read.map_or(true, |read| read.context("reset").is_ok_and(|n| n > 0)));
    Ok(())
}

//! A collector that is not ours: rotel, which prints what it gets.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use adsum_tests::{Ports, Process};
use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;

use crate::spans::Spans;

/// What `install.sh` says when there is no way to install.
const CANNOT: i32 = 3;

/// Where it is; nothing if it can't be had here.
static ROTEL: LazyLock<Result<Option<PathBuf>, String>> =
    LazyLock::new(|| find().map_err(|error| format!("{error:#}")));

fn find() -> Result<Option<PathBuf>> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/telemetry");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("collector");
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(scripts.join("install.sh"))
        .arg(folder)
        .output()?;
    let said = String::from_utf8_lossy(&stderr);
    match status.code() {
        Some(0) => Ok(Some(String::from_utf8(stdout)?.trim().into())),
        Some(CANNOT) => {
            println!("SKIPPED, no collector: {}", said.trim());
            Ok(None)
        }
        _ => bail!("install.sh: {said}"),
    }
}

/// A running collector.
pub(crate) struct Collector {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) process: Process,
    _ports: Ports,
}

impl Collector {
    /// Starts one that prints this signal; nothing if it can't be had here.
    pub(crate) async fn start(folder: &Path, signal: &str) -> Result<Option<Self>> {
        let rotel = ROTEL.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        let Some(rotel) = rotel else { return Ok(None) };
        let ports = Ports::default();
        let grpc = SocketAddr::from(([127, 0, 0, 1], ports.take()?));
        let http = SocketAddr::from(([127, 0, 0, 1], ports.take()?));
        let mut command = Command::new(rotel);
        command.args(["start", "--exporter", "blackhole"]);
        command.args(["--debug-log", signal, "--debug-log-verbosity", "detailed"]);
        command.args(["--otlp-grpc-endpoint", &grpc.to_string()]);
        command.args(["--otlp-http-endpoint", &http.to_string()]);
        let process = Process::start(folder, "collector", command)?;
        let collector = Self {
            grpc,
            http,
            process,
            _ports: ports,
        };
        collector.wait().await?;
        Ok(Some(collector))
    }

    /// Waits until it listens.
    pub(crate) async fn wait(&self) -> Result<()> {
        let listens = adsum_tests::eventually("it listens", adsum_tests::wait::LIMIT, || async {
            TcpStream::connect(self.http).await?;
            TcpStream::connect(self.grpc).await?;
            Ok(())
        });
        self.process.while_running(listens).await
    }

    /// All it has printed.
    pub(crate) fn said(&self) -> Result<String> {
        Ok(self.process.log_from(0).context("its log")?.0)
    }

    /// The spans that it got.
    pub(crate) fn spans(&self) -> Result<Spans> {
        Ok(Spans::read(&self.said()?))
    }
}

//! One etcd process, and the little of its JSON gateway that the harness needs.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http;
use crate::process::Process;
use crate::temp::TestDir;
use crate::wait::{LIMIT, eventually};

/// One member of an etcd cluster.
#[derive(Debug)]
pub struct EtcdMember {
    address: SocketAddr,
    data: PathBuf,
    process: Process,
}

impl EtcdMember {
    /// Where clients connect.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process: to kill, pause or restart.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until it serves linearizable reads, for which it needs a leader.
    pub async fn wait_ready(&self) -> Result<()> {
        let ready = eventually("etcd is healthy", LIMIT, || async {
            let health = self.request("GET", "/health", "").await?;
            ensure!(health["health"] == "true", "it says {health}");
            Ok(())
        });
        self.process.while_running(ready).await
    }

    /// One call of etcd's JSON gateway, for example `/v3/kv/range`; keys and values in base64.
    pub async fn call(&self, path: &str, body: &Value) -> Result<Value> {
        self.request("POST", path, &body.to_string()).await
    }

    pub(super) async fn leads(&self) -> Result<bool> {
        let status = self.call("/v3/maintenance/status", &json!({})).await?;
        Ok(status["leader"].is_string() && status["leader"] == status["header"]["member_id"])
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let (_, json) = http::request(self.address, method, path, body).await?;
        serde_json::from_str(&json).with_context(|| format!("etcd says {json}"))
    }

    pub(super) fn wipe(&self) -> Result<()> {
        match fs::remove_dir_all(&self.data) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.data.display()))
            }
            _ => Ok(()),
        }
    }
}

/// What a member must be told, and what the others must be told of it.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) client: u16,
    pub(super) peer: u16,
}

impl Plan {
    pub(super) fn as_peer(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer)
    }

    pub(super) fn start(
        &self,
        dir: &TestDir,
        peers: &str,
        heartbeat: Duration,
    ) -> Result<EtcdMember> {
        let ms = |time: Duration| time.as_millis().to_string();
        let data = dir.path().join(&self.name);
        let client = format!("http://127.0.0.1:{}", self.client);
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let mut command = Command::new("etcd");
        command
            .arg("--name")
            .arg(&self.name)
            .arg("--data-dir")
            .arg(&data);
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        command.args(["--initial-cluster", peers, "--initial-cluster-state", "new"]);
        command.args(["--heartbeat-interval", &ms(heartbeat)]);
        command.args(["--election-timeout", &ms(heartbeat * 10)]);
        command.args([
            "--logger",
            "zap",
            "--log-level",
            "warn",
            "--log-outputs",
            "stderr",
        ]);
        let process = Process::start(dir.path(), &self.name, command)?;
        Ok(EtcdMember {
            address: ([127, 0, 0, 1], self.client).into(),
            data,
            process,
        })
    }
}

//! What a kubelet does with a rendered pod, as far as processes need it: volumes, variables,
//! arguments, probes, the hook before the end, and the end.

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

use adsum_tests::{Process, TestDir, eventually};
use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{
    addresses::Addresses,
    tools::{Render, list, word},
};

/// Stands in for a cluster: names, addresses and disks.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) addresses: Addresses,
    dir: TestDir,
    /// What names mean.
    hosts: Mutex<BTreeMap<String, String>>,
}

impl Cluster {
    pub(crate) fn new(name: &str) -> Result<Self> {
        Ok(Self {
            addresses: Addresses::claim()?,
            dir: TestDir::new(name)?,
            hosts: Mutex::default(),
        })
    }

    /// From now on this name means this address.
    pub(crate) fn name(&self, host: &str, address: impl ToString) {
        let mut hosts = self.hosts.lock().unwrap();
        hosts.insert(host.to_owned(), address.to_string());
    }

    /// What was written to disk by pods and about them.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a container of a pod; disks are kept by the pod's name.
    pub(crate) fn start(
        &self,
        render: &Render,
        (name, spec): (&str, &Value),
        container: &str,
        ip: Ipv4Addr,
        extra: &[(&str, &str)],
    ) -> Result<Pod> {
        let plan = self.plan(render, (name, spec), container, ip)?;
        let mut command = plan.command(&plan.words("command")?, &plan.words("args")?)?;
        command.envs(extra.iter().copied());
        let process = Process::start(self.folder(), &format!("{name}.{container}"), command)?;
        Ok(Pod {
            name: name.to_owned(),
            ip,
            plan,
            process,
        })
    }

    /// What a container would be started with.
    pub(crate) fn plan(
        &self,
        render: &Render,
        (name, spec): (&str, &Value),
        container: &str,
        ip: Ipv4Addr,
    ) -> Result<Plan> {
        let containers = list(&spec["containers"]).chain(list(&spec["initContainers"]));
        let container = containers
            .into_iter()
            .find(|c| c["name"] == container)
            .with_context(|| format!("{name} has no container {container}"))?
            .clone();
        let mut rewrites: Vec<(String, String)> = vec![
            ("0.0.0.0".to_owned(), ip.to_string()),
            ("127.0.0.1".to_owned(), ip.to_string()),
            ("bind * -::*".to_owned(), format!("bind {ip}")),
            (
                "/usr/local/bin/adsum".to_owned(),
                env!("CARGO_BIN_EXE_adsum").to_owned(),
            ),
        ];
        rewrites.extend(self.hosts.lock().unwrap().clone());
        let disks = self.dir.folder(&format!("disks/{name}"))?;
        let mut volumes = Vec::new();
        for mount in list(&container["volumeMounts"]) {
            let volume = list(&spec["volumes"]).find(|v| v["name"] == mount["name"]);
            let named = word(&mount["name"]);
            // Containers of a pod share disks; of files each has its own, rewritten for it.
            let folder = match volume {
                Some(_) => disks.join(format!("{}.{named}", word(&container["name"]))),
                None => disks.join(named),
            };
            let at = word(&mount["mountPath"]).to_owned();
            rewrites.push((at, folder.display().to_string()));
            volumes.push((volume, folder));
        }
        // The longest first: a name may be the end of another.
        rewrites.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        let rewrite = Rewrite(rewrites);
        for (volume, folder) in volumes {
            fill(render, volume, &folder, &rewrite)?;
        }
        let env = env(render, &container, name, ip, &rewrite)?;
        Ok(Plan {
            container,
            grace: Duration::from_secs(
                spec["terminationGracePeriodSeconds"].as_u64().unwrap_or(30),
            ),
            env,
            rewrite,
        })
    }
}

/// What a container is started with.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) container: Value,
    pub(crate) grace: Duration,
    pub(crate) env: Vec<(String, String)>,
    rewrite: Rewrite,
}

impl Plan {
    /// A list of words of the container, with variables filled in, rewritten.
    pub(crate) fn words(&self, key: &str) -> Result<Vec<String>> {
        let words = list(&self.container[key]).map(word);
        Ok(words
            .map(|w| self.rewrite.apply(&expand(w, &self.env)))
            .collect())
    }

    pub(crate) fn command(&self, command: &[String], args: &[String]) -> Result<Command> {
        let [program, rest @ ..] = command else {
            anyhow::bail!("no command")
        };
        let mut made = Command::new(program);
        made.args(rest).args(args);
        // Settings of whoever runs the tests are not the pod's.
        for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("ADSUM_")) {
            made.env_remove(key);
        }
        made.envs(self.env.clone());
        Ok(made)
    }

    /// The number of a port of the container, by its name or as it is.
    fn port(&self, port: &Value) -> Result<u16> {
        let named = |p: &&Value| &p["name"] == port;
        let number = match list(&self.container["ports"]).find(named) {
            Some(found) => &found["containerPort"],
            None => port,
        };
        let number = number.as_u64().with_context(|| format!("no port {port}"))?;
        Ok(number.try_into()?)
    }
}

/// A running container.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) plan: Plan,
    pub(crate) process: Process,
}

impl Pod {
    /// Whether a probe of the container succeeds.
    pub(crate) async fn probe(&self, which: &str) -> Result<()> {
        let probe = &self.plan.container[which];
        if let Some(port) = probe["tcpSocket"].get("port") {
            TcpStream::connect((self.ip, self.plan.port(port)?)).await?;
            return Ok(());
        }
        let get = &probe["httpGet"];
        ensure!(get.is_object(), "{} has no {which}", self.name);
        let at = SocketAddr::from((self.ip, self.plan.port(&get["port"])?));
        let (status, body) = request(at, "GET", word(&get["path"]), "").await?;
        ensure!((200..400).contains(&status), "{which}: {status} {body}");
        Ok(())
    }

    /// Waits as a kubelet does: until started, then until ready.
    pub(crate) async fn ready(&self) -> Result<()> {
        let limit = Duration::from_secs(30);
        let ready = eventually("the pod is ready", limit, || async {
            if self.plan.container["startupProbe"].is_object() {
                self.probe("startupProbe").await?;
            }
            self.probe("readinessProbe").await
        });
        let ready = self.process.while_running(ready).await;
        ready.with_context(|| self.name.clone())
    }

    /// What one of its pages says.
    pub(crate) async fn get(&self, port: &str, path: &str) -> Result<String> {
        self.ask(port, "GET", path, "").await
    }

    /// One of its metrics, added up over its labels.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.get("internal", "/metrics").await?;
        let lines = text.lines().filter(|line| is_metric(line, name));
        let values: Vec<f64> = lines
            .map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse()?))
            .collect::<Result<_>>()?;
        ensure!(!values.is_empty(), "{} has no {name}", self.name);
        Ok(values.iter().sum())
    }

    /// What it answers to JSON.
    pub(crate) async fn post(&self, port: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.ask(port, "POST", path, &body.to_string()).await?;
        serde_json::from_str(&answer).with_context(|| format!("{path}: {answer}"))
    }

    async fn ask(&self, port: &str, method: &str, path: &str, body: &str) -> Result<String> {
        let at = SocketAddr::from((self.ip, self.plan.port(&Value::from(port))?));
        let (status, body) = request(at, method, path, body).await?;
        ensure!(status < 400, "{path}: {status} {body}");
        Ok(body)
    }

    /// Ends it as a kubelet does: the hook, SIGTERM, and SIGKILL after the grace. Answers how long
    /// it took.
    pub(crate) async fn terminate(&self) -> Result<Duration> {
        let begun = Instant::now();
        let hook = &self.plan.container["lifecycle"]["preStop"]["exec"]["command"];
        if hook.is_array() {
            let words = list(hook).map(|w| self.plan.rewrite.apply(word(w)));
            let command = self.plan.command(&words.collect::<Vec<_>>(), &[])?;
            let mut command = tokio::process::Command::from(command);
            let ran = timeout(self.plan.grace, command.kill_on_drop(true).output()).await;
            let ran = ran.with_context(|| format!("the hook of {} took too long", self.name))??;
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            ensure!(ran.status.success(), "the hook of {}: {said}", self.name);
        }
        let left = self.plan.grace.saturating_sub(begun.elapsed());
        self.process.stop_within(left).await?;
        let took = begun.elapsed();
        ensure!(took < self.plan.grace, "{} had to be killed", self.name);
        let log = self.process.log_tail(1_000_000);
        for trouble in ["panicked at", "told to stop twice", "did not stop within"] {
            ensure!(!log.contains(trouble), "{}: {trouble}\n{log}", self.name);
        }
        Ok(took)
    }

    /// Ports on which it listens.
    pub(crate) fn listens(&self) -> Result<Vec<u16>> {
        let pid = self.process.pid().context("it does not run")?;
        let mut sockets = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let link = fs::read_link(entry.path()).unwrap_or_default();
            let link = link.to_string_lossy();
            let inode = link
                .strip_prefix("socket:[")
                .and_then(|i| i.strip_suffix(']'));
            sockets.extend(inode.map(str::to_owned));
        }
        let mut ports = Vec::new();
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            for line in fs::read_to_string(table).unwrap_or_default().lines() {
                let fields: Vec<_> = line.split_whitespace().collect();
                // 0A is LISTEN.
                let listens = fields.get(3) == Some(&"0A");
                let ours = fields
                    .get(9)
                    .is_some_and(|i| sockets.iter().any(|s| s == i));
                let port = fields.get(1).and_then(|a| a.rsplit(':').next());
                if let (true, true, Some(port)) = (listens, ours, port) {
                    ports.push(u16::from_str_radix(port, 16)?);
                }
            }
        }
        ports.sort_unstable();
        ports.dedup();
        Ok(ports)
    }
}

/// Whether a line of `/metrics` is about this one, and not about one that begins alike.
pub(crate) fn is_metric(line: &str, name: &str) -> bool {
    let rest = line.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with([' ', '{']))
}

/// Texts that mean something else here.
#[derive(Debug)]
struct Rewrite(Vec<(String, String)>);

impl Rewrite {
    /// In one pass: what was put in is not looked at again.
    fn apply(&self, text: &str) -> String {
        let (mut rest, mut out) = (text, String::new());
        while let Some(first) = rest.chars().next() {
            match self
                .0
                .iter()
                .find(|(from, _)| rest.starts_with(from.as_str()))
            {
                Some((from, to)) => {
                    out.push_str(to);
                    rest = &rest[from.len()..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }
}

/// Writes a volume; one that is not named is a disk, which is kept.
fn fill(render: &Render, volume: Option<&Value>, folder: &Path, rewrite: &Rewrite) -> Result<()> {
    fs::create_dir_all(folder)?;
    let Some(volume) = volume else {
        return Ok(());
    };
    let (source, data) = match (&volume["configMap"], &volume["secret"]) {
        (Value::Object(map), _) => {
            let name = map.get("name").map(word).unwrap_or_default();
            (&volume["configMap"], config_data(render, name)?)
        }
        (_, Value::Object(secret)) => {
            let name = secret.get("secretName").map(word).unwrap_or_default();
            (&volume["secret"], secret_data(render, name)?)
        }
        _ => return Ok(()),
    };
    let rewritten = |value: &str| match volume["configMap"].is_object() {
        true => rewrite.apply(value),
        false => value.to_owned(),
    };
    let items: Vec<(String, PathBuf)> = match source["items"].as_array() {
        Some(items) => items
            .iter()
            .map(|i| (word(&i["key"]).to_owned(), folder.join(word(&i["path"]))))
            .collect(),
        None => data.keys().map(|k| (k.clone(), folder.join(k))).collect(),
    };
    for (key, path) in items {
        let value = data.get(&key);
        let value = value.with_context(|| format!("{} has no {key}", volume["name"]))?;
        fs::write(path, rewritten(value))?;
    }
    Ok(())
}

fn config_data(render: &Render, name: &str) -> Result<BTreeMap<String, String>> {
    let data = render.find("ConfigMap", name)?["data"].clone();
    Ok(serde_json::from_value(data)?)
}

pub(crate) fn secret_data(render: &Render, name: &str) -> Result<BTreeMap<String, String>> {
    let data = render.find("Secret", name)?["data"].clone();
    let data: BTreeMap<String, String> = serde_json::from_value(data)?;
    let decoded = data.into_iter().map(|(key, value)| {
        let bytes = BASE64_STANDARD.decode(value)?;
        Ok((key, String::from_utf8(bytes)?))
    });
    decoded.collect()
}

fn env(
    render: &Render,
    container: &Value,
    pod: &str,
    ip: Ipv4Addr,
    rewrite: &Rewrite,
) -> Result<Vec<(String, String)>> {
    let mut env: Vec<(String, String)> = Vec::new();
    for variable in list(&container["env"]) {
        let (name, from) = (word(&variable["name"]), &variable["valueFrom"]);
        let value = match (word(&from["fieldRef"]["fieldPath"]), &from["secretKeyRef"]) {
            ("metadata.name", _) => pod.to_owned(),
            ("status.podIP", _) => ip.to_string(),
            // A label that the pod does not have.
            (path, _) if path.starts_with("metadata.labels[") => String::new(),
            ("", Value::Object(secret)) => {
                let data = secret_data(render, secret.get("name").map(word).unwrap_or_default())?;
                let key = secret.get("key").map(word).unwrap_or_default();
                let value = data.get(key);
                value
                    .with_context(|| format!("no {key} for {name}"))?
                    .clone()
            }
            ("", _) => rewrite.apply(&expand(word(&variable["value"]), &env)),
            (path, _) => anyhow::bail!("{path} is not known here"),
        };
        env.push((name.to_owned(), value));
    }
    Ok(env)
}

/// `$(NAME)` of variables that are known; others stay, as in a cluster.
fn expand(text: &str, env: &[(String, String)]) -> String {
    let fill =
        |text: String, (name, value): &(String, String)| text.replace(&format!("$({name})"), value);
    env.iter().fold(text.to_owned(), fill)
}

/// HTTP 1.0, which ends an answer by closing the connection.
async fn request(at: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let ask = format!(
        "{method} {path} HTTP/1.0\r\nHost: {at}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(ask.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = timeout(Duration::from_secs(5), exchange).await;
    let answer = answer.with_context(|| format!("{at} is silent"))??;
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status.context("no status")?, body.to_owned()))
}

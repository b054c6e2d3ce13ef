//! A child process that never outlives its test, and that can be killed, stopped, paused and
//! started again.
//!
//! Drop kills it. For a test process that is killed itself, or that keeps the child in a static,
//! the kernel does: the child asks for SIGKILL at its parent's death (`setpriv --pdeathsig`).
//! What counts as the parent is the *thread* that forked, and test threads end early; so one
//! thread that lives as long as the process forks all children.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{sleep, timeout};

use crate::wait::POLL;

/// How long a process may take to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A child process, its output in `<name>.log`.
#[derive(Debug)]
pub struct Process {
    name: String,
    command: Command,
    log: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    child: Option<Child>,
    paused: bool,
}

impl Process {
    /// Starts `command`: its program, arguments, environment and working folder count, its
    /// standard streams go to `<folder>/<name>.log`.
    pub fn start(folder: &Path, name: &str, command: Command) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let process = Self {
            name: name.to_owned(),
            command,
            log,
            state: Mutex::default(),
        };
        process.launch()?;
        Ok(process)
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.state().running().map(|child| child.id())
    }

    /// Whether it has been started and has not ended; a paused process runs.
    pub fn is_running(&self) -> bool {
        self.state().running().is_some()
    }

    /// Whether it was paused and not resumed.
    pub fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// Whether it can answer: it runs, and is not paused.
    pub fn is_live(&self) -> bool {
        self.is_running() && !self.is_paused()
    }

    /// SIGKILL. On return the process is gone and its ports are free.
    pub fn kill(&self) -> Result<()> {
        let mut state = self.state();
        if let Some(child) = state.running() {
            signal_group(child, Signal::KILL)?;
        }
        if let Some(mut child) = state.child.take() {
            child
                .wait()
                .with_context(|| format!("wait for {}", self.name))?;
        }
        state.paused = false;
        Ok(())
    }

    /// SIGTERM, and SIGKILL when that has not ended it within five seconds.
    pub async fn stop(&self) -> Result<()> {
        self.stop_within(STOP_LIMIT).await
    }

    /// SIGTERM, and SIGKILL when that has not ended it within `limit`.
    pub async fn stop_within(&self, limit: Duration) -> Result<()> {
        // Errors mean that it has ended meanwhile. A paused process takes SIGTERM once resumed.
        let _ = self.signal(Signal::TERM).and_then(|()| self.resume());
        let _ = timeout(limit, self.ended()).await;
        self.kill()
    }

    /// SIGSTOP: it keeps its connections and its memory, and answers nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        self.state().paused = true;
        Ok(())
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)?;
        self.state().paused = false;
        Ok(())
    }

    /// Starts it again with the same command, after a [`stop`](Self::stop) if it still runs.
    pub async fn restart(&self) -> Result<()> {
        self.stop().await?;
        self.launch()
    }

    /// Returns when it has ended, by itself or by our hand.
    pub async fn ended(&self) {
        while self.is_running() {
            sleep(POLL).await;
        }
    }

    /// Awaits `future`, and gives up at once, with the end of the log, when the process ends.
    pub async fn while_running<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            result = future => result.with_context(|| self.obituary("runs")),
            () = self.ended() => bail!(self.obituary("has ended")),
        }
    }

    /// The last `lines` lines of its output.
    pub fn log_tail(&self, lines: usize) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Its whole lines of output from this byte on, and where to go on.
    pub fn log_from(&self, offset: u64) -> Result<(String, u64)> {
        let mut file = File::open(&self.log).context("open a log")?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        Ok((text, offset + end as u64))
    }

    fn obituary(&self, condition: &str) -> String {
        format!(
            "{} {condition}; its last words:\n{}",
            self.name,
            self.log_tail(10)
        )
    }

    fn launch(&self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("open {}", self.log.display()))?;
        let child = guarded(&self.command, log)
            .and_then(spawn)
            .with_context(|| format!("start {}", self.name))?;
        self.state().child = Some(child);
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut state = self.state();
        let child = state
            .running()
            .with_context(|| format!("{} does not run", self.name))?;
        signal_group(child, signal)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl State {
    /// The child if it still runs. Asked before every signal: the id of a child that was
    /// reaped may belong to a stranger.
    fn running(&mut self) -> Option<&Child> {
        let child = self.child.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then_some(&*child)
    }
}

/// Every child leads a process group, so that a signal reaches what it has forked too.
fn signal_group(child: &Child, signal: Signal) -> Result<()> {
    kill_process_group(Pid::from_child(child), signal)
        .with_context(|| format!("send {signal:?} to {}", child.id()))
}

/// The command behind `setpriv`, and behind a check for the parent having died before the
/// kernel knew that we care.
fn guarded(command: &Command, log: File) -> io::Result<Command> {
    const IF_PARENT_LIVES: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;
    let mut guarded = Command::new("setpriv");
    guarded.args(["--pdeathsig", "KILL", "--", "sh", "-c", IF_PARENT_LIVES]);
    guarded.arg(std::process::id().to_string());
    guarded.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(key, value),
            None => guarded.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        guarded.current_dir(folder);
    }
    guarded
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(guarded)
}

type SpawnRequest = (Command, SyncSender<io::Result<Child>>);

fn spawn(command: Command) -> io::Result<Child> {
    static FORKER: LazyLock<Sender<SpawnRequest>> = LazyLock::new(|| {
        let (requests, inbox) = mpsc::channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        requests
    });
    let (reply, answer) = mpsc::sync_channel(1);
    FORKER.send((command, reply)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}

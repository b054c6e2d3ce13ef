//! Child processes, and what becomes of them when their owner is gone.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use adsum_local::{EtcdCluster, Process, TestDir, eventually, shared};
use anyhow::{Context, Result, anyhow, ensure};
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(20);

/// Set for [`owner`]: where to write the ids of its children, and whether to end by itself.
const REPORT: &str = "ADSUM_OWNER_REPORT";
const LEAVES: &str = "ADSUM_OWNER_LEAVES";

fn shell(dir: &TestDir, script: &str) -> Result<Process> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start(dir.path(), "shell", command)
}

/// A process that nobody has reaped yet is dead all the same.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

fn pid(process: &Process) -> Result<u32> {
    process.pid().context("it does not run")
}

async fn wait_log(process: &Process, text: &str) -> Result<()> {
    eventually(text, LIMIT, || async {
        ensure!(
            process.log_tail(1).contains(text),
            "the log ends with {}",
            process.log_tail(1)
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_paused_process_is_killed_on_drop() -> Result<()> {
    let dir = TestDir::new("pause")?;
    let process = shell(&dir, "echo ready; sleep 1000")?;
    wait_log(&process, "ready").await?;
    let pid = pid(&process)?;
    process.pause()?;
    ensure!(process.is_running() && process.is_paused() && is_alive(pid));
    drop(process);
    ensure!(!is_alive(pid));
    Ok(())
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed_at_the_deadline() -> Result<()> {
    let dir = TestDir::new("stop")?;
    let process = shell(&dir, "trap '' TERM; echo ready; while :; do sleep 1; done")?;
    wait_log(&process, "ready").await?;
    process.stop_within(Duration::from_millis(100)).await?;
    ensure!(!process.is_running());
    Ok(())
}

#[tokio::test]
async fn a_process_restarts_under_a_new_id_and_appends_to_its_log() -> Result<()> {
    let dir = TestDir::new("restart")?;
    let process = shell(
        &dir,
        "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.01; done",
    )?;
    wait_log(&process, "ready").await?;
    let first = pid(&process)?;
    process.pause()?;
    process.restart().await?;
    ensure!(pid(&process)? != first && !process.is_paused());
    eventually("the second start", LIMIT, || async {
        ensure!(
            process.log_tail(2) == "bye\nready",
            "{}",
            process.log_tail(9)
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn waiting_for_a_process_that_has_ended_fails_with_its_last_words() -> Result<()> {
    let dir = TestDir::new("ended")?;
    let process = shell(&dir, "echo no such thing; exit 3")?;
    let waited = process
        .while_running(std::future::pending::<Result<()>>())
        .await;
    let error = waited.err().context("it waited for nothing")?;
    ensure!(error.to_string().contains("no such thing"), "{error}");
    Ok(())
}

#[test]
fn a_shared_fixture_outlives_the_test_that_started_it() -> Result<()> {
    let ask = || -> Result<(String, Option<u32>)> {
        Runtime::new()?.block_on(async {
            let etcd = shared::etcd().await?;
            etcd.wait_ready().await?;
            let member = etcd.member(0)?;
            Ok((member.endpoint(), member.process().pid()))
        })
    };
    let in_a_thread = || {
        thread::spawn(ask)
            .join()
            .map_err(|_| anyhow!("the thread panicked"))?
    };
    let (first, second) = (in_a_thread()?, in_a_thread()?);
    ensure!(first == second && first.1.is_some());
    Ok(())
}

#[tokio::test]
async fn children_die_when_the_owner_is_killed() -> Result<()> {
    let dir = TestDir::new("killed")?;
    let owner = start_owner(&dir, false)?;
    let children = children_of_owner(&dir, &owner).await?;
    ensure!(children.iter().all(|child| is_alive(*child)));
    owner.kill()?;
    wait_dead(&children).await
}

#[tokio::test]
async fn children_die_when_the_owner_ends_without_dropping_them() -> Result<()> {
    let dir = TestDir::new("left")?;
    let owner = start_owner(&dir, true)?;
    let children = children_of_owner(&dir, &owner).await?;
    wait_dead(&children).await
}

fn start_owner(dir: &TestDir, leaves: bool) -> Result<Process> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", "processes::owner", "--ignored", "--nocapture"]);
    command.env(REPORT, dir.path().join("report"));
    if leaves {
        command.env(LEAVES, "1");
    }
    Process::start(dir.path(), "owner", command)
}

async fn children_of_owner(dir: &TestDir, owner: &Process) -> Result<Vec<u32>> {
    let report = dir.path().join("report");
    let read = || async {
        let ids = fs::read_to_string(&report)?;
        ids.split_whitespace()
            .map(|id| Ok(id.parse()?))
            .collect::<Result<Vec<u32>>>()
    };
    let children = eventually("the owner's report", LIMIT, read).await;
    let children = children.with_context(|| owner.log_tail(20))?;
    ensure!(children.len() == 3);
    Ok(children)
}

async fn wait_dead(children: &[u32]) -> Result<()> {
    eventually("the children are dead", LIMIT, || async {
        ensure!(
            !children.iter().any(|child| is_alive(*child)),
            "one of {children:?} is alive"
        );
        Ok(())
    })
    .await
}

/// Not a test but a process for the tests above: it starts children, one of them paused, and
/// never drops them.
#[tokio::test]
#[ignore = "started by the tests that kill it"]
async fn owner() -> Result<()> {
    let Some(report) = env::var_os(REPORT).map(PathBuf::from) else {
        return Ok(());
    };
    let etcd = Box::leak(Box::new(EtcdCluster::start(3).await?));
    etcd.member(2)?.process().pause()?;
    let ids: Vec<String> = etcd
        .members()
        .iter()
        .filter_map(|m| m.process().pid())
        .map(|id| id.to_string())
        .collect();
    // Renamed into place, so that nobody reads half of it.
    let draft = report.with_extension("draft");
    fs::write(&draft, ids.join(" "))?;
    fs::rename(draft, report)?;
    if env::var_os(LEAVES).is_none() {
        std::future::pending::<()>().await;
    }
    Ok(())
}

//! A dispatcher that is alive and reachable, but hears nothing from Redis: its packets to and
//! from Redis are dropped, by the group that it runs as and by the ports that it has open.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration};

use adsum_tests::Node;
use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use crate::{
    feed::{Crowd, dispatchers, ms},
    feed_faults::{POLL, Stage},
    world::World,
};

/// The group of the node whose packets are dropped; nobody else's.
const GROUP: u32 = 54_321;

/// Rules of the packet filter, which go with this guard.
#[derive(Default)]
struct Deafness(Vec<Vec<String>>);

impl Deafness {
    fn drop_packets(&mut self, rule: &str) -> Result<()> {
        let rule: Vec<_> = rule.split_whitespace().map(str::to_owned).collect();
        filter("-A", &rule)?;
        self.0.push(rule);
        Ok(())
    }
}

impl Drop for Deafness {
    fn drop(&mut self) {
        for rule in &self.0 {
            let _ = filter("-D", rule);
        }
    }
}

fn filter(what: &str, rule: &[String]) -> Result<()> {
    let mut command = Command::new("iptables");
    command.args(["-w", "5", what, "OUTPUT"]).args(rule);
    let done = command.args(["-j", "DROP"]).output().context("iptables")?;
    let says = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "iptables {what} {rule:?}: {says}");
    Ok(())
}

/// A program that becomes the node, in a group of its own. The kernel forgets at a change of
/// groups whose death the process wants to follow, so it says so again.
fn wrapper(folder: &Path) -> Result<std::path::PathBuf> {
    let path = folder.join("grouped");
    let binary = env!("CARGO_BIN_EXE_adsum");
    let script = format!(
        "#!/bin/sh\nexec setpriv --regid {GROUP} --clear-groups --pdeathsig KILL {binary} \"$@\"\n"
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A process's connections to these ports: the local port of each, and the other one.
fn connected(pid: u32, to: &[u16]) -> Result<Vec<(u16, u16)>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may close while we look.
        let Ok(link) = fs::read_link(entry?.path()) else {
            continue;
        };
        let link = link.to_string_lossy().into_owned();
        let inode = link
            .strip_prefix("socket:[")
            .and_then(|l| l.strip_suffix(']'));
        inodes.extend(inode.map(str::to_owned));
    }
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let table = fs::read_to_string("/proc/net/tcp")?;
    let ours = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (local, remote) = (port(columns.get(1)?)?, port(columns.get(2)?)?);
        let inode = (*columns.get(9)?).to_owned();
        (to.contains(&remote) && inodes.contains(&inode)).then_some((local, remote))
    });
    Ok(ours.collect())
}

fn make_deaf(node: &Node, redis: &[u16]) -> Result<Deafness> {
    let mut rules = Deafness::default();
    for port in redis {
        rules.drop_packets(&format!(
            "-p tcp --dport {port} -m owner --gid-owner {GROUP}"
        ))?;
    }
    let pid = node.process().pid().context("it does not run")?;
    let lines = connected(pid, redis)?;
    ensure!(!lines.is_empty(), "it has no connection to Redis");
    for (local, remote) in lines {
        // What Redis sends, on just this connection: others may have the same port.
        rules.drop_packets(&format!("-p tcp --sport {remote} --dport {local} -o lo"))?;
    }
    Ok(rules)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deaf_dispatcher_is_left() -> Result<()> {
    let mut probe = Deafness::default();
    if let Err(error) =
        probe.drop_packets(&format!("-p tcp --dport 1 -m owner --gid-owner {GROUP}"))
    {
        println!("skipped, the packet filter can't be used here: {error:#}");
        return Ok(());
    }
    drop(probe);
    let world = World::new("deaf").await?;
    let mut nodes = dispatchers(&world, 2, &[POLL]).await?;
    let mut options = world.options("deaf", "dispatcher,reaper");
    options = options.with(POLL.0, POLL.1);
    options.binary = wrapper(world.dir.path())?;
    nodes.insert(0, Node::start(world.dir.path(), &options).await?);
    let ports: Vec<_> = world.redis.nodes().iter().map(|n| n.port()).collect();
    let mut stage = Stage::over(world, nodes).await?;

    let load = stage.load(2400, 200)?;
    let loaded = tokio::spawn(Crowd::done(load));
    sleep(ms(1500)).await;
    let (before, deaf_at) = (stage.moves(), Instant::now());
    let rules = make_deaf(&stage.nodes[0], &ports)?;
    sleep(ms(4000)).await;
    let (moved, healed_at) = (stage.moves() - before, Instant::now());
    ensure!(stage.nodes[0].process().is_running(), "it did not survive");
    drop(rules);
    loaded.await??;
    let people = stage.agree().await?;
    let deaf = stage.delays_between(deaf_at - ms(500), healed_at);
    println!("deaf for 4 s: {moved} moves of a shard, {people} people; {deaf}");
    println!(
        "hears again: {}",
        stage.delays_between(healed_at, Instant::now())
    );
    ensure!(moved > 0, "nobody left");
    let longest = deaf.longest();
    ensure!(longest < Duration::from_secs(3), "a gap of {longest:?}");
    stage.end().await
}

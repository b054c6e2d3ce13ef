//! Cuts between one process and the ports it connects to, one way or both, by the kernel's packet
//! filter. Every node runs in a group of its own; a connection is marked with the group of who
//! began it, and packets of a mark are dropped by port and by direction. So both sides believe
//! that the other is there, as with a real broken network.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};

/// The first group; far above those of real users.
const FIRST_GROUP: u32 = 54_400;
/// Where the chains are.
const TABLES: [&str; 2] = ["filter", "mangle"];

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// What the node sends.
    Out,
    /// What the node is sent.
    In,
    /// Both.
    Both,
}

/// The rules of one run, in chains of its own that go with this, or with the process.
#[derive(Debug)]
pub struct Filter {
    chain: String,
    guard: Mutex<Child>,
}

/// Removes a chain when this process is gone, however it ends: what is static is never dropped, and
/// rules that stay behind cost every packet of the machine. It waits for the end of its input.
fn guard(chain: &str) -> Result<Child> {
    let removal: Vec<_> = removal(chain)
        .map(|arguments| format!("iptables -w 5 {arguments}"))
        .collect();
    let script = format!("cat; {}", removal.join("; "));
    Command::new("setsid")
        .args(["sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("setsid")
}

fn iptables(arguments: &str) -> Result<()> {
    let words = arguments.split_whitespace();
    let done = Command::new("iptables")
        .args(["-w", "5"])
        .args(words)
        .output();
    let done = done.context("iptables")?;
    let says = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "iptables {arguments}: {says}");
    Ok(())
}

impl Filter {
    /// Prepares the chains; an error where the packet filter can't be used.
    pub fn new() -> Result<Arc<Self>> {
        sweep();
        let chain = format!("chaos-{}", std::process::id());
        let filter = Self {
            guard: Mutex::new(guard(&chain)?),
            chain,
        };
        for table in TABLES {
            iptables(&format!("-t {table} -N {}", filter.chain))?;
            iptables(&format!("-t {table} -I OUTPUT -p tcp -j {}", filter.chain))?;
        }
        Ok(Arc::new(filter))
    }

    /// Marks the connections that a group begins.
    fn mark(&self, group: u32) -> Result<()> {
        iptables(&format!(
            "-t mangle -A {} -m conntrack --ctstate NEW -m owner --gid-owner {group} \
             -j CONNMARK --set-mark {group}",
            self.chain
        ))
    }

    /// A program that becomes `binary`, in a group of its own. The kernel forgets at a change of
    /// groups whose death the process wants to follow, so it says so again.
    pub fn wrapper(&self, folder: &Path, binary: &Path, number: u32) -> Result<(PathBuf, u32)> {
        let group = FIRST_GROUP + number;
        self.mark(group)?;
        let path = folder.join(format!("grouped-{group}"));
        let script = format!(
            "#!/bin/sh\nexec setpriv --regid {group} --clear-groups --pdeathsig KILL {} \"$@\"\n",
            binary.display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok((path, group))
    }

    /// Loses packets between a group and these ports until the cut is dropped.
    pub fn cut(self: &Arc<Self>, group: u32, ports: &[u16], way: Way) -> Result<Cut> {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(",");
        let mut cut = Cut {
            filter: self.clone(),
            rules: Vec::new(),
        };
        let mut lose = |side: &str| {
            let rule =
                format!("-p tcp -m connmark --mark {group} -m multiport --{side} {ports} -j DROP");
            iptables(&format!("-A {} {rule}", self.chain))?;
            cut.rules.push(rule);
            anyhow::Ok(())
        };
        if way != Way::In {
            lose("dports")?;
        }
        if way != Way::Out {
            lose("sports")?;
        }
        Ok(cut)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // First, so that it does not remove the chain of a successor with the same name.
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = guard.kill();
        let _ = guard.wait();
        remove(&self.chain);
    }
}

/// A cut, healed when this is dropped.
#[derive(Debug)]
pub struct Cut {
    filter: Arc<Filter>,
    rules: Vec<String>,
}

impl Drop for Cut {
    fn drop(&mut self) {
        for rule in &self.rules {
            let _ = iptables(&format!("-D {} {rule}", self.filter.chain));
        }
    }
}

/// What is to be said to remove a chain.
fn removal(chain: &str) -> impl Iterator<Item = String> {
    TABLES.into_iter().flat_map(move |table| {
        [
            format!("-t {table} -D OUTPUT -p tcp -j {chain}"),
            format!("-t {table} -F {chain}"),
            format!("-t {table} -X {chain}"),
        ]
    })
}

fn remove(chain: &str) {
    for arguments in removal(chain) {
        let _ = iptables(&arguments);
    }
}

/// Removes the chains of runs that were killed.
fn sweep() {
    let Ok(listed) = Command::new("iptables")
        .args(["-w", "5", "-t", "mangle", "-S"])
        .output()
    else {
        return;
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for line in listed.lines() {
        let Some(chain) = line.strip_prefix("-N ").filter(|c| c.starts_with("chaos-")) else {
            continue;
        };
        let pid = chain.trim_start_matches("chaos-");
        if !Path::new("/proc").join(pid).exists() {
            remove(chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use adsum_tests::eventually;
    use anyhow::ensure;

    use super::*;

    #[tokio::test]
    async fn a_chain_goes_when_its_process_does() -> Result<()> {
        let chain = format!("chaos-guarded-{}", std::process::id() % 10_000);
        if iptables(&format!("-t mangle -N {chain}")).is_err() {
            // No packet filter here, so nothing stays behind.
            return Ok(());
        }
        let mut guard = guard(&chain)?;
        // As it is closed when this process ends.
        drop(guard.stdin.take());
        eventually("the chain is gone", Duration::from_secs(10), || async {
            ensure!(iptables(&format!("-t mangle -L {chain}")).is_err());
            Ok(())
        })
        .await?;
        guard.wait()?;
        Ok(())
    }
}

//! Cuts between one process and the ports it connects to, one way or both, by the kernel's packet
//! filter. Every node runs in a group of its own; a connection is marked with the group of who
//! began it, and packets of a mark are dropped by port and by direction. So both sides believe
//! that the other is there, as with a real broken network.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};

/// The first group; far above those of real users.
const FIRST_GROUP: u32 = 54_400;

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

/// The rules of one run, in chains of its own that go with this.
#[derive(Debug)]
pub struct Filter {
    chain: String,
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
        let filter = Self {
            chain: format!("chaos-{}", std::process::id()),
        };
        for table in ["filter", "mangle"] {
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

fn remove(chain: &str) {
    for table in ["filter", "mangle"] {
        let _ = iptables(&format!("-t {table} -D OUTPUT -p tcp -j {chain}"));
        let _ = iptables(&format!("-t {table} -F {chain}"));
        let _ = iptables(&format!("-t {table} -X {chain}"));
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

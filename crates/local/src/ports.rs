//! Free ports that stay ours. A port found by binding port 0 is anybody's again before the
//! server has started; these come from blocks below the ephemeral range, one locked file per
//! block, so that test processes that run in parallel never share one.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::lock::FileLock;

const FIRST: u16 = 20_000;
const BLOCK: u16 = 16;
/// The blocks end at 32,000: Linux gives out ephemeral ports from 32,768.
const BLOCKS: u16 = 750;

/// Ports of one fixture, claimed block by block as they are taken and held until it is dropped.
#[derive(Debug, Default)]
pub struct Ports {
    claimed: Mutex<Claimed>,
}

#[derive(Debug, Default)]
struct Claimed {
    blocks: Vec<FileLock>,
    unused: Vec<u16>,
}

impl Ports {
    /// The next port on which nothing listens.
    pub fn take(&self) -> Result<u16> {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match claimed.unused.pop() {
                Some(port) if is_quiet(port) => return Ok(port),
                Some(_) => {}
                None => claimed.claim_block()?,
            }
        }
    }
}

impl Claimed {
    /// Starts at a random block: a client of a fixture that has ended may still be dialling its
    /// ports, and must not find the next fixture there.
    fn claim_block(&mut self) -> Result<()> {
        let start = rand::random_range(0..BLOCKS);
        for step in 0..BLOCKS {
            let first = FIRST + (start + step) % BLOCKS * BLOCK;
            if let Some(lock) = FileLock::try_claim("ports", first)? {
                self.blocks.push(lock);
                self.unused.extend((first..first + BLOCK).rev());
                return Ok(());
            }
        }
        None.context("every block of test ports is taken")
    }
}

/// Whether a server could listen here; programs that know nothing of our locks use ports too.
fn is_quiet(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn two_holders_never_get_the_same_port() -> Result<()> {
        let (one, two) = (Ports::default(), Ports::default());
        let mut seen = HashSet::new();
        for _ in 0..BLOCK * 2 {
            assert!(seen.insert(one.take()?));
            assert!(seen.insert(two.take()?));
        }
        Ok(())
    }

    #[test]
    fn a_port_in_use_is_skipped() -> Result<()> {
        let ports = Ports::default();
        let taken = ports.take()?;
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken + 1))?;
        assert_ne!(ports.take()?, taken + 1);
        Ok(())
    }
}

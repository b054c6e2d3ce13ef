//! Addresses for pods: each has one of its own on the loopback device, so that all can use the
//! ports that the chart says.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use anyhow::{Context, Result};

/// Who listens here has the block; nothing else does.
const CLAIM: u16 = 19_999;

/// A block of addresses that no other test uses.
#[derive(Debug)]
pub(crate) struct Addresses {
    block: [u8; 2],
    next: AtomicU8,
    _claim: TcpListener,
}

impl Addresses {
    pub(crate) fn claim() -> Result<Self> {
        for _ in 0..100 {
            // Never 127.0: that is where everybody else is.
            let block = [rand::random_range(2..=250), rand::random_range(0..=250)];
            let at = Ipv4Addr::new(127, block[0], block[1], 254);
            if let Ok(claim) = TcpListener::bind((at, CLAIM)) {
                return Ok(Self {
                    block,
                    next: AtomicU8::new(1),
                    _claim: claim,
                });
            }
        }
        None.context("every block of addresses is taken")
    }

    pub(crate) fn take(&self) -> Result<Ipv4Addr> {
        let last = self.next.fetch_add(1, Relaxed);
        anyhow::ensure!(last < 250, "the block has no more addresses");
        Ok(Ipv4Addr::new(127, self.block[0], self.block[1], last))
    }
}

//! Names to addresses, not too often. When no node of a cluster can be reached, the crate's
//! client asks for the slots again and again without a pause, and would keep a core busy until
//! one is back; every such round begins here.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{RedisFuture, io::AsyncDNSResolver};
use tokio::time::{Instant, sleep_until};

/// On average between two connections to one node.
const APART: Duration = Duration::from_millis(10);
/// How far connections may come ahead of that: the client does nothing else while it waits, so
/// the few that a failover takes must not.
const AHEAD: Duration = Duration::from_millis(500);
/// Nodes that are remembered; beyond that all are forgotten, which costs nothing but a pause.
const NODES: usize = 1024;

/// Resolves names, and lets some time pass between two connections to one node.
#[derive(Debug, Default)]
pub(super) struct PacedResolver {
    next: Mutex<HashMap<(String, u16), Instant>>,
}

impl PacedResolver {
    /// When to connect.
    fn turn(&self, host: &str, port: u16) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.len() >= NODES {
            next.clear();
        }
        let now = Instant::now();
        let regular = next.entry((host.to_owned(), port)).or_insert(now);
        let turn = now.max(regular.checked_sub(AHEAD).unwrap_or(now));
        *regular = now.max(*regular) + APART;
        turn
    }
}

type Addresses<'a> = Box<dyn Iterator<Item = SocketAddr> + Send + 'a>;

impl AsyncDNSResolver for PacedResolver {
    fn resolve<'a, 'b: 'a>(&'a self, host: &'b str, port: u16) -> RedisFuture<'a, Addresses<'a>> {
        Box::pin(async move {
            sleep_until(self.turn(host, port)).await;
            let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addresses<'a>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_waits_for_its_turn_and_others_do_not() {
        let resolver = PacedResolver::default();
        for _ in 0..200 {
            resolver.turn("a", 1);
        }
        // 200 connections take 2 s, less the half second that they may be ahead.
        let wait = |port| {
            resolver
                .turn("a", port)
                .saturating_duration_since(Instant::now())
        };
        assert!(wait(1) > Duration::from_secs(1));
        assert_eq!(wait(2), Duration::ZERO);
    }
}

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

/// Between two connections to one node. Short, because the client does nothing else meanwhile.
const APART: Duration = Duration::from_millis(20);
/// Nodes that are remembered; beyond that all are forgotten, which costs nothing but a pause.
const NODES: usize = 1024;

/// Resolves names, and lets some time pass between two connections to one node.
#[derive(Debug, Default)]
pub(super) struct PacedResolver {
    next: Mutex<HashMap<(String, u16), Instant>>,
}

impl PacedResolver {
    /// When to connect; the one after that comes later.
    fn turn(&self, host: &str, port: u16) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.len() >= NODES {
            next.clear();
        }
        let now = Instant::now();
        let turn = next
            .get(&(host.to_owned(), port))
            .map_or(now, |at| now.max(*at));
        next.insert((host.to_owned(), port), turn + APART);
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

    #[tokio::test(start_paused = true)]
    async fn a_node_waits_for_its_turn_and_others_do_not() {
        let resolver = PacedResolver::default();
        let now = Instant::now();
        assert_eq!(resolver.turn("a", 1), now);
        assert_eq!(resolver.turn("a", 1), now + APART);
        assert_eq!(resolver.turn("a", 2), now);
        tokio::time::advance(3 * APART).await;
        assert_eq!(resolver.turn("a", 1), now + 3 * APART);
    }
}

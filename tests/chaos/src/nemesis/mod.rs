//! The nemesis: what it can break, how it chooses, and how it breaks and mends.

mod edge;
pub mod kind;
mod plan;
mod registry;
mod store;

use std::sync::Arc;

use adsum_tests::history::{Event, Fault};
use anyhow::{Context, Result};
use rand::{RngExt, rngs::StdRng};

use crate::{
    cast::Cast,
    record::Record,
    world::{Part, World},
};

pub use kind::Kind;
pub use plan::Deck;

/// One fault, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struck {
    /// What sort.
    pub kind: Kind,
    /// What was hit.
    pub target: String,
    /// When it began, in ms since the run began.
    pub begin: u64,
    /// When it was mended.
    pub end: u64,
}

/// What a strike needs to know.
#[derive(Debug, Clone)]
pub struct Nemesis {
    pub(crate) world: Arc<World>,
    pub(crate) record: Record,
    pub(crate) cast: Arc<Cast>,
}

impl Nemesis {
    /// Against this world and this cast.
    #[must_use]
    pub fn new(world: Arc<World>, record: Record, cast: Arc<Cast>) -> Self {
        Self {
            world,
            record,
            cast,
        }
    }

    /// Breaks something and mends it again. `lot` chooses what and for how long.
    pub async fn strike(&self, kind: Kind, mut lot: StdRng) -> Result<Struck> {
        let lot = &mut lot;
        let turns = &self.world.turns;
        let turn = match kind.touches() {
            kind::Area::Gateways => &turns.gateways,
            kind::Area::Dispatchers => &turns.dispatchers,
            kind::Area::Reapers => &turns.reapers,
            kind::Area::Redis => &turns.redis,
            kind::Area::Etcd => &turns.etcd,
        };
        let _turn = turn.lock().await;
        let begin = self.record.now();
        let struck = match kind.touches() {
            kind::Area::Gateways => self.at_gateways(kind, lot).await,
            kind::Area::Dispatchers => self.at_dispatchers(kind, lot).await,
            kind::Area::Reapers => self.at_reapers(kind, lot).await,
            kind::Area::Redis => self.at_redis(kind, lot).await,
            kind::Area::Etcd => self.at_etcd(kind, lot).await,
        };
        let target = struck.with_context(|| format!("the fault: {}", kind.name()))?;
        Ok(Struck {
            kind,
            target,
            begin,
            end: self.record.now(),
        })
    }

    /// Notes a fault that began then and is over now.
    fn broke(&self, begin: u64, fault: Fault) {
        let lasts = self.record.now() - begin;
        self.record.note_at(begin, Event::Broke { fault, lasts });
    }

    /// A time of the defaults between these, scaled.
    async fn wait(&self, lot: &mut StdRng, from: u64, to: u64) {
        let ms = lot.random_range(from..=to);
        tokio::time::sleep(self.world.times.of(ms)).await;
    }

    fn pick<'a>(lot: &mut StdRng, parts: &'a [Part]) -> &'a Part {
        &parts[lot.random_range(0..parts.len())]
    }
}

/// Ahead or back, by so many ms.
fn step(lot: &mut StdRng, from: i64, to: i64) -> i64 {
    let ms = lot.random_range(from..=to);
    if lot.random_bool(0.5) { ms } else { -ms }
}

/// Starts a node again that was killed or stopped, and waits until it answers.
async fn start(part: &Part) -> Result<()> {
    part.node.process().restart().await?;
    part.node.wait_up().await
}

//! Faults of gateways, dispatchers and reapers: the processes that are ours.

use std::time::Duration;

use adsum_tests::history::Fault;
use anyhow::{Context, Result};
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;

use super::{Kind, Nemesis, start, step};
use crate::{filter::Way, world::Part};

impl Nemesis {
    pub(super) async fn at_gateways(&self, kind: Kind, lot: &mut StdRng) -> Result<String> {
        let part = Self::pick(lot, &self.world.gateways);
        let begin = self.record.now();
        match kind {
            Kind::GatewayKilled => {
                self.cast.lost(part.node.name());
                part.node.process().kill()?;
                self.wait(lot, 2_000, 40_000).await;
                start(part).await?;
                self.broke(begin, Fault::GatewayKilled(part.name()));
            }
            Kind::GatewayFrozen => {
                part.node.process().pause()?;
                self.wait(lot, 2_000, 50_000).await;
                part.node.process().resume()?;
                self.broke(begin, Fault::GatewayFrozen(part.name()));
            }
            Kind::GatewayDrained => self.drain(part).await?,
            Kind::FeedCut | Kind::FeedHalfCut => {
                let way = way(kind == Kind::FeedHalfCut, lot);
                let cut = self.world.cut_feed(part, way)?;
                self.wait(lot, 2_000, 30_000).await;
                drop(cut);
                // Lost packets are sent again after a while only.
                sleep(Duration::from_millis(1_500)).await;
                self.broke(begin, Fault::FeedCut(part.name()));
            }
            Kind::GatewayClock => {
                // Nobody may notice: it is not told to the judge.
                let clock = part.clock.as_ref().context("its clock can't be set")?;
                clock.set(step(lot, 1_000, 7_200_000))?;
                self.wait(lot, 5_000, 40_000).await;
                clock.set(0)?;
            }
            Kind::Rolling => return self.roll().await,
            _ => {
                let way = way(kind == Kind::GatewayHalfCut, lot);
                let cut = self.world.cut_redis(part, way)?;
                self.wait(lot, 2_000, 45_000).await;
                drop(cut);
                sleep(Duration::from_millis(1_500)).await;
                self.broke(begin, Fault::GatewayCut(part.name()));
            }
        }
        Ok(part.name())
    }

    /// Stops a gateway as a deploy does, and starts it again.
    async fn drain(&self, part: &Part) -> Result<()> {
        let begin = self.record.now();
        let limit = Duration::from_millis(self.world.times.window() * 2 + 4_000);
        part.node.process().stop_within(limit).await?;
        start(part).await?;
        self.broke(begin, Fault::GatewayDrained(part.name()));
        Ok(())
    }

    /// A deploy: one node after the other.
    async fn roll(&self) -> Result<String> {
        for part in &self.world.reapers {
            let _turn = self.world.turns.reapers.lock().await;
            self.restart(part, Fault::ReaperKilled).await?;
        }
        for part in &self.world.dispatchers {
            let _turn = self.world.turns.dispatchers.lock().await;
            self.restart(part, Fault::DispatcherKilled).await?;
        }
        for part in &self.world.gateways {
            self.drain(part).await?;
        }
        Ok("all nodes".to_owned())
    }

    async fn restart(&self, part: &Part, fault: impl Fn(String) -> Fault) -> Result<()> {
        let begin = self.record.now();
        part.node.process().stop().await?;
        start(part).await?;
        // Until the others know it again, its place is empty.
        sleep(Duration::from_millis(1_000)).await;
        self.broke(begin, fault(part.name()));
        Ok(())
    }

    pub(super) async fn at_dispatchers(&self, kind: Kind, lot: &mut StdRng) -> Result<String> {
        let part = Self::pick(lot, &self.world.dispatchers);
        let begin = self.record.now();
        match kind {
            Kind::DispatcherKilled => {
                part.node.process().kill()?;
                self.wait(lot, 500, 30_000).await;
                start(part).await?;
                sleep(Duration::from_millis(1_000)).await;
                self.broke(begin, Fault::DispatcherKilled(part.name()));
            }
            Kind::DispatcherFrozen => {
                part.node.process().pause()?;
                self.wait(lot, 2_000, 40_000).await;
                part.node.process().resume()?;
                sleep(Duration::from_millis(500)).await;
                self.broke(begin, Fault::DispatcherFrozen(part.name()));
            }
            Kind::DispatcherRestarted => self.restart(part, Fault::DispatcherKilled).await?,
            Kind::FeedDelayed => {
                if let Some(feed) = &part.feed {
                    feed.delay(Duration::from_millis(lot.random_range(50..=500)));
                    self.wait(lot, 5_000, 30_000).await;
                    feed.heal();
                }
            }
            _ => {
                let way = way(kind == Kind::DispatcherHalfDeaf, lot);
                let cut = self.world.cut_redis(part, way)?;
                self.wait(lot, 2_000, 40_000).await;
                drop(cut);
                sleep(Duration::from_millis(1_500)).await;
                self.broke(begin, Fault::DispatcherDeaf(part.name()));
            }
        }
        Ok(part.name())
    }

    pub(super) async fn at_reapers(&self, kind: Kind, lot: &mut StdRng) -> Result<String> {
        let part = Self::pick(lot, &self.world.reapers);
        let begin = self.record.now();
        match kind {
            Kind::ReaperKilled => {
                part.node.process().kill()?;
                self.wait(lot, 2_000, 40_000).await;
                start(part).await?;
                self.broke(begin, Fault::ReaperKilled(part.name()));
            }
            Kind::ReaperFrozen => {
                part.node.process().pause()?;
                // Longer than its lease, so that another one reaps when it wakes: etcd ends a
                // lease half a second late, and then a shard has to be without an owner for a
                // while.
                let over = self.world.times.lease() + self.world.times.ms(2_000) + 1_000;
                sleep(Duration::from_millis(over)).await;
                self.wait(lot, 1_000, 20_000).await;
                part.node.process().resume()?;
                self.broke(begin, Fault::ReaperFrozen(part.name()));
            }
            Kind::ReaperRestarted => self.restart(part, Fault::ReaperKilled).await?,
            _ => {
                let cut = self.world.cut_etcd(part, way(false, lot))?;
                self.wait(lot, 10_000, 40_000).await;
                drop(cut);
                sleep(Duration::from_millis(1_500)).await;
                self.broke(begin, Fault::ReaperFrozen(part.name()));
            }
        }
        Ok(part.name())
    }
}

fn way(half: bool, lot: &mut StdRng) -> Way {
    match (half, lot.random_bool(0.5)) {
        (false, _) => Way::Both,
        (true, true) => Way::Out,
        (true, false) => Way::In,
    }
}

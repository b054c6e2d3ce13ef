//! Faults of etcd. Without it nobody is reaped, and that is what the history says: all reapers
//! stood still.

use std::time::Duration;

use adsum_tests::history::Fault;
use anyhow::Result;
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;

use super::{Kind, Nemesis};

impl Nemesis {
    pub(super) async fn at_etcd(&self, kind: Kind, lot: &mut StdRng) -> Result<String> {
        let etcd = &self.world.etcd;
        let begin = self.record.now();
        let number = lot.random_range(0..etcd.members().len());
        let member = etcd.member(number)?;
        match kind {
            Kind::MemberKilled => {
                member.process().kill()?;
                self.wait(lot, 5_000, 30_000).await;
                member.process().restart().await?;
                etcd.wait_ready().await?;
            }
            Kind::MemberFrozen => {
                member.process().pause()?;
                self.wait(lot, 5_000, 30_000).await;
                member.process().resume()?;
                etcd.wait_ready().await?;
            }
            Kind::EtcdKilled => {
                etcd.kill_all()?;
                self.wait(lot, 5_000, 60_000).await;
                etcd.restart_all().await?;
                self.nobody_reaped(begin).await;
            }
            _ => {
                etcd.kill_all()?;
                self.wait(lot, 5_000, 40_000).await;
                etcd.wipe_and_restart().await?;
                self.nobody_reaped(begin).await;
            }
        }
        Ok(match kind {
            Kind::MemberKilled | Kind::MemberFrozen => format!("etcd-{number}"),
            _ => "all members".to_owned(),
        })
    }

    async fn nobody_reaped(&self, begin: u64) {
        // Nodes find it again after a back-off of their own.
        sleep(Duration::from_millis(2_000)).await;
        self.broke(begin, Fault::ReaperFrozen("all".to_owned()));
    }
}

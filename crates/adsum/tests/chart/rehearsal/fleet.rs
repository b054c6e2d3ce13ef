//! All pods of the rehearsal, those that are gone included: what they are heard about at the end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use adsum_chaos::{
    Record,
    witness::{self, Ledger},
};
use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::pod::Pod;

/// Between two looks at all.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct Fleet(Mutex<Vec<Arc<Pod>>>);

impl Fleet {
    pub(crate) fn add(&self, pod: &Arc<Pod>) {
        self.0.lock().unwrap().push(pod.clone());
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.lock().unwrap().clone()
    }

    /// Notes how large everything is, until dropped.
    pub(crate) async fn measure(self: Arc<Self>, record: Record) {
        loop {
            for pod in self.pods() {
                let readyz = async {
                    let page = pod.get("internal", "/readyz").await?;
                    Ok(serde_json::from_str(&page)?)
                };
                witness::look(role(&pod), &pod.process, readyz, &record).await;
            }
            sleep(LOOK).await;
        }
    }

    /// Notes who swept what, and with which fence.
    pub(crate) fn sweeps(&self, record: &Record) -> Result<()> {
        let pods = self.pods();
        let reapers = pods.iter().filter(|pod| role(pod) == "dispatcher");
        let reapers = reapers.map(|pod| (pod.name.as_str(), &pod.process));
        Ledger::default().tell(reapers, record, 0)
    }

    /// Nobody has panicked.
    pub(crate) fn check(&self) -> Result<()> {
        for pod in self.pods() {
            let (log, _) = pod.process.log_from(0)?;
            let panic = log.lines().find(|l| l.contains("panicked at"));
            ensure!(panic.is_none(), "{}: {}", pod.name, panic.unwrap_or(""));
        }
        Ok(())
    }
}

fn role(pod: &Pod) -> &'static str {
    match pod.name.starts_with("adsum-gateway") {
        true => "gateway",
        false => "dispatcher",
    }
}

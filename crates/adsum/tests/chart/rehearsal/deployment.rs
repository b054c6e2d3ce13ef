//! A Deployment: pods of one template, rolled and scaled as its strategy says.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

use super::{fleet::Fleet, service::Service};
use crate::{
    pod::{Cluster, Pod},
    tools::Render,
};

/// Until everybody who balances knows that a pod is to go: less than the delay of its hook.
const PROPAGATION: Duration = Duration::from_millis(400);

pub(crate) struct Deployment {
    cluster: Arc<Cluster>,
    render: Arc<Render>,
    name: String,
    service: Option<Arc<Service>>,
    fleet: Arc<Fleet>,
    pods: Vec<Arc<Pod>>,
    /// Pods that are told to go, and take their time.
    going: JoinSet<Result<(String, Duration)>>,
    made: usize,
}

impl Deployment {
    /// Without pods.
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        render: &Arc<Render>,
        fleet: &Arc<Fleet>,
        name: &str,
        service: Option<&Arc<Service>>,
    ) -> Result<Self> {
        render.find("Deployment", name)?;
        Ok(Self {
            cluster: cluster.clone(),
            render: render.clone(),
            name: name.to_owned(),
            service: service.cloned(),
            fleet: fleet.clone(),
            pods: Vec::new(),
            going: JoinSet::new(),
            made: 0,
        })
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().map(AsRef::as_ref)
    }

    fn spec(&self) -> Result<Value> {
        Ok(self.render.find("Deployment", &self.name)?["spec"].clone())
    }

    /// So many pods from now on: new ones at once, and those that are too many go at once.
    pub(crate) async fn scale(&mut self, count: usize) -> Result<()> {
        let first_new = self.pods.len();
        while self.pods.len() < count {
            self.start()?;
        }
        for pod in self.pods.get(first_new..).unwrap_or_default() {
            self.available(pod).await?;
        }
        while self.pods.len() > count {
            self.tell_to_go(0);
        }
        self.gone().await
    }

    /// A new template: as many new pods beside the old ones as may be, and as many old ones told to
    /// go as may be missing.
    pub(crate) async fn roll(&mut self, render: &Arc<Render>) -> Result<()> {
        self.render = render.clone();
        let (spec, wanted) = (self.spec()?, self.pods.len());
        ensure!(spec["strategy"]["type"] == "RollingUpdate");
        let number = |key: &str| {
            let value = spec["strategy"]["rollingUpdate"][key].as_u64();
            let value = value.with_context(|| format!("{key} is no number"))?;
            anyhow::Ok(usize::try_from(value)?)
        };
        let (surge, unavailable) = (number("maxSurge")?, number("maxUnavailable")?);
        // Old ones are in front.
        let (mut old, mut new) = (wanted, 0);
        while old > 0 || new < wanted {
            let first_new = self.pods.len();
            while new < wanted && self.pods.len() < wanted + surge {
                self.start()?;
                new += 1;
            }
            for pod in &self.pods[first_new..] {
                self.available(pod).await?;
            }
            while old > 0 && self.pods.len() > wanted.saturating_sub(unavailable) {
                self.tell_to_go(0);
                old -= 1;
            }
        }
        self.gone().await
    }

    fn start(&mut self) -> Result<()> {
        self.made += 1;
        let name = format!("{}-{}", self.name, self.made);
        let (spec, ip) = (self.spec()?, self.cluster.addresses.take()?);
        let of = (name.as_str(), &spec["template"]["spec"]);
        let pod = Arc::new(self.cluster.start(&self.render, of, "adsum", ip, &[])?);
        self.fleet.add(&pod);
        self.pods.push(pod);
        Ok(())
    }

    /// Ready, and for as long as the template asks.
    async fn available(&self, pod: &Pod) -> Result<()> {
        pod.ready().await?;
        if let Some(service) = &self.service {
            service.add(pod.ip);
        }
        let least = self.spec()?["minReadySeconds"].as_u64().unwrap_or(0);
        sleep(Duration::from_secs(least)).await;
        pod.probe("readinessProbe").await
    }

    /// The hook runs at once; those who balance hear of it a little later.
    fn tell_to_go(&mut self, index: usize) {
        let (pod, service) = (self.pods.remove(index), self.service.clone());
        self.going.spawn(async move {
            let told = async {
                sleep(PROPAGATION).await;
                if let Some(service) = service {
                    service.remove(pod.ip);
                }
            };
            let (took, ()) = tokio::join!(pod.terminate(), told);
            Ok((pod.name.clone(), took?))
        });
    }

    async fn gone(&mut self) -> Result<()> {
        while let Some(gone) = self.going.join_next().await {
            let (name, took) = gone??;
            println!("        {name} went in {took:.1?}");
        }
        Ok(())
    }

    /// Everything that should run does.
    pub(crate) fn check(&self) -> Result<()> {
        for pod in &self.pods {
            ensure!(pod.process.is_running(), "{} has ended", pod.name);
        }
        Ok(())
    }
}

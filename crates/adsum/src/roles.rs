//! The only place where the parts are wired together.

use std::{process::ExitCode, sync::Arc};

use adsum_core::{
    membership::{Membership, Role},
    store::Store,
};
use adsum_dispatcher::Dispatcher;
use adsum_reaper::{Reaper, ReaperStatus};
use anyhow::{Context, Result};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    backends,
    config::{Config, ms},
    drain::{self, Drain, Stage},
    feed::{self, Incoming},
    internal::{self, Parts, Since},
    public::Public,
    reload::{Reload, Reread},
    signals::Signals,
    welcome::{self, Addresses},
};

/// Runs the node until it is told to stop.
///
/// # Errors
/// When something it was configured with can't be reached or used.
pub(crate) async fn serve(config: Config, reread: Reread) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let config = Arc::new(config);
    let running = start(&config).await?;
    let (drain, public) = (running.drain.clone(), running.public.clone());
    let reload = Reload::new(config.clone(), reread, public);
    tokio::select! {
        () = signals.stop(async || reload.now().await) => {}
        () = drain.asked() => {}
    }
    // From here on the configuration is not read again, and another signal does not wait for
    // clients.
    let stopped = drain::run(running, ms(config.times.stop_ms));
    let told_again = async {
        signals.stop(async || {}).await;
        if drain.stage() == Stage::Done {
            // Not impatience: whoever was told that all is done makes sure of the process, too.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        stopped = stopped => stopped.map(|()| ExitCode::SUCCESS),
        () = told_again => {
            tracing::warn!("told to stop twice: stopping now, without waiting for clients");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Starts all parts, and gives back what stops them.
async fn start(config: &Arc<Config>) -> Result<drain::Parts> {
    // Ports first: what is taken is known before the cluster knows of this node.
    let ports = Ports::take(config).await?;
    let (store, health) = backends::store(config).await?;
    let (incoming, connector) = backends::transport(config).await?;
    let membership = backends::membership(config, incoming.as_ref()).await?;
    tracing::info!(node = %membership.node(), roles = ?config.node.roles, "joined");

    let inner = Inner::start(config, &store, &membership, incoming)?;
    // Tasks of sessions end with the process: who drained has none that matter.
    let sessions = TaskTracker::new();
    let public = connector.map(|c| Public::start(config, &store, &membership, c, &sessions));
    let public = public.transpose()?;
    let drain = Drain::new();
    let parts = Parts {
        config: config.clone(),
        store,
        membership: membership.clone(),
        dispatcher: inner.dispatcher.clone(),
        reaper: inner.reaper,
        public: public.clone(),
        drain: drain.clone(),
        health,
        since: Since::default(),
    };
    let doors = ports.open(config, parts)?;
    Ok(drain::Parts {
        drain,
        public,
        stop_public: doors.stop_public,
        public_tasks: doors.public_tasks,
        dispatcher: inner.dispatcher,
        stop_inner: inner.stop,
        inner_tasks: inner.tasks,
        membership,
        stop_internal: doors.stop_internal,
        internal_tasks: doors.internal_tasks,
    })
}

/// What clients never meet: the dispatcher and the reaper, as far as this node has the roles.
struct Inner {
    dispatcher: Option<Dispatcher>,
    reaper: Option<watch::Receiver<ReaperStatus>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Inner {
    fn start(
        config: &Config,
        store: &Arc<dyn Store>,
        membership: &Arc<dyn Membership>,
        incoming: Option<Incoming>,
    ) -> Result<Self> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let serve = |incoming| {
            let settings = config.dispatcher();
            let dispatcher = Dispatcher::start(store.clone(), membership.clone(), settings);
            feed::serve(&dispatcher, incoming, &config.feed, &stop, &tasks)?;
            anyhow::Ok(dispatcher)
        };
        let dispatcher = incoming.map(serve).transpose()?;
        let reaper = config.node.roles.contains(&Role::Reaper).then(|| {
            let reaper = Reaper::new(store.clone(), membership.clone(), config.reaper());
            let status = reaper.status();
            tasks.spawn(reaper.run(stop.clone()));
            status
        });
        Ok(Self {
            dispatcher,
            reaper,
            stop,
            tasks,
        })
    }
}

/// The ports for clients and for operators, taken and not served yet.
struct Ports {
    public: Option<TcpListener>,
    internal: TcpListener,
}

/// What ends them when they are served.
struct Doors {
    stop_public: CancellationToken,
    public_tasks: TaskTracker,
    stop_internal: CancellationToken,
    internal_tasks: TaskTracker,
}

impl Ports {
    async fn take(config: &Config) -> Result<Self> {
        let public = match config.node.roles.contains(&Role::Gateway) {
            true => Some(backends::listen(config.listen.public, "listen.public")?),
            false => None,
        };
        let internal = backends::listen(config.listen.internal, "listen.internal")?;
        Ok(Self { public, internal })
    }

    /// Serves them, and says so.
    fn open(self, config: &Config, parts: Parts) -> Result<Doors> {
        let doors = Doors {
            stop_public: CancellationToken::new(),
            public_tasks: TaskTracker::new(),
            stop_internal: CancellationToken::new(),
            internal_tasks: TaskTracker::new(),
        };
        let address = |port: &TcpListener| port.local_addr().context("a port without an address");
        let addresses = Addresses {
            public: self.public.as_ref().map(address).transpose()?,
            internal: address(&self.internal)?,
        };
        let public = parts.public.clone();
        let router = internal::router(Arc::new(parts));
        let served = axum::serve(self.internal, router.clone())
            .with_graceful_shutdown(doors.stop_internal.clone().cancelled_owned());
        doors.internal_tasks.spawn(async move { served.await });
        if let (Some(public), Some(port)) = (public, self.public) {
            public.open(
                port,
                config,
                router,
                &doors.stop_public,
                &doors.public_tasks,
            );
        }
        welcome::print(config, &addresses);
        Ok(doors)
    }
}

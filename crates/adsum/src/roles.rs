//! The only place where the parts are wired together.

use std::{process::ExitCode, sync::Arc};

use adsum_core::membership::Role;
use adsum_dispatcher::Dispatcher;
use adsum_reaper::Reaper;
use anyhow::{Context, Result};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    backends,
    config::{Config, ms},
    drain::{self, Drain},
    feed,
    internal::{self, Parts},
    public::Public,
    reload::{Reload, Reread},
    signals::Signals,
    welcome,
};

/// Runs the node until it is told to stop.
///
/// # Errors
/// When something it was configured with can't be reached or used.
pub(crate) async fn serve(config: Config, reread: Reread) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let config = Arc::new(config);
    let stopping = start(&config).await?;
    let (drain, public) = (stopping.drain.clone(), stopping.public.clone());
    let reload = Reload::new(config.clone(), reread, public);
    tokio::select! {
        () = signals.stop(async || reload.now().await) => {}
        () = drain.asked() => {}
    }
    // A configuration is not read any more, and another signal does not wait for clients.
    let stopped = drain::run(stopping, ms(config.times.stop_ms));
    tokio::select! {
        stopped = stopped => stopped.map(|()| ExitCode::SUCCESS),
        () = signals.stop(async || {}) => {
            tracing::warn!("told to stop twice: stopping now, without waiting for clients");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Starts all parts, and gives back what stops them.
async fn start(config: &Arc<Config>) -> Result<drain::Parts> {
    let is = |role| config.node.roles.contains(&role);
    // Ports first: what is taken is known before the cluster knows of this node.
    let internal_port = backends::listen(config.listen.internal, "listen.internal").await?;
    let public_port = match is(Role::Gateway) {
        true => Some(backends::listen(config.listen.public, "listen.public").await?),
        false => None,
    };
    let store = backends::store(config).await?;
    let (incoming, connector) = backends::transport(config).await?;
    let membership = backends::membership(config, incoming.as_ref()).await?;
    tracing::info!(node = %membership.node(), roles = ?config.node.roles, "joined");

    let (stop_inner, inner_tasks) = (CancellationToken::new(), TaskTracker::new());
    let dispatcher = match incoming {
        Some(incoming) => {
            let dispatcher =
                Dispatcher::start(store.clone(), membership.clone(), config.dispatcher());
            feed::serve(
                &dispatcher,
                incoming,
                &config.feed,
                &stop_inner,
                &inner_tasks,
            )?;
            Some(dispatcher)
        }
        None => None,
    };
    let reaper = is(Role::Reaper).then(|| {
        let reaper = Reaper::new(store.clone(), membership.clone(), config.reaper());
        let status = reaper.status();
        inner_tasks.spawn(reaper.run(stop_inner.clone()));
        status
    });
    // Tasks of sessions end with the process: who drained has none that matter.
    let edge_tasks = TaskTracker::new();
    let public = connector.map(|c| Public::start(config, &store, &membership, c, &edge_tasks));
    let public = public.transpose()?;

    let drain = Drain::new();
    let parts = Arc::new(Parts {
        config: config.clone(),
        store,
        membership: membership.clone(),
        dispatcher: dispatcher.clone(),
        reaper,
        public: public.clone(),
        drain: drain.clone(),
    });
    let (stop_internal, internal_tasks) = (CancellationToken::new(), TaskTracker::new());
    let addresses = welcome::Addresses {
        internal: internal_port.local_addr().context("listen.internal")?,
        public: match &public_port {
            Some(port) => Some(port.local_addr().context("listen.public")?),
            None => None,
        },
    };
    let router = internal::router(parts);
    let served = axum::serve(internal_port, router.clone())
        .with_graceful_shutdown(stop_internal.clone().cancelled_owned());
    internal_tasks.spawn(async move { served.await });
    let (stop_public, public_tasks) = (CancellationToken::new(), TaskTracker::new());
    if let (Some(public), Some(port)) = (&public, public_port) {
        public.open(port, config, router, &stop_public, &public_tasks);
    }
    welcome::print(config, &addresses);
    Ok(drain::Parts {
        drain,
        public,
        stop_public,
        public_tasks,
        dispatcher,
        stop_inner,
        inner_tasks,
        membership,
        stop_internal,
        internal_tasks,
    })
}

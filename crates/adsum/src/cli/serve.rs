//! `serve`: its flags, and what they do to the configuration.

use std::{net::SocketAddr, path::PathBuf};

use adsum_core::membership::Role;
use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::config::{Config, Secret};

/// Where the configuration comes from.
#[derive(Debug, Clone, Args)]
pub(crate) struct Source {
    /// A TOML file; `adsum default-config` prints one.
    #[arg(long, short, env = "ADSUM_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// A role, as written on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleArg {
    /// Holds client connections.
    Gateway,
    /// Serves views of shards.
    Dispatcher,
    /// Sweeps shards.
    Reaper,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Gateway => Self::Gateway,
            RoleArg::Dispatcher => Self::Dispatcher,
            RoleArg::Reaper => Self::Reaper,
        }
    }
}

/// Flags of `serve`; each overrides the file and the environment.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub(crate) source: Source,
    /// What this node does [default: all of them].
    #[arg(long, value_delimiter = ',')]
    pub(crate) roles: Vec<RoleArg>,
    /// For development: callers on this machine need no signed token.
    #[arg(long)]
    pub(crate) dev: bool,
    /// This node's name, unique in the cluster [default: the host's name].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The cluster's name.
    #[arg(long)]
    pub(crate) cluster: Option<String>,
    /// Redis URLs: some nodes of a cluster, or one server.
    #[arg(long, value_delimiter = ',', hide_env_values = true)]
    pub(crate) redis: Vec<String>,
    /// etcd endpoints.
    #[arg(long, value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// Where clients come in.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_public: Option<SocketAddr>,
    /// Where the feed listens.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_feed: Option<SocketAddr>,
    /// Where health and admin calls listen.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_internal: Option<SocketAddr>,
    /// How other nodes reach the feed.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
}

impl Serve {
    /// The configuration: file, environment, and these flags over them.
    ///
    /// # Errors
    /// When it can't be read or does not fit together.
    pub(crate) fn read(&self) -> Result<Config> {
        let mut config = Config::read(self.source.config.as_deref())?;
        self.over(&mut config);
        config.check()?;
        Ok(config)
    }

    /// Lays the flags over a configuration.
    fn over(&self, config: &mut Config) {
        fn set<T: Clone>(to: &mut T, flag: Option<&T>) {
            if let Some(value) = flag {
                to.clone_from(value);
            }
        }
        if !self.roles.is_empty() {
            config.node.roles = self.roles.iter().map(|r| (*r).into()).collect();
        }
        if !self.redis.is_empty() {
            config.redis.urls = self.redis.iter().cloned().map(Secret::from).collect();
        }
        if !self.etcd.is_empty() {
            config.etcd.endpoints.clone_from(&self.etcd);
        }
        config.node.dev |= self.dev;
        set(&mut config.node.name, self.name.as_ref());
        set(&mut config.cluster.name, self.cluster.as_ref());
        set(&mut config.listen.public, self.listen_public.as_ref());
        set(&mut config.listen.feed, self.listen_feed.as_ref());
        set(&mut config.listen.internal, self.listen_internal.as_ref());
        set(&mut config.listen.advertise, self.advertise.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{super::*, *};

    #[test]
    fn flags_override_the_rest() {
        let cli = Cli::try_parse_from([
            "adsum",
            "serve",
            "--roles",
            "reaper,gateway",
            "--name",
            "n1",
            "--dev",
            "--listen-feed",
            "127.0.0.1:9",
            "--listen-public",
            "127.0.0.1:10",
        ]);
        let Command::Serve(serve) = cli.unwrap().command else {
            panic!("not serve")
        };
        let mut config = Config::default();
        serve.over(&mut config);
        assert_eq!(config.node.roles, [Role::Reaper, Role::Gateway]);
        assert_eq!(config.node.name, "n1");
        assert!(config.node.dev);
        assert_eq!(config.listen.feed.port(), 9);
        assert_eq!(config.listen.public.port(), 10);
    }
}

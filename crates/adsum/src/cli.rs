//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use adsum_core::membership::Role;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Config;

/// Adsum knows who is online, on which devices, in which rooms, and tells everyone who may know.
#[derive(Debug, Parser)]
#[command(name = "adsum", version, about, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node; without Redis and etcd a whole service in one process.
    Serve(Serve),
    /// Say whether a configuration can be used, and why not.
    CheckConfig(Source),
    /// Print the default configuration, ready to be edited.
    DefaultConfig,
    /// Ask a node how it is; exits with 1 when it is not ready.
    Health {
        /// The node's internal address.
        #[arg(default_value = "127.0.0.1:8082")]
        address: SocketAddr,
    },
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
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
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub(crate) source: Source,
    /// What this node does [default: all of them].
    #[arg(long, value_delimiter = ',')]
    pub(crate) roles: Vec<RoleArg>,
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
    /// Lays the flags over a configuration.
    pub(crate) fn over(&self, config: &mut Config) {
        fn set<T: Clone>(to: &mut T, flag: Option<&T>) {
            if let Some(value) = flag {
                to.clone_from(value);
            }
        }
        if !self.roles.is_empty() {
            config.node.roles = self.roles.iter().map(|r| (*r).into()).collect();
        }
        if !self.redis.is_empty() {
            config.redis.urls.clone_from(&self.redis);
        }
        if !self.etcd.is_empty() {
            config.etcd.endpoints.clone_from(&self.etcd);
        }
        set(&mut config.node.name, self.name.as_ref());
        set(&mut config.cluster.name, self.cluster.as_ref());
        set(&mut config.listen.feed, self.listen_feed.as_ref());
        set(&mut config.listen.internal, self.listen_internal.as_ref());
        set(&mut config.listen.advertise, self.advertise.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_override_the_rest() {
        let cli = Cli::try_parse_from([
            "adsum",
            "serve",
            "--roles",
            "reaper,gateway",
            "--name",
            "n1",
            "--listen-feed",
            "127.0.0.1:9",
        ]);
        let Command::Serve(serve) = cli.unwrap().command else {
            panic!("not serve")
        };
        let mut config = Config::default();
        serve.over(&mut config);
        assert_eq!(config.node.roles, [Role::Reaper, Role::Gateway]);
        assert_eq!(config.node.name, "n1");
        assert_eq!(config.listen.feed.port(), 9);
    }
}

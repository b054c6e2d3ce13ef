//! `check-config`: what `serve` does before anybody could notice.

use adsum_core::membership::Role;
use anyhow::Result;
use clap::Args;

use super::Serve;
use crate::{backends, print, public};

/// Flags of `check-config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckConfig {
    #[command(flatten)]
    serve: Serve,
    /// Leave out the files that the configuration names: keys, certificates. For a check on another
    /// machine than the node's.
    #[arg(long)]
    no_files: bool,
}

impl CheckConfig {
    /// Says that it can be used.
    ///
    /// # Errors
    /// Says why it can't.
    pub(super) fn run(&self) -> Result<()> {
        let config = self.serve.read()?;
        if !self.no_files {
            config.telemetry()?;
            backends::check(&config)?;
            if config.node.roles.contains(&Role::Gateway) {
                public::check(&config)?;
            }
        }
        print("the configuration can be used");
        Ok(())
    }
}

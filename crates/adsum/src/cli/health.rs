//! `health`: asks a node how it is, as a probe or a person would.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use hyper::Method;

use super::{Internal, ask::Ask};
use crate::print;

/// Ask a node how it is.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// The node's internal address, `host:port`.
    address: Option<String>,
    #[command(flatten)]
    internal: Internal,
}

impl Health {
    /// Fails when it is not ready.
    ///
    /// # Errors
    /// When nothing answers there.
    pub(super) async fn run(self) -> Result<ExitCode> {
        let internal = match self.address {
            Some(address) => Internal {
                internal: format!("http://{address}"),
            },
            None => self.internal,
        };
        let (status, text) = Ask::internal(&internal)
            .text(Method::GET, "/readyz", None)
            .await?;
        print(text.trim_end());
        Ok(if status.is_success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

//! The presence service: one binary, all roles. A library only so that its tests can put parts
//! together as it does.

mod backends;
mod cli;
mod clock;
mod config;
mod drain;
pub mod feed;
mod internal;
mod public;
mod reload;
mod roles;
mod runtime;
mod signals;
mod welcome;

use std::{io::Write, process::ExitCode, sync::Arc, time::Duration};

use adsum_telemetry::Telemetry;
use anyhow::Result;
use clap::Parser;
use cli::{Cli, Serve};

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    match cli::run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // One sentence for people; the causes follow it.
            say(&format!("adsum: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// A line on stdout. Whoever reads it may have gone (`adsum watch … | head`): then this ends.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// What the last spans and lines may take to be sent.
const LAST_SENT: Duration = Duration::from_secs(2);

fn serve(flags: Serve) -> Result<ExitCode> {
    let config = flags.read()?;
    let settings = config.telemetry()?;
    let runtime = runtime::of_node(&config.node)?;
    let telemetry = Telemetry::start(settings, runtime.handle())?;
    let reread = Arc::new(move || flags.read());
    runtime.block_on(async {
        let served = roles::serve(config, reread).await;
        telemetry.stop(LAST_SENT).await;
        served
    })
}

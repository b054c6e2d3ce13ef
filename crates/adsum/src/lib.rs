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
mod signals;
mod welcome;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::Parser;
use cli::{Cli, Serve};
use tracing_subscriber::EnvFilter;

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

fn serve(flags: Serve) -> Result<ExitCode> {
    let config = flags.read()?;
    log_to_stderr(&config.log)?;
    let reread = Arc::new(move || flags.read());
    runtime()?.block_on(roles::serve(config, reread))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .build()
        .context("the runtime can't start")
}

fn log_to_stderr(log: &config::Log) -> Result<()> {
    let filter = EnvFilter::try_new(&log.filter)
        .with_context(|| format!("log.filter {:?} is no filter", log.filter))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    if log.json {
        builder.json().init();
    } else {
        builder.init();
    }
    Ok(())
}

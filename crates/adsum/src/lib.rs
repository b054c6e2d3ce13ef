//! The presence service: one binary, all roles. A library only so that its tests can put parts
//! together as it does.

mod cli;
mod config;
pub mod feed;
mod health;
mod internal;
mod roles;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use cli::{Cli, Command};
use config::Config;
use tracing_subscriber::EnvFilter;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
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

#[allow(clippy::print_stdout)]
fn print(text: &str) {
    println!("{text}");
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Serve(serve) => {
            let mut config = Config::read(serve.source.config.as_deref())?;
            serve.over(&mut config);
            config.check()?;
            log_to_stderr(&config.log)?;
            runtime()?.block_on(roles::serve(config))?;
        }
        Command::CheckConfig(source) => {
            Config::read(source.config.as_deref())?.check()?;
            print("the configuration can be used");
        }
        Command::DefaultConfig => print(&toml::to_string_pretty(&Config::default())?),
        Command::Health { address } => {
            let (ready, text) = runtime()?.block_on(health::ask(address))?;
            print(&text);
            return Ok(if ready {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
    }
    Ok(ExitCode::SUCCESS)
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
        .with_writer(std::io::stderr);
    if log.json {
        builder.json().init()
    } else {
        builder.init()
    }
    Ok(())
}

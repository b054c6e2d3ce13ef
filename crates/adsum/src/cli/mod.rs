//! The command line: what there is to say, and who does it.

mod args;
mod ask;
mod check_config;
mod drain;
mod health;
mod live;
mod paint;
mod serve;
mod shards;
mod smoke;
mod token;
mod user;
mod who;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{config, print, runtime};
use args::{Internal, Output};
pub(crate) use serve::Serve;

/// Adsum knows who is online, on which devices, in which rooms, and tells everyone who may know.
#[derive(Debug, Parser)]
#[command(name = "adsum", version, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node; without Redis and etcd a whole service in one process.
    Serve(Box<Serve>),
    /// Be present in a room, and see who else is, until Ctrl-C.
    Join(live::Join),
    /// See who comes and goes in a room, a user or the tenant, until Ctrl-C.
    Watch(live::Watch),
    /// Who is in a room now.
    Who(who::Who),
    /// How a user is now; with --why also what keeps them online.
    User(user::User),
    /// How the shards stand: owners, positions, lag.
    Shards(shards::Shards),
    /// Close the sessions of a user.
    Kick(user::Kick),
    /// Forget a user: sessions, settings, contacts, last seen.
    Purge(user::Purge),
    /// Mint a token, for development.
    Token(token::Token),
    /// Stop a node: its clients are sent elsewhere first.
    Drain(drain::Drain),
    /// Ask a node how it is; exits with 1 when it is not ready.
    Health(health::Health),
    /// Join a room, be seen there and leave: says whether a service works, and how fast.
    Smoke(smoke::Smoke),
    /// Measure a service: one that runs, or with --cluster one that is started for it.
    Bench(adsum_bench::Bench),
    /// Say whether a configuration can be used, and why not.
    CheckConfig(check_config::CheckConfig),
    /// Print the default configuration, every key explained.
    DefaultConfig,
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// Does what was asked.
///
/// # Errors
/// One sentence that says what to do.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(serve) => return crate::serve(*serve),
        Command::Join(join) => return runtime::of_command()?.block_on(join.run()),
        Command::Watch(watch) => return runtime::of_command()?.block_on(watch.run()),
        Command::Who(who) => runtime::of_command()?.block_on(who.run())?,
        Command::User(user) => runtime::of_command()?.block_on(user.run())?,
        Command::Shards(shards) => runtime::of_command()?.block_on(shards.run())?,
        Command::Kick(kick) => runtime::of_command()?.block_on(kick.run())?,
        Command::Purge(purge) => runtime::of_command()?.block_on(purge.run())?,
        Command::Token(token) => token.run()?,
        Command::Drain(drain) => runtime::of_command()?.block_on(drain.run())?,
        Command::Health(health) => return runtime::of_command()?.block_on(health.run()),
        Command::Smoke(smoke) => runtime::of_command()?.block_on(smoke.run())?,
        Command::Bench(bench) => return bench.run(),
        Command::CheckConfig(check) => check.run()?,
        Command::DefaultConfig => print(config::default_file()?.trim_end()),
        Command::Completions { shell } => completions(shell),
    }
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "adsum", &mut text);
    print(String::from_utf8_lossy(&text).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }
}

//! The Lua scripts, and the arguments that all of them begin with.

use std::{fmt::Display, sync::LazyLock};

use redis::Cmd;

use crate::Keys;

/// Files that scripts are put together of; which ones costs each call, so none has more than it
/// needs.
const HEAD: &str = include_str!("../lua/head.lua");
const PRELUDE: &str = include_str!("../lua/prelude.lua");
const ALIVE: &str = include_str!("../lua/alive.lua");
const SESSIONS: &str = include_str!("../lua/sessions.lua");
const REMOVING: &str = include_str!("../lua/removing.lua");
const KICKING: &str = include_str!("../lua/kicking.lua");

/// A script with what it shares with others in front of it.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    hash: String,
}

impl Script {
    /// A script that writes. The shebang makes Redis refuse it as a whole (out of memory, a
    /// replica) instead of at its first write.
    fn writing(parts: &[&str], body: &str) -> Self {
        Self::new("#!lua\n", &[&[HEAD, PRELUDE], parts, &[body]].concat())
    }

    /// A script that writes nothing, which Redis runs even when it takes no writes.
    fn reading(body: &str) -> Self {
        Self::new("#!lua flags=no-writes\n", &[HEAD, body])
    }

    fn new(shebang: &str, parts: &[&str]) -> Self {
        let source = format!("{shebang}{}", parts.join("\n"));
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    /// The command that runs it: by its hash, or whole, which also makes the node remember it.
    pub(super) fn command(&self, keys: &Keys, args: &Args, whole: bool) -> Cmd {
        let mut command = if whole {
            redis::cmd("EVAL").arg(&self.source).to_owned()
        } else {
            redis::cmd("EVALSHA").arg(&self.hash).to_owned()
        };
        command
            .arg(keys.all.len())
            .arg(&keys.all[..])
            .arg(&args.0[..]);
        command
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) open: Script,
    pub(super) change: Script,
    pub(super) close: Script,
    pub(super) kick: Script,
    pub(super) purge: Script,
    pub(super) renew: Script,
    pub(super) touch: Script,
    pub(super) sweep: Script,
    pub(super) claim: Script,
    pub(super) prefer: Script,
    pub(super) read: Script,
    pub(super) log: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    open: Script::writing(&[SESSIONS], include_str!("../lua/open.lua")),
    change: Script::writing(&[SESSIONS], include_str!("../lua/change.lua")),
    close: Script::writing(&[SESSIONS, REMOVING], include_str!("../lua/close.lua")),
    kick: Script::writing(
        &[SESSIONS, REMOVING, KICKING],
        include_str!("../lua/kick.lua"),
    ),
    purge: Script::writing(
        &[SESSIONS, REMOVING, KICKING],
        include_str!("../lua/purge.lua"),
    ),
    renew: Script::writing(&[ALIVE], include_str!("../lua/renew.lua")),
    touch: Script::writing(&[SESSIONS], include_str!("../lua/touch.lua")),
    sweep: Script::writing(
        &[ALIVE, SESSIONS, REMOVING],
        include_str!("../lua/sweep.lua"),
    ),
    claim: Script::writing(&[], include_str!("../lua/claim.lua")),
    prefer: Script::writing(&[SESSIONS], include_str!("../lua/prefer.lua")),
    read: Script::reading(include_str!("../lua/read.lua")),
    log: Script::reading(include_str!("../lua/log.lua")),
});

/// The arguments of one call.
#[derive(Debug, Clone, Default)]
pub(super) struct Args(Vec<Vec<u8>>);

impl Args {
    pub(super) fn text(mut self, text: impl Display) -> Self {
        self.0.push(text.to_string().into_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.push(bytes.into());
        self
    }
}

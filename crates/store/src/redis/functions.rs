//! The library of Lua functions, and the arguments that all of them take.
//!
//! It is named after its contents, so that releases that differ don't meet; a server that has not
//! seen it is given it when a call says so.

use std::{fmt::Display, sync::LazyLock};

use redis::Cmd;

use crate::Keys;

/// What the library is put together of, in this order: what functions share, then the functions.
const PARTS: [&str; 19] = [
    include_str!("../lua/head.lua"),
    include_str!("../lua/prelude.lua"),
    include_str!("../lua/alive.lua"),
    include_str!("../lua/sessions.lua"),
    include_str!("../lua/removing.lua"),
    include_str!("../lua/kicking.lua"),
    include_str!("../lua/open.lua"),
    include_str!("../lua/change.lua"),
    include_str!("../lua/close.lua"),
    include_str!("../lua/apply.lua"),
    include_str!("../lua/kick.lua"),
    include_str!("../lua/purge.lua"),
    include_str!("../lua/renew.lua"),
    include_str!("../lua/touch.lua"),
    include_str!("../lua/sweep.lua"),
    include_str!("../lua/claim.lua"),
    include_str!("../lua/prefer.lua"),
    include_str!("../lua/read.lua"),
    include_str!("../lua/log.lua"),
];

/// Digits of the contents' hash in the library's name.
const DIGITS: usize = 12;

struct Library {
    source: String,
    /// What the names of its functions begin with.
    prefix: String,
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let body = PARTS.join("\n");
    let hash = redis::Script::new(&body).get_hash().to_owned();
    let name = format!("adsum_{}", &hash[..DIGITS]);
    let prefix = format!("{name}_");
    // On the first line of the parts, so that a line in an error is one more than in them.
    let source = format!("#!lua name={name}\nlocal PREFIX = '{prefix}'; {body}");
    Library { source, prefix }
});

/// A function of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Apply,
    Kick,
    Purge,
    Renew,
    Touch,
    Sweep,
    Claim,
    Prefer,
    Read,
    Log,
}

impl Function {
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Kick => "kick",
            Self::Purge => "purge",
            Self::Renew => "renew",
            Self::Touch => "touch",
            Self::Sweep => "sweep",
            Self::Claim => "claim",
            Self::Prefer => "prefer",
            Self::Read => "read",
            Self::Log => "log",
        }
    }

    /// The command that calls it.
    pub(super) fn command(self, keys: &Keys, args: &Args) -> Cmd {
        let mut command = redis::cmd("FCALL");
        command
            .arg(format!("{}{}", LIBRARY.prefix, self.name()))
            .arg(keys.all.len())
            .arg(&keys.all[..])
            .arg(&keys.channel)
            .arg(&args.head[..])
            .arg(&args.body.0[..]);
        command
    }
}

/// The command that gives a server the library; several may do so at once.
pub(super) fn load() -> Cmd {
    let mut command = redis::cmd("FUNCTION");
    command.arg("LOAD").arg("REPLACE").arg(&LIBRARY.source);
    command
}

/// The arguments of one call: what all functions take, and their own behind it.
#[derive(Debug, Clone)]
pub(super) struct Args {
    head: Vec<u8>,
    body: Packed,
}

impl Args {
    /// With these numbers for every function.
    pub(super) fn new(head: &[u64]) -> Self {
        let head = head.iter().fold(Packed::default(), |p, n| p.number(*n));
        Self {
            head: head.0,
            body: Packed::default(),
        }
    }

    /// The function's own.
    pub(super) fn with(self, body: impl FnOnce(Packed) -> Packed) -> Self {
        Self {
            body: body(self.body),
            ..self
        }
    }
}

/// Values one behind another, as `cmsgpack` reads them.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    pub(super) fn number(mut self, number: u64) -> Self {
        // Can't fail: a vector takes all that is written to it.
        let _ = rmp::encode::write_uint(&mut self.0, number);
        self
    }

    pub(super) fn text(self, text: impl Display) -> Self {
        self.bytes(text.to_string().as_bytes())
    }

    /// A string of bytes.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let _ = rmp::encode::write_str_len(&mut self.0, length);
        self.0.extend_from_slice(bytes);
        self
    }

    /// What was packed before.
    pub(super) fn append(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A list of so many values, which follow.
    pub(super) fn list(mut self, length: usize) -> Self {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let _ = rmp::encode::write_array_len(&mut self.0, length);
        self
    }

    /// What is packed already; `None` for nothing.
    pub(super) fn packed(mut self, packed: Option<&[u8]>) -> Self {
        match packed {
            Some(packed) => self.0.extend_from_slice(packed),
            None => {
                let _ = rmp::encode::write_bool(&mut self.0, false);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_in_the_library() {
        let all = [
            Function::Apply,
            Function::Kick,
            Function::Purge,
            Function::Renew,
            Function::Touch,
            Function::Sweep,
            Function::Claim,
            Function::Prefer,
            Function::Read,
            Function::Log,
        ];
        for function in all {
            let registered = format!("ing('{}', function(", function.name());
            assert!(LIBRARY.source.contains(&registered), "{function:?}");
        }
    }
}

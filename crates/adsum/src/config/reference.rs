//! The configuration in words: the file that `default-config` prints, and the page
//! `docs/configuration.md`. Both come from the sections themselves, so neither can be behind.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::{
    Bounds, Cluster, Config, Etcd, FeedTls, Key, Listen, Log, Node, Redis, Section, Telemetry,
    Times, Tls,
};

/// A key that the gateway's own structs define, described here.
const fn key(name: &'static str, about: &'static [&'static str]) -> Key {
    Key { name, about }
}

const AUTH: Section = Section {
    name: "auth",
    about: &["Who may come in: keys, and what a token must say besides being signed."],
    keys: &[
        key(
            "keys",
            &["Keys given one by one: a list of tables, see below."],
        ),
        key(
            "jwks",
            &["A JWKS file with more keys. Read again when it changes."],
        ),
        key(
            "audience",
            &["`aud` must name one of these. None: `aud` is not looked at."],
        ),
        key(
            "issuer",
            &["`iss` must be one of these. None: `iss` is not looked at."],
        ),
        key(
            "leeway_ms",
            &[
                "How far an issuer's clock may be ahead before `nbf` refuses its tokens. `exp` has no",
                "leeway: it is when the connection is closed, too.",
            ],
        ),
    ],
};

const LIMITS: Section = Section {
    name: "limits",
    about: &["How much clients may ask for. Of all but the first a tenant may have its own."],
    keys: &[
        key(
            "connections_per_node",
            &[
                "Connections of all tenants on this node. Those that have not said hello count, too;",
                "where there are too many, the oldest of them is closed.",
            ],
        ),
        key(
            "connections_per_tenant",
            &["Connections of one tenant on this node."],
        ),
        key(
            "connections_per_user",
            &["Connections of one user on this node."],
        ),
        key(
            "sessions_per_user",
            &["Sessions that one user may have by beats without a connection, on all nodes."],
        ),
        key("rooms_per_session", &["Rooms that one session may be in."]),
        key(
            "topics_per_connection",
            &["Rooms, and the tenant, that one connection may watch."],
        ),
        key(
            "users_per_connection",
            &["Users that one connection may watch."],
        ),
        key("contacts", &["People that one user may list as contacts."]),
        key("frame_bytes", &["Bytes of one frame from a client."]),
        key(
            "meta_bytes",
            &["Bytes of a session's `meta`, and of its `meta` in one room."],
        ),
        key(
            "messages_per_second",
            &["Messages of one connection, in the long run."],
        ),
        key("message_burst", &["Messages that it may send at once."]),
    ],
};

/// All sections but `tenants`, in the order of the file.
fn sections() -> [Section; 13] {
    let section = |name, about, keys| Section { name, about, keys };
    [
        section("node", Node::ABOUT, Node::KEYS),
        section("cluster", Cluster::ABOUT, Cluster::KEYS),
        section("redis", Redis::ABOUT, Redis::KEYS),
        section("etcd", Etcd::ABOUT, Etcd::KEYS),
        section("listen", Listen::ABOUT, Listen::KEYS),
        section("tls", Tls::ABOUT, Tls::KEYS),
        AUTH,
        LIMITS,
        section("feed", FeedTls::ABOUT, FeedTls::KEYS),
        section("times", Times::ABOUT, Times::KEYS),
        section("bounds", Bounds::ABOUT, Bounds::KEYS),
        section("telemetry", Telemetry::ABOUT, Telemetry::KEYS),
        section("log", Log::ABOUT, Log::KEYS),
    ]
}

/// What keys without a default could be, for the file.
const EXAMPLES: [(&str, &str); 13] = [
    ("telemetry.ca", "\"/etc/adsum/collector-ca.pem\""),
    ("redis.ca", "\"/etc/adsum/redis-ca.pem\""),
    ("etcd.user", "\"adsum\""),
    ("etcd.password", "\"…\""),
    ("etcd.ca", "\"/etc/adsum/etcd-ca.pem\""),
    ("etcd.cert", "\"/etc/adsum/etcd.pem\""),
    ("etcd.key", "\"/etc/adsum/etcd-key.pem\""),
    ("tls.cert", "\"/etc/adsum/public.pem\""),
    ("tls.key", "\"/etc/adsum/public-key.pem\""),
    ("auth.jwks", "\"/etc/adsum/jwks.json\""),
    ("feed.ca", "\"/etc/adsum/nodes-ca.pem\""),
    ("feed.cert", "\"/etc/adsum/node.pem\""),
    ("feed.key", "\"/etc/adsum/node-key.pem\""),
];

const KEYS_EXAMPLE: &str = r#"
# One table for each key. HS256 takes a `secret` (32 bytes or more) or a `file` of it; RS256, ES256
# and EdDSA take a `file` of the public key (PEM). Files are read again when they change.
# [[auth.keys]]
# alg = "HS256"
# kid = "2026-11"                   # what tokens call it; without one it is its algorithm's key
# file = "/etc/adsum/hs256.secret"
# tenant = "acme"                   # the only tenant that it speaks for; without one: all
"#;

const TENANT_EXAMPLE: &str = r"
# What a tenant has of its own: any of heartbeat_ms, session_ttl_ms, linger_ms, retention_ms and of
# the limits above but connections_per_node. All nodes must have the same.
# [tenants.acme]
# linger_ms = 30000
# rooms_per_session = 500
";

/// The default configuration as a file to be edited: every key with what it means.
///
/// # Errors
/// When the defaults can't be written down, which a test rules out.
pub(crate) fn default_file() -> Result<String> {
    let defaults = Table::try_from(Config::default())?;
    let mut text = String::from(
        "# Adsum. Every key with its default; what is left out stays so. Variables override the file\n\
         # (ADSUM_TIMES__LINGER_MS=5000), flags override both. `adsum check-config -c FILE` says what\n\
         # does not fit. On SIGHUP a running node takes over [limits], [tenants], the first four of\n\
         # [times], auth.keys, auth.jwks and [tls]; the rest needs a restart.\n",
    );
    for section in sections() {
        text.push('\n');
        for line in section.about {
            writeln!(text, "#{line}")?;
        }
        writeln!(text, "[{}]", section.name)?;
        for key in section.keys {
            for line in key.about {
                writeln!(text, "#{line}")?;
            }
            writeln!(text, "{}", assignment(&defaults, section.name, key.name)?)?;
        }
        match section.name {
            "auth" => text.push_str(KEYS_EXAMPLE),
            "limits" => text.push_str(TENANT_EXAMPLE),
            _ => {}
        }
    }
    Ok(text)
}

fn assignment(defaults: &Table, section: &str, key: &str) -> Result<String> {
    // An empty list of tables can't stand before the tables themselves.
    if (section, key) == ("auth", "keys") {
        return Ok("# keys = []".to_owned());
    }
    if let Some(value) = default_of(defaults, section, key)? {
        return Ok(format!("{key} = {value}"));
    }
    let name = format!("{section}.{key}");
    let example = EXAMPLES.iter().find(|(of, _)| *of == name);
    let example = example.map_or("\"…\"", |(_, example)| example);
    Ok(format!("# {key} = {example}"))
}

/// As TOML writes it; nothing for a key that is not set by default.
fn default_of(defaults: &Table, section: &str, key: &str) -> Result<Option<String>> {
    let section = defaults.get(section).and_then(Value::as_table);
    let section = section.context("a section that is none")?;
    Ok(section.get(key).map(Value::to_string))
}

/// The page of the reference.
#[cfg(test)]
pub(super) fn page() -> Result<String> {
    let defaults = Table::try_from(Config::default())?;
    let mut text = String::from(include_str!("reference_head.md"));
    for section in sections() {
        write!(
            text,
            "\n## [{}]\n\n{}\n\n",
            section.name,
            plain(section.about)
        )?;
        text.push_str("| key | default | |\n|---|---|---|\n");
        for key in section.keys {
            let default = default_of(&defaults, section.name, key.name)?;
            let default = default.map_or_else(|| "not set".to_owned(), |d| format!("`{d}`"));
            writeln!(
                text,
                "| `{}` | {default} | {} |",
                key.name,
                plain(key.about)
            )?;
        }
        match section.name {
            "auth" => text.push_str(include_str!("reference_keys.md")),
            "limits" => text.push_str(include_str!("reference_tenants.md")),
            _ => {}
        }
    }
    Ok(text)
}

#[cfg(test)]
fn plain(about: &[&str]) -> String {
    let lines: Vec<_> = about.iter().map(|line| line.trim()).collect();
    lines.join(" ").replace('|', "\\|")
}

/// Names of all keys that are described, for the tests.
#[cfg(test)]
pub(super) fn described() -> Vec<(&'static str, &'static str)> {
    let all = sections();
    let keys = all
        .iter()
        .flat_map(|s| s.keys.iter().map(|k| (s.name, k.name)));
    keys.collect()
}

//! Tests of the configuration, its file and its reference page.

use std::path::Path;

use adsum_core::membership::Role;
use adsum_gateway::limits::TenantSettings;

use super::{reference, *};

fn dev() -> Config {
    let mut config = Config::default();
    config.node.dev = true;
    config
}

fn wrong(bend: impl FnOnce(&mut Config)) -> String {
    let mut config = dev();
    bend(&mut config);
    format!("{:#}", config.check().unwrap_err())
}

fn tenant(config: &mut Config, own: TenantSettings) {
    config.tenants.insert(TenantId::new("acme").unwrap(), own);
}

fn parse(text: &str) -> Result<Config, Box<figment::Error>> {
    let figment = Figment::from(Serialized::defaults(Config::default()));
    figment
        .merge(Toml::string(text))
        .extract()
        .map_err(Box::new)
}

#[test]
fn the_defaults_fit_together_and_are_embedded() {
    let config = dev();
    config.check().unwrap();
    assert!(config.embedded());
    assert_eq!(config.settle_ms(), 45_000);
    let edge = config.edge();
    assert_eq!(edge, adsum_gateway::EdgeConfig::default());
    assert_eq!(config.edge_times(), adsum_gateway::EdgeTimes::default());
    assert_eq!(config.store_options(), adsum_store::Options::default());
}

#[test]
fn what_does_not_fit_is_said_with_its_reason() {
    assert!(wrong(|c| c.times.session_ttl_ms = 20_000).contains("one lost beat"));
    assert!(wrong(|c| c.times.holder_ttl_ms = 12_000).contains("two lost renewals"));
    assert!(wrong(|c| c.times.heartbeat_ms = 22_000).contains("back elsewhere"));
    assert!(wrong(|c| c.times.heartbeat_ms = u64::MAX).contains("at least twice"));
    assert!(wrong(|c| c.times.silent_ms = 600).contains("once per poll"));
    assert!(wrong(|c| c.times.stop_ms = 20_000).contains("sends its clients away first"));
    assert!(wrong(|c| c.times.gather_ms = 2_000).contains("before their session is written"));
    assert!(wrong(|c| c.times.stuck_ms = 30_000).contains("before its deadline"));
    assert!(wrong(|c| c.times.header_ms = 0).contains("times.header_ms must be"));
    assert!(wrong(|c| c.bounds.count_above = 5).contains("a room that grows"));
    assert!(wrong(|c| c.redis.urls.push("redis://h".to_owned().into())).contains("neither"));
    assert!(wrong(|c| c.node.roles.clear()).contains("do nothing"));
    assert!(wrong(|c| c.node.roles.truncate(1)).contains("nobody else is there"));
    assert!(wrong(|c| c.node.threads = 2000).contains("node.threads"));
    assert!(wrong(|c| c.feed.ca = Some("ca.pem".into())).contains("belong together"));
    assert!(wrong(|c| c.tls.cert = Some("cert.pem".into())).contains("tls.key"));
    assert!(wrong(|c| c.listen.feed.set_ip([0, 0, 0, 0].into())).contains("plaintext"));
    assert!(wrong(|c| c.limits.frame_bytes = 1).contains("meta can't be sent"));
}

#[test]
fn every_tenant_is_checked_by_itself() {
    let own = |own: TenantSettings| wrong(|c| tenant(c, own));
    let said = own(TenantSettings {
        heartbeat_ms: Some(22_000),
        session_ttl_ms: Some(60_000),
        ..TenantSettings::default()
    });
    assert!(said.starts_with("tenants.acme.heartbeat_ms"), "{said}");
    let said = own(TenantSettings {
        session_ttl_ms: Some(20_000),
        ..TenantSettings::default()
    });
    assert!(
        said.contains("tenants.acme.session_ttl_ms (20000)"),
        "{said}"
    );
    let said = own(TenantSettings {
        message_burst: Some(0),
        ..TenantSettings::default()
    });
    assert!(said.starts_with("tenants.acme: limits"), "{said}");
}

#[test]
fn a_gateway_needs_a_way_in() {
    let said = wrong(|c| c.node.dev = false);
    assert!(
        said.contains("auth.keys") && said.contains("--dev"),
        "{said}"
    );
    let said = wrong(|c| c.listen.public.set_ip([0, 0, 0, 0].into()));
    assert!(said.contains("only from this machine"), "{said}");
    let mut others = Config::default();
    others.node.roles = vec![Role::Dispatcher, Role::Reaper];
    others.redis.urls.push("redis://h".to_owned().into());
    others.etcd.endpoints.push("http://h:2379".to_owned());
    others.check().unwrap();
    let mut open = dev();
    open.listen.public.set_ip([0, 0, 0, 0].into());
    open.auth.jwks = Some("jwks.json".into());
    open.check().unwrap();
}

#[test]
fn the_store_takes_what_the_most_generous_tenant_needs() {
    let mut config = dev();
    let own = TenantSettings {
        session_ttl_ms: Some(300_000),
        retention_ms: Some(u64::MAX),
        rooms_per_session: Some(7000),
        meta_bytes: Some(10),
        ..TenantSettings::default()
    };
    tenant(&mut config, own);
    config.check().unwrap();
    let options = config.store_options();
    assert_eq!(options.settle_ms, 300_000);
    assert_eq!(options.retention_ms, u64::MAX);
    assert_eq!(options.limits.rooms, 7000);
    assert_eq!(options.limits.meta_bytes, 2048);
    assert!(options.max_deadline_ms >= options.settle_ms);
}

#[test]
fn the_default_file_reads_back_as_the_default() {
    let text = default_file().unwrap();
    assert_eq!(parse(&text).unwrap(), Config::default(), "{text}");
    // With every example in force it must still be a configuration.
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if (rest.starts_with('[') && rest.ends_with(']')) || rest.contains(" = ") => {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    let text = text.replace("# keys = []\n", "");
    let all: Vec<_> = text.lines().map(uncommented).collect();
    let config = parse(&all.join("\n")).unwrap_or_else(|e| panic!("{e}\n{}", all.join("\n")));
    assert_eq!(config.auth.keys.len(), 1);
    assert_eq!(config.tenants.len(), 1);
    config.check().unwrap();
}

#[test]
fn the_reference_page_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = reference::page().unwrap();
    if std::env::var_os("ADSUM_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/configuration.md is behind: ADSUM_BLESS=1 cargo test -p adsum reference"
    );
}

#[test]
fn every_key_is_described() {
    let described = reference::described();
    // Filled so that no key is left out for having no value.
    let mut config = parse(&default_file().unwrap().replace("# ca =", "ca =")).unwrap();
    config.auth.jwks = Some("f".into());
    let table = toml::Table::try_from(&config).unwrap();
    for (section, keys) in &table {
        if section == "tenants" {
            continue;
        }
        for key in keys.as_table().unwrap().keys() {
            let found = described.iter().any(|(s, k)| s == section && k == key);
            assert!(found, "{section}.{key} is not in the reference");
        }
    }
    for (section, key) in described {
        let text = format!("[{section}]\n{key} = {{ no = \"value\" }}");
        let said = parse(&text).unwrap_err().to_string();
        assert!(!said.contains("unknown field"), "{section}.{key}: {said}");
    }
}

#[test]
fn unknown_keys_are_refused_and_secrets_are_not_shown() {
    let said = parse("[times]\nlinger = 3").unwrap_err().to_string();
    assert!(said.contains("linger"));
    let mut config = parse("[[auth.keys]]\nalg = \"HS256\"\nsecret = \"hush\"").unwrap();
    config.redis.urls.push("redis://u:hush@h".to_owned().into());
    config.etcd.password = Some("hush".to_owned().into());
    assert!(!format!("{config:?}").contains("hush"));
}

const HUSH: &str = "redis://user:hush-hush@host";

/// A variable, as if it were set.
struct Variable(&'static str, &'static str);

impl Provider for Variable {
    fn metadata(&self) -> figment::Metadata {
        Env::prefixed("ADSUM_").metadata()
    }

    fn data(&self) -> figment::Result<figment::value::Map<figment::Profile, figment::value::Dict>> {
        Serialized::default(self.0, self.1).data()
    }
}

/// What is said of a file and a variable, in both ways to say it.
fn unread(text: &str, variable: Variable) -> String {
    let file = Some((Path::new("adsum.toml"), text));
    let error = Config::merged(file, variable).unwrap_err();
    let (short, long) = (format!("{error}"), format!("{error:#}"));
    for said in [&short, &long, &format!("{error:?}")] {
        assert!(
            !said.contains("hush") && !said.contains("12345678"),
            "{said}"
        );
    }
    assert_eq!(short, long);
    short
}

fn refused(text: &str, says: &[&str]) {
    let said = unread(text, Variable("log.filter", "info"));
    assert!(said.contains("adsum.toml"), "{said}");
    for part in says {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[test]
fn broken_lines_are_named_and_not_shown() {
    let key = "[[auth.keys]]\nalg = \"HS256\"\nsecret = ";
    refused(&format!("{key}\"hush-hush\nkid = \"a\"\n"), &["line 3"]);
    refused(&format!("{key}hush-hush\n"), &["line 3"]);
    refused(&format!("{key}\"hush\" hush\n"), &["line 3"]);
    refused("[etcd]\npassword = 12345678x\n", &["line 2"]);
    refused("[log]\njson = true\njson = true\n", &["json"]);
}

#[test]
fn values_that_do_not_fit_are_named_and_not_shown() {
    let urls = format!("[redis]\nurls = \"{HUSH}\"");
    refused(&urls, &["redis.urls must be a list", "a text"]);
    refused("[auth]\nkeys = \"hush\"", &["auth.keys must be a list"]);
    let password = "[etcd]\npassword = 12345678";
    refused(password, &["etcd.password must be a text", "a number"]);
    refused("redis = \"hush\"", &["redis must be a table"]);
    refused("[times]\nlinger_ms = \"hush\"", &["times.linger_ms"]);
    refused("[cluster]\nshards = 12345678", &["cluster.shards", "65535"]);
    refused("[listen]\npublic = \"hush\"", &["listen.public", "a port"]);
    refused("[node]\nroles = [\"hush\"]", &["node.roles.0", "reaper"]);
    refused(
        "[[auth.keys]]\nalg = \"hush\"",
        &["auth.keys.0.alg", "HS256"],
    );
    refused("[[auth.keys]]\nsecret = \"hush\"", &["alg is missing"]);
    let secret = "[[auth.keys]]\nalg = \"HS256\"\nsecret = [\"hush\"]";
    refused(secret, &["auth.keys.0.secret must be a text"]);
    refused("[times]\nlinger = 3", &["times.linger", "linger_ms"]);
}

#[test]
fn variables_that_do_not_fit_are_named_and_not_shown() {
    let said = unread("", Variable("redis.urls", HUSH));
    assert!(said.contains("the variable ADSUM_REDIS__URLS"), "{said}");
    assert!(said.contains("redis.urls must be a list"), "{said}");
    assert!(!said.contains("adsum.toml"), "{said}");
}

/// With a cluster around it.
fn joined(bend: impl FnOnce(&mut Config)) -> String {
    wrong(|c| {
        c.redis.urls = vec![HUSH.to_owned().into()];
        c.etcd.endpoints = vec!["http://etcd:2379".to_owned()];
        bend(c);
    })
}

#[test]
fn what_leads_nowhere_is_refused() {
    let said = joined(|c| c.redis.urls.push("http://user:hush@host".to_owned().into()));
    assert!(said.contains("redis.urls: number 2"), "{said}");
    assert!(!said.contains("hush"), "{said}");
    assert!(joined(|c| c.redis.urls = vec!["redis://".to_owned().into()]).contains("number 1"));
    for endpoint in [
        "ftp://user:hush@etcd",
        "http://",
        "https://user:hush@etcd",
        "",
    ] {
        let said = joined(|c| c.etcd.endpoints.push(endpoint.to_owned()));
        assert!(said.contains("etcd.endpoints: number 2"), "{said}");
        assert!(!said.contains("hush"), "{said}");
    }
    assert!(joined(|c| c.etcd.ca = Some("f".into())).contains("in plain text"));
    assert!(joined(|c| c.etcd.user = Some("u".into())).contains("etcd.user and password"));
    assert!(joined(|c| c.times.lease_ttl_ms = u64::MAX).contains("lease_ttl_ms"));
    assert!(joined(|c| c.cluster.name = "a/b".into()).contains("cluster.name must not"));
    assert!(joined(|c| c.listen.feed.set_port(8080)).contains("listen.feed"));
}

#[test]
fn names_ports_and_bounds_must_be_usable() {
    assert!(wrong(|c| c.cluster.name.clear()).contains("cluster.name must not be empty"));
    for name in ["a/b", "a\nb", &"x".repeat(97)] {
        let said = wrong(|c| c.node.name = name.to_owned());
        assert!(said.starts_with("node.name must"), "{said}");
    }
    let said = wrong(|c| c.listen.internal = c.listen.public);
    assert!(said.contains("different ports"), "{said}");
    let said = wrong(|c| c.listen.internal = ([0, 0, 0, 0], 8080).into());
    assert!(said.contains("different ports"), "{said}");
    assert!(wrong(|c| c.bounds.log_len = 0).contains("bounds.log_len"));
    assert!(wrong(|c| c.bounds.feed_queue = 0).contains("bounds.feed_queue"));
    assert!(wrong(|c| c.bounds.feed_replicas = 0).contains("bounds.feed_replicas"));
    assert!(wrong(|c| c.log.filter = "adsum=loud=x".into()).contains("log.filter"));
    // The system chooses, or nobody meets.
    let mut config = dev();
    config.listen.public.set_port(0);
    config.listen.internal.set_port(0);
    config.check().unwrap();
    config.listen.public = ([127, 0, 0, 2], 8080).into();
    config.listen.internal = ([127, 0, 0, 1], 8080).into();
    config.check().unwrap();
}

#[test]
fn what_needs_a_restart_is_named() {
    let old = dev();
    let mut new = dev();
    new.times.linger_ms = 1;
    new.limits.contacts = 1;
    tenant(&mut new, TenantSettings::default());
    new.tls.cert = Some("f".into());
    assert!(fixed_differences(&old, &new).unwrap().is_empty());
    new.times.renew_ms = 1;
    new.auth.audience.push("a".into());
    new.listen.public.set_port(1);
    let named = fixed_differences(&old, &new).unwrap();
    assert_eq!(named, ["auth.audience", "listen.public", "times.renew_ms"]);
}

//! How to reach etcd. Checked before the first call, so that a mistake is a sentence and not a
//! time-out.

use std::{fmt, fs, path::Path, path::PathBuf, time::Duration};

use adsum_core::membership::MembershipError;
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use crate::profile::check_word;

/// Below the 5 s that etcd allows, it closes the connection ("too many pings").
const HTTP2_KEEPALIVE: Duration = Duration::from_secs(6);
const HTTP2_KEEPALIVE_LIMIT: Duration = Duration::from_secs(3);

/// Longer waits are a mistake of units.
const LONGEST: Duration = Duration::from_secs(60 * 60);
const LONGEST_CLUSTER: usize = 128;

/// How to reach etcd, and how patient to be.
#[derive(Clone)]
pub struct EtcdConfig {
    /// One URL per etcd node, `http://host:2379`; without a scheme it follows `tls`.
    pub endpoints: Vec<String>,
    /// The cluster's name in etcd.
    pub cluster: String,
    /// How long a silent node stays a member. etcd counts whole seconds, and grants at least one
    /// and a half election time-outs.
    pub lease_ttl: Duration,
    /// The time a call has, all attempts at all endpoints together.
    pub timeout: Duration,
    /// The time all of etcd has to answer at start.
    pub connect_timeout: Duration,
    /// How often to check that the watch has missed nothing.
    pub check_interval: Duration,
    /// The user, if etcd asks for one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// For `https`.
    pub tls: Option<EtcdTls>,
}

/// The files of a TLS connection, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdTls {
    /// Whom to trust.
    pub ca: PathBuf,
    /// This client's certificate, if etcd asks for one, and its key.
    pub cert: Option<PathBuf>,
    /// The key of `cert`.
    pub key: Option<PathBuf>,
    /// The name to expect in etcd's certificate, if it is not the endpoint's host.
    pub domain: Option<String>,
}

impl EtcdConfig {
    /// The defaults, for these endpoints and this cluster.
    #[must_use]
    pub fn new(endpoints: Vec<String>, cluster: impl Into<String>) -> Self {
        Self {
            endpoints,
            cluster: cluster.into(),
            lease_ttl: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(10),
            check_interval: Duration::from_secs(2),
            user: None,
            password: None,
            tls: None,
        }
    }

    /// Whether a cluster can have this name.
    ///
    /// # Errors
    /// Says what it must be.
    pub fn check_cluster(name: &str) -> Result<(), String> {
        check_word(name, LONGEST_CLUSTER)
    }

    /// Checks all of it, and calls nobody.
    ///
    /// # Errors
    /// Says which field does not fit, and why it must. Endpoints are told by their place: they may
    /// carry a password.
    pub fn check(&self) -> Result<(), String> {
        Self::check_cluster(&self.cluster).map_err(|why| format!("cluster {why}"))?;
        if self.endpoints.is_empty() {
            return Err("endpoints must not be empty: they say where etcd is".to_owned());
        }
        for (place, endpoint) in self.endpoints.iter().enumerate() {
            self.check_endpoint(endpoint)
                .map_err(|why| format!("endpoints: number {} {why}", place + 1))?;
        }
        if self.lease_ttl < Duration::from_secs(1) || self.lease_ttl > LONGEST {
            return Err(format!(
                "lease_ttl must be between 1 s, the least that etcd can count, and {} s: for so \
                 long a dead node would be taken for a live one",
                LONGEST.as_secs()
            ));
        }
        let waits = [self.timeout, self.connect_timeout, self.check_interval];
        if waits.iter().any(|w| w.is_zero() || *w > LONGEST) {
            return Err(format!(
                "timeout, connect_timeout and check_interval must be above nothing, and at most \
                 {} s",
                LONGEST.as_secs()
            ));
        }
        if self.user.is_some() != self.password.is_some() {
            return Err("user and password belong together".to_owned());
        }
        match &self.tls {
            Some(tls) if tls.cert.is_some() != tls.key.is_some() => {
                Err("cert and key belong together".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<(), &'static str> {
        let (scheme, server) = match endpoint.split_once("://") {
            Some((scheme, server)) => (Some(scheme), server),
            None => (None, endpoint),
        };
        match (scheme, self.tls.is_some()) {
            _ if server.is_empty() => Err("must name a server"),
            (None, _) | (Some("http"), false) | (Some("https"), true) => Ok(()),
            (Some("http"), true) => Err(
                "must begin with https://: there is an authority to trust (ca), so nothing may go \
                 there in plain text",
            ),
            (Some("https"), false) => {
                Err("begins with https://, and somebody must be trusted to vouch for it: name a ca")
            }
            (Some(_), _) => Err("must begin with http:// or https://"),
        }
    }

    /// The endpoints with their scheme, after a check of everything.
    pub(crate) fn urls(&self) -> Result<Vec<String>, MembershipError> {
        self.check().map_err(MembershipError::Refused)?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = |endpoint: &String| match endpoint.contains("://") {
            true => endpoint.clone(),
            false => format!("{scheme}://{endpoint}"),
        };
        Ok(self.endpoints.iter().map(url).collect())
    }

    /// Seconds, rounded up: a node is never thought dead earlier than was asked for.
    pub(crate) fn ttl_seconds(&self) -> i64 {
        let seconds = self.lease_ttl.as_millis().div_ceil(1000);
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }

    /// What the client of one endpoint is made with. Reads the files of TLS.
    pub(crate) fn options(&self) -> Result<ConnectOptions, MembershipError> {
        let mut options = ConnectOptions::new()
            .with_keep_alive(HTTP2_KEEPALIVE, HTTP2_KEEPALIVE_LIMIT)
            // etcd counts pings on an idle connection as an offence.
            .with_keep_alive_while_idle(false)
            .with_connect_timeout(self.timeout)
            // A node cut off from the others must say so instead of keeping a watch silent.
            .with_require_leader(true);
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            options = options.with_user(user, password);
        }
        match &self.tls {
            Some(tls) => Ok(options.with_tls(tls.load()?)),
            None => Ok(options),
        }
    }
}

impl EtcdTls {
    fn load(&self) -> Result<TlsOptions, MembershipError> {
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&self.ca)?));
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(match &self.domain {
            Some(domain) => tls.domain_name(domain),
            None => tls,
        })
    }
}

/// Says everything but the password.
impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("cluster", &self.cluster)
            .field("lease_ttl", &self.lease_ttl)
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("check_interval", &self.check_interval)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("tls", &self.tls)
            .finish()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, MembershipError> {
    fs::read(path)
        .map_err(|e| MembershipError::Refused(format!("{} can't be read: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EtcdConfig {
        EtcdConfig::new(vec!["etcd:2379".into()], "main")
    }

    #[test]
    fn the_scheme_follows_tls() {
        assert_eq!(config().urls().unwrap(), ["http://etcd:2379"]);
        let tls = EtcdConfig {
            tls: Some(EtcdTls::default()),
            ..config()
        };
        assert_eq!(tls.urls().unwrap(), ["https://etcd:2379"]);
        let mixed = EtcdConfig {
            endpoints: vec!["https://etcd".into()],
            ..config()
        };
        assert!(mixed.urls().unwrap_err().to_string().contains("name a ca"));
    }

    #[test]
    fn mistakes_are_refused() {
        let mistakes = [
            EtcdConfig {
                endpoints: vec![],
                ..config()
            },
            EtcdConfig {
                endpoints: vec!["ftp://etcd".into()],
                ..config()
            },
            EtcdConfig {
                endpoints: vec!["http://".into()],
                ..config()
            },
            EtcdConfig {
                cluster: "a/b".into(),
                ..config()
            },
            EtcdConfig {
                lease_ttl: Duration::from_millis(900),
                ..config()
            },
            EtcdConfig {
                timeout: Duration::ZERO,
                ..config()
            },
            EtcdConfig {
                lease_ttl: Duration::MAX,
                ..config()
            },
            EtcdConfig {
                user: Some("root".into()),
                ..config()
            },
            EtcdConfig {
                tls: Some(EtcdTls {
                    cert: Some("cert.pem".into()),
                    ..EtcdTls::default()
                }),
                ..config()
            },
        ];
        for mistake in mistakes {
            assert!(!mistake.urls().unwrap_err().retry(), "{mistake:?}");
        }
        let lost = EtcdConfig {
            tls: Some(EtcdTls {
                ca: "/none".into(),
                ..EtcdTls::default()
            }),
            ..config()
        };
        assert!(
            lost.options()
                .unwrap_err()
                .to_string()
                .contains("/none can't be read")
        );
    }

    #[test]
    fn debug_hides_the_password() {
        let config = EtcdConfig {
            user: Some("adsum".into()),
            password: Some("hunter2".into()),
            ..config()
        };
        let text = format!("{config:?}");
        assert!(text.contains("adsum") && !text.contains("hunter2"));
    }
}

//! One Redis without a cluster, with or without a password.

use std::ops::Deref;

use anyhow::Result;

use super::process::RedisProcess;
use crate::ports::Ports;
use crate::temp::TestDir;

/// Who may talk to a server.
#[derive(Clone, Debug, Default)]
pub enum Auth {
    /// Everybody.
    #[default]
    Open,
    /// Who knows the password of the default user (`requirepass`).
    Password(String),
    /// One user of the access control list; the default user is off.
    User {
        /// The user's name.
        name: String,
        /// The user's password.
        password: String,
    },
}

impl Auth {
    pub(super) fn config(&self) -> String {
        match self {
            Self::Open => String::new(),
            Self::Password(password) => format!("requirepass {password}\n"),
            Self::User { name, password } => {
                format!("user default off\nuser {name} on >{password} ~* &* +@all\n")
            }
        }
    }

    pub(super) fn url(&self, port: u16) -> String {
        match self {
            Self::Open => format!("redis://127.0.0.1:{port}"),
            Self::Password(password) => format!("redis://:{password}@127.0.0.1:{port}"),
            Self::User { name, password } => format!("redis://{name}:{password}@127.0.0.1:{port}"),
        }
    }
}

/// How to start a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Who may talk to it. Names and passwords go into a URL as they are.
    pub auth: Auth,
    /// Whether it keeps an append-only file, and with it its data over a restart.
    pub append_only: bool,
}

/// One Redis without a cluster. Dropped, it is killed.
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    process: RedisProcess,
    // Dropped after the process that uses them.
    _ports: Ports,
    _dir: TestDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub async fn start(options: ServerOptions) -> Result<Self> {
        let (dir, ports) = (TestDir::new("redis")?, Ports::default());
        let port = ports.take()?;
        let url = options.auth.url(port);
        let settings = [append_only(options.append_only)];
        let process = RedisProcess::start(dir.path(), port, options.auth, &settings, None).await?;
        Ok(Self {
            url,
            process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// Where clients connect, credentials included.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Deref for RedisServer {
    type Target = RedisProcess;

    fn deref(&self) -> &RedisProcess {
        &self.process
    }
}

pub(super) fn append_only(wanted: bool) -> (&'static str, String) {
    ("appendonly", yes_no(wanted))
}

pub(super) fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

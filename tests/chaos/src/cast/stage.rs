//! Where a cast plays: the doors it comes in by, and who lets it in.

use std::{fmt, net::SocketAddr, sync::Arc};

use serde_json::json;

use crate::times::Times;

/// A gateway as clients know it, or what stands before several.
#[derive(Debug, Clone)]
pub struct Gate {
    /// What the history calls it.
    pub name: String,
    /// Where clients connect.
    pub address: SocketAddr,
}

/// A cluster as a cast knows it.
#[derive(Debug)]
pub struct Stage {
    /// The tenant of everybody.
    pub tenant: String,
    /// All ways in.
    pub gates: Vec<Gate>,
    /// How many shards users are spread over.
    pub shards: u16,
    /// How fast everything is.
    pub times: Times,
    /// Makes tokens.
    pub passes: Passes,
}

/// Whom a token is for.
#[derive(Debug, Clone, Copy)]
pub struct Bearer<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The user; without one it is a service.
    pub user: Option<&'a str>,
    /// A service that sees everybody.
    pub all: bool,
}

type Make = dyn Fn(Bearer<'_>) -> String + Send + Sync;

/// Makes tokens that the cluster takes.
#[derive(Clone)]
pub struct Passes(Arc<Make>);

impl Passes {
    /// Made by this.
    pub fn by(make: impl Fn(Bearer<'_>) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Unsigned, as nodes for developers take them.
    #[must_use]
    pub fn unsigned() -> Self {
        Self::by(|bearer| match bearer.user {
            Some(user) => format!("dev:{}:{user}", bearer.tenant),
            None => {
                let mut service =
                    json!({"tenant": bearer.tenant, "role": "service", "watch": ["*"]});
                if bearer.all {
                    service["see"] = "all".into();
                }
                service.to_string()
            }
        })
    }

    pub(super) fn make(&self, bearer: Bearer<'_>) -> String {
        (self.0)(bearer)
    }
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passes")
    }
}

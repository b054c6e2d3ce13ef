//! Requests: everything that is asked once and answered once, whatever the door. The doors turn
//! what came in into the words of core, call here, and spell the answer in their own way.
//!
//! Below: `reads` (persons and last seen, from the store), `members` (topics, from the feed),
//! `prefs`, `beats` and `sessions` (writes), `rates` (how often), `patience` (the store's pauses).

mod beats;
mod members;
mod patience;
mod prefs;
mod rates;
mod reads;
mod sessions;

#[cfg(test)]
#[path = "../../tests/requests/mod.rs"]
mod tests;

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicU64},
};

use adsum_core::{UserId, UserKey};
use adsum_proto::client::Fault;

use crate::{Caller, Edge, EdgeError, auth::Role};

pub(crate) use beats::Beaten;
pub(crate) use members::{Counted, Page, PageToken};
pub(crate) use reads::Sighting;

/// The longest body or message that names many users, beats or contacts, whatever the tenant's
/// `frame_bytes`: 5,000 ids of 128 bytes, or 1,000 beats of 4 KiB.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

type Result<T> = std::result::Result<T, EdgeError>;

/// Answers requests. Clones are the same one: doors that share it share its rates.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Inner>);

struct Inner {
    edge: Edge,
    rates: rates::Rates,
    /// The last number that was given to a beat without one.
    rev: AtomicU64,
}

impl From<Edge> for Requests {
    fn from(edge: Edge) -> Self {
        Self(Arc::new(Inner {
            edge,
            rates: rates::Rates::default(),
            rev: AtomicU64::new(0),
        }))
    }
}

impl Requests {
    pub(crate) fn edge(&self) -> &Edge {
        &self.0.edge
    }

    /// Who is calling, if their token is good and they do not ask too often. To be called once
    /// for each request, before anything else.
    pub(crate) fn admit(&self, token: Option<&str>, peer: IpAddr) -> Result<Caller> {
        let caller = self.edge().caller(token, peer)?;
        self.0.rates.take(&caller)?;
        Ok(caller)
    }

    pub(crate) fn check_users(&self, count: usize) -> Result<()> {
        let limit = self.edge().config().users_per_request;
        if count > limit {
            return Err(EdgeError::new(
                adsum_proto::client::Code::TooManyUsers,
                format!("{count} in one request: at most {limit} are allowed"),
            ));
        }
        Ok(())
    }
}

/// Whose session or preference is meant: the caller's own, unless a service names somebody.
fn whose(caller: &Caller, user: Option<UserId>) -> Result<UserKey> {
    let identity = &caller.identity;
    let user = match user {
        None => identity.user.clone().ok_or(Fault::Missing("user"))?,
        Some(user) if identity.role == Role::Service || identity.user.as_ref() == Some(&user) => {
            user
        }
        Some(_) => return Err(EdgeError::forbidden("only services may name another user")),
    };
    Ok(UserKey::new(identity.tenant.clone(), user))
}

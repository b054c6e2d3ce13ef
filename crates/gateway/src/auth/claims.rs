//! The claims of a token, and the identity they make.
//!
//! | claim | meaning |
//! |---|---|
//! | `tenant` | required |
//! | `sub` | the user; required unless `role` is `service` |
//! | `role` | `user` (default) or `service` |
//! | `exp` | required; `nbf`, `aud`, `iss` as configured |
//! | `rooms` | room ids, taken literally, that may be joined and watched |
//! | `join` | patterns of more rooms that may be joined; none by default |
//! | `watch` | patterns of topics that may be watched. By default: all users (their visibility decides what is seen), and the rooms of `join`; not the tenant. A list replaces that default |
//! | `see` | `all`: a service that sees everybody |
//!
//! Rooms of `rooms` and the caller's own user may always be watched. Claims we don't know are
//! ignored.

use adsum_core::{RoomId, TenantId, UserId};
use serde::Deserialize;
use serde_json::Value;

use super::{AuthError, Identity, Patterns, Role, TopicPatterns, patterns::BadPattern};

/// Claims as they came: any JSON, so that what is wrong can be named without being shown.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(super) struct Claims {
    sub: Value,
    tenant: Value,
    role: Value,
    rooms: Value,
    join: Value,
    watch: Value,
    see: Value,
    exp: Value,
    nbf: Value,
    aud: Value,
    iss: Value,
}

fn wrong(claim: &'static str, problem: &'static str) -> AuthError {
    AuthError::Claim { claim, problem }
}

impl Claims {
    pub(super) fn parse(json: &[u8]) -> Result<Self, AuthError> {
        serde_json::from_slice(json)
            .map_err(|_| AuthError::Malformed("its claims are not a JSON object"))
    }

    /// Refuses what is not valid now. Answers when it ends, in ms, if it says so.
    pub(super) fn check_times(
        &self,
        now_ms: u64,
        leeway_ms: u64,
    ) -> Result<Option<u64>, AuthError> {
        let exp = millis("exp", &self.exp)?;
        if exp.is_some_and(|exp| exp <= now_ms) {
            return Err(AuthError::Expired);
        }
        let nbf = millis("nbf", &self.nbf)?;
        if nbf.is_some_and(|nbf| nbf > now_ms.saturating_add(leeway_ms)) {
            return Err(AuthError::NotYetValid);
        }
        Ok(exp)
    }

    /// Refuses tokens for other audiences and from other issuers; empty lists ask for nothing.
    pub(super) fn check_parties(
        &self,
        audience: &[String],
        issuer: &[String],
    ) -> Result<(), AuthError> {
        let named = match &self.aud {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let is_in = |value: &Value, list: &[String]| {
            value.as_str().is_some_and(|v| list.iter().any(|l| l == v))
        };
        if !audience.is_empty() && !named.iter().any(|aud| is_in(aud, audience)) {
            return Err(AuthError::Audience);
        }
        if !issuer.is_empty() && !is_in(&self.iss, issuer) {
            return Err(AuthError::Issuer);
        }
        Ok(())
    }

    pub(super) fn identity(&self, expires_at_ms: u64) -> Result<Identity, AuthError> {
        let id = |claim, error| AuthError::ClaimId { claim, error };
        let tenant = text("tenant", &self.tenant)?.ok_or(wrong("tenant", "is missing"))?;
        let tenant = TenantId::new(tenant).map_err(|e| id("tenant", e))?;
        let user = text("sub", &self.sub)?;
        let user = user
            .map(UserId::new)
            .transpose()
            .map_err(|e| id("sub", e))?;
        let role = match text("role", &self.role)? {
            None | Some("user") => Role::User,
            Some("service") => Role::Service,
            Some(_) => return Err(wrong("role", "must be user or service")),
        };
        if role == Role::User && user.is_none() {
            return Err(wrong("sub", "is missing: only services need no user"));
        }
        let see_all = match (text("see", &self.see)?, role) {
            (None, _) => false,
            (Some("all"), Role::Service) => true,
            (Some("all"), Role::User) => return Err(wrong("see", "is for services")),
            (Some(_), _) => return Err(wrong("see", "must be all")),
        };
        let (join, watch) = self.permissions()?;
        Ok(Identity {
            tenant,
            user,
            role,
            join,
            watch,
            see_all,
            expires_at_ms,
        })
    }

    fn permissions(&self) -> Result<(Patterns, TopicPatterns), AuthError> {
        let mut join = Patterns::default();
        for pattern in list("join", &self.join)?.unwrap_or_default() {
            let added = join.add_rooms(pattern);
            added.map_err(|error| AuthError::ClaimId {
                claim: "join",
                error,
            })?;
        }
        let mut rooms = Patterns::default();
        for room in list("rooms", &self.rooms)?.unwrap_or_default() {
            RoomId::new(room).map_err(|error| AuthError::ClaimId {
                claim: "rooms",
                error,
            })?;
            rooms.add_exact(room);
        }
        let mut watch = match list("watch", &self.watch)? {
            Some(patterns) => topics(&patterns)?,
            None => TopicPatterns {
                rooms: join.clone(),
                users: Patterns::all(),
                tenant: false,
            },
        };
        join.extend(&rooms);
        watch.rooms.extend(&rooms);
        Ok((join, watch))
    }
}

fn topics(patterns: &[&str]) -> Result<TopicPatterns, AuthError> {
    let mut topics = TopicPatterns::default();
    for pattern in patterns {
        topics.add(pattern).map_err(|bad| match bad {
            BadPattern::Spelling => wrong("watch", "takes room:…, user:…, tenant and *"),
            BadPattern::Id(error) => AuthError::ClaimId {
                claim: "watch",
                error,
            },
        })?;
    }
    Ok(topics)
}

fn text<'v>(claim: &'static str, value: &'v Value) -> Result<Option<&'v str>, AuthError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(wrong(claim, "must be a text")),
    }
}

fn list<'v>(claim: &'static str, value: &'v Value) -> Result<Option<Vec<&'v str>>, AuthError> {
    let bad = || wrong(claim, "must be a list of texts");
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => {
            let texts = items.iter().map(|i| i.as_str().ok_or_else(bad));
            texts.collect::<Result<_, _>>().map(Some)
        }
        _ => Err(bad()),
    }
}

/// Seconds, maybe with a fraction (RFC 7519 allows it), as ms.
fn millis(claim: &'static str, value: &Value) -> Result<Option<u64>, AuthError> {
    if value.is_null() {
        return Ok(None);
    }
    if let Some(seconds) = value.as_u64() {
        return Ok(Some(seconds.saturating_mul(1000)));
    }
    let seconds = value.as_f64().filter(|s| *s >= 0.0);
    let seconds = seconds.ok_or(wrong(claim, "must be a time in seconds since 1970"))?;
    // Casts from floats saturate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(Some((seconds * 1000.0) as u64))
}

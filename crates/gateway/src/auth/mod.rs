//! Who is calling, and what they may do: tokens in, identities out.
//!
//! [`Authenticator::authenticate`] is all that a transport needs. Below it: `keys` (which key, and
//! how keys are replaced), `token` (signatures), `claims` (what a token says; its table is the
//! reference for issuers), `patterns` and `identity` (what it allows).

mod claims;
mod config;
mod crypto;
mod error;
mod identity;
mod jwks;
mod key;
mod keys;
mod mint;
mod patterns;
mod token;

#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc};

use axum::http::{HeaderMap, HeaderValue, header};

pub use config::{Alg, AuthConfig, KeyConfig};
pub use error::{AuthError, KeyError};
pub use identity::{Changes, Identity, Role};
pub use keys::Keys;
pub use mint::{NewClaims, mint};
pub use patterns::{Patterns, TopicPatterns};

use claims::Claims;

/// How long an unsigned identity lasts if it doesn't say.
const DEV_LASTS_MS: u64 = 24 * 60 * 60 * 1000;

/// Turns tokens into identities.
#[derive(Debug, Clone)]
pub struct Authenticator {
    keys: Arc<Keys>,
    audience: Vec<String>,
    issuer: Vec<String>,
    leeway_ms: u64,
    dev: bool,
}

impl Authenticator {
    /// With `dev`, callers on this machine may also say who they are without a signature.
    ///
    /// # Errors
    /// When there are no keys, and without `dev` nobody could come in.
    pub fn new(keys: Arc<Keys>, config: &AuthConfig, dev: bool) -> Result<Self, KeyError> {
        if keys.is_empty() && !dev {
            return Err(KeyError::NoKeys);
        }
        Ok(Self {
            keys,
            audience: config.audience.clone(),
            issuer: config.issuer.clone(),
            leeway_ms: config.leeway_ms,
            dev,
        })
    }

    /// The caller behind a token. `peer` is the other end of the connection itself, never what a
    /// header claims it to be.
    ///
    /// # Errors
    /// Says which rule the token breaks.
    pub fn authenticate(
        &self,
        token: &str,
        peer: IpAddr,
        now_ms: u64,
    ) -> Result<Identity, AuthError> {
        if token.starts_with("dev:") || token.starts_with('{') {
            return self.unsigned(token, peer, now_ms);
        }
        let (json, key_tenant) = self.keys.verify(token)?;
        let claims = Claims::parse(&json)?;
        let exp = claims.check_times(now_ms, self.leeway_ms)?;
        let exp = exp.ok_or(AuthError::Claim {
            claim: "exp",
            problem: "is missing",
        })?;
        claims.check_parties(&self.audience, &self.issuer)?;
        let identity = claims.identity(exp)?;
        if key_tenant.is_some_and(|tenant| tenant != identity.tenant) {
            return Err(AuthError::Tenant);
        }
        Ok(identity)
    }

    /// `dev:<tenant>:<user>`, who may do everything that users may; or claims as JSON, which mean
    /// what they mean in a token, so that permissions can be tried.
    fn unsigned(&self, token: &str, peer: IpAddr, now_ms: u64) -> Result<Identity, AuthError> {
        // `::ffff:127.0.0.1` is this machine as well.
        if !self.dev || !peer.to_canonical().is_loopback() {
            return Err(AuthError::Unsigned);
        }
        if token.len() > token::TOKEN_MAX {
            return Err(AuthError::Malformed("it has more than 16 KiB"));
        }
        let lasts_until = now_ms.saturating_add(DEV_LASTS_MS);
        let Some(names) = token.strip_prefix("dev:") else {
            let claims = Claims::parse(token.as_bytes())?;
            let exp = claims.check_times(now_ms, self.leeway_ms)?;
            return claims.identity(exp.unwrap_or(lasts_until));
        };
        let (tenant, user) = names
            .split_once(':')
            .ok_or(AuthError::Malformed("it needs dev:<tenant>:<user>"))?;
        let id = |claim| move |error| AuthError::ClaimId { claim, error };
        Ok(Identity {
            tenant: adsum_core::TenantId::new(tenant).map_err(id("tenant"))?,
            user: Some(adsum_core::UserId::new(user).map_err(id("sub"))?),
            role: Role::User,
            join: Patterns::all(),
            watch: TopicPatterns::all(),
            see_all: false,
            expires_at_ms: lasts_until,
        })
    }
}

/// The token of a head.
///
/// # Errors
/// When there is none, or one of another scheme, or two: each could be meant.
pub fn token_of(headers: &HeaderMap) -> Result<&str, AuthError> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let first = all.next().map(HeaderValue::to_str);
    if all.next().is_some() {
        return Err(AuthError::Malformed("the header comes twice"));
    }
    let garbled = |_| AuthError::Malformed("the header is not plain text");
    bearer(first.transpose().map_err(garbled)?)
}

fn bearer(header: Option<&str>) -> Result<&str, AuthError> {
    let header = header.ok_or(AuthError::Missing)?.trim();
    let (scheme, token) = header.split_once(' ').unwrap_or((header, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::Malformed("the scheme must be Bearer"));
    }
    match token.trim() {
        "" => Err(AuthError::Missing),
        token => Ok(token),
    }
}

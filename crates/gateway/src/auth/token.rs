//! A token taken apart. Nothing in it is believed before its signature is right, and of its
//! header only `alg` and `kid` are read: keys that a token brings along (`jwk`, `jku`, `x5c`) are
//! an attacker's.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::crypto;
use serde::Deserialize;
use serde_json::Value;

use super::{Alg, AuthError, key::Key};

/// Longer ones are refused unread. Rooms by the hundred fit.
pub(super) const TOKEN_MAX: usize = 16 * 1024;

pub(super) struct Token<'a> {
    pub(super) alg: Alg,
    pub(super) kid: Option<String>,
    /// Header and claims as they were signed.
    message: &'a str,
    claims: &'a str,
    signature: &'a str,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

impl<'a> Token<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, AuthError> {
        if token.is_empty() {
            return Err(AuthError::Missing);
        }
        if token.len() > TOKEN_MAX {
            return Err(AuthError::Malformed("it has more than 16 KiB"));
        }
        let parts = "it needs three parts: header.claims.signature";
        let (message, signature) = token.rsplit_once('.').ok_or(AuthError::Malformed(parts))?;
        let (header, claims) = message.split_once('.').ok_or(AuthError::Malformed(parts))?;
        if claims.contains('.') {
            return Err(AuthError::Malformed(parts));
        }
        let header: Header = URL_SAFE_NO_PAD
            .decode(header)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok())
            .ok_or(AuthError::Malformed("its header is not JSON in base64url"))?;
        // RFC 7515: extensions that must be understood, and are not, refuse the token.
        if header.crit.is_some() {
            return Err(AuthError::Malformed("its header has crit"));
        }
        Ok(Self {
            alg: Alg::from_name(&header.alg).ok_or(AuthError::Algorithm)?,
            kid: header.kid,
            message,
            claims,
            signature,
        })
    }

    /// The claims as JSON, if the key signed them.
    pub(super) fn verified_claims(&self, key: &Key) -> Result<Vec<u8>, AuthError> {
        let message = self.message.as_bytes();
        let right = crypto::verify(self.signature, message, &key.key, key.alg.of_jwt())
            .map_err(|_| AuthError::Signature)?;
        if !right {
            return Err(AuthError::Signature);
        }
        URL_SAFE_NO_PAD
            .decode(self.claims)
            .map_err(|_| AuthError::Malformed("its claims are not base64url"))
    }
}

//! Making tokens: for development and tests. In production the customer's own issuer does.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use super::{KeyError, Role, crypto, key::check_secret};

/// What a minted token says. The claims are explained in `claims.rs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NewClaims {
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// The tenant.
    pub tenant: String,
    /// What kind of caller.
    pub role: Role,
    /// Rooms that may be joined and watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rooms: Option<Vec<String>>,
    /// Patterns of rooms that may be joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<Vec<String>>,
    /// Patterns of topics that may be watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Vec<String>>,
    /// `all` for services that see everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
    /// Whom the token is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<String>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// From when it is valid, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// When it ends, in seconds since 1970.
    pub exp: u64,
}

/// A token signed with HS256.
///
/// # Errors
/// When the secret is shorter than 32 bytes.
pub fn mint(claims: &NewClaims, secret: &[u8], kid: Option<&str>) -> Result<String, KeyError> {
    crypto::install();
    check_secret(secret, kid.unwrap_or("for minting"))?;
    let mut header = Header::new(Algorithm::HS256);
    header.kid = kid.map(str::to_owned);
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_secret(secret))
        .map_err(|_| KeyError::Sign)
}

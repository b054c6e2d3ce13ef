//! What authentication can be told.

use std::{fmt, path::PathBuf};

use adsum_core::TenantId;
use serde::{Deserialize, Serialize};

/// Keys, and what a token must say besides being signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Keys given one by one.
    pub keys: Vec<KeyConfig>,
    /// A JWKS file with more keys. Read again when it changes.
    pub jwks: Option<PathBuf>,
    /// `aud` must name one of these. None: `aud` is not looked at.
    pub audience: Vec<String>,
    /// `iss` must be one of these. None: `iss` is not looked at.
    pub issuer: Vec<String>,
    /// How far an issuer's clock may be ahead of ours before `nbf` refuses its tokens. `exp` has
    /// no leeway: it is when the connection is closed, too.
    pub leeway_ms: u64,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            jwks: None,
            audience: Vec::new(),
            issuer: Vec::new(),
            leeway_ms: 10_000,
        }
    }
}

/// One key: HS256 with a `secret` or a `file` of it, the others with a `file` of the public key
/// (PEM).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// What tokens call the key. Without one it is the key of its algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    /// The only algorithm the key is good for.
    pub alg: Alg,
    /// The secret itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Where the secret or the public key is. Read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The only tenant that the key speaks for. None: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

impl fmt::Debug for KeyConfig {
    // Configurations get logged; secrets must not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyConfig")
            .field("kid", &self.kid)
            .field("alg", &self.alg)
            .field("secret", &self.secret.as_ref().map(|_| "[redacted]"))
            .field("file", &self.file)
            .field("tenant", &self.tenant)
            .finish()
    }
}

/// The algorithms there are. `none` is not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alg {
    /// A shared secret.
    #[serde(rename = "HS256")]
    Hs256,
    /// RSA, PKCS#1 v1.5, of 2048 bits or more.
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA on P-256.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Alg {
    /// By the exact name that headers and JWKs use.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }

    pub(super) fn of_jwt(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::Hs256 => jsonwebtoken::Algorithm::HS256,
            Self::Rs256 => jsonwebtoken::Algorithm::RS256,
            Self::Es256 => jsonwebtoken::Algorithm::ES256,
            Self::EdDsa => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

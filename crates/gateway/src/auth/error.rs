//! Why a token or a key is refused. Codes are part of the protocol; messages name rules, never
//! the token, its claims or a secret.

use std::path::PathBuf;

use adsum_core::IdError;
use adsum_telemetry::metrics::Refusal;

/// Why a caller is not who they say they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No token was given.
    #[error("a token is required")]
    Missing,
    /// Not three base64url parts with a JSON header and JSON claims.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// An algorithm that no key has, that is not the key's own, or none at all.
    #[error("the token's algorithm is not the one of its key (HS256, RS256, ES256 or EdDSA)")]
    Algorithm,
    /// No key has the token's `kid`, or several could be meant.
    #[error("no key here can be chosen for the token: its kid is unknown, or missing")]
    UnknownKey,
    /// The signature is not the key's.
    #[error("the token's signature is wrong")]
    Signature,
    /// `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is yet to come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `aud` names none of the configured audiences.
    #[error("the token is for another audience")]
    Audience,
    /// `iss` is none of the configured issuers.
    #[error("the token is from another issuer")]
    Issuer,
    /// A claim is missing or means nothing.
    #[error("the token's claim {claim} {problem}")]
    Claim {
        /// The claim's name.
        claim: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A claim names an id that is none.
    #[error("the token's claim {claim} has a bad id: {error}")]
    ClaimId {
        /// The claim's name.
        claim: &'static str,
        /// What is wrong with the id.
        error: IdError,
    },
    /// A key that speaks for another tenant, or a refresh from another tenant.
    #[error("the token is for another tenant")]
    Tenant,
    /// A refresh from another user.
    #[error("the token is for another user")]
    Subject,
    /// A refresh in another role.
    #[error("the token is for another role")]
    Role,
    /// An unsigned identity without `--dev`, or from another machine.
    #[error("unsigned identities are accepted only with --dev, and only from this machine")]
    Unsigned,
}

impl AuthError {
    /// The stable code that clients see.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "token_missing",
            Self::Malformed(_) => "token_malformed",
            Self::Algorithm => "token_algorithm",
            Self::UnknownKey => "token_key",
            Self::Signature => "token_signature",
            Self::Expired => "token_expired",
            Self::NotYetValid => "token_not_yet_valid",
            Self::Audience => "token_audience",
            Self::Issuer => "token_issuer",
            Self::Claim { .. } | Self::ClaimId { .. } => "token_claims",
            Self::Tenant => "token_tenant",
            Self::Subject => "token_subject",
            Self::Role => "token_role",
            Self::Unsigned => "token_unsigned",
        }
    }

    /// As it is counted.
    const fn refusal(&self) -> Refusal {
        match self {
            Self::Missing => Refusal::Missing,
            Self::Malformed(_) => Refusal::Malformed,
            Self::Algorithm | Self::UnknownKey => Refusal::Key,
            Self::Signature => Refusal::Signature,
            Self::Expired | Self::NotYetValid => Refusal::Time,
            Self::Audience | Self::Issuer => Refusal::Audience,
            Self::Unsigned => Refusal::Unsigned,
            Self::Claim { .. }
            | Self::ClaimId { .. }
            | Self::Tenant
            | Self::Subject
            | Self::Role => Refusal::Claims,
        }
    }

    /// Whether the same token may be accepted a little later: its time comes, or its key does,
    /// when issuers rotate a moment ahead of us.
    #[must_use]
    pub const fn retry_helps(&self) -> bool {
        matches!(self, Self::NotYetValid | Self::UnknownKey)
    }
}

impl From<&AuthError> for Refusal {
    fn from(error: &AuthError) -> Self {
        error.refusal()
    }
}

/// Why keys can't be used. Says what to do, and never shows what a file contains.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file that can't be read.
    #[error("auth: can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A secret that could be guessed.
    #[error(
        "auth: the HS256 secret of key {key} has {bytes} bytes, and needs at least 32: \
         `openssl rand -base64 32` makes one"
    )]
    ShortSecret {
        /// The key's `kid`, or its place.
        key: String,
        /// Bytes given.
        bytes: usize,
    },
    /// A key that is none.
    #[error("auth: key {key} {problem}")]
    Key {
        /// The key's `kid`, or its place.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A file that is no JWKS.
    #[error("auth: {} {problem}", path.display())]
    Jwks {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// One `kid` for two keys: which one is meant would be chance.
    #[error("auth: two keys have the kid {0}")]
    Duplicate(String),
    /// Nothing to verify tokens with.
    #[error("auth: no keys: set auth.keys or auth.jwks, or use --dev on your own machine")]
    NoKeys,
    /// A token could not be signed.
    #[error("auth: the token could not be signed")]
    Sign,
}

//! One key, and a set of them: which key a token is checked with, and what makes a key fit.
//! A key knows its algorithm; a token never chooses it.

use adsum_core::TenantId;
use jsonwebtoken::DecodingKey;

use super::{Alg, AuthError, KeyConfig, KeyError};

const SECRET_MIN: usize = 32;
/// 2048 bits, the least that is still thought safe, and that *ring* accepts.
const RSA_MIN: usize = 256;

pub(super) struct Key {
    pub(super) kid: Option<String>,
    pub(super) alg: Alg,
    pub(super) tenant: Option<TenantId>,
    pub(super) key: DecodingKey,
}

/// All keys of one moment.
#[derive(Default)]
pub(super) struct KeySet(Vec<Key>);

impl KeySet {
    pub(super) fn new(keys: Vec<Key>) -> Result<Self, KeyError> {
        for (i, key) in keys.iter().enumerate() {
            let twin = keys.iter().take(i).find(|k| k.kid == key.kid);
            if let (Some(kid), Some(_)) = (&key.kid, twin) {
                return Err(KeyError::Duplicate(kid.clone()));
            }
        }
        Ok(Self(keys))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The key with the token's `kid`; else the only key that could be meant.
    pub(super) fn select(&self, kid: Option<&str>, alg: Alg) -> Result<&Key, AuthError> {
        let named = kid.and_then(|kid| self.0.iter().find(|k| k.kid.as_deref() == Some(kid)));
        if let Some(key) = named {
            return if key.alg == alg {
                Ok(key)
            } else {
                Err(AuthError::Algorithm)
            };
        }
        // A name that we don't know may still belong to a key that was given without one.
        let mut fit = self
            .0
            .iter()
            .filter(|k| k.alg == alg && (kid.is_none() || k.kid.is_none()));
        match (fit.next(), fit.next()) {
            (Some(key), None) => Ok(key),
            (None, _) if self.0.iter().all(|k| k.alg != alg) => Err(AuthError::Algorithm),
            _ => Err(AuthError::UnknownKey),
        }
    }
}

/// A key of the configuration; `file` is what its file contains.
pub(super) fn from_config(
    config: &KeyConfig,
    place: usize,
    file: Option<&[u8]>,
) -> Result<Key, KeyError> {
    let name = config.kid.clone().unwrap_or_else(|| format!("#{place}"));
    let bad = |problem| KeyError::Key {
        key: name.clone(),
        problem,
    };
    let key = match (config.alg, &config.secret, file) {
        (_, Some(_), Some(_)) => return Err(bad("has both a secret and a file: give one")),
        (_, None, None) => return Err(bad("has neither a secret nor a file")),
        (Alg::Hs256, Some(secret), None) => shared(secret.as_bytes(), &name)?,
        (Alg::Hs256, None, Some(file)) => shared(file.trim_ascii(), &name)?,
        (_, Some(_), None) => {
            return Err(bad("is checked with a public key: give it as a file"));
        }
        (alg, None, Some(pem)) => public(alg, pem).map_err(bad)?,
    };
    Ok(Key {
        kid: config.kid.clone(),
        alg: config.alg,
        tenant: config.tenant.clone(),
        key,
    })
}

pub(super) fn shared(secret: &[u8], name: &str) -> Result<DecodingKey, KeyError> {
    // Whoever configures a public key as HS256 lets everybody sign who has read it.
    if secret.starts_with(b"-----BEGIN") {
        return Err(KeyError::Key {
            key: name.to_owned(),
            problem: "is a PEM file, not a secret: its alg is not HS256",
        });
    }
    check_secret(secret, name)?;
    Ok(DecodingKey::from_secret(secret))
}

pub(super) fn check_secret(secret: &[u8], name: &str) -> Result<(), KeyError> {
    if secret.len() < SECRET_MIN {
        return Err(KeyError::ShortSecret {
            key: name.to_owned(),
            bytes: secret.len(),
        });
    }
    Ok(())
}

fn public(alg: Alg, pem: &[u8]) -> Result<DecodingKey, &'static str> {
    let text = std::str::from_utf8(pem).map_err(|_| "is not a PEM file")?;
    if text.contains("PRIVATE KEY-----") {
        return Err("is a private key: give the public one, and keep the private one elsewhere");
    }
    if !text.contains("PUBLIC KEY-----") {
        return Err("is not a PEM file with a PUBLIC KEY");
    }
    let key = match alg {
        Alg::Rs256 => DecodingKey::from_rsa_pem(pem),
        Alg::Es256 => DecodingKey::from_ec_pem(pem),
        Alg::EdDsa => DecodingKey::from_ed_pem(pem),
        Alg::Hs256 => return Err("has no public part"),
    }
    .map_err(|_| "is not a public key of its algorithm (PEM)")?;
    let bytes = key.try_get_as_bytes().map_err(|_| "has no bytes")?;
    check_size(alg, bytes)?;
    Ok(key)
}

pub(super) fn check_size(alg: Alg, bytes: &[u8]) -> Result<(), &'static str> {
    match alg {
        Alg::Rs256 if bytes.len() < RSA_MIN => Err("is too short: RSA needs 2048 bits"),
        Alg::Es256 if bytes.len() != 65 || bytes.first() != Some(&4) => {
            Err("is not a point on P-256")
        }
        Alg::EdDsa if bytes.len() != 32 => Err("is not an Ed25519 key"),
        _ => Ok(()),
    }
}

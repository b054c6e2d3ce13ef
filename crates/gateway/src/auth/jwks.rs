//! Keys of a JWKS file.

use std::path::Path;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Alg, KeyError,
    key::{Key, check_size, shared},
};

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

/// The keys of a JWKS that are for signatures of our algorithms; others are passed over, as
/// RFC 7517 asks. One of ours that is broken breaks the whole: half a rotation is worse than none.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Vec<Key>, KeyError> {
    let bad = |problem| KeyError::Jwks {
        path: path.to_owned(),
        problem,
    };
    let set: Jwks =
        serde_json::from_slice(bytes).map_err(|_| bad("is not a JWKS: {\"keys\": […]}"))?;
    let mut keys = Vec::with_capacity(set.keys.len());
    for (place, jwk) in set.keys.iter().enumerate() {
        keys.extend(from_jwk(jwk, place)?);
    }
    if keys.is_empty() {
        return Err(bad("has no key for HS256, RS256, ES256 or EdDSA"));
    }
    Ok(keys)
}

fn from_jwk(jwk: &Value, place: usize) -> Result<Option<Key>, KeyError> {
    let text = |field: &str| jwk.get(field).and_then(Value::as_str);
    let kid = text("kid").map(str::to_owned);
    let name = kid.clone().unwrap_or_else(|| format!("#{place}"));
    let alg = match (text("kty"), text("crv")) {
        (Some("oct"), _) => Alg::Hs256,
        (Some("RSA"), _) => Alg::Rs256,
        (Some("EC"), Some("P-256")) => Alg::Es256,
        (Some("OKP"), Some("Ed25519")) => Alg::EdDsa,
        _ => return Ok(None),
    };
    let other_use = text("use").is_some_and(|u| u != "sig");
    // `alg` may be left out; one that is not the key type's own is another use (PS256, RSA-OAEP),
    // never a way to bend the key to it.
    let other_alg = jwk.get("alg").is_some() && text("alg").and_then(Alg::from_name) != Some(alg);
    if other_use || other_alg {
        return Ok(None);
    }
    let part = |field: &str| text(field).and_then(|t| URL_SAFE_NO_PAD.decode(t).ok());
    let key = jwk_parts(alg, part, &name)?;
    Ok(Some(Key {
        kid,
        alg,
        tenant: None,
        key,
    }))
}

fn jwk_parts(
    alg: Alg,
    part: impl Fn(&str) -> Option<Vec<u8>>,
    name: &str,
) -> Result<DecodingKey, KeyError> {
    let bad = |problem| KeyError::Key {
        key: name.to_owned(),
        problem,
    };
    let need = |field| part(field).ok_or_else(|| bad("lacks a part, or has one not in base64url"));
    match alg {
        Alg::Hs256 => shared(&need("k")?, name),
        Alg::Rs256 => {
            let (n, e) = (need("n")?, need("e")?);
            // Some issuers write the sign byte of DER, which ring refuses.
            let n = n.strip_prefix(&[0]).unwrap_or(&n);
            check_size(alg, n).map_err(bad)?;
            Ok(DecodingKey::from_rsa_raw_components(n, &e))
        }
        Alg::Es256 => {
            let point = [vec![4], need("x")?, need("y")?].concat();
            check_size(alg, &point).map_err(bad)?;
            Ok(DecodingKey::from_ec_der(&point))
        }
        Alg::EdDsa => {
            let point = need("x")?;
            check_size(alg, &point).map_err(bad)?;
            Ok(DecodingKey::from_ed_der(&point))
        }
    }
}

//! Keys made on the spot, and tokens, JWKs and PEMs of them.

use std::path::Path;

use base64::engine::general_purpose::STANDARD;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};

use super::*;

/// What precedes the bare key in a SubjectPublicKeyInfo.
pub(super) const P256_HEAD: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
    \x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
pub(super) const ED_HEAD: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

pub(super) fn ec_pair() -> EcdsaKeyPair {
    let (random, alg) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(alg, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(alg, pkcs8.as_ref(), &random).unwrap()
}

pub(super) fn ed_pair() -> Ed25519KeyPair {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
}

pub(super) fn ec_token(pair: &EcdsaKeyPair, kid: &str) -> String {
    forge(&json!({"alg": "ES256", "kid": kid}), &ann(), |message| {
        pair.sign(&SystemRandom::new(), message)
            .unwrap()
            .as_ref()
            .to_vec()
    })
}

pub(super) fn ec_jwk(pair: &EcdsaKeyPair, kid: &str) -> Value {
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let [x, y] = [x, y].map(|c| URL_SAFE_NO_PAD.encode(c));
    json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y})
}

pub(super) fn pem(head: &[u8], key: &[u8]) -> String {
    let der = STANDARD.encode([head, key].concat());
    format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
}

pub(super) fn accepts(auth: &Authenticator, token: &str) -> bool {
    auth.authenticate(token, REMOTE, NOW_MS).is_ok()
}

pub(super) fn with_jwks(path: &Path) -> AuthConfig {
    AuthConfig {
        jwks: Some(path.to_owned()),
        ..AuthConfig::default()
    }
}

//! Tokens of all kinds, good and bad. Time is a parameter, so nothing here waits or expires; no
//! private key is stored: the RSA token was signed once, other keys are made on the spot.

mod attacks;
mod claims;
mod keys;
mod pairs;
mod patterns;
mod rotation;

use std::net::{IpAddr, Ipv4Addr};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NOW_MS: u64 = 1_800_000_000_000;
const NOW: u64 = NOW_MS / 1000;
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

/// Signed by `tests/data/rsa.pub.pem`: `ann` of `acme`, `rooms: ["lobby"]`, until 2100.
const RSA_TOKEN: &str = include_str!("../../../tests/data/rs256.jwt");
const RSA_PEM: &[u8] = include_bytes!("../../../tests/data/rsa.pub.pem");
const RSA_JWKS: &str = include_str!("../../../tests/data/rsa.jwks.json");

fn data(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn shared_key(kid: Option<&str>) -> KeyConfig {
    KeyConfig {
        kid: kid.map(str::to_owned),
        alg: Alg::Hs256,
        secret: Some(SECRET.to_owned()),
        file: None,
        tenant: None,
    }
}

fn public_key(alg: Alg, file: std::path::PathBuf) -> KeyConfig {
    KeyConfig {
        kid: None,
        alg,
        secret: None,
        file: Some(file),
        tenant: None,
    }
}

fn config(keys: Vec<KeyConfig>) -> AuthConfig {
    AuthConfig {
        keys,
        ..AuthConfig::default()
    }
}

fn authenticator(config: &AuthConfig) -> Authenticator {
    Authenticator::new(Arc::new(Keys::load(config).unwrap()), config, false).unwrap()
}

/// With one HS256 key.
fn usual() -> Authenticator {
    authenticator(&config(vec![shared_key(None)]))
}

fn part(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// `header.claims.signature` with any header, signed by whatever `sign` does.
fn forge(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn hmac(secret: &[u8]) -> impl Fn(&[u8]) -> Vec<u8> {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    move |message| ring::hmac::sign(&key, message).as_ref().to_vec()
}

fn hs256(claims: &Value) -> String {
    forge(&json!({"alg": "HS256"}), claims, hmac(SECRET.as_bytes()))
}

/// Claims that are fine.
fn ann() -> Value {
    json!({"sub": "ann", "tenant": "acme", "exp": NOW + 60})
}

/// Those, with some replaced.
fn ann_with(more: Value) -> Value {
    let mut claims = ann();
    let Value::Object(more) = more else {
        panic!("not an object")
    };
    claims.as_object_mut().unwrap().extend(more);
    claims
}

/// The code of a refusal, after a look at whether it gives the token away.
fn refusal(authenticator: &Authenticator, token: &str) -> &'static str {
    let error = authenticator
        .authenticate(token, LOCAL, NOW_MS)
        .expect_err("refused");
    let said = format!("{error} {error:?}");
    for part in token.split('.').filter(|p| p.len() > 8) {
        assert!(!said.contains(part), "{said}");
    }
    error.code()
}

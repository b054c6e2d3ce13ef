//! Keys: which are fit, and which one is chosen.

use std::fs;

use ring::signature::KeyPair;

use super::{pairs::*, *};

#[test]
fn auth_keys_of_each_algorithm_from_pem() {
    let dir = tempfile::tempdir().unwrap();
    let (ec, ed) = (ec_pair(), ed_pair());
    let (ec_file, ed_file) = (dir.path().join("ec"), dir.path().join("ed"));
    fs::write(&ec_file, pem(P256_HEAD, ec.public_key().as_ref())).unwrap();
    fs::write(&ed_file, pem(ED_HEAD, ed.public_key().as_ref())).unwrap();
    let auth = authenticator(&config(vec![
        public_key(Alg::Rs256, data("rsa.pub.pem")),
        public_key(Alg::Es256, ec_file.clone()),
        public_key(Alg::EdDsa, ed_file),
        shared_key(None),
    ]));
    let sign = |message: &[u8]| ed.sign(message).as_ref().to_vec();
    let ed_token = forge(&json!({"alg": "EdDSA"}), &ann(), sign);
    for token in [
        RSA_TOKEN.trim(),
        &ec_token(&ec, "any"),
        &ed_token,
        &hs256(&ann()),
    ] {
        assert!(accepts(&auth, token), "{token}");
    }
    assert_eq!(
        refusal(&auth, &ec_token(&ec_pair(), "any")),
        "token_signature"
    );
    let wrong = config(vec![public_key(Alg::EdDsa, ec_file)]);
    assert!(matches!(Keys::load(&wrong), Err(KeyError::Key { .. })));
}

#[test]
fn auth_keys_that_are_unfit_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let short = file("short", b"0123456789abcdef\n");
    let private = file(
        "private",
        b"-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----",
    );
    let inline = |secret: &str, alg| KeyConfig {
        alg,
        secret: Some(secret.into()),
        ..shared_key(Some("k"))
    };
    let cases = [
        (inline("fifteen letters", Alg::Hs256), "at least 32"),
        (public_key(Alg::Hs256, short), "has 16 bytes"),
        (inline(SECRET, Alg::Rs256), "give it as a file"),
        (
            inline(&String::from_utf8_lossy(RSA_PEM), Alg::Hs256),
            "PEM file, not a secret",
        ),
        (
            public_key(Alg::Hs256, data("rsa.pub.pem")),
            "PEM file, not a secret",
        ),
        (public_key(Alg::Rs256, data("rsa1024.pub.pem")), "2048 bits"),
        (
            public_key(Alg::Es256, data("rsa.pub.pem")),
            "of its algorithm",
        ),
        (public_key(Alg::Rs256, private), "private key"),
        (public_key(Alg::Rs256, file("no", b"\xff\x00")), "not a PEM"),
        (
            public_key(Alg::Rs256, dir.path().join("gone")),
            "can't read",
        ),
        (
            public_key(Alg::Hs256, file("big", &[b'x'; (1 << 20) + 1])),
            "1 MiB",
        ),
        (
            KeyConfig {
                secret: None,
                ..shared_key(None)
            },
            "neither",
        ),
        (
            KeyConfig {
                file: Some(data("rsa.pub.pem")),
                ..shared_key(None)
            },
            "both",
        ),
    ];
    for (key, why) in cases {
        let said = Keys::load(&config(vec![key])).unwrap_err().to_string();
        assert!(said.contains(why), "{why}: {said}");
        assert!(
            !said.contains(SECRET) && !said.contains("fifteen"),
            "{said}"
        );
    }
    let twins = config(vec![shared_key(Some("k")), shared_key(Some("k"))]);
    assert!(matches!(Keys::load(&twins), Err(KeyError::Duplicate(_))));
    assert!(!format!("{:?}", config(vec![shared_key(None)])).contains(SECRET));
    assert!(serde_json::from_str::<KeyConfig>(r#"{"alg": "none", "secret": "x"}"#).is_err());
}

#[test]
fn auth_keys_are_chosen_by_kid_and_bound_to_tenants() {
    let other = "f".repeat(32);
    let second = KeyConfig {
        secret: Some(other.clone()),
        tenant: Some("beta".parse().unwrap()),
        ..shared_key(Some("b"))
    };
    let auth = authenticator(&config(vec![shared_key(Some("a")), second]));
    let token = |kid: Value, claims: &Value, secret: &str| {
        forge(
            &json!({"alg": "HS256", "kid": kid}),
            claims,
            hmac(secret.as_bytes()),
        )
    };
    assert!(accepts(&auth, &token(json!("a"), &ann(), SECRET)));
    assert_eq!(
        refusal(&auth, &token(json!("b"), &ann(), SECRET)),
        "token_signature"
    );
    assert_eq!(
        refusal(&auth, &token(json!("c"), &ann(), SECRET)),
        "token_key"
    );
    assert_eq!(
        refusal(&auth, &token(json!(null), &ann(), SECRET)),
        "token_key"
    );
    assert_eq!(
        refusal(&auth, &token(json!("b"), &ann(), &other)),
        "token_tenant"
    );
    let beta = ann_with(json!({"tenant": "beta"}));
    assert!(accepts(&auth, &token(json!("b"), &beta, &other)));
}

#[test]
fn auth_keys_of_a_jwks_pass_over_what_is_not_for_us() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    let (ec, ed) = (ec_pair(), ed_pair());
    let rsa: Value = serde_json::from_str(RSA_JWKS).unwrap();
    let mut bent = rsa["keys"][0].clone();
    bent["alg"] = json!("HS256");
    bent["kid"] = json!("bent");
    let okp = URL_SAFE_NO_PAD.encode(ed.public_key().as_ref());
    let set = json!({"keys": [
        rsa["keys"][0], ec_jwk(&ec, "ec"), bent, 7, {"kty": "future"},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "alg": "EdDSA", "use": "sig", "x": okp},
        {"kty": "EC", "crv": "P-521", "x": "", "y": ""},
        {"kty": "RSA", "use": "enc", "n": "", "e": ""},
    ]});
    fs::write(&path, set.to_string()).unwrap();
    let config = with_jwks(&path);
    let auth = authenticator(&config);
    assert_eq!(auth.keys.len(), 3);
    let sign = |message: &[u8]| ed.sign(message).as_ref().to_vec();
    let ed_token = forge(&json!({"alg": "EdDSA", "kid": "ed"}), &ann(), sign);
    for token in [RSA_TOKEN.trim(), &ec_token(&ec, "ec"), &ed_token] {
        assert!(accepts(&auth, token));
    }
    for broken in [
        "",
        "{}",
        "[]",
        r#"{"keys": []}"#,
        r#"{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}"#,
        r#"{"keys": [{"kty": "oct", "k": "AQAB"}]}"#,
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQAB"}]}"#,
        r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQAB"}]}"#,
    ] {
        fs::write(&path, broken).unwrap();
        assert!(Keys::load(&config).is_err(), "{broken}");
    }
}

//! Forged, bent and broken tokens.

use adsum_core::Topic;
use proptest::prelude::*;

use super::*;

fn rsa() -> Authenticator {
    let mut key = public_key(Alg::Rs256, data("rsa.pub.pem"));
    key.kid = Some("rsa".into());
    authenticator(&config(vec![key]))
}

#[test]
fn auth_refuses_a_public_key_used_as_a_secret() {
    let forged = |header: Value| forge(&header, &ann(), hmac(RSA_PEM));
    let named = forged(json!({"alg": "HS256", "kid": "rsa"}));
    assert_eq!(refusal(&rsa(), &named), "token_algorithm");
    let unnamed = forged(json!({"alg": "HS256"}));
    assert_eq!(refusal(&rsa(), &unnamed), "token_algorithm");
    // With an HS256 key beside it, the forger still has to know that one's secret.
    let mut key = public_key(Alg::Rs256, data("rsa.pub.pem"));
    key.kid = Some("rsa".into());
    let both = authenticator(&config(vec![key, shared_key(Some("hs"))]));
    assert_eq!(refusal(&both, &named), "token_algorithm");
    assert_eq!(refusal(&both, &unnamed), "token_signature");
    assert!(both.authenticate(RSA_TOKEN.trim(), LOCAL, NOW_MS).is_ok());
}

#[test]
fn auth_refuses_no_algorithm_in_any_spelling() {
    for alg in [
        "none", "None", "NONE", "nOnE", "", "hs256", "HS512", "PS256",
    ] {
        let token = forge(&json!({"alg": alg}), &ann(), |_| Vec::new());
        assert_eq!(refusal(&usual(), &token), "token_algorithm", "{alg}");
        let token = forge(&json!({"alg": alg}), &ann(), hmac(SECRET.as_bytes()));
        assert_eq!(refusal(&usual(), &token), "token_algorithm", "{alg}");
    }
    let unsigned = forge(&json!({"alg": "HS256"}), &ann(), |_| Vec::new());
    assert_eq!(refusal(&usual(), &unsigned), "token_signature");
}

#[test]
fn auth_refuses_a_swapped_algorithm() {
    let (_, rest) = RSA_TOKEN.trim().split_once('.').unwrap();
    for alg in ["HS256", "ES256", "EdDSA", "RS512"] {
        let swapped = format!("{}.{rest}", part(&json!({"alg": alg, "kid": "rsa"})));
        assert_eq!(refusal(&rsa(), &swapped), "token_algorithm", "{alg}");
    }
    // Another header, same algorithm: not what was signed.
    let other = format!("{}.{rest}", part(&json!({"alg": "RS256"})));
    assert_eq!(refusal(&rsa(), &other), "token_signature");
}

#[test]
fn auth_refuses_changed_claims_and_other_secrets() {
    let good = hs256(&ann());
    let (header, signature) = (good.split('.').next(), good.rsplit('.').next());
    let admin = part(&ann_with(json!({"role": "service", "see": "all"})));
    let changed = format!("{}.{admin}.{}", header.unwrap(), signature.unwrap());
    assert_eq!(refusal(&usual(), &changed), "token_signature");
    let other = forge(&json!({"alg": "HS256"}), &ann(), hmac(&[7; 32]));
    assert_eq!(refusal(&usual(), &other), "token_signature");
}

#[test]
fn auth_ignores_keys_that_a_token_brings() {
    let jwk = json!({"kty": "oct", "alg": "HS256", "k": URL_SAFE_NO_PAD.encode([7; 32])});
    let header = json!({"alg": "HS256", "jwk": jwk, "jku": "http://evil.example/jwks"});
    let token = forge(&header, &ann(), hmac(&[7; 32]));
    assert_eq!(refusal(&usual(), &token), "token_signature");
    let header = json!({"alg": "HS256", "crit": ["b64"], "b64": false});
    let token = forge(&header, &ann(), hmac(SECRET.as_bytes()));
    assert_eq!(refusal(&usual(), &token), "token_malformed");
}

#[test]
fn auth_names_what_is_malformed() {
    let auth = usual();
    assert_eq!(refusal(&auth, ""), "token_missing");
    let header = part(&json!({"alg": "HS256"}));
    for bad in [
        "x",
        "a.b",
        "a.b.c",
        "....",
        &format!("{header}.{header}"),
        "a.b.c.d",
    ] {
        assert_eq!(refusal(&auth, bad), "token_malformed", "{bad}");
    }
    assert_eq!(refusal(&auth, &"x.".repeat(5 << 20)), "token_malformed");
    for claims in [json!("text"), json!(7), json!(null)] {
        assert_eq!(refusal(&auth, &hs256(&claims)), "token_malformed");
    }
}

#[test]
fn auth_takes_bearer_headers() {
    assert_eq!(bearer(Some("Bearer abc")), Ok("abc"));
    assert_eq!(bearer(Some("bearer  abc ")), Ok("abc"));
    assert_eq!(bearer(None).unwrap_err().code(), "token_missing");
    assert_eq!(bearer(Some("Bearer ")).unwrap_err().code(), "token_missing");
    let basic = bearer(Some("Basic abc")).unwrap_err();
    assert_eq!(basic.code(), "token_malformed");
    let mut head = HeaderMap::new();
    assert_eq!(token_of(&head).unwrap_err().code(), "token_missing");
    let named = |token| HeaderValue::from_static(token);
    head.append(header::AUTHORIZATION, named("Bearer abc"));
    assert_eq!(token_of(&head), Ok("abc"));
    head.append(header::AUTHORIZATION, named("Bearer xyz"));
    assert_eq!(token_of(&head).unwrap_err().code(), "token_malformed");
}

#[test]
fn auth_takes_unsigned_identities_in_dev_and_from_here_only() {
    let none = config(vec![]);
    let keys = || Arc::new(Keys::load(&none).unwrap());
    assert!(matches!(
        Authenticator::new(keys(), &none, false),
        Err(KeyError::NoKeys)
    ));
    let dev = Authenticator::new(keys(), &none, true).unwrap();
    let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
    for peer in [LOCAL, mapped, "::1".parse().unwrap()] {
        let ann = dev.authenticate("dev:acme:ann:1", peer, NOW_MS).unwrap();
        assert_eq!(ann.user.as_ref().unwrap().as_str(), "ann:1");
        assert!(ann.may_watch(&Topic::Tenant) && !ann.see_all);
        assert!(ann.expires_at_ms > NOW_MS);
    }
    let json = r#"{"tenant":"acme","role":"service","watch":["tenant"],"see":"all"}"#;
    let service = dev.authenticate(json, LOCAL, NOW_MS).unwrap();
    assert!(service.see_all && service.user.is_none());
    let expired = format!(r#"{{"tenant":"acme","sub":"ann","exp":{NOW}}}"#);
    assert_eq!(refusal(&dev, &expired), "token_expired");

    for token in ["dev:acme:ann", json] {
        let refused = dev.authenticate(token, REMOTE, NOW_MS).unwrap_err();
        assert_eq!(refused.code(), "token_unsigned");
        assert_eq!(refusal(&usual(), token), "token_unsigned");
    }
    assert_eq!(refusal(&dev, "dev:acme"), "token_malformed");
    assert_eq!(refusal(&dev, "dev::ann"), "token_claims");
    assert_eq!(refusal(&dev, "{"), "token_malformed");
    assert_eq!(
        refusal(&dev, &format!("dev:acme:{}", "x".repeat(10 << 20))),
        "token_malformed"
    );
    // Dev mode does not weaken what is signed.
    let forged = forge(&json!({"alg": "none"}), &ann(), |_| Vec::new());
    assert_eq!(refusal(&dev, &forged), "token_algorithm");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn auth_survives_garbage(
        text in ".{0,200}",
        parts in "[A-Za-z0-9_-]{0,40}(\\.[A-Za-z0-9_-]{0,40}){0,4}",
    ) {
        let auth = Authenticator { dev: true, ..usual() };
        for token in [&text, &parts, &format!("dev:{text}"), &format!("{{{text}")] {
            let _ = auth.authenticate(token, LOCAL, NOW_MS);
        }
        prop_assert!(auth.authenticate(&parts, LOCAL, NOW_MS).is_err());
        let _ = bearer(Some(&text));
    }

    /// Signed by us, so that it gets past the signature: any JSON where a claim is expected.
    #[test]
    fn auth_survives_any_claims(
        name in "sub|tenant|role|rooms|join|watch|see|exp|nbf|aud|iss",
        text in ".{0,150}",
        number in any::<f64>(),
        shape in 0..6,
    ) {
        let value = match shape {
            0 => json!(text),
            1 => json!(number),
            2 => json!([text]),
            3 => json!([number, null]),
            4 => json!({"a": text}),
            _ => json!(true),
        };
        let mut claims = ann();
        claims[name] = value;
        let _ = usual().authenticate(&hs256(&claims), LOCAL, NOW_MS);
    }

    #[test]
    fn auth_refuses_any_flipped_bit(at in 0..400_usize, bit in 0..8_u8) {
        let mut token = hs256(&ann()).into_bytes();
        let at = at % token.len();
        token[at] ^= 1 << bit;
        let Ok(token) = String::from_utf8(token) else { return Ok(()) };
        prop_assert!(usual().authenticate(&token, LOCAL, NOW_MS).is_err());
    }
}

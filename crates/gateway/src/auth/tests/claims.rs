//! What claims mean, and which are refused.

use adsum_core::RoomId;

use super::*;

fn accept(claims: &Value) -> Identity {
    usual()
        .authenticate(&hs256(claims), REMOTE, NOW_MS)
        .unwrap()
}

fn room(id: &str) -> RoomId {
    RoomId::new(id).unwrap()
}

fn may_watch(identity: &Identity, topic: &str) -> bool {
    identity.may_watch(&topic.parse().unwrap())
}

#[test]
fn auth_claims_refused_by_code() {
    let auth = usual();
    let cases = [
        (json!({"exp": NOW}), "token_expired"),
        (json!({"exp": NOW - 3600}), "token_expired"),
        (json!({"exp": 0}), "token_expired"),
        (json!({"exp": null}), "token_claims"),
        (json!({"exp": "tomorrow"}), "token_claims"),
        (json!({"exp": -1}), "token_claims"),
        (json!({"nbf": NOW + 11}), "token_not_yet_valid"),
        (json!({"nbf": []}), "token_claims"),
        (json!({"tenant": null}), "token_claims"),
        (json!({"tenant": ""}), "token_claims"),
        (json!({"tenant": "a\u{1f}b"}), "token_claims"),
        (json!({"tenant": 7}), "token_claims"),
        (json!({"sub": null}), "token_claims"),
        (json!({"sub": "x".repeat(129)}), "token_claims"),
        (json!({"role": "admin"}), "token_claims"),
        (json!({"see": "all"}), "token_claims"),
        (json!({"role": "service", "see": "most"}), "token_claims"),
        (json!({"rooms": "lobby"}), "token_claims"),
        (json!({"rooms": [""]}), "token_claims"),
        (json!({"join": [7]}), "token_claims"),
        (json!({"join": ["a\nb*"]}), "token_claims"),
        (json!({"watch": ["lobby"]}), "token_claims"),
        (json!({"watch": ["t*"]}), "token_claims"),
        (json!({"watch": ["room:"]}), "token_claims"),
    ];
    for (claims, code) in cases {
        let token = hs256(&ann_with(claims.clone()));
        assert_eq!(refusal(&auth, &token), code, "{claims}");
    }
}

#[test]
fn auth_claims_times_are_kept_to_the_ms_and_nbf_has_a_leeway() {
    assert_eq!(accept(&ann()).expires_at_ms, NOW_MS + 60_000);
    accept(&ann_with(json!({"nbf": NOW + 10})));
    let exact = ann_with(json!({"exp": 1_800_000_000.25}));
    assert_eq!(accept(&exact).expires_at_ms, NOW_MS + 250);
    let late = usual().authenticate(&hs256(&exact), LOCAL, NOW_MS + 250);
    assert_eq!(late, Err(AuthError::Expired));
    accept(&ann_with(json!({"exp": u64::MAX})));
    accept(&ann_with(json!({"exp": 1e300})));
}

#[test]
fn auth_claims_audience_and_issuer_when_configured() {
    let mut config = config(vec![shared_key(None)]);
    accept(&ann_with(json!({"aud": "anyone", "iss": "anyone"})));
    config.audience = vec!["presence".into(), "adsum".into()];
    let auth = authenticator(&config);
    for aud in [
        json!(null),
        json!("chat"),
        json!([]),
        json!(["chat", 7]),
        json!({"a": 1}),
    ] {
        let token = hs256(&ann_with(json!({"aud": aud})));
        assert_eq!(refusal(&auth, &token), "token_audience", "{aud}");
    }
    for aud in [json!("adsum"), json!(["chat", "presence"])] {
        let token = hs256(&ann_with(json!({"aud": aud})));
        assert!(auth.authenticate(&token, REMOTE, NOW_MS).is_ok(), "{aud}");
    }
    config.issuer = vec!["idp".into()];
    let auth = authenticator(&config);
    let token = hs256(&ann_with(json!({"aud": "adsum", "iss": "other"})));
    assert_eq!(refusal(&auth, &token), "token_issuer");
    let token = hs256(&ann_with(json!({"aud": "adsum", "iss": "idp"})));
    assert!(auth.authenticate(&token, REMOTE, NOW_MS).is_ok());
}

#[test]
fn auth_claims_defaults_deny_rooms_and_the_tenant() {
    let ann = accept(&ann());
    assert!(!ann.may_join(&room("lobby")));
    assert!(!may_watch(&ann, "room:lobby") && !may_watch(&ann, "tenant"));
    assert!(may_watch(&ann, "user:ann") && may_watch(&ann, "user:bob"));
    let service = accept(&json!({"tenant": "acme", "role": "service", "exp": NOW + 1}));
    assert!(!may_watch(&service, "tenant") && !service.see_all && service.user.is_none());
}

#[test]
fn auth_claims_lists_allow_what_they_name() {
    let ann = accept(&ann_with(
        json!({"rooms": ["lobby", "odd*"], "join": ["team-*"]}),
    ));
    for name in ["lobby", "odd*", "team-1"] {
        assert!(
            ann.may_join(&room(name)) && may_watch(&ann, &format!("room:{name}")),
            "{name}"
        );
    }
    // `rooms` takes ids literally: a user who names a room `*` gets no key to all of them.
    for name in ["odd", "odder", "team", "lobby2"] {
        assert!(!ann.may_join(&room(name)) && !may_watch(&ann, &format!("room:{name}")));
    }
    let bob = accept(&ann_with(json!({
        "sub": "bob", "rooms": ["own"], "join": ["*"], "watch": ["room:pub-*", "user:eve"],
    })));
    assert!(bob.may_join(&room("anything")));
    assert!(may_watch(&bob, "room:pub-1") && may_watch(&bob, "room:own"));
    assert!(may_watch(&bob, "user:bob") && may_watch(&bob, "user:eve"));
    assert!(!may_watch(&bob, "room:anything") && !may_watch(&bob, "user:ann"));
    let service = accept(&json!({
        "tenant": "acme", "role": "service", "watch": ["*"], "see": "all", "exp": NOW + 1,
    }));
    assert!(service.see_all && may_watch(&service, "tenant") && may_watch(&service, "room:x"));
}

#[test]
fn auth_claims_refresh_takes_the_same_caller_only() {
    let old = accept(&ann_with(json!({"rooms": ["a", "b"]})));
    let other = |more| accept(&ann_with(more));
    let refused = |new: Identity| old.refreshed_by(&new).unwrap_err().code();
    assert_eq!(refused(other(json!({"tenant": "evil"}))), "token_tenant");
    assert_eq!(refused(other(json!({"sub": "bob"}))), "token_subject");
    assert_eq!(refused(other(json!({"role": "service"}))), "token_role");

    let new = other(json!({"rooms": ["b"], "watch": ["room:c"], "exp": NOW + 600}));
    let changes = old.refreshed_by(&new).unwrap();
    let watched = ["room:a", "room:b", "user:ann", "user:bob"].map(|t| t.parse().unwrap());
    let lost = changes.topics_lost(&watched);
    assert_eq!(lost, [watched[0].clone(), watched[3].clone()]);
    assert_eq!(changes.rooms_lost(&[room("a"), room("b")]), [room("a")]);
    assert!(!changes.sight_changed());

    let service = |see| accept(&ann_with(json!({"role": "service", "see": see})));
    let (all, some) = (service(json!("all")), service(json!(null)));
    assert!(all.refreshed_by(&some).unwrap().sight_changed());
}

#[test]
fn auth_claims_minted_are_accepted() {
    let claims = NewClaims {
        sub: Some("ann".into()),
        tenant: "acme".into(),
        join: Some(vec!["*".into()]),
        exp: NOW + 60,
        ..NewClaims::default()
    };
    let token = mint(&claims, SECRET.as_bytes(), Some("main")).unwrap();
    let ann = usual().authenticate(&token, REMOTE, NOW_MS).unwrap();
    assert!(ann.may_join(&room("any")) && ann.role == Role::User);
    assert!(mint(&claims, b"short", None).is_err());
}

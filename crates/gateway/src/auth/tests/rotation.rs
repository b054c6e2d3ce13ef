//! Keys replaced while tokens are checked.

use std::{fs, path::Path, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{pairs::*, *};

#[test]
fn auth_keys_reload_once_per_change_and_keep_the_old_on_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    let write = |keys: Value| fs::write(&path, json!({"keys": keys}).to_string()).unwrap();
    let (old, new) = (ec_pair(), ec_pair());
    write(json!([ec_jwk(&old, "old")]));
    let auth = authenticator(&with_jwks(&path));
    assert!(!auth.keys.reload().unwrap());

    write(json!([ec_jwk(&old, "old"), ec_jwk(&new, "new")]));
    assert_eq!(refusal(&auth, &ec_token(&new, "new")), "token_key");
    assert!(auth.keys.reload().unwrap());
    assert!(accepts(&auth, &ec_token(&old, "old")) && accepts(&auth, &ec_token(&new, "new")));

    fs::write(&path, r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"#).unwrap();
    let said = auth.keys.reload().unwrap_err().to_string();
    assert!(
        said.contains("jwks.json") && !said.contains("c2VjcmV0"),
        "{said}"
    );
    // Complained about once.
    assert!(!auth.keys.reload().unwrap());
    fs::remove_file(&path).unwrap();
    assert!(auth.keys.reload().is_err());
    assert!(accepts(&auth, &ec_token(&old, "old")));

    write(json!([ec_jwk(&new, "new")]));
    assert!(auth.keys.reload().unwrap());
    assert_eq!(refusal(&auth, &ec_token(&old, "old")), "token_key");
    assert!(accepts(&auth, &ec_token(&new, "new")));

    assert!(
        auth.keys
            .reconfigure(&with_jwks(Path::new("/nowhere")))
            .is_err()
    );
    assert!(accepts(&auth, &ec_token(&new, "new")));
    auth.keys
        .reconfigure(&config(vec![shared_key(None)]))
        .unwrap();
    assert!(accepts(&auth, &hs256(&ann())) && !auth.keys.reload().unwrap());
}

#[tokio::test]
async fn auth_keys_are_watched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jwks.json");
    let (old, new) = (ec_pair(), ec_pair());
    let write = |key: Value| fs::write(&path, json!({"keys": [key]}).to_string()).unwrap();
    write(ec_jwk(&old, "old"));
    let auth = authenticator(&with_jwks(&path));
    let stop = CancellationToken::new();
    let watch = Arc::clone(&auth.keys).watch(Duration::from_millis(20), stop.clone());
    let watch = tokio::spawn(watch);
    write(ec_jwk(&new, "new"));
    let rotated = async {
        while !accepts(&auth, &ec_token(&new, "new")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), rotated).await;
    in_time.expect("rotated");
    assert!(!accepts(&auth, &ec_token(&old, "old")));
    stop.cancel();
    watch.await.unwrap();
}

//! Users, passwords and TLS, with a real etcd.

#![allow(clippy::print_stdout, reason = "the messages are worth reading")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use adsum_cluster::conformance::{profile, until};
use adsum_cluster::{EtcdConfig, EtcdMembership, EtcdTls};
use adsum_core::membership::{Membership, MembershipError};
use adsum_local::{EtcdCluster, Ports, Process, TestDir};
use anyhow::{Context, Result, bail, ensure};
use common::OnEtcd;
use etcd_client::{Permission, PermissionType};

/// A user who may touch the cluster's keys and nothing else.
async fn enable_users(cluster: &OnEtcd) -> Result<()> {
    let mut client = cluster.client().await?;
    client.user_add("root", "root", None).await?;
    client.user_grant_role("root", "root").await?;
    let folder = format!("/adsum/{}/", cluster.cluster);
    let permission = Permission::new(PermissionType::Readwrite, folder).with_prefix();
    client.role_add("adsum").await?;
    client.role_grant_permission("adsum", permission).await?;
    client.user_add("adsum", "secret", None).await?;
    client.user_grant_role("adsum", "adsum").await?;
    client.auth_enable().await?;
    Ok(())
}

#[tokio::test]
async fn a_user_with_a_right_to_the_cluster_is_enough() -> Result<()> {
    let etcd = EtcdCluster::start(1).await?;
    let cluster = OnEtcd {
        ttl: Duration::from_secs(5),
        ..OnEtcd::new(etcd.endpoints())
    };
    enable_users(&cluster).await?;
    let config = |user: Option<&str>, password: Option<&str>| EtcdConfig {
        user: user.map(Into::into),
        password: password.map(Into::into),
        ..cluster.config()
    };

    let started = Instant::now();
    for (user, password) in [(Some("adsum"), Some("wrong")), (None, None)] {
        let Err(error) = EtcdMembership::connect(config(user, password), profile("one")).await
        else {
            bail!("joined as {user:?} with {password:?}");
        };
        ensure!(!error.retry(), "{error}");
    }
    ensure!(
        started.elapsed() < Duration::from_secs(3),
        "refused at once"
    );

    let right = config(Some("adsum"), Some("secret"));
    let one = EtcdMembership::connect(right.clone(), profile("one")).await?;
    let two = EtcdMembership::connect(right, profile("two")).await?;
    until(one.watch(), |members| members.nodes.len() == 2).await?;
    ensure!(one.campaign(1).await? && !two.campaign(1).await?);

    // etcd forgets its tokens when it starts again: they are asked for anew, in time.
    let node = one.node();
    etcd.member(0)?.process().restart().await?;
    etcd.wait_ready().await?;
    ensure!(one.prove(1).await? && one.node() == node);
    one.resign(1).await?;
    ensure!(two.campaign(1).await?);
    two.leave().await?;
    until(one.watch(), |members| members.nodes.len() == 1).await?;
    Ok(())
}

fn openssl(folder: &Path, args: &str) -> Result<()> {
    let command = Command::new("openssl")
        .current_dir(folder)
        .args(args.split(' '))
        .output()?;
    let said = String::from_utf8_lossy(&command.stderr).into_owned();
    ensure!(command.status.success(), "openssl {args}: {said}");
    Ok(())
}

/// A CA, and a certificate signed by it for the server and one for the client.
fn certificates(folder: &Path) -> Result<()> {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        folder,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca"),
    )?;
    std::fs::write(
        folder.join("names"),
        "subjectAltName=IP:127.0.0.1,DNS:etcd.test",
    )?;
    for name in ["server", "client"] {
        openssl(
            folder,
            &format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"),
        )?;
        let sign = format!("x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial");
        openssl(
            folder,
            &format!("{sign} -out {name}.pem -days 2 -extfile names"),
        )?;
    }
    Ok(())
}

fn secure_etcd(folder: &Path, ports: &Ports) -> Result<(Process, String)> {
    let endpoint = format!("https://127.0.0.1:{}", ports.take()?);
    let peer = format!("http://127.0.0.1:{}", ports.take()?);
    let mut command = Command::new("etcd");
    command
        .current_dir(folder)
        .args(["--name", "tls", "--data-dir", "data"]);
    command.args([
        "--listen-client-urls",
        &endpoint,
        "--advertise-client-urls",
        &endpoint,
    ]);
    command.args([
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
    ]);
    command.args(["--initial-cluster", &format!("tls={peer}")]);
    command.args(["--cert-file", "server.pem", "--key-file", "server.key"]);
    command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
    Ok((Process::start(folder, "etcd", command)?, endpoint))
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides() -> Result<()> {
    let (dir, ports) = (TestDir::in_memory("tls")?, Ports::default());
    certificates(dir.path())?;
    let (_etcd, endpoint) = secure_etcd(dir.path(), &ports)?;
    let file = |name: &str| dir.path().join(name);
    let tls = EtcdTls {
        ca: file("ca.pem"),
        cert: Some(file("client.pem")),
        key: Some(file("client.key")),
        domain: None,
    };
    let config = |tls: EtcdTls| EtcdConfig {
        tls: Some(tls),
        connect_timeout: Duration::from_secs(10),
        ..EtcdConfig::new(vec![endpoint.clone()], "tls")
    };
    let node = EtcdMembership::connect(config(tls.clone()), profile("one")).await?;
    ensure!(node.campaign(1).await? && node.prove(1).await?);
    node.leave().await?;

    let named = EtcdTls {
        domain: Some("etcd.test".into()),
        ..tls.clone()
    };
    let node = EtcdMembership::connect(config(named), profile("two")).await?;
    node.leave().await?;

    let wrong = [
        EtcdTls {
            cert: None,
            key: None,
            ..tls.clone()
        },
        EtcdTls {
            domain: Some("other.test".into()),
            ..tls.clone()
        },
        EtcdTls {
            ca: file("client.pem"),
            ..tls
        },
    ];
    for tls in wrong {
        let config = EtcdConfig {
            connect_timeout: Duration::from_secs(1),
            ..config(tls.clone())
        };
        let joined = EtcdMembership::connect(config, profile("three")).await;
        let error = joined
            .err()
            .with_context(|| format!("joined with {tls:?}"))?;
        ensure!(matches!(error, MembershipError::Unavailable(_)), "{error}");
        println!("{error}");
    }
    Ok(())
}

//! One Redis without a cluster.

use adsum_local::{Auth, RedisServer, ServerOptions};
use anyhow::{Result, ensure};
use redis::{AsyncCommands, Client};

#[tokio::test]
async fn a_server_admits_only_its_user() -> Result<()> {
    let auth = Auth::User {
        name: "adsum".to_owned(),
        password: "secret".to_owned(),
    };
    let server = RedisServer::start(ServerOptions {
        auth,
        ..Default::default()
    })
    .await?;
    let mut known = Client::open(server.url())?
        .get_multiplexed_async_connection()
        .await?;
    let () = known.set("key", "value").await?;

    let stranger = Client::open(format!("redis://{}", server.address()))?;
    let mut stranger = stranger.get_multiplexed_async_connection().await?;
    let refusal = stranger.get::<_, String>("key").await;
    ensure!(refusal.is_err_and(|error| error.code() == Some("NOAUTH")));
    Ok(())
}

#[tokio::test]
async fn a_server_keeps_its_data_over_a_kill_only_with_an_append_only_file() -> Result<()> {
    for append_only in [true, false] {
        let options = ServerOptions {
            append_only,
            auth: Auth::Password("secret".to_owned()),
        };
        let server = RedisServer::start(options).await?;
        let () = server.conn().await?.set("key", "value").await?;
        server.process().kill()?;
        server.process().restart().await?;
        server.wait_ready().await?;
        let kept: Option<String> = server.conn().await?.get("key").await?;
        ensure!(kept.is_some() == append_only);
    }
    Ok(())
}

#[tokio::test]
async fn a_server_tells_what_it_uses_and_forgets_on_demand() -> Result<()> {
    let server = RedisServer::start(ServerOptions::default()).await?;
    let () = server.conn().await?.set("key", "x".repeat(1 << 20)).await?;
    ensure!(server.used_memory().await? > 1 << 20);
    ensure!(server.cpu_seconds().await? > 0.0);
    server.function_flush().await?;
    server.flush_all().await?;
    ensure!(server.used_memory().await? < 2 << 20);
    Ok(())
}

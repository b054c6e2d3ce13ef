//! Joins a room and prints who comes and goes.
//!
//! Start a server with `adsum serve --dev`, then, in two terminals:
//!
//! ```text
//! cargo run -p adsum-client --example presence -- ann lobby
//! cargo run -p adsum-client --example presence -- bob lobby
//! ```
#![allow(clippy::print_stdout)]

use adsum_client::{Client, Event, Kind, Mode, RoomId, Topic};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let user = args.next().unwrap_or_else(|| "ann".into());
    let room = RoomId::new(args.next().unwrap_or_else(|| "lobby".into()))?;
    let (client, mut events) = Client::builder()
        .endpoint("ws://127.0.0.1:8080")
        .token(format!("dev:acme:{user}"))
        .kind(Kind::new("desktop")?)
        .room(room.clone())
        .watch(Topic::Room(room), Mode::Members)
        .spawn()?;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => print(&client, &event),
                None => return Ok(()),
            },
            _ = tokio::signal::ctrl_c() => {
                // A goodbye that nobody hears is no error of ours.
                client.leave().await.ok();
            }
        }
    }
}

fn print(client: &Client, event: &Event) {
    match event {
        Event::Connected {
            endpoint, device, ..
        } => println!("connected to {endpoint} as {device}"),
        Event::Disconnected => println!("disconnected"),
        Event::Joined { topic, item } => println!("{topic}: {} joined, {}", item.user, item.status),
        Event::Updated { topic, item } => println!("{topic}: {} is {}", item.user, item.status),
        Event::Left { topic, left } => println!("{topic}: {} left, {:?}", left.user, left.reason),
        Event::Count { topic, count } => println!("{topic}: {count} in all"),
        Event::Synced { topic, .. } => println!("{topic}: {} here", client.roster(topic).len()),
        other => println!("{other:?}"),
    }
}

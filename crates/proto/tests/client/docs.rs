//! docs/protocol.md shows real frames, all codes and the right digest.

use std::collections::BTreeSet;

use adsum_core::{Digest, UserId};
use adsum_proto::client::{Close, Code, Encoding, FrameLimits};
use serde_json::Value;

const DOCS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/protocol.md"
));

const CLIENT: [&str; 9] = [
    "hello",
    "heartbeat",
    "join",
    "part",
    "watch",
    "unwatch",
    "set",
    "refresh",
    "leave",
];
const SERVER: [&str; 7] = [
    "welcome",
    "ack",
    "presence_state",
    "presence_diff",
    "reconnect",
    "error",
    "expiring",
];

fn blocks() -> Vec<&'static str> {
    let after = DOCS.split("```json\n").skip(1);
    after.map(|b| b.split("```").next().unwrap()).collect()
}

#[test]
fn every_example_is_a_frame_and_every_frame_has_one() {
    let mut seen = BTreeSet::new();
    for block in blocks() {
        let value: Value = serde_json::from_str(block).unwrap();
        let word = value["type"].as_str().unwrap().to_owned();
        let again = if CLIENT.contains(&word.as_str()) {
            let limits = FrameLimits::default();
            let frame = Encoding::Json.decode(block, &limits).unwrap();
            let bytes = Encoding::Protobuf.encode_client(&frame);
            assert_eq!(Encoding::Protobuf.decode(bytes, &limits), Ok(frame.clone()));
            Encoding::Json.encode_client(&frame)
        } else {
            let frame = Encoding::Json.decode_server(block).unwrap();
            let bytes = Encoding::Protobuf.encode(&frame);
            assert_eq!(Encoding::Protobuf.decode_server(bytes), Ok(frame.clone()));
            Encoding::Json.encode(&frame)
        };
        assert_eq!(serde_json::from_slice::<Value>(&again).unwrap(), value);
        seen.insert(word);
    }
    let all = CLIENT.into_iter().chain(SERVER).map(str::to_owned);
    assert_eq!(seen, all.collect());
}

/// The first cells of the table under a heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    let section = DOCS.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|l| l.starts_with('|')).skip(2);
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        cells
            .map(|c| c.trim().trim_matches('`').to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

#[test]
fn the_tables_are_those_of_the_code() {
    let expected = Code::ALL.iter().map(|code| {
        let close = code
            .close()
            .map_or("stays".into(), |c| c.code().to_string());
        let retry = if code.retry() { "later" } else { "no" };
        (code.as_str().to_owned(), close, retry.to_owned())
    });
    let rows = table("Errors").into_iter();
    let found: Vec<_> = rows
        .map(|r| (r[0].clone(), r[1].clone(), r[2].clone()))
        .collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
    let expected = Close::ALL.iter().map(|close| {
        let back = if close.comes_back() { "yes" } else { "no" };
        (close.code().to_string(), back.to_owned())
    });
    let rows = table("Closing a WebSocket").into_iter();
    let found: Vec<_> = rows.map(|r| (r[0].clone(), r[1].clone())).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn the_worked_digests_are_right() {
    let user = |id: &str| UserId::new(id).unwrap();
    let mut digest = Digest::default();
    assert!(DOCS.contains(&format!("nobody: `{digest}`")));
    digest.add(&user("ann"), "3-7".parse().unwrap());
    assert_eq!(digest.to_string(), "48d33093f218b77f");
    assert!(DOCS.contains(&format!("`ann` with `3-7`: `{digest}`")));
    digest.add(&user("bob"), "3-9".parse().unwrap());
    assert!(
        DOCS.contains(&format!("and `bob` with `3-9`: `{digest}`")),
        "{digest}"
    );
}

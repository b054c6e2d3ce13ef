//! Whatever comes in, nothing panics; and what is taken in spite of it is a sound frame.

use adsum_proto::client::{Encoding, FrameLimits};
use proptest::{collection::vec, prelude::*};

use super::make::{client_frame, server_frame};

fn feed(bytes: &[u8]) {
    let limits = FrameLimits::default();
    for encoding in Encoding::ALL {
        match encoding.decode(bytes, &limits) {
            Ok(frame) => {
                let again = encoding.encode_client(&frame);
                assert_eq!(encoding.decode(again, &limits), Ok(frame));
            }
            Err(error) => {
                let _ = encoding.encode(&error.reply());
            }
        }
        if let Ok(frame) = encoding.decode_server(bytes) {
            let again = encoding.encode(&frame);
            assert_eq!(encoding.decode_server(again), Ok(frame));
        }
    }
}

/// Bends a few bytes: sets, inserts, removes, repeats.
fn bent(mut bytes: Vec<u8>, bends: &[(u8, prop::sample::Index, u8)]) -> Vec<u8> {
    for (how, at, byte) in bends {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match how % 5 {
            0 => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn noise(bytes in vec(any::<u8>(), 0..200)) {
        feed(&bytes);
    }

    #[test]
    fn text(text in "[\\[\\]{}\":,a-z0-9\\\\ntru]{0,100}") {
        feed(text.as_bytes());
    }

    #[test]
    fn bent_frames(
        client in client_frame(),
        server in server_frame(),
        bends in vec(any::<(u8, prop::sample::Index, u8)>(), 1..5),
    ) {
        for encoding in Encoding::ALL {
            feed(&bent(encoding.encode_client(&client).into(), &bends));
            feed(&bent(encoding.encode(&server).into(), &bends));
        }
    }

    /// Any value in place of any field.
    #[test]
    fn other_types(
        client in client_frame(),
        server in server_frame(),
        at in any::<prop::sample::Index>(),
        with in prop::sample::select(vec!["null", "5", "-1", "1e999", "\"\"", "[]", "{}", "[[]]"]),
    ) {
        for bytes in [Encoding::Json.encode_client(&client), Encoding::Json.encode(&server)] {
            let frame: serde_json::Map<_, _> = serde_json::from_slice(&bytes).unwrap();
            let keys: Vec<_> = frame.keys().cloned().collect();
            let bend = &keys[at.index(keys.len())];
            let field = |k: &String| {
                let value = if k == bend { with.to_owned() } else { frame[k].to_string() };
                format!("{}:{value}", serde_json::Value::from(k.as_str()))
            };
            let fields: Vec<_> = keys.iter().map(field).collect();
            feed(format!("{{{}}}", fields.join(",")).as_bytes());
        }
    }
}

#[test]
fn deep_and_long() {
    for open in ["[", "{\"a\":", "{\"type\":", "{\"meta\":[", "\"\\"] {
        feed(open.repeat(50_000).as_bytes());
    }
    feed(&vec![0x0a; 100_000]);
    feed(&vec![0xff; 100_000]);
    feed(format!("{{\"type\":\"{}\"}}", "x".repeat(200_000)).as_bytes());
}

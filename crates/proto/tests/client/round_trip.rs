//! What is written is read back the same, and both encodings say the same.

use adsum_proto::client::{Encoding, FrameLimits, json, protobuf};
use proptest::prelude::*;

use super::make::{client_frame, server_frame};

proptest! {
    #[test]
    fn frames_of_clients(frame in client_frame()) {
        let limits = FrameLimits::default();
        for encoding in Encoding::ALL {
            let bytes = encoding.encode_client(&frame);
            prop_assert_eq!(encoding.decode(&bytes, &limits), Ok(frame.clone()));
        }
    }

    #[test]
    fn frames_of_servers(frame in server_frame()) {
        for encoding in Encoding::ALL {
            let bytes = encoding.encode(&frame);
            prop_assert_eq!(encoding.decode_server(&bytes), Ok(frame.clone()));
        }
    }

    /// One line, plain JSON, `type` first: what people and other parsers see.
    #[test]
    fn json_is_json(client in client_frame(), server in server_frame()) {
        for bytes in [json::encode_client(&client), json::encode(&server)] {
            let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert!(value["type"].is_string());
            let typed = bytes.starts_with(b"{\"type\":\"");
            prop_assert!(typed);
            let one_line = !bytes.contains(&b'\n');
            prop_assert!(one_line);
        }
    }

    /// From one encoding to the other and back.
    #[test]
    fn across(frame in client_frame()) {
        let limits = FrameLimits::default();
        let read = json::decode(json::encode_client(&frame), &limits).unwrap();
        let bytes = protobuf::encode_client(&read);
        prop_assert_eq!(protobuf::decode(bytes, &limits), Ok(frame));
    }
}

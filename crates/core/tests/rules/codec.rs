//! Records survive their trip through bytes; old ones stay readable; garbage is an error.

use crate::common::{Step, Truth, step};
use adsum_core::codec::{self, CodecError};
use proptest::prelude::*;

proptest! {
    #[test]
    fn people_and_changes_round_trip(steps in prop::collection::vec(step(), 1..30)) {
        let mut truth = Truth::default();
        for step in &steps {
            if let Some(change) = truth.step(step) {
                let bytes = codec::encode_change(&change);
                prop_assert_eq!(codec::decode_change(&bytes).unwrap(), change);
            }
        }
        for person in truth.people.values() {
            let bytes = codec::encode_person(person);
            prop_assert_eq!(&codec::decode_person(&bytes).unwrap(), person);
            let prefs = codec::encode_prefs(&person.prefs);
            prop_assert_eq!(codec::decode_prefs(&prefs).unwrap(), person.prefs);
        }
        // As they are pushed: one behind another, and cut they are an error.
        let all: Vec<_> = truth.log.iter().flat_map(codec::encode_change).collect();
        match codec::decode_changes(&all) {
            Ok(changes) => prop_assert_eq!(changes, truth.log),
            Err(_) => prop_assert!(all.is_empty()),
        }
        prop_assert!(all.is_empty() || codec::decode_changes(&all[..all.len() - 1]).is_err());
    }

    #[test]
    fn garbage_is_an_error_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = codec::decode_change(&bytes);
        let _ = codec::decode_changes(&bytes);
        let _ = codec::decode_person(&bytes);
        let _ = codec::decode_prefs(&bytes);
        let _ = codec::decode_session(&bytes);
        let _ = codec::decode_contacts(&bytes);
    }

    #[test]
    fn a_record_that_was_cut_or_bent_is_an_error_or_another_record(
        steps in prop::collection::vec(step(), 5..20), at in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let mut truth = Truth::default();
        steps.iter().for_each(|s| drop(truth.step(s)));
        for change in &truth.log {
            let mut bytes = codec::encode_change(change);
            let place = at.index(bytes.len());
            prop_assert!(codec::decode_change(&bytes[..place]).is_err());
            bytes[place] ^= 1 << bit;
            let _ = codec::decode_change(&bytes);
        }
    }
}

/// Written by the first release, kept here for good: every later one reads it.
const FIRST_PERSON: &str = "9601010196000000000000a2643196a467777e31cd03e801cd03e896a27230cd03e8a0\
    a27232cd03e8a77b226e223a317db29401a66d6f62696c6501a77b226e223a327d\
    ";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn an_old_record_is_still_read() {
    let mut truth = Truth::default();
    let put = Step::Put {
        who: 0,
        device: 1,
        rooms: vec![(2, Some(1)), (0, None)],
        away: true,
        meta: Some(2),
    };
    truth.step(&put);
    let person = truth.people.values().next().unwrap();
    assert_eq!(
        codec::decode_person(&unhex(FIRST_PERSON)).as_ref(),
        Ok(person)
    );
}

#[test]
fn a_newer_format_is_named_and_appended_elements_are_passed_over() {
    let mut truth = Truth::default();
    let step = Step::Prefer {
        who: 0,
        prefs: adsum_core::Prefs::default(),
    };
    let change = truth.step(&step).unwrap();
    let mut bytes = codec::encode_change(&change);
    // Thirteen elements instead of twelve, the last one an array of a string and a number.
    assert_eq!(bytes[0], 0x9c);
    bytes[0] = 0x9d;
    bytes.extend([0x92, 0xa1, b'x', 0x07]);
    assert_eq!(codec::decode_change(&bytes), Ok(change));
    bytes[1] = 2;
    assert_eq!(
        codec::decode_change(&bytes),
        Err(CodecError::UnknownFormat(2))
    );
}

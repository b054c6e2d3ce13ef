//! `meta` at the door. It is spliced as it is into the frames of everybody who watches, so it must
//! be JSON that *every* parser reads: one user must not be able to break the clients of others.

use std::{collections::HashSet, fmt};

use adsum_core::{Invalid, Meta};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::error::excerpt;

/// Levels of lists and objects in one `meta`; common parsers stop at 64.
const DEPTH: usize = 32;

/// Checks one JSON value and keeps it without white space, so that a frame is one line; `None` for
/// `null`. The limit counts what is kept.
pub(super) fn check(text: &str, limit: usize) -> Result<Option<Meta>, Invalid> {
    let wrong = |e: serde_json::Error| Invalid::MetaNotJson(e.to_string());
    if !depth_within(text.as_bytes(), DEPTH) {
        let reason = format!("nested deeper than {DEPTH} levels");
        return Err(Invalid::MetaNotJson(reason));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    Strict.deserialize(&mut json).map_err(wrong)?;
    json.end().map_err(wrong)?;
    let text = compact(text);
    let size = text.len();
    match text.as_str() {
        "null" => Ok(None),
        _ if size > limit => Err(Invalid::MetaTooLarge { size, limit }),
        _ => Ok(Some(Meta::trusted(text))),
    }
}

/// Whether lists and objects are nested at most so deep. Looks at brackets only.
pub(super) fn depth_within(text: &[u8], limit: usize) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limit {
            return false;
        }
    }
    true
}

/// Without the white space between tokens.
fn compact(text: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    text.chars()
        .filter(|c| {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                _ => {}
            }
            quoted || !matches!(c, ' ' | '\n' | '\r' | '\t')
        })
        .collect()
}

/// Reads a value and keeps nothing. Numbers beyond a double, halves of surrogate pairs and keys
/// that come twice are refused: parsers disagree on them.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(Self)?;
            if let Some(key) = keys.replace(key) {
                let key = excerpt(&key);
                return Err(A::Error::custom(format_args!("key {key:?} comes twice")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Option<String> {
        let meta = check(text, 100).unwrap();
        meta.map(|m| m.as_str().to_owned())
    }

    #[test]
    fn is_kept_on_one_line_and_otherwise_as_it_was() {
        assert_eq!(kept(" null\n"), None);
        assert_eq!(
            kept("{ \"a b\" :\n [1.50, -0, \"\\\" \\\\\"] }").as_deref(),
            Some("{\"a b\":[1.50,-0,\"\\\" \\\\\"]}")
        );
        assert_eq!(kept("\"ü \\u00fc\"").as_deref(), Some("\"ü \\u00fc\""));
    }

    #[test]
    fn what_parsers_disagree_on_is_refused() {
        let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
        for bad in [
            "",
            "{",
            "1 2",
            "1e999",
            "\"\\ud800\"",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "NaN",
            "'a'",
            "[1,]",
            &deep,
        ] {
            let error = check(bad, 100).unwrap_err();
            assert!(matches!(error, Invalid::MetaNotJson(_)), "{bad}: {error}");
        }
        let just = format!("{}{}", "[".repeat(32), "]".repeat(32));
        assert!(check(&just, 100).is_ok());
        let brackets = format!("\"{}\"", "[".repeat(90));
        assert!(check(&brackets, 100).is_ok());
    }

    #[test]
    fn the_limit_counts_what_is_kept() {
        assert!(check("[ 1, 2 ]", 5).is_ok());
        let error = Invalid::MetaTooLarge { size: 5, limit: 4 };
        assert_eq!(check("[ 1, 2 ]", 4), Err(error));
    }
}

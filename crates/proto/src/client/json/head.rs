//! What every frame has: `type`, `ref` and `traceparent`, wherever they stand. Read first and as
//! far as possible, so that even a broken frame is answered by its `ref`.

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};

use crate::client::{Fault, FrameError, Ref, check};

#[derive(Default)]
pub(super) struct Head {
    word: Option<String>,
    r#ref: Option<String>,
    traceparent: Option<String>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Type,
    Ref,
    Traceparent,
    #[serde(other)]
    Other,
}

impl Head {
    pub(super) fn read(text: &str) -> Result<Self, FrameError> {
        let mut head = Self::default();
        let mut track = serde_path_to_error::Track::new();
        let json = &mut serde_json::Deserializer::from_str(text);
        let tracked = serde_path_to_error::Deserializer::new(&mut *json, &mut track);
        let read = Into(&mut head).deserialize(tracked);
        let fault = match read.and_then(|()| json.end()) {
            Ok(()) if head.word.is_none() => Fault::Missing("type"),
            Ok(()) => return Ok(head),
            Err(error) => super::malformed(&track.path().to_string(), &error),
        };
        Err(FrameError {
            r#ref: head.r#ref.and_then(|r| Ref::new(r).ok()),
            fault,
        })
    }

    pub(super) fn word(&self) -> &str {
        self.word.as_deref().unwrap_or_default()
    }

    pub(super) fn traceparent(&self) -> Option<Arc<str>> {
        self.traceparent.as_deref().and_then(check::traceparent)
    }

    /// Joins the `ref` to what was made of the frame.
    pub(super) fn answer<T>(&self, body: Result<T, Fault>) -> Result<(Option<Ref>, T), FrameError> {
        let r#ref = self.r#ref.as_deref().map(Ref::new).transpose()?;
        match body {
            Ok(body) => Ok((r#ref, body)),
            Err(fault) => Err(FrameError { r#ref, fault }),
        }
    }
}

/// Fills a head that stays with the caller when the rest of the frame is broken.
struct Into<'a>(&'a mut Head);

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame, which is an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut typed, mut reffed, mut traced) = (false, false, false);
        let once = |seen: &mut bool, name| {
            let before = std::mem::replace(seen, true);
            if before {
                Err(A::Error::duplicate_field(name))
            } else {
                Ok(())
            }
        };
        while let Some(key) = map.next_key()? {
            match key {
                Key::Type => {
                    once(&mut typed, "type")?;
                    self.0.word = map.next_value()?;
                }
                Key::Ref => {
                    once(&mut reffed, "ref")?;
                    self.0.r#ref = map.next_value()?;
                }
                Key::Traceparent => {
                    once(&mut traced, "traceparent")?;
                    self.0.traceparent = map.next_value()?;
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

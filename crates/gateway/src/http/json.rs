//! Bodies of requests. Fields that are not known are ignored, as in frames; a field of the wrong
//! type is refused and named by its path.

use std::{error::Error, fmt, marker::PhantomData};

use adsum_proto::client::{Code, Fault};
use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use bytes::Bytes;
use http_body_util::LengthLimitError;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

use super::HttpError;
use crate::{Caller, EdgeError, limits::LimitError, requests::BATCH_BYTES};

/// No whole number that fits is as large: 2^64.
const MOST: f64 = 18_446_744_073_709_551_616.0;

/// How long a body may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    /// As a frame.
    One,
    /// It names many.
    Batch,
}

/// An object, and nothing else: what serde reads as a struct may also be a list.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        let object = deserializer.deserialize_map(Fields(PhantomData));
        object.map(Self)
    }
}

/// Tells `null` from nothing: whatever stands there is something.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A whole number, however it is spelled: JSON knows no difference between 7 and 7.0.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Whole;
    impl<'de> Visitor<'de> for Whole {
        type Value = Option<u64>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number that is not negative")
        }
        fn visit_u64<E>(self, number: u64) -> Result<Option<u64>, E> {
            Ok(Some(number))
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        fn visit_f64<E: de::Error>(self, number: f64) -> Result<Option<u64>, E> {
            if number.fract() != 0.0 || !(0.0..MOST).contains(&number) {
                return Err(E::invalid_value(Unexpected::Float(number), &self));
            }
            Ok(Some(number as u64))
        }
        fn visit_unit<E>(self) -> Result<Option<u64>, E> {
            Ok(None)
        }
    }
    deserializer.deserialize_any(Whole)
}

/// Takes the body, if it says that it is JSON and is not too long.
pub(super) async fn take(
    request: Request,
    caller: &Caller,
    size: Size,
) -> Result<Bytes, HttpError> {
    if !is_json(request.headers()) {
        let error = EdgeError::new(Code::MalformedFrame, "the body must be application/json");
        return Err(HttpError::with(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    let frame = caller.settings.limits.frame_bytes;
    let limit = match size {
        Size::One => frame,
        Size::Batch => frame.max(BATCH_BYTES),
    };
    let said = http_body::Body::size_hint(request.body()).lower();
    if usize::try_from(said).map_or(true, |said| said > limit) {
        return Err(too_large(limit));
    }
    let taken = axum::body::to_bytes(request.into_body(), limit).await;
    taken.map_err(|error| match error.source() {
        Some(source) if source.is::<LengthLimitError>() => too_large(limit),
        _ => Fault::Malformed("the body broke off".into()).into(),
    })
}

fn too_large(limit: usize) -> HttpError {
    let size = limit.saturating_add(1);
    // How long it would have been is not known; that it is longer is.
    EdgeError {
        message: format!("the body has more than {limit} bytes"),
        ..LimitError::Frame { size, limit }.into()
    }
    .into()
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE);
    let said = said.and_then(|value| value.to_str().ok()).unwrap_or("");
    let kind = said.split(';').next().unwrap_or("").trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// Takes and reads the body.
pub(super) async fn read<T: DeserializeOwned>(
    request: Request,
    caller: &Caller,
    size: Size,
) -> Result<T, HttpError> {
    Ok(parse(&take(request, caller, size).await?)?)
}

/// Reads an object. Only what fails is read again, to name the place.
pub(super) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Fault> {
    let read = serde_json::from_slice::<Object<T>>(body);
    let object = read.map_err(|error| {
        let json = &mut serde_json::Deserializer::from_slice(body);
        let text = match serde_path_to_error::deserialize::<_, Object<T>>(json) {
            Err(placed) => placed_text(&placed.path().to_string(), placed.inner()),
            Ok(_) => error.to_string(),
        };
        Fault::Malformed(text)
    });
    object.map(|Object(value)| value)
}

fn placed_text(path: &str, error: &serde_json::Error) -> String {
    // Both repeat what the caller wrote, and that may be of any length.
    let path: String = path.chars().take(64).collect();
    let error: String = error.to_string().chars().take(256).collect();
    match path.as_str() {
        "" | "." | "?" => error,
        path => format!("{path}: {error}"),
    }
}

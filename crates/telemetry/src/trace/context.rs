//! The W3C trace context of a span, `00-<trace>-<span>-<flags>`. Only sampled ones travel.

use std::{fmt::Write, sync::Arc};

pub use opentelemetry::trace::{SpanId, TraceId};

/// A sampled span somewhere: the parent of what it causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Its trace.
    pub trace: TraceId,
    /// Itself.
    pub span: SpanId,
}

impl Context {
    /// Reads a `traceparent`, and whether it is sampled; nothing if it means nothing.
    #[must_use]
    pub fn read(text: &str) -> Option<(Self, bool)> {
        let bytes = text.as_bytes();
        let dashes = [2, 35, 52].iter().all(|n| bytes.get(*n) == Some(&b'-'));
        // A later version may have more after the flags.
        let ends = bytes.len() == 55 || (bytes.len() > 55 && bytes[55] == b'-');
        if !dashes || !ends || !text.is_ascii() {
            return None;
        }
        let version = u8::try_from(hex(&bytes[..2])?).ok()?;
        if version == 0xff || (version == 0 && bytes.len() != 55) {
            return None;
        }
        let context = Self {
            trace: TraceId::from(hex(&bytes[3..35])?),
            span: SpanId::from(u64::try_from(hex(&bytes[36..52])?).ok()?),
        };
        let valid = context.trace != TraceId::INVALID && context.span != SpanId::INVALID;
        let sampled = hex(&bytes[53..55])? & 1 == 1;
        valid.then_some((context, sampled))
    }

    /// The same if it is sampled.
    #[must_use]
    pub fn sampled(text: Option<&str>) -> Option<Self> {
        let (context, sampled) = Self::read(text?)?;
        sampled.then_some(context)
    }

    /// As it travels.
    #[must_use]
    pub fn traceparent(&self) -> Arc<str> {
        let mut text = String::with_capacity(55);
        // Text has room.
        let _ = write!(text, "00-{}-{}-01", self.trace, self.span);
        text.into()
    }
}

/// Lower case only, as the standard wants it.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_written_is_read() {
        let (context, sampled) = Context::read(TEXT).unwrap();
        assert!(sampled);
        assert_eq!(&*context.traceparent(), TEXT);
        assert_eq!(Context::sampled(Some(TEXT)), Some(context));
        let not = TEXT.replace("-01", "-00");
        assert_eq!(Context::read(&not), Some((context, false)));
        assert_eq!(Context::sampled(Some(&not)), None);
        assert_eq!(
            Context::read(&(TEXT.replace("00-4", "01-4") + "-more")),
            Some((context, true))
        );
    }

    #[test]
    fn what_means_nothing_is_nothing() {
        for text in [
            "",
            "00",
            &TEXT[1..],
            &TEXT.to_uppercase(),
            &TEXT.replace('-', "_"),
            &format!("{TEXT}-more"),
            &TEXT.replace("00-4", "ff-4"),
            &TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TEXT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TEXT.replace("00f067aa0ba902b7", "00f067aa0ba9é2b"),
        ] {
            assert_eq!(Context::read(text), None, "{text}");
        }
    }
}

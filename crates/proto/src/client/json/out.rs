//! Writes JSON by hand, because `meta` and shared items go in as they are. Knows when a comma is
//! due; the rest is up to the caller.

use std::{fmt, io::Write};

use bytes::Bytes;

#[derive(Default)]
pub(super) struct Out(Vec<u8>);

impl Out {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Goes on behind what is there.
    pub(super) fn after(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.into()
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        self.0
    }

    /// Brackets, or whole values that were written before.
    pub(super) fn raw(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(text.as_ref());
        self
    }

    fn comma(&mut self) {
        if !matches!(self.0.last(), None | Some(b'{' | b'[' | b':' | b',')) {
            self.0.push(b',');
        }
    }

    /// A key, which is a word of ours: nothing in it needs an escape.
    pub(super) fn key(&mut self, key: &str) -> &mut Self {
        self.comma();
        self.raw("\"").raw(key).raw("\":")
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut self.0, text);
        self
    }

    pub(super) fn plain(&mut self, value: impl fmt::Display) -> &mut Self {
        let _ = write!(self.0, "{value}");
        self
    }

    pub(super) fn text(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key).string(text)
    }

    pub(super) fn number(&mut self, key: &str, number: u64) -> &mut Self {
        self.key(key).plain(number)
    }

    pub(super) fn some_number(&mut self, key: &str, number: Option<u64>) -> &mut Self {
        match number {
            Some(number) => self.number(key, number),
            None => self,
        }
    }

    pub(super) fn some_text(&mut self, key: &str, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(key, text),
            None => self,
        }
    }

    pub(super) fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.key(key).raw("[");
        for item in items {
            self.comma();
            write(self, item);
        }
        self.raw("]")
    }
}

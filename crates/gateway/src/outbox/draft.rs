//! A frame in the making, with room before it for the head that a transport puts there, so that
//! both go out in one piece. It is used again for the frames of others: most frames of a diff are
//! made and written without any room of their own.

/// The longest head.
pub(crate) const HEAD: usize = 10;

/// A frame in the making.
#[derive(Debug, Default)]
pub(crate) struct Draft(Vec<u8>);

impl Draft {
    /// A frame that is whole.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut draft = Self(Vec::with_capacity(HEAD + frame.len()));
        draft.begin().extend_from_slice(frame);
        draft
    }

    /// Begins the next frame, which is put behind what is in there.
    pub(crate) fn begin(&mut self) -> &mut Vec<u8> {
        self.0.clear();
        self.0.resize(HEAD, 0);
        &mut self.0
    }

    /// How long the frame is.
    pub(crate) fn len(&self) -> usize {
        self.0.len().saturating_sub(HEAD)
    }

    /// The frame behind its head.
    pub(crate) fn with_head(&mut self, head: &[u8]) -> &[u8] {
        let at = HEAD.saturating_sub(head.len());
        for (place, byte) in self.0[at..].iter_mut().zip(head) {
            *place = *byte;
        }
        &self.0[at..]
    }
}

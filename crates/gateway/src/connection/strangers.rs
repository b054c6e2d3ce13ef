//! Connections that have not said hello. Nobody knows whose they are, so they are counted for the
//! node alone; where it has too many, the oldest of them goes elsewhere.

use std::sync::{Arc, Weak};

use adsum_core::hold::Word;

use crate::{
    outbox::Outbox,
    places::{Place, Places},
};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Arc<Places<Weak<Outbox>>>);

/// One of them, until it is dropped.
pub(crate) type Stranger = Place<Weak<Outbox>>;

impl Strangers {
    /// One more, beside `known` connections that have said hello, of `limit` in all.
    pub(crate) fn enter(&self, outbox: &Arc<Outbox>, known: usize, limit: usize) -> Stranger {
        let most = limit.saturating_sub(known);
        let (stranger, oldest) = self.0.enter(Arc::downgrade(outbox), most);
        if let Some(oldest) = oldest.and_then(|outbox| outbox.upgrade()) {
            oldest.word(Word::Away);
        }
        stranger
    }
}

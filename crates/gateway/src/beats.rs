//! How many heartbeats each thread has answered: nothing is in less of a hurry, so whoever decides
//! how long a thread may rest wants to know how much of its work they are.

use std::cell::Cell;

thread_local! {
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

/// One more, on this thread.
pub(crate) fn one() {
    ANSWERED.set(answered().wrapping_add(1));
}

/// Those that this thread has answered so far.
#[must_use]
pub fn answered() -> u64 {
    ANSWERED.get()
}

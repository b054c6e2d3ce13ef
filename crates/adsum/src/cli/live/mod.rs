//! Presence as it happens, in a terminal: `join` is there itself, `watch` only looks.

mod events;
mod join;
mod lines;
mod watch;

pub(super) use events::Events;
pub(crate) use join::Join;
pub(crate) use watch::Watch;

//! The checker itself: a small history for each invariant that it must find fault with, and the
//! nearest one that it must not.

mod script;

mod order;
mod presence;
mod privacy;
mod servers;

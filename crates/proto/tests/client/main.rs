//! The client protocol: what goes in comes out, in both encodings; what makes no sense is refused
//! by its name; the documentation shows real frames.

#![allow(clippy::unwrap_used)]

mod docs;
mod errors;
mod examples;
mod garbage;
mod make;
mod round_trip;
mod service;
mod splice;

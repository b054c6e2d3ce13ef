//! Requests through both doors, with a store in memory, a dispatcher and a feed of their own.
//! Part of the crate's own tests: the doors are not public by themselves.

mod beats;
mod errors;
mod grpc;
mod openapi;
mod paging;
mod privacy;
mod reads;
mod support;
mod writes;

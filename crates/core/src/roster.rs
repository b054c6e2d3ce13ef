//! Stub.
/// Stub.
pub struct Roster;
/// Stub.
pub struct Diff;
/// Stub.
pub struct Leave;

//! Stub.
/// Stub.
pub struct View;
/// Stub.
pub struct Presence;
/// Stub.
pub struct TopicState;

//! Words and rules of presence: what a session, a person, a change and a diff are, and the
//! contracts that stores and membership keep. Nothing here does IO, reads a clock or waits.

mod change;
pub mod codec;
mod digest;
pub mod hold;
mod ids;
mod limits;
mod load;
pub mod membership;
mod person;
pub mod plant;
mod prefs;
pub mod ring;
mod roster;
mod session;
mod status;
pub mod store;
mod topic;
mod version;
mod view;
mod whole;

pub use change::{Change, Event, Origin, Reason};
pub use digest::Digest;
pub use ids::{
    DeviceId, IdError, Incarnation, NodeId, RoomId, SessionKey, TenantId, UserId, UserKey,
};
pub use limits::{Invalid, Limits};
pub use load::load;
pub use person::{Item, Person};
pub use prefs::{Preference, Prefs, Versioned, Visibility};
pub use roster::{Diff, Leave, Pending, Roster};
pub use session::{Activity, Conn, Holder, Kind, Membership, Meta, Rooms, Session, Stamp, State};
pub use status::{Manual, Status};
pub use topic::Topic;
pub use version::Version;
pub use view::{Presence, TopicState, View};
pub use whole::states_of;

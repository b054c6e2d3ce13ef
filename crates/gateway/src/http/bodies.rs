//! The shapes of bodies, both ways, and how they are described. A field that is absent is one that
//! is not known, not there, or not to be told; what is `null` on the way in is absent.

use adsum_core::Item;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    json::{given, whole},
    schemas::{
        ActivityWord, BeatOfMany, Id, Kind, ManualWord, PageTokenText, RoomEntry, StatusWord,
        VersionText, VisibilityWord,
    },
};
use crate::{
    EdgeError,
    requests::{Counted, Page, Sighting},
};

/// `meta` as it is; it was checked when it came in.
fn raw(meta: Option<&adsum_core::Meta>) -> Option<Box<RawValue>> {
    meta.and_then(|meta| RawValue::from_string(meta.as_str().to_owned()).ok())
}

/// A failure.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub(super) struct ErrorBody {
    /// What went wrong.
    #[schema(inline)]
    pub(super) error: ProblemBody,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody {
    /// Stable; for programs. More may come.
    pub(super) code: &'static str,
    /// For people.
    pub(super) message: String,
    /// The same may succeed after so long; absent: it won't.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) retry_after_ms: Option<u64>,
    /// With `superseded`: the connection number to go above.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) conn: Option<u64>,
}

impl From<&EdgeError> for ProblemBody {
    fn from(error: &EdgeError) -> Self {
        Self {
            code: error.code.as_str(),
            message: error.message.clone(),
            retry_after_ms: error.retry_after_ms,
            conn: error.conn.map(|conn| conn.get()),
        }
    }
}

/// A person as a whole. Whoever may not be seen looks exactly like whoever is offline.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Person)]
pub(super) struct PersonBody {
    /// Who.
    #[schema(value_type = Id)]
    pub(super) user: String,
    #[schema(value_type = StatusWord)]
    pub(super) status: &'static str,
    /// Their kinds, sorted; one for each device.
    #[schema(value_type = Vec<Kind>)]
    pub(super) devices: Vec<String>,
    /// The customer's own JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub(super) meta: Option<Box<RawValue>>,
    /// The first open, or when they last came out of hiding, ms since 1970; absent when offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) since: Option<u64>,
    /// Absent when offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = VersionText, required = false)]
    pub(super) v: Option<String>,
    /// RFC 3339 in UTC; absent when online, not known or not to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub(super) last_seen: Option<String>,
    /// The same in seconds ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) last_seen_s: Option<u64>,
    /// The gateways of their devices, each once; only for tokens with `see: all`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(super) gateway: Vec<String>,
}

impl From<Sighting> for PersonBody {
    fn from(seen: Sighting) -> Self {
        let item = seen.item.as_deref();
        Self {
            user: seen.user.to_string(),
            status: item.map_or("offline", |item| item.status.as_str()),
            devices: item.map(kinds).unwrap_or_default(),
            meta: item.and_then(|item| raw(item.meta.as_ref())),
            since: item.map(|item| item.since),
            v: item.map(|item| item.v.to_string()),
            last_seen: seen.last_seen.map(|at| at.rfc3339()),
            last_seen_s: seen.last_seen.map(|at| at.ago_s()),
            gateway: seen.gateways,
        }
    }
}

fn kinds(item: &Item) -> Vec<String> {
    let kinds = item.devices.iter();
    kinds.map(|kind| kind.as_str().to_owned()).collect()
}

/// One for each that was asked for, in that order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Persons)]
pub(super) struct PersonsBody {
    pub(super) persons: Vec<PersonBody>,
}

/// When a user was last there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LastSeen)]
pub(super) struct LastSeenBody {
    /// Who.
    #[schema(value_type = Id)]
    user: String,
    /// RFC 3339 in UTC; absent when there now, not known or not to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    last_seen: Option<String>,
    /// The same in seconds ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_seen_s: Option<u64>,
}

impl From<Sighting> for LastSeenBody {
    fn from(seen: Sighting) -> Self {
        Self {
            user: seen.user.to_string(),
            last_seen: seen.last_seen.map(|at| at.rfc3339()),
            last_seen_s: seen.last_seen.map(|at| at.ago_s()),
        }
    }
}

/// One for each that was asked for, in that order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LastSeens)]
pub(super) struct LastSeensBody {
    pub(super) users: Vec<LastSeenBody>,
}

/// A person in a topic.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Item)]
pub(super) struct ItemBody {
    /// Who.
    #[schema(value_type = Id)]
    user: String,
    #[schema(value_type = StatusWord)]
    status: &'static str,
    /// The kinds of their devices here, sorted; one for each.
    #[schema(value_type = Vec<Kind>)]
    devices: Vec<String>,
    /// The customer's own JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    meta: Option<Box<RawValue>>,
    /// In a room: the join; else the first open; never before they last came out of hiding. ms
    /// since 1970.
    since: u64,
    #[schema(value_type = VersionText)]
    v: String,
}

impl From<&Item> for ItemBody {
    fn from(item: &Item) -> Self {
        Self {
            user: item.user.to_string(),
            status: item.status.as_str(),
            devices: kinds(item),
            meta: raw(item.meta.as_ref()),
            since: item.since,
            v: item.v.to_string(),
        }
    }
}

/// A page of members, sorted by user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Members)]
pub(super) struct MembersBody {
    members: Vec<ItemBody>,
    /// For the next page; absent: this was the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = PageTokenText, required = false)]
    next_page_token: Option<String>,
    /// False: some of the cluster did not answer in time.
    complete: bool,
}

impl From<Page> for MembersBody {
    fn from(page: Page) -> Self {
        Self {
            members: page.members.iter().map(|item| (&**item).into()).collect(),
            next_page_token: page.next.map(|token| token.to_string()),
            complete: page.complete,
        }
    }
}

/// How many are there whom everybody may see.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Count)]
pub(super) struct CountBody {
    count: u64,
    /// False: some of the cluster did not answer in time.
    complete: bool,
}

impl From<Counted> for CountBody {
    fn from(Counted { count, complete }: Counted) -> Self {
        Self { count, complete }
    }
}

/// How many sessions were closed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Closed)]
pub(super) struct ClosedBody {
    pub(super) closed: u32,
}

/// Whom to ask for.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Users)]
pub(super) struct UsersBody {
    #[schema(value_type = Vec<Id>, max_items = 1000)]
    pub(super) users: Option<Vec<String>>,
}

/// A manual status; `null` clears it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Manual)]
pub(super) struct StatusBody {
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = ManualWord, required = true)]
    pub(super) status: Option<Option<String>>,
}

/// Who may see a user.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Visibility)]
pub(super) struct VisibilityBody {
    #[schema(value_type = VisibilityWord)]
    pub(super) visibility: Option<String>,
}

/// Who may see a user under visibility `contacts`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Contacts)]
pub(super) struct ContactsBody {
    #[schema(value_type = Vec<Id>, max_items = 5000)]
    pub(super) contacts: Option<Vec<String>>,
}

/// A room to be in.
#[derive(Deserialize, ToSchema)]
#[schema(as = Room)]
pub(super) struct RoomBody {
    #[schema(value_type = Id)]
    pub(super) room: Option<String>,
    /// About the session in this room.
    #[schema(value_type = serde_json::Value, required = false)]
    pub(super) meta: Option<Box<RawValue>>,
}

/// One session, whole: a beat of an unknown one opens it.
#[derive(Deserialize, ToSchema)]
#[schema(as = Beat)]
pub(super) struct BeatBody {
    /// For services; absent: the token's own user.
    #[schema(value_type = Option<Id>)]
    pub(super) user: Option<String>,
    #[schema(value_type = Id)]
    pub(super) device: Option<String>,
    /// The number of the connection: the same as long as the session lives, higher for a new one.
    #[serde(default, deserialize_with = "whole")]
    #[schema(value_type = u64, required = true, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub(super) conn: Option<u64>,
    /// Counts what this session says, from 1; the same in a retry. Absent: numbered by arrival.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub(super) rev: Option<u64>,
    #[schema(value_type = Option<Kind>)]
    pub(super) kind: Option<String>,
    #[schema(value_type = Option<ActivityWord>)]
    pub(super) activity: Option<String>,
    /// The customer's own JSON.
    #[schema(value_type = serde_json::Value, required = false)]
    pub(super) meta: Option<Box<RawValue>>,
    /// All that the session is in.
    #[schema(value_type = Option<Vec<RoomEntry>>, max_items = 100)]
    pub(super) rooms: Option<Vec<super::beats::RoomIn>>,
}

/// Many sessions, each judged by itself.
#[derive(ToSchema)]
#[schema(as = Beats)]
#[allow(dead_code, reason = "described here, read piece by piece")]
pub(super) struct BeatsBody {
    #[schema(value_type = Vec<BeatOfMany>, max_items = 1000)]
    beats: Vec<BeatBody>,
}

/// What became of the beats.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Beaten)]
pub(super) struct BeatenBody {
    /// One for each beat, in that order.
    pub(super) results: Vec<BeatResult>,
    /// Beat this often. Differs a little from answer to answer.
    pub(super) heartbeat_ms: u64,
    /// Silent for longer: closed as `timeout`.
    pub(super) ttl_ms: u64,
}

/// What became of one beat.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BeatResult {
    /// Absent: done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ProblemBody, required = false)]
    pub(super) error: Option<ProblemBody>,
}

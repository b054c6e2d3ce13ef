//! Reads a batch of frames, all of it or nothing, and sorts it by what it is for: rosters, lists
//! of contacts, and the router.

use std::collections::{HashMap, HashSet};

use adsum_core::{TenantId, Topic, UserId, UserKey, Version, store::Shard};
use adsum_proto::{
    Check, Malformed, TopicKey, check_from, feed, item_from, state_from, topic_from, version_from,
};
use adsum_telemetry::{clock, metrics, trace};

use super::{topic::Op, watch::Cause};

/// What a router has to know of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) shard: Shard,
    pub(super) version: Version,
    pub(super) settling: bool,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mark,
    Part(TopicKey),
    Other,
}

/// A list of contacts.
#[derive(Debug)]
pub(super) struct ContactList {
    pub(super) owner: UserKey,
    pub(super) version: u64,
    pub(super) users: HashSet<UserId>,
}

/// A batch that makes sense.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// By topic, in their order.
    pub(super) ops: HashMap<TopicKey, Vec<(Shard, Op)>>,
    pub(super) contacts: Vec<ContactList>,
    pub(super) checks: Vec<Check>,
    pub(super) seen: Vec<Seen>,
    pub(super) states: usize,
    pub(super) parts: usize,
    /// When it came; 0 when nobody measures.
    received_us: u64,
}

/// Reads a batch.
///
/// # Errors
/// When any of it means nothing; then none of it is to be used.
pub(super) fn decode(batch: feed::Batch, shards: Shard) -> Result<Decoded, Malformed> {
    let mut decoded = Decoded::default();
    if metrics::on() || trace::on() {
        decoded.received_us = clock::wall_us();
    }
    for frame in batch.frames {
        decoded.read(frame, shards)?;
    }
    Ok(decoded)
}

impl Decoded {
    fn read(&mut self, frame: feed::Frame, shards: Shard) -> Result<(), Malformed> {
        use feed::frame::Body;
        let shard = Shard::try_from(frame.shard).ok().filter(|s| *s < shards);
        let shard = shard.ok_or(Malformed::Unknown("shard"))?;
        let at = Version::new(frame.epoch, frame.seq);
        let kind = match frame.body.ok_or(Malformed::Missing("body"))? {
            Body::States(states) => {
                self.states += states.states.len();
                for state in states.states {
                    self.read_state(shard, state)?;
                }
                Kind::Other
            }
            Body::Part(part) => Kind::Part(self.read_part(shard, part, at, frame.settling)?),
            Body::Mark(_) => Kind::Mark,
            Body::Contacts(list) => {
                self.contacts.push(contacts_from(list)?);
                Kind::Other
            }
            Body::Check(check) => {
                self.checks.push(check_from(check)?);
                Kind::Other
            }
        };
        self.seen.push(Seen {
            shard,
            version: at,
            settling: frame.settling,
            kind,
        });
        Ok(())
    }

    fn read_state(&mut self, shard: Shard, state: feed::State) -> Result<(), Malformed> {
        let times = state.origin.as_ref().map(|o| (o.committed_us, o.routed_us));
        let state = state_from(state)?;
        belongs(&state.topic, &state.user)?;
        let received_us = self.received_us;
        let cause = state
            .origin
            .zip(times)
            .map(|(origin, (committed_us, routed_us))| Cause {
                origin,
                committed_us,
                routed_us,
                received_us,
            })
            .filter(|_| received_us > 0);
        let op = Op::State {
            user: state.user,
            presence: state.presence,
            version: state.version,
            cause,
        };
        self.push((state.tenant, state.topic), shard, op);
        Ok(())
    }

    fn read_part(
        &mut self,
        shard: Shard,
        part: feed::Part,
        at: Version,
        settling: bool,
    ) -> Result<TopicKey, Malformed> {
        self.parts += 1;
        let key = topic_from(&part.topic.ok_or(Malformed::Missing("topic"))?)?;
        let mut members = Vec::with_capacity(part.members.len());
        for member in part.members {
            let item = item_from(member.item.ok_or(Malformed::Missing("item"))?)?;
            belongs(&key.1, &item.user)?;
            let version = member.version.as_ref().map(version_from);
            members.push((item, version.ok_or(Malformed::Missing("version"))?));
        }
        let op = Op::Part {
            members,
            at,
            settling,
        };
        self.push(key.clone(), shard, op);
        Ok(key)
    }

    fn push(&mut self, key: TopicKey, shard: Shard, op: Op) {
        self.ops.entry(key).or_default().push((shard, op));
    }
}

/// In the topic of a user there is nobody else.
fn belongs(topic: &Topic, user: &UserId) -> Result<(), Malformed> {
    match topic {
        Topic::User(own) if own != user => Err(Malformed::Unknown("user in this topic")),
        _ => Ok(()),
    }
}

fn contacts_from(list: feed::Contacts) -> Result<ContactList, Malformed> {
    let tenant = TenantId::new(list.tenant)?;
    let users = list.users.into_iter().map(UserId::new);
    Ok(ContactList {
        owner: UserKey::new(tenant, UserId::new(list.user)?),
        version: list.version,
        users: users.collect::<Result<_, _>>()?,
    })
}

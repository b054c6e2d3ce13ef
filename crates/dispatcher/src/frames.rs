//! What goes over the wire, made from what the view says.

use std::sync::Arc;

use adsum_core::{Item, TopicState, UserId, UserKey, Version, store::Shard};
use adsum_proto::{
    Check, TopicKey, check_to,
    feed::{self, DispatcherFrame, frame::Body},
    item_to, state_to, topic_to, version_to,
};

use crate::{outlet::Mark, tail::Routed};

/// One shard's part of one topic.
pub(crate) struct PartOf {
    pub(crate) topic: TopicKey,
    pub(crate) members: Vec<(Arc<Item>, Version)>,
    /// Who is to be taken from it even while absence means nothing.
    pub(crate) withdrawn: Vec<TopicState>,
}

/// Parts of several topics as of one version.
pub(crate) struct Parts {
    pub(crate) at: Mark,
    pub(crate) parts: Vec<PartOf>,
}

fn frame(shard: Shard, at: Mark, body: Body) -> feed::Frame {
    let Version { epoch, seq } = at.version;
    feed::Frame {
        shard: shard.into(),
        epoch,
        seq,
        settling: at.settling,
        body: Some(body),
    }
}

pub(crate) fn batch(frames: Vec<feed::Frame>) -> DispatcherFrame {
    let batch = feed::Batch { frames };
    DispatcherFrame {
        frame: Some(feed::dispatcher_frame::Frame::Batch(batch)),
    }
}

pub(crate) fn welcome(node: &str) -> DispatcherFrame {
    let welcome = feed::Welcome {
        protocol: feed::PROTOCOL,
        node: node.to_owned(),
    };
    DispatcherFrame {
        frame: Some(feed::dispatcher_frame::Frame::Welcome(welcome)),
    }
}

/// States in order, those of one shard that follow each other in one frame; then marks.
pub(crate) fn states(states: &[(Shard, Arc<Routed>)], marks: &[(Shard, Mark)]) -> Vec<feed::Frame> {
    let runs = states.chunk_by(|a, b| a.0 == b.0);
    let of_run = |run: &[(Shard, Arc<Routed>)]| {
        let (shard, last) = (run[0].0, &run[run.len() - 1].1);
        let at = Mark {
            version: last.state.version,
            settling: false,
        };
        let states = run
            .iter()
            .map(|(_, r)| state_to(&r.state, r.committed_us, r.routed_us));
        frame(
            shard,
            at,
            Body::States(feed::States {
                states: states.collect(),
            }),
        )
    };
    let marks = marks
        .iter()
        .map(|(shard, mark)| frame(*shard, *mark, Body::Mark(feed::Mark {})));
    runs.map(of_run).chain(marks).collect()
}

pub(crate) fn parts(shard: Shard, parts: &Parts) -> Vec<feed::Frame> {
    let member = |(item, version): &(Arc<Item>, Version)| feed::Member {
        item: Some(item_to(item)),
        version: Some(version_to(*version)),
    };
    let part = |part: &PartOf| feed::Part {
        topic: Some(topic_to(&part.topic.0, &part.topic.1)),
        members: part.members.iter().map(member).collect(),
    };
    let withdrawn = |part: &PartOf| {
        let states = part.withdrawn.iter().map(|state| state_to(state, 0, 0));
        let states: Vec<_> = states.collect();
        let at = Mark {
            settling: false,
            ..parts.at
        };
        (!states.is_empty()).then(|| frame(shard, at, Body::States(feed::States { states })))
    };
    let frames = |p: &PartOf| {
        let whole = frame(shard, parts.at, Body::Part(part(p)));
        [Some(whole), withdrawn(p)].into_iter().flatten()
    };
    parts.parts.iter().flat_map(frames).collect()
}

pub(crate) fn checks(checks: &[(Shard, Check)]) -> Vec<feed::Frame> {
    let at = Mark {
        version: Version::ZERO,
        settling: false,
    };
    let frames = checks.iter();
    let frames = frames.map(|(shard, check)| frame(*shard, at, Body::Check(check_to(check))));
    frames.collect()
}

pub(crate) fn contacts(
    shard: Shard,
    user: &UserKey,
    version: u64,
    users: &[UserId],
) -> feed::Frame {
    let list = feed::Contacts {
        tenant: user.tenant.to_string(),
        user: user.user.to_string(),
        version,
        users: users.iter().map(UserId::to_string).collect(),
    };
    let at = Mark {
        version: Version::ZERO,
        settling: false,
    };
    frame(shard, at, Body::Contacts(list))
}

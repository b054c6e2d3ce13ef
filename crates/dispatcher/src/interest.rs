//! Who asked for which topic: one table for all shards, since a room has people in each.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::RwLock,
};

use adsum_core::{TenantId, Topic};
use adsum_proto::TopicKey;

/// A gateway's stream.
pub type StreamId = u64;

/// Topics to streams.
#[derive(Default)]
pub(crate) struct Interest(RwLock<HashMap<TenantId, HashMap<Topic, Vec<StreamId>>>>);

impl Interest {
    pub(crate) fn add(&self, stream: StreamId, topics: &[TopicKey]) {
        let mut table = self
            .0
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (tenant, topic) in topics {
            let streams = table
                .entry(tenant.clone())
                .or_default()
                .entry(topic.clone())
                .or_default();
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
    }

    pub(crate) fn remove(&self, stream: StreamId, topics: impl IntoIterator<Item = TopicKey>) {
        let mut table = self
            .0
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (tenant, topic) in topics {
            let Entry::Occupied(mut of_tenant) = table.entry(tenant) else {
                continue;
            };
            if let Entry::Occupied(mut streams) = of_tenant.get_mut().entry(topic) {
                streams.get_mut().retain(|s| *s != stream);
                if streams.get().is_empty() {
                    streams.remove();
                }
            }
            if of_tenant.get().is_empty() {
                of_tenant.remove();
            }
        }
    }

    /// Calls `each` for every stream that asked for the topic.
    pub(crate) fn streams(&self, tenant: &TenantId, topic: &Topic, mut each: impl FnMut(StreamId)) {
        let table = self
            .0
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let streams = table.get(tenant).and_then(|topics| topics.get(topic));
        streams.into_iter().flatten().for_each(|s| each(*s));
    }
}

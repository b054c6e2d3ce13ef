//! One gateway's stream: what it asks for goes to the shards, what they have for it goes out.

use std::{sync::Arc, time::Duration};

use adsum_core::{Presence, UserKey, ring::ShardRing, store::Shard};
use adsum_proto::{
    Malformed, TopicKey,
    feed::{DispatcherFrame, GatewayFrame, gateway_frame::Frame},
    topic_from, version_from,
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::{
    contacts::{Lists, Sent},
    frames::{self, Parts},
    interest::Interest,
    outlet::{Next, Outlet},
    shard::Ask,
    shards::Shards,
};

/// All that a stream works with.
pub(crate) struct Stream {
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) interest: Arc<Interest>,
    pub(crate) lists: Arc<Lists>,
    pub(crate) ring: Arc<ShardRing>,
    pub(crate) count: Shard,
    pub(crate) contacts: usize,
}

/// How long a shard that is too busy is left alone.
const BUSY: Duration = Duration::from_millis(20);

type Out = mpsc::Sender<Result<DispatcherFrame, Status>>;

fn topics(refs: &[adsum_proto::feed::TopicRef]) -> Result<Vec<TopicKey>, Malformed> {
    refs.iter().map(topic_from).collect()
}

impl Stream {
    /// Takes one frame of the gateway.
    pub(crate) fn take(&self, frame: GatewayFrame) -> Result<(), Status> {
        let bad = |error: Malformed| Status::invalid_argument(error.to_string());
        match frame.frame {
            Some(Frame::Add(add)) => {
                let topics = topics(&add.topics).map_err(bad)?;
                self.know(&topics);
                self.outlet.want_everywhere(&topics);
            }
            Some(Frame::Drop(gone)) => {
                let topics = topics(&gone.topics).map_err(bad)?;
                self.outlet.forget(&topics);
                self.interest.remove(self.outlet.id, topics);
            }
            Some(Frame::Take(take)) => {
                let shard = self.shard(take.shard)?;
                let fresh = topics(&take.fresh).map_err(bad)?;
                self.know(&topics(&take.topics).map_err(bad)?);
                self.know(&fresh);
                let cursor = take.cursor.as_ref().map(version_from);
                self.outlet.take(shard);
                let ask = Ask::Take {
                    outlet: self.outlet.clone(),
                    cursor,
                    fresh,
                };
                if !self.shards.ask(shard, ask) {
                    return Err(Status::resource_exhausted("the shard does not keep up"));
                }
            }
            Some(Frame::Release(release)) => {
                let shard = self.shard(release.shard)?;
                self.outlet.release(shard);
                self.shards.tell(shard, Ask::Release(self.outlet.id));
            }
            Some(Frame::Hello(_)) => return Err(Status::invalid_argument("a second hello")),
            None => return Err(Status::invalid_argument("an empty or unknown frame")),
        }
        Ok(())
    }

    fn know(&self, topics: &[TopicKey]) {
        // The stream before the table: what the table finds, the stream must know.
        self.outlet.know(topics);
        self.interest.add(self.outlet.id, topics);
    }

    fn shard(&self, number: u32) -> Result<Shard, Status> {
        Shard::try_from(number)
            .ok()
            .filter(|s| *s < self.count)
            .ok_or_else(|| Status::invalid_argument("no such shard"))
    }

    /// Sends until the gateway goes away. Waits for it to read, never for memory, and never for
    /// a shard: one that hangs must not hold up the others.
    pub(crate) async fn send(&self, out: Out) {
        let mut sent = Sent::default();
        let mut asked = FuturesUnordered::new();
        loop {
            let answer = asked.next().now_or_never().flatten();
            let frames = match answer {
                Some(answer) => self.parts(answer, &mut sent),
                None => match self.outlet.next() {
                    Next::Idle => tokio::select! {
                        Some(answer) = asked.next() => self.parts(answer, &mut sent),
                        () = self.outlet.ready() => continue,
                        () = out.closed() => return,
                    },
                    Next::Batch(states, marks) => {
                        for (_, routed) in &states {
                            if let Presence::Here(item) = &routed.state.presence {
                                sent.note(&routed.state.tenant, item);
                            }
                        }
                        frames::states(&states, &marks)
                    }
                    Next::Checks(checks) => frames::checks(&checks),
                    Next::Parts(shard, topics) => {
                        asked.push(self.ask(shard, topics));
                        continue;
                    }
                },
            };
            // With those they belong to, and before them: a person whose list is not known is
            // hidden, so a list that came later would make a leave and a join out of nothing.
            let lists = sent.fetch(&self.lists, self.contacts).await;
            let lists = lists
                .iter()
                .map(|(user, v, list)| self.list(user, *v, list));
            let frames: Vec<_> = lists.chain(frames).collect();
            if !frames.is_empty() && out.send(Ok(frames::batch(frames))).await.is_err() {
                return;
            }
        }
    }

    fn list(
        &self,
        user: &UserKey,
        version: u64,
        list: &[adsum_core::UserId],
    ) -> adsum_proto::feed::Frame {
        frames::contacts(self.ring.shard_of(user), user, version, list)
    }

    async fn ask(&self, shard: Shard, topics: Vec<TopicKey>) -> (Shard, Option<Parts>) {
        let (reply, answer) = oneshot::channel();
        self.shards.tell(shard, Ask::Parts(topics.clone(), reply));
        let parts = answer.await.ok();
        if parts.is_none() {
            // The shard is too busy to answer, or not loaded yet.
            tokio::time::sleep(BUSY).await;
            self.outlet.want(shard, topics);
        }
        (shard, parts)
    }

    fn parts(
        &self,
        (shard, parts): (Shard, Option<Parts>),
        sent: &mut Sent,
    ) -> Vec<adsum_proto::feed::Frame> {
        self.outlet.sent_parts(shard);
        let Some(parts) = parts else {
            return Vec::new();
        };
        for part in &parts.parts {
            part.members
                .iter()
                .for_each(|(item, _)| sent.note(&part.topic.0, item));
        }
        frames::parts(shard, &parts)
    }

    /// Leaves nothing behind.
    pub(crate) fn end(&self) {
        for shard in self.outlet.taken() {
            self.shards.tell(shard, Ask::Release(self.outlet.id));
        }
        self.interest.remove(self.outlet.id, self.outlet.close());
        if self.outlet.overflows() > 0 {
            tracing::info!(
                overflows = self.outlet.overflows(),
                "a gateway read too slowly"
            );
        }
    }
}

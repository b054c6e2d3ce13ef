//! What operations share: the head of every call, its answer, and heartbeats by the shard.

use std::sync::atomic::Ordering::Relaxed;

use adsum_core::{
    Conn, Limits, codec,
    store::{Answer, Result, Shard, StoreError, Touch, Touched},
};

use super::{
    RedisStore,
    answers::Reply,
    functions::{Args, Function, Packed},
};

/// The random part of a new epoch is below this.
const NONCES: u64 = 1024;
/// Most heartbeats in one call: Lua takes some thousand arguments at once.
const CHUNK: usize = 500;
/// Values of each of them.
const OF_A_BEAT: usize = 9;

impl RedisStore {
    /// What every function's arguments begin with.
    pub(super) fn args(&self, shard: Shard) -> Args {
        let (options, hooks) = (&self.options, &self.shared.config.hooks);
        let nonce = hooks.nonce.unwrap_or_else(|| rand::random_range(0..NONCES));
        let clock = hooks.clock.as_ref();
        let clock = clock.map_or(0, |c| c.load(Relaxed));
        Args::new(&[
            options.shards.into(),
            self.seen(shard),
            nonce,
            clock,
            options.settle_ms,
            options.alive_gap_ms,
            options.log_len,
            options.log_max_bytes,
        ])
    }

    /// Calls a function, and remembers the epoch that it answers.
    pub(super) async fn run(&self, shard: Shard, function: Function, args: Args) -> Result<Reply> {
        let keys = self.keys(shard)?;
        let value = self.shared.caller.function(function, keys, &args).await;
        let reply = Reply::read(value.map_err(|error| self.named(error))?)?;
        self.remember(shard, reply.epoch);
        Ok(reply)
    }

    /// Adds what only the caller knows.
    pub(super) fn named(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::WrongShards { stored, .. } => StoreError::WrongShards {
                stored,
                configured: self.options.shards.into(),
            },
            other => other,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.options.limits
    }

    /// Those of one shard, with their places. Chunks go one after another: a session may be in
    /// two of them.
    pub(super) async fn touch_places(
        &self,
        shard: Shard,
        places: &[usize],
        ops: &[Touch],
    ) -> Result<Vec<(usize, Answer<Touched>)>> {
        let mut answers = Vec::with_capacity(places.len());
        for chunk in places.chunks(CHUNK) {
            let group: Vec<_> = chunk.iter().map(|place| &ops[*place]).collect();
            let answered = self.touch_shard(shard, &group).await?;
            answers.extend(chunk.iter().copied().zip(answered));
        }
        Ok(answers)
    }

    async fn touch_shard(&self, shard: Shard, ops: &[&Touch]) -> Result<Vec<Answer<Touched>>> {
        let beat = |body: Packed, op: &&Touch| {
            body.text(op.key.owner.encode())
                .text(&op.key.device)
                .number(op.stamp.conn.get())
                .number(op.stamp.rev)
                .number(op.ttl_ms)
                .packed(Some(&codec::encode_rooms(&op.state.rooms)))
                .bytes(&codec::encode_state(&op.state))
                .text(codec::encode_origin(op.origin.as_ref()))
                .number(op.sessions_max as u64)
        };
        let args = self
            .args(shard)
            .with(|body| ops.iter().fold(body.list(OF_A_BEAT * ops.len()), beat));
        let mut reply = self.run(shard, Function::Touch, args).await?;
        let (epoch, at) = (reply.epoch, reply.at);
        let mut answers = Vec::with_capacity(ops.len());
        for _ in ops {
            let committed = reply.maybe_number()?;
            let conn = reply.number()?;
            let value = match committed {
                Some(0) => Touched::Ok { committed: false },
                Some(1) => Touched::Ok { committed: true },
                Some(2) => Touched::Full,
                None => Touched::Superseded {
                    conn: conn_of(conn)?,
                },
                Some(_) => return reply.unknown(),
            };
            answers.push(Answer {
                epoch,
                at,
                whole: None,
                value,
            });
        }
        reply.answer(())?;
        Ok(answers)
    }
}

pub(super) fn conn_of(number: u64) -> Result<Conn> {
    Conn::new(number).map_err(|_| StoreError::Corrupt("a connection that is none".into()))
}

//! The store's contract: each operation becomes a call of a function on its shard, or a part of one.

use adsum_core::{
    Change, DeviceId, Event, Incarnation, Invalid, Origin, Preference, Prefs, Session, SessionKey,
    UserId, UserKey, Version, codec,
    store::{
        Alter, Altered, Answer, Close, Closed, Due, Fence, Lease, LogPage, Open, Opened, Preferred,
        Push, Renewed, Result, ScanPage, Shard, Store, StoreError, Swept, Touch, Touched, UserRead,
    },
};
use async_trait::async_trait;
use futures::{future::try_join_all, stream::BoxStream};

use super::{
    RedisStore,
    answers::bytes,
    functions::{Function, Packed},
    run::conn_of,
    together::{Kind, REFUSED, SUPERSEDED, WHOLE},
};
use crate::numbers::{check_stamp, check_version};

#[async_trait]
impl Store for RedisStore {
    fn shards(&self) -> Shard {
        self.options.shards
    }

    fn shard_of(&self, user: &UserKey) -> Shard {
        self.ring.shard_of(user)
    }

    fn observe(&self, shard: Shard, epoch: u64) {
        self.remember(shard, epoch);
    }

    async fn check(&self) -> Result<()> {
        self.check_servers().await
    }

    async fn open(&self, op: Open) -> Result<Answer<Opened>> {
        self.limits().check(&op.state)?;
        check_stamp(op.stamp)?;
        let shard = self.shard_of(&op.key.owner);
        let packed = |body: Packed| {
            body.text(&op.key.device)
                .number(op.stamp.conn.get())
                .number(op.stamp.rev)
                .text(codec::encode_origin(op.origin.as_ref()))
                .text(&op.holder)
                .number(self.options.holder_ms)
                .number(op.opened_at)
                .packed(Some(&codec::encode_rooms(&op.state.rooms)))
                .bytes(&codec::encode_state(&op.state))
                .packed(op.prefs.as_ref().map(codec::encode_prefs).as_deref())
        };
        let owner = op.key.owner.encode();
        let mut reply = self.apply(shard, Kind::Open, owner, packed).await?;
        let value = match reply.number()? {
            REFUSED => Opened::Gone,
            SUPERSEDED => Opened::Superseded {
                conn: conn_of(reply.number()?)?,
            },
            WHOLE => {
                let (session, prefs) = session_in(reply.whole()?)?;
                Opened::Ok {
                    session,
                    prefs,
                    committed: true,
                }
            }
            committed => Opened::Ok {
                committed: committed == 1,
                session: Box::new(codec::decode_session(&reply.bytes()?)?),
                prefs: codec::decode_prefs(&reply.bytes()?)?,
            },
        };
        reply.answer(value)
    }

    async fn alter(&self, op: Alter) -> Result<Answer<Altered>> {
        self.limits().check(&op.state)?;
        check_stamp(op.stamp)?;
        let shard = self.shard_of(&op.key.owner);
        let packed = |body: Packed| {
            body.text(&op.key.device)
                .number(op.stamp.conn.get())
                .number(op.stamp.rev)
                .text(codec::encode_origin(op.origin.as_ref()))
                .packed(Some(&codec::encode_rooms(&op.state.rooms)))
                .bytes(&codec::encode_state(&op.state))
        };
        let owner = op.key.owner.encode();
        let mut reply = self.apply(shard, Kind::Change, owner, packed).await?;
        let value = match reply.number()? {
            REFUSED => Altered::Unknown,
            SUPERSEDED => Altered::Superseded {
                conn: conn_of(reply.number()?)?,
            },
            WHOLE => Altered::Ok {
                session: session_in(reply.whole()?)?.0,
                committed: true,
            },
            committed => Altered::Ok {
                committed: committed == 1,
                session: Box::new(codec::decode_session(&reply.bytes()?)?),
            },
        };
        reply.answer(value)
    }

    async fn close(&self, op: Close) -> Result<Answer<Closed>> {
        check_stamp(op.stamp)?;
        let shard = self.shard_of(&op.key.owner);
        let packed = |body: Packed| {
            body.text(&op.key.device)
                .number(op.stamp.conn.get())
                .number(op.stamp.rev)
                .text(codec::encode_origin(op.origin.as_ref()))
                .number(op.reason.code())
                .number(self.options.tomb_ms)
        };
        let owner = op.key.owner.encode();
        let mut reply = self.apply(shard, Kind::Close, owner, packed).await?;
        let value = match reply.number()? {
            SUPERSEDED => Closed::Superseded {
                conn: conn_of(reply.number()?)?,
            },
            WHOLE => {
                reply.whole()?;
                Closed::Ok { committed: true }
            }
            committed => Closed::Ok {
                committed: committed == 1,
            },
        };
        reply.answer(value)
    }

    async fn touch(&self, ops: Vec<Touch>) -> Result<Vec<Answer<Touched>>> {
        for op in &ops {
            self.limits().check(&op.state)?;
            check_stamp(op.stamp)?;
        }
        let shards = self.by_shard(ops.iter().map(|op| &op.key.owner));
        let calls = shards
            .iter()
            .map(|(shard, places)| self.touch_places(*shard, places, &ops));
        let mut all: Vec<_> = try_join_all(calls).await?.into_iter().flatten().collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        Ok(all.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn kick(
        &self,
        user: &UserKey,
        device: Option<&DeviceId>,
    ) -> Result<Answer<Vec<DeviceId>>> {
        let shard = self.shard_of(user);
        let args = self.args(shard).with(|body| {
            body.text(user.encode())
                .text(device.map_or("", DeviceId::as_str))
                .number(self.options.tomb_ms)
        });
        let mut reply = self.run(shard, Function::Kick, args).await?;
        let devices = reply.list()?.into_iter().map(|name| {
            let name = String::from_utf8(bytes(name)?).unwrap_or_default();
            DeviceId::new(name).map_err(|e| StoreError::Corrupt(e.to_string()))
        });
        let devices = devices.collect::<Result<_>>()?;
        reply.answer(devices)
    }

    async fn purge(&self, user: &UserKey) -> Result<Answer<()>> {
        let shard = self.shard_of(user);
        let tomb_ms = self.options.tomb_ms;
        let args = self
            .args(shard)
            .with(|body| body.text(user.encode()).number(tomb_ms));
        self.run(shard, Function::Purge, args).await?.answer(())
    }

    async fn renew(
        &self,
        shard: Shard,
        holder: &Incarnation,
        lease: Lease,
    ) -> Result<Answer<Renewed>> {
        let (letter, ms) = match lease {
            Lease::Usual => ('h', self.options.holder_ms),
            Lease::Drain(ms) => ('d', ms),
        };
        let args = self
            .args(shard)
            .with(|body| body.text(holder).text(letter).number(ms));
        self.behind(shard).await?;
        let mut reply = self.run(shard, Function::Renew, args).await?;
        let value = match reply.word() {
            "ok" => Renewed::Ok {
                held: reply.number()?,
            },
            "gone" => Renewed::Gone,
            _ => return reply.unknown(),
        };
        reply.answer(value)
    }

    async fn held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        self.read_held(shard, holder, after, limit).await
    }

    async fn claim(&self, shard: Shard) -> Result<Answer<Fence>> {
        let mut reply = self.run(shard, Function::Claim, self.args(shard)).await?;
        let fence = Fence {
            epoch: reply.epoch,
            number: reply.number()?,
        };
        reply.answer(fence)
    }

    async fn sweep_from(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<Origin>,
    ) -> Result<Answer<Swept>> {
        self.run_sweep(shard, fence, limit, origin.as_ref()).await
    }

    async fn prefer_from(
        &self,
        user: &UserKey,
        preference: Preference,
        version: u64,
        origin: Option<Origin>,
    ) -> Result<Answer<Preferred>> {
        self.write_preference(user, &preference, version, origin.as_ref())
            .await
    }

    async fn contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        self.read_contacts(user).await
    }

    async fn read(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        self.read_users(users).await
    }

    async fn log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        self.read_log(shard, after, limit).await
    }

    async fn ends_with(&self, shard: Shard, last: Version) -> Result<bool> {
        self.glance(shard, last).await
    }

    async fn scan(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        self.read_people(shard, cursor).await
    }

    async fn deadlines(&self, shard: Shard, limit: usize) -> Result<Vec<(Due, u64)>> {
        self.read_deadlines(shard, limit).await
    }

    async fn subscribe(&self, shard: Shard) -> Result<BoxStream<'static, Push>> {
        self.shared.hub.subscribe(self.keys(shard)?).await
    }
}

impl RedisStore {
    async fn run_sweep(
        &self,
        shard: Shard,
        fence: Fence,
        limit: usize,
        origin: Option<&Origin>,
    ) -> Result<Answer<Swept>> {
        let options = &self.options;
        let args = self.args(shard).with(|body| {
            body.number(fence.epoch)
                .number(fence.number)
                .number(limit.max(1) as u64)
                .number(options.max_deadline_ms)
                .number(options.retention_ms)
                .text(codec::encode_origin(origin))
        });
        let mut reply = self.run(shard, Function::Sweep, args).await?;
        let value = match reply.word() {
            "ok" => Swept::Ok {
                closed: reply.number()?,
                next_ms: reply.maybe_number()?,
            },
            "refused" => Swept::Refused,
            _ => return reply.unknown(),
        };
        reply.answer(value)
    }

    async fn write_preference(
        &self,
        user: &UserKey,
        preference: &Preference,
        version: u64,
        origin: Option<&Origin>,
    ) -> Result<Answer<Preferred>> {
        check_version(version)?;
        let shard = self.shard_of(user);
        if let Preference::Contacts(list) = preference {
            let (count, limit) = (list.len(), self.limits().contacts);
            if count > limit {
                return Err(Invalid::TooManyContacts { count, limit }.into());
            }
        }
        let args = self.args(shard).with(|body| {
            let body = body.text(user.encode());
            // The number is the setting's place in the record.
            let body = match preference {
                Preference::Status(status) => {
                    let code = status.map_or(0, adsum_core::Manual::code);
                    body.number(1).number(version).number(code)
                }
                Preference::Visibility(who) => body.number(3).number(version).number(who.code()),
                Preference::Contacts(list) => body
                    .number(5)
                    .number(version)
                    .bytes(&codec::encode_contacts(list)),
            };
            body.text(codec::encode_origin(origin))
        });
        self.run_prefer(shard, args).await
    }
}

/// What a change says of the session that it is about.
fn session_in(change: &Change) -> Result<(Box<Session>, Prefs)> {
    match &change.event {
        Event::Session {
            after: Some(session),
            prefs,
            ..
        } => Ok((Box::new(session.clone()), *prefs)),
        _ => Err(StoreError::Corrupt("a change of no session".into())),
    }
}

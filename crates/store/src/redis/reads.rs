//! What is read of shards: two functions that write nothing, and plain commands. All of it from
//! masters.

use std::collections::BTreeMap;

use adsum_core::{
    Incarnation, SessionKey, UserId, UserKey, Version, codec,
    store::{Due, LogPage, Position, Result, ScanPage, Shard, Store, StoreError, UserRead},
};
use futures::future::try_join_all;
use redis::{Cmd, Value, cmd};

use super::{
    RedisStore,
    answers::{bytes, list, number, optional, scored},
    functions::Function,
    head::Head,
};

/// Most users in one call.
const CHUNK: usize = 500;
/// Most entries of a log in one answer; who wants more asks again.
const LOG_PAGE: usize = 10_000;
/// About so many people in a page of a scan.
const SCAN_PAGE: usize = 500;
/// Joins the parts of keys; no id contains it.
const JOIN: char = '\u{1f}';
/// Comes right after it: the end of all keys that begin with the same parts.
const AFTER_JOIN: char = '\u{20}';

fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

impl RedisStore {
    /// The places of what belongs to each shard, in order.
    pub(super) fn by_shard<'a>(
        &self,
        users: impl Iterator<Item = &'a UserKey>,
    ) -> BTreeMap<Shard, Vec<usize>> {
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (place, user) in users.enumerate() {
            shards.entry(self.shard_of(user)).or_default().push(place);
        }
        shards
    }

    /// A plain command about one key of a shard.
    async fn ask(&self, shard: Shard, command: &Cmd) -> Result<Value> {
        self.shared
            .caller
            .command(self.keys(shard)?.slot, command)
            .await
    }

    pub(super) async fn read_users(&self, users: &[UserKey]) -> Result<Vec<UserRead>> {
        let shards = self.by_shard(users.iter());
        let chunks = shards
            .iter()
            .flat_map(|(shard, places)| places.chunks(CHUNK).map(move |chunk| (*shard, chunk)));
        let calls = chunks.map(|(shard, chunk)| self.read_chunk(shard, chunk, users));
        let mut all: Vec<_> = try_join_all(calls).await?.into_iter().flatten().collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        Ok(all.into_iter().map(|(_, user)| user).collect())
    }

    /// Some users of one shard, with their places.
    async fn read_chunk(
        &self,
        shard: Shard,
        places: &[usize],
        users: &[UserKey],
    ) -> Result<Vec<(usize, UserRead)>> {
        let count = places.len();
        let names = places.iter().map(|place| users[*place].encode());
        let args = self
            .args(shard)
            .with(|body| names.fold(body.list(count), |body, name| body.text(name)));
        let mut reply = self.run(shard, Function::Read, args).await?;
        if reply.word() == "unborn" {
            // Nothing is known, so absence means nothing.
            let nothing = UserRead {
                settling: true,
                ..UserRead::default()
            };
            return Ok(places
                .iter()
                .map(|place| (*place, nothing.clone()))
                .collect());
        }
        let settling = reply.flag()?;
        let (people, prefs, seen) = (reply.list()?, reply.list()?, reply.list()?);
        reply.answer(())?;
        if [people.len(), prefs.len(), seen.len()] != [count; 3] {
            return Err(corrupt("not one answer for each user"));
        }
        let all = places.iter().zip(people.into_iter().zip(prefs).zip(seen));
        all.map(|(place, ((person, prefs), seen))| {
            Ok((*place, read_user(person, prefs, seen, settling)?))
        })
        .collect()
    }

    pub(super) async fn read_contacts(&self, user: &UserKey) -> Result<Option<(u64, Vec<UserId>)>> {
        let shard = self.shard_of(user);
        let own = user.encode();
        let fields = [own.clone(), format!("c{JOIN}{own}")];
        let command = cmd("HMGET")
            .arg(self.keys(shard)?.named("prefs"))
            .arg(&fields)
            .to_owned();
        let mut answers = list(self.ask(shard, &command).await?)?.into_iter();
        let prefs = answers.next().and_then(optional).map(bytes).transpose()?;
        let Some(contacts) = answers.next().and_then(optional) else {
            return Ok(None);
        };
        let prefs = prefs
            .as_deref()
            .map(codec::decode_prefs)
            .transpose()?
            .unwrap_or_default();
        Ok(Some((
            prefs.contacts,
            codec::decode_contacts(&bytes(contacts)?)?,
        )))
    }

    pub(super) async fn read_log(&self, shard: Shard, after: u64, limit: usize) -> Result<LogPage> {
        let limit = limit.min(LOG_PAGE) as u64;
        let args = self
            .args(shard)
            .with(|body| body.number(after).number(limit));
        let mut reply = self.run(shard, Function::Log, args).await?;
        if reply.word() == "unborn" {
            return Ok(LogPage {
                position: None,
                entries: Vec::new(),
                hole: false,
            });
        }
        let (seq, first, settling) = (reply.number()?, reply.number()?, reply.flag()?);
        let position = Position {
            epoch: reply.epoch,
            seq,
            first,
            settling,
        };
        let entries = reply.list()?.into_iter().map(|entry| {
            let entry = bytes(entry)?;
            codec::decode_change(&entry).map_err(StoreError::from)
        });
        let entries = entries.collect::<Result<_>>()?;
        reply.answer(())?;
        let hole = after.saturating_add(1) < first;
        Ok(LogPage {
            position: Some(position),
            entries,
            hole,
        })
    }

    /// One plain command: a function costs the server many times as much.
    pub(super) async fn glance(&self, shard: Shard, last: Version) -> Result<bool> {
        let command = cmd("HGET")
            .arg(self.keys(shard)?.named("meta"))
            .arg("head")
            .to_owned();
        let Some(head) = optional(self.ask(shard, &command).await?) else {
            return Ok(false);
        };
        let head = Head::read(&bytes(head)?)?;
        Ok(head.version == last && !head.unsettled)
    }

    pub(super) async fn read_people(&self, shard: Shard, cursor: u64) -> Result<ScanPage> {
        let people = self.keys(shard)?.named("people");
        let command = cmd("HSCAN")
            .arg(people)
            .arg(cursor)
            .arg("COUNT")
            .arg(SCAN_PAGE)
            .to_owned();
        let mut answers = list(self.ask(shard, &command).await?)?.into_iter();
        let next = number(&answers.next().unwrap_or(Value::Nil))?;
        let mut fields = list(answers.next().unwrap_or(Value::Nil))?.into_iter();
        let mut found = Vec::with_capacity(fields.len() / 2);
        while let (Some(user), Some(person)) = (fields.next(), fields.next()) {
            let user = bytes(user)?;
            // The sentinel.
            if !user.is_empty() {
                let user = UserKey::decode(&user).map_err(corrupt)?;
                found.push((user, codec::decode_person(&bytes(person)?)?));
            }
        }
        Ok(ScanPage {
            people: found,
            next: (next != 0).then_some(next),
        })
    }

    pub(super) async fn read_held(
        &self,
        shard: Shard,
        holder: &Incarnation,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>> {
        let from = match after {
            Some(key) => format!("({holder}{JOIN}{}", key.encode()),
            None => format!("[{holder}{JOIN}"),
        };
        let command = cmd("ZRANGEBYLEX")
            .arg(self.keys(shard)?.named("held"))
            .arg(from)
            .arg(format!("({holder}{AFTER_JOIN}"))
            .arg("LIMIT")
            .arg(0)
            .arg(i64::try_from(limit).unwrap_or(i64::MAX))
            .to_owned();
        let entries = list(self.ask(shard, &command).await?)?;
        let skip = holder.as_str().len() + JOIN.len_utf8();
        let keys = entries.into_iter().map(|entry| {
            let entry = bytes(entry)?;
            SessionKey::decode(entry.get(skip..).unwrap_or_default()).map_err(corrupt)
        });
        keys.collect()
    }

    pub(super) async fn read_deadlines(
        &self,
        shard: Shard,
        limit: usize,
    ) -> Result<Vec<(Due, u64)>> {
        let Some(last) = limit.checked_sub(1) else {
            return Ok(Vec::new());
        };
        let command = cmd("ZRANGE")
            .arg(self.keys(shard)?.named("deadlines"))
            .arg(0)
            .arg(i64::try_from(last).unwrap_or(i64::MAX))
            .arg("WITHSCORES")
            .to_owned();
        let members = scored(self.ask(shard, &command).await?)?;
        members
            .into_iter()
            .map(|(member, at)| Ok((due(&member)?, at)))
            .collect()
    }
}

fn read_user(person: Value, prefs: Value, seen: Value, settling: bool) -> Result<UserRead> {
    let person = optional(person).map(bytes).transpose()?;
    let prefs = optional(prefs).map(bytes).transpose()?;
    Ok(UserRead {
        person: person.as_deref().map(codec::decode_person).transpose()?,
        prefs: prefs
            .as_deref()
            .map(codec::decode_prefs)
            .transpose()?
            .unwrap_or_default(),
        last_seen: optional(seen).as_ref().map(number).transpose()?,
        settling,
    })
}

/// A member of `deadlines`: a letter and what it is about.
fn due(member: &[u8]) -> Result<Due> {
    let (letter, rest) = member
        .split_first()
        .ok_or_else(|| corrupt("an empty deadline"))?;
    let holder = || {
        let text = std::str::from_utf8(rest).map_err(corrupt)?;
        Incarnation::new(text).map_err(corrupt)
    };
    let session = || SessionKey::decode(rest).map_err(corrupt);
    Ok(match letter {
        b'h' => Due::Holder(holder()?),
        b'd' => Due::Draining(holder()?),
        b'c' | b'e' => Due::Condemned(holder()?),
        b's' => Due::Session(session()?),
        b't' => Due::Tomb(session()?),
        _ => return Err(corrupt("a deadline of an unknown kind")),
    })
}

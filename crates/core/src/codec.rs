//! The compact binary form of what is stored and logged: MessagePack arrays, which the Lua
//! functions read and write too. The first element of every record is its format; elements
//! after the known ones are passed over, so a newer binary may append.
//!
//! ```text
//! person  = [1, epoch, seq, prefs, device, session, device, session, …]
//! session = [holder or "", conn, rev, opened_at, rooms, state]
//! rooms   = [room, since, meta or "", room, since, meta or "", …]   sorted by room
//! state   = a string of [1, kind, activity, meta or ""]             opaque to Lua
//! prefs   = [status, version, visibility, version, contacts version, frozen_at, shown_at]
//! change  = [1, epoch, seq, at, event, reason, owner or "", device or "", rooms before,
//!            session or false, prefs or false, origin or ""]
//! ```

use std::sync::Arc;

use rmp::{
    Marker,
    decode::{read_array_len, read_int, read_marker},
    encode::{write_array_len, write_bool, write_str_len, write_uint},
};

use crate::{
    Activity, Change, Conn, DeviceId, Event, Holder, Incarnation, Kind, Manual, Membership, Meta,
    Origin, Person, Prefs, Reason, RoomId, Rooms, Session, Stamp, State, UserId, UserKey, Version,
    Versioned, Visibility,
};

/// The format that this release writes.
pub const FORMAT: u64 = 1;

const EVENT_EPOCH: u64 = 0;
const EVENT_SETTLED: u64 = 1;
const EVENT_SESSION: u64 = 2;
const EVENT_PREFS: u64 = 3;
/// No record nests deeper; a bound against crafted bytes.
const MAX_DEPTH: u8 = 8;

/// Bytes that are no record of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Written by a release that this one does not know.
    #[error("record of format {0}: this release reads up to {FORMAT}")]
    UnknownFormat(u64),
    /// Not what any release wrote.
    #[error("malformed record: {0}")]
    Malformed(&'static str),
}

type Result<T> = std::result::Result<T, CodecError>;

/// Reads one record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array(&mut self) -> Result<usize> {
        let len = read_array_len(&mut self.0).map_err(|_| CodecError::Malformed("array"))?;
        // Every element takes a byte at least: a longer claim is a lie.
        if len as usize > self.0.len() {
            return Err(CodecError::Malformed("array length"));
        }
        Ok(len as usize)
    }

    fn fixed(&mut self, at_least: usize) -> Result<usize> {
        let len = self.array()?;
        if len < at_least {
            return Err(CodecError::Malformed("too few elements"));
        }
        Ok(len - at_least)
    }

    fn uint(&mut self) -> Result<u64> {
        read_int(&mut self.0).map_err(|_| CodecError::Malformed("number"))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(CodecError::Malformed("string length"))?;
        self.0 = rest;
        Ok(head)
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        // rmp borrows its input mutably for lengths only, never for contents.
        let len =
            rmp::decode::read_str_len(&mut self.0).map_err(|_| CodecError::Malformed("string"))?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| CodecError::Malformed("UTF-8"))
    }

    /// `false` stands for "none", because Lua arrays can't hold nil.
    fn absent(&mut self) -> bool {
        match self.0.first() {
            Some(0xc2 | 0xc0) => {
                self.0 = &self.0[1..];
                true
            }
            _ => false,
        }
    }

    fn skip(&mut self, values: usize) -> Result<()> {
        (0..values).try_for_each(|_| self.skip_one(MAX_DEPTH))
    }

    fn skip_one(&mut self, depth: u8) -> Result<()> {
        const BAD: CodecError = CodecError::Malformed("value");
        let depth = depth.checked_sub(1).ok_or(BAD)?;
        let before = self.0;
        let plain = match read_marker(&mut self.0).map_err(|_| BAD)? {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => {
                0
            }
            Marker::U8 | Marker::I8 => 1,
            Marker::U16 | Marker::I16 => 2,
            Marker::U32 | Marker::I32 | Marker::F32 => 4,
            Marker::U64 | Marker::I64 | Marker::F64 => 8,
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                self.0 = before;
                return self.bytes().map(drop);
            }
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
                self.0 = before;
                let len = self.array()?;
                return (0..len).try_for_each(|_| self.skip_one(depth));
            }
            _ => return Err(BAD),
        };
        self.take(plain).map(drop)
    }

    fn format(&mut self) -> Result<()> {
        match self.uint()? {
            1 => Ok(()),
            n => Err(CodecError::UnknownFormat(n)),
        }
    }

    fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(CodecError::Malformed("trailing bytes"))
        }
    }
}

/// Writes one record. Writing to a `Vec` can't fail, which [`Writer`] states once.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn array(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let _ = write_array_len(&mut self.0, len);
    }

    fn uint(&mut self, n: u64) {
        let _ = write_uint(&mut self.0, n);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let _ = write_str_len(&mut self.0, len);
        self.0.extend_from_slice(bytes);
    }

    fn none(&mut self) {
        let _ = write_bool(&mut self.0, false);
    }
}

fn id<T>(made: std::result::Result<T, crate::IdError>) -> Result<T> {
    made.map_err(|_| CodecError::Malformed("id"))
}

fn optional_meta(text: &str) -> Option<Meta> {
    (!text.is_empty()).then(|| Meta::trusted(text))
}

fn meta_text(meta: Option<&Meta>) -> &[u8] {
    meta.map_or(b"", |m| m.as_str().as_bytes())
}

/// The rooms of a session, in the order of their ids.
#[must_use]
pub fn encode_rooms(rooms: &Rooms) -> Vec<u8> {
    let mut w = Writer::default();
    write_rooms(&mut w, rooms);
    w.0
}

fn write_rooms(w: &mut Writer, rooms: &Rooms) {
    w.array(rooms.len() * 3);
    for (room, stay) in rooms {
        w.bytes(room.as_str().as_bytes());
        w.uint(stay.since);
        w.bytes(meta_text(stay.meta.as_ref()));
    }
}

fn read_rooms(r: &mut Reader<'_>) -> Result<Rooms> {
    // cmsgpack writes an empty table as an empty map.
    if r.0.first() == Some(&0x80) {
        r.0 = &r.0[1..];
        return Ok(Rooms::new());
    }
    let len = r.array()?;
    if !len.is_multiple_of(3) {
        return Err(CodecError::Malformed("rooms"));
    }
    (0..len / 3)
        .map(|_| {
            let room = id(RoomId::new(r.text()?))?;
            let stay = Membership {
                since: r.uint()?,
                meta: optional_meta(r.text()?),
            };
            Ok((room, stay))
        })
        .collect()
}

/// What of a session's state is opaque to the functions: all but its rooms.
#[must_use]
pub fn encode_state(state: &State) -> Vec<u8> {
    let mut w = Writer::default();
    w.array(4);
    w.uint(FORMAT);
    w.bytes(state.kind.as_str().as_bytes());
    w.uint(match state.activity {
        Activity::Online => 0,
        Activity::Away => 1,
    });
    w.bytes(meta_text(state.meta.as_ref()));
    w.0
}

fn decode_state(bytes: &[u8], rooms: Rooms) -> Result<State> {
    let mut r = Reader(bytes);
    let more = r.fixed(4)?;
    r.format()?;
    let kind = Kind::new(r.text()?).map_err(|_| CodecError::Malformed("kind"))?;
    let activity = match r.uint()? {
        0 => Activity::Online,
        1 => Activity::Away,
        _ => return Err(CodecError::Malformed("activity")),
    };
    let meta = optional_meta(r.text()?);
    r.skip(more)?;
    r.end()?;
    Ok(State {
        kind,
        activity,
        meta,
        rooms,
    })
}

fn write_session(w: &mut Writer, session: &Session) {
    w.array(6);
    w.bytes(holder_text(&session.holder).as_bytes());
    w.uint(session.stamp.conn.get());
    w.uint(session.stamp.rev);
    w.uint(session.opened_at);
    write_rooms(w, &session.state.rooms);
    w.bytes(&encode_state(&session.state));
}

/// How a holder is stored: an incarnation, or nothing for a session that holds itself.
#[must_use]
pub fn holder_text(holder: &Holder) -> &str {
    match holder {
        Holder::Own => "",
        Holder::Gateway(incarnation) => incarnation.as_str(),
    }
}

fn read_session(r: &mut Reader<'_>) -> Result<Session> {
    let more = r.fixed(6)?;
    let holder = match r.text()? {
        "" => Holder::Own,
        text => Holder::Gateway(id(Incarnation::new(text))?),
    };
    let conn = Conn::new(r.uint()?).map_err(|_| CodecError::Malformed("conn"))?;
    let stamp = Stamp {
        conn,
        rev: r.uint()?,
    };
    let opened_at = r.uint()?;
    let rooms = read_rooms(r)?;
    let state = decode_state(r.bytes()?, rooms)?;
    r.skip(more)?;
    Ok(Session {
        holder,
        stamp,
        opened_at,
        state,
    })
}

/// Reads one session, as `open` and `change` answer it.
///
/// # Errors
/// When the bytes are no session.
pub fn decode_session(bytes: &[u8]) -> Result<Session> {
    let mut r = Reader(bytes);
    let session = read_session(&mut r)?;
    r.end()?;
    Ok(session)
}

/// The preferences that shape a person.
#[must_use]
pub fn encode_prefs(prefs: &Prefs) -> Vec<u8> {
    let mut w = Writer::default();
    write_prefs(&mut w, prefs);
    w.0
}

fn write_prefs(w: &mut Writer, prefs: &Prefs) {
    w.array(7);
    w.uint(prefs.status.value.map_or(0, Manual::code));
    w.uint(prefs.status.version);
    w.uint(prefs.visibility.value.code());
    w.uint(prefs.visibility.version);
    w.uint(prefs.contacts);
    w.uint(prefs.frozen_at);
    w.uint(prefs.shown_at);
}

fn read_prefs(r: &mut Reader<'_>) -> Result<Prefs> {
    let more = r.fixed(6)?;
    let status = Manual::from_code(r.uint()?).ok_or(CodecError::Malformed("status"))?;
    let status = Versioned {
        value: status,
        version: r.uint()?,
    };
    let who = Visibility::from_code(r.uint()?).ok_or(CodecError::Malformed("visibility"))?;
    let visibility = Versioned {
        value: who,
        version: r.uint()?,
    };
    let prefs = Prefs {
        status,
        visibility,
        contacts: r.uint()?,
        frozen_at: r.uint()?,
        // Who wrote them before there was one never hid as far as is known.
        shown_at: if more > 0 { r.uint()? } else { 0 },
    };
    r.skip(more.saturating_sub(1))?;
    Ok(prefs)
}

/// Reads preferences.
///
/// # Errors
/// When the bytes are none.
pub fn decode_prefs(bytes: &[u8]) -> Result<Prefs> {
    let mut r = Reader(bytes);
    let prefs = read_prefs(&mut r)?;
    r.end()?;
    Ok(prefs)
}

/// A list of contacts, in the order given.
#[must_use]
pub fn encode_contacts(contacts: &[UserId]) -> Vec<u8> {
    let mut w = Writer::default();
    w.array(contacts.len());
    for user in contacts {
        w.bytes(user.as_str().as_bytes());
    }
    w.0
}

/// Reads a list of contacts.
///
/// # Errors
/// When the bytes are none.
pub fn decode_contacts(bytes: &[u8]) -> Result<Vec<UserId>> {
    let mut r = Reader(bytes);
    let len = r.array()?;
    let users = (0..len)
        .map(|_| id(UserId::new(r.text()?)))
        .collect::<Result<_>>()?;
    r.end()?;
    Ok(users)
}

/// A person as kept in `people`.
#[must_use]
pub fn encode_person(person: &Person) -> Vec<u8> {
    let mut w = Writer::default();
    w.array(4 + person.sessions.len() * 2);
    w.uint(FORMAT);
    w.uint(person.version.epoch);
    w.uint(person.version.seq);
    write_prefs(&mut w, &person.prefs);
    for (device, session) in &person.sessions {
        w.bytes(device.as_str().as_bytes());
        write_session(&mut w, session);
    }
    w.0
}

/// Reads a person.
///
/// # Errors
/// When the bytes are none.
pub fn decode_person(bytes: &[u8]) -> Result<Person> {
    let mut r = Reader(bytes);
    let more = r.fixed(4)?;
    r.format()?;
    let version = Version::new(r.uint()?, r.uint()?);
    let prefs = read_prefs(&mut r)?;
    if more % 2 == 1 {
        return Err(CodecError::Malformed("sessions"));
    }
    let sessions = (0..more / 2)
        .map(|_| Ok((id(DeviceId::new(r.text()?))?, read_session(&mut r)?)))
        .collect::<Result<_>>()?;
    r.end()?;
    Ok(Person {
        version,
        prefs,
        sessions,
    })
}

/// How an origin is handed to the functions: `at_us;traceparent`, or nothing.
#[must_use]
pub fn encode_origin(origin: Option<&Origin>) -> String {
    match origin {
        None => String::new(),
        Some(o) => format!(
            "{};{}",
            o.at_us,
            o.traceparent.as_deref().unwrap_or_default()
        ),
    }
}

fn decode_origin(text: &str) -> Result<Option<Origin>> {
    if text.is_empty() {
        return Ok(None);
    }
    let (at, parent) = text
        .split_once(';')
        .ok_or(CodecError::Malformed("origin"))?;
    let at_us = at.parse().map_err(|_| CodecError::Malformed("origin"))?;
    let traceparent = (!parent.is_empty()).then(|| Arc::from(parent));
    Ok(Some(Origin { at_us, traceparent }))
}

/// A log entry.
#[must_use]
pub fn encode_change(change: &Change) -> Vec<u8> {
    let mut w = Writer::default();
    w.array(12);
    w.uint(FORMAT);
    w.uint(change.version.epoch);
    w.uint(change.version.seq);
    w.uint(change.at);
    match &change.event {
        Event::Epoch => write_marker(&mut w, EVENT_EPOCH),
        Event::Settled => write_marker(&mut w, EVENT_SETTLED),
        Event::Session {
            owner,
            device,
            rooms_before,
            after,
            prefs,
            reason,
        } => {
            w.uint(EVENT_SESSION);
            w.uint(reason.map_or(0, Reason::code));
            w.bytes(owner.encode().as_bytes());
            w.bytes(device.as_str().as_bytes());
            w.array(rooms_before.len());
            for room in rooms_before {
                w.bytes(room.as_str().as_bytes());
            }
            match after {
                Some(session) => write_session(&mut w, session),
                None => w.none(),
            }
            write_prefs(&mut w, prefs);
        }
        Event::Prefs { owner, prefs } => {
            w.uint(EVENT_PREFS);
            w.uint(0);
            w.bytes(owner.encode().as_bytes());
            w.bytes(b"");
            w.array(0);
            w.none();
            write_prefs(&mut w, prefs);
        }
    }
    w.bytes(encode_origin(change.origin.as_ref()).as_bytes());
    w.0
}

fn write_marker(w: &mut Writer, event: u64) {
    w.uint(event);
    w.uint(0);
    w.bytes(b"");
    w.bytes(b"");
    w.array(0);
    w.none();
    w.none();
}

/// Reads a log entry.
///
/// # Errors
/// When the bytes are none.
pub fn decode_change(bytes: &[u8]) -> Result<Change> {
    let mut r = Reader(bytes);
    let change = read_change(&mut r)?;
    r.end()?;
    Ok(change)
}

/// Reads changes one behind another, at least one, as they are pushed.
///
/// # Errors
/// When the bytes are something else.
pub fn decode_changes(bytes: &[u8]) -> Result<Vec<Change>> {
    let mut r = Reader(bytes);
    let mut changes = vec![read_change(&mut r)?];
    while !r.0.is_empty() {
        changes.push(read_change(&mut r)?);
    }
    Ok(changes)
}

fn read_change(r: &mut Reader<'_>) -> Result<Change> {
    let more = r.fixed(12)?;
    r.format()?;
    let version = Version::new(r.uint()?, r.uint()?);
    let at = r.uint()?;
    let event = r.uint()?;
    let reason = Reason::from_code(r.uint()?).ok_or(CodecError::Malformed("reason"))?;
    let owner = r.bytes()?;
    let device = r.text()?;
    let rooms_before = read_names(r)?;
    let after = if r.absent() {
        None
    } else {
        Some(read_session(r)?)
    };
    let prefs = if r.absent() {
        Prefs::default()
    } else {
        read_prefs(r)?
    };
    let origin = decode_origin(r.text()?)?;
    r.skip(more)?;
    let event = match event {
        EVENT_EPOCH => Event::Epoch,
        EVENT_SETTLED => Event::Settled,
        EVENT_SESSION => {
            let owner = id(UserKey::decode(owner))?;
            let device = id(DeviceId::new(device))?;
            Event::Session {
                owner,
                device,
                rooms_before,
                after,
                prefs,
                reason,
            }
        }
        EVENT_PREFS => Event::Prefs {
            owner: id(UserKey::decode(owner))?,
            prefs,
        },
        _ => return Err(CodecError::Malformed("event")),
    };
    Ok(Change {
        version,
        at,
        event,
        origin,
    })
}

fn read_names(r: &mut Reader<'_>) -> Result<Vec<RoomId>> {
    if r.0.first() == Some(&0x80) {
        r.0 = &r.0[1..];
        return Ok(Vec::new());
    }
    let len = r.array()?;
    (0..len).map(|_| id(RoomId::new(r.text()?))).collect()
}

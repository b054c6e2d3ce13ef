//! A client that reads what comes out, however slowly, and whatever was thrown together meanwhile,
//! ends up with the truth, without gaps.

use std::{
    collections::BTreeMap,
    mem::offset_of,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use adsum_core::{Item, Kind, RoomId, Status, Topic, UserId, Version, Visibility};
use adsum_proto::client::{
    Close, Encoding, Mode, Ref,
    frame::{ServerBody, ServerFrame},
};
use bytes::Bytes;
use futures::FutureExt;
use proptest::prelude::*;

use super::{Bounds, Direct, Draft, Inner, Outbox, SlotId, Waiting, Watched, WatcherId};
use crate::hub::{Delivery, Entry, Gone, Told, TopicState};

#[derive(Debug)]
struct Room(Topic);

impl Watched for Room {
    fn topic(&self) -> &Topic {
        &self.0
    }

    fn restate(&self, _watcher: WatcherId) {}
}

const ANSWERS: u32 = 50;
const ENTRIES: usize = 100;

fn bounds() -> Arc<Bounds> {
    Arc::new(Bounds {
        answers: ANSWERS,
        entries: ENTRIES,
        peak: AtomicUsize::new(0),
    })
}

fn room() -> Arc<Room> {
    Arc::new(Room(Topic::Room(RoomId::new("lobby").unwrap())))
}

fn told(user: u8, seq: u64) -> Arc<Told> {
    Told::new(Arc::new(Item {
        user: UserId::new(format!("u{user}")).unwrap(),
        status: Status::Online,
        devices: vec![Kind::default()],
        meta: None,
        since: 1,
        v: Version { epoch: 1, seq },
        visibility: Visibility::Everyone,
        contacts: 0,
        frozen_at: 0,
    }))
}

/// What the hub knows, and what the client makes of the frames.
struct World {
    outbox: Arc<Outbox>,
    slot: SlotId,
    truth: BTreeMap<u8, Arc<Told>>,
    knows: BTreeMap<String, Version>,
    offset: u64,
    seq: u64,
}

impl World {
    fn new(encoding: Encoding) -> Self {
        let outbox = Outbox::new(encoding, bounds(), None);
        let slot = outbox.add(room(), 0);
        let mut world = Self {
            outbox,
            slot,
            truth: BTreeMap::new(),
            knows: BTreeMap::new(),
            offset: 0,
            seq: 0,
        };
        world.state(None);
        world
    }

    fn state(&mut self, r#ref: Option<Ref>) {
        let members: Vec<_> = self.truth.values().cloned().collect();
        let count = Some(members.len() as u64);
        let state = TopicState::new(Mode::Members, true, members, count, false);
        self.outbox.state(self.slot, Arc::new(state), r#ref, false);
    }

    fn put(&mut self, user: u8) {
        self.seq += 1;
        let told = told(user, self.seq);
        let known = self.truth.insert(user, Arc::clone(&told)).is_some();
        self.tell(match known {
            true => Entry::Update(told),
            false => Entry::Join(told),
        });
    }

    fn remove(&mut self, user: u8) {
        if let Some(told) = self.truth.remove(&user) {
            self.tell(Entry::Leave(Gone::hidden(&told.item, 0)));
        }
    }

    fn tell(&mut self, entry: Entry) {
        let count = Some(self.truth.len() as u64);
        let delivery = Delivery::new(vec![entry], count, None);
        let mut draft = Draft::default();
        self.outbox
            .tell(self.slot, &Arc::new(delivery), Some(&mut draft));
    }

    /// The socket takes one batch; `false` if there is none.
    fn read(&mut self) -> bool {
        let batch = self.outbox.take();
        let some = !batch.writes.frames.is_empty() || !batch.dirty.is_empty();
        for frame in batch.writes.frames {
            let frame = self.outbox.encoding().decode_server(frame).unwrap();
            self.hear(frame);
        }
        if !batch.dirty.is_empty() {
            self.state(None);
        }
        some
    }

    fn hear(&mut self, frame: ServerFrame) {
        match frame.body {
            ServerBody::PresenceState(state) => {
                assert_eq!(state.offset, self.offset + 1);
                self.offset = state.offset;
                let members = state.members.unwrap().members;
                self.knows = members
                    .into_iter()
                    .map(|i| (i.user.to_string(), i.v))
                    .collect();
            }
            ServerBody::PresenceDiff(diff) => {
                assert_eq!(diff.offset, self.offset + 1);
                self.offset = diff.offset;
                for item in diff.joins {
                    let before = self.knows.insert(item.user.to_string(), item.v);
                    assert_eq!(before, None, "{} joined twice", item.user);
                }
                for item in diff.updates {
                    let before = self.knows.insert(item.user.to_string(), item.v);
                    assert!(before < Some(item.v), "{} went back", item.user);
                }
                for left in diff.leaves {
                    assert!(
                        self.knows.remove(left.user.as_str()).is_some(),
                        "left twice"
                    );
                }
            }
            _ => {}
        }
    }

    fn end(mut self) {
        while self.read() {}
        let truth = self.truth.values();
        let truth: BTreeMap<_, _> = truth.map(|t| (t.item.user.to_string(), t.item.v)).collect();
        assert_eq!(self.knows, truth);
        // Who waits again has written.
        assert_eq!(self.outbox.wait().now_or_never(), None);
        assert!(self.outbox.lock().load.is_none());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8),
    Remove(u8),
    Read,
    Ask,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whoever_reads_at_last_knows_the_truth(
        steps in prop::collection::vec(prop_oneof![
            6 => (0..250u8).prop_map(Step::Put),
            2 => (0..250u8).prop_map(Step::Remove),
            1 => Just(Step::Read),
            1 => Just(Step::Ask),
        ], 1..400),
        json in any::<bool>(),
    ) {
        let encoding = if json { Encoding::Json } else { Encoding::Protobuf };
        let mut world = World::new(encoding);
        for step in steps {
            match step {
                Step::Put(user) => world.put(user),
                Step::Remove(user) => world.remove(user),
                Step::Read => drop(world.read()),
                Step::Ask => world.state(Ref::new("r").ok()),
            }
            prop_assert!(world.outbox.lock().entries() <= ENTRIES + 1);
        }
        // Who asks more than it reads is closed: that is another test.
        if world.outbox.lock().load().close.is_none() {
            world.end();
        }
    }
}

#[test]
fn many_words_on_one_person_are_one() {
    let mut world = World::new(Encoding::Json);
    world.put(1);
    while world.read() {}
    for _ in 0..10_000 {
        world.put(1);
    }
    assert!(world.outbox.lock().entries() <= 128);
    let batch = world.outbox.take();
    assert_eq!(batch.writes.frames.len(), 1);
    let frame = Encoding::Json
        .decode_server(&batch.writes.frames[0])
        .unwrap();
    world.hear(frame);
    world.end();
}

#[test]
fn too_much_becomes_one_state() {
    let mut world = World::new(Encoding::Json);
    while world.read() {}
    for user in 0..=200 {
        world.put(user);
    }
    let batch = world.outbox.take();
    assert!(batch.writes.frames.is_empty());
    assert_eq!(batch.dirty.len(), 1);
    world.state(None);
    world.end();
}

#[test]
fn states_without_end_leave_no_line_for_who_does_not_read() {
    let mut world = World::new(Encoding::Json);
    for user in 0..200 {
        world.put(user);
        world.state(None);
    }
    assert_eq!(world.outbox.lock().load().queue.len(), 1);
    world.put(1);
    assert_eq!(world.outbox.lock().load().queue.len(), 2);
    world.end();
}

#[test]
fn who_asks_and_does_not_read_is_closed() {
    let world = World::new(Encoding::Json);
    for _ in 0..=ANSWERS {
        world
            .outbox
            .answer(&ServerFrame::new(None, ServerBody::Ack));
    }
    let batch = world.outbox.take();
    assert!(batch.writes.frames.is_empty());
    assert_eq!(batch.close, Some(Close::TooMany));
}

/// A socket that takes a few bytes more each time it is asked for.
#[derive(Debug, Clone, Default)]
struct Tap {
    room: Arc<Mutex<usize>>,
    out: Arc<Mutex<Vec<u8>>>,
}

impl Direct for Tap {
    fn write(&self, _: Encoding, frame: &mut Draft) -> Option<Bytes> {
        let frame = Bytes::copy_from_slice(frame.with_head(&[]));
        let mut room = self.room.lock().unwrap();
        let taken = frame.len().min(*room);
        *room -= taken;
        self.out.lock().unwrap().extend_from_slice(&frame[..taken]);
        (taken < frame.len()).then(|| frame.slice(taken..))
    }
}

proptest! {
    #[test]
    fn what_is_written_at_once_overtakes_nothing(
        steps in prop::collection::vec((0..4_u8, 0..200_usize), 1..45),
    ) {
        let tap = Tap::default();
        let direct: Arc<dyn Direct> = Arc::new(tap.clone());
        let outbox = Outbox::new(Encoding::Json, bounds(), Some(direct));
        let mut said = Vec::new();
        // Taken by the connection, and written when it gets to it.
        let mut taken: Vec<u8> = Vec::new();
        for (step, room) in steps {
            match step {
                0 => *tap.room.lock().unwrap() += room,
                1 | 2 => {
                    let frame = ServerFrame::new(None, ServerBody::Expiring { in_ms: room as u64 });
                    said.extend_from_slice(&Encoding::Json.encode(&frame));
                    outbox.answer(&frame);
                }
                _ => {
                    tap.out.lock().unwrap().append(&mut taken);
                    if outbox.wait().now_or_never().is_some() {
                        let writes = outbox.take().writes;
                        let all = writes.rest.iter().chain(&writes.frames);
                        all.for_each(|bytes| taken.extend_from_slice(bytes));
                    }
                }
            }
        }
        tap.out.lock().unwrap().append(&mut taken);
        while outbox.wait().now_or_never().is_some() {
            let writes = outbox.take().writes;
            let all = writes.rest.iter().chain(&writes.frames);
            all.for_each(|bytes| tap.out.lock().unwrap().extend_from_slice(bytes));
        }
        prop_assert_eq!(&*tap.out.lock().unwrap(), &said);
    }
}

fn outbox_and_tap() -> (Arc<Outbox>, Tap) {
    let tap = Tap::default();
    *tap.room.lock().unwrap() = usize::MAX;
    let direct: Arc<dyn Direct> = Arc::new(tap.clone());
    (Outbox::new(Encoding::Json, bounds(), Some(direct)), tap)
}

fn diff() -> Arc<Delivery> {
    Arc::new(Delivery::new(vec![Entry::Join(told(1, 1))], Some(1), None))
}

#[test]
fn whichever_topic_goes_the_others_are_told() {
    for gone in 0..3 {
        let (outbox, tap) = outbox_and_tap();
        let slots: Vec<_> = (0..3).map(|watcher| outbox.add(room(), watcher)).collect();
        outbox.remove(slots[gone]);
        for (at, slot) in slots.into_iter().enumerate() {
            let told = outbox.tell(slot, &diff(), Some(&mut Draft::default()));
            let written = std::mem::take(&mut *tap.out.lock().unwrap());
            assert_eq!(told, usize::from(at != gone));
            assert_eq!(written.is_empty(), at == gone);
            outbox.remove(slot);
        }
        assert!(outbox.lock().load.is_none());
    }
}

#[test]
fn a_topic_that_goes_takes_with_it_what_waited() {
    let outbox = Outbox::new(Encoding::Json, bounds(), None);
    let slots: Vec<_> = (0..3).map(|watcher| outbox.add(room(), watcher)).collect();
    for slot in &slots {
        outbox.tell(*slot, &diff(), None);
    }
    for (at, slot) in slots.into_iter().enumerate() {
        assert_eq!(outbox.lock().entries(), 3 - at);
        outbox.remove(slot);
    }
    assert!(outbox.take().writes.is_empty());
    assert!(outbox.lock().load.is_none());
}

#[test]
fn to_who_is_gone_nothing_is_written() {
    let (outbox, tap) = outbox_and_tap();
    let slot = outbox.add(room(), 0);
    outbox.abandon();
    let later = outbox.add(room(), 1);
    for slot in [slot, later] {
        assert_eq!(outbox.tell(slot, &diff(), Some(&mut Draft::default())), 0);
    }
    outbox.answer(&ServerFrame::new(None, ServerBody::Ack));
    assert!(tap.out.lock().unwrap().is_empty());
}

/// What a frame touches is what it costs; and each connection has one.
#[test]
fn an_outbox_is_two_lines_of_the_cache() {
    const COUNTERS: usize = 2 * size_of::<usize>();
    const LINE: usize = 64;
    assert_eq!(COUNTERS + size_of::<Outbox>(), 2 * LINE);
    let without_lock = offset_of!(Outbox, direct);
    assert!(COUNTERS + without_lock >= LINE);
    // The lock is before what it locks.
    let locked = without_lock - size_of::<Inner>();
    let first = COUNTERS + locked + offset_of!(Inner, first);
    assert!(first + offset_of!(Waiting, dirty) < LINE);
}

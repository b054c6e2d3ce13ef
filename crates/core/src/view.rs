//! A dispatcher's picture of one shard: takes committed changes, answers with the states of the
//! topics they touch. Indexed by room and by tenant, so a change costs what its user's rooms
//! cost, however large the shard is.
//!
//! States carry versions and say how things *are*, so whoever gets one twice, late, or from two
//! dispatchers can tell. The version of a state is that of the person's last change, or of the
//! load if that came later: a receiver may hold, under the same change, what a failover lost or
//! what was laid over an old picture, and a load must outrank that.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::Arc,
};

use crate::{
    Change, DeviceId, Event, Item, Origin, Person, Reason, RoomId, TenantId, Topic, UserId,
    UserKey, Version, store::Snapshot,
};

/// How a user stands in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// There.
    Here(Arc<Item>),
    /// Not there.
    Absent {
        /// Why they left, when that is known; an absence found by comparison has no reason.
        reason: Option<Reason>,
        /// When they were last there, ms; 0 when not known.
        last_seen: u64,
    },
}

/// How one user stands in one topic, as of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicState {
    /// The topic's tenant.
    pub tenant: TenantId,
    /// The topic.
    pub topic: Topic,
    /// Who.
    pub user: UserId,
    /// There or not.
    pub presence: Presence,
    /// What orders it among the states of this user.
    pub version: Version,
    /// For those who measure; only on fresh changes.
    pub origin: Option<Origin>,
}

/// One touched topic, kept for those who come back with a cursor.
#[derive(Debug, Clone)]
struct Touch {
    version: Version,
    tenant: TenantId,
    topic: Topic,
    user: UserId,
    reason: Option<Reason>,
    at: u64,
}

type Room = (TenantId, RoomId);
type Items = HashMap<UserId, Arc<Item>>;

/// The picture. See the module's text.
#[derive(Debug)]
pub struct View {
    version: Version,
    settling: bool,
    people: HashMap<UserKey, Person>,
    rooms: HashMap<Room, Items>,
    tenants: HashMap<TenantId, Items>,
    history: VecDeque<Touch>,
    /// The history is whole after this version.
    whole_after: Version,
    history_len: usize,
    /// Absences not told while settling, by topic and user.
    withheld: HashMap<(TenantId, Topic, UserId), Touch>,
    /// Absences told while settling, since their users hide.
    withdrawn: HashMap<(TenantId, Topic), HashMap<UserId, Touch>>,
}

impl View {
    /// A picture of what was loaded, which remembers the last `history_len` touched topics.
    #[must_use]
    pub fn new(snapshot: Snapshot, history_len: usize) -> Self {
        let version = Version::new(snapshot.position.epoch, snapshot.position.seq);
        let mut view = Self {
            version,
            settling: snapshot.position.settling,
            people: HashMap::new(),
            rooms: HashMap::new(),
            tenants: HashMap::new(),
            history: VecDeque::new(),
            whole_after: version,
            history_len,
            withheld: HashMap::new(),
            withdrawn: HashMap::new(),
        };
        for (key, mut person) in snapshot.people {
            view.index(&key, &person);
            person.version = version;
            view.people.insert(key, person);
        }
        view
    }

    /// The last change in the picture.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Absence means nothing yet; see [`begin_epoch`](Self::begin_epoch).
    #[must_use]
    pub const fn settling(&self) -> bool {
        self.settling
    }

    /// How many rooms have somebody in them.
    #[must_use]
    pub fn rooms(&self) -> usize {
        self.rooms.len()
    }

    /// How many people are in the picture.
    #[must_use]
    pub fn people(&self) -> usize {
        self.people.len()
    }

    /// A new epoch has begun: from now on changes are laid over the old picture and absences are
    /// held back, until [`reconcile`](Self::reconcile) with a settled snapshot.
    pub fn begin_epoch(&mut self, epoch: u64) {
        if epoch > self.version.epoch {
            self.settling = true;
            // Positions of two epochs do not follow each other: nobody can resume across.
            self.version = Version::new(epoch, 0);
            self.forget_history(self.version);
        }
    }

    /// Takes a change and answers the states of all topics that it touched. One that is not
    /// above [`version`](Self::version) changes nothing.
    pub fn apply(&mut self, change: &Change) -> Vec<TopicState> {
        if change.version <= self.version {
            return Vec::new();
        }
        self.begin_epoch(change.version.epoch);
        self.version = change.version;
        let (owner, reason) = match &change.event {
            Event::Epoch | Event::Settled => return Vec::new(),
            // Who goes out of a room and stays otherwise has left it, too.
            Event::Session { owner, reason, .. } => (owner, reason.or(Some(Reason::Leave))),
            Event::Prefs { owner, .. } => (owner, None),
        };
        let hides = self.hides(owner, &change.event);
        let touched = self.take(owner, change);
        let mut states = Vec::with_capacity(touched.len());
        for topic in touched {
            let touch = Touch {
                version: change.version,
                tenant: owner.tenant.clone(),
                topic,
                user: owner.user.clone(),
                reason,
                at: change.at,
            };
            let mut state = self.state(&touch);
            state.origin.clone_from(&change.origin);
            if self.hold_back(&touch, &state) {
                continue;
            }
            self.remember(touch);
            states.push(state);
        }
        if hides {
            states.extend(self.release(owner, change.version));
        }
        states
    }

    /// Tells a picture that was loaded while settling what its epoch's log says of people who are
    /// no longer where they were: whoever hides must not be shown there by those who knew them.
    /// What a failover has lost is in no log, so one that was there from the start may know more.
    pub fn recall(&mut self, log: &[Change]) {
        let (epoch, newest) = (self.version.epoch, self.version);
        let of_epoch = |c: &&Change| c.version.epoch == epoch && c.version <= newest;
        let mut hidden = HashSet::new();
        for change in log.iter().filter(of_epoch) {
            let (Event::Session { owner, prefs, .. } | Event::Prefs { owner, prefs }) =
                &change.event
            else {
                continue;
            };
            self.miss(owner, change);
            match prefs.public() {
                true => hidden.remove(owner),
                false => hidden.insert(owner),
            };
        }
        for owner in hidden {
            self.release(owner, newest);
        }
    }

    /// Whom to take from a topic although absence means nothing yet: those who hide. What was
    /// known of them before a failover must not be shown any more.
    #[must_use]
    pub fn withdrawn(&self, tenant: &TenantId, topic: &Topic) -> Vec<TopicState> {
        if self.withdrawn.is_empty() {
            return Vec::new();
        }
        let touches = self.withdrawn.get(&(tenant.clone(), topic.clone()));
        let touches = touches.into_iter().flat_map(HashMap::values);
        touches
            .filter(|touch| self.item(touch).is_none())
            .map(|touch| self.state(touch))
            .collect()
    }

    /// Replaces the picture by a newer one and answers exactly the difference: absences that
    /// were held back come with their reasons. A snapshot that still settles holds them on.
    pub fn reconcile(&mut self, snapshot: Snapshot) -> Vec<TopicState> {
        let mut old = std::mem::replace(self, Self::new(snapshot, self.history_len));
        let at = self.version;
        let mut touched: Vec<Touch> = Vec::new();
        for (tenant, items) in &old.tenants {
            touched.extend(self.gone(tenant, items, at, |user| Topic::User(user.clone())));
            touched.extend(self.gone(tenant, items, at, |_| Topic::Tenant));
        }
        for ((tenant, room), items) in &old.rooms {
            touched.extend(self.gone(tenant, items, at, |_| Topic::Room(room.clone())));
        }
        // What was held back is not in the old picture any more, and told now if still true.
        let held = std::mem::take(&mut old.withheld);
        touched.extend(held.into_values().filter(|t| self.item(t).is_none()));
        if self.settling {
            self.withheld = touched
                .drain(..)
                .map(|t| ((t.tenant.clone(), t.topic.clone(), t.user.clone()), t))
                .collect();
            self.withdrawn = std::mem::take(&mut old.withdrawn);
        }
        touched.extend(self.came_or_changed(&old));
        touched.iter().map(|touch| self.state(touch)).collect()
    }

    /// Who is in a topic.
    pub fn members(&self, tenant: &TenantId, topic: &Topic) -> Vec<(Arc<Item>, Version)> {
        let with_version = |item: &Arc<Item>| (item.clone(), self.version_of(tenant, &item.user));
        match topic {
            Topic::User(user) => {
                let item = self.tenants.get(tenant).and_then(|items| items.get(user));
                item.into_iter().map(with_version).collect()
            }
            _ => self
                .items(tenant, topic)
                .into_iter()
                .flatten()
                .map(|(_, i)| with_version(i))
                .collect(),
        }
    }

    /// The devices of a user that have a session.
    pub fn devices(&self, owner: &UserKey) -> impl Iterator<Item = &DeviceId> {
        let person = self.people.get(owner).into_iter();
        person.flat_map(|person| person.sessions.keys())
    }

    /// How many people in a topic everybody may see.
    #[must_use]
    pub fn count(&self, tenant: &TenantId, topic: &Topic) -> usize {
        self.members(tenant, topic)
            .iter()
            .filter(|(item, _)| item.public())
            .count()
    }

    /// The current state of every topic and user that was touched after the cursor and that
    /// `wanted` asks for. `None` if that is not known any more, or while settling: then the
    /// topics have to be sent whole.
    pub fn since(
        &self,
        cursor: Version,
        wanted: impl Fn(&TenantId, &Topic) -> bool,
    ) -> Option<Vec<TopicState>> {
        if self.settling || cursor < self.whole_after || cursor > self.version {
            return None;
        }
        let mut told = HashSet::new();
        let newest_first = self.history.iter().rev().take_while(|t| t.version > cursor);
        let mut states: Vec<_> = newest_first
            .filter(|t| wanted(&t.tenant, &t.topic))
            .filter(|t| told.insert((&t.tenant, &t.topic, &t.user)))
            .map(|t| self.state(t))
            .collect();
        states.reverse();
        Some(states)
    }

    fn items(&self, tenant: &TenantId, topic: &Topic) -> Option<&Items> {
        match topic {
            Topic::Room(room) => self.rooms.get(&(tenant.clone(), room.clone())),
            Topic::User(_) | Topic::Tenant => self.tenants.get(tenant),
        }
    }

    fn item(&self, touch: &Touch) -> Option<&Arc<Item>> {
        self.items(&touch.tenant, &touch.topic)?.get(&touch.user)
    }

    fn version_of(&self, tenant: &TenantId, user: &UserId) -> Version {
        let key = UserKey::new(tenant.clone(), user.clone());
        self.people.get(&key).map_or(self.version, |p| p.version)
    }

    /// How a touched topic is now. An absence is as old as what caused it.
    fn state(&self, touch: &Touch) -> TopicState {
        let (presence, version) = match self.item(touch) {
            Some(item) => (
                Presence::Here(item.clone()),
                self.version_of(&touch.tenant, &touch.user),
            ),
            None => {
                let absent = Presence::Absent {
                    reason: touch.reason,
                    last_seen: touch.at,
                };
                (absent, touch.version)
            }
        };
        TopicState {
            tenant: touch.tenant.clone(),
            topic: touch.topic.clone(),
            user: touch.user.clone(),
            presence,
            version,
            origin: None,
        }
    }

    fn hold_back(&mut self, touch: &Touch, state: &TopicState) -> bool {
        let key = (
            touch.tenant.clone(),
            touch.topic.clone(),
            touch.user.clone(),
        );
        let hold = self.settling && matches!(state.presence, Presence::Absent { .. });
        if hold {
            self.withheld.insert(key, touch.clone());
        } else if !self.withheld.is_empty() {
            self.withheld.remove(&key);
        }
        hold
    }

    /// Whether somebody hides from some of those who may have seen them, while absences are held
    /// back: where one is, they are still shown as they were before.
    fn hides(&self, owner: &UserKey, event: &Event) -> bool {
        let (Event::Session { prefs, .. } | Event::Prefs { prefs, .. }) = event else {
            return false;
        };
        let known = self.people.get(owner).map(|person| person.prefs);
        self.settling && !prefs.public() && known != Some(*prefs)
    }

    /// The absences of one user that were held back, told now.
    fn release(&mut self, owner: &UserKey, version: Version) -> Vec<TopicState> {
        let theirs = |touch: &Touch| touch.tenant == owner.tenant && touch.user == owner.user;
        let held = self.withheld.extract_if(|_, touch| theirs(touch));
        let held: Vec<_> = held.map(|(_, touch)| Touch { version, ..touch }).collect();
        let states = held.iter().map(|touch| self.state(touch)).collect();
        for touch in held {
            let topic = (touch.tenant.clone(), touch.topic.clone());
            let there = self.withdrawn.entry(topic).or_default();
            there.insert(touch.user.clone(), touch.clone());
            self.remember(touch);
        }
        states
    }

    /// Holds back the absences that a change of a session in the log has left in this picture.
    fn miss(&mut self, owner: &UserKey, change: &Change) {
        let Event::Session {
            rooms_before,
            reason,
            ..
        } = &change.event
        else {
            return;
        };
        let everywhere = [Topic::User(owner.user.clone()), Topic::Tenant];
        let rooms = rooms_before.iter().cloned().map(Topic::Room);
        for topic in rooms.chain(everywhere) {
            let touch = Touch {
                version: change.version,
                tenant: owner.tenant.clone(),
                topic,
                user: owner.user.clone(),
                reason: reason.or(Some(Reason::Leave)),
                at: change.at,
            };
            let state = self.state(&touch);
            self.hold_back(&touch, &state);
        }
    }

    fn remember(&mut self, touch: Touch) {
        self.history.push_back(touch);
        if self.history.len() > self.history_len
            && let Some(oldest) = self.history.pop_front()
        {
            self.whole_after = self.whole_after.max(oldest.version);
        }
    }

    fn forget_history(&mut self, whole_after: Version) {
        self.history.clear();
        self.whole_after = whole_after;
    }

    /// Puts the change into people and indexes; answers the topics that look different now.
    fn take(&mut self, owner: &UserKey, change: &Change) -> Vec<Topic> {
        let shape = |p: &Person| (p.status(), p.prefs.visibility.value, p.prefs.contacts);
        let known = self.people.remove(owner);
        let before = known.as_ref().map(shape);
        let mut person = known.unwrap_or_default();
        let mut rooms = BTreeSet::new();
        match &change.event {
            Event::Session {
                device,
                after,
                prefs,
                ..
            } => {
                let old = match after {
                    Some(session) => person.sessions.insert(device.clone(), session.clone()),
                    None => person.sessions.remove(device),
                };
                person.prefs = *prefs;
                for session in old.iter().chain(after) {
                    rooms.extend(session.state.rooms.keys().cloned());
                }
            }
            Event::Prefs { prefs, .. } => person.prefs = *prefs,
            Event::Epoch | Event::Settled => {}
        }
        person.version = change.version;
        if before != Some(shape(&person)) {
            // Those of the session as it was are among them already.
            rooms.extend(rooms_of(&person));
        }
        let mut touched = Vec::new();
        for room in rooms {
            let item = person.item_in(&owner.user, &room);
            let key = (owner.tenant.clone(), room.clone());
            if place(self.rooms.entry(key), &owner.user, item) {
                touched.push(Topic::Room(room));
            }
        }
        let item = person.item(&owner.user);
        if place(self.tenants.entry(owner.tenant.clone()), &owner.user, item) {
            touched.push(Topic::User(owner.user.clone()));
            touched.push(Topic::Tenant);
        }
        if !person.sessions.is_empty() {
            self.people.insert(owner.clone(), person);
        }
        touched
    }

    fn index(&mut self, key: &UserKey, person: &Person) {
        place(
            self.tenants.entry(key.tenant.clone()),
            &key.user,
            person.item(&key.user),
        );
        for room in rooms_of(person).collect::<BTreeSet<_>>() {
            let item = person.item_in(&key.user, &room);
            place(
                self.rooms.entry((key.tenant.clone(), room)),
                &key.user,
                item,
            );
        }
    }

    /// Of the people who were in a topic, those who are not in this picture.
    fn gone<'a>(
        &'a self,
        tenant: &'a TenantId,
        before: &'a Items,
        at: Version,
        topic: impl Fn(&UserId) -> Topic + 'a,
    ) -> impl Iterator<Item = Touch> + 'a {
        let touch = move |user: &UserId| {
            let (tenant, topic, user) = (tenant.clone(), topic(user), user.clone());
            Touch {
                version: at,
                tenant,
                topic,
                user,
                reason: None,
                at: 0,
            }
        };
        before.keys().map(touch).filter(|t| self.item(t).is_none())
    }

    /// Topics and users that are new, or look different, against the old picture. Items that
    /// look the same keep the old number of their last visible change.
    fn came_or_changed(&mut self, old: &Self) -> Vec<Touch> {
        let at = self.version;
        let mut touched = Vec::new();
        let touch = |tenant: &TenantId, topic, user: &UserId| {
            let (tenant, user) = (tenant.clone(), user.clone());
            Touch {
                version: at,
                tenant,
                topic,
                user,
                reason: None,
                at: 0,
            }
        };
        for (tenant, items) in &mut self.tenants {
            for (user, item) in items {
                if !same_as_before(item, old.tenants.get(tenant), user) {
                    touched.push(touch(tenant, Topic::User(user.clone()), user));
                    touched.push(touch(tenant, Topic::Tenant, user));
                }
            }
        }
        for (key, items) in &mut self.rooms {
            for (user, item) in items {
                if !same_as_before(item, old.rooms.get(key), user) {
                    touched.push(touch(&key.0, Topic::Room(key.1.clone()), user));
                }
            }
        }
        touched
    }
}

fn same_as_before(item: &mut Arc<Item>, before: Option<&Items>, user: &UserId) -> bool {
    match before.and_then(|items| items.get(user)) {
        Some(known) if known.looks_like(item) => {
            *item = known.clone();
            true
        }
        _ => false,
    }
}

fn rooms_of(person: &Person) -> impl Iterator<Item = RoomId> {
    let sessions = person.sessions.values();
    sessions.flat_map(|s| s.state.rooms.keys().cloned())
}

/// Sets or removes a user's item in a topic; `true` if it looks different now. Topics without
/// anybody take no memory.
fn place<K>(topic: Entry<'_, K, Items>, user: &UserId, item: Option<Arc<Item>>) -> bool {
    let Some(item) = item else {
        let Entry::Occupied(mut topic) = topic else {
            return false;
        };
        let was_here = topic.get_mut().remove(user).is_some();
        if topic.get().is_empty() {
            topic.remove();
        }
        return was_here;
    };
    match topic.or_default().entry(user.clone()) {
        Entry::Occupied(known) if known.get().looks_like(&item) => false,
        Entry::Occupied(mut known) => {
            known.insert(item);
            true
        }
        Entry::Vacant(free) => {
            free.insert(item);
            true
        }
    }
}

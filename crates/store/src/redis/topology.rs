//! Which server is the master of which slot, as the servers say.

use std::{collections::HashMap, fmt, sync::Arc};

use redis::{ErrorKind, RedisError, RedisResult, Value};

/// Slots of a cluster.
pub(super) const SLOTS: usize = 16_384;
/// A slot without a master.
const NOBODY: u16 = u16::MAX;

/// Host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    host: Arc<str>,
    port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let host = host.into();
        Self { host, port }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where a redirection points; without a host it means the one that said so.
    pub(super) fn redirected(text: &str, by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok()?;
        match host {
            "?" => None,
            "" => Some(Self::new(&by.host, port)),
            host => Some(Self::new(host, port)),
        }
    }
}

/// What one server says: stretches of slots, and who serves each, the master first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Word(Vec<(usize, usize, Vec<Address>)>);

impl Word {
    /// Reads an answer to `CLUSTER SLOTS`.
    pub(super) fn read(value: Value, by: &Address) -> RedisResult<Self> {
        let Value::Array(stretches) = value.extract_error()? else {
            return Err(garbage());
        };
        let stretches = stretches
            .into_iter()
            .map(|stretch| read_stretch(stretch, by));
        stretches.collect::<RedisResult<_>>().map(Self)
    }
}

fn read_stretch(value: Value, by: &Address) -> RedisResult<(usize, usize, Vec<Address>)> {
    let Value::Array(parts) = value else {
        return Err(garbage());
    };
    let mut parts = parts.into_iter();
    let mut slot = || match parts.next() {
        Some(Value::Int(slot)) => usize::try_from(slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    };
    let (Some(first), Some(last)) = (slot(), slot()) else {
        return Err(garbage());
    };
    let servers = parts.map(|server| read_server(server, by));
    Ok((first, last, servers.collect::<RedisResult<_>>()?))
}

fn read_server(value: Value, by: &Address) -> RedisResult<Address> {
    let Value::Array(parts) = value else {
        return Err(garbage());
    };
    let mut parts = parts.into_iter();
    let host = match parts.next() {
        Some(Value::BulkString(host)) => String::from_utf8(host).map_err(|_| garbage())?,
        Some(Value::SimpleString(host)) => host,
        // As with a redirection: the one that says so.
        Some(Value::Nil) => String::new(),
        _ => return Err(garbage()),
    };
    let port = match parts.next() {
        Some(Value::Int(port)) => u16::try_from(port).map_err(|_| garbage())?,
        _ => return Err(garbage()),
    };
    let host = if host.is_empty() { by.host() } else { &host };
    Ok(Address::new(host, port))
}

fn garbage() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "not a list of slots").into()
}

/// Which server is the master of which slot.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Topology {
    masters: Vec<Address>,
    /// Places in `masters`.
    slots: Box<[u16]>,
    replicas: Vec<Address>,
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("masters", &self.masters)
            .finish_non_exhaustive()
    }
}

impl Topology {
    /// One server has everything.
    pub(super) fn single(server: Address) -> Self {
        Self {
            masters: vec![server],
            slots: vec![0; SLOTS].into(),
            replicas: Vec::new(),
        }
    }

    /// Of several words, what most of them say of each slot: a server that was away may speak of
    /// old times.
    pub(super) fn of(words: &[Word]) -> Self {
        let mut topology = Self {
            masters: Vec::new(),
            slots: vec![NOBODY; SLOTS].into(),
            replicas: Vec::new(),
        };
        let mut votes: Vec<Vec<(u16, u16)>> = vec![Vec::new(); SLOTS];
        for (first, last, servers) in words.iter().flat_map(|word| &word.0) {
            let Some(master) = servers.first().filter(|server| server.host() != "?") else {
                continue;
            };
            let place = topology.place(master);
            for votes in votes.get_mut(*first..=*last).unwrap_or_default() {
                match votes.iter_mut().find(|(who, _)| *who == place) {
                    Some((_, votes)) => *votes += 1,
                    None => votes.push((place, 1)),
                }
            }
            topology.replicas.extend(servers.iter().skip(1).cloned());
        }
        for (slot, votes) in topology.slots.iter_mut().zip(&votes) {
            // Of equals the first, so that the same words make the same topology.
            let most = votes.iter().map(|(_, votes)| *votes).max();
            let chosen = votes.iter().find(|(_, votes)| Some(*votes) == most);
            *slot = chosen.map_or(NOBODY, |(who, _)| *who);
        }
        topology.tidy();
        topology
    }

    /// The same with another master of one slot.
    pub(super) fn moved(&self, slot: u16, to: &Address) -> Self {
        let mut moved = self.clone();
        let place = moved.place(to);
        if let Some(master) = moved.slots.get_mut(usize::from(slot)) {
            *master = place;
        }
        moved
    }

    /// The master of a slot.
    pub(super) fn master(&self, slot: u16) -> Option<&Address> {
        let place = *self.slots.get(usize::from(slot))?;
        self.masters.get(usize::from(place))
    }

    /// Everybody who has slots.
    pub(super) fn masters(&self) -> &[Address] {
        &self.masters
    }

    /// Everybody who is known to belong to the cluster.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Address> {
        self.masters.iter().chain(&self.replicas)
    }

    fn place(&mut self, master: &Address) -> u16 {
        let known = self.masters.iter().position(|known| known == master);
        let place = known.unwrap_or_else(|| {
            self.masters.push(master.clone());
            self.masters.len() - 1
        });
        // A cluster has some thousand servers at most; one beyond counts as no master.
        u16::try_from(place).unwrap_or(NOBODY)
    }

    /// Drops masters that nothing is left to, and orders the others: the same facts are equal.
    fn tidy(&mut self) {
        let mut order: Vec<usize> = (0..self.masters.len()).collect();
        let used: HashMap<u16, ()> = self.slots.iter().map(|place| (*place, ())).collect();
        order.retain(|place| used.contains_key(&(*place as u16)));
        order.sort_by(|a, b| self.masters[*a].cmp(&self.masters[*b]));
        let places: HashMap<u16, u16> = order
            .iter()
            .enumerate()
            .map(|(new, old)| (*old as u16, new as u16))
            .collect();
        for slot in &mut self.slots {
            *slot = places.get(slot).copied().unwrap_or(NOBODY);
        }
        self.masters = order
            .iter()
            .map(|place| self.masters[*place].clone())
            .collect();
        self.replicas.sort();
        self.replicas.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address::new("a", port)
    }

    fn word(stretches: &[(usize, usize, u16)]) -> Word {
        let stretches = stretches.iter();
        Word(
            stretches
                .map(|(f, l, port)| (*f, *l, vec![at(*port), at(port + 10)]))
                .collect(),
        )
    }

    #[test]
    fn most_words_win_slot_by_slot() {
        let now = word(&[(0, 99, 1), (100, 16_383, 2)]);
        let before = word(&[(0, 49, 1), (50, 16_383, 3)]);
        let topology = Topology::of(&[before, now.clone(), now]);
        assert_eq!(topology.master(0), Some(&at(1)));
        assert_eq!(topology.master(75), Some(&at(1)));
        assert_eq!(topology.master(100), Some(&at(2)));
        assert_eq!(topology.masters(), [at(1), at(2)]);
    }

    #[test]
    fn slots_without_a_master_are_nobodys() {
        let topology = Topology::of(&[word(&[(0, 9, 1)])]);
        assert_eq!(topology.master(9), Some(&at(1)));
        assert_eq!(topology.master(10), None);
        let topology = topology.moved(10, &at(7));
        assert_eq!(topology.master(10), Some(&at(7)));
        assert_eq!(topology.master(11), None);
    }

    #[test]
    fn redirections_name_a_server_or_the_one_that_speaks() {
        let by = Address::new("me", 1);
        let redirected = |text| Address::redirected(text, &by);
        assert_eq!(redirected("a:7"), Some(at(7)));
        assert_eq!(redirected(":7"), Some(Address::new("me", 7)));
        assert_eq!(redirected("[::1]:7"), Some(Address::new("::1", 7)));
        assert_eq!(redirected("?:7"), None);
        assert_eq!(redirected("a:70000"), None);
        assert_eq!(redirected("a"), None);
    }

    #[test]
    fn an_answer_that_is_no_list_of_slots_is_an_error() {
        let me = Address::new("me", 1);
        let stretch = |parts: Vec<Value>| Value::Array(vec![Value::Array(parts)]);
        let server = |host: Value, port| Value::Array(vec![host, Value::Int(port)]);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let (first, last) = (Value::Int(0), Value::Int(16_383));
        let good = stretch(vec![first.clone(), last.clone(), server(Value::Nil, 5)]);
        let word = Word::read(good, &me).unwrap();
        assert_eq!(
            Topology::of(&[word]).master(3),
            Some(&Address::new("me", 5))
        );
        for bad in [
            Value::Okay,
            Value::Array(vec![Value::Okay]),
            stretch(vec![first.clone()]),
            stretch(vec![
                first.clone(),
                Value::Int(16_384),
                server(text("a"), 1),
            ]),
            stretch(vec![Value::Int(-1), last.clone(), server(text("a"), 1)]),
            stretch(vec![first.clone(), last.clone(), server(text("a"), 65_536)]),
            stretch(vec![first.clone(), last.clone(), server(Value::Int(1), 1)]),
            stretch(vec![first.clone(), last.clone(), Value::Okay]),
        ] {
            assert!(Word::read(bad.clone(), &me).is_err(), "{bad:?}");
        }
        // From back to front: no slot at all, and no panic.
        let turned = stretch(vec![last, first, server(text("a"), 1)]);
        let word = Word::read(turned, &me).unwrap();
        assert_eq!(Topology::of(&[word]).master(3), None);
    }
}

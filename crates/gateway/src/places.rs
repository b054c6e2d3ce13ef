//! Places for those of whom nothing is known yet, in the order of their coming: where there are too
//! many, the oldest makes room.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// All that are taken, each with the means to send its owner away.
#[derive(Debug)]
pub(crate) struct Places<T>(Mutex<Taken<T>>);

#[derive(Debug)]
struct Taken<T> {
    next: u64,
    owners: BTreeMap<u64, T>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        let owners = BTreeMap::new();
        Self(Mutex::new(Taken { next: 0, owners }))
    }
}

impl<T> Places<T> {
    /// A place for one more, and who loses theirs for it if `most` are taken.
    pub(crate) fn enter(self: &Arc<Self>, owner: T, most: usize) -> (Place<T>, Option<T>) {
        let mut taken = self.lock();
        let full = taken.owners.len() >= most;
        let oldest = full.then(|| taken.owners.pop_first()).flatten();
        let number = taken.next;
        taken.next += 1;
        taken.owners.insert(number, owner);
        drop(taken);
        let all = Arc::clone(self);
        (Place { all, number }, oldest.map(|(_, owner)| owner))
    }

    fn lock(&self) -> MutexGuard<'_, Taken<T>> {
        // Nothing in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place<T> {
    all: Arc<Places<T>>,
    number: u64,
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.all.lock().owners.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_places_are_given_back() {
        let places = Arc::new(Places::default());
        let enter = |owner| places.enter(owner, 2);
        let ((first, none), (second, nor)) = (enter(1), enter(2));
        assert_eq!((none, nor), (None, None));
        let (third, lost) = enter(3);
        assert_eq!(lost, Some(1));
        drop((first, second));
        assert_eq!(places.lock().owners.len(), 1);
        let (fourth, lost) = enter(4);
        assert_eq!(lost, None);
        drop((third, fourth));
        assert!(places.lock().owners.is_empty());
    }

    #[test]
    fn who_comes_where_there_is_no_room_at_all_is_the_next_to_go() {
        let places = Arc::new(Places::default());
        let (_first, none) = places.enter(1, 0);
        let (_second, lost) = places.enter(2, 0);
        assert_eq!((none, lost), (None, Some(1)));
    }
}

//! Who is there, as the clients themselves know it, beside who is shown, as the watchers were
//! told: what the count of wrong dots is made of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Users by the devices with which they are there.
type Present = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct Inner {
    present: Present,
    /// What watchers of the whole tenant who see everybody were told; none while they can't.
    shown: BTreeMap<String, Option<BTreeSet<String>>>,
}

/// The truth of one round. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Truth(Arc<Mutex<Inner>>);

impl Truth {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A device is there.
    pub fn here(&self, user: &str, device: &str) {
        let mut inner = self.lock();
        let devices = inner.present.entry(user.to_owned()).or_default();
        devices.insert(device.to_owned());
    }

    /// A device is not there any more.
    pub fn gone(&self, user: &str, device: &str) {
        let mut inner = self.lock();
        if let Some(devices) = inner.present.get_mut(user) {
            devices.remove(device);
            if devices.is_empty() {
                inner.present.remove(user);
            }
        }
    }

    /// How many users are there.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().present.len()
    }

    /// What a watcher who sees everybody is shown.
    pub fn show(&self, watcher: &str, change: impl FnOnce(&mut Option<BTreeSet<String>>)) {
        change(self.lock().shown.entry(watcher.to_owned()).or_default());
    }

    /// How many dots are wrong, over all watchers who see everybody; and the worst of them.
    #[must_use]
    pub fn wrong(&self) -> (usize, Option<String>) {
        let inner = self.lock();
        let truth: BTreeSet<&String> = inner.present.keys().collect();
        let mut sum = 0;
        let mut example = None;
        for (watcher, shown) in &inner.shown {
            let Some(shown) = shown else { continue };
            let shown: BTreeSet<&String> = shown.iter().collect();
            let wrong: Vec<_> = truth.symmetric_difference(&shown).collect();
            sum += wrong.len();
            if let Some(user) = wrong.first() {
                let there = truth.contains(**user);
                example = Some(format!("{watcher}: {user} (there: {there})"));
            }
        }
        (sum, example)
    }

    /// Watchers who see everybody and have a picture.
    #[must_use]
    pub fn watching(&self) -> usize {
        self.lock().shown.values().flatten().count()
    }
}

//! Who may see a user: what was asked for and when it was surely recorded.

use adsum_core::{Manual, Visibility};

use crate::history::Setting;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Settings {
    pub(super) status: Option<Manual>,
    visibility: Visibility,
    contacts: Vec<String>,
}

impl Settings {
    fn with(&self, setting: &Setting) -> Self {
        let mut settings = self.clone();
        match setting {
            Setting::Status(status) => settings.status = *status,
            Setting::Visibility(visibility) => settings.visibility = *visibility,
            Setting::Contacts(list) => settings.contacts.clone_from(list),
        }
        settings
    }

    /// Whether these eyes may see the user.
    pub(super) fn admit(&self, user: &str, eyes: Option<&str>) -> bool {
        if eyes == Some(user) {
            return true;
        }
        let listed = || eyes.is_some_and(|eyes| self.contacts.iter().any(|c| c == eyes));
        self.status != Some(Manual::Invisible)
            && match self.visibility {
                Visibility::Everyone => true,
                Visibility::Contacts => listed(),
                Visibility::Nobody => false,
            }
    }
}

/// All settings that may have been in force, with the time at which they surely ended.
#[derive(Debug)]
pub(super) struct Past {
    all: Vec<(Settings, Option<u64>)>,
    /// They are not known any more: the store forgot them.
    pub(super) forgotten: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self {
            all: vec![(Settings::default(), None)],
            forgotten: false,
        }
    }
}

impl Past {
    pub(super) fn newest(&self) -> Settings {
        self.all.last().map(|(s, _)| s.clone()).unwrap_or_default()
    }

    pub(super) fn asked(&mut self, setting: &Setting) {
        let next = self.newest().with(setting);
        self.all.push((next, None));
    }

    pub(super) fn recorded(&mut self, at: u64) {
        let older = self.all.len() - 1;
        for (_, until) in &mut self.all[..older] {
            until.get_or_insert(at);
        }
    }

    pub(super) fn forget(&mut self) {
        self.forgotten |= self.all.len() > 1;
    }

    /// Something was asked for that may not be recorded.
    pub(super) fn open(&self) -> bool {
        self.all.iter().filter(|(_, until)| until.is_none()).count() > 1
    }

    fn since(&self, from: u64) -> impl Iterator<Item = &Settings> {
        let in_force = move |until: &Option<u64>| until.is_none_or(|until| until >= from);
        self.all
            .iter()
            .filter(move |(_, until)| in_force(until))
            .map(|(settings, _)| settings)
    }

    /// Whether these eyes may have been allowed to see the user at any time since.
    pub(super) fn may_see(&self, user: &str, eyes: Option<&str>, from: u64) -> bool {
        self.forgotten || self.since(from).any(|s| s.admit(user, eyes))
    }

    /// Whether these eyes were allowed to see the user all the time since. A list that can't be
    /// read admits nobody: while things are broken only those count who need none.
    pub(super) fn sees(&self, user: &str, eyes: Option<&str>, from: u64, lists: bool) -> bool {
        let admits = |s: &Settings| {
            let listed = s.visibility == Visibility::Contacts && eyes != Some(user);
            s.admit(user, eyes) && (lists || !listed)
        };
        !self.forgotten && self.since(from).all(admits)
    }

    /// When these eyes must have stopped seeing the user, at the latest.
    pub(super) fn hidden_since(&self, user: &str, eyes: Option<&str>) -> Option<u64> {
        if self.may_see(user, eyes, u64::MAX) {
            return None;
        }
        let admitting = self.all.iter().rev().find(|(s, _)| s.admit(user, eyes));
        Some(admitting.and_then(|(_, until)| *until).unwrap_or(0))
    }
}

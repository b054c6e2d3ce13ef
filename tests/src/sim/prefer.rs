//! Users say who may see them, and keep asking until that is recorded.

use adsum_core::{
    Manual, Preference, UserId, Visibility,
    store::{Preferred, Store},
};

use super::{
    client::Client,
    world::{DAWN, World},
};
use crate::history::{Event, Setting};

impl World {
    pub(super) fn prefer(&mut self, c: usize) {
        let setting = match self.rng.below(8) {
            0 | 1 => Setting::Status(Some(Manual::Invisible)),
            2 => Setting::Status(Some(Manual::Busy)),
            3 => Setting::Status(None),
            4 => Setting::Visibility(Visibility::Nobody),
            5 => Setting::Visibility(Visibility::Everyone),
            6 => Setting::Visibility(Visibility::Contacts),
            _ => Setting::Contacts(vec![format!("u{}", self.rng.below(4))]),
        };
        let owner = self.clients[c].key.owner.clone();
        // One at a time: a user's settings are ordered by their versions, not by the network.
        let asking = |other: &Client| other.key.owner == owner && other.asking.is_some();
        if self.clients.iter().any(asking) {
            return;
        }
        let user = owner.user.as_str().to_owned();
        self.note(Event::Asked {
            user,
            setting: setting.clone(),
        });
        let version = DAWN + self.now;
        self.clients[c].asking = Some(version);
        self.ask(c, setting, version);
    }

    /// Asks until it is recorded, always under the same version.
    fn ask(&mut self, c: usize, setting: Setting, version: u64) {
        if self.clients[c].asking != Some(version) {
            return;
        }
        let g = self.rng.below(self.gateways.len());
        let (process, store) = (self.gateways[g].process, self.gateways[g].store.clone());
        let again = setting.clone();
        self.at(1_200, move |w| w.ask(c, again, version));
        if !self.awake(process) {
            return;
        }
        let user = self.clients[c].key.owner.clone();
        let call = async move { store.prefer(&user, preference(setting), version).await };
        self.spawn(process, call, move |w, answer| {
            let recorded = answer.ok().map(|answer| answer.value);
            let Some(Preferred::Ok(prefs) | Preferred::Stale(prefs)) = recorded else {
                return;
            };
            if w.clients[c].asking.take_if(|v| *v == version).is_some() {
                let (user, _) = w.clients[c].names();
                w.note(Event::Set { user });
                if w.clients[c].link == Some(g) {
                    w.carry(g, c, prefs);
                }
            }
        });
    }
}

fn preference(setting: Setting) -> Preference {
    match setting {
        Setting::Status(status) => Preference::Status(status),
        Setting::Visibility(who) => Preference::Visibility(who),
        Setting::Contacts(list) => {
            let list = list.into_iter().filter_map(|user| UserId::new(user).ok());
            Preference::Contacts(list.collect())
        }
    }
}

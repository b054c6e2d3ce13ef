//! A user's lasting settings, and the end of all that is known of a user.

use adsum_core::{
    Event, Manual, Preference, Prefs, UserKey, Versioned,
    store::{Preferred, Result},
};

use super::shard::{Call, Shard};

impl Shard {
    pub(super) fn prefer(
        &mut self,
        call: &Call<'_>,
        user: &UserKey,
        preference: &Preference,
        version: u64,
    ) -> Result<Preferred> {
        self.begin(call)?;
        let stored = self.prefs_of(user);
        let (recorded, same) = match preference {
            Preference::Status(status) => (stored.status.version, stored.status.value == *status),
            Preference::Visibility(who) => {
                (stored.visibility.version, stored.visibility.value == *who)
            }
            Preference::Contacts(list) => (stored.contacts, self.contacts.get(user) == Some(list)),
        };
        if version < recorded || (version == recorded && !same) {
            return Ok(Preferred::Stale(stored));
        }
        if version == recorded {
            return Ok(Preferred::Ok(stored));
        }
        let prefs = self.preferred(call, user, stored, preference, version);
        if let Preference::Contacts(list) = preference {
            self.contacts.insert(user.clone(), list.clone());
        }
        self.prefs.insert(user.clone(), prefs);
        if let Some(record) = self.people.get_mut(user) {
            record.person.prefs = prefs;
        }
        self.commit(
            call,
            Event::Prefs {
                owner: user.clone(),
                prefs,
            },
            call.origin.cloned(),
        );
        Ok(Preferred::Ok(prefs))
    }

    fn preferred(
        &self,
        call: &Call<'_>,
        user: &UserKey,
        stored: Prefs,
        preference: &Preference,
        version: u64,
    ) -> Prefs {
        const INVISIBLE: Option<Manual> = Some(Manual::Invisible);
        match preference {
            Preference::Status(status) => {
                let frozen_at = match (stored.status.value, *status) {
                    (INVISIBLE, INVISIBLE) => stored.frozen_at,
                    (_, INVISIBLE) if self.people.contains_key(user) => call.now,
                    (_, INVISIBLE) => self.seen.get(user).unwrap_or_default(),
                    _ => 0,
                };
                let comes_out = stored.status.value == INVISIBLE && *status != INVISIBLE;
                Prefs {
                    status: Versioned {
                        value: *status,
                        version,
                    },
                    frozen_at,
                    shown_at: if comes_out { call.now } else { stored.shown_at },
                    ..stored
                }
            }
            Preference::Visibility(who) => Prefs {
                visibility: Versioned {
                    value: *who,
                    version,
                },
                shown_at: match who.is_wider(stored.visibility.value) {
                    true => call.now,
                    false => stored.shown_at,
                },
                ..stored
            },
            Preference::Contacts(_) => Prefs {
                contacts: version,
                ..stored
            },
        }
    }

    pub(super) fn purge(&mut self, call: &Call<'_>, user: &UserKey) -> Result<()> {
        self.kick(call, user, None)?;
        self.contacts.remove(user);
        self.seen.remove(user);
        if self.prefs.remove(user).is_some() {
            let event = Event::Prefs {
                owner: user.clone(),
                prefs: Prefs::default(),
            };
            self.commit(call, event, None);
        }
        Ok(())
    }
}

//! Preferences.

use super::*;

impl ModelShard {
    pub(crate) fn prefer(
        &mut self,
        call: Call<'_>,
        user: &UserKey,
        preference: &Preference,
        version: u64,
    ) -> Checked<Preferred> {
        self.begin(call, false)?;
        let mut prefs = self.stored_prefs(user).unwrap_or_default();
        let (v, same) = match preference {
            Preference::Status(value) => (prefs.status.version, prefs.status.value == *value),
            Preference::Visibility(value) => {
                (prefs.visibility.version, prefs.visibility.value == *value)
            }
            Preference::Contacts(list) => (
                prefs.contacts,
                self.contacts.iter().any(|(u, l)| u == user && l == list),
            ),
        };
        if version < v || (version == v && !same) {
            return Ok(Preferred::Stale(prefs));
        }
        if version == v {
            return Ok(Preferred::Ok(prefs));
        }
        match preference {
            Preference::Status(value) => {
                if *value != INVISIBLE {
                    if prefs.status.value == INVISIBLE {
                        prefs.shown_at = call.now;
                    }
                    prefs.frozen_at = 0;
                } else if prefs.status.value != INVISIBLE {
                    let here = self.person(user).is_some();
                    let seen = self.last_seen(user).unwrap_or(0);
                    prefs.frozen_at = if here { call.now } else { seen };
                }
                prefs.status = Versioned {
                    value: *value,
                    version,
                };
            }
            Preference::Visibility(value) => {
                let hid = prefs.visibility.value;
                if hid == Visibility::Nobody && *value != Visibility::Nobody
                    || hid == Visibility::Contacts && *value == Visibility::Everyone
                {
                    prefs.shown_at = call.now;
                }
                prefs.visibility = Versioned {
                    value: *value,
                    version,
                };
            }
            Preference::Contacts(list) => {
                prefs.contacts = version;
                self.contacts.retain(|(u, _)| u != user);
                self.contacts.push((user.clone(), list.clone()));
            }
        }
        self.write_prefs(user, prefs);
        for (_, person) in self.people.iter_mut().filter(|(u, _)| u == user) {
            person.prefs = prefs;
        }
        self.commit(
            call,
            Event::Prefs {
                owner: user.clone(),
                prefs,
            },
            None,
        );
        Ok(Preferred::Ok(prefs))
    }
}

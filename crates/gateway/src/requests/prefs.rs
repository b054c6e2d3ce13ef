//! A user's lasting settings. The version of a write is chosen once: the clock in ms, or just above
//! what is recorded; the same in every retry, so that a late copy changes nothing.

use adsum_core::{
    Invalid, Manual, Preference, Prefs, UserId, UserKey, Visibility, store::Preferred,
};
use adsum_proto::client::Fault;

use super::{Requests, Result, patience::patiently, whose};
use crate::{Caller, EdgeError, clock};

impl Requests {
    /// Sets or clears the manual status.
    pub(crate) async fn set_status(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        manual: Option<Manual>,
    ) -> Result<()> {
        let key = whose(caller, user)?;
        self.prefer(&key, &Preference::Status(manual)).await?;
        Ok(())
    }

    /// Sets who may see the user.
    pub(crate) async fn set_visibility(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        visibility: Visibility,
    ) -> Result<()> {
        let key = whose(caller, user)?;
        self.prefer(&key, &Preference::Visibility(visibility))
            .await?;
        Ok(())
    }

    /// Replaces the list of contacts.
    pub(crate) async fn set_contacts(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        contacts: Vec<UserId>,
    ) -> Result<()> {
        let key = whose(caller, user)?;
        let (count, limit) = (contacts.len(), caller.settings.limits.contacts);
        if count > limit {
            return Err(Fault::from(Invalid::TooManyContacts { count, limit }).into());
        }
        self.prefer(&key, &Preference::Contacts(contacts)).await?;
        Ok(())
    }

    /// The caller's own settings.
    pub(crate) async fn own_prefs(&self, caller: &Caller) -> Result<Prefs> {
        self.recorded(&whose(caller, None)?).await
    }

    /// The caller's own list of contacts.
    pub(crate) async fn own_contacts(&self, caller: &Caller) -> Result<Vec<UserId>> {
        let key = whose(caller, None)?;
        let list = patiently(|| self.edge().store().contacts(&key)).await?;
        Ok(list.map(|(_, list)| list).unwrap_or_default())
    }

    async fn recorded(&self, key: &UserKey) -> Result<Prefs> {
        let users = std::slice::from_ref(key);
        let mut reads = patiently(|| self.edge().store().read(users)).await?;
        Ok(reads.pop().unwrap_or_default().prefs)
    }

    /// Writes one setting of a user, and answers them all. Of two writers at once the later wins,
    /// whatever their clocks say.
    pub(crate) async fn prefer(&self, key: &UserKey, preference: &Preference) -> Result<Prefs> {
        let mut known = self.recorded(key).await?;
        for _ in 0..2 {
            let version = clock::wall_ms().max(version(&known, preference).saturating_add(1));
            let write = || self.edge().store().prefer(key, preference.clone(), version);
            match patiently(write).await?.value {
                Preferred::Ok(prefs) => return Ok(prefs),
                // Somebody else was in between: once above them.
                Preferred::Stale(prefs) => known = prefs,
            }
        }
        Err(EdgeError::unavailable(
            "others change the same setting at the same time; try again",
        ))
    }
}

const fn version(prefs: &Prefs, preference: &Preference) -> u64 {
    match preference {
        Preference::Status(_) => prefs.status.version,
        Preference::Visibility(_) => prefs.visibility.version,
        Preference::Contacts(_) => prefs.contacts,
    }
}

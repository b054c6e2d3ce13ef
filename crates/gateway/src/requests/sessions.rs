//! Closing sessions at once: a goodbye by their own user, a kick by a service.

use adsum_core::{
    Conn, DeviceId, Reason, SessionKey, Stamp, UserId, UserKey,
    store::{Close, Closed},
};

use super::{Requests, Result, patience::patiently, whose};
use crate::{Caller, auth::Role};

/// A device that comes back again and again while it is being closed is left alone.
const TRIES: usize = 3;

impl Requests {
    /// Closes one device or all of them; answers how many.
    pub(crate) async fn disconnect(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        device: Option<DeviceId>,
    ) -> Result<u32> {
        let kick = caller.identity.role == Role::Service && user.is_some();
        let key = whose(caller, user)?;
        let closed = if kick {
            let seen = self.sees(caller, &key).await?;
            let kick = || self.edge().store().kick(&key, device.as_ref());
            let closed = patiently(kick).await?.value.len();
            // A number must not betray whom the caller may not see.
            if seen { closed } else { 0 }
        } else {
            self.leave(&key, device.as_ref()).await?
        };
        Ok(u32::try_from(closed).unwrap_or(u32::MAX))
    }

    async fn leave(&self, key: &UserKey, device: Option<&DeviceId>) -> Result<usize> {
        let users = std::slice::from_ref(key);
        let read = patiently(|| self.edge().store().read(users)).await?;
        let person = read.into_iter().next().and_then(|read| read.person);
        let sessions = person.map(|p| p.sessions).unwrap_or_default();
        let mut closed = 0;
        for (found, session) in sessions {
            if device.is_none_or(|device| *device == found) {
                let key = SessionKey::new(key.clone(), found);
                closed += usize::from(self.close(key, session.stamp.conn).await?);
            }
        }
        Ok(closed)
    }

    async fn close(&self, key: SessionKey, mut conn: Conn) -> Result<bool> {
        for _ in 0..TRIES {
            let op = Close {
                key: key.clone(),
                // Above whatever the session says meanwhile.
                stamp: Stamp {
                    conn,
                    rev: Conn::MAX,
                },
                reason: Reason::Leave,
                origin: None,
            };
            match patiently(|| self.edge().store().close(op.clone()))
                .await?
                .value
            {
                Closed::Ok { .. } => return Ok(true),
                // It has connected again meanwhile, and is meant all the same.
                Closed::Superseded { conn: newer } => conn = newer,
            }
        }
        Ok(false)
    }
}

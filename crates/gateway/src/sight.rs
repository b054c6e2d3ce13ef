//! Who may see whom: the one judgement behind every state, diff, read and count.

use std::{collections::HashSet, sync::Arc};

use adsum_core::{Item, TenantId, UserId};

use crate::{
    auth::{Identity, Role},
    feed::Feed,
};

/// The eyes of one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The caller, who always sees their own truth. A service is nobody.
    pub user: Option<UserId>,
    /// Sees everybody, whatever their visibility.
    pub all: bool,
}

impl Sight {
    /// Of a caller. A service sees like a stranger unless its token says more.
    #[must_use]
    pub fn of(identity: &Identity) -> Self {
        let user = match identity.role {
            Role::User => identity.user.clone(),
            Role::Service => None,
        };
        Self {
            user,
            all: identity.see_all,
        }
    }

    /// Whether the caller may see this person; `lists` gives lists of contacts by user and
    /// version. A list that is not known admits nobody.
    pub fn sees(
        &self,
        item: &Item,
        lists: impl FnOnce(&UserId, u64) -> Option<Arc<HashSet<UserId>>>,
    ) -> bool {
        if self.all {
            return true;
        }
        let listed = || {
            let list = lists(&item.user, item.contacts);
            let list = list.zip(self.user.as_ref());
            list.is_some_and(|(list, user)| list.contains(user))
        };
        item.visible_to(self.user.as_ref(), listed)
    }

    /// [`sees`](Self::sees), with the lists that came with the feed.
    #[must_use]
    pub fn sees_in(&self, item: &Item, feed: &Feed, tenant: &TenantId) -> bool {
        self.sees(item, |user, version| feed.contacts(tenant, user, version))
    }
}

//! Who is in a room or in the tenant, and how many: from the same rosters that watchers get.
//!
//! A page begins after the user that ended the one before, so that whoever is there throughout is
//! told exactly once, whatever comes and goes between two pages.

use std::{fmt, sync::Arc};

use adsum_core::{Item, Topic};
use adsum_proto::client::Code;

use super::{Requests, Result};
use crate::{Caller, EdgeError, feed::Picture};

/// Where a page ended: the bytes of a user's id, in hex. Opaque to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageToken(Vec<u8>);

impl PageToken {
    /// No id has more bytes.
    const MAX_BYTES: usize = 128;

    /// Reads a token; `None` for the first page.
    pub(crate) fn read(text: &str) -> Result<Option<Self>> {
        let unknown = || EdgeError::new(Code::InvalidPage, "the page token is none of ours");
        if text.is_empty() {
            return Ok(None);
        }
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() || pairs.len() > Self::MAX_BYTES {
            return Err(unknown());
        }
        let byte = |[high, low]: &[u8; 2]| Some(nibble(*high)? << 4 | nibble(*low)?);
        let bytes: Option<_> = pairs.iter().map(byte).collect();
        bytes.map(|bytes| Some(Self(bytes))).ok_or_else(unknown)
    }

    fn after(item: &Item) -> Self {
        Self(item.user.as_str().as_bytes().to_vec())
    }

    fn admits(&self, item: &Item) -> bool {
        item.user.as_str().as_bytes() > self.0.as_slice()
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A part of a topic's members, by user id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// All of them may be seen by the caller.
    pub(crate) members: Vec<Arc<Item>>,
    /// `None`: this was the last page.
    pub(crate) next: Option<PageToken>,
    /// False: some of the cluster did not answer in time.
    pub(crate) complete: bool,
}

/// How many are in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Those that everybody may see.
    pub(crate) count: u64,
    /// False: some of the cluster did not answer in time.
    pub(crate) complete: bool,
}

impl Requests {
    /// A page of those in the topic whom the caller may see. A size of 0 is as the server likes.
    pub(crate) async fn members(
        &self,
        caller: &Caller,
        topic: Topic,
        size: u32,
        after: Option<&PageToken>,
    ) -> Result<Page> {
        let picture = self.picture(caller, topic).await?;
        let (feed, tenant) = (self.edge().feed(), &caller.identity.tenant);
        let members = picture.items.iter();
        let mut members: Vec<_> = members
            .filter(|item| after.is_none_or(|after| after.admits(item)))
            .filter(|item| caller.sight.sees_in(item, feed, tenant))
            .collect();
        let size = self.page_size(size);
        let more = members.len() > size;
        if more {
            // The page first and only then its order: topics may be large, pages are not.
            members.select_nth_unstable_by(size, |a, b| a.user.cmp(&b.user));
            members.truncate(size);
        }
        members.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        Ok(Page {
            next: members.last().filter(|_| more).map(|i| PageToken::after(i)),
            members: members.into_iter().cloned().collect(),
            complete: whole(&picture),
        })
    }

    /// How many are in the topic. Not what the caller sees but what everybody may: a number must
    /// betray nobody.
    pub(crate) async fn count(&self, caller: &Caller, topic: Topic) -> Result<Counted> {
        let picture = self.picture(caller, topic).await?;
        let public = picture.items.iter().filter(|item| item.public()).count();
        Ok(Counted {
            count: u64::try_from(public).unwrap_or(u64::MAX),
            complete: whole(&picture),
        })
    }

    async fn picture(&self, caller: &Caller, topic: Topic) -> Result<Arc<Picture>> {
        if matches!(topic, Topic::User(_)) {
            return Err(EdgeError::new(
                Code::InvalidTopic,
                "only a room and the tenant have members",
            ));
        }
        caller.may_watch(&topic)?;
        let tenant = caller.identity.tenant.clone();
        Ok(self.edge().feed().watch(tenant, topic).ready().await)
    }

    fn page_size(&self, asked: u32) -> usize {
        let most = self.edge().config().page.max(1);
        match usize::try_from(asked).unwrap_or(most) {
            0 => most,
            asked => asked.min(most),
        }
    }
}

/// A shard that settles has answered; one without a source has not.
const fn whole(picture: &Picture) -> bool {
    picture.complete && !picture.stale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_others_are_refused() {
        assert_eq!(PageToken::read("").unwrap(), None);
        let token = PageToken("ü~".as_bytes().to_vec());
        assert_eq!(token.to_string(), "c3bc7e");
        assert_eq!(PageToken::read("c3bc7e").unwrap(), Some(token));
        for bad in ["c", "zz", "C3", "0x", " 0", "üü", &"00".repeat(129)] {
            let error = PageToken::read(bad).unwrap_err();
            assert_eq!(error.code, Code::InvalidPage, "{bad}");
        }
    }
}

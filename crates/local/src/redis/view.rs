//! A cluster as one of its nodes sees it: the answer to `CLUSTER NODES`.

use std::ops::RangeInclusive;

use anyhow::{Context, Result};

#[derive(Debug)]
pub(super) struct View {
    pub(super) members: Vec<Member>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: String,
    flags: Vec<String>,
    /// The id of its master, for a replica.
    pub(super) master: Option<String>,
    /// The higher one is right when two views disagree about a slot.
    pub(super) epoch: u64,
    connected: bool,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl View {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let members = text.lines().map(Member::parse).collect::<Result<_>>()?;
        Ok(Self { members })
    }

    /// The node that gave this view.
    pub(super) fn myself(&self) -> Result<&Member> {
        let myself = self.members.iter().find(|member| member.has("myself"));
        myself.context("a view without the node that gave it")
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Member> {
        self.members.iter().find(|member| member.owns(slot))
    }
}

impl Member {
    fn parse(line: &str) -> Result<Self> {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [
            id,
            _address,
            flags,
            master,
            _ping,
            _pong,
            epoch,
            link,
            slots @ ..,
        ] = &columns[..]
        else {
            anyhow::bail!("not a line of CLUSTER NODES: {line}");
        };
        Ok(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master != "-").then(|| (*master).to_owned()),
            epoch: epoch.parse().with_context(|| format!("epoch of {line}"))?,
            connected: *link == "connected",
            slots: slots
                .iter()
                .filter_map(|slots| parse_slots(slots))
                .collect(),
        })
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    pub(super) fn is_replica(&self) -> bool {
        self.has("slave")
    }

    /// Known for good, reachable, and not suspected of anything.
    pub(super) fn is_well(&self) -> bool {
        let doubts = ["fail", "fail?", "handshake", "noaddr"];
        self.connected && !doubts.iter().any(|doubt| self.has(doubt))
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

/// `7`, `0-5460`; a slot under way, like `[93-<-id]`, still belongs to whom it belonged.
fn parse_slots(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_knows_roles_owners_and_doubts() -> Result<()> {
        let view = View::parse(
            "a1 127.0.0.1:7000@17000,,tls-port=0 myself,master - 0 0 3 connected 0-5 7 [6->-b2]\n\
             b2 127.0.0.1:7001@17001 master,fail? - 0 0 2 connected 8-16383\n\
             c3 127.0.0.1:7002@17002 slave a1 0 0 3 connected\n",
        )?;
        let me = view.myself()?;
        assert_eq!((me.id.as_str(), me.epoch, me.is_well()), ("a1", 3, true));
        assert!(me.owns(7) && !me.owns(6));
        assert!(view.owner(6).is_none());
        let suspect = view.owner(8).context("8 has an owner")?;
        assert!(suspect.id == "b2" && !suspect.is_well());
        let replica = view.member("c3").context("c3 is known")?;
        assert_eq!(
            (replica.is_replica(), replica.master.as_deref()),
            (true, Some("a1"))
        );
        Ok(())
    }
}

//! The shortest story of a violation: the user's own doings, what was broken, and what the one
//! watcher was told, the latest of each.

use crate::history::{Entry, Event, Gone, History};

/// Lines of a story.
const LINES: usize = 24;

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms / 1000, ms % 1000)
}

/// What led to the entry at `place`.
pub(super) fn tell(
    history: &History,
    place: usize,
    who: Option<&str>,
    watcher: Option<&str>,
) -> Vec<String> {
    let entries = history.entries[..=place].iter().rev();
    // Fences matter where one was too low.
    let swept = match history.entries[place].event {
        Event::Swept { shard, .. } => Some(shard),
        _ => None,
    };
    let lines = entries.filter_map(|entry| {
        let line = line(entry, who, watcher, swept)?;
        Some(format!("{:>10}  {line}", seconds(entry.at)))
    });
    let mut lines: Vec<_> = lines.take(LINES).collect();
    lines.reverse();
    lines
}

fn line(
    entry: &Entry,
    who: Option<&str>,
    watcher: Option<&str>,
    swept: Option<u16>,
) -> Option<String> {
    let about = |user: &String| who == Some(user.as_str());
    let to = |name: &String| watcher == Some(name.as_str());
    Some(match &entry.event {
        Event::Hello {
            user,
            device,
            conn,
            gateway,
            said,
        } if about(user) => {
            let gateway = gateway.as_deref().unwrap_or("nobody");
            format!("{user}/{device} says hello to {gateway} as {conn}: {said:?}")
        }
        Event::Change { user, device, said } if about(user) => {
            format!("{user}/{device} says {said:?}")
        }
        Event::Recorded { user, device, said } if about(user) => {
            format!("{user}/{device} hears that word {} is recorded", said.mark)
        }
        Event::Gone { user, device, how } if about(user) => match how {
            Gone::Goodbye => format!("{user}/{device} says goodbye"),
            Gone::Broken { returns: true } => format!("{user}/{device} is cut off, will return"),
            Gone::Broken { returns: false } => format!("{user}/{device} is cut off"),
            Gone::Silent => format!("{user}/{device} falls silent"),
            Gone::Unheld => format!("{user}/{device} beats no more"),
        },
        Event::Asked { user, setting } if about(user) => format!("{user} asks for {setting:?}"),
        Event::Set { user } if about(user) => format!("{user} has what was asked for"),
        Event::Broke { fault, lasts } => format!("BROKEN for {lasts} ms: {fault:?}"),
        Event::Watching {
            watcher: name,
            view,
        } if to(name) => format!("{name} watches {} as {:?}", view.topic, view.eyes),
        Event::State {
            watcher: name,
            members,
            settling,
        } if to(name) => {
            let seen = members.iter().find(|s| about(&s.user));
            let settling = if *settling { " (settling)" } else { "" };
            format!(
                "{name} is shown {} people{settling}, of them {seen:?}",
                members.len()
            )
        }
        Event::Diff {
            watcher: name,
            joins,
            updates,
            leaves,
        } if to(name) => {
            let came = joins.iter().find(|s| about(&s.user));
            let changed = updates.iter().find(|s| about(&s.user));
            let left = leaves.iter().find(|l| about(&l.user));
            match (came, changed, left) {
                (Some(s), ..) => format!("{name} is told: came {} {} {:?}", s.status, s.v, s.kinds),
                (_, Some(s), _) => format!("{name} is told: now {} {}", s.status, s.v),
                (.., Some(l)) => format!("{name} is told: left {:?} {}", l.reason, l.v),
                _ => return None,
            }
        }
        Event::Committed { shard, v, what } => {
            let user = who.filter(|who| what.contains(&format!("t/{who}")));
            let epoch = what == "Epoch" || what == "Settled";
            if user.is_none() && !epoch {
                return None;
            }
            let gist = if what.contains("after: None") {
                "closed"
            } else {
                "changed"
            };
            let gist = if epoch { what.as_str() } else { gist };
            format!("shard {shard} commits {v}: {gist}")
        }
        Event::Claimed {
            shard,
            reaper,
            fence,
        } if swept == Some(*shard) => {
            format!("{reaper} claims shard {shard}: {fence:?}")
        }
        _ => return None,
    })
}

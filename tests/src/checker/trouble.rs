//! What was broken when, whom that can touch, and until when it may show.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use crate::history::Fault;

/// From when to when.
type Span = (u64, u64);

/// Whom a fault can touch.
#[derive(Debug, Clone)]
enum Reach {
    /// Those who are held by a gateway.
    Gateway(String),
    /// Those who live in these shards.
    Shards(Vec<u16>),
    /// Those whom a reaper has to close.
    Swept,
    /// Everybody.
    All,
}

/// Who it is that may be touched: by which gateway a session is held, if one holds it, and where
/// its user lives, if that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) gateway: Option<&'a str>,
    pub(super) shard: Option<u16>,
    /// Its deadline is its own: a reaper has to close it.
    pub(super) own: bool,
    /// Through which gateway it is watched, if that is asked.
    pub(super) watched: Option<&'a str>,
}

impl Reach {
    /// Of whom a reaper has to close it is known only once something else has gone wrong.
    fn touches(&self, whose: Whose<'_>, swept: bool) -> bool {
        match self {
            Self::Gateway(name) => whose.gateway == Some(name.as_str()),
            Self::Shards(shards) => whose.shard.is_none_or(|shard| shards.contains(&shard)),
            Self::Swept => swept,
            Self::All => true,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Gateways that were told nothing, or told nothing on.
    blind: BTreeMap<String, Vec<Span>>,
    /// Dispatchers that did not work.
    dispatchers: Vec<(String, Span)>,
    /// Times at which no dispatcher may have worked.
    dark: Vec<Span>,
    /// Gateways that could not renew, and shards that could not be.
    idle: Vec<(Reach, Span)>,
    /// Acknowledged writes may have been lost at these times.
    losses: Vec<(Reach, Span)>,
    /// Sessions may have been closed and opened without their clients' doing.
    upsets: Vec<(Reach, Span)>,
    /// Departures may have had to wait.
    delays: Vec<(Reach, Span)>,
    any: bool,
}

fn touches(span: &Span, at: u64, told: u64) -> bool {
    span.0 <= at && at <= span.1 + told
}

impl Trouble {
    pub(super) fn add(&mut self, fault: &Fault, lasts: u64, at: u64, bounds: &Bounds) {
        self.any = true;
        let span = (at, at + lasts);
        let (reach, cost) = match fault {
            Fault::GatewayKilled(name) | Fault::GatewayDrained(name) => {
                let cost = bounds.holder_ms + bounds.renew_ms + bounds.window_ms;
                (Reach::Gateway(name.clone()), cost)
            }
            Fault::GatewayFrozen(name) => {
                self.blind.entry(name.clone()).or_default().push(span);
                self.idle.push((Reach::Gateway(name.clone()), span));
                let cost = bounds.holder_ms + bounds.renew_ms + bounds.linger_ms + bounds.ttl_ms;
                (Reach::Gateway(name.clone()), cost)
            }
            Fault::GatewayCut(name) => {
                self.idle.push((Reach::Gateway(name.clone()), span));
                let cost = bounds.holder_ms + bounds.renew_ms + bounds.linger_ms;
                (Reach::Gateway(name.clone()), cost)
            }
            Fault::FeedCut(name) | Fault::FeedSlow(name) => {
                self.blind.entry(name.clone()).or_default().push(span);
                return;
            }
            Fault::DispatcherKilled(name)
            | Fault::DispatcherFrozen(name)
            | Fault::DispatcherDeaf(name) => return self.darken(name, span, bounds),
            Fault::PushesLost(_) => return,
            Fault::ReaperKilled(_) | Fault::ReaperFrozen(_) => {
                let end = span.1 + bounds.lease_ms + 3_000;
                return self.delays.push((Reach::Swept, (at, end)));
            }
            Fault::Failover { .. } | Fault::Flush(_) | Fault::Stall(_) | Fault::ClockStep(_) => {
                self.store(fault, span, bounds)
            }
        };
        let felt = (at, span.1 + cost);
        self.upsets.push((reach.clone(), felt));
        self.delays.push((reach, felt));
    }

    /// A shard is away, lacks something, or settles.
    fn store(&mut self, fault: &Fault, span: Span, bounds: &Bounds) -> (Reach, u64) {
        let upset = bounds.settle_ms + bounds.holder_ms + bounds.linger_ms + bounds.renew_ms;
        match fault {
            Fault::Failover { shards, lost } => {
                let reach = Reach::Shards(shards.clone());
                if *lost > 0 {
                    self.losses.push((reach.clone(), span));
                }
                self.idle.push((reach.clone(), span));
                (reach, upset)
            }
            Fault::Flush(shards) => {
                let reach = Reach::Shards(shards.clone());
                self.losses.push((reach.clone(), span));
                (reach, upset)
            }
            Fault::Stall(shards) => {
                let reach = Reach::Shards(shards.clone());
                self.idle.push((reach.clone(), span));
                (reach, upset)
            }
            Fault::ClockStep(step) => {
                let step = step.unsigned_abs();
                let idle = (span.0, span.0 + step.min(bounds.holder_ms));
                self.idle.push((Reach::All, idle));
                (Reach::All, step + upset)
            }
            _ => (Reach::All, upset),
        }
    }

    /// Two dispatchers that fail at about the same time may leave nobody.
    fn darken(&mut self, name: &str, span: Span, bounds: &Bounds) {
        for (other, before) in &self.dispatchers {
            if other != name && touches(before, span.0, bounds.told_ms) {
                self.dark.push((before.0, before.1.max(span.1)));
            }
        }
        self.dispatchers.push((name.to_owned(), span));
    }

    /// How far back what a gateway's watchers are told now may lie.
    pub(super) fn lag(&self, gateway: &str, at: u64, bounds: &Bounds) -> u64 {
        let own = self.blind.get(gateway).into_iter().flatten();
        let told = bounds.told_ms;
        let spans = own.chain(&self.dark).filter(|s| touches(s, at, told));
        let from = spans.map(|span| span.0).min();
        from.map_or(told, |from| at - from + told)
    }

    /// Whether a gateway may have missed so many renewals of a shard that its sessions there
    /// were closed.
    pub(super) fn worn(&self, gateway: &str, shard: Option<u16>, at: u64, bounds: &Bounds) -> bool {
        let whose = Whose {
            gateway: Some(gateway),
            shard,
            own: false,
            watched: None,
        };
        let recent = at.saturating_sub(2 * bounds.holder_ms);
        let lately = self.idle.iter().filter(|(_, span)| span.1 >= recent);
        let ours = lately.filter(|(reach, _)| reach.touches(whose, false));
        let idle: u64 = ours.clone().map(|(_, span)| span.1 - span.0).sum();
        let own = ours
            .clone()
            .any(|(reach, _)| matches!(reach, Reach::Gateway(_)));
        own && idle > bounds.holder_ms / 2
    }

    /// Whether what was told since may have been lost: it can be told a while after the loss.
    pub(super) fn lost_since(&self, shard: Option<u16>, from: u64, bounds: &Bounds) -> bool {
        let whose = Whose {
            gateway: None,
            shard,
            own: false,
            watched: None,
        };
        let mut losses = self.losses.iter();
        losses.any(|(reach, span)| reach.touches(whose, false) && span.1 + bounds.told_ms >= from)
    }

    /// Whether sessions of a user may have been closed or opened by a fault in this time, by
    /// whichever gateway they were held then.
    pub(super) fn upset(&self, shard: Option<u16>, from: u64, until: u64) -> bool {
        let whose = Whose {
            gateway: None,
            shard,
            own: false,
            watched: None,
        };
        let touched =
            |reach: &Reach| matches!(reach, Reach::Gateway(_)) || reach.touches(whose, false);
        let mut upsets = self.upsets.iter();
        upsets.any(|(reach, s)| touched(reach) && s.0 <= until && s.1 >= from)
    }

    /// Nothing was broken so far.
    pub(super) const fn none(&self) -> bool {
        !self.any
    }

    /// By when something that happened then must be known, but for the telling. A fault that
    /// touches it before it is told puts that off until the fault is felt no more, and no
    /// further: faults one after the other add up, faults at once do not.
    pub(super) fn due(&self, at: u64, within: u64, whose: Whose<'_>, bounds: &Bounds) -> u64 {
        let (mut due, mut swept) = (at + within, whose.own);
        loop {
            let told = due + bounds.told_ms;
            let near = |span: &Span| span.0 <= told && at <= span.1;
            let delays = self.delays.iter().filter(|(_, span)| near(span));
            let felt = delays.filter(|(reach, _)| reach.touches(whose, swept));
            let ends = felt.map(|(_, span)| span.1 + within).max();
            let blind = whose.watched.and_then(|gateway| self.blind.get(gateway));
            let unseen = blind.into_iter().flatten().chain(&self.dark);
            let shown = unseen.filter(|span| near(span)).map(|span| span.1).max();
            match (
                ends.filter(|end| *end > due),
                shown.filter(|end| *end > due),
            ) {
                // Whoever could not be closed by a gateway is left to a reaper.
                (Some(end), _) => (due, swept) = (end, true),
                (None, Some(end)) => due = end,
                (None, None) => return due,
            }
        }
    }
}

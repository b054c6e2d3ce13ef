//! What was broken when, and until when that may show.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use crate::history::Fault;

/// From when to when.
type Span = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Gateways that were told nothing, or told nothing on.
    blind: BTreeMap<String, Vec<Span>>,
    /// Dispatchers that did not work.
    dispatchers: Vec<(String, Span)>,
    /// Times at which no dispatcher may have worked.
    dark: Vec<Span>,
    /// Gateways that could not renew, and shards that could not be.
    idle: Vec<(Option<String>, Span)>,
    /// Acknowledged writes may have been lost at these times.
    losses: Vec<Span>,
    /// Sessions may have been closed and opened without their clients' doing.
    pub(super) upsets: Vec<Span>,
    /// The effects of all faults so far are over.
    calm_at: u64,
}

fn touches(span: &Span, at: u64, told: u64) -> bool {
    span.0 <= at && at <= span.1 + told
}

impl Trouble {
    pub(super) fn add(&mut self, fault: &Fault, lasts: u64, at: u64, bounds: &Bounds) {
        let span = (at, at + lasts);
        let upset = bounds.settle_ms + bounds.holder_ms + bounds.linger_ms + bounds.renew_ms;
        let cost = match fault {
            Fault::GatewayKilled(_) | Fault::GatewayDrained(_) => {
                bounds.holder_ms + bounds.renew_ms + bounds.window_ms
            }
            Fault::GatewayFrozen(gateway) => {
                self.blind.entry(gateway.clone()).or_default().push(span);
                self.idle.push((Some(gateway.clone()), span));
                bounds.holder_ms + bounds.renew_ms + bounds.linger_ms + bounds.ttl_ms
            }
            Fault::GatewayCut(gateway) => {
                self.idle.push((Some(gateway.clone()), span));
                bounds.holder_ms + bounds.renew_ms + bounds.linger_ms
            }
            Fault::FeedCut(gateway) | Fault::FeedSlow(gateway) => {
                self.blind.entry(gateway.clone()).or_default().push(span);
                0
            }
            Fault::DispatcherKilled(name)
            | Fault::DispatcherFrozen(name)
            | Fault::DispatcherDeaf(name) => {
                self.darken(name, span, bounds);
                0
            }
            Fault::PushesLost(_) => 0,
            Fault::ReaperKilled(_) | Fault::ReaperFrozen(_) => bounds.lease_ms + 3_000,
            Fault::Failover { lost, .. } => {
                if *lost > 0 {
                    self.losses.push(span);
                }
                self.idle.push((None, span));
                upset
            }
            Fault::Flush(_) => {
                self.losses.push(span);
                upset
            }
            Fault::Stall(_) => {
                self.idle.push((None, span));
                upset
            }
            Fault::ClockStep(step) => {
                let step = step.unsigned_abs();
                self.idle
                    .push((None, (at, at + step.min(bounds.holder_ms))));
                step + upset
            }
        };
        let inner = matches!(
            fault,
            Fault::FeedCut(_)
                | Fault::FeedSlow(_)
                | Fault::DispatcherKilled(_)
                | Fault::DispatcherFrozen(_)
                | Fault::DispatcherDeaf(_)
                | Fault::PushesLost(_)
                | Fault::ReaperKilled(_)
                | Fault::ReaperFrozen(_)
        );
        if !inner {
            self.upsets.push((at, at + lasts + cost));
        }
        self.calm_at = self.calm_at.max(at).max(1) + lasts + cost;
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

    /// Whether a gateway may have missed so many renewals that its sessions were closed.
    pub(super) fn worn(&self, gateway: &str, at: u64, bounds: &Bounds) -> bool {
        let recent = at.saturating_sub(2 * bounds.holder_ms);
        let lately = self.idle.iter().filter(|(_, span)| span.1 >= recent);
        let ours = lately.filter(|(who, _)| who.as_ref().is_none_or(|who| who == gateway));
        let idle: u64 = ours.clone().map(|(_, span)| span.1 - span.0).sum();
        let own = ours.clone().any(|(who, _)| who.is_some());
        own && idle > bounds.holder_ms / 2
    }

    /// Whether what was told since may have been lost: it can be told a while after the loss.
    pub(super) fn lost_since(&self, from: u64, bounds: &Bounds) -> bool {
        let told = |span: &Span| span.1 + bounds.told_ms;
        self.losses.iter().any(|span| told(span) >= from)
    }

    /// Whether sessions may have been closed or opened by a fault in this time.
    pub(super) fn upset(&self, from: u64, until: u64) -> bool {
        self.upsets.iter().any(|s| s.0 <= until && s.1 >= from)
    }

    /// Nothing was broken so far.
    pub(super) const fn none(&self) -> bool {
        self.calm_at == 0
    }

    /// By when something that happened then must be known.
    pub(super) fn due(&self, at: u64, within: u64) -> u64 {
        at.max(self.calm_at) + within
    }
}

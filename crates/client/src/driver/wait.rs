//! Waiting for whatever comes first. All of it can be dropped half-way without a loss.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

use super::{Driver, Fetched, Soon};
use crate::{
    client::Command,
    link::{Incoming, Link},
    open::Opened,
    session::Cause,
};

/// What came first.
pub(super) enum Happened {
    Order(Option<Box<Command>>),
    Opened(Box<Result<Opened, Cause>>),
    Incoming(Incoming),
    Fetched(Fetched),
    Time,
}

impl Driver {
    pub(super) async fn wait(&mut self) -> Happened {
        let tick = self.session.deadline().filter(|_| !self.dumb);
        let deadline = [tick, self.dial_at].into_iter().flatten().min();
        let link = self.link.as_mut().filter(|_| !self.deaf);
        tokio::select! {
            biased;
            order = self.orders.recv() => Happened::Order(order),
            result = maybe(&mut self.dial) => {
                self.dial = None;
                Happened::Opened(Box::new(result))
            }
            incoming = recv(link) => Happened::Incoming(incoming),
            token = maybe(&mut self.fetch) => {
                self.fetch = None;
                Happened::Fetched(token)
            }
            () = until(deadline) => Happened::Time,
        }
    }
}

async fn maybe<T>(soon: &mut Option<Soon<T>>) -> T {
    match soon {
        Some(soon) => soon.await,
        None => pending().await,
    }
}

async fn recv(link: Option<&mut Link>) -> Incoming {
    match link {
        Some(link) => link.recv().await,
        None => pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

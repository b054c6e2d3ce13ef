//! Labels and their values. All are known beforehand: no label ever takes a user, a room or
//! anything else that clients choose.

use adsum_core::{Reason, Topic, membership::MembershipError, store::StoreError};

use super::instrument::Label;

macro_rules! label {
    ($(#[doc = $about:literal])* $name:ident = $word:literal {
        $($(#[doc = $doc:literal])* $value:ident = $text:literal,)*
    }) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])* $value,)*
        }

        impl Label for $name {
            const NAME: &'static str = $word;
            const VALUES: &'static [&'static str] = &[$($text),*];

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

label! {
    /// How a client came in.
    Transport = "transport" {
        /// `/v1/ws`.
        WebSocket = "websocket",
        /// `Connect`.
        Grpc = "grpc",
        /// `Watch`.
        GrpcWatch = "grpc_watch",
        /// `/v1/events`.
        Events = "events",
    }
}

label! {
    /// What is watched.
    TopicKind = "kind" {
        /// A room.
        Room = "room",
        /// A user.
        User = "user",
        /// A whole tenant.
        Tenant = "tenant",
    }
}

impl From<&Topic> for TopicKind {
    fn from(topic: &Topic) -> Self {
        match topic {
            Topic::Room(_) => Self::Room,
            Topic::User(_) => Self::User,
            Topic::Tenant => Self::Tenant,
        }
    }
}

label! {
    /// A part of the way from a client's word to what others are told.
    Hop = "hop" {
        /// From the gateway that took it to the store's answer.
        Commit = "commit",
        /// From the commit to the dispatcher's queues.
        Route = "route",
        /// From there to the outboxes of those who watch.
        Deliver = "deliver",
        /// All of it.
        Total = "total",
    }
}

label! {
    /// How a renewal ended.
    Renewal = "outcome" {
        /// The holder lives.
        Ok = "ok",
        /// The store does not know the holder any more.
        Gone = "gone",
        /// No answer.
        Error = "error",
    }
}

label! {
    /// Why a session was found closed though its client is connected.
    Loss = "cause" {
        /// Its holder was swept.
        HolderGone = "holder_gone",
        /// It was not there when it was to be changed.
        Unknown = "unknown",
    }
}

label! {
    /// An operation of the store.
    Operation = "db.operation.name" {
        /// Is it usable at all.
        Check = "check",
        /// A session comes.
        Open = "open",
        /// A session changes.
        Alter = "change",
        /// A session ends.
        Close = "close",
        /// Beats over HTTP.
        Touch = "touch",
        /// A service closes sessions.
        Kick = "kick",
        /// A user is forgotten.
        Purge = "purge",
        /// A holder lives.
        Renew = "renew",
        /// What a holder holds.
        Held = "held",
        /// A reaper begins.
        Claim = "claim",
        /// A reaper closes.
        Sweep = "sweep",
        /// A preference.
        Prefer = "prefer",
        /// A list of contacts.
        Contacts = "contacts",
        /// Users.
        Read = "read",
        /// The log.
        Log = "log",
        /// People of a shard.
        Scan = "scan",
        /// Deadlines of a shard.
        Deadlines = "deadlines",
        /// Pushes of a shard.
        Subscribe = "subscribe",
    }
}

label! {
    /// Why a call of the store failed.
    StoreFault = "error.type" {
        /// No answer in time.
        Unavailable = "unavailable",
        /// The write is on no replica yet.
        NotReplicated = "not_replicated",
        /// Anything that trying again does not mend.
        Refused = "refused",
    }
}

impl From<&StoreError> for StoreFault {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => Self::Unavailable,
            StoreError::NotReplicated => Self::NotReplicated,
            _ => Self::Refused,
        }
    }
}

label! {
    /// A call of the membership registry.
    Call = "operation" {
        /// To be elected.
        Campaign = "campaign",
        /// Is this node still elected.
        Prove = "prove",
        /// To give a shard up.
        Resign = "resign",
        /// To leave the cluster.
        Leave = "leave",
        /// To keep the lease.
        KeepAlive = "keep_alive",
    }
}

label! {
    /// Why a call of the registry failed.
    RegistryFault = "error.type" {
        /// It can't be reached.
        Unavailable = "unavailable",
        /// The lease has ended.
        LeaseLost = "lease_lost",
        /// It said no.
        Refused = "refused",
    }
}

impl From<&MembershipError> for RegistryFault {
    fn from(error: &MembershipError) -> Self {
        match error {
            MembershipError::Unavailable(_) => Self::Unavailable,
            MembershipError::LeaseLost => Self::LeaseLost,
            MembershipError::Refused(_) => Self::Refused,
        }
    }
}

label! {
    /// A limit that somebody ran into.
    Limit = "limit" {
        /// Connections of a user, tenant or node.
        Connections = "connections",
        /// Topics of a connection.
        Topics = "topics",
        /// Users watched by a connection.
        Users = "users",
        /// Bytes of a frame.
        Frame = "frame",
        /// Messages in a time.
        Rate = "rate",
    }
}

label! {
    /// Why a token was refused.
    Refusal = "reason" {
        /// There was none.
        Missing = "missing",
        /// It is none.
        Malformed = "malformed",
        /// No key can be chosen for it.
        Key = "key",
        /// Its signature is wrong.
        Signature = "signature",
        /// Its time has passed, or is yet to come.
        Time = "time",
        /// It is for, or from, somebody else.
        Audience = "audience",
        /// A claim is missing or wrong.
        Claims = "claims",
        /// It is not signed, and that is not allowed.
        Unsigned = "unsigned",
    }
}

label! {
    /// What is sent to a collector.
    Signal = "signal" {
        /// Spans.
        Traces = "traces",
        /// Numbers.
        Metrics = "metrics",
        /// Lines of the log.
        Logs = "logs",
    }
}

impl Label for Reason {
    const NAME: &'static str = "reason";
    const VALUES: &'static [&'static str] = &[
        "leave",
        "disconnect",
        "timeout",
        "node_lost",
        "kicked",
        "replaced",
    ];

    fn place(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_at_their_places() {
        for reason in Reason::ALL {
            assert_eq!(Reason::VALUES[reason.place()], reason.as_str());
        }
    }
}

//! Bugs on purpose: each switch makes one rule of the design fail, so that tests can show that
//! the checker notices. They exist in debug builds alone; in a release [`planted`] is `false`
//! and the compiler removes what it guards.
//!
//! `ADSUM_PLANT=<name>` plants one in a whole process; [`sow`] in one thread, for simulations.

/// A rule that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A sweep is accepted whatever its fence.
    ReaperWithoutFence,
    /// A close ends the session of a newer connection too.
    CloseWithoutConn,
    /// Absences are believed at once after a new epoch.
    NoSettling,
    /// A shard that lost writes goes on in the same epoch.
    SeqReused,
    /// A change whose push was lost, and that nothing followed, is not read from the log.
    LostLastPush,
    /// States that were dropped for a slow gateway are not made up for.
    DroppedStates,
    /// A roster takes any state, however old.
    OlderStateAccepted,
    /// Everybody is seen by everybody.
    LeakyPrivacy,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ReaperWithoutFence,
        Self::CloseWithoutConn,
        Self::NoSettling,
        Self::SeqReused,
        Self::LostLastPush,
        Self::DroppedStates,
        Self::OlderStateAccepted,
        Self::LeakyPrivacy,
    ];

    /// The word for `ADSUM_PLANT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReaperWithoutFence => "reaper_without_fence",
            Self::CloseWithoutConn => "close_without_conn",
            Self::NoSettling => "no_settling",
            Self::SeqReused => "seq_reused",
            Self::LostLastPush => "lost_last_push",
            Self::DroppedStates => "dropped_states",
            Self::OlderStateAccepted => "older_state_accepted",
            Self::LeakyPrivacy => "leaky_privacy",
        }
    }

    /// Reads [`name`](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plant| plant.name() == name)
    }
}

/// Whether this rule is to be broken: never in a release.
#[cfg(not(debug_assertions))]
#[must_use]
pub const fn planted(_: Plant) -> bool {
    false
}

#[cfg(debug_assertions)]
pub use switch::{planted, sow};

#[cfg(debug_assertions)]
mod switch {
    use std::{cell::Cell, sync::OnceLock};

    use super::Plant;

    static PROCESS: OnceLock<Option<Plant>> = OnceLock::new();

    thread_local! {
        static THREAD: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    /// Whether this rule is to be broken, in this thread or in the whole process.
    #[must_use]
    pub fn planted(plant: Plant) -> bool {
        let process = PROCESS.get_or_init(|| {
            let name = std::env::var("ADSUM_PLANT").ok()?;
            Plant::from_name(&name)
        });
        *process == Some(plant) || THREAD.get() == Some(plant)
    }

    /// Breaks this rule, or none, in this thread from now on.
    pub fn sow(plant: Option<Plant>) {
        THREAD.set(plant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for plant in Plant::ALL {
            assert_eq!(Plant::from_name(plant.name()), Some(plant));
        }
        assert_eq!(Plant::from_name("nothing"), None);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn one_thread_alone_is_sown() {
        sow(Some(Plant::NoSettling));
        assert!(planted(Plant::NoSettling) && !planted(Plant::SeqReused));
        let elsewhere = std::thread::spawn(|| planted(Plant::NoSettling)).join();
        assert!(!elsewhere.unwrap());
        sow(None);
        assert!(!planted(Plant::NoSettling));
    }
}

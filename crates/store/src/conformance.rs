//! One suite for all stores: a function for each rule of the contract, named after it. A store
//! is put into a [`Lab`], where the clock is ours and accidents happen when we say so, and
//! every rule of [`RULES`] must hold. [`conformance!`](crate::conformance!) makes a test of each.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "these are tests: they end at the first difference"
)]

pub mod epochs;
pub mod holders;
mod kit;
pub mod logs;
pub mod order;
pub mod settings;
pub mod sweeps;

use std::sync::Arc;

use adsum_core::store::{Shard, Store};
use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::Options;

/// Where the clock of a lab starts, ms.
pub const START: u64 = 1_700_000_000_000;

/// One store with its levers.
#[async_trait]
pub trait Lab: Send + Sync {
    /// What the store is configured with.
    fn options(&self) -> &Options;

    /// A fresh caller, which has seen no epoch.
    async fn caller(&self) -> Arc<dyn Store>;

    /// A fresh caller that is configured otherwise.
    async fn caller_with(&self, options: Options) -> Arc<dyn Store>;

    /// The clock of all shards, ms.
    fn now(&self) -> u64;

    /// Moves the clock, backwards too.
    fn advance(&self, ms: i64);

    /// Another identity; nothing is lost.
    async fn fail_over(&self, shard: Shard);

    /// Another identity, and the last `writes` operations that changed anything are lost.
    async fn lose_last(&self, shard: Shard, writes: usize);

    /// The last `writes` operations that changed anything are lost, and the identity is the one
    /// it was then: A failed over to B, and back to A with its old data.
    async fn rewind(&self, shard: Shard, writes: usize);

    /// All keys are gone; the identity stays.
    async fn flush(&self, shard: Shard);
}

/// Sets up labs.
#[async_trait]
pub trait Labs: Send + Sync {
    /// A lab with an empty store. The random part of a new epoch is 0 in it.
    async fn lab(&self, options: Options) -> Box<dyn Lab>;
}

/// A rule, as a function that ends if it holds and panics if not.
pub type Rule = for<'a> fn(&'a dyn Labs) -> BoxFuture<'a, ()>;

macro_rules! rules {
    ($dollar:tt $($file:ident: $($name:ident),+;)+) => {
        /// Every rule with its name.
        pub const RULES: &[(&str, Rule)] =
            &[$($((stringify!($name), |labs| Box::pin($file::$name(labs)))),+),+];

        /// A test for each rule, on the labs that the expression makes.
        #[macro_export]
        macro_rules! conformance {
            ($dollar labs:expr) => {
                $($(
                    #[tokio::test]
                    async fn $name() {
                        $crate::conformance::$file::$name(&$dollar labs).await;
                    }
                )+)+
            };
        }
    };
}

rules! { $
    order:
        an_older_conn_is_superseded_from_another_holder_and_from_the_same,
        a_change_of_the_only_session_is_answered_whole,
        a_late_duplicate_changes_nothing,
        an_open_after_its_close_is_stopped_by_the_tombstone,
        a_tombstone_is_never_lowered,
        a_move_without_visible_change_commits_nothing,
        a_change_of_an_unknown_session_is_unknown,
        a_newer_connection_closes_the_device,
        a_close_of_an_unknown_session_leaves_a_tombstone,
        a_known_session_keeps_its_times,
        a_given_time_counts_only_where_none_is_known,
        a_kick_is_not_undone_by_a_reopen,
        a_kick_of_one_device_leaves_the_others,
        changes_name_the_rooms_before_and_carry_their_origin,
        sweeps_and_preferences_carry_their_origin;
    holders:
        renew_tells_a_new_epoch_a_differing_number_or_gone,
        an_expired_holder_is_gone_for_opens_until_it_renews,
        a_condemned_holder_is_gone_for_good,
        a_drained_holder_ends_as_disconnect,
        a_renewal_ends_a_drain,
        beats_open_no_more_sessions_than_a_user_may_have,
        a_touched_session_holds_itself_until_its_deadline,
        a_late_touch_does_not_move_the_deadline,
        touch_and_open_move_a_session_between_holders,
        touches_are_judged_one_by_one_and_answered_in_order,
        held_is_paged_in_the_order_of_keys,
        deadlines_are_told_soonest_first;
    sweeps:
        sweep_is_bounded_refuses_a_lower_fence_waits_while_settling_and_clamps,
        a_fence_of_another_epoch_is_refused,
        a_sweep_says_when_to_come_again,
        a_sweep_ends_what_is_due_and_nothing_else,
        a_silent_shard_waits_before_it_sweeps,
        tombstones_are_trimmed_even_while_settling,
        tombstones_are_in_no_hurry,
        last_seen_is_trimmed_by_age,
        a_condemned_holder_is_finished_even_if_the_clock_went_back;
    epochs:
        a_missing_meta_is_not_born,
        a_glance_tells_whether_there_is_anything_new,
        a_new_epoch_is_above_all_that_was_seen,
        an_epoch_seen_elsewhere_counts,
        settled_is_committed_once_per_epoch,
        another_identity_is_told_as_settling_before_any_write,
        reopening_heals_lost_opens_lost_changes_and_ghosts_without_a_diff,
        numbers_go_on_after_a_loss_in_a_new_epoch,
        a_wrong_number_of_shards_is_refused;
    settings:
        a_preference_is_taken_by_its_version,
        contacts_are_kept_with_their_version,
        last_seen_is_written_before_the_session_goes,
        invisible_freezes_last_seen,
        coming_out_of_hiding_has_its_time,
        turning_invisible_while_away_keeps_the_last_seen,
        carried_preferences_win_by_their_version,
        purge_forgets_a_user;
    logs:
        a_trimmed_log_is_a_hole_that_needs_a_reload,
        a_log_is_bounded_by_bytes,
        a_log_is_read_in_pages,
        a_snapshot_loaded_under_changes_equals_the_truth,
        a_subscriber_hears_every_committed_change,
        reads_are_answered_in_the_order_asked,
        limits_are_checked_before_anything_is_written;
}

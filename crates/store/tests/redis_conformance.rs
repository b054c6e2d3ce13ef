//! Every rule of the contract, on the store in Redis: by name on one server, and all of them one
//! after another on a cluster, which takes too long to start for each.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests may do what tests may"
)]

#[path = "common/recorded.rs"]
mod recorded;
#[path = "common/redis_lab.rs"]
mod redis_lab;

use std::time::Instant;

use adsum_store::conformance::RULES;

use crate::redis_lab::RedisLabs;

adsum_store::conformance!(crate::redis_lab::RedisLabs::Server);

#[tokio::test]
async fn every_rule_holds_on_a_cluster() {
    for (name, rule) in RULES {
        let start = Instant::now();
        rule(&RedisLabs::Cluster).await;
        println!("cluster: {name} ... ok ({:?})", start.elapsed());
    }
}

//! The entry of this node in etcd, written under its lease.

use adsum_core::membership::{Member, MembershipError};
use etcd_client::PutOptions;

use crate::pool::{Limits, Pool};

/// Puts the entry, which lives as long as the lease does.
pub(crate) async fn register(
    pool: &Pool,
    limits: Limits,
    key: &str,
    member: &Member,
    lease: i64,
) -> Result<(), MembershipError> {
    let value = serde_json::to_vec(member).map_err(|e| MembershipError::Refused(e.to_string()))?;
    let options = PutOptions::new().with_lease(lease);
    let put = |mut etcd: etcd_client::Client| {
        let (value, options) = (value.clone(), options.clone());
        async move { etcd.put(key, value, Some(options)).await }
    };
    pool.call_within(limits, put).await.map(drop)
}

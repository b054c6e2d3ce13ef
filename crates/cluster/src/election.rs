//! One reaper per shard: who creates the shard's key under its lease owns it until the key goes,
//! by its own hand or with the lease.

use adsum_core::NodeId;
use adsum_core::membership::MembershipError;
use etcd_client::{Client, Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};

use crate::pool::Pool;

/// A candidate: a node and the lease it lives under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) lease: i64,
}

impl Candidate<'_> {
    /// Creates the key if there is none. An attempt that was given up and arrived all the same
    /// is recognized by the next one.
    pub(crate) async fn campaign(self, pool: &Pool, key: &str) -> Result<bool, MembershipError> {
        let put = PutOptions::new().with_lease(self.lease);
        let txn = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key, self.node.as_str(), Some(put))])
            .or_else([TxnOp::get(key, None)]);
        let answer = pool.call(|etcd| commit(etcd, txn.clone())).await?;
        Ok(answer.succeeded()
            || answer.op_responses().iter().any(|response| match response {
                TxnOpResponse::Get(get) => get.kvs().iter().any(|kv| self.owns(kv)),
                _ => false,
            }))
    }

    /// A read of the key that is linearizable, as etcd's reads are unless asked otherwise.
    pub(crate) async fn prove(self, pool: &Pool, key: &str) -> Result<bool, MembershipError> {
        let get = |mut etcd: Client| async move { etcd.get(key, None).await };
        let found = pool.call(get).await?;
        Ok(found.kvs().iter().any(|kv| self.owns(kv)))
    }

    /// Deletes the key only if it is ours.
    pub(crate) async fn resign(self, pool: &Pool, key: &str) -> Result<(), MembershipError> {
        let ours = [
            Compare::value(key, CompareOp::Equal, self.node.as_str()),
            Compare::lease(key, CompareOp::Equal, self.lease),
        ];
        let txn = Txn::new().when(ours).and_then([TxnOp::delete(key, None)]);
        pool.call(|etcd| commit(etcd, txn.clone())).await.map(drop)
    }

    fn owns(self, kv: &KeyValue) -> bool {
        kv.lease() == self.lease && kv.value() == self.node.as_str().as_bytes()
    }
}

async fn commit(
    mut etcd: Client,
    txn: Txn,
) -> Result<etcd_client::TxnResponse, etcd_client::Error> {
    etcd.txn(txn).await
}

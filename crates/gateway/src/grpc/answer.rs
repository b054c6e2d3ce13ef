//! Failures as gRPC says them: a code of gRPC's, and ours in the trailing metadata.

use adsum_proto::client::refusal;
use tonic::Status;

use crate::EdgeError;

/// The status of a refusal: `adsum-code` has our code, `retry-after-ms` when to try again, `conn`
/// the connection to go above.
pub(crate) fn status(error: &EdgeError) -> Status {
    let mut status = refusal(error.code, error.message.clone());
    let metadata = status.metadata_mut();
    if let Some(ms) = error.retry_after_ms {
        metadata.insert("retry-after-ms", ms.into());
    }
    if let Some(conn) = error.conn {
        metadata.insert("conn", conn.get().into());
    }
    status
}

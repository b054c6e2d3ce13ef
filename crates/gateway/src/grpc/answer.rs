//! Failures as gRPC says them: a code of gRPC's, and ours in the trailing metadata.

use adsum_proto::client::{Code, Sort};
use tonic::{
    Code as Grpc, Status,
    metadata::{MetadataMap, MetadataValue},
};

use crate::EdgeError;

/// The status of a refusal: `adsum-code` has our code, `retry-after-ms` when to try again, `conn`
/// the connection to go above.
pub(crate) fn status(error: &EdgeError) -> Status {
    let mut metadata = MetadataMap::new();
    let code = MetadataValue::from_static(error.code.as_str());
    metadata.insert("adsum-code", code);
    if let Some(ms) = error.retry_after_ms {
        metadata.insert("retry-after-ms", ms.into());
    }
    if let Some(conn) = error.conn {
        metadata.insert("conn", conn.get().into());
    }
    Status::with_metadata(grpc(error.code), error.message.clone(), metadata)
}

const fn grpc(code: Code) -> Grpc {
    match code.sort() {
        Sort::TooLarge => Grpc::OutOfRange,
        Sort::Unauthorized => Grpc::Unauthenticated,
        Sort::Forbidden => Grpc::PermissionDenied,
        Sort::Over => Grpc::Aborted,
        Sort::TooMuch => Grpc::ResourceExhausted,
        Sort::Unavailable => Grpc::Unavailable,
        Sort::Internal => Grpc::Internal,
        Sort::Invalid => Grpc::InvalidArgument,
    }
}

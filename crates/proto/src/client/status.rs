//! Refusals as gRPC says them: a code of gRPC's, and ours in the trailing metadata.

use tonic::{Code as Grpc, Status, metadata::MetadataValue};

use super::{Code, Sort};

/// The status of a refusal: `adsum-code` has our code.
#[must_use]
pub fn refusal(code: Code, message: impl Into<String>) -> Status {
    let mut status = Status::new(grpc(code), message);
    let word = MetadataValue::from_static(code.as_str());
    status.metadata_mut().insert("adsum-code", word);
    status
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

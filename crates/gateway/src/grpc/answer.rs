//! Failures as gRPC says them: a code of gRPC's, and ours in the trailing metadata.

use adsum_proto::client::Code;
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
    match code {
        Code::FrameTooLarge => Grpc::OutOfRange,
        Code::HelloExpected | Code::HelloRepeated => Grpc::FailedPrecondition,
        Code::Unauthorized | Code::TokenExpired => Grpc::Unauthenticated,
        Code::Forbidden => Grpc::PermissionDenied,
        Code::Superseded | Code::Replaced | Code::Kicked | Code::Timeout => Grpc::Aborted,
        Code::RateLimited | Code::TooManyConnections => Grpc::ResourceExhausted,
        Code::Unavailable => Grpc::Unavailable,
        Code::Internal => Grpc::Internal,
        Code::UnknownFrame => Grpc::Unimplemented,
        Code::MalformedFrame
        | Code::MissingField
        | Code::InvalidId
        | Code::InvalidTopic
        | Code::InvalidMeta
        | Code::MetaTooLarge
        | Code::InvalidStatus
        | Code::InvalidVisibility
        | Code::InvalidMode
        | Code::InvalidKind
        | Code::InvalidConn
        | Code::InvalidDigest
        | Code::InvalidRef
        | Code::InvalidPage
        | Code::TooManyRooms
        | Code::TooManyTopics
        | Code::TooManyContacts
        | Code::TooManyUsers => Grpc::InvalidArgument,
    }
}

//! What an error of etcd means for us: try elsewhere, the lease is gone, or give up.

use adsum_core::membership::MembershipError;
use etcd_client::Error;

/// Codes of gRPC that we tell apart. `tonic` is no dependency of ours, so they are numbers.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

const OLD_USERS: &str = "revision of auth store is old";

/// Everything that is not a clear answer is worth another try.
pub(crate) fn classify(error: &Error) -> MembershipError {
    match error {
        Error::GRpcStatus(status) => {
            let message = with_causes(status.message().to_owned(), status);
            by_code(status.code() as i32, &message)
        }
        // How the crate spells a keepalive that was answered with a TTL of zero.
        Error::LeaseKeepAliveError(why) if why == "lease not found" => MembershipError::LeaseLost,
        Error::InvalidArgs(_) | Error::InvalidUri(_) | Error::InvalidMetadataValue(_) => {
            MembershipError::Refused(error.to_string())
        }
        Error::TransportError(transport) => {
            MembershipError::Unavailable(with_causes(transport.to_string(), transport))
        }
        _ => MembershipError::Unavailable(error.to_string()),
    }
}

/// Whether a new token would help: etcd forgets them when it is started again, or after a while,
/// and refuses those that are older than a change of its users.
pub(crate) fn is_stale_token(error: &Error) -> bool {
    let Error::GRpcStatus(status) = error else {
        return false;
    };
    status.code() as i32 == code::UNAUTHENTICATED
        || status.message().contains("invalid auth token")
        || status.message().contains(OLD_USERS)
}

fn by_code(code: i32, message: &str) -> MembershipError {
    match code {
        code::NOT_FOUND if message.contains("lease not found") => MembershipError::LeaseLost,
        // Another endpoint, or another token, will do.
        code::INVALID_ARGUMENT if message.contains(OLD_USERS) => {
            MembershipError::Unavailable(message.to_owned())
        }
        code::INVALID_ARGUMENT
        | code::NOT_FOUND
        | code::PERMISSION_DENIED
        | code::FAILED_PRECONDITION
        | code::UNIMPLEMENTED => MembershipError::Refused(message.to_owned()),
        _ => MembershipError::Unavailable(message.to_owned()),
    }
}

/// Transport errors hide what happened ("connection refused", "unknown issuer") in their sources.
fn with_causes(mut text: String, error: &dyn std::error::Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_silence() {
        let lost = by_code(code::NOT_FOUND, "etcdserver: requested lease not found");
        assert!(matches!(lost, MembershipError::LeaseLost));
        let denied = by_code(code::PERMISSION_DENIED, "etcdserver: permission denied");
        assert!(!denied.retry());
        assert!(by_code(14, "etcdserver: no leader").retry());
        assert!(by_code(code::INVALID_ARGUMENT, "revision of auth store is old").retry());
    }
}

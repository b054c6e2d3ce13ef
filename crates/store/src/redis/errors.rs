//! What an error of Redis means to the caller: try again, load the functions, or give up.

use adsum_core::store::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What an error asks for.
#[derive(Debug)]
pub(super) enum Failure {
    /// Trying again can help.
    Again(String),
    /// The node has not seen the library: load it.
    NoFunction,
    /// It can't.
    Final(StoreError),
}

/// What an error means.
pub(super) fn judge(error: &RedisError) -> Failure {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound | ErrorKind::Client => judge_io(text),
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::RESP3NotSupported => Failure::Final(StoreError::Refused(text)),
        ErrorKind::Server(kind) => judge_server(kind, text),
        ErrorKind::Extension => judge_code(error.code().unwrap_or_default(), error, text),
        _ => Failure::Final(StoreError::Corrupt(text)),
    }
}

/// Why there is no connection is part of the text.
fn judge_io(text: String) -> Failure {
    let refused = ["AuthenticationFailed", "WRONGPASS", "NOAUTH", "NOPERM"];
    if refused.iter().any(|word| text.contains(word)) {
        return Failure::Final(StoreError::Refused(text));
    }
    Failure::Again(text)
}

fn judge_server(kind: ServerErrorKind, text: String) -> Failure {
    match kind {
        ServerErrorKind::BusyLoading
        | ServerErrorKind::Moved
        | ServerErrorKind::Ask
        | ServerErrorKind::TryAgain
        | ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown
        | ServerErrorKind::ReadOnly => Failure::Again(text),
        ServerErrorKind::NoPerm => Failure::Final(StoreError::Refused(text)),
        ServerErrorKind::ResponseError if text.contains("max number of clients") => {
            Failure::Again(text)
        }
        ServerErrorKind::ResponseError if text.contains("Function not found") => {
            Failure::NoFunction
        }
        _ => Failure::Final(StoreError::Corrupt(text)),
    }
}

fn judge_code(code: &str, error: &RedisError, text: String) -> Failure {
    match code {
        // Out of memory, a failed save, too few replicas, a script that runs for long: all of
        // them refuse before anything is written, and pass.
        "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" | "UNKILLABLE" | "UNBLOCKED" => {
            Failure::Again(text)
        }
        "NOAUTH" | "WRONGPASS" | "NOPERM" => Failure::Final(StoreError::Refused(text)),
        "ADSUM_SHARDS" => Failure::Final(wrong_shards(error.detail().unwrap_or_default())),
        _ => Failure::Final(StoreError::Corrupt(text)),
    }
}

fn wrong_shards(detail: &str) -> StoreError {
    let number = detail
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    match number {
        // The caller adds what it is configured with.
        Some(stored) => StoreError::WrongShards {
            stored,
            configured: 0,
        },
        None => StoreError::Corrupt(format!("a number of shards that is none: {detail}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(line: &str) -> Failure {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        judge(&value.extract_error().unwrap_err())
    }

    #[test]
    fn what_passes_is_tried_again() {
        for line in [
            "CLUSTERDOWN Hash slot not served",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "MASTERDOWN Link with MASTER is down",
            "BUSY Redis is busy running a script",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MOVED 1 127.0.0.1:7000",
            "ERR max number of clients reached",
        ] {
            assert!(matches!(reply(line), Failure::Again(_)), "{line}");
        }
        assert!(matches!(
            reply("ERR Function not found"),
            Failure::NoFunction
        ));
    }

    #[test]
    fn what_does_not_pass_is_final() {
        for line in [
            "WRONGPASS invalid username-password pair",
            "NOAUTH required.",
            "NOPERM no",
        ] {
            let refused = matches!(reply(line), Failure::Final(StoreError::Refused(_)));
            assert!(refused, "{line}");
        }
        for line in [
            "WRONGTYPE Operation",
            "ERR user_function:2: bad",
            "ADSUM_FORMAT 2",
            "NEW x",
        ] {
            let corrupt = matches!(reply(line), Failure::Final(StoreError::Corrupt(_)));
            assert!(corrupt, "{line}");
        }
        let wrong = reply("ADSUM_SHARDS 64");
        let expected = StoreError::WrongShards {
            stored: 64,
            configured: 0,
        };
        assert!(matches!(wrong, Failure::Final(e) if e == expected));
    }
}

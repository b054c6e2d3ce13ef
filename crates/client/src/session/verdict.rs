//! What the end of a connection, or of a try, means: come back, or not.

use std::time::Duration;

use adsum_core::Conn;
use adsum_proto::client::{Close, Code, frame::Problem};

use crate::EndReason;

/// Why a connection or a try ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cause {
    /// The server said why.
    Problem(Problem),
    /// The server closed with a number.
    Closed(u16),
    /// The line broke.
    Broken(String),
    /// The hello was never sent.
    Unsaid(String),
    /// An answer is overdue.
    Silent,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// Connect again, with back-off.
    Again {
        /// At the earliest after so long.
        after: Duration,
        /// Without back-off: something is different this time.
        at_once: bool,
    },
    /// Over.
    End(EndReason),
}

impl Verdict {
    pub(crate) const AT_ONCE: Self = Self::Again {
        after: Duration::ZERO,
        at_once: true,
    };
    pub(crate) const LATER: Self = Self::Again {
        after: Duration::ZERO,
        at_once: false,
    };
}

/// What was tried in vain since the last welcome.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// A hello with a higher number.
    pub(crate) raised: bool,
    /// A new token.
    pub(crate) token: bool,
}

impl Cause {
    fn close(&self) -> Option<Close> {
        match self {
            Self::Problem(problem) => Code::from_word(&problem.code)?.close(),
            Self::Closed(number) => Close::from_code(*number),
            Self::Broken(_) | Self::Unsaid(_) | Self::Silent => None,
        }
    }

    fn after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after_ms.map(super::told),
            _ => None,
        }
    }

    /// Whether the hello of a try that ended so may still be heard. What was never sent is not,
    /// and what was refused in words was heard already, and did nothing.
    pub(crate) const fn in_doubt(&self) -> bool {
        !matches!(self, Self::Unsaid(_) | Self::Problem(_))
    }

    /// The number that a hello has to go above.
    pub(crate) fn conn(&self) -> Option<Conn> {
        match self {
            Self::Problem(problem) => problem.conn,
            _ => None,
        }
    }

    fn problem(self) -> Option<Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}

/// Judges, by the tables of the protocol.
pub(crate) fn judge(cause: Cause, tries: &mut Tries, new_tokens: bool) -> Verdict {
    let again = Verdict::Again {
        after: cause.after().unwrap_or_default(),
        at_once: false,
    };
    let Some(close) = cause.close() else {
        return match cause {
            // An error that closes nothing ends a try only if it is the answer to a hello.
            Cause::Problem(problem) if problem.retry_after_ms.is_none() => {
                Verdict::End(EndReason::Refused(problem))
            }
            _ => again,
        };
    };
    match close {
        _ if close.comes_back() => again,
        Close::Superseded if !std::mem::replace(&mut tries.raised, true) => Verdict::AT_ONCE,
        Close::Unauthorized | Close::TokenExpired
            if new_tokens && !std::mem::replace(&mut tries.token, true) =>
        {
            again
        }
        Close::Left => Verdict::End(EndReason::Left),
        Close::Replaced => Verdict::End(EndReason::Replaced),
        Close::Kicked => Verdict::End(EndReason::Kicked),
        Close::Superseded => Verdict::End(EndReason::Superseded),
        Close::Unauthorized => Verdict::End(EndReason::Unauthorized(cause.problem())),
        Close::TokenExpired => Verdict::End(EndReason::TokenExpired),
        other => Verdict::End(match cause.problem() {
            Some(problem) => EndReason::Refused(problem),
            None => EndReason::Closed(other),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGAIN: Verdict = Verdict::Again {
        after: Duration::ZERO,
        at_once: false,
    };

    fn problem(code: Code) -> Cause {
        Cause::Problem(Problem::new(code, ""))
    }

    #[test]
    fn follows_the_table_of_closes() {
        for close in Close::ALL {
            let verdict = judge(
                Cause::Closed(close.code()),
                &mut Tries {
                    raised: true,
                    token: true,
                },
                true,
            );
            let back = matches!(verdict, Verdict::Again { .. });
            assert_eq!(back, close.comes_back(), "{close:?}");
        }
        for other in [1001, 1006, 4999] {
            let verdict = judge(Cause::Closed(other), &mut Tries::default(), false);
            assert_eq!(verdict, AGAIN);
        }
    }

    #[test]
    fn superseded_goes_above_once() {
        let mut tries = Tries::default();
        let cause = problem(Code::Superseded);
        assert_eq!(judge(cause.clone(), &mut tries, false), Verdict::AT_ONCE);
        let end = Verdict::End(EndReason::Superseded);
        assert_eq!(judge(cause, &mut tries, false), end);
    }

    #[test]
    fn a_new_token_is_tried_once_by_who_can_get_one() {
        let cause = problem(Code::TokenExpired);
        let end = Verdict::End(EndReason::TokenExpired);
        let mut tries = Tries::default();
        assert_eq!(judge(cause.clone(), &mut tries, false), end);
        assert_eq!(judge(cause.clone(), &mut tries, true), AGAIN);
        assert_eq!(judge(cause, &mut tries, true), end);
    }

    #[test]
    fn a_refused_hello_comes_back_only_when_told_when() {
        let mut tries = Tries::default();
        let forbidden = problem(Code::Forbidden);
        let verdict = judge(forbidden, &mut tries, false);
        assert!(matches!(verdict, Verdict::End(EndReason::Refused(_))));
        let mut full = Problem::new(Code::TooManyConnections, "");
        full.retry_after_ms = Some(700);
        let again = Verdict::Again {
            after: Duration::from_millis(700),
            at_once: false,
        };
        assert_eq!(judge(Cause::Problem(full), &mut tries, false), again);
    }
}

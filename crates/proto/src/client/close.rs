//! How a WebSocket ends: the numbers of the close frame, and whether to come back.

/// Why the server closes a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Close {
    /// The client said `leave`.
    Left,
    /// Something that is no WebSocket.
    Protocol,
    /// Text on a protobuf connection, or binary on a JSON one.
    WrongType,
    /// Text that is not UTF-8.
    NotText,
    /// A frame was too large.
    TooLarge,
    /// A fault of ours.
    Internal,
    /// This gateway goes away; a `reconnect` came before.
    Drain,
    /// No hello first, or one bad frame too many.
    BadFrames,
    /// No token, or one that is not good.
    Unauthorized,
    /// Nothing was heard for too long.
    Timeout,
    /// A newer connection of this device took over.
    Replaced,
    /// Closed by a service.
    Kicked,
    /// The hello named a connection number that is not above the recorded one.
    Superseded,
    /// The token ended and no new one came.
    TokenExpired,
    /// Too many connections, or too much on this one in spite of warnings.
    TooMany,
}

impl Close {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Left,
        Self::Protocol,
        Self::WrongType,
        Self::NotText,
        Self::TooLarge,
        Self::Internal,
        Self::Drain,
        Self::BadFrames,
        Self::Unauthorized,
        Self::Timeout,
        Self::Replaced,
        Self::Kicked,
        Self::Superseded,
        Self::TokenExpired,
        Self::TooMany,
    ];

    /// The number in the close frame.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Left => 1000,
            Self::Protocol => 1002,
            Self::WrongType => 1003,
            Self::NotText => 1007,
            Self::TooLarge => 1009,
            Self::Internal => 1011,
            Self::Drain => 1012,
            Self::BadFrames => 4400,
            Self::Unauthorized => 4401,
            Self::Timeout => 4408,
            Self::Replaced => 4409,
            Self::Kicked => 4410,
            Self::Superseded => 4411,
            Self::TokenExpired => 4412,
            Self::TooMany => 4429,
        }
    }

    /// What the close frame says besides.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Protocol => "not a WebSocket",
            Self::WrongType => "wrong type of message",
            Self::NotText => "not UTF-8",
            Self::TooLarge => "frame too large",
            Self::Internal => "internal",
            Self::Drain => "this gateway goes away",
            Self::BadFrames => "bad frames",
            Self::Unauthorized => "unauthorized",
            Self::Timeout => "timeout",
            Self::Replaced => "replaced",
            Self::Kicked => "kicked",
            Self::Superseded => "superseded",
            Self::TokenExpired => "token expired",
            Self::TooMany => "too many",
        }
    }

    /// Reads [`code`](Self::code). `None` for others, such as 1006: come back.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.code() == code)
    }

    /// Whether a client should connect again by itself, as it is. The others need something
    /// first: a person, another token, a higher `conn`, a mended program.
    #[must_use]
    pub const fn comes_back(self) -> bool {
        matches!(
            self,
            Self::Internal | Self::Drain | Self::Timeout | Self::TooMany
        )
    }
}

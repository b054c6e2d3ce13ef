//! Where tokens come from: one for ever, or a new one whenever it is needed.

use std::{pin::Pin, sync::Arc};

use adsum_proto::client::frame::Token;

/// Why there is no token.
pub type TokenError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type TokenFuture = Pin<Box<dyn Future<Output = Result<Token, TokenError>> + Send>>;

/// Where tokens come from.
#[derive(Clone)]
pub(crate) enum Tokens {
    None,
    Fixed(Token),
    Provider(Arc<dyn Fn() -> TokenFuture + Send + Sync>),
}

impl Tokens {
    /// The token for the next hello.
    pub(crate) async fn get(&self) -> Result<Option<Token>, TokenError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::Provider(provider) => provider().await.map(Some),
        }
    }
}

//! What the internal listener says when it can't do something: the same shape as the public API.

use adsum_core::{IdError, store::StoreError};
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A refusal.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl ToString) -> Self {
        Self {
            status,
            code,
            message: message.to_string(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::Invalid(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.code(), error)
    }
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_id", error)
    }
}

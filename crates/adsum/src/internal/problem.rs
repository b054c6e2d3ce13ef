//! What the internal listener says when it can't do something: the same shape as the public API,
//! `{"error": {"code", "message"}}`.

use adsum_core::{IdError, store::StoreError};
use axum::{
    Json,
    extract::rejection::{JsonRejection, PathRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// As the public API says of what can't be read.
const MALFORMED: &str = "malformed_frame";

/// A refusal.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    error: Said,
}

#[derive(Debug, Serialize)]
struct Said {
    code: &'static str,
    message: String,
}

#[derive(Serialize)]
struct Body {
    error: Said,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl ToString) -> Self {
        let message = message.to_string();
        Self {
            status,
            error: Said { code, message },
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, error } = self;
        (status, Json(Body { error })).into_response()
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

impl From<JsonRejection> for Problem {
    fn from(error: JsonRejection) -> Self {
        Self::new(error.status(), MALFORMED, error.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(error: PathRejection) -> Self {
        Self::new(error.status(), MALFORMED, error.body_text())
    }
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_id", error)
    }
}

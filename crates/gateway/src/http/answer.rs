//! One shape for every failure: `{"error": {"code", "message", …}}`, with the status that fits the
//! code.

use adsum_proto::client::{Code, Sort};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::bodies::{ErrorBody, ProblemBody};
use crate::EdgeError;

/// What handlers answer.
pub(super) type Reply<T> = Result<Json<T>, HttpError>;

/// A failure on its way out.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    error: EdgeError,
}

impl HttpError {
    /// For what HTTP has a status of its own and the protocol has none.
    pub(crate) const fn with(status: StatusCode, error: EdgeError) -> Self {
        Self { status, error }
    }
}

impl<E: Into<EdgeError>> From<E> for HttpError {
    fn from(error: E) -> Self {
        let error = error.into();
        Self {
            status: status(error.code),
            error,
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let retry = self.error.retry_after_ms;
        let error = ProblemBody::from(&self.error);
        let mut response = (self.status, Json(ErrorBody { error })).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"adsum\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(ms) = retry {
            // The body has the ms; the header only knows seconds.
            let seconds = HeaderValue::from(ms.div_ceil(1000).max(1));
            headers.insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// The status that fits a code.
const fn status(code: Code) -> StatusCode {
    match code.sort() {
        Sort::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Sort::Unauthorized => StatusCode::UNAUTHORIZED,
        Sort::Forbidden => StatusCode::FORBIDDEN,
        Sort::Over => StatusCode::CONFLICT,
        Sort::TooMuch => StatusCode::TOO_MANY_REQUESTS,
        Sort::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Sort::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Sort::Invalid => StatusCode::BAD_REQUEST,
    }
}

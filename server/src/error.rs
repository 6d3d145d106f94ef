//! Errors of the API, in OpenAI's form.
//!
//! - Input: problems of requests, refusals of the server, failures of the engine.
//! - Output: [`ApiError`], which is a response with a status and a JSON body.
//! - Invariants: a body is `{"error": {"message", "type", "param", "code"}}`. Statuses from 500
//!   mean that the request was right.

use std::time::Duration;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::generate;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::fields::short;

/// An error of a request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// Name of the field with the first problem.
    pub(crate) param: Option<String>,
    /// Short name of the reason, if clients distinguish it.
    pub(crate) code: Option<&'static str>,
    /// Time after which the client may try again.
    pub(crate) retry_after: Option<Duration>,
}

/// The message of an error, in the extensions of the response.
#[derive(Clone, Debug)]
pub(crate) struct RefusalReason(pub(crate) String);

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// The request is malformed as a whole.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Fields of the request have these problems.
    pub(crate) fn of_fields(problems: &Diagnostics) -> Self {
        let param = problems.items().first().map(|first| first.place.clone());
        Self { param, ..Self::invalid(problems.lines().join("\n")) }
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "the API key is missing or wrong; send the header `Authorization: Bearer KEY`";
        Self { code: Some("invalid_api_key"), ..Self::new(StatusCode::UNAUTHORIZED, message) }
    }

    pub(crate) fn no_model(name: &str, served: &[&str]) -> Self {
        let expected = served.join("`, `");
        let problem = Diagnostic::new("model", "is not served").expected(format!("`{expected}`"));
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(StatusCode::NOT_FOUND, problem.found(format!("`{}`", short(name))).to_string())
        }
    }

    pub(crate) fn no_route(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{}: no such path", short(path)))
    }

    pub(crate) fn wrong_method(method: &str, path: &str) -> Self {
        let message = format!("{}: the method {} is not allowed", short(path), short(method));
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body is too large: expected at most {limit} bytes; raise --max-body-size");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    pub(crate) fn too_slow(limit: Duration) -> Self {
        let message = format!("the body did not arrive within {} s", limit.as_secs_f64());
        Self::new(StatusCode::REQUEST_TIMEOUT, message)
    }

    /// The queue is full, or the request waited too long.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        let retry_after = Some(Duration::from_secs(1));
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    pub(crate) fn shutting_down() -> Self {
        let retry_after = Some(Duration::from_secs(5));
        let message = "the server is shutting down";
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// All connections are in use.
    pub(crate) fn too_many_connections(limit: usize) -> Self {
        let retry_after = Some(Duration::from_secs(1));
        let message = format!("all {limit} connections are in use; raise --max-connections");
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    const fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable_error",
            StatusCode::INTERNAL_SERVER_ERROR => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// Returns the body, which is also an event of a stream.
    pub(crate) fn body(&self) -> Value {
        let Self { message, param, code, .. } = self;
        json!({"error": {"message": message, "type": self.kind(), "param": param, "code": code}})
    }

    /// Adds the status and the header of retries to a body.
    pub(crate) fn respond(&self, body: Value) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(RefusalReason(self.message.clone()));
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        response
    }
}

impl From<generate::Error> for ApiError {
    /// Refusals of the library are about the request. All other errors are failures.
    fn from(error: generate::Error) -> Self {
        match error {
            generate::Error::Refused(problems) => Self::of_fields(&problems),
            error => Self::internal(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.respond(self.body())
    }
}

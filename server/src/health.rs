//! Health, readiness, version and metrics.
//!
//! - Input: the state of the server.
//! - Output: small answers that need no key.
//! - Invariants: `/health` fails if and only if the engine has failed. `/ready` also fails from the
//!   stop signal on.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::ServerState;

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn health(State(state): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    state.engine.check().map_err(|error| ApiError::unavailable(error.to_string()))?;
    Ok(Json(json!({"status": "ok"})))
}

pub(crate) async fn ready(State(state): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    state.check_ready()?;
    Ok(Json(json!({"status": "ready"})))
}

pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

pub(crate) async fn metrics(State(state): State<Arc<ServerState>>) -> impl IntoResponse {
    let name = state.options.names.first().map_or("", String::as_str);
    ([(header::CONTENT_TYPE, PROMETHEUS)], state.metrics.text(name, state.gauges()))
}

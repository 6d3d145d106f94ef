//! `/v1/models`: the names of the served model and of its adapters.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::routes::authorize;
use crate::state::ServerState;

pub(crate) async fn list(
    State(state): State<Arc<ServerState>>,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    authorize(&state, &headers)?;
    let models: Value = state.model_names().map(|name| model(&state, name)).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}

pub(crate) async fn one(
    State(state): State<Arc<ServerState>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    authorize(&state, &headers)?;
    let Path(name) = name.map_err(|error| ApiError::invalid(format!("the path is malformed: {error}")))?;
    let name = state.model_name(Some(&name))?;
    Ok(Json(model(&state, &name)))
}

fn model(state: &ServerState, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": state.created,
        "owned_by": "ascend-tp",
        "root": state.root,
        "parent": state.adapter(Some(name)).and(state.options.names.first()),
        "max_model_len": state.context,
    })
}

//! Paths of the server, request ids, API keys and bodies.
//!
//! - Input: HTTP requests.
//! - Output: the [`router`], the [`probe_router`], and a [`AuthorizedRequest`] for each handler.
//! - Invariants: a body is bounded in size and time. Each response has `x-request-id`: the one of
//!   the request, or a new one. Each refusal is logged once, with its id and its reason.
//! - Not here: connections (`http`), and what a path does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{Html, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use tracing::info;

use crate::error::{ApiError, RefusalReason};
use crate::fields::short;
use crate::record::RequestRecord;
use crate::state::ServerState;
use crate::{anthropic, health, openai};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Header of Anthropic's clients with the API key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Maximum length of an id that a client gives.
const LONGEST_ID: usize = 128;

/// The page at `/`, which talks to `/v1/chat/completions`.
const PAGE: &str = include_str!("page.html");

/// Maximum time for the body of a request that is refused before its body is read.
const REFUSED_BODY: Duration = Duration::from_secs(1);

/// A request in the log.
#[derive(Debug)]
struct LoggedRequest {
    /// The id, also in the response.
    id: String,
    /// Whether the request has a record, which is a line of the log.
    has_record: AtomicBool,
}

/// Returns all paths of a server.
pub(crate) fn router(state: Arc<ServerState>) -> Router {
    Router::new()
        .route("/v1/completions", post(openai::completions::respond))
        .route("/v1/chat/completions", post(openai::chat::respond))
        .route("/v1/messages", post(anthropic::respond))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*name}", get(openai::models::one))
        .route("/tokenize", post(openai::tokenize::tokenize))
        .route("/detokenize", post(openai::tokenize::detokenize))
        .route("/", get(|| async { Html(PAGE) }))
        .merge(probes())
        .fallback(|request: Request| async move { ApiError::no_route(request.uri().path()) })
        .method_not_allowed_fallback(|request: Request| async move {
            ApiError::wrong_method(request.method().as_str(), request.uri().path())
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&state), identify))
        .with_state(state)
}

/// Returns the paths of connections above the limit. All other requests are refused.
pub(crate) fn probe_router(state: Arc<ServerState>) -> Router {
    probes()
        .fallback(|State(state): State<Arc<ServerState>>, request: Request| async move {
            // A client that still sends would not see the response.
            drop(tokio::time::timeout(REFUSED_BODY, discard(request.into_body())).await);
            ApiError::too_many_connections(state.options.limits.connections)
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&state), identify))
        .with_state(state)
}

fn probes() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/version", get(health::version))
        .route("/metrics", get(health::metrics))
}

async fn discard(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// Gives a request its id, counts its response, and logs a refusal.
async fn identify(State(state): State<Arc<ServerState>>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let given = given.filter(|id| (1..=LONGEST_ID).contains(&id.len()));
    let id = given.map_or_else(new_id, str::to_owned);
    let logged = Arc::new(LoggedRequest { id, has_record: AtomicBool::new(false) });
    request.extensions_mut().insert(Arc::clone(&logged));
    let path = short(request.uri().path());
    let mut response = next.run(request).await;
    let LoggedRequest { id, has_record } = &*logged;
    let status = response.status().as_u16();
    if let Some(RefusalReason(reason)) = response.extensions().get()
        && !has_record.load(Ordering::Relaxed)
    {
        info!(id, path, status, reason, "refused");
    }
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    state.metrics.responded(status);
    response
}

/// Returns a random id of 32 digits.
pub(crate) fn new_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Checks the API key of a request.
///
/// # Errors
/// The server has keys, and the request has another or none.
pub(crate) fn authorize(state: &ServerState, headers: &HeaderMap) -> Result<(), ApiError> {
    let keys = &state.options.api_keys;
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    let plain = headers.get(X_API_KEY).and_then(|value| value.to_str().ok());
    let is_known = |key: Option<&str>| key.is_some_and(|key| keys.iter().any(|known| is_equal(known, key)));
    if keys.is_empty() || is_known(bearer) || is_known(plain) {
        Ok(())
    } else {
        Err(ApiError::unauthorized())
    }
}

/// Compares two texts in a time that depends on their lengths only.
fn is_equal(known: &str, given: &str) -> bool {
    let differing = known.bytes().zip(given.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
    known.len() == given.len() && differing == 0
}

/// A request with a body: authorized, read, and not yet parsed.
pub(crate) struct AuthorizedRequest {
    pub(crate) state: Arc<ServerState>,
    pub(crate) body: Bytes,
    logged: Arc<LoggedRequest>,
    arrived: Instant,
}

impl AuthorizedRequest {
    /// Starts the record of a request that generates.
    pub(crate) fn record(&self, path: &'static str) -> RequestRecord {
        self.logged.has_record.store(true, Ordering::Relaxed);
        RequestRecord::new(&self.state, self.logged.id.clone(), path, self.arrived)
    }
}

impl FromRequest<Arc<ServerState>> for AuthorizedRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        let arrived = Instant::now();
        authorize(state, request.headers())?;
        state.check_ready()?;
        let logged = request.extensions().get::<Arc<LoggedRequest>>().cloned();
        let logged = logged.ok_or_else(|| ApiError::internal("the request has no id"))?;
        let limits = state.options.limits;
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > limits.body_bytes as u64) {
            return Err(ApiError::too_large(limits.body_bytes));
        }
        let body = read(request.into_body(), limits.body_bytes);
        let body = tokio::time::timeout(limits.read, body);
        let body = body.await.map_err(|_late| ApiError::too_slow(limits.read))??;
        Ok(Self { state: Arc::clone(state), body, logged, arrived })
    }
}

async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, limit).await.map_err(|error| {
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = source {
            if error.is::<http_body_util::LengthLimitError>() {
                return ApiError::too_large(limit);
            }
            source = error.source();
        }
        ApiError::invalid(format!("the body cannot be read: {error}"))
    })
}

/// Runs work that takes long for a long text on a thread that may block.
///
/// # Errors
/// The work fails.
pub(crate) async fn off_reactor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_stopped| Err(ApiError::internal("the request could not be read")))
}

//! State that all requests share: the engine, the model's texts, limits, and the phase of the
//! server.
//!
//! - Input: a session, its model, and [`ServeOptions`].
//! - Output: [`ServerState`].
//! - Invariants: everything but the phase, the queue and the metrics is constant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::SamplingDefaults;
use ascend_tp::generate::{self, Model, ServingEngine, Session};
use tokio::sync::watch;

use crate::admission::{Admission, AdmissionLimits};
use crate::error::ApiError;
use crate::metrics::{EngineGauges, Metrics};
use crate::texts::ModelTexts;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Names of the model in requests. The first one is in answers.
    pub names: Vec<String>,
    /// Accepted API keys. Without keys, every request is accepted.
    pub api_keys: Vec<String>,
    /// Limits of requests and connections.
    pub limits: ServeLimits,
}

/// Limits of requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeLimits {
    /// Maximum number of requests that wait for a place in the batch.
    pub waiting: usize,
    /// Maximum time that a request waits for a place in the batch.
    pub wait: Duration,
    /// Maximum size of a body, in bytes.
    pub body_bytes: usize,
    /// Maximum time for the head of a request, and for its body.
    pub read: Duration,
    /// Maximum number of open connections. Further ones are refused, except for probes.
    pub connections: usize,
    /// Maximum time that running requests have after a stop signal.
    pub shutdown: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            waiting: 1024,
            wait: Duration::from_secs(600),
            body_bytes: 32 << 20,
            read: Duration::from_secs(30),
            connections: 4096,
            shutdown: Duration::from_secs(30),
        }
    }
}

/// The life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServingPhase {
    Serving,
    /// New requests are refused. Running ones go on.
    Draining,
    /// Running requests end with an error.
    Ending,
}

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) engine: ServingEngine,
    pub(crate) options: ServeOptions,
    /// Names of adapters, which are models of the API.
    pub(crate) adapters: Vec<String>,
    /// Folder of the model, as the caller named it.
    pub(crate) root: String,
    /// Start of the server, in seconds since 1970.
    pub(crate) created: u64,
    pub(crate) texts: ModelTexts,
    pub(crate) sampling: SamplingDefaults,
    pub(crate) stop_ids: Vec<u32>,
    /// Maximum number of tokens of a sequence, prompt and answer together.
    pub(crate) context: usize,
    /// Maximum number of sequences that run at once.
    pub(crate) sequences: usize,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Metrics,
    pub(crate) phase: watch::Sender<ServingPhase>,
    /// Requests that have not ended.
    open: AtomicUsize,
    block_tokens: usize,
    total_blocks: usize,
    /// The gauges when metrics were last read.
    last_gauges: Mutex<EngineGauges>,
}

impl ServerState {
    pub(crate) fn start(
        sessions: Vec<Session>,
        model: &Model,
        texts: ModelTexts,
        options: ServeOptions,
    ) -> Result<Self, generate::Error> {
        let first = sessions.first().map(Session::deployment).copied();
        let first = first.ok_or_else(|| Diagnostics::from(Diagnostic::new("server", "has no session")))?;
        let context = first.longest_sequence(&model.config);
        let sequences = first.batch * sessions.len();
        let loads = sessions.iter().flat_map(Session::load);
        let total_blocks = loads.flat_map(|load| load.available_blocks).sum();
        let ServeLimits { waiting, wait, .. } = options.limits;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            engine: ServingEngine::start_replicas(sessions)?,
            options,
            adapters: model.config.adapters.names().map(str::to_owned).collect(),
            root: model.dir.display().to_string(),
            created: since.as_secs(),
            texts,
            sampling: model.generation.sampling.clone(),
            stop_ids: model.stop_ids(),
            context,
            sequences,
            admission: Admission::new(AdmissionLimits { running: sequences, waiting, wait }),
            metrics: Metrics::new(),
            phase: watch::Sender::new(ServingPhase::Serving),
            open: AtomicUsize::new(0),
            block_tokens: first.block_tokens,
            total_blocks,
            last_gauges: Mutex::default(),
        })
    }

    pub(crate) fn phase(&self) -> ServingPhase {
        *self.phase.borrow()
    }

    /// Returns whether new requests are accepted.
    ///
    /// # Errors
    /// The engine has failed, or the server shuts down.
    pub(crate) fn check_ready(&self) -> Result<(), ApiError> {
        self.engine.check().map_err(|error| ApiError::unavailable(error.to_string()))?;
        if self.phase() > ServingPhase::Serving { Err(ApiError::shutting_down()) } else { Ok(()) }
    }

    /// Returns the name of the model that a request asks for; the first name if it asks for none.
    ///
    /// # Errors
    /// The model is not served.
    pub(crate) fn model_name(&self, asked: Option<&str>) -> Result<String, ApiError> {
        let mut names = self.model_names();
        match asked {
            None => Ok(names.next().unwrap_or_default().to_owned()),
            Some(asked) if names.any(|name| name == asked) => Ok(asked.to_owned()),
            Some(asked) => Err(ApiError::no_model(asked, &self.model_names().collect::<Vec<_>>())),
        }
    }

    /// Returns the names of the model, then the names of adapters.
    pub(crate) fn model_names(&self) -> impl Iterator<Item = &str> {
        self.options.names.iter().chain(&self.adapters).map(String::as_str)
    }

    /// Returns the adapter that a name of the API means, if it means one.
    pub(crate) fn adapter<'a>(&self, model: Option<&'a str>) -> Option<&'a str> {
        model.filter(|name| self.adapters.iter().any(|adapter| adapter == name))
    }

    pub(crate) fn gauges(&self) -> EngineGauges {
        let mut gauges = EngineGauges {
            block_tokens: self.block_tokens,
            total_blocks: self.total_blocks,
            waiting: self.admission.waiting(),
            ..EngineGauges::default()
        };
        let mut last = self.last_gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(loads) = self.engine.load() else {
            // A failed engine has no load. Counters must not decrease.
            let EngineGauges { preemptions, hit_tokens, query_tokens, .. } = *last;
            let EngineGauges { verified_drafts, accepted_drafts, .. } = *last;
            gauges = EngineGauges { preemptions, hit_tokens, query_tokens, ..gauges };
            return EngineGauges { verified_drafts, accepted_drafts, ..gauges };
        };
        for load in loads {
            gauges.running += load.running;
            gauges.waiting += load.waiting;
            gauges.available_blocks += load.available_blocks.iter().sum::<usize>();
            gauges.preemptions += load.preemptions;
            gauges.hit_tokens += load.hit_tokens;
            gauges.query_tokens += load.query_tokens;
            gauges.verified_drafts += load.verified_drafts;
            gauges.accepted_drafts += load.accepted_drafts;
        }
        *last = gauges;
        gauges
    }

    /// Counts a request, until [`end_request`](Self::end_request).
    pub(crate) fn begin_request(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_request(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of requests that have not ended.
    pub(crate) fn open_requests(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

//! The life of the server: connections, shutdown, failure.
//!
//! - Input: a listening socket, and a [`StopSignal`].
//! - Output: nothing, or the failure of the engine.
//! - Invariants: connections are accepted until running requests have ended, so that `/ready` can
//!   say that the server shuts down. Probes are answered although all connections are in use. A
//!   failed engine ends the server.
//! - Not here: the handling of requests (`routes`).

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ascend_tp::generate::{self, Model, Session};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::connection;
use crate::routes::{probe_router, router};
use crate::state::{ServeOptions, ServerState, ServingPhase};
use crate::texts::ModelTexts;

/// Time between two checks of the engine.
const CHECK: Duration = Duration::from_millis(50);

/// Time for clients and probes to see that the engine has failed.
const FAILURE_GRACE: Duration = Duration::from_secs(1);

/// Minimum time for connections to send their last bytes.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Time before another try if the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Number of connections above the limit that are accepted for probes. Other requests on them are
/// refused.
pub const RESERVED_CONNECTIONS: usize = 64;

/// Maximum time for the head of a request on a reserved connection. The next one may be a probe.
const RESERVED_READ: Duration = Duration::from_secs(1);

/// Maximum number of threads that handle connections. The cards need the other cores.
const MAX_THREADS: usize = 4;

/// An error that ends the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A card or process failed.
    #[error(transparent)]
    Engine(#[from] generate::Error),
    /// The socket cannot be used, or no thread can be started.
    #[error("the server cannot run: {0}")]
    Io(#[from] io::Error),
}

/// A request to end a server. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(watch::Sender<bool>);

impl StopSignal {
    /// Creates a signal that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the server to finish running requests and to end. Callable from any thread.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the signal. Returns whether it came in time.
    async fn comes_within(&self, time: Duration) -> bool {
        timeout(time, self.0.subscribe().wait_for(|stops| *stops)).await.is_ok()
    }
}

/// A server that is ready to listen.
#[derive(Debug)]
pub struct Server {
    state: Arc<ServerState>,
}

impl Server {
    /// Starts the serving engine of a session, or of several sessions on different cards, which
    /// share the requests.
    ///
    /// # Errors
    /// There is no session, or the system has no thread.
    pub fn start(
        sessions: Vec<Session>,
        model: &Model,
        texts: ModelTexts,
        options: ServeOptions,
    ) -> Result<Self, generate::Error> {
        Ok(Self { state: Arc::new(ServerState::start(sessions, model, texts, options)?) })
    }

    /// Serves until the signal comes and running requests have ended, or until the engine fails.
    ///
    /// # Errors
    /// The engine has failed, or the system has no threads or sockets.
    pub fn run(self, listener: TcpListener, stop: &StopSignal) -> Result<(), ServeError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(threads).thread_name("http").enable_all().build()?;
        let served = runtime.block_on(self.serve(listener, stop));
        // Tasks hold the state. The engine stops when the last one is dropped, which is after the
        // return if a body is still being read on a thread that may block.
        runtime.shutdown_timeout(CHECK);
        served
    }

    async fn serve(self, listener: TcpListener, stop: &StopSignal) -> Result<(), ServeError> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = tokio::spawn(accept(listener, Arc::clone(&self.state)));
        let served = self.wait_for_end(stop).await;
        self.state.phase.send_replace(ServingPhase::Ending);
        match accepting.await {
            Ok(connections) => {
                // A slow reader gets the rest of the time for an answer that is complete.
                let rest = served.as_ref().map_or(CLOSE_LIMIT, |rest| *rest);
                if timeout(rest, connections.shutdown()).await.is_err() {
                    debug!("connections were closed before their last bytes");
                }
            }
            Err(error) => warn!(%error, "the task that accepts connections failed"),
        }
        Ok(served.map(drop)?)
    }

    /// Returns when all requests have ended after a stop signal, with the time that connections
    /// have for their last bytes.
    async fn wait_for_end(&self, stop: &StopSignal) -> Result<Duration, generate::Error> {
        while !stop.comes_within(CHECK).await {
            self.check_engine().await?;
        }
        let limit = self.state.options.limits.shutdown;
        info!(open = self.state.open_requests(), limit_s = limit.as_secs_f64(), "shutting down");
        self.state.phase.send_replace(ServingPhase::Draining);
        let started = Instant::now();
        while self.state.open_requests() > 0 && started.elapsed() < limit {
            sleep(CHECK).await;
            self.check_engine().await?;
        }
        Ok(limit.saturating_sub(started.elapsed()).max(CLOSE_LIMIT))
    }

    /// Returns the failure of the engine, after its requests had time to report it.
    async fn check_engine(&self) -> Result<(), generate::Error> {
        let checked = self.state.engine.check();
        if let Err(error) = &checked {
            warn!(%error, "the engine has failed");
            sleep(FAILURE_GRACE).await;
        }
        checked
    }
}

/// Accepts connections until the server ends. Returns the open connections.
async fn accept(listener: tokio::net::TcpListener, state: Arc<ServerState>) -> GracefulShutdown {
    let limits = state.options.limits;
    let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let reserve = Arc::new(Semaphore::new(RESERVED_CONNECTIONS));
    let all = ConnectionTerms { router: router(Arc::clone(&state)), read: limits.read, reuse: Reuse::Kept };
    let probes = ConnectionTerms {
        router: probe_router(Arc::clone(&state)),
        read: limits.read.min(RESERVED_READ),
        reuse: Reuse::Closed,
    };
    let connections = GracefulShutdown::new();
    let mut phase = state.phase.subscribe();
    loop {
        let next = async {
            let reserved = Arc::clone(&reserve).acquire_owned().await;
            (reserved, listener.accept().await)
        };
        let (reserved, accepted) = tokio::select! {
            next = next => next,
            _ = phase.wait_for(|phase| *phase == ServingPhase::Ending) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Within the limit, a connection leaves the reserve to others.
        let (place, terms) = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => (Ok(place), all.clone()),
            Err(_full) => (reserved, probes.clone()),
        };
        let watcher = connections.watcher();
        tokio::spawn(async move {
            terms.serve(stream, watcher).await;
            drop(place);
        });
    }
    connections
}

/// Whether a connection stays open after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    Kept,
    Closed,
}

/// How a connection is served.
#[derive(Clone, Debug)]
struct ConnectionTerms {
    router: Router,
    /// Maximum time for the head of a request.
    read: Duration,
    reuse: Reuse,
}

impl ConnectionTerms {
    /// Serves a connection until it is closed, or until its client is gone.
    async fn serve(self, stream: TcpStream, watcher: Watcher) {
        // Without it, tokens would wait for an acknowledgement. The connection works anyway.
        let _delayed = stream.set_nodelay(true);
        let (socket, end) = connection::parts(stream);
        let http = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.read)
            .keep_alive(self.reuse == Reuse::Kept)
            .serve_connection(TokioIo::new(socket), TowerToHyperService::new(self.router));
        tokio::select! {
            biased;
            served = watcher.watch(http) => if let Err(error) = served {
                debug!(%error, "a connection ended early");
            },
            () = end.wait() => debug!("a client is gone"),
        }
    }
}

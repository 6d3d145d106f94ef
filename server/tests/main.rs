//! Tests of the API against a server in the same process, on emulated cards.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod adapters;
mod chat;
mod client;
mod completions;
mod life;
mod malformed;
mod messages;
mod small;
mod structured;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use ascend_tp::Cann;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::generate::{Model, Session};
use ascend_tp_server::{ModelTexts, ServeError, ServeLimits, ServeOptions, Server, StopSignal};

use client::Client;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn shipped() -> PathBuf {
    root().join("models/kjv-qwen2")
}

/// Options of a test's server.
struct Setup {
    model: PathBuf,
    template: Option<PathBuf>,
    batch: usize,
    context: usize,
    keys: Vec<String>,
    limits: ServeLimits,
    /// Adapters by name.
    adapters: Vec<(String, PathBuf)>,
}

impl Default for Setup {
    fn default() -> Self {
        let (keys, limits, adapters) = (Vec::new(), ServeLimits::default(), Vec::new());
        Self { model: shipped(), template: None, batch: 16, context: 256, keys, limits, adapters }
    }
}

/// A server on a free port.
struct Running {
    address: SocketAddr,
    stop: StopSignal,
    thread: JoinHandle<Result<(), ServeError>>,
    /// The emulated cards.
    emulator: Emulator,
}

impl Running {
    fn start(setup: Setup) -> Self {
        let Setup { model, template, batch, context, keys, limits, adapters } = setup;
        let model = Model::open(&model).unwrap();
        let named = adapters.iter().map(|(name, folder)| (name.as_str(), folder.as_path()));
        let named: Vec<(&str, &Path)> = named.collect();
        let model = if named.is_empty() { model } else { model.with_adapters(&named).unwrap() };
        let emulator = Emulator::new(Config::with_cards(2)).unwrap();
        let cann = Cann::new(emulator.table()).unwrap();
        let texts = ModelTexts::open(&model, template.as_deref()).unwrap();
        let session = Session::builder(&cann, &model).cards(2).batch(batch).context(context);
        let grammars = Arc::clone(texts.grammars.as_ref().unwrap());
        let session = session.constraints(grammars).prompt_log_probabilities().start().unwrap();
        let names = vec!["kjv".to_owned(), "other".to_owned()];
        let options = ServeOptions { names, api_keys: keys, limits };
        let server = Server::start(vec![session], &model, texts, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), StopSignal::new());
        let signal = stop.clone();
        let thread = std::thread::spawn(move || server.run(listener, &signal));
        Self { address, stop, thread, emulator }
    }

    fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Stops the server, and returns how it ended.
    fn end(self) -> Result<(), ServeError> {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

/// The server of most tests.
static SHARED: LazyLock<Running> = LazyLock::new(|| Running::start(Setup::default()));

fn shared() -> Client {
    SHARED.client()
}

/// Returns a body with more fields, or other values of its fields.
fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

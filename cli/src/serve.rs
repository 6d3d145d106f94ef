//! `serve`: an HTTP server with an API compatible with OpenAI's.
//!
//! - Output: one line on stderr when the server is ready, and a line of the log for each request.
//!   With `--dry-run`, a report on stdout.
//! - Invariants: all problems of the folder and the options are reported together, and the memory
//!   is planned, before a weight is loaded. After SIGTERM or SIGINT, running requests end within
//!   `--shutdown-timeout`, and the exit code is 0. A failed card or process gives exit code 3.

use std::env::VarError;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ascend_tp::base::{Bytes, Diagnostic, Diagnostics};
use ascend_tp::compile::{Deployment, ServingPrograms};
use ascend_tp::exec::{EngineOptions, Launching, memory_wanted};
use ascend_tp::generate::drafts::Speculation;
use ascend_tp::generate::{Model, PrefixCache, ServingEngine, Session};
use ascend_tp::program::tree::SumOrder;
use ascend_tp::world::ProcessGroup;
use ascend_tp_server::output::{ReasoningParserKind, ToolParserKind};
use ascend_tp_server::{
    ModelTexts, RESERVED_CONNECTIONS, ServeError, ServeLimits, ServeOptions, Server, StopSignal,
};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::Level;

use super::bind::{self, Bind};
use super::cards::{self, Cards};
use super::failure::{Failure, Outcome};
use super::numbers::counted;
use super::processes::{self, Inputs};
use super::progress::ProgressLine;
use super::train::ServingMesh;
use super::values::{CacheOptions, DeviceKind, Fp8As, LayoutOptions, PrecisionName, positive};
use super::{Verbosity, arguments, interrupt, is_at_least, model, note, print_report, train};

pub(super) const EXAMPLES: &str = "\
The API is that of OpenAI; docs/SERVER.md lists paths and fields.

Examples:
  ascend-tp serve
      the shipped model on eight cards, at http://127.0.0.1:8000
  ascend-tp serve Qwen2.5-72B-Instruct --cards 8 --host 0.0.0.0 --max-model-len 32768
  ascend-tp serve Qwen2.5-72B-Instruct --cards 8 --dry-run
  curl http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' \\
      -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 16}'";

const DEFAULT_CARDS: usize = 8;

/// Environment variable with an API key.
const API_KEY: &str = "ASCEND_TP_API_KEY";

/// Number of open files that are no connections, such as devices and listening sockets.
const OTHER_FILES: u64 = 64;

/// Time between two looks at the flag of a signal.
const SIGNAL_CHECK: Duration = Duration::from_millis(20);

/// Share of a card's memory for weights, caches and buffers. The rest is for operator workspaces.
const USABLE: f64 = 0.95;

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Folder with config.json, the tokenizer and the weights in safetensors [default: the shipped
    /// kjv-qwen2]
    #[arg(value_name = "DIR", conflicts_with = "model")]
    dir: Option<PathBuf>,
    /// Same as DIR
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Name of the model in requests. Can be repeated [default: the name of the folder]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    served_model_name: Vec<String>,
    /// Low-rank adapter that requests choose by the model name NAME, and its folder as peft writes
    /// it. Can be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = named_folder, help_heading = "Model")]
    adapter: Vec<NamedFolder>,
    /// Element type of weights and activations, or w8a8 [default: the model's type]
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Model")]
    dtype: Option<PrecisionName>,
    /// Form of weights that the checkpoint stores in fp8 blocks: floats of the type of --dtype, or
    /// 8-bit integers [default: bf16]
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Model")]
    fp8_as: Option<Fp8As>,
    #[command(flatten, next_help_heading = "Model")]
    caches: CacheOptions,
    /// File with a chat template in Jinja [default: the template in the model's folder]
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    chat_template: Option<PathBuf>,
    /// Format of tool calls: hermes, llama3_json, mistral, deepseek_v3 or deepseek_v31 [default:
    /// from the chat template]
    #[expect(clippy::doc_markdown, reason = "a help text has no backticks")]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    tool_parser: Option<ToolParserKind>,
    /// Format of reasoning: think or magistral [default: from the chat template]
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    reasoning_parser: Option<ReasoningParserKind>,
    /// Number of cards [default: the product of --mesh, else 8; the number of processes under a
    /// launcher]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Parallelism")]
    cards: Option<usize>,
    /// Mesh axes with their sizes, as for generate; dp counts replicas, which share the requests
    /// [default: tp over all cards]
    #[arg(long, value_name = "AXES", help_heading = "Parallelism")]
    mesh: Option<String>,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Compute every sum in a fixed order, so that the logits have the same bits on any number of
    /// cards
    #[arg(long, help_heading = "Parallelism")]
    exact: bool,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", help_heading = "HTTP")]
    host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value = "8000", value_name = "PORT", help_heading = "HTTP")]
    port: u16,
    /// Accepted API key, in addition to the one in `ASCEND_TP_API_KEY`. Can be repeated [default:
    /// no key is needed]
    #[arg(long, value_name = "KEY", help_heading = "HTTP")]
    api_key: Vec<String>,
    /// Maximum size of a request's body, in MiB
    #[arg(long, default_value_t = limits().body_bytes >> 20, value_parser = positive, value_name = "MIB", help_heading = "HTTP")]
    max_body_size: usize,
    /// Maximum number of open connections; requests on further ones get status 503, except for
    /// probes
    #[arg(long, default_value_t = limits().connections, value_parser = positive, value_name = "N", help_heading = "HTTP")]
    max_connections: usize,
    /// Time for the head and for the body of a request to arrive, in seconds
    #[arg(long, default_value_t = limits().read.as_secs() as usize, value_parser = positive, value_name = "SECONDS", help_heading = "HTTP")]
    read_timeout: usize,
    /// Time that running requests have after SIGTERM or SIGINT, in seconds
    #[arg(long, default_value_t = limits().shutdown.as_secs() as u32, value_name = "SECONDS", help_heading = "HTTP")]
    shutdown_timeout: u32,
    /// Maximum number of sequences that run at once
    #[arg(long, default_value = "64", value_parser = positive, value_name = "N", help_heading = "Serving")]
    max_num_seqs: usize,
    /// Maximum number of tokens of a sequence, prompt and answer together [default: the model's
    /// limit, at most 4096]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Serving")]
    max_model_len: Option<usize>,
    /// Maximum number of prompt tokens in a step; longer prompts are read in chunks [default: at
    /// most 2048]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Serving")]
    max_num_batched_tokens: Option<usize>,
    /// Number of cache blocks of 128 tokens; auto takes enough for all sequences at full length, or
    /// as many as fit
    #[arg(long, default_value = "auto", value_name = "N|auto", help_heading = "Serving")]
    kv_cache_blocks: CacheBlocksChoice,
    /// Compute every prompt as a whole, also if an earlier one began with the same tokens
    #[arg(long, help_heading = "Serving")]
    no_prefix_cache: bool,
    /// Draft up to K tokens of each answer from its earlier words, or one token by the model's
    /// layer for multi-token prediction, and verify them in one run; the answers do not change
    #[arg(long, value_name = "ngram=K|mtp", value_parser = arguments::speculation, help_heading = "Serving")]
    speculate: Option<Speculation>,
    /// Maximum number of requests that wait; further ones get status 429
    #[arg(long, default_value_t = limits().waiting, value_name = "N", help_heading = "Serving")]
    max_waiting: usize,
    /// Maximum time that a request waits before it gets status 429, in seconds
    #[arg(long, default_value_t = limits().wait.as_secs() as usize, value_parser = positive, value_name = "SECONDS", help_heading = "Serving")]
    max_wait: usize,
    /// Device to run on; auto uses the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto", help_heading = "Execution")]
    device: DeviceKind,
    /// Processors to bind to: auto (five near each NPU), none, or a list such as 0-4,48-52
    #[arg(long, default_value = "none", value_name = "CPUS", help_heading = "Execution")]
    bind: Bind,
    /// Number of cards of the emulator [default: 8]
    #[arg(long, value_parser = positive, value_name = "N", help_heading = "Execution")]
    emulated_cards: Option<usize>,
    /// Capture each step as a graph on the card and replay it with one call of the host
    #[arg(long, help_heading = "Execution")]
    captured: bool,
    /// Print the cache blocks, the shapes of programs, the memory and the number of requests at
    /// full length, and exit
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

/// Returns the defaults of the limits.
fn limits() -> ServeLimits {
    ServeLimits::default()
}

/// A folder with a name, written `NAME=DIR`.
#[derive(Clone, Debug)]
struct NamedFolder {
    name: String,
    folder: PathBuf,
}

fn named_folder(text: &str) -> Result<NamedFolder, String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => {
            Ok(NamedFolder { name: name.to_owned(), folder: PathBuf::from(folder) })
        }
        _ => Err("expected NAME=DIR, such as french=adapters/french".to_owned()),
    }
}

/// The number of cache blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheBlocksChoice {
    Auto,
    Blocks(usize),
}

impl std::str::FromStr for CacheBlocksChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { positive(text).map(Self::Blocks) }
    }
}

pub(super) fn run(options: &ServeArguments) -> Result<Outcome, Failure> {
    processes::run(|group| run_in(options, group))
}

fn run_in(options: &ServeArguments, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let named = train::cards_of_mesh(options.mesh.as_deref()).unwrap_or(DEFAULT_CARDS);
    bind::apply(&options.bind, group, options.cards.unwrap_or(named))?;
    // The engine does not get the flag of the signal, because running requests may end in order. A
    // signal while the model is loaded ends the process.
    let _flag = interrupt::catch(group);
    let folder = model::folder(options.dir.as_deref().or(options.model.as_deref()))?;
    let cards = cards::open_for(options.device, group, options.emulated_cards, 0)?;
    let made = ServeJob::new(options, &folder, &cards, group);
    let job = processes::agree(group, Inputs::of_model(&folder), made)?;
    let (deployment, programs) = job.plan(&cards)?;
    model::note_unpacked(&job.model.config, &deployment, group)?;
    if options.dry_run {
        if group.is_first() {
            print_report(&plan_report(&job, &deployment, &programs))?;
        }
        return Ok(Outcome::Done);
    }
    drop(programs);
    cards.require_numbers()?;
    let listener = group.is_first().then(|| job.listen()).transpose()?;
    log_requests();
    let launching = if options.captured { Launching::Captured } else { Launching::Eager };
    let engine = EngineOptions { launching, ..cards.engine_options(group)? };
    let sessions = job.start(&cards, &deployment, &engine)?;
    let Some(listener) = listener else {
        // The first process takes the requests, and ends all processes. Launchers send signals to
        // each process.
        interrupt::end_in_order();
        ServingEngine::start_replicas(sessions)?.join()?;
        return Ok(Outcome::Done);
    };
    job.serve(sessions, listener, &cards)?;
    cards.check_reports()?;
    Ok(Outcome::Done)
}

#[derive(Debug)]
struct ServeJob<'a> {
    options: &'a ServeArguments,
    model: Model,
    texts: ModelTexts,
    names: Vec<String>,
    /// Accepted API keys. Without keys, every request is accepted.
    api_keys: Vec<String>,
    /// Number of sessions, which have separate cards.
    replicas: usize,
    /// The deployment of each session.
    deployment: Deployment,
}

impl<'a> ServeJob<'a> {
    fn new(
        options: &'a ServeArguments,
        folder: &Path,
        cards: &Cards,
        group: &ProcessGroup,
    ) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let named = train::cards_of_mesh(options.mesh.as_deref()).unwrap_or(DEFAULT_CARDS);
        let wanted = processes::cards(options.cards, group, Some(named)).unwrap_or_else(|problem| {
            problems.push(problem);
            group.size()
        });
        if group.size() == 1 && !options.dry_run {
            cards.problem(wanted).into_iter().for_each(|problem| problems.push(problem));
        }
        let mesh = train::replicated_mesh(options.mesh.as_deref(), wanted);
        let mesh = mesh.map_err(|problem| problems.push(problem)).unwrap_or(ServingMesh::LINE);
        let ServingMesh { replicas, stages, grid } = mesh;
        if replicas > 1 && group.size() > 1 {
            let problem = Diagnostic::new("--mesh", "replicas are in one process")
                .found(counted(group.size(), "process"));
            problems.push(problem.help("start a server for each replica, and a gateway before them"));
        }
        let mut api_keys = options.api_key.clone();
        if api_keys.iter().any(String::is_empty) {
            problems.push(Diagnostic::new("--api-key", "is empty"));
        }
        match key_of_environment() {
            Ok(key) => api_keys.extend(key),
            Err(problem) => problems.push(problem),
        }
        let names = if options.served_model_name.is_empty() {
            vec![name_of(folder)]
        } else {
            options.served_model_name.clone()
        };
        let adapters: Vec<(&str, &Path)> =
            options.adapter.iter().map(|adapter| (adapter.name.as_str(), adapter.folder.as_path())).collect();
        for (name, _) in adapters.iter().filter(|(name, _)| names.iter().any(|model| model == name)) {
            let problem = Diagnostic::new("--adapter", "has the name of the model").found(name);
            problems.push(problem.help("give the adapter another name"));
        }
        let predicts = options.speculate == Some(Speculation::Prediction);
        let opened = model::open(folder, group, predicts).and_then(|model| {
            let model = if adapters.is_empty() { model } else { model.with_adapters(&adapters)? };
            let mut texts = ModelTexts::open(&model, options.chat_template.as_deref())?;
            texts.tool_parser = options.tool_parser.or(texts.tool_parser);
            texts.reasoning_parser = options.reasoning_parser.or(texts.reasoning_parser);
            Ok((model, texts))
        });
        let opened = opened.map_err(|found| problems.append(found)).ok();
        let Some((model, texts)) = opened else { return Err(problems) };
        let limit = model.config.max_positions;
        if let Some(asked) = options.max_model_len.filter(|asked| *asked > limit) {
            let problem = Diagnostic::new("--max-model-len", "is above the model's limit");
            problems.push(problem.expected(format!("at most {limit} tokens")).found(asked));
        }
        let own = Deployment::of(&model.config, wanted / replicas);
        let context = options.max_model_len.unwrap_or(own.context);
        let precision = model::precision(&model.config, options.dtype, options.fp8_as, group);
        let precision = precision.map_err(|found| problems.append(found)).unwrap_or(own.precision);
        let precision = precision.with_kv(options.caches.kv());
        let deployment = Deployment {
            stages,
            grid,
            precision,
            residual: options.layout.residual(),
            experts: options.layout.experts(),
            batch: options.max_num_seqs,
            longest_prompt: options
                .max_num_batched_tokens
                .unwrap_or(usize::MAX)
                .min(context.saturating_sub(1)),
            context,
            cache_blocks: match options.kv_cache_blocks {
                CacheBlocksChoice::Auto => None,
                // The null block belongs to no sequence.
                CacheBlocksChoice::Blocks(blocks) => Some(blocks.saturating_add(1)),
            },
            scores_prompts: grid.depth == 1,
            drafts: options.speculate.as_ref().map_or(0, Speculation::drafts),
            predicts: options.speculate == Some(Speculation::Prediction),
            order: if options.exact { SumOrder::Tree } else { SumOrder::AsTheyCome },
            ..own
        };
        let least = deployment.least_cache_blocks(&model.config);
        if let CacheBlocksChoice::Blocks(blocks) = options.kv_cache_blocks
            && blocks < least
        {
            let problem = Diagnostic::new("--kv-cache-blocks", "hold fewer tokens than --max-model-len")
                .expected(format!("at least {least} blocks for {context} tokens"))
                .found(blocks);
            problems.push(problem.help("use more blocks or a smaller --max-model-len"));
        }
        problems.into_result(Self { options, model, texts, names, api_keys, replicas, deployment })
    }

    /// Compiles the programs, with a cache that fits the cards.
    fn plan(&self, cards: &Cards) -> Result<(Deployment, ServingPrograms), Failure> {
        let deployment = self.deployment;
        let programs = deployment.compile_serving(&self.model.config)?;
        let Some(site) = cards.site() else { return Ok((deployment, programs)) };
        let offered = Bytes((site.profile.hbm_usable_bytes() as f64 * USABLE) as u64);
        let (used, cache) = memory(&programs, deployment.cards);
        if used <= offered {
            return Ok((deployment, programs));
        }
        let config = &self.model.config;
        let blocks: usize = deployment.caches(config).iter().map(|size| size.blocks.in_pool() + 1).sum();
        let offered_to_cache = Bytes(offered.0.saturating_sub(used.0 - cache.0));
        // Each buffer of a block pool is aligned, so one block of margin suffices.
        let fitting =
            deployment.cache_blocks_within(config, &programs.plans[0], offered_to_cache).saturating_sub(1);
        let least = deployment.least_cache_blocks(config) + 1;
        if deployment.cache_blocks.is_some() || fitting < least {
            let place = format!("{} on {}", self.names[0], counted(deployment.cards, "card"));
            let problem = Diagnostic::new(place, "does not fit the cards' memory")
                .expected(format!("at most {offered} per card"))
                .found(format!("{used}, of which {blocks} cache blocks take {cache}"));
            return Err(Diagnostics::from(problem.help(if fitting < least {
                "use more cards, a smaller --max-model-len or --dtype w8a8".to_owned()
            } else {
                format!("use --kv-cache-blocks {fitting}")
            }))
            .into());
        }
        let deployment = Deployment { cache_blocks: Some(fitting), ..deployment };
        Ok((deployment, deployment.compile_serving(&self.model.config)?))
    }

    /// Opens the socket, so that a port in use is reported before the model is loaded.
    fn listen(&self) -> Result<TcpListener, Failure> {
        let ServeArguments { host, port, .. } = self.options;
        TcpListener::bind((host.as_str(), *port)).map_err(|error| {
            let problem = Diagnostic::new("--host, --port", "the server cannot listen there");
            Diagnostics::from(problem.found(format!("{host}:{port}: {error}"))).into()
        })
    }

    fn start(
        &self,
        cards: &Cards,
        deployment: &Deployment,
        engine: &EngineOptions,
    ) -> Result<Vec<Session>, Failure> {
        (0..self.replicas).map(|replica| self.start_replica(replica, cards, deployment, engine)).collect()
    }

    fn start_replica(
        &self,
        replica: usize,
        cards: &Cards,
        deployment: &Deployment,
        engine: &EngineOptions,
    ) -> Result<Session, Failure> {
        let progress = ProgressLine::start(engine.group.is_first());
        let own = replica * deployment.cards..(replica + 1) * deployment.cards;
        let engine = EngineOptions {
            cards: if self.replicas > 1 { own.collect() } else { Vec::new() },
            ..engine.clone()
        };
        let builder = Session::builder(&cards.cann, &self.model).deployment(*deployment);
        let builder = match &self.options.speculate {
            Some(speculation) => builder.speculate(speculation.clone()),
            None => builder,
        };
        let builder = match &self.texts.grammars {
            Ok(grammars) => builder.constraints(Arc::clone(grammars) as _),
            Err(_missing) => builder,
        };
        let builder = builder.prefix_cache(match self.options.no_prefix_cache {
            true => PrefixCache::Off,
            false => PrefixCache::Shared,
        });
        let session = builder.engine(engine).progress(&|piece, total| progress.moved(piece, total)).start();
        progress.finish();
        Ok(session?)
    }

    /// Serves until a signal comes or the engine fails.
    fn serve(self, sessions: Vec<Session>, listener: TcpListener, cards: &Cards) -> Result<(), Failure> {
        let address = listener.local_addr()?;
        let (names, deployment, replicas) = (self.names.join(", "), self.deployment, self.replicas);
        let limits = self.limits();
        raise_open_files(limits.connections);
        let protection = if self.api_keys.is_empty() { ", no API key" } else { "" };
        let options = ServeOptions { names: self.names, api_keys: self.api_keys, limits };
        let server = Server::start(sessions, &self.model, self.texts, options)?;
        // From now on, a signal lets running requests end.
        interrupt::end_in_order();
        let stop = StopSignal::new();
        let signal = stop.clone();
        let watch = std::thread::Builder::new().name("signals".to_owned());
        watch.spawn(move || {
            while !interrupt::is_requested() {
                std::thread::sleep(SIGNAL_CHECK);
            }
            signal.stop();
        })?;
        note(&format!(
            "ready: {names} on {} of {} at http://{address}, up to {} of {} tokens{protection}",
            deployment.cards * replicas,
            cards.description,
            counted(deployment.batch * replicas, "sequence"),
            deployment.context
        ));
        server.run(listener, &stop).map_err(|error| match error {
            ServeError::Engine(error) => error.into(),
            error => Failure::Run(error.into()),
        })
    }

    fn limits(&self) -> ServeLimits {
        let ServeArguments { max_waiting, max_wait, max_body_size, max_connections, .. } = *self.options;
        let seconds = |seconds: usize| Duration::from_secs(seconds as u64);
        ServeLimits {
            waiting: max_waiting,
            wait: seconds(max_wait),
            body_bytes: max_body_size.saturating_mul(1 << 20),
            read: seconds(self.options.read_timeout),
            connections: max_connections,
            shutdown: Duration::from_secs(self.options.shutdown_timeout.into()),
        }
    }
}

/// Returns the API key of the environment, if the variable is set.
fn key_of_environment() -> Result<Option<String>, Diagnostic> {
    match std::env::var(API_KEY) {
        Ok(key) if key.is_empty() => {
            Err(Diagnostic::new(API_KEY, "is empty").help("set a key, or unset the variable"))
        }
        Ok(key) => Ok(Some(key)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Diagnostic::new(API_KEY, "is not UTF-8")),
    }
}

/// Raises the limit of open files, and says so if it is below the number of connections.
fn raise_open_files(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    let wanted = (connections as u64).saturating_add(RESERVED_CONNECTIONS as u64 + OTHER_FILES);
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        note(&format!(
            "the limit of open files is {limit}, but --max-connections needs {wanted}; raise `ulimit -Hn`"
        ));
    }
}

fn name_of(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_gone| folder.to_owned());
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the memory of the fullest card, and the part that the cache takes.
fn memory(programs: &ServingPrograms, cards: usize) -> (Bytes, Bytes) {
    let by_rank = (0..cards).map(|rank| memory_wanted(&programs.plans, rank));
    let total = |kinds: &[(&str, Bytes)]| kinds.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
    let fullest = by_rank.max_by_key(|kinds| total(kinds)).unwrap_or_default();
    let caches = fullest.iter().filter(|(kind, _)| *kind == "states").map(|(_, bytes)| *bytes);
    (total(&fullest), caches.sum())
}

fn plan_report(job: &ServeJob<'_>, deployment: &Deployment, programs: &ServingPrograms) -> String {
    let config = &job.model.config;
    let caches = deployment.caches(config);
    let blocks = caches[0].blocks;
    let (in_pool, each) = (blocks.in_pool(), deployment.least_cache_blocks(config));
    let (used, cache) = memory(programs, deployment.cards);
    let listed = |numbers: Vec<usize>| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _written = writeln!(text, "{name:<32} {value}");
    };
    line("model", job.names.join(", "));
    let adapters: Vec<&str> = config.adapters.names().collect();
    if !adapters.is_empty() {
        line("adapters", format!("{} (rank {} in all)", adapters.join(", "), config.adapters.rank()));
    }
    line("cards", (deployment.cards * job.replicas).to_string());
    line("replicas", job.replicas.to_string());
    line("sequences at once", (deployment.batch * job.replicas).to_string());
    line("tokens of a sequence", deployment.context.to_string());
    line("cache blocks", format!("{} of {} tokens", in_pool * blocks.pools * job.replicas, blocks.rows));
    if let Some(size) = caches.get(1) {
        let all = size.blocks.in_pool() * blocks.pools * job.replicas;
        line("cache blocks of windows", format!("{all} of {} tokens", blocks.rows));
    }
    line(
        "requests at full length",
        ((in_pool / each * blocks.pools).min(deployment.batch) * job.replicas).to_string(),
    );
    line("tokens of a prompt chunk", listed(deployment.chunks(config)));
    line("rows of a decode step", listed(deployment.decode_rows()));
    line("programs", programs.shapes.len().to_string());
    line("memory of the fullest card", format!("{used}, of which the cache takes {cache}"));
    text
}

/// Writes the log of the server to stderr.
fn log_requests() {
    let level = match () {
        () if is_at_least(Verbosity::Verbose) => Level::DEBUG,
        () if is_at_least(Verbosity::Normal) => Level::INFO,
        () => Level::ERROR,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // Only tests of this process set another subscriber.
    let _other = log.with_ansi(false).try_init();
}

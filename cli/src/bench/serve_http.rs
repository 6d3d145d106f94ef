//! `bench serve --http`: `ascend-tp serve` as a process, alternating with llama.cpp's
//! `llama-server` if `PATH` has it, and the time that HTTP adds to the first token.
//!
//! - Both servers get the same requests by the same client, on the same cores.
//! - Both have random weights of one shape, and a vocabulary of the same tokens.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::measure::serve::{self, LENGTHS, STREAMS, ServeRound, Throughput};
use crate::measure::{Bench, MeasuredTable, figures, http, load};
use anyhow::anyhow;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::peers::{LIMIT, LlamaModel, LlamaVocabulary, on_path, words};
use crate::children::{ChildJob, ChildOutput, Children};
use crate::failure::Failure;
use crate::{model, note};

const LOOK: Duration = Duration::from_millis(50);

/// Tokens of a sequence in addition to the measured ones.
const SPARE_TOKENS: usize = 16;

/// Measures all numbers of streams.
pub(super) fn run(bench: &Bench) -> Result<Vec<MeasuredTable>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let first_tokens = first_tokens(bench)?;
    let peer = match on_path("llama-server") {
        Some(program) => match LlamaModel::new(threads, LIMIT, LlamaVocabulary::Bytes)? {
            Ok(model) => Some((program, model)),
            Err(what) => {
                note(&format!("llama.cpp is not measured: {what}"));
                None
            }
        },
        None => {
            note("llama.cpp is not measured: no llama-server on PATH");
            None
        }
    };
    let (folder, vocabulary) = folder()?;
    let rounds = serve::rounds(bench.effort);
    let mut measured: Vec<ServeRound> = Vec::new();
    for round in 1..=rounds {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for streams in STREAMS {
            note(&format!("round {round} of {rounds}, {streams} streams"));
            if let Some((program, model)) = &peer {
                let job = |port| llama_job(words(program, &["-m"]), model, streams, threads, port);
                theirs.push(throughput(&job, streams, vocabulary)?);
            }
            ours.push(throughput(&|port| own_job(folder.path(), streams, port), streams, vocabulary)?);
        }
        measured.push((ours, peer.as_ref().map(|_| theirs)));
    }
    Ok(vec![serve::http_table(&measured), http::first_token_table(&first_tokens)])
}

/// Measures the first token of the shipped model.
fn first_tokens(bench: &Bench) -> Result<Vec<http::FirstTokens>, Failure> {
    let folder = model::folder(None)?;
    let vocabulary = ascend_tp::generate::Model::open_config(&folder)?.vocab_size;
    let server = RunningServer::start(|port| own_job(&folder, 1, port))?;
    Ok(http::first_tokens(server.address, vocabulary, bench.effort)?)
}

fn throughput(
    job: &dyn Fn(u16) -> Result<ChildJob, Failure>,
    streams: usize,
    vocabulary: usize,
) -> Result<Throughput, Failure> {
    let server = RunningServer::start(job)?;
    // The first request is a warm-up.
    http::streams(server.address, 1, vocabulary)?;
    Ok(http::streams(server.address, streams, vocabulary)?)
}

/// A server that accepts requests. Dropping it kills the process.
struct RunningServer {
    address: SocketAddr,
    _process: Children,
}

impl RunningServer {
    /// Starts a server at a free port.
    fn start(job: impl Fn(u16) -> Result<ChildJob, Failure>) -> Result<Self, Failure> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let job = job(address.port())?;
        let name = job.name.clone();
        let process = job.start()?;
        let started = Instant::now();
        while !http::is_ready(address) {
            if process.have_ended() {
                process.finish(Some(LIMIT))?;
                return Err(Failure::Run(anyhow!("{name} ended before it was ready")));
            }
            if started.elapsed() > LIMIT {
                let problem = format!("{name} was not ready within {} s", LIMIT.as_secs());
                return Err(Failure::Run(anyhow!(problem)));
            }
            sleep(LOOK);
        }
        Ok(Self { address, _process: process })
    }
}

/// Returns the command of this library's server.
fn own_job(folder: &Path, streams: usize, port: u16) -> Result<ChildJob, Failure> {
    let context = LENGTHS.iter().sum::<usize>() + SPARE_TOKENS;
    let options = format!(
        "--cards 1 --device emulator --emulated-cards 1 --max-num-seqs {streams} --max-model-len {context} \
         --no-prefix-cache --port {port} --quiet"
    );
    let mut arguments = vec![OsString::from("serve"), folder.into()];
    arguments.extend(options.split_whitespace().map(OsString::from));
    ChildJob::own("ascend-tp serve", 1, &arguments, ChildOutput::OutputAndErrors)
}

/// Returns the command of `llama-server`. `command` ends before the file of the model.
fn llama_job(
    mut command: Vec<OsString>,
    model: &LlamaModel,
    streams: usize,
    threads: usize,
    port: u16,
) -> Result<ChildJob, Failure> {
    let context = streams * (LENGTHS.iter().sum::<usize>() + SPARE_TOKENS);
    let options = format!("-np {streams} -c {context} -t {threads} --host 127.0.0.1 --port {port}");
    command.push(model.path().into());
    command.extend(options.split_whitespace().map(OsString::from));
    let name = "llama-server".to_owned();
    Ok(ChildJob { name, command, processes: 1, cards: None, prints: ChildOutput::OutputAndErrors })
}

/// Writes a model of the benchmark's shape. Returns its folder and its number of token ids.
fn folder() -> Result<(TempDir, usize), Failure> {
    let setting = figures::model()?;
    let folder = tempfile::tempdir()?;
    let mut config = crate::measure::peers::generation_argument(1, 1)?["config"].take();
    config["model_type"] = "qwen2".into();
    config["architectures"] = json!(["Qwen2ForCausalLM"]);
    config["torch_dtype"] = "bfloat16".into();
    let vocabulary = setting.model.vocab_size;
    std::fs::write(folder.path().join("config.json"), config.to_string())?;
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer(vocabulary).to_string())?;
    load::write(&setting, &folder.path().join("model.safetensors"))?;
    Ok((folder, vocabulary))
}

/// Returns a tokenizer with a token for each byte, one merge, and texts of their own for the other
/// ids, as in `cli/peers/shape_gguf.py`.
fn tokenizer(size: usize) -> Value {
    let bytes = (0..=u8::MAX).map(|byte| character(byte).to_string());
    let tokens = bytes.chain(["ab".to_owned()]);
    let tokens = tokens.chain((257..size).map(|id| format!("t{id}"))).take(size).enumerate();
    let vocabulary: Map<String, Value> = tokens.map(|(id, token)| (token, id.into())).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false});
    json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]]},
    })
}

/// Returns the character that byte-level tokenizers write for a byte: the byte's own if it is
/// visible, otherwise one from U+0100 on.
fn character(byte: u8) -> char {
    let is_visible = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..);
    if is_visible(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !is_visible(*byte)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ascend_tp::generate::Tokenizer;

    use super::*;

    #[test]
    fn the_tokenizer_reads_and_writes_all_bytes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer(300).to_string()).unwrap();
        let tokenizer = Tokenizer::open(folder.path(), 300).unwrap();
        let text = "ab \n中\u{0}";
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!((ids[0], tokenizer.decode(&ids).unwrap().as_str()), (256, text));
        assert_eq!(tokenizer.decode(&[299]).unwrap(), "t299");
    }
}

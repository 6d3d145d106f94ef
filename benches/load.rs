//! Loading: the shape of Qwen2.5-0.5B, random, from files in the page cache to eight emulated cards. Prints the rate, its ratios
//! to what all cores copy, and the peak of resident memory beyond the shards.
#![expect(clippy::print_stdout, reason = "a bench shows what it measures")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use ascend_tp::Cann;
use ascend_tp::base::{Bytes, DType};
use ascend_tp::config::{Family, ModelConfig};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::exec::Engine;
use ascend_tp::generate::SessionOptions;
use ascend_tp::generate::sampling::SamplingOptions;
use ascend_tp::placement::Residual;
use ascend_tp::program::models::{Head, RunShape, checkpoint_tensors, decoder};
use ascend_tp::schedule::Plan;
use ascend_tp::weights::{Checkpoint, fill_from};
use memmap2::MmapMut;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

const CARDS: usize = 8;
const ROUNDS: usize = 3;

fn main() -> anyhow::Result<()> {
    let preset = ModelConfig::preset("qwen2.5-72b").context("the preset")?;
    let config = ModelConfig {
        family: Family::Qwen2,
        vocab_size: 151_936,
        hidden_size: 896,
        layers: 24,
        heads: 14,
        kv_heads: 2,
        head_dim: 64,
        intermediate_size: 4864,
        tied_embeddings: true,
        ..preset
    };
    let folder = tempfile::tempdir()?;
    write_checkpoint(&config, &folder.path().join("model.safetensors"))?;
    let options = SessionOptions {
        cards: CARDS,
        precision: DType::BF16.into(),
        residual: Residual::Replicate,
        batch: 1,
        longest_prompt: 16,
        max_new_tokens: 16,
        stop_ids: Vec::new(),
        sampling: SamplingOptions::default(),
    };
    let programs = options.compile(&config)?;
    let (copy, fresh) = (copy_bytes_per_s(Target::Touched)?, copy_bytes_per_s(Target::Fresh)?);
    println!("copy bandwidth, all cores: {:.1} GB/s; to memory never touched: {:.1} GB/s", copy / 1e9, fresh / 1e9);
    for _ in 0..ROUNDS {
        let checkpoint = Arc::new(Checkpoint::open(folder.path())?);
        let emulator = Emulator::new(Config::with_cards(CARDS))?;
        let mut engine = Engine::start(&Cann::new(emulator.table())?, programs.clone())?;
        let of_rank = |plan: &Arc<Plan>| plan.params.iter().map(|p| plan.buffers[p.buffer].bytes).sum::<Bytes>();
        let shards: Bytes = engine.plans(0).iter().map(of_rank).sum();
        let before = resident("VmRSS:")?;
        // Asks for a new peak from here on (proc(5), clear_refs).
        std::fs::write("/proc/self/clear_refs", "5")?;
        let started = Instant::now();
        engine.load(fill_from(&checkpoint, Arc::new(|_| ())))?;
        let rate = shards.0 as f64 / started.elapsed().as_secs_f64();
        let beyond = resident("VmHWM:")?.saturating_sub(before).saturating_sub(shards.0);
        println!(
            "{shards} of shards at {:.1} GB/s: {:.0} % of copy bandwidth, {:.0} % of that to memory never touched; peak {} \
             beyond the shards",
            rate / 1e9,
            100.0 * rate / copy,
            100.0 * rate / fresh,
            Bytes(beyond)
        );
    }
    Ok(())
}

/// A checkpoint with every tensor that the configuration asks for, of random bytes.
fn write_checkpoint(config: &ModelConfig, path: &Path) -> anyhow::Result<()> {
    let run = RunShape { batch: 1, sequence: 1, cache_length: 1 };
    let tensors = checkpoint_tensors(&decoder(config, run, DType::BF16, Head::AllLogits)?);
    let mut end = 0;
    let header: serde_json::Map<String, serde_json::Value> = tensors
        .into_iter()
        .map(|(name, shape)| {
            let start = end;
            end += 2 * shape.elems();
            let entry = serde_json::json!({ "dtype": "BF16", "shape": shape.sizes(), "data_offsets": [start, end] });
            (name, entry)
        })
        .collect();
    let header = serde_json::to_vec(&header)?;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    let (mut random, mut bytes) = (StdRng::seed_from_u64(1), vec![0; 1 << 20]);
    for start in (0..end).step_by(bytes.len()) {
        random.fill_bytes(&mut bytes);
        file.write_all(&bytes[..bytes.len().min(end - start)])?;
    }
    Ok(file.flush()?)
}

/// What is copied to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Memory that was written before.
    Touched,
    /// Memory fresh from the system, in huge pages as far as it gives them, as a card's memory is at first.
    Fresh,
}

/// Bytes copied in a second by one thread a core; the best of a few rounds.
fn copy_bytes_per_s(target: Target) -> anyhow::Result<f64> {
    const EACH_BYTES: usize = 256 << 20;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let from: Vec<Vec<u8>> = (0..cores).map(|_| vec![1; EACH_BYTES]).collect();
    let mut to: Vec<MmapMut> = Vec::new();
    let mut best: f64 = 0.0;
    for _ in 0..4 {
        if to.is_empty() || target == Target::Fresh {
            to = (0..cores).map(|_| fresh(EACH_BYTES)).collect::<Result<_, _>>()?;
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            for (from, to) in from.iter().zip(&mut to) {
                scope.spawn(|| to.copy_from_slice(from));
            }
        });
        best = best.max((cores * EACH_BYTES) as f64 / started.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn fresh(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::HugePage)?;
    Ok(map)
}

/// A figure of this process' memory, in bytes.
fn resident(key: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).context("no such figure")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

//! A checkpoint's way from the page cache to the cards.
//!
//! Input → output: a shape → its checkpoint with random weights, written to a temporary file,
//! loaded → a row for the first load, which finds new memory on the cards, and for one after it.
//! Invariants: the file was just written, so it is read from the page cache; its bytes are checked
//! on the way by what reads them; it has no name, so it goes with this process.
//!
//! The limit is a copy: each byte read once and written once. Resident memory is what the system
//! says of this process: the most it was during the load, less what it was before and less the
//! shards.

use std::path::Path;
use std::time::Instant;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};

use super::Bench;
use super::error::Error;
use super::generation::Setting;
use super::random;
use super::report::{Column, Form, Table, column};
use ascend_tp::base::{Bytes, DType, Diagnostic, Diagnostics};
use ascend_tp::exec::{Engine, EngineOptions};
use ascend_tp::program::models::{Head, RunShape, checkpoint_tensors, decoder};
use ascend_tp::schedule::plan::Region;
use ascend_tp::weights::{Checkpoint, fill_from};

const COLUMNS: [Column; 9] = [
    column("model", "model", Form::Text),
    column("cards", "cards", Form::Whole),
    column("load", "load", Form::Text),
    column("bytes", "bytes", Form::Bytes),
    column("shard_bytes", "shards", Form::Bytes),
    column("time_ms", "time ms", Form::Decimal),
    column("gb_s", "GB/s", Form::Decimal),
    column("of_copy", "of copy", Form::Percent),
    column("over_shards_bytes", "resident over shards", Form::Bytes),
];

/// Writes a checkpoint and loads it.
///
/// # Errors
/// No room for the file, or the failure of a card.
pub(crate) fn run(bench: &Bench, setting: &Setting) -> Result<Table, Error> {
    let mut table = Table::new("load", format!("Loading {} from the page cache", setting.name), &COLUMNS);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    write(setting, &path)?;
    let checkpoint = Checkpoint::open_file(&path)?;
    // An open file outlives its name: whatever ends the measurement leaves nothing behind.
    folder.close()?;
    for cards in &setting.cards {
        let plans = setting.deployment(*cards).compile(&setting.model)?.into_vec();
        let shards: u64 = plans[0].iter().map(|plan| plan.region_bytes(Region::Weights).0).sum();
        let start = || Engine::start(&bench.cann, plans.clone(), &EngineOptions::default());
        // The host of a virtual machine gives memory when it is first touched, which takes longer
        // than anything here: an engine that is gone leaves pages that it has given.
        start()?.load(|shards| fill_from(&checkpoint, shards, &|_| ()))?;
        let mut engine = start()?;
        for load in ["first", "again"] {
            let before = Resident::restart();
            let started = Instant::now();
            engine.load(|shards| fill_from(&checkpoint, shards, &|_| ()))?;
            let seconds = started.elapsed().as_secs_f64();
            // What was loaded before lies there still.
            let new = if load == "first" { shards } else { 0 };
            let over = before.and_then(|before| Some(Resident::most()?.saturating_sub(before + new)));
            let bytes = checkpoint.bytes().0;
            let moved = (bytes.min(shards) + shards) as f64;
            table.row([
                setting.name.as_str().into(),
                (*cards).into(),
                load.into(),
                (bytes as f64).into(),
                (shards as f64).into(),
                (seconds * 1e3).into(),
                (shards as f64 / seconds / 1e9).into(),
                (moved / seconds / bench.limits.copy_bytes_s).into(),
                over.map(|over| over as f64).into(),
            ]);
        }
    }
    Ok(table)
}

/// Writes every tensor that the model reads, out of one block of numbers.
fn write(setting: &Setting, path: &Path) -> Result<(), Error> {
    let run = RunShape { batch: 1, sequence: 1, cache_length: 1 };
    let program = decoder(&setting.model, run, setting.model.dtype, Head::AllLogits)?;
    let (dtype, name) = match setting.model.dtype {
        DType::F32 => (DType::F32, Dtype::F32),
        DType::F16 => (DType::F16, Dtype::F16),
        _ => (DType::BF16, Dtype::BF16),
    };
    let tensors = checkpoint_tensors(&program);
    let most = tensors.values().map(|shape| shape.elems()).max().unwrap_or(0);
    let block = random::block(dtype, 1 << 20);
    let numbers: Vec<u8> = block.iter().copied().cycle().take(most * dtype.size_bytes()).collect();
    let view = |(tensor, shape): (&String, &ascend_tp::base::Shape)| {
        let bytes = &numbers[..shape.elems() * dtype.size_bytes()];
        let view = TensorView::new(name, shape.sizes().to_vec(), bytes);
        view.map(|view| (tensor.clone(), view)).map_err(|error| refused(path, &error))
    };
    let views = tensors.iter().map(view).collect::<Result<Vec<_>, _>>()?;
    serialize_to_file(views, None, path).map_err(|error| refused(path, &error).into())
}

fn refused(path: &Path, error: &dyn std::fmt::Display) -> Diagnostics {
    Diagnostic::new(path.display().to_string(), "cannot be written").found(error).into()
}

/// Resident memory of this process, where the system tells it.
struct Resident;

impl Resident {
    /// Forgets the most so far; the bytes now.
    fn restart() -> Option<u64> {
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Self::field("VmRSS:")
    }

    /// The most since then.
    fn most() -> Option<u64> {
        Self::field("VmHWM:")
    }

    fn field(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(Bytes(kib << 10).0)
    }
}

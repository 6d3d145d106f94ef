//! Loading a checkpoint with random weights from the page cache to the cards.
//!
//! The first load uses new memory of the cards, and the second reuses it. The reader checks the
//! bytes. The file has no name, so it disappears with the process. The limit is a copy that reads
//! and writes each byte once. Resident memory is the peak during the load, minus the value before
//! and minus the shards.

use std::path::Path;
use std::time::Instant;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};

use super::Bench;
use super::error::Error;
use super::generation::GenerationSetting;
use super::random;
use super::report::{CellForm, Column, MeasuredTable, column};
use ascend_tp::base::{Bytes, DType, Diagnostic, Diagnostics};
use ascend_tp::exec::{Engine, EngineOptions};
use ascend_tp::program::models::{Head, RunShape, checkpoint_tensors, decoder};
use ascend_tp::schedule::plan::Region;
use ascend_tp::weights::{Checkpoint, fill_from};

const COLUMNS: [Column; 9] = [
    column("model", "model", CellForm::Text),
    column("cards", "cards", CellForm::Whole),
    column("load", "load", CellForm::Text),
    column("bytes", "bytes", CellForm::Bytes),
    column("shard_bytes", "shards", CellForm::Bytes),
    column("time_ms", "time ms", CellForm::Decimal),
    column("gb_s", "GB/s", CellForm::Decimal),
    column("of_copy", "of copy", CellForm::Percent),
    column("over_shards_bytes", "resident over shards", CellForm::Bytes),
];

pub(crate) fn run(bench: &Bench, setting: &GenerationSetting) -> Result<MeasuredTable, Error> {
    let mut table =
        MeasuredTable::new("load", format!("Loading {} from the page cache", setting.name), &COLUMNS);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    write(setting, &path)?;
    let checkpoint = Checkpoint::open_file(&path)?;
    // The open file stays readable without its name.
    folder.close()?;
    for cards in &setting.cards {
        let plans = setting.deployment(*cards).compile(&setting.model)?.into_vec();
        let shards: u64 = plans[0].iter().map(|plan| plan.region_bytes(Region::Weights).0).sum();
        let start = || Engine::start(&bench.cann, plans.clone(), &EngineOptions::default());
        // A virtual machine's host allocates memory on first touch, which takes longer than the
        // load. The first engine leaves allocated pages behind.
        start()?.load(|shards| fill_from(&checkpoint, shards, &|_| ()))?;
        let mut engine = start()?;
        for load in ["first", "again"] {
            let before = Resident::restart();
            let started = Instant::now();
            engine.load(|shards| fill_from(&checkpoint, shards, &|_| ()))?;
            let seconds = started.elapsed().as_secs_f64();
            // Earlier shards are still resident.
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

/// Writes all tensors of the model from one block of numbers.
pub(crate) fn write(setting: &GenerationSetting, path: &Path) -> Result<(), Error> {
    let run = RunShape::new(1, 1, 1);
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

/// Resident memory of this process.
struct Resident;

impl Resident {
    /// Resets the peak and returns the current bytes.
    fn restart() -> Option<u64> {
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        Self::field("VmRSS:")
    }

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

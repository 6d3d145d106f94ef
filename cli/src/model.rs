//! The model of a command: a folder, a preset, or the shipped model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ascend_tp::base::{Bytes, DType, Diagnostic, Diagnostics, Packing, Precision, Unpacked};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{ModelConfig, WeightFormat};
use ascend_tp::generate::Model;
use ascend_tp::program::Role;
use ascend_tp::program::models::{Head, QuantisedWeight, RunShape, decoder, quantised_weight, unpacked};
use ascend_tp::world::ProcessGroup;
use clap::Args;

use super::note;
use super::numbers::counted;
use super::values::{Fp8As, PrecisionName};

/// Path of the shipped model, relative to the repository or the installation.
const SHIPPED: &str = "models/kjv-qwen2";

/// Path of a configuration, text and recipe that train in a minute.
const TINY: &str = "models/tiny-qwen2";

const CONFIG: &str = "config.json";

#[derive(Debug, Args)]
pub(super) struct ModelOptions {
    /// Folder with a config.json, or the name of a preset (see `ascend-tp models`)
    #[arg(value_name = "MODEL", required_unless_present = "model", conflicts_with = "model")]
    named: Option<String>,
    /// Same as MODEL
    #[arg(long, value_name = "DIR|NAME", help_heading = "Model")]
    model: Option<String>,
}

impl ModelOptions {
    pub(super) fn name(&self) -> &str {
        // The parser requires one of both.
        self.named.as_deref().or(self.model.as_deref()).unwrap_or_default()
    }
}

/// Returns the given folder, or the folder of the shipped model.
pub(super) fn folder(named: Option<&Path>) -> Result<PathBuf, Diagnostics> {
    match named {
        Some(folder) => Ok(folder.to_path_buf()),
        None => find_shipped(&places_of(SHIPPED)).map_err(Diagnostics::from),
    }
}

/// Returns the folder of the default input of `train`: configuration, tokenizer, text and recipe.
pub(super) fn tiny() -> Result<PathBuf, Diagnostics> {
    find_shipped(&places_of(TINY)).map_err(Diagnostics::from)
}

/// Returns the places to search: the working folder, the folders above the executable, and the
/// source folder of this build.
fn places_of(shipped: &str) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(shipped)];
    if let Ok(executable) = std::env::current_exe() {
        places.extend(executable.ancestors().skip(1).map(|folder| folder.join(shipped)));
    }
    places.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(shipped));
    places
}

fn find_shipped(places: &[PathBuf]) -> Result<PathBuf, Diagnostic> {
    places.iter().find(|place| place.join(CONFIG).is_file()).cloned().ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Diagnostic::new("--model", "not given, and the shipped model was not found")
            .expected(format!("a folder with {CONFIG} at one of {}", looked.join(", ")))
            .help("pass --model DIR")
    })
}

/// Opens a folder, and notes the tensors that no program reads. `predicts` is whether the layer for
/// multi-token prediction is read.
///
/// # Errors
/// All problems of all files.
pub(super) fn open(folder: &Path, group: &ProcessGroup, predicts: bool) -> Result<Model, Diagnostics> {
    let model = Model::open(folder)?;
    let skipped = model.checkpoint.skipped(&model.config, predicts);
    if let Some(skipped) = skipped.filter(|_| group.is_first()) {
        note(&format!("skipped  {skipped}"));
    }
    Ok(model)
}

/// Returns the precision of a checkpoint, and notes weights in fp8 blocks.
///
/// # Errors
/// As [`PrecisionName::with_fp8`] and [`note_fp8`].
pub(super) fn precision(
    config: &ModelConfig,
    dtype: Option<PrecisionName>,
    fp8_as: Option<Fp8As>,
    group: &ProcessGroup,
) -> Result<Precision, Diagnostics> {
    let precision = PrecisionName::with_fp8(dtype, fp8_as, config.dtype)?;
    note_fp8(config, fp8_as, precision, group).map(|()| precision)
}

/// Notes the weights in 4-bit groups that become floats in a deployment, with the reason.
///
/// # Errors
/// As [`decoder`].
pub(super) fn note_unpacked(
    config: &ModelConfig,
    deployment: &Deployment,
    group: &ProcessGroup,
) -> Result<(), Diagnostics> {
    if !group.is_first() || !config.formats.is_quantised() {
        return Ok(());
    }
    let precision = deployment.on_cards(deployment.precision);
    let program = decoder(config, RunShape::new(1, 1, 1), precision, Head::AllLogits)?;
    let mut reasons: BTreeMap<Unpacked, usize> = BTreeMap::new();
    for reason in program.with_role(Role::Param).filter_map(|id| unpacked(&program, id)) {
        *reasons.entry(reason).or_default() += 1;
    }
    for (reason, count) in reasons {
        let count = counted(count, "weight");
        note(&format!("int4     {count} in 4-bit groups become {}: {reason}", precision.activations));
    }
    Ok(())
}

/// Notes the weights that are stored in fp8 blocks, and the type that they become.
///
/// # Errors
/// `--fp8-as` is given, and the checkpoint has no such weights.
fn note_fp8(
    config: &ModelConfig,
    fp8_as: Option<Fp8As>,
    precision: Precision,
    group: &ProcessGroup,
) -> Result<(), Diagnostics> {
    let program = decoder(config, RunShape::new(1, 1, 1), precision, Head::AllLogits)?;
    let (mut tensors, mut stored, mut on_cards, mut to) = (BTreeSet::new(), Bytes(0), Bytes(0), None);
    for id in program.with_role(Role::Param) {
        let value = &program.values[id];
        let Some(QuantisedWeight { format, stored: bytes }) = quantised_weight(value) else { continue };
        if !matches!(format, WeightFormat::Packed(Packing::Fp8 { .. })) {
            continue;
        }
        let source = value.source.as_ref().and_then(|source| source.stack(&value.shape).ok());
        tensors.extend(source.iter().flat_map(|stack| stack.names.iter()));
        stored = Bytes(stored.0 + bytes.0);
        on_cards = Bytes(on_cards.0 + Bytes::of(value.shape.elems(), value.dtype.size_bytes()).0);
        to = to.or(Some((format, value.dtype)));
    }
    match (to, fp8_as) {
        (None, None) => {}
        (None, Some(_)) => {
            let problem = Diagnostic::new("--fp8-as", "the checkpoint has no weights in fp8 blocks");
            return Err(problem.help("remove --fp8-as").into());
        }
        (Some((format, dtype)), _) if group.is_first() => {
            let count = counted(tensors.len(), "weight");
            let name = if dtype == DType::I8 { "int8" } else { dtype.name() };
            note(&format!(
                "fp8      {count} in {format} ({stored}) become {name} ({on_cards}, over all cards)"
            ));
        }
        (Some(_), _) => {}
    }
    Ok(())
}

/// Returns the name and configuration of a preset or of a folder.
///
/// The name of a preset means the preset; write `./NAME` for a folder with the same name.
///
/// # Errors
/// `named` is neither a preset nor a folder, or all problems of the folder's config.json.
pub(super) fn config(named: &str) -> Result<(String, ModelConfig), Diagnostics> {
    if let Some(config) = ModelConfig::preset(named) {
        return Ok((named.to_owned(), config));
    }
    let folder = Path::new(named);
    if !folder.is_dir() {
        let names: Vec<&str> = ModelConfig::presets().collect();
        return Err(Diagnostic::new("--model", "neither a folder nor a preset")
            .expected(format!("a folder with a {CONFIG}, or one of {}", names.join(", ")))
            .found(named)
            .into());
    }
    Ok((named.to_owned(), Model::open_config(folder)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_model_is_found_from_the_repository() {
        let found = folder(None).unwrap();
        assert!(found.ends_with(SHIPPED) && found.join(CONFIG).is_file());
        assert_eq!(folder(Some(Path::new("elsewhere"))).unwrap(), Path::new("elsewhere"));
    }

    #[test]
    fn the_first_place_wins_and_all_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let places = [root.path().join("a"), root.path().join("b"), root.path().join("c")];
        let message = find_shipped(&places).unwrap_err().to_string();
        for place in &places {
            assert!(message.contains(&place.display().to_string()), "{message}");
        }
        for place in &places[1..] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join(CONFIG), "{}").unwrap();
        }
        assert_eq!(find_shipped(&places).unwrap(), places[1]);
    }

    #[test]
    fn a_name_is_a_preset_or_a_folder() {
        assert_eq!(config("qwen-72b").unwrap().1.layers, 80);
        let shipped = folder(None).unwrap();
        assert_eq!(config(&shipped.display().to_string()).unwrap().1.layers, 8);
        let message = config("qwen-7b").unwrap_err().to_string();
        assert!(message.contains("llama-3-70b") && message.ends_with("found qwen-7b"), "{message}");
    }
}

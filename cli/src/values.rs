//! Option values of several commands: devices, element types, layouts and counts.

use ascend_tp::base::{DType, Diagnostic, Diagnostics, KvType, Precision};
use ascend_tp::config::{ModelConfig, QuantisedFormat};
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::train::recipe;
use ascend_tp_planner::train::simulated;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DeviceKind {
    /// The NPUs if a CANN toolkit is installed, else the emulator
    Auto,
    /// Eight emulated cards on the CPU
    Emulator,
    /// The NPUs of this host
    Npu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PrecisionName {
    F32,
    F16,
    Bf16,
    #[value(
        help = "8-bit weights and products in linear layers, quantised at load time; other layers use the model's 16-bit type"
    )]
    W8a8,
}

impl PrecisionName {
    pub(super) fn of(self, own: DType) -> Precision {
        match self {
            Self::F32 => DType::F32.into(),
            Self::F16 => DType::F16.into(),
            Self::Bf16 => DType::BF16.into(),
            Self::W8a8 => Precision::w8a8(own),
        }
    }

    /// Returns the precision of a checkpoint of type `own`, or `dtype` if given. `fp8_as` says how
    /// weights in fp8 blocks are multiplied.
    ///
    /// # Errors
    /// 8-bit products with a type that is not a 16-bit float.
    pub(super) fn with_fp8(
        dtype: Option<Self>,
        fp8_as: Option<Fp8As>,
        own: DType,
    ) -> Result<Precision, Diagnostic> {
        match (dtype, fp8_as) {
            (_, None | Some(Fp8As::Bf16)) => Ok(dtype.map_or(own.into(), |name| name.of(own))),
            (None, Some(Fp8As::Int8)) => Ok(Precision::fp8_as_int8(own)),
            (Some(Self::F16), Some(Fp8As::Int8)) => Ok(Precision::fp8_as_int8(DType::F16)),
            (Some(Self::Bf16), Some(Fp8As::Int8)) => Ok(Precision::fp8_as_int8(DType::BF16)),
            (Some(name @ (Self::F32 | Self::W8a8)), Some(Fp8As::Int8)) => {
                Err(Diagnostic::new("--fp8-as int8", "activations have another type than 16-bit floats")
                    .expected("--dtype bf16 or f16")
                    .found(name.of(own).name()))
            }
        }
    }

    pub(super) fn of_training(self) -> Result<recipe::TrainingPrecision, Diagnostic> {
        match self {
            Self::F32 => Ok(recipe::TrainingPrecision::F32),
            Self::F16 => Ok(recipe::TrainingPrecision::F16),
            Self::Bf16 => Ok(recipe::TrainingPrecision::Bf16),
            Self::W8a8 => Err(Diagnostic::new("--dtype", "training does not support 8 bits")
                .expected("f32, bf16 or f16")
                .found("w8a8")),
        }
    }
}

/// How weights in fp8 blocks are multiplied on chips without products of fp8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fp8As {
    #[value(help = "Floats of the type of --dtype")]
    Bf16,
    #[value(help = "8-bit integers with one scale per output; inputs get one scale per token")]
    Int8,
}

/// Representation of KV caches.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CacheOptions {
    /// Element type of KV caches: that of activations, or int8 with a scale per token and key head
    #[arg(long, value_enum, default_value = "auto", value_name = "TYPE")]
    kv_dtype: KvDtype,
}

impl CacheOptions {
    pub(super) const fn kv(self) -> KvType {
        match self.kv_dtype {
            KvDtype::Auto => KvType::Activations,
            KvDtype::Int8 => KvType::Int8,
        }
    }
}

/// Element types of KV caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KvDtype {
    #[value(help = "The type of activations")]
    Auto,
    #[value(help = "8-bit integers with one f32 scale per token and key head")]
    Int8,
}

/// Element types of a model of which only the configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedPrecision {
    /// The types that float weights can be loaded in.
    Loaded(PrecisionName),
    /// The weights are in this format in the files.
    Published(QuantisedFormat),
}

impl ValueEnum for PlannedPrecision {
    fn value_variants<'a>() -> &'a [Self] {
        use PlannedPrecision::{Loaded, Published};
        &[
            Loaded(PrecisionName::F32),
            Loaded(PrecisionName::F16),
            Loaded(PrecisionName::Bf16),
            Loaded(PrecisionName::W8a8),
            Published(QuantisedFormat::W8A8Dynamic),
            Published(QuantisedFormat::W4A16 { group: 32 }),
            Published(QuantisedFormat::W4A16 { group: 64 }),
            Published(QuantisedFormat::W4A16 { group: 128 }),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Loaded(name) => name.to_possible_value(),
            Self::Published(format) => {
                let help = match format {
                    QuantisedFormat::W8A8Dynamic => {
                        "the files have 8-bit integers, as msModelSlim writes them"
                    }
                    QuantisedFormat::W4A16 { .. } => {
                        "the files have groups of 4-bit integers, which stay packed on the cards"
                    }
                };
                Some(PossibleValue::new(format.name()).help(help))
            }
        }
    }
}

impl PlannedPrecision {
    /// Returns the configuration and the precision of a model. Without an option, weights have the
    /// model's own type.
    ///
    /// # Errors
    /// All layers that do not fit the format.
    pub(super) fn of(
        wanted: Option<Self>,
        config: ModelConfig,
    ) -> Result<(ModelConfig, Precision), Diagnostics> {
        let own = config.dtype;
        match wanted {
            None => Ok((config, own.into())),
            Some(Self::Loaded(name)) => Ok((config, name.of(own))),
            Some(Self::Published(format)) => Ok((config.quantised(format)?, own.into())),
        }
    }

    pub(super) fn of_training(self) -> Result<recipe::TrainingPrecision, Diagnostic> {
        match self {
            Self::Loaded(name) => name.of_training(),
            Self::Published(format) => Err(Diagnostic::new("--dtype", "quantised weights cannot be trained")
                .expected("f32, bf16 or f16")
                .found(format)),
        }
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct LayoutOptions {
    /// Residual stream between layers: replicated on every card, or sharded along the sequence
    #[arg(
        long,
        value_enum,
        default_value = "replicate",
        value_name = "LAYOUT",
        help_heading = "Parallelism"
    )]
    residual: ResidualLayout,
    /// Experts of a mixture: whole experts on each card, or a part of every expert
    #[arg(long, value_enum, default_value = "ep", value_name = "LAYOUT", help_heading = "Parallelism")]
    experts: ExpertLayout,
}

impl LayoutOptions {
    pub(super) fn residual(self) -> Residual {
        match self.residual {
            ResidualLayout::Replicate => Residual::Replicate,
            ResidualLayout::Seq => Residual::Seq,
        }
    }

    pub(super) fn experts(self) -> ExpertShards {
        match self.experts {
            ExpertLayout::Ep => ExpertShards::Whole,
            ExpertLayout::Tp => ExpertShards::Inner,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExpertLayout {
    #[value(help = "Expert parallelism: each card has some of the experts")]
    Ep,
    #[value(help = "Tensor parallelism: each card has a part of every expert")]
    Tp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ResidualLayout {
    #[value(help = "One all_reduce after each row-parallel weight")]
    Replicate,
    #[value(
        help = "One reduce_scatter after each row-parallel weight, and one all_gather before the next column-parallel weight"
    )]
    Seq,
}

/// Every rank has a separate plan, so compile time grows with the number of cards. Larger numbers
/// are not useful for tensor parallelism.
pub(super) const MOST_PLANNED_CARDS: usize = simulated::MOST_CARDS;

pub(super) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("expected a whole number of at least 1, found {text}")),
        Ok(number) => Ok(number),
    }
}

/// Limit of the processes on one host, far above the number of cards.
pub(super) const MOST_STARTED: usize = 1024;

pub(super) fn started_processes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(processes @ 1..=MOST_STARTED) => Ok(processes),
        _ => Err(format!("expected 1 to {MOST_STARTED} processes, found {text}")),
    }
}

pub(super) fn planned_cards(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cards @ 1..=MOST_PLANNED_CARDS) => Ok(cards),
        _ => Err(format!("expected 1 to {MOST_PLANNED_CARDS} cards, found {text}")),
    }
}

//! One way to split a training job over cards.

use std::fmt;

use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::{Recompute, Zero};

/// What settings that are tried compute again.
pub(super) const RECOMPUTES: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];

/// Which ranks are neighbours, innermost first. Tensor and context parallelism exchange in every layer and stay innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RankOrder {
    /// Copies of a stage are nearer than stages.
    DataInside,
    /// Stages of a copy are nearer than copies.
    StagesInside,
}

impl RankOrder {
    /// Both orders there are.
    pub const ALL: [Self; 2] = [Self::DataInside, Self::StagesInside];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataInside => "tp-cp-dp-pp",
            Self::StagesInside => "tp-cp-pp-dp",
        }
    }
}

/// One way to split a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobSplit {
    /// Cards that share each layer.
    pub tp: usize,
    /// Whether the residual stream between products is split over them along the sequence.
    pub sequence_parallel: bool,
    /// Cards that share each sequence.
    pub cp: usize,
    /// Stages of the pipeline.
    pub pp: usize,
    /// Their order of work.
    pub schedule: Pipeline,
    /// Copies of the model.
    pub dp: usize,
    /// What is split over the copies.
    pub zero: Zero,
    /// What is computed twice.
    pub recompute: Recompute,
    /// Sequences a copy works on at once.
    pub micro_batch: usize,
    /// Who is near whom.
    pub order: RankOrder,
}

impl JobSplit {
    /// The names [`Self::value`] knows, in the order they are printed.
    pub const KEYS: [&'static str; 10] =
        ["tp", "sp", "cp", "pp", "schedule", "dp", "zero", "recompute", "micro", "order"];

    /// One of its values as text.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<String> {
        Some(match key {
            "tp" => self.tp.to_string(),
            "sp" => if self.sequence_parallel { "on" } else { "off" }.to_owned(),
            "cp" => self.cp.to_string(),
            "pp" => self.pp.to_string(),
            "schedule" => self.schedule.to_string(),
            "dp" => self.dp.to_string(),
            "zero" => self.zero.stage().to_string(),
            "recompute" => self.recompute.to_string(),
            "micro" => self.micro_batch.to_string(),
            "order" => self.order.name().to_owned(),
            _ => return None,
        })
    }

    /// Whether whole layers are computed again. The planner knows all layers or none: a number of them counts as all.
    #[must_use]
    pub const fn recomputes_layers(&self) -> bool {
        matches!(self.recompute, Recompute::Full | Recompute::Layers(_))
    }

    /// Cards it takes.
    #[must_use]
    pub const fn cards(&self) -> usize {
        self.tp * self.cp * self.pp * self.dp
    }

    /// Micro-batches of a step of `global_batch` sequences, on the copies that have the most of them.
    #[must_use]
    pub const fn micro_batches(&self, global_batch: usize) -> usize {
        global_batch.div_ceil(self.dp * self.micro_batch)
    }

    /// Cards from one copy of a stage to the next.
    #[must_use]
    pub const fn data_stride(&self) -> usize {
        match self.order {
            RankOrder::DataInside => self.tp * self.cp,
            RankOrder::StagesInside => self.tp * self.cp * self.pp,
        }
    }

    /// Cards from one stage to the next.
    #[must_use]
    pub const fn stage_stride(&self) -> usize {
        match self.order {
            RankOrder::DataInside => self.tp * self.cp * self.dp,
            RankOrder::StagesInside => self.tp * self.cp,
        }
    }
}

impl fmt::Display for JobSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in Self::KEYS.into_iter().enumerate() {
            let value = self.value(key).unwrap_or_default();
            write!(f, "{}{key}={value}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

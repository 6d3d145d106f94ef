//! One way to split a training job.

use std::fmt;

use ascend_tp::placement::Residual;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::{Layout, Recompute, Zero};

pub(super) const RECOMPUTES: [Recompute; 3] = [Recompute::None, Recompute::Selective, Recompute::Full];

/// Order of neighbouring ranks. Tensor and context axes communicate in every layer and stay
/// innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RankOrder {
    /// Copies of a stage are neighbours.
    DataInside,
    /// Stages of a copy are neighbours.
    StagesInside,
}

impl RankOrder {
    /// The two orders of ranks.
    pub const ALL: [Self; 2] = [Self::DataInside, Self::StagesInside];

    /// Returns the table name.
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
    /// Number of cards per layer.
    pub tp: usize,
    /// These cards shard the residual stream along the sequence.
    pub sequence_parallel: bool,
    /// Number of cards per sequence.
    pub cp: usize,
    /// Number of pipeline stages.
    pub pp: usize,
    /// Schedule of the pipeline.
    pub schedule: Pipeline,
    /// Number of model copies.
    pub dp: usize,
    /// Number of copies that share the routed experts. A divisor of `dp`.
    pub ep: usize,
    /// State sharded over the copies.
    pub zero: Zero,
    /// Recomputation in the backward pass.
    pub recompute: Recompute,
    /// Sequences per micro-batch and copy.
    pub micro_batch: usize,
    /// Order of neighbouring ranks.
    pub order: RankOrder,
}

impl JobSplit {
    /// Returns the layout of `train`, or `None` for an order of ranks that `train` does not have.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        let layout = Layout {
            data: self.dp,
            expert: self.ep,
            context: self.cp,
            tensor: self.tp,
            stages: self.pp,
            residual: if self.sequence_parallel { Residual::Seq } else { Residual::Replicate },
            zero: self.zero,
            micro_batch: self.micro_batch,
            recompute: self.recompute,
            ..Layout::ONE
        };
        (self.order == RankOrder::DataInside).then_some(layout)
    }

    /// Keys for [`Self::value`], in print order.
    pub const KEYS: [&'static str; 11] =
        ["tp", "sp", "cp", "pp", "schedule", "dp", "ep", "zero", "recompute", "micro", "order"];

    /// Returns the value of a key as text.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<String> {
        Some(match key {
            "tp" => self.tp.to_string(),
            "sp" => if self.sequence_parallel { "on" } else { "off" }.to_owned(),
            "cp" => self.cp.to_string(),
            "pp" => self.pp.to_string(),
            "schedule" => self.schedule.to_string(),
            "dp" => self.dp.to_string(),
            "ep" => self.ep.to_string(),
            "zero" => self.zero.stage().to_string(),
            "recompute" => self.recompute.to_string(),
            "micro" => self.micro_batch.to_string(),
            "order" => self.order.name().to_owned(),
            _ => return None,
        })
    }

    /// Returns whether whole layers are recomputed. Partial recomputation counts as full.
    #[must_use]
    pub const fn recomputes_layers(&self) -> bool {
        matches!(self.recompute, Recompute::Full | Recompute::Layers(_))
    }

    /// Returns the number of cards.
    #[must_use]
    pub const fn cards(&self) -> usize {
        self.tp * self.cp * self.pp * self.dp
    }

    /// Returns the micro-batches of the busiest copies.
    #[must_use]
    pub const fn micro_batches(&self, global_batch: usize) -> usize {
        global_batch.div_ceil(self.dp * self.micro_batch)
    }

    /// Returns the rank distance between copies.
    #[must_use]
    pub const fn data_stride(&self) -> usize {
        match self.order {
            RankOrder::DataInside => self.tp * self.cp,
            RankOrder::StagesInside => self.tp * self.cp * self.pp,
        }
    }

    /// Returns the rank distance between stages.
    #[must_use]
    pub const fn stage_stride(&self) -> usize {
        match self.order {
            RankOrder::DataInside => self.tp * self.cp * self.dp,
            RankOrder::StagesInside => self.tp * self.cp,
        }
    }
}

impl fmt::Display for JobSplit {
    /// Prints all keys, without `ep=1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = Self::KEYS.into_iter().filter(|key| *key != "ep" || self.ep > 1);
        for (index, key) in keys.enumerate() {
            let value = self.value(key).unwrap_or_default();
            write!(f, "{}{key}={value}", if index > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

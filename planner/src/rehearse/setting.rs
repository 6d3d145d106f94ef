//! The setting of a rehearsal and its checks.

use ascend_tp::base::{Diagnostic, Diagnostics, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::KernelSource;
use ascend_tp::exec::Launching;
use ascend_tp::placement::{ExpertShards, Residual};
use ascend_tp::program::models::Head;
use ascend_tp::schedule::{Plan, Target};
use ascend_tp_machine::{Profile, Topology};

use super::error::Error;

/// Cards of a rehearsal and their topology.
#[derive(Clone, Debug)]
pub struct Site {
    /// Number of cards in use.
    pub cards: usize,
    /// Servers with equally many ranks on their first cards. `None`: the first cards of the
    /// topology.
    pub servers: Option<usize>,
    /// Chip and its speeds.
    pub profile: Profile,
    /// Topology that connects the cards.
    pub topology: Topology,
    /// Kernels of the cards.
    pub kernels: KernelSource,
}

/// Model, cards and workload: `batch` sequences read `input` prompt tokens and generate `output`
/// tokens each.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Display name of the model.
    pub name: String,
    /// Configuration of the model.
    pub model: ModelConfig,
    /// Cards and their topology.
    pub site: Site,
    /// Pipeline stages on equally many cards.
    pub stages: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of each prompt.
    pub input: usize,
    /// Number of decode steps.
    pub output: usize,
    /// Element types of weights and activations.
    pub precision: Precision,
    /// Residual stream during prefill.
    pub residual: Residual,
    /// How cards share the experts of mixtures.
    pub experts: ExpertShards,
    /// Launch mode of the plans: eager or captured.
    pub launching: Launching,
}

/// Each rank has a plan and a thread, and one model does not use more cards.
pub const MOST_CARDS: usize = 256;

/// Products of larger numbers overflow.
const MOST_SEQUENCES: usize = 1 << 20;

fn within(problems: &mut Diagnostics, place: &str, value: usize, most: usize) {
    if value == 0 || value > most {
        let problem = Diagnostic::new(place, if value == 0 { "nothing to do" } else { "is too large" });
        problems.push(problem.expected(format!("1 to {most}")).found(value));
    }
}

impl Site {
    pub(super) fn check(&self, problems: &mut Diagnostics) {
        within(problems, "--cards", self.cards, MOST_CARDS);
        within(problems, "--servers", self.servers.unwrap_or(1), MOST_CARDS);
        if let Some(servers) =
            self.servers.filter(|servers| *servers > 0 && !self.cards.is_multiple_of(*servers))
        {
            let problem = Diagnostic::new("--servers", "the cards do not divide evenly");
            problems.push(problem.expected(format!("a divisor of {} cards", self.cards)).found(servers));
        }
        if let Err(found) = self.topology.check("--topology") {
            for problem in found.0 {
                let known = Diagnostic::new(problem.place, problem.what);
                problems.push(known.expected(problem.expected).found(problem.found));
            }
        } else if let Some(last) =
            self.placement().into_iter().max().filter(|last| *last >= self.topology.cards())
        {
            let found = format!("{}, and the last has index {last}", self.cards);
            let problem =
                Diagnostic::new("--topology", format!("`{}` has too few cards", self.topology.name));
            problems.push(problem.expected(format!("at most {} cards", self.topology.cards())).found(found));
        }
    }

    /// Returns the card of each rank. A server is a unit of the smallest level with enough cards.
    #[must_use]
    pub fn placement(&self) -> Vec<usize> {
        let Some(servers) = self.servers.filter(|servers| *servers > 0) else {
            return (0..self.cards).collect();
        };
        let each = self.cards.div_ceil(servers).max(1);
        let sizes = self.topology.levels.iter().map(|level| level.cards);
        let server = sizes.filter(|cards| *cards >= each).min().unwrap_or(each);
        (0..self.cards).map(|rank| rank / each * server + rank % each).collect()
    }

    pub(super) fn rank_names(&self) -> Vec<String> {
        let placement = self.placement();
        placement.iter().enumerate().map(|(rank, card)| format!("rank {rank} (card {card})")).collect()
    }

    pub(super) fn link_name(&self, ranks: &[usize]) -> String {
        let placement = self.placement();
        let unit = |cards: usize| {
            let mut units = ranks.iter().map(|rank| placement[*rank] / cards.max(1));
            let first = units.next();
            units.all(|unit| Some(unit) == first)
        };
        let levels = &self.topology.levels;
        let spanning = levels.iter().find(|level| unit(level.cards)).or(levels.last());
        spanning.map_or_else(String::new, |level| level.name.clone())
    }
}

impl Setting {
    /// Reports all problems.
    ///
    /// # Errors
    /// The setting has problems.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        within(&mut problems, "--batch", self.batch, MOST_SEQUENCES);
        within(&mut problems, "--input", self.input, self.model.max_positions);
        within(&mut problems, "--output", self.output, self.model.max_positions);
        let length = self.input.saturating_add(self.output);
        if self.input <= self.model.max_positions
            && self.output <= self.model.max_positions
            && length > self.model.max_positions
        {
            let found = format!("{} of --input and {} of --output", self.input, self.output);
            let problem = Diagnostic::new("--input", "more tokens than the model's context");
            problems.push(problem.expected(format!("at most {}", self.model.max_positions)).found(found));
        }
        self.site.check(&mut problems);
        problems.into_result(())
    }

    /// Returns the deployment, without links.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        Deployment {
            stages: self.stages,
            precision: self.precision,
            residual: self.residual,
            experts: self.experts,
            batch: self.batch,
            longest_prompt: self.input,
            context: self.input + self.output,
            head: Head::LastToken,
            target: Target::of(self.site.profile.soc, self.site.kernels.kernels()),
            ..Deployment::of(&self.model, self.site.cards)
        }
    }

    /// Compiles both programs, by program and rank.
    ///
    /// # Errors
    /// The compiler refuses the deployment.
    pub fn compile(&self) -> Result<Vec<Vec<Plan>>, Error> {
        Ok(self.deployment().compile(&self.model)?.into_vec())
    }
}

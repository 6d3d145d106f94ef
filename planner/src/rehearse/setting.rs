//! What is rehearsed, checked.

use ascend_tp::base::{Diagnostic, Diagnostics, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::device::KernelSource;
use ascend_tp::exec::Launching;
use ascend_tp::placement::Residual;
use ascend_tp::program::models::Head;
use ascend_tp::schedule::{Plan, Target};
use ascend_tp_machine::{Profile, Topology};

use super::error::Error;

/// Cards that a rehearsal is on.
#[derive(Clone, Debug)]
pub struct Site {
    /// How many cards there are.
    pub cards: usize,
    /// Servers to spread them over evenly, from the first card of each on; none: the first cards of
    /// the topology.
    pub servers: Option<usize>,
    /// The chip, with what is known of its speed.
    pub profile: Profile,
    /// How the cards are joined.
    pub topology: Topology,
    /// Where cards have kernels from.
    pub kernels: KernelSource,
}

/// A model, cards, and what they are to do: read `input` tokens of each of `batch` sequences, then
/// make `output` more.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What to call the model.
    pub name: String,
    /// The sizes of the model.
    pub model: ModelConfig,
    /// The cards to split over.
    pub site: Site,
    /// Stages of a pipeline, each of some of the layers on as many of the cards.
    pub stages: usize,
    /// Sequences at once.
    pub batch: usize,
    /// Tokens of each prompt.
    pub input: usize,
    /// Number of decode steps.
    pub output: usize,
    /// What weights and activations are.
    pub precision: Precision,
    /// How the residual stream lies during prefill.
    pub residual: Residual,
    /// How the steps of a plan reach the cards.
    pub launching: Launching,
}

/// Every rank has a plan and a thread of its own; one model on more cards than these is no tensor
/// parallelism any more.
pub const MOST_CARDS: usize = 256;

/// More sequences or steps than these no run has; the products of larger numbers would not fit the
/// arithmetic.
const MOST_SEQUENCES: usize = 1 << 20;

/// Adds what is wrong with a number that is to be from 1 to `most`.
fn within(problems: &mut Diagnostics, place: &str, value: usize, most: usize) {
    if value == 0 || value > most {
        let problem = Diagnostic::new(place, if value == 0 { "nothing to do" } else { "is absurd" });
        problems.push(problem.expected(format!("1 to {most}")).found(value));
    }
}

impl Site {
    /// What is wrong with the numbers, all of it.
    pub(super) fn check(&self, problems: &mut Diagnostics) {
        within(problems, "--cards", self.cards, MOST_CARDS);
        within(problems, "--servers", self.servers.unwrap_or(1), MOST_CARDS);
        if let Some(servers) =
            self.servers.filter(|servers| *servers > 0 && !self.cards.is_multiple_of(*servers))
        {
            let problem = Diagnostic::new("--servers", "the cards do not spread evenly");
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
            let found = format!("{}, of which the last is at place {last}", self.cards);
            let problem =
                Diagnostic::new("--topology", format!("`{}` has too few cards", self.topology.name));
            problems.push(problem.expected(format!("at most {} cards", self.topology.cards())).found(found));
        }
    }

    /// The card of each rank. A server is a unit of the innermost level that has the cards of one.
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

    /// What each rank is called in a trace.
    pub(super) fn rank_names(&self) -> Vec<String> {
        let placement = self.placement();
        placement.iter().enumerate().map(|(rank, card)| format!("rank {rank} (card {card})")).collect()
    }

    /// The links a group's exchange crosses at most: the innermost level of the topology that spans
    /// it.
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
    /// What is wrong with the sizes, all of it.
    ///
    /// # Errors
    /// Something is.
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

    /// What a session is made of, without the links.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        Deployment {
            stages: self.stages,
            precision: self.precision,
            residual: self.residual,
            batch: self.batch,
            longest_prompt: self.input,
            context: self.input + self.output,
            head: Head::LastToken,
            target: Target::of(self.site.profile.soc, self.site.kernels.kernels()),
            ..Deployment::of(&self.model, self.site.cards)
        }
    }

    /// The plans of both programs of a session, by program and rank.
    ///
    /// # Errors
    /// What the compiler refuses.
    pub fn compile(&self) -> Result<Vec<Vec<Plan>>, Error> {
        Ok(self.deployment().compile(&self.model)?.into_vec())
    }
}

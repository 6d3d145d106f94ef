//! The best way to serve a model on some cards, and what beat the others.
//!
//! Input → output: a [`ServingRequest`] → every way to split the cards ([`ServingSplit`]): replicas, tensor parallelism over one axis with
//! key heads on sub-axes or over rows and columns, the residual stream of prefill, single calls or a captured graph, and
//! where in the topology a replica's cards lie; each compiled to the plans that would run, of some layers, its bytes
//! counted and its time simulated. Best first; what cannot run comes last, with the constraint that rules it out.
//!
//! Invariants: a candidate that does not fit its card or misses a limit is never among the feasible; every reason is a
//! difference of simulated terms. Does not: serve over pipeline stages, which the runtime does not run, nor batch
//! continuously: all prompts come together and all sequences end together.

mod reason;

use std::fmt;

use ascend_tp_machine::{Profile, Spread, Topology};

pub use reason::{difference, terms_us};

use super::fit_memory::CardMemory;
use super::simulate::{Breakdown, Simulator};
use ascend_tp::base::{Bytes, Diagnostic, Diagnostics, Kernels, Precision};
use ascend_tp::compile::{Deployment, Programs};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::placement::{Grid, ROWS, Residual};
use ascend_tp::program::models::Head;
use ascend_tp::schedule::{Plan, Target};

/// Most cards and sequences a search takes: beyond them every rank's plans would take minutes.
const MOST_CARDS: usize = 1024;
const MOST_SEQUENCES: usize = 1 << 16;

/// Cards of one replica at most. A model cut over more exchanges more than it computes.
const MOST_TENSOR_PARALLEL: usize = 64;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct ServingRequest<'a> {
    /// The model that is served.
    pub config: &'a ModelConfig,
    /// Element type of activations, and how weights are held.
    pub precision: Precision,
    /// What its chip can do.
    pub profile: &'a Profile,
    /// How the cards are joined.
    pub topology: &'a Topology,
    /// Cards there are.
    pub cards: usize,
    /// Sequences at once.
    pub batch: usize,
    /// Tokens of each prompt.
    pub input_tokens: usize,
    /// Tokens generated for each.
    pub output_tokens: usize,
    /// What is best.
    pub objective: Objective,
    /// Most time per token, in microseconds.
    pub max_token_us: Option<f64>,
    /// What a communicator takes of each of its cards.
    pub communicator: Bytes,
}

/// What is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Objective {
    /// The most tokens a second.
    Throughput,
    /// The least time per token.
    Latency,
}

/// Where the cards of a replica lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CardPlacement {
    /// Side by side.
    Packed,
    /// As far from each other as there are cards.
    Spread,
}

/// One way to use the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServingSplit {
    /// Cards of a replica.
    pub tensor_parallel: usize,
    /// Rows of a grid of these, which cut weights along the hidden size; 1: one axis cuts them.
    pub rows: usize,
    /// Of the columns, parts that key heads are cut in; the others repeat them.
    pub key_parts: usize,
    /// Copies of the model that serve side by side.
    pub replicas: usize,
    /// How the residual stream lies during prefill.
    pub residual: Residual,
    /// How the work of decode steps reaches a card.
    pub issue: Launching,
    /// Where the cards of a replica lie.
    pub place: CardPlacement,
}

impl ServingSplit {
    /// Its properties, by the names a user gives them.
    #[must_use]
    pub fn properties(&self) -> [(&'static str, String); 7] {
        let place = match self.place {
            CardPlacement::Packed => "packed",
            CardPlacement::Spread => "spread",
        };
        [
            ("tp", self.tensor_parallel.to_string()),
            ("tp_row", self.rows.to_string()),
            ("kv", self.key_parts.to_string()),
            ("dp", self.replicas.to_string()),
            ("residual", self.residual.name().to_owned()),
            ("issue", self.issue.name().to_owned()),
            ("place", place.to_owned()),
        ]
    }

    /// Whether it has every property of a list such as `tp=8,residual=seq`.
    ///
    /// # Errors
    /// An entry that is no property.
    pub fn matches(&self, wanted: &str) -> Result<bool, Diagnostic> {
        let properties = self.properties();
        let mut all = true;
        for entry in wanted.split([',', ' ']).filter(|entry| !entry.is_empty()) {
            let known = entry.split_once('=').and_then(|(name, value)| {
                let (_, own) = properties.iter().find(|(property, _)| *property == name)?;
                Some(own == value)
            });
            all &= known.ok_or_else(|| {
                let names = properties.iter().map(|(name, _)| format!("{name}=…")).collect::<Vec<_>>().join(", ");
                Diagnostic::new("--why", "no property of a split").expected(names).found(entry)
            })?;
        }
        Ok(all)
    }
}

impl fmt::Display for ServingSplit {
    /// `tp=8 dp=2 residual=seq captured`, with `tp_row=2`, `kv=4` and `spread` where they say something.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tp={}", self.tensor_parallel)?;
        if self.rows > 1 {
            write!(f, " tp_row={}", self.rows)?;
        }
        if self.key_parts != self.tensor_parallel / self.rows {
            write!(f, " kv={}", self.key_parts)?;
        }
        write!(f, " dp={}", self.replicas)?;
        if self.residual == Residual::Seq {
            f.write_str(" residual=seq")?;
        }
        write!(f, " {}", self.issue.name())?;
        if self.place == CardPlacement::Spread {
            f.write_str(" spread")?;
        }
        Ok(())
    }
}

/// One way to use the cards, with what it takes.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// How the cards are used.
    pub split: ServingSplit,
    /// Sequences of each replica.
    pub batch: usize,
    /// Bytes of the fullest card.
    pub memory: CardMemory,
    /// The prefill of the slowest rank.
    pub prefill: Breakdown,
    /// A decode step of the slowest rank.
    pub decode: Breakdown,
    /// Names of the levels of the topology that a replica exchanges over, innermost first.
    pub levels: Vec<String>,
    /// Sequences of all replicas and tokens of each.
    wanted: (usize, usize),
    /// What rules it out.
    pub constraint: Option<Diagnostic>,
}

impl Candidate {
    /// From the prompts to the first token, in microseconds.
    #[must_use]
    pub const fn first_token_us(&self) -> f64 {
        self.prefill.duration_us
    }

    /// From one token of a sequence to the next, in microseconds.
    #[must_use]
    pub const fn token_us(&self) -> f64 {
        self.decode.duration_us
    }

    /// From the prompts to the last token, in microseconds.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.first_token_us() + (self.wanted.1 - 1) as f64 * self.token_us()
    }

    /// Tokens generated in a second, by all replicas.
    #[must_use]
    pub fn tokens_per_s(&self) -> f64 {
        (self.wanted.0 * self.wanted.1) as f64 / self.total_us() * 1e6
    }

    /// Cards that have nothing to do, of so many.
    #[must_use]
    pub const fn idle_cards(&self, cards: usize) -> usize {
        cards - self.split.tensor_parallel * self.split.replicas
    }

    /// Less is better.
    fn rank(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Throughput => self.total_us(),
            Objective::Latency => self.token_us(),
        }
    }
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// What can run, best first.
    pub feasible: Vec<Candidate>,
    /// What cannot, the one that wants the least memory first.
    pub refused: Vec<Candidate>,
    /// Grids that do not beat one axis on as many cards, best first, and behind them those that cannot run; those that beat it are among
    /// the feasible.
    pub grids: Vec<Candidate>,
}

impl Found {
    /// Of grids that can run, the best.
    #[must_use]
    pub fn best_grid(&self) -> Option<&Candidate> {
        let beaten = || self.grids.first().filter(|best| best.constraint.is_none());
        self.feasible.iter().find(|candidate| candidate.split.rows > 1).or_else(beaten)
    }
}

impl ServingRequest<'_> {
    /// Everything wrong with the sizes.
    ///
    /// # Errors
    /// All of it.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        let positions = self.config.max_positions;
        let sizes = [
            ("--cards", self.cards, MOST_CARDS),
            ("--batch", self.batch, MOST_SEQUENCES),
            ("--input", self.input_tokens, positions),
            ("--output", self.output_tokens, positions),
        ];
        for (place, found, most) in sizes {
            if found == 0 || found > most {
                problems.push(
                    Diagnostic::new(place, "nothing that can be served").expected(format!("1 to {most}")).found(found),
                );
            }
        }
        let length = self.input_tokens.saturating_add(self.output_tokens);
        if length > positions && self.input_tokens <= positions && self.output_tokens <= positions {
            problems.push(
                Diagnostic::new("--input and --output", "together longer than the model's context")
                    .expected(format!("at most {positions} tokens"))
                    .found(length),
            );
        }
        if self.cards > self.topology.cards() {
            problems.push(
                Diagnostic::new("--topology", format!("`{}` joins fewer cards than --cards", self.topology.name))
                    .expected(format!("at least {}", self.cards))
                    .found(self.topology.cards()),
            );
        }
        if let Some(limit) = self.max_token_us.filter(|limit| !(limit.is_finite() && *limit > 0.0)) {
            problems.push(Diagnostic::new("--max-tpot-ms", "no time").expected("more than 0").found(limit / 1e3));
        }
        problems.into_result(())
    }

    /// Tries every split of which something can run.
    ///
    /// # Errors
    /// Sizes that mean nothing; or nothing that fits, with the arithmetic and the nearest settings that fit.
    pub fn search(&self) -> Result<Found, Diagnostics> {
        let found = self.survey()?;
        if found.feasible.is_empty() { Err(self.refusal(&found)) } else { Ok(found) }
    }

    /// Tries every split, also if none can run.
    ///
    /// # Errors
    /// Sizes that mean nothing.
    pub fn survey(&self) -> Result<Found, Diagnostics> {
        self.check()?;
        self.try_all(None)
    }

    /// Tries one number of cards a replica only, also one that does not divide the cards.
    ///
    /// # Errors
    /// Sizes that mean nothing, or more cards a replica than there are.
    pub fn explore(&self, tensor_parallel: usize) -> Result<Found, Diagnostics> {
        self.check()?;
        let most = self.cards.min(MOST_TENSOR_PARALLEL);
        if tensor_parallel == 0 || tensor_parallel > most {
            let problem = Diagnostic::new("--why: tp", "no replica can have so many cards");
            return Err(problem.expected(format!("1 to {most}")).found(tensor_parallel).into());
        }
        self.try_all(Some(tensor_parallel))
    }

    fn try_all(&self, only: Option<usize>) -> Result<Found, Diagnostics> {
        let divisors = |of: usize| (1..=of.min(MOST_TENSOR_PARALLEL)).filter(move |part| of.is_multiple_of(*part));
        let sizes: Vec<usize> = only.map_or_else(|| divisors(self.cards).collect(), |size| vec![size]);
        let mut found = Found { feasible: Vec::new(), refused: Vec::new(), grids: Vec::new() };
        for cards in sizes.iter().copied() {
            for candidate in self.on(cards, Grid::LINE)? {
                if candidate.constraint.is_none() {
                    found.feasible.push(candidate);
                } else {
                    found.refused.push(candidate);
                }
            }
        }
        self.try_grids(&sizes, &mut found)?;
        found.feasible.sort_by(|a, b| a.rank(self.objective).total_cmp(&b.rank(self.objective)));
        found.refused.sort_by_key(|candidate| candidate.memory.total().0);
        Ok(found)
    }

    /// Adds the grids that beat all of one axis on as many cards.
    fn try_grids(&self, sizes: &[usize], found: &mut Found) -> Result<(), Diagnostics> {
        let rank = |candidate: &Candidate| candidate.rank(self.objective);
        let (mut paying, mut beaten) = (Vec::new(), Vec::new());
        for cards in sizes.iter().copied() {
            let alike = found.feasible.iter().filter(|candidate| candidate.split.tensor_parallel == cards);
            let line = alike.map(rank).fold(f64::INFINITY, f64::min);
            for rows in grid_rows(cards) {
                let all = self.on(cards, Grid { rows, depth: 1 })?;
                let pays = |candidate: &Candidate| candidate.constraint.is_none() && rank(candidate) < line;
                let (pays, others): (Vec<_>, Vec<_>) = all.into_iter().partition(pays);
                paying.extend(pays);
                beaten.extend(others);
            }
        }
        let key = |candidate: &Candidate| (candidate.constraint.is_some(), rank(candidate));
        beaten.sort_by(|a, b| {
            let ((a, a_rank), (b, b_rank)) = (key(a), key(b));
            a.cmp(&b).then(a_rank.total_cmp(&b_rank))
        });
        found.grids = beaten;
        found.feasible.extend(paying);
        Ok(())
    }

    /// All ways to run replicas of `cards` cards that divide so.
    fn on(&self, cards: usize, grid: Grid) -> Result<Vec<Candidate>, Diagnostics> {
        let residuals: &[Residual] = if cards == 1 { &RESIDUALS[..1] } else { &RESIDUALS };
        let all = residuals.iter().map(|residual| self.candidates(cards, grid, *residual));
        Ok(all.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn deployment(&self, cards: usize, grid: Grid, batch: usize, residual: Residual) -> Deployment {
        Deployment {
            grid,
            precision: self.precision,
            residual,
            batch,
            longest_prompt: self.input_tokens,
            context: self.input_tokens + self.output_tokens,
            head: Head::LastToken,
            target: Target::of(self.profile.soc, Kernels::NONE),
            ..Deployment::of(self.config, cards)
        }
    }

    /// The same with the residual stream of prefill in one way.
    fn candidates(&self, cards: usize, grid: Grid, residual: Residual) -> Result<Vec<Candidate>, Diagnostics> {
        let replicas = (self.cards / cards).min(self.batch);
        let batch = self.batch.div_ceil(replicas);
        let deployment = self.deployment(cards, grid, batch, residual);
        let mesh = deployment.mesh(self.config)?;
        // Columns stand before rows, the parts of key heads before their copies.
        let key_parts = mesh.axes().first().filter(|axis| axis.name != ROWS).map_or(1, |axis| axis.size);
        let samples = samples(self.config, deployment)?;
        let memory = memory(&samples, self.config.layers, self.communicator);
        let packed: Vec<usize> = (0..cards).collect();
        let spread: Vec<usize> = packed.iter().map(|rank| rank * (self.cards / cards)).collect();
        let spreads = [&packed, &spread].map(|on| Spread::of(self.topology, on));
        let mut candidates = Vec::new();
        for (place, on) in [(CardPlacement::Packed, &packed), (CardPlacement::Spread, &spread)] {
            let lies = &spreads[place as usize];
            if place == CardPlacement::Spread && *lies == spreads[0] {
                continue;
            }
            // A session runs its prefill once, which is no run of a graph.
            let prefill = self.times(&samples, |programs| &programs.prefill, on, None, [Launching::Eager])[0];
            let issues = [Launching::Captured, Launching::Eager];
            // The token in the middle sees itself and those before it.
            let keys = Some(self.input_tokens + self.output_tokens.div_ceil(2));
            let decodes = self.times(&samples, |programs| &programs.decode, on, keys, issues);
            for (issue, decode) in issues.into_iter().zip(decodes) {
                let rows = grid.rows;
                let split = ServingSplit { tensor_parallel: cards, rows, key_parts, replicas, residual, issue, place };
                let mut candidate = Candidate {
                    split,
                    batch,
                    memory,
                    prefill,
                    decode,
                    levels: lies.levels().map(|level| self.topology.levels[level].name.clone()).collect(),
                    wanted: (self.batch, self.output_tokens),
                    constraint: None,
                };
                candidate.constraint = self.constraint(&candidate);
                candidates.push(candidate);
            }
        }
        Ok(candidates)
    }

    /// One run of a program on these cards, issued in each of the ways, with so many keys of each sequence.
    fn times<const ISSUES: usize>(
        &self,
        samples: &LayerSamples,
        program: fn(&Programs) -> &Vec<Plan>,
        on: &[usize],
        keys: Option<usize>,
        issues: [Launching; ISSUES],
    ) -> [Breakdown; ISSUES] {
        let of = |(layers, programs): &(usize, Programs)| {
            let simulator = Simulator::new(self.profile, self.topology, program(programs), on, keys);
            (*layers, issues.map(|issue| simulator.run(issue).breakdown))
        };
        let [few, more] = [of(&samples.0), of(&samples.1)];
        std::array::from_fn(|issue| few.1[issue].along(&more.1[issue], growth(few.0, more.0, self.config.layers)))
    }

    fn constraint(&self, candidate: &Candidate) -> Option<Diagnostic> {
        let place = candidate.split.to_string();
        let slow = self.max_token_us.filter(|limit| candidate.token_us() > *limit).map(|limit| {
            Diagnostic::new(&place, "a token takes too long")
                .expected(format!("at most {:.1} ms (--max-tpot-ms)", limit / 1e3))
                .found(format!("{:.1} ms", candidate.token_us() / 1e3))
        });
        candidate.memory.problem(&place, self.profile).or(slow)
    }

    /// Why nothing can run, and what could.
    fn refusal(&self, found: &Found) -> Diagnostics {
        let Some(nearest) = found.refused.first() else { return Diagnostics::new() };
        let Some(constraint) = &nearest.constraint else { return Diagnostics::new() };
        let is_memory = nearest.memory.problem("", self.profile).is_some();
        let help = if is_memory {
            self.nearest_that_fit(nearest)
        } else {
            let fastest = found.refused.iter().map(Candidate::token_us).fold(f64::INFINITY, f64::min);
            format!("the fastest split takes {:.1} ms a token; allow that, or lower --batch", fastest / 1e3)
        };
        constraint.clone().help(help).into()
    }

    /// Settings near to what was asked whose bytes fit, each found by compiling it.
    fn nearest_that_fit(&self, nearest: &Candidate) -> String {
        let fits = |cards: usize, batch: usize, input: usize, output: usize| {
            let deployment = Deployment {
                longest_prompt: input,
                context: input + output,
                ..self.deployment(cards, Grid::LINE, batch, nearest.split.residual)
            };
            let samples = samples(self.config, deployment).ok()?;
            let memory = memory(&samples, self.config.layers, self.communicator);
            memory.problem("", self.profile).is_none().then_some(())
        };
        let halves =
            |from: usize| std::iter::successors(Some(from / 2), |size| Some(size / 2)).take_while(|size| *size > 0);
        let (cards, batch) = (nearest.split.tensor_parallel, nearest.batch);
        let (input, output) = (self.input_tokens, self.output_tokens);
        let more_cards = std::iter::successors(Some(cards * 2), |cards| Some(cards * 2))
            .take_while(|cards| *cards <= MOST_TENSOR_PARALLEL)
            .find(|cards| fits(*cards, batch, input, output).is_some());
        let fewer = halves(batch).find(|batch| fits(cards, *batch, input, output).is_some());
        let shorter = halves(input).find(|input| fits(cards, batch, *input, output).is_some());
        let ways = [
            more_cards.map(|cards| format!("{cards} cards a replica")),
            fewer.map(|batch| format!("{batch} sequences a replica")),
            shorter.map(|input| format!("--input {input}")),
        ];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        if ways.is_empty() {
            return format!(
                "no half of the batch or of the prompt fits, nor do {MOST_TENSOR_PARALLEL} cards a replica: take a card \
                 with more memory or a smaller element type"
            );
        }
        format!("what fits with tp={cards} or from there on: {}", ways.join("; or "))
    }
}

const RESIDUALS: [Residual; 2] = [Residual::Replicate, Residual::Seq];

/// Columns of a grid that is tried, at least.
const GRID_COLUMNS: usize = 2;

/// Rows of the grids that are tried on so many cards, for serving and for training. A depth is none of them: its cards do what those of
/// replicas or copies do, and are no faster (`a_depth_is_no_faster_than_replicas` in the tests of the command line).
pub(crate) fn grid_rows(cards: usize) -> impl Iterator<Item = usize> {
    [2, 4, 8].into_iter().filter(move |rows| cards.is_multiple_of(rows * GRID_COLUMNS))
}

/// The programs of a model with some of its layers, and with more of them; by number of layers. All layers of a decoder are
/// alike and so are their steps: bytes and times grow with each by the same, which a test checks against whole models.
struct LayerSamples((usize, Programs), (usize, Programs));

/// Layers of the two samples.
const SAMPLED_LAYERS: [usize; 2] = [4, 8];

fn samples(config: &ModelConfig, deployment: Deployment) -> Result<LayerSamples, Diagnostics> {
    let of = |layers: usize| {
        let config = ModelConfig { layers, ..config.clone() };
        Ok::<_, Diagnostics>((layers, deployment.compile(&config)?))
    };
    // What has hardly more layers than the samples together is not sampled.
    let [few, more] = SAMPLED_LAYERS;
    let (few, more) = if config.layers <= few + more { (config.layers, config.layers) } else { (few, more) };
    Ok(LayerSamples(of(few)?, of(more)?))
}

/// How often what came from the first sample to the second comes on top of the first.
fn growth(few: usize, more: usize, layers: usize) -> (usize, usize) {
    if few == more { (0, 1) } else { (layers - few, more - few) }
}

/// Bytes of the fullest card.
fn memory(LayerSamples(few, more): &LayerSamples, layers: usize, communicator: Bytes) -> CardMemory {
    let of = |programs: &Programs| CardMemory::fullest(&[&programs.prefill, &programs.decode], communicator);
    of(&few.1).along(&of(&more.1), growth(few.0, more.0, layers))
}

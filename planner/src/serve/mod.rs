//! Finds the best way to serve a model on a set of cards.
//!
//! Returns every [`ServingSplit`], best first; splits that cannot run come last, with the
//! constraint. Each candidate is compiled with some of its layers and simulated.
//!
//! Not here: pipeline stages, and continuous batching. All prompts arrive together and all
//! sequences end together.

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

/// Compiling more ranks would take minutes.
const MOST_CARDS: usize = 1024;
const MOST_SEQUENCES: usize = 1 << 16;

/// Maximum cards of a replica. Beyond it, communication dominates.
const MOST_TENSOR_PARALLEL: usize = 64;

/// A model to serve, with its workload and limits.
#[derive(Clone, Copy, Debug)]
pub struct ServingRequest<'a> {
    /// The model to serve.
    pub config: &'a ModelConfig,
    /// Element type of activations and weights.
    pub precision: Precision,
    /// Profile of the chip.
    pub profile: &'a Profile,
    /// Topology that connects the cards.
    pub topology: &'a Topology,
    /// Number of available cards.
    pub cards: usize,
    /// Number of concurrent sequences.
    pub batch: usize,
    /// Tokens of each prompt.
    pub input_tokens: usize,
    /// Tokens generated per sequence.
    pub output_tokens: usize,
    /// Quantity that the search optimises.
    pub objective: Objective,
    /// Maximum time per token.
    pub max_token_us: Option<f64>,
    /// Maximum time to the first token.
    pub max_first_token_us: Option<f64>,
    /// Communicator bytes per card.
    pub communicator: Bytes,
}

/// Quantity that the search optimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Objective {
    /// Most tokens per second.
    Throughput,
    /// Least time per token.
    Latency,
}

/// Placement of a replica's cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CardPlacement {
    /// Cards with consecutive numbers.
    Packed,
    /// Cards as far apart as possible.
    Spread,
}

/// One way to use the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServingSplit {
    /// Cards of a replica.
    pub tensor_parallel: usize,
    /// Grid rows, which shard the hidden size; 1 without a grid.
    pub rows: usize,
    /// Columns that shard key heads. Remaining columns hold copies.
    pub key_parts: usize,
    /// Number of model replicas.
    pub replicas: usize,
    /// Residual stream during prefill.
    pub residual: Residual,
    /// Launching of the decode steps.
    pub issue: Launching,
    /// Cards of a replica.
    pub place: CardPlacement,
}

impl ServingSplit {
    /// Returns the properties as a user writes them.
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

    /// Returns whether the split has every property of a list such as `tp=8,residual=seq`.
    ///
    /// # Errors
    /// An entry is not a property of a split.
    pub fn matches(&self, wanted: &str) -> Result<bool, Diagnostic> {
        let properties = self.properties();
        let mut all = true;
        for entry in wanted.split([',', ' ']).filter(|entry| !entry.is_empty()) {
            let known = entry.split_once('=').and_then(|(name, value)| {
                let (_, own) = properties.iter().find(|(property, _)| *property == name)?;
                Some(own == value)
            });
            all &= known.ok_or_else(|| {
                let names =
                    properties.iter().map(|(name, _)| format!("{name}=…")).collect::<Vec<_>>().join(", ");
                Diagnostic::new("--why", "no property of a split").expected(names).found(entry)
            })?;
        }
        Ok(all)
    }
}

impl fmt::Display for ServingSplit {
    /// Writes `tp=8 dp=2 residual=seq captured`; `tp_row`, `kv` and `spread` only if not the
    /// default.
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

/// A split with its memory and time.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Split of the cards.
    pub split: ServingSplit,
    /// Number of sequences of each replica.
    pub batch: usize,
    /// Memory of the fullest card.
    pub memory: CardMemory,
    /// Prefill of the slowest rank.
    pub prefill: Breakdown,
    /// Decode step, slowest rank.
    pub decode: Breakdown,
    /// Topology levels of a replica, innermost first.
    pub levels: Vec<String>,
    /// Sequences and generated tokens.
    wanted: (usize, usize),
    /// Constraint that the split violates.
    pub constraint: Option<Diagnostic>,
}

impl Candidate {
    /// Returns the time to the first token.
    #[must_use]
    pub const fn first_token_us(&self) -> f64 {
        self.prefill.duration_us
    }

    /// Returns the time per output token.
    #[must_use]
    pub const fn token_us(&self) -> f64 {
        self.decode.duration_us
    }

    /// Returns the time to the last token.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.first_token_us() + (self.wanted.1 - 1) as f64 * self.token_us()
    }

    /// Tokens per second of all replicas.
    #[must_use]
    pub fn tokens_per_s(&self) -> f64 {
        (self.wanted.0 * self.wanted.1) as f64 / self.total_us() * 1e6
    }

    /// Returns the unused cards.
    #[must_use]
    pub const fn idle_cards(&self, cards: usize) -> usize {
        cards - self.split.tensor_parallel * self.split.replicas
    }

    fn rank(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Throughput => self.total_us(),
            Objective::Latency => self.token_us(),
        }
    }
}

/// Result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// Candidates that can run, best first.
    pub feasible: Vec<Candidate>,
    /// Cannot run; least memory first.
    pub refused: Vec<Candidate>,
    /// Grids not faster than one axis, best first, then grids that cannot run.
    pub grids: Vec<Candidate>,
}

impl Found {
    /// Returns the fastest grid that can run.
    #[must_use]
    pub fn best_grid(&self) -> Option<&Candidate> {
        let beaten = || self.grids.first().filter(|best| best.constraint.is_none());
        self.feasible.iter().find(|candidate| candidate.split.rows > 1).or_else(beaten)
    }
}

impl ServingRequest<'_> {
    /// Checks all sizes.
    ///
    /// # Errors
    /// Every invalid size.
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
                    Diagnostic::new(place, "out of range").expected(format!("1 to {most}")).found(found),
                );
            }
        }
        let length = self.input_tokens.saturating_add(self.output_tokens);
        if length > positions && self.input_tokens <= positions && self.output_tokens <= positions {
            problems.push(
                Diagnostic::new("--input and --output", "the sum exceeds the model's context")
                    .expected(format!("at most {positions} tokens"))
                    .found(length),
            );
        }
        if self.cards > self.topology.cards() {
            problems.push(
                Diagnostic::new(
                    "--topology",
                    format!("`{}` has fewer cards than --cards", self.topology.name),
                )
                .expected(format!("at least {}", self.cards))
                .found(self.topology.cards()),
            );
        }
        let limits = [("--max-tpot-ms", self.max_token_us), ("--max-ttft-ms", self.max_first_token_us)];
        for (option, limit) in limits {
            if let Some(limit) = limit.filter(|limit| !(limit.is_finite() && *limit > 0.0)) {
                problems.push(Diagnostic::new(option, "no time").expected("more than 0").found(limit / 1e3));
            }
        }
        problems.into_result(())
    }

    /// Tries every split.
    ///
    /// # Errors
    /// A size is invalid or nothing fits. The error suggests settings that fit.
    pub fn search(&self) -> Result<Found, Diagnostics> {
        let found = self.survey()?;
        if found.feasible.is_empty() { Err(self.refusal(&found)) } else { Ok(found) }
    }

    /// Tries every split, even if none can run.
    ///
    /// # Errors
    /// A size is invalid.
    pub fn survey(&self) -> Result<Found, Diagnostics> {
        self.check()?;
        self.try_all(None)
    }

    /// Tries one replica size, which need not divide the cards.
    ///
    /// # Errors
    /// A size is invalid or a replica has too many cards.
    pub fn explore(&self, tensor_parallel: usize) -> Result<Found, Diagnostics> {
        self.check()?;
        let most = self.cards.min(MOST_TENSOR_PARALLEL);
        if tensor_parallel == 0 || tensor_parallel > most {
            let problem = Diagnostic::new("--why: tp", "no replica can use that many cards");
            return Err(problem.expected(format!("1 to {most}")).found(tensor_parallel).into());
        }
        self.try_all(Some(tensor_parallel))
    }

    fn try_all(&self, only: Option<usize>) -> Result<Found, Diagnostics> {
        let divisors =
            |of: usize| (1..=of.min(MOST_TENSOR_PARALLEL)).filter(move |part| of.is_multiple_of(*part));
        let sizes: Vec<usize> = only.map_or_else(|| divisors(self.cards).collect(), |size| vec![size]);
        let mut tried = Found { feasible: Vec::new(), refused: Vec::new(), grids: Vec::new() };
        for cards in sizes.iter().copied() {
            for candidate in self.on(cards, Grid::LINE)? {
                if candidate.constraint.is_none() {
                    tried.feasible.push(candidate);
                } else {
                    tried.refused.push(candidate);
                }
            }
        }
        self.try_grids(&sizes, &mut tried)?;
        tried.feasible.sort_by(|a, b| a.rank(self.objective).total_cmp(&b.rank(self.objective)));
        tried.refused.sort_by_key(|candidate| candidate.memory.total().0);
        Ok(tried)
    }

    fn try_grids(&self, sizes: &[usize], tried: &mut Found) -> Result<(), Diagnostics> {
        let rank = |candidate: &Candidate| candidate.rank(self.objective);
        let (mut paying, mut beaten) = (Vec::new(), Vec::new());
        for cards in sizes.iter().copied() {
            let alike = tried.feasible.iter().filter(|candidate| candidate.split.tensor_parallel == cards);
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
        tried.grids = beaten;
        tried.feasible.extend(paying);
        Ok(())
    }

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

    fn candidates(
        &self,
        cards: usize,
        grid: Grid,
        residual: Residual,
    ) -> Result<Vec<Candidate>, Diagnostics> {
        let replicas = (self.cards / cards).min(self.batch);
        let batch = self.batch.div_ceil(replicas);
        let deployment = self.deployment(cards, grid, batch, residual);
        let mesh = deployment.mesh(self.config)?;
        // Columns precede rows, and shards of key heads precede copies.
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
            // Prefill runs once and is not captured.
            let prefill = self.times(&samples, |programs| &programs.prefill, on, None, [Launching::Eager])[0];
            let issues = [Launching::Captured, Launching::Eager];
            // The middle token attends to all earlier tokens.
            let keys = Some(self.input_tokens + self.output_tokens.div_ceil(2));
            let decodes = self.times(&samples, |programs| &programs.decode, on, keys, issues);
            for (issue, decode) in issues.into_iter().zip(decodes) {
                let rows = grid.rows;
                let split = ServingSplit {
                    tensor_parallel: cards,
                    rows,
                    key_parts,
                    replicas,
                    residual,
                    issue,
                    place,
                };
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
        std::array::from_fn(|issue| {
            few.1[issue].along(&more.1[issue], growth(few.0, more.0, self.config.layers))
        })
    }

    fn constraint(&self, candidate: &Candidate) -> Option<Diagnostic> {
        let place = candidate.split.to_string();
        let slow = self.max_token_us.filter(|limit| candidate.token_us() > *limit).map(|limit| {
            Diagnostic::new(&place, "a token takes too long")
                .expected(format!("at most {:.1} ms (--max-tpot-ms)", limit / 1e3))
                .found(format!("{:.1} ms", candidate.token_us() / 1e3))
        });
        let late = self.max_first_token_us.filter(|limit| candidate.first_token_us() > *limit).map(|limit| {
            Diagnostic::new(&place, "the first token takes too long")
                .expected(format!("at most {:.1} ms (--max-ttft-ms)", limit / 1e3))
                .found(format!("{:.1} ms", candidate.first_token_us() / 1e3))
        });
        candidate.memory.problem(&place, self.profile).or(slow).or(late)
    }

    fn refusal(&self, tried: &Found) -> Diagnostics {
        let Some(nearest) = tried.refused.first() else { return Diagnostics::new() };
        let Some(constraint) = &nearest.constraint else { return Diagnostics::new() };
        let is_memory = nearest.memory.problem("", self.profile).is_some();
        let help = if is_memory {
            self.nearest_that_fit(nearest)
        } else {
            let least =
                |of: fn(&Candidate) -> f64| tried.refused.iter().map(of).fold(f64::INFINITY, f64::min) / 1e3;
            format!(
                "the fastest splits take {:.1} ms per token and {:.1} ms to the first one; \
                 raise --max-tpot-ms or --max-ttft-ms, or lower --batch",
                least(Candidate::token_us),
                least(Candidate::first_token_us)
            )
        };
        constraint.clone().help(help).into()
    }

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
        let halves = |from: usize| {
            std::iter::successors(Some(from / 2), |size| Some(size / 2)).take_while(|size| *size > 0)
        };
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

const GRID_COLUMNS: usize = 2;

/// A depth works like replicas and is not faster (`a_depth_is_no_faster_than_replicas`, tests of
/// the command line).
pub(crate) fn grid_rows(cards: usize) -> impl Iterator<Item = usize> {
    [2, 4, 8].into_iter().filter(move |rows| cards.is_multiple_of(rows * GRID_COLUMNS))
}

/// Programs with two layer counts. Bytes and times grow linearly with layers; a test checks this.
struct LayerSamples((usize, Programs), (usize, Programs));

const SAMPLED_LAYERS: [usize; 2] = [4, 8];

fn samples(config: &ModelConfig, deployment: Deployment) -> Result<LayerSamples, Diagnostics> {
    let of = |layers: usize| {
        let config = ModelConfig { layers, ..config.clone() };
        Ok::<_, Diagnostics>((layers, deployment.compile(&config)?))
    };
    let [few, more] = SAMPLED_LAYERS;
    let (few, more) = if config.layers <= few + more { (config.layers, config.layers) } else { (few, more) };
    Ok(LayerSamples(of(few)?, of(more)?))
}

fn growth(few: usize, more: usize, layers: usize) -> [usize; 2] {
    if few == more { [0, 1] } else { [layers - few, more - few] }
}

fn memory(LayerSamples(few, more): &LayerSamples, layers: usize, communicator: Bytes) -> CardMemory {
    let of = |programs: &Programs| CardMemory::fullest(&[&programs.prefill, &programs.decode], communicator);
    of(&few.1).along(&of(&more.1), growth(few.0, more.0, layers))
}

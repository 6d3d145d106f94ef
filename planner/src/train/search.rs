//! Searches the best ways to split a training job.
//!
//! - Invariants: a best setting fits its cards. Pruning by lower bounds gives the same result as
//!   simulating every setting.
//! - Not here: uneven splits, except layers over stages and sequences over copies. There the
//!   largest share counts.

use std::collections::BTreeMap;

use super::job::Job;
use super::layer::{ModelTimes, times};
use super::memory::{JobMemory, fullest};
use super::setting::{JobSplit, RECOMPUTES, RankOrder};
use super::step::{Prediction, StepParts, predict_parts};
use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::{Recompute, Zero};

/// Usable fraction of a card's memory. The rest is fragmentation.
pub const FILLED: f64 = 0.96;

const MICRO_BATCHES: [usize; 4] = [1, 2, 4, 8];

const CHUNKS: [usize; 7] = [2, 3, 4, 5, 6, 8, 10];

/// A setting with a lower bound.
#[derive(Clone, Copy, Debug)]
struct FittingSplit {
    setting: JobSplit,
    memory: JobMemory,
    shortest_us: f64,
}

/// A setting and its prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedSplit {
    /// Split of the job.
    pub setting: JobSplit,
    /// Predicted time and memory.
    pub prediction: Prediction,
}

/// Every setting of a job.
#[derive(Debug)]
pub struct Search<'a> {
    job: &'a Job,
    fitting: Vec<FittingSplit>,
    too_big: Vec<(JobSplit, JobMemory)>,
    model_times: BTreeMap<TimesKey, ModelTimes>,
}

type TimesKey = (usize, bool, usize, usize, usize, Recompute);

const fn times_key(setting: &JobSplit) -> TimesKey {
    (setting.tp, setting.sequence_parallel, setting.cp, setting.ep, setting.micro_batch, setting.recompute)
}

/// Required values of some keys: `tp=16`, `pp=4,recompute=none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitChoice(Vec<(String, String)>);

impl SplitChoice {
    /// Creates a choice of one key.
    #[must_use]
    pub fn of(key: &str, value: &str) -> Self {
        Self(vec![(key.to_owned(), value.to_owned())])
    }

    /// Parses a choice; `place` is named in errors.
    ///
    /// # Errors
    /// Every part that is not `key=value` with a known key.
    pub fn parse(place: &str, text: &str) -> Result<Self, Diagnostics> {
        let keys = JobSplit::KEYS.join(", ");
        let mut problems = Diagnostics::new();
        let mut choices = Vec::new();
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((key, value)) if JobSplit::KEYS.contains(&key) => {
                    choices.push((key.to_owned(), value.to_owned()));
                }
                _ => problems.push(
                    Diagnostic::new(place, "names nothing of a setting")
                        .expected(format!("KEY=VALUE with one of {keys}"))
                        .found(part),
                ),
            }
        }
        if choices.is_empty() && problems.is_empty() {
            problems.push(
                Diagnostic::new(place, "names no setting").expected(format!("KEY=VALUE with one of {keys}")),
            );
        }
        problems.into_result(Self(choices))
    }

    /// Returns whether a setting has these values.
    #[must_use]
    pub fn matches(&self, setting: &JobSplit) -> bool {
        self.0.iter().all(|(key, value)| setting.value(key).as_deref() == Some(value))
    }
}

impl std::fmt::Display for SplitChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&parts.join(" "))
    }
}

/// Result of a choice.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchVerdict {
    /// Best setting of the choice.
    Fits(Box<PredictedSplit>),
    /// Smallest setting, and the memory of its fullest card.
    TooBig(JobSplit, Box<JobMemory>),
    /// Reason why no split has these values.
    Impossible(String),
}

impl<'a> Search<'a> {
    /// Tries every setting of a job.
    ///
    /// # Errors
    /// A size is invalid, the topology has too few cards, or no setting divides the job.
    pub fn new(job: &'a Job) -> Result<Self, Diagnostics> {
        check(job)?;
        let mut search = Self { job, fitting: Vec::new(), too_big: Vec::new(), model_times: BTreeMap::new() };
        let limit = usable_bytes(job);
        settings(job, |setting| {
            let memory = fullest(job, &setting);
            if memory.total() > limit {
                search.too_big.push((setting, memory));
                return;
            }
            for order in orders(&setting) {
                search.add(JobSplit { order: *order, ..setting }, memory);
            }
        });
        if search.fitting.is_empty() && search.too_big.is_empty() {
            return Err(Diagnostic::new("--cards", "no split divides the job")
                .expected(format!(
                    "heads {}, layers {} and sequence {} to divide by some split of the cards, and a batch ({}) of as many as its copies",
                    job.decoder.heads, job.decoder.layers, job.sequence, job.global_batch
                ))
                .found(format!("{} cards", job.cards))
                .help("use a number of cards with more factors of 2, or a larger batch")
                .into());
        }
        search
            .fitting
            .sort_by(|a, b| a.shortest_us.total_cmp(&b.shortest_us).then(a.setting.cmp(&b.setting)));
        search.too_big.sort_by(|a, b| a.1.total().total_cmp(&b.1.total()).then(a.0.cmp(&b.0)));
        Ok(search)
    }

    fn add(&mut self, setting: JobSplit, memory: JobMemory) {
        let job = self.job;
        let model = *self.model_times.entry(times_key(&setting)).or_insert_with(|| times(job, &setting));
        let shortest_us = StepParts::new(job, &setting, model).shortest_us(job, &setting);
        self.fitting.push(FittingSplit { setting, memory, shortest_us });
    }

    /// Counts the settings that divide the job.
    #[must_use]
    pub const fn considered(&self) -> usize {
        self.fitting.len() + self.too_big.len()
    }

    /// Counts the settings that fit.
    #[must_use]
    pub const fn fitting(&self) -> usize {
        self.fitting.len()
    }

    fn predict(&self, candidate: &FittingSplit) -> PredictedSplit {
        let FittingSplit { setting, memory, .. } = candidate;
        let model = self.model_times.get(&times_key(setting)).copied();
        let parts = StepParts::new(self.job, setting, model.unwrap_or_else(|| times(self.job, setting)));
        PredictedSplit { setting: *setting, prediction: predict_parts(self.job, setting, &parts, memory) }
    }

    /// Returns the `count` fastest settings with different tp, pp, ep or kind of schedule.
    #[must_use]
    pub fn best(&self, count: usize) -> Vec<PredictedSplit> {
        self.best_of(count, |_| true)
    }

    /// Returns the fastest wanted setting that fits.
    #[must_use]
    pub fn fastest(&self, is_wanted: impl Fn(&JobSplit) -> bool) -> Option<PredictedSplit> {
        self.best_of(1, is_wanted).pop()
    }

    /// Returns the wanted settings of [`Self::best`].
    pub fn best_of(&self, count: usize, is_wanted: impl Fn(&JobSplit) -> bool) -> Vec<PredictedSplit> {
        let kind = |setting: &JobSplit| {
            (setting.tp, setting.pp, setting.ep, std::mem::discriminant(&setting.schedule))
        };
        let mut best: Vec<PredictedSplit> = Vec::new();
        for candidate in self.fitting.iter().filter(|candidate| is_wanted(&candidate.setting)) {
            if best.len() == count
                && best.last().is_some_and(|last| last.prediction.step_us <= candidate.shortest_us)
            {
                break;
            }
            let predicted = self.predict(candidate);
            match best.iter().position(|other| kind(&other.setting) == kind(&predicted.setting)) {
                Some(same) if best[same].prediction.step_us <= predicted.prediction.step_us => continue,
                Some(same) => {
                    best.remove(same);
                }
                None => {}
            }
            let step_us = predicted.prediction.step_us;
            let at = best.partition_point(|other| other.prediction.step_us <= step_us);
            best.insert(at, predicted);
            best.truncate(count);
        }
        best
    }

    /// Explains the result of a choice.
    #[must_use]
    pub fn why(&self, choice: &SplitChoice) -> SearchVerdict {
        if let Some(found) = self.fastest(|setting| choice.matches(setting)) {
            return SearchVerdict::Fits(Box::new(found));
        }
        match self.too_big.iter().find(|(setting, _)| choice.matches(setting)) {
            Some((setting, memory)) => SearchVerdict::TooBig(*setting, Box::new(*memory)),
            None => SearchVerdict::Impossible(obstacle(self.job, choice)),
        }
    }

    /// Explains the result of every other value of each key.
    #[must_use]
    pub fn losers(&self, winner: &JobSplit) -> Vec<(SplitChoice, SearchVerdict)> {
        let mut losers = Vec::new();
        for key in JobSplit::KEYS {
            let all = self
                .fitting
                .iter()
                .map(|candidate| &candidate.setting)
                .chain(self.too_big.iter().map(|(s, _)| s));
            let mut values: Vec<(usize, String)> = Vec::new();
            for value in all.filter_map(|setting| setting.value(key)) {
                if Some(&value) != winner.value(key).as_ref()
                    && !values.iter().any(|(_, known)| *known == value)
                {
                    values.push((value.parse().unwrap_or(usize::MAX), value));
                }
            }
            values.sort();
            for (_, value) in values {
                let choice = SplitChoice::of(key, &value);
                let verdict = self.why(&choice);
                losers.push((choice, verdict));
            }
        }
        losers
    }

    /// Returns the smallest setting, if nothing fits.
    #[must_use]
    pub fn smallest(&self) -> Option<(JobSplit, JobMemory)> {
        self.too_big.first().copied().filter(|_| self.fitting.is_empty())
    }
}

/// Returns the bytes that a setting may use on a card.
#[must_use]
pub fn usable_bytes(job: &Job) -> f64 {
    job.profile.hbm_usable_bytes() as f64 * FILLED
}

const MOST: usize = 1 << 20;

fn check(job: &Job) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    for (place, size) in
        [("--cards", job.cards), ("--seq", job.sequence), ("--global-batch", job.global_batch)]
    {
        if size == 0 {
            problems.push(Diagnostic::new(place, "means nothing").expected("a number above 0").found(0));
        } else if size > MOST {
            problems
                .push(Diagnostic::new(place, "is too large").expected(format!("at most {MOST}")).found(size));
        }
    }
    if job.cards > job.topology.cards() {
        problems.push(
            Diagnostic::new("--cards", "more cards than the topology has")
                .expected(format!("at most {} of {}", job.topology.cards(), job.topology.name))
                .found(job.cards)
                .help("use a topology with more cards, or raise `cards` of the outermost level"),
        );
    }
    problems.into_result(())
}

fn settings(job: &Job, mut found: impl FnMut(JobSplit)) {
    let decoder = &job.decoder;
    for tp in divisors(job.cards).filter(|tp| tensor_obstacle(job, *tp).is_none()) {
        for cp in divisors(job.cards / tp).filter(|cp| context_obstacle(job, tp, *cp).is_none()) {
            for pp in divisors(job.cards / (tp * cp)).take_while(|pp| *pp <= decoder.layers) {
                let dp = job.cards / (tp * cp * pp);
                if dp > job.global_batch {
                    continue;
                }
                let of_axes = JobSplit { tp, cp, pp, dp, ..SPLIT };
                for ep in divisors(dp).take_while(|ep| *ep <= most_shares(job)) {
                    settings_of(job, JobSplit { ep, ..of_axes }, &mut found);
                }
            }
        }
    }
}

/// A split over one card.
const SPLIT: JobSplit = JobSplit {
    tp: 1,
    sequence_parallel: false,
    cp: 1,
    pp: 1,
    schedule: Pipeline::OneForwardOneBackward,
    dp: 1,
    ep: 1,
    zero: Zero::None,
    recompute: Recompute::None,
    micro_batch: 1,
    order: RankOrder::DataInside,
};

/// Returns the largest number of cards that share the experts of a layer.
fn most_shares(job: &Job) -> usize {
    job.decoder.experts.map_or(1, |experts| experts.count)
}

/// Finds the settings of these axes.
fn settings_of(job: &Job, axes: JobSplit, mut found: impl FnMut(JobSplit)) {
    let JobSplit { tp, cp, pp, dp, .. } = axes;
    let share = job.global_batch.div_ceil(dp);
    for micro_batch in MICRO_BATCHES.into_iter().filter(|size| share.is_multiple_of(*size)) {
        for schedule in schedules(job.decoder.layers, pp, share / micro_batch) {
            for zero in zeros(dp * cp, pp) {
                for recompute in RECOMPUTES {
                    for sequence_parallel in [true, false] {
                        if sequence_parallel && tp == 1 {
                            continue;
                        }
                        let zero = *zero;
                        found(JobSplit { sequence_parallel, schedule, zero, recompute, micro_batch, ..axes });
                    }
                }
            }
        }
    }
}

/// A single stage counts as 1F1B.
fn schedules(layers: usize, stages: usize, micro_batches: usize) -> Vec<Pipeline> {
    if stages == 1 {
        return vec![Pipeline::OneForwardOneBackward];
    }
    let mut schedules = vec![Pipeline::OneForwardOneBackward, Pipeline::ZeroBubbleH1, Pipeline::GPipe];
    let chunks = CHUNKS.into_iter().filter(|chunks| layers.is_multiple_of(stages * chunks));
    schedules.extend(chunks.map(|chunks| Pipeline::Interleaved { chunks }));
    schedules.retain(|schedule| schedule.divides(stages, micro_batches));
    schedules
}

/// Sharded gradients and parameters exclude pipelines, which would gather for each micro-batch in
/// flight.
const fn zeros(copies: usize, stages: usize) -> &'static [Zero] {
    match (copies, stages) {
        (1, _) => &[Zero::None],
        (_, 1) => &Zero::ALL,
        _ => &[Zero::None, Zero::Moments],
    }
}

const fn orders(setting: &JobSplit) -> &'static [RankOrder] {
    if setting.pp > 1 && setting.dp > 1 { &RankOrder::ALL } else { &[RankOrder::DataInside] }
}

fn divisors(number: usize) -> impl Iterator<Item = usize> {
    (1..=number.min(1 << 12)).filter(move |divisor| number.is_multiple_of(*divisor))
}

fn tensor_obstacle(job: &Job, tp: usize) -> Option<String> {
    let decoder = &job.decoder;
    let unit = job.topology.levels.first().map_or(1, |level| level.cards);
    let (heads, kv) = (decoder.heads, decoder.kv_heads);
    if !job.cards.is_multiple_of(tp) {
        Some(format!("{} cards do not divide by {tp}", job.cards))
    } else if !heads.is_multiple_of(tp) {
        Some(format!("{heads} heads do not divide by {tp}"))
    } else if !kv.is_multiple_of(tp) && !tp.is_multiple_of(kv) {
        Some(format!("{kv} KV heads neither divide by {tp} nor divide {tp}"))
    } else if !unit.is_multiple_of(tp) && !tp.is_multiple_of(unit) {
        Some(format!("groups of {tp} would cross units of {unit} cards"))
    } else if !job.sequence.is_multiple_of(tp) {
        Some(format!("a sequence of {} does not divide by {tp}", job.sequence))
    } else {
        None
    }
}

fn context_obstacle(job: &Job, tp: usize, cp: usize) -> Option<String> {
    let divides = job.sequence.is_multiple_of(cp * tp);
    (!divides)
        .then(|| format!("a sequence of {} does not divide by {cp} shards and {tp} cards", job.sequence))
}

fn obstacle(job: &Job, choice: &SplitChoice) -> String {
    let number = |wanted: &str| {
        let found = choice.0.iter().find(|(key, _)| key == wanted);
        found.and_then(|(_, value)| value.parse::<usize>().ok()).filter(|number| *number > 0)
    };
    let tp = number("tp");
    if let Some(obstacle) = tp.and_then(|tp| tensor_obstacle(job, tp)) {
        return obstacle;
    }
    if let Some(obstacle) = number("cp").and_then(|cp| context_obstacle(job, tp.unwrap_or(1), cp)) {
        return obstacle;
    }
    let most = most_shares(job);
    if let Some(ep) = number("ep").filter(|ep| *ep > most) {
        return match job.decoder.experts {
            None => format!("the model has no experts that {ep} cards could share"),
            Some(_) => format!("{ep} cards cannot share {most} experts"),
        };
    }
    for key in ["cp", "pp", "dp"] {
        if let Some(count) = number(key)
            && !job.cards.is_multiple_of(count)
        {
            return format!("{} cards do not divide by {key}={count}", job.cards);
        }
    }
    let product: usize = ["tp", "cp", "pp", "dp"].into_iter().filter_map(number).product();
    if !job.cards.is_multiple_of(product) {
        return format!("{} cards do not divide by {product}", job.cards);
    }
    match (number("pp"), number("dp")) {
        (Some(pp), _) if pp > job.decoder.layers => {
            return format!("{pp} stages are more than the {} layers", job.decoder.layers);
        }
        (_, Some(dp)) if dp > job.global_batch => {
            return format!("a batch of {} is no sequence for each of {dp} copies", job.global_batch);
        }
        _ => {}
    }
    format!(
        "no split of {} cards with a batch of {} has these values together; interleaved schedules need layers and \
         micro-batches that divide by the stages, ZeRO 2 and 3 a pipeline of one stage",
        job.cards, job.global_batch
    )
}

/// Returns the differences to the winner by term, largest first.
#[must_use]
pub fn slower_by(winner: &Prediction, other: &Prediction) -> Vec<(&'static str, f64)> {
    let mut terms: Vec<(&'static str, f64)> = winner
        .terms
        .named()
        .into_iter()
        .zip(other.terms.named())
        .map(|((name, of_winner), (_, of_other))| (name, of_other - of_winner))
        .collect();
    terms.sort_by(|a, b| b.1.total_cmp(&a.1));
    terms
}

#[cfg(test)]
mod tests {
    use ascend_tp_machine::{Profile, Soc, Topology};

    use super::super::step::predict;
    use super::*;
    use ascend_tp::config::ModelConfig;

    fn job(cards: usize, global_batch: usize) -> Job {
        let config = ModelConfig::preset("qwen2.5-72b").unwrap();
        let (profile, topology) = (Profile::of(Soc::Ascend910B3), Topology::preset("atlas-a2").unwrap());
        Job::new(&config, 4096, global_batch, cards, profile, topology)
    }

    #[test]
    fn the_best_is_what_trying_everything_finds() {
        let job = job(64, 64);
        let search = Search::new(&job).unwrap();
        let all = search.fitting.iter().map(|candidate| predict(&job, &candidate.setting).step_us);
        let fastest = all.fold(f64::INFINITY, f64::min);
        let best = search.best(5);
        assert!(
            (best[0].prediction.step_us - fastest).abs() < 1e-6,
            "{} {fastest}",
            best[0].prediction.step_us
        );
        assert!(best.windows(2).all(|pair| pair[0].prediction.step_us <= pair[1].prediction.step_us));
    }

    #[test]
    fn the_best_divide_and_fit() {
        // Some of the 7 copies have one more sequence.
        for (cards, batch) in [(64, 512), (1024, 1024), (65_536, 8192), (56, 512)] {
            let job = job(cards, batch);
            let best = Search::new(&job).unwrap().best(5);
            assert_eq!(best.len(), 5, "{cards}");
            for PredictedSplit { setting, prediction } in best {
                assert_eq!(setting.cards(), cards);
                assert_eq!(setting.micro_batches(batch) * setting.micro_batch, batch.div_ceil(setting.dp));
                assert!(prediction.memory.total() <= usable_bytes(&job), "{setting}");
                assert!(prediction.memory.total() <= job.profile.hbm_usable_bytes() as f64);
            }
        }
    }

    #[test]
    fn every_choice_has_its_verdict() {
        let job = job(64, 512);
        let search = Search::new(&job).unwrap();
        let why = |text: &str| search.why(&SplitChoice::parse("--why", text).unwrap());
        let best = search.best(1)[0];
        assert!(
            matches!(why(&format!("tp={}", best.setting.tp)), SearchVerdict::Fits(found) if *found == best)
        );
        let SearchVerdict::Fits(slower) = why("tp=16") else { panic!("16 cards share a layer of 64 heads") };
        let by = slower_by(&best.prediction, &slower.prediction);
        assert_eq!(by[0].0, "tensor exchange");
        let sum: f64 = by.iter().map(|(_, us)| us).sum();
        assert!((sum - (slower.prediction.step_us - best.prediction.step_us)).abs() < 1e-3);
        let SearchVerdict::TooBig(_, memory) = why("tp=1 zero=0 pp=1 recompute=none") else {
            panic!("72B is 1.3 TB of state")
        };
        assert!(memory.total() > usable_bytes(&job));
        assert!(matches!(why("cp=8"), SearchVerdict::Fits(_)), "512 tokens of a sequence on a card");
        for (text, reason) in [
            ("tp=3", "64 cards do not divide by 3"),
            ("tp=128", "64 cards do not divide by 128"),
            ("cp=3", "a sequence of 4096 does not divide by 3 shards"),
            ("pp=64 tp=2", "64 cards do not divide by 128"),
            ("ep=2", "the model has no experts that 2 cards could share"),
            ("pp=2 zero=3", "ZeRO 2 and 3 a pipeline of one stage"),
        ] {
            let SearchVerdict::Impossible(found) = why(text) else { panic!("{text}") };
            assert!(found.contains(reason), "{text}: {found}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_at_once() {
        let problems = Search::new(&Job { sequence: 0, global_batch: 0, ..job(1 << 20, 1) }).unwrap_err();
        assert_eq!(problems.items().len(), 3, "{problems}");
        let problems = Search::new(&job(64, 7 * 11)).map(|search| search.considered());
        assert!(problems.is_ok(), "one copy takes any batch");
        let problems = Search::new(&job(97, 64)).unwrap_err();
        assert!(problems.to_string().contains("no split divides the job"), "{problems}");
        let problems = SplitChoice::parse("--why", "tp=8,speed=9,x").unwrap_err();
        assert_eq!(problems.items().len(), 2, "{problems}");
        assert!(SplitChoice::parse("--why", " ").is_err());
    }

    #[test]
    fn a_model_that_fits_nowhere_has_a_smallest_setting() {
        let job = job(8, 64);
        let search = Search::new(&job).unwrap();
        let (setting, memory) = search.smallest().unwrap();
        assert!(search.best(5).is_empty() && memory.total() > usable_bytes(&job), "{setting}");
    }
}

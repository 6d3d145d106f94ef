//! Comparison with other programs (peers) at the same tasks. Only sides that took turns on this
//! machine have a ratio. Figures in `cli/peers/recorded.toml` are shown with their machine and
//! date.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserialize;
use serde_json::Value;

use super::figures::{self, LENGTHS};
use super::generation::Generated;
use super::report::{Cell, CellForm, Column, MeasuredTable, column};
use super::sample::Samples;
use ascend_tp::base::{DType, Diagnostic, Diagnostics};

const RECORDED: &str = include_str!("../../peers/recorded.toml");

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerTask {
    Prefill,
    /// A token after the prompt.
    Decode,
    /// Sum over ranks in separate processes.
    AllReduce {
        bytes: usize,
        dtype: DType,
    },
}

impl PeerTask {
    /// Returns the key in the output of peers, such as `all_reduce f32 16384`.
    #[must_use]
    pub(crate) fn key(self) -> String {
        match self {
            Self::Prefill => "prefill".to_owned(),
            Self::Decode => "decode".to_owned(),
            Self::AllReduce { bytes, dtype } => format!("all_reduce {dtype} {bytes}"),
        }
    }

    fn name(self) -> String {
        let ranks = figures::CARDS;
        match self {
            Self::Prefill => format!("prefill {}", LENGTHS.0),
            Self::Decode => format!("decode {} after {}", LENGTHS.1, LENGTHS.0),
            Self::AllReduce { bytes, .. } => {
                format!("all_reduce {}, {ranks} processes", ascend_tp::base::Bytes(bytes as u64))
            }
        }
    }

    const fn dtype(self) -> DType {
        match self {
            Self::AllReduce { dtype, .. } => dtype,
            Self::Prefill | Self::Decode => DType::BF16,
        }
    }

    /// Converts seconds to the figure's unit.
    fn figure(self, seconds: f64) -> (f64, &'static str) {
        match self {
            Self::Prefill => (LENGTHS.0 as f64 / seconds, "tokens/s"),
            Self::Decode => (1.0 / seconds, "tokens/s"),
            Self::AllReduce { .. } => (seconds * 1e6, "µs"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerProgram {
    /// Hugging Face transformers on `PyTorch`.
    Transformers,
    LlamaCpp,
    OpenMpi,
    /// gloo in `PyTorch`.
    Gloo,
}

const LARGE: PeerTask = PeerTask::AllReduce { bytes: figures::BYTES[0], dtype: DType::F32 };
const SMALL: PeerTask = PeerTask::AllReduce { bytes: figures::BYTES[1], dtype: DType::F32 };
const SMALL_F16: PeerTask = PeerTask::AllReduce { bytes: figures::BYTES[1], dtype: DType::F16 };

impl PeerProgram {
    pub(crate) const ALL: [Self; 4] = [Self::Transformers, Self::LlamaCpp, Self::OpenMpi, Self::Gloo];

    /// Returns tasks with target ratios.
    #[must_use]
    pub(crate) const fn tasks(self) -> &'static [(PeerTask, f64)] {
        match self {
            Self::Transformers => &[(PeerTask::Prefill, 1.2), (PeerTask::Decode, 1.0)],
            Self::LlamaCpp => &[(PeerTask::Prefill, 1.0), (PeerTask::Decode, 1.0)],
            Self::OpenMpi => &[(LARGE, 2.5), (SMALL, 2.0)],
            // gloo sums f16 one element at a time.
            Self::Gloo => &[(LARGE, 2.5), (SMALL, 2.0), (SMALL_F16, 100.0)],
        }
    }

    /// Returns whether the peer generates text. Other peers run collectives.
    #[must_use]
    pub(crate) const fn generates(self) -> bool {
        matches!(self, Self::Transformers | Self::LlamaCpp)
    }

    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Transformers => "transformers",
            Self::LlamaCpp => "llama.cpp",
            Self::OpenMpi => "Open MPI",
            Self::Gloo => "gloo",
        }
    }

    #[must_use]
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::Transformers => "pip install torch transformers",
            Self::LlamaCpp => "brew install llama.cpp, or build its llama-bench; and pip install gguf numpy",
            Self::OpenMpi => "apt-get install openmpi-bin libopenmpi-dev",
            Self::Gloo => "pip install torch numpy",
        }
    }

    /// Parses the output of a program in `cli/peers/`: the last line has a version and the seconds
    /// by task.
    pub(crate) fn read(self, printed: &str) -> Result<PeerMeasurement, Diagnostic> {
        let written = PeerOutput::of(self.name(), printed)?;
        self.times(written.version, |task| written.seconds.get(&task.key()).cloned().unwrap_or_default())
    }

    /// Parses the output of `llama-bench -o json`.
    pub(crate) fn read_llama_bench(
        printed: &[String],
        threads: usize,
    ) -> Result<PeerMeasurement, Diagnostic> {
        let this = Self::LlamaCpp;
        let mut tests: Vec<LlamaTest> = Vec::new();
        for text in printed {
            let read: Vec<LlamaTest> = serde_json::from_str(text).map_err(|error| {
                let expected = "a list of tests from llama-bench -o json";
                this.refuse(expected, format!("{error} in {}", start(text)))
            })?;
            tests.extend(read);
        }
        let (prompt, tokens) = LENGTHS;
        let mut seconds: BTreeMap<PeerTask, Vec<f64>> = BTreeMap::new();
        for test in &tests {
            let LlamaTest { n_prompt, n_gen, n_depth, n_threads, samples_ns, .. } = test;
            let (task, times) = match (*n_prompt, *n_gen, *n_depth) {
                (p, 0, 0) if p == prompt => (PeerTask::Prefill, 1),
                (0, n, depth) if n == tokens && depth == prompt => (PeerTask::Decode, tokens),
                other => {
                    let expected = format!("prompts of {prompt}, or {tokens} tokens at a depth of {prompt}");
                    return Err(
                        this.refuse(expected, format!("a test of prompt, tokens and depth {other:?}"))
                    );
                }
            };
            if *n_threads != threads {
                return Err(this.refuse(format!("{threads} threads"), n_threads));
            }
            seconds.entry(task).or_default().extend(samples_ns.iter().map(|ns| ns / 1e9 / times as f64));
        }
        let version =
            tests.first().map(|test| format!("llama.cpp {} ({})", test.build_number, test.build_commit));
        this.times(version.unwrap_or_default(), |task| seconds.get(&task).cloned().unwrap_or_default())
    }

    fn times(
        self,
        version: String,
        of: impl Fn(PeerTask) -> Vec<f64>,
    ) -> Result<PeerMeasurement, Diagnostic> {
        let mut seconds = BTreeMap::new();
        for (task, _) in self.tasks() {
            let times = of(*task);
            if times.is_empty() || times.iter().any(|time| !time.is_finite() || *time <= 0.0) {
                return Err(self.refuse(format!("seconds of {}", task.key()), format!("{times:?}")));
            }
            seconds.insert(*task, Samples::new(times));
        }
        Ok(PeerMeasurement { version, seconds })
    }

    fn refuse(self, expected: impl Display, found: impl Display) -> Diagnostic {
        Diagnostic::new(self.name(), "cannot parse the output").expected(expected).found(found)
    }
}

fn start(text: &str) -> String {
    format!("\"{}\"", text.chars().take(80).collect::<String>())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerOutput {
    pub(super) version: String,
    pub(super) seconds: BTreeMap<String, Vec<f64>>,
}

impl PeerOutput {
    pub(super) fn of(peer: &str, printed: &str) -> Result<Self, Diagnostic> {
        let line = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        serde_json::from_str(line).map_err(|error| {
            Diagnostic::new(peer, "cannot parse the output")
                .expected("an object with version and seconds in its last line")
                .found(format!("{error} in {}", start(line)))
        })
    }
}

#[derive(Deserialize)]
struct LlamaTest {
    build_commit: String,
    build_number: u64,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    samples_ns: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerMeasurement {
    pub(crate) version: String,
    /// Seconds of a prompt, token or exchange.
    pub(crate) seconds: BTreeMap<PeerTask, Samples>,
}

impl PeerMeasurement {
    #[must_use]
    pub(crate) fn generated(generated: &Generated) -> Self {
        let ms = |table: &MeasuredTable, key: &str| table.cells(key).find_map(Cell::number);
        let found = [
            (PeerTask::Prefill, ms(&generated.prefill, "time_ms")),
            (PeerTask::Decode, ms(&generated.decode, "step_ms")),
        ];
        Self::ours(found.into_iter().filter_map(|(task, ms)| Some((task, ms? / 1e3))))
    }

    /// Returns our times of separate exchanges across processes. Peers also wait for each exchange.
    #[must_use]
    pub(crate) fn exchanged(table: &MeasuredTable) -> Self {
        let us = |bytes: usize, dtype: DType| {
            table.number(&[("bytes", bytes.into()), ("dtype", dtype.name().into())], "alone_us")
        };
        let tasks = [LARGE, SMALL, SMALL_F16].into_iter();
        Self::ours(tasks.filter_map(|task| match task {
            PeerTask::AllReduce { bytes, dtype } => Some((task, us(bytes, dtype)? / 1e6)),
            PeerTask::Prefill | PeerTask::Decode => None,
        }))
    }

    fn ours(seconds: impl Iterator<Item = (PeerTask, f64)>) -> Self {
        let version = concat!("ascend-tp ", env!("CARGO_PKG_VERSION")).to_owned();
        Self {
            version,
            seconds: seconds.map(|(task, seconds)| (task, Samples::new(vec![seconds]))).collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Turns {
    pub(crate) peer: PeerProgram,
    /// Our times and the peer's times.
    pub(crate) rounds: Vec<(PeerMeasurement, PeerMeasurement)>,
}

const COLUMNS: [Column; 12] = [
    column("task", "task", CellForm::Text),
    column("dtype", "dtype", CellForm::Text),
    column("peer", "peer", CellForm::Text),
    column("ours", "ours", CellForm::Decimal),
    column("theirs", "theirs", CellForm::Decimal),
    column("unit", "unit", CellForm::Text),
    column("ratio", "times faster", CellForm::Decimal),
    column("least_ratio", "least", CellForm::Decimal),
    column("most_ratio", "most", CellForm::Decimal),
    column("target", "target", CellForm::Decimal),
    column("met", "met", CellForm::Text),
    column("rounds", "rounds", CellForm::Whole),
];

/// Returns medians of both sides, and median, minimum and maximum ratio.
#[must_use]
pub(crate) fn compared(all: &[Turns], threads: usize) -> MeasuredTable {
    let title = format!(
        "Comparison with peers in alternating rounds, {} in bf16 on {threads} threads; collectives with one thread per process",
        figures::MODEL
    );
    let mut table = MeasuredTable::new("peers", title, &COLUMNS);
    for Turns { peer, rounds } in all {
        let version = rounds.last().map_or(peer.name(), |(_, theirs)| theirs.version.as_str());
        for (task, target) in peer.tasks() {
            let of = |times: &PeerMeasurement| times.seconds.get(task).map(Samples::median);
            let pairs: Vec<(f64, f64)> =
                rounds.iter().filter_map(|(ours, theirs)| of(ours).zip(of(theirs))).collect();
            if pairs.is_empty() {
                continue;
            }
            let median = |of: fn(&(f64, f64)) -> f64| Samples::new(pairs.iter().map(of).collect()).median();
            let ratios = Samples::new(pairs.iter().map(|(ours, theirs)| theirs / ours).collect());
            let ((ours, unit), (theirs, _)) =
                (task.figure(median(|pair| pair.0)), task.figure(median(|pair| pair.1)));
            table.row([
                task.name().into(),
                task.dtype().name().into(),
                version.into(),
                ours.into(),
                theirs.into(),
                unit.into(),
                ratios.median().into(),
                ratios.min().into(),
                ratios.max().into(),
                (*target).into(),
                (if ratios.median() >= *target { "yes" } else { "no" }).into(),
                pairs.len().into(),
            ]);
        }
    }
    table
}

#[must_use]
pub(crate) fn round_text(peer: PeerProgram, ours: &PeerMeasurement, theirs: &PeerMeasurement) -> String {
    let tasks = peer.tasks().iter().filter_map(|(task, _)| {
        let of = |times: &PeerMeasurement| times.seconds.get(task).map(Samples::median);
        let (ours, theirs) = (of(ours)?, of(theirs)?);
        let ([our_figure, their_figure], unit) =
            ([ours, theirs].map(|seconds| task.figure(seconds).0), task.figure(ours).1);
        let (name, dtype, ratio) = (task.name(), task.dtype(), theirs / ours);
        Some(format!(
            "{name} {dtype} ours {our_figure:.1}, theirs {their_figure:.1} {unit}, {ratio:.2} times faster"
        ))
    });
    tasks.collect::<Vec<_>>().join("; ")
}

const MISSING_COLUMNS: [Column; 3] = [
    column("peer", "peer", CellForm::Text),
    column("missing", "missing", CellForm::Text),
    column("install", "installation", CellForm::Text),
];

#[must_use]
pub(crate) fn missing(peers: &[(PeerProgram, String)]) -> MeasuredTable {
    let mut table = MeasuredTable::new("peers_missing", "Peers that are not installed", &MISSING_COLUMNS);
    for (peer, what) in peers {
        table.row([peer.name().into(), what.as_str().into(), peer.install().into()]);
    }
    table
}

const RECORDED_COLUMNS: [Column; 5] = [
    column("task", "task", CellForm::Text),
    column("peer", "peer", CellForm::Text),
    column("figure", "figure", CellForm::Decimal),
    column("unit", "unit", CellForm::Text),
    column("how", "how", CellForm::Text),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRun {
    machine: String,
    date: String,
    peer: Vec<RecordedFigure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedFigure {
    task: String,
    name: String,
    value: f64,
    unit: String,
    how: String,
}

pub(crate) fn recorded() -> Result<MeasuredTable, Diagnostics> {
    let read: RecordedRun = toml::from_str(RECORDED)
        .map_err(|error| Diagnostic::new("cli/peers/recorded.toml", "cannot be parsed").found(error))?;
    let title = format!("Peers as recorded on {}, {}", read.machine, read.date);
    let mut table = MeasuredTable::new("peers_recorded", title, &RECORDED_COLUMNS);
    for RecordedFigure { task, name, value, unit, how } in read.peer {
        table.row([task.into(), name.into(), value.into(), unit.into(), how.into()]);
    }
    Ok(table)
}

/// Returns arguments of two runs: a prompt, and tokens after it.
#[must_use]
pub(crate) fn llama_bench_arguments() -> [Vec<String>; 2] {
    let (prompt, tokens) = LENGTHS;
    [format!("-p {prompt} -n 0"), format!("-p 0 -n {tokens} -d {prompt}")]
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
}

/// Returns arguments such as `f32:67108864:7`: element type, bytes and repetitions.
#[must_use]
pub(crate) fn exchange_arguments(peer: PeerProgram) -> Vec<String> {
    let argument = |task: &(PeerTask, f64)| match task.0 {
        PeerTask::AllReduce { bytes, dtype } => {
            let times = if bytes > 1 << 20 { 7 } else { 100 };
            Some(format!("{dtype}:{bytes}:{times}"))
        }
        PeerTask::Prefill | PeerTask::Decode => None,
    };
    peer.tasks().iter().filter_map(argument).collect()
}

/// Returns the JSON argument of a peer that generates, in the form of `config.json`.
pub(crate) fn generation_argument(threads: usize, repeats: usize) -> Result<Value, super::Error> {
    let model = figures::model()?.model;
    Ok(serde_json::json!({
        "config": {
            "vocab_size": model.vocab_size,
            "hidden_size": model.hidden_size,
            "intermediate_size": model.intermediate_size,
            "num_hidden_layers": model.layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "max_position_embeddings": model.max_positions,
            "rms_norm_eps": model.norm_epsilon,
            "rope_theta": model.rope.theta,
            "tie_word_embeddings": model.tied_embeddings,
        },
        "prompt": LENGTHS.0,
        "tokens": LENGTHS.1,
        "threads": threads,
        "repeats": repeats,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(seconds: &str) -> String {
        format!("a warning\n{{\"version\": \"gloo (torch 2)\", \"seconds\": {{{seconds}}}}}\n\n")
    }

    const EXCHANGED: &str = r#""all_reduce f32 67108864": [0.2, 0.1, 0.3], "all_reduce f32 16384": [1e-4]"#;

    fn llama(prompt: usize, tokens: usize, depth: usize, threads: usize) -> String {
        format!(
            r#"[{{"build_commit": "abc", "build_number": 7, "cpu_info": "x", "n_threads": {threads}, "n_prompt": {prompt},
                "n_gen": {tokens}, "n_depth": {depth}, "samples_ns": [3200000000, 6400000000, 3200000000]}}]"#
        )
    }

    #[test]
    fn what_programs_print_is_read_or_refused_with_what_was_found() {
        let times = PeerProgram::OpenMpi.read(&printed(EXCHANGED)).unwrap();
        assert_eq!((times.version.as_str(), times.seconds[&LARGE].median()), ("gloo (torch 2)", 0.2));
        let message = PeerProgram::Gloo.read(&printed(EXCHANGED)).unwrap_err().to_string();
        assert_eq!(
            message,
            "gloo: cannot parse the output: expected seconds of all_reduce f16 16384, found []"
        );
        for text in [
            "",
            "Killed",
            "{}",
            &printed(r#""prefill": [1], "decode": [0]"#),
            &printed(r#""prefill": "fast""#),
        ] {
            let message = PeerProgram::Transformers.read(text).unwrap_err().to_string();
            assert!(message.starts_with("transformers: cannot parse the output: expected "), "{message}");
        }
    }

    #[test]
    fn llama_bench_is_read_if_it_did_what_was_asked() {
        let both = [llama(512, 0, 0, 2), llama(0, 32, 512, 2)];
        let times = PeerProgram::read_llama_bench(&both, 2).unwrap();
        assert_eq!(times.version, "llama.cpp 7 (abc)");
        assert_eq!(
            (times.seconds[&PeerTask::Prefill].median(), times.seconds[&PeerTask::Decode].median()),
            (3.2, 0.1)
        );
        let message = |printed: &[String]| PeerProgram::read_llama_bench(printed, 2).unwrap_err().to_string();
        assert!(message(&both[..1]).contains("expected seconds of decode"));
        assert!(message(&[llama(512, 0, 0, 4)]).contains("expected 2 threads, found 4"));
        assert!(
            message(&[llama(128, 0, 0, 2)]).contains("found a test of prompt, tokens and depth (128, 0, 0)")
        );
        assert!(
            message(&["error: no model".to_owned()])
                .contains("expected a list of tests from llama-bench -o json")
        );
    }

    #[test]
    fn a_ratio_is_of_sides_that_took_turns() {
        let times = |seconds: f64| PeerMeasurement {
            version: "Open MPI v4".to_owned(),
            seconds: BTreeMap::from([
                (LARGE, Samples::new(vec![seconds])),
                (SMALL, Samples::new(vec![seconds / 1e3])),
            ]),
        };
        let rounds =
            vec![(times(0.125), times(0.25)), (times(0.25), times(1.0)), (times(0.125), times(0.375))];
        let table = compared(&[Turns { peer: PeerProgram::OpenMpi, rounds: rounds.clone() }], 2);
        let large = [("task", Cell::from("all_reduce 64.0 MiB, 8 processes"))];
        let number = |key: &str| table.number(&large, key);
        assert_eq!((number("ours"), number("theirs")), (Some(125_000.0), Some(375_000.0)));
        assert_eq!(
            [number("ratio"), number("least_ratio"), number("most_ratio")].map(Option::unwrap),
            [3.0, 2.0, 4.0]
        );
        assert_eq!(table.cells("met").cloned().collect::<Vec<_>>(), ["yes".into(), "yes".into()]);
        let text = round_text(PeerProgram::OpenMpi, &rounds[0].0, &rounds[0].1);
        assert!(
            text.starts_with(
                "all_reduce 64.0 MiB, 8 processes f32 ours 125000.0, theirs 250000.0 µs, 2.00 times faster; "
            ),
            "{text}"
        );
        assert_eq!(compared(&[Turns { peer: PeerProgram::Gloo, rounds: Vec::new() }], 2).rows.len(), 0);
    }

    #[test]
    fn what_was_recorded_elsewhere_has_no_ratio() {
        let table = recorded().unwrap();
        assert!(
            table.title.starts_with("Peers as recorded on ") && table.title.contains(", 20"),
            "{}",
            table.title
        );
        assert!(
            !table.rows.is_empty()
                && table.cells("figure").all(|cell| cell.number().is_some_and(|value| value > 0.0))
        );
        assert!(
            table
                .columns
                .iter()
                .all(|column| column.form != CellForm::Percent && !column.key.contains("ratio"))
        );
    }

    #[test]
    fn whoever_is_missing_is_named_with_what_installs_it() {
        let table = missing(&[(PeerProgram::OpenMpi, "no mpicc on PATH".to_owned())]);
        assert_eq!(
            table.rows,
            [["Open MPI", "no mpicc on PATH", "apt-get install openmpi-bin libopenmpi-dev"].map(Cell::from)]
        );
    }

    #[test]
    fn peers_are_told_the_shape_and_the_sizes() {
        let told = generation_argument(2, 5).unwrap();
        assert_eq!((told["config"]["hidden_size"].as_u64(), told["threads"].as_u64()), (Some(896), Some(2)));
        assert_eq!(exchange_arguments(PeerProgram::OpenMpi), ["f32:67108864:7", "f32:16384:100"]);
    }
}

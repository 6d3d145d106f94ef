//! Counters and histograms, in the text format of Prometheus.
//!
//! - Input: what happens to requests, and the load of the engine.
//! - Output: the text of `/metrics`.
//! - Invariants: each series has a name of this server, and the name that vLLM gives to the same
//!   number, if there is one. Counters never decrease.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of times until a token or an answer, in seconds.
const LATENCIES: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
    120.0, 600.0,
];

/// Upper bounds of the time between two tokens, in seconds.
const TOKEN_TIMES: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5];

/// Numbers of this server since its start.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) queue_time: Histogram,
    pub(crate) first_token_time: Histogram,
    pub(crate) token_time: Histogram,
    pub(crate) request_time: Histogram,
    pub(crate) prompt_tokens: Counter,
    pub(crate) new_tokens: Counter,
    /// Prompt tokens of sequences that were looked up in the prefix cache.
    /// Ended sequences by reason.
    finished: Mutex<BTreeMap<&'static str, u64>>,
    /// Responses by status.
    responses: Mutex<BTreeMap<u16, u64>>,
}

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of times up to each bound.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// Number of times above the bound before and up to this one; the last has no bound.
    counts: Vec<AtomicU64>,
    sum_ns: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_ns: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(time_ns, Ordering::Relaxed);
    }
}

/// The state of the engine when metrics are read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EngineGauges {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) available_blocks: usize,
    pub(crate) total_blocks: usize,
    pub(crate) block_tokens: usize,
    pub(crate) preemptions: u64,
    pub(crate) hit_tokens: u64,
    pub(crate) query_tokens: u64,
    pub(crate) verified_drafts: u64,
    pub(crate) accepted_drafts: u64,
}

impl EngineGauges {
    fn cache_usage(&self) -> f64 {
        let used = self.total_blocks.saturating_sub(self.available_blocks);
        used as f64 / self.total_blocks.max(1) as f64
    }
}

/// A series: its kind, its name here, the names of vLLM, and its help text.
struct Series {
    kind: &'static str,
    name: &'static str,
    aliases: &'static [&'static str],
    help: &'static str,
}

const fn gauge(name: &'static str, aliases: &'static [&'static str], help: &'static str) -> Series {
    Series { kind: "gauge", name, aliases, help }
}

const fn counter(name: &'static str, aliases: &'static [&'static str], help: &'static str) -> Series {
    Series { kind: "counter", name, aliases, help }
}

const fn histogram(name: &'static str, aliases: &'static [&'static str], help: &'static str) -> Series {
    Series { kind: "histogram", name, aliases, help }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            queue_time: Histogram::new(&LATENCIES),
            first_token_time: Histogram::new(&LATENCIES),
            token_time: Histogram::new(&TOKEN_TIMES),
            request_time: Histogram::new(&LATENCIES),
            prompt_tokens: Counter::default(),
            new_tokens: Counter::default(),
            finished: Mutex::default(),
            responses: Mutex::default(),
        }
    }

    pub(crate) fn sequences_finished(&self, reason: &'static str, count: usize) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished.entry(reason).or_default() += count as u64;
    }

    pub(crate) fn responded(&self, status: u16) {
        *self.responses.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }

    /// Returns the text of all series, for the model `name`.
    pub(crate) fn text(&self, name: &str, gauges: EngineGauges) -> String {
        let mut text =
            MetricsText { text: String::new(), label: format!("model_name=\"{}\"", escaped(name)) };
        for (series, value) in [
            (&REQUESTS_RUNNING, gauges.running as f64),
            (&REQUESTS_WAITING, gauges.waiting as f64),
            (&CACHE_USAGE, gauges.cache_usage()),
            (&PROMPT_TOKENS, self.prompt_tokens.get() as f64),
            (&NEW_TOKENS, self.new_tokens.get() as f64),
            (&HIT_TOKENS, gauges.hit_tokens as f64),
            (&QUERY_TOKENS, gauges.query_tokens as f64),
            (&PREEMPTIONS, gauges.preemptions as f64),
            (&DRAFTS, gauges.verified_drafts as f64),
            (&ACCEPTED_DRAFTS, gauges.accepted_drafts as f64),
        ] {
            text.labelled(series, &[(String::new(), value)]);
        }
        let EngineGauges { block_tokens, total_blocks, .. } = gauges;
        let config = format!(",block_size=\"{block_tokens}\",num_gpu_blocks=\"{total_blocks}\"");
        text.labelled(&CACHE_CONFIG, &[(config, 1.0)]);
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let finished =
            finished.iter().map(|(reason, count)| (format!(",finished_reason={reason:?}"), *count as f64));
        text.labelled(&FINISHED, &finished.collect::<Vec<_>>());
        let responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let responses =
            responses.iter().map(|(status, count)| (format!(",status=\"{status}\""), *count as f64));
        text.labelled(&RESPONSES, &responses.collect::<Vec<_>>());
        for (series, histogram) in [
            (&QUEUE_TIME, &self.queue_time),
            (&FIRST_TOKEN_TIME, &self.first_token_time),
            (&TOKEN_TIME, &self.token_time),
            (&REQUEST_TIME, &self.request_time),
        ] {
            text.histogram(series, histogram);
        }
        text.text
    }
}

const REQUESTS_RUNNING: Series = gauge("requests_running", &["num_requests_running"], "Sequences that run.");
const REQUESTS_WAITING: Series =
    gauge("requests_waiting", &["num_requests_waiting"], "Requests and sequences that wait.");
const CACHE_USAGE: Series = gauge(
    "cache_usage_ratio",
    &["kv_cache_usage_perc", "gpu_cache_usage_perc"],
    "Share of the cache blocks that running sequences hold, from 0 to 1.",
);
const CACHE_CONFIG: Series =
    gauge("cache_config_info", &["cache_config_info"], "Size and number of cache blocks.");
const PROMPT_TOKENS: Series = counter("prompt_tokens_total", &["prompt_tokens_total"], "Tokens of prompts.");
const NEW_TOKENS: Series = counter("new_tokens_total", &["generation_tokens_total"], "Generated tokens.");
const HIT_TOKENS: Series = counter(
    "prefix_cache_hit_tokens_total",
    &["prefix_cache_hits_total"],
    "Tokens that came from the prefix cache.",
);
const QUERY_TOKENS: Series = counter(
    "prefix_cache_query_tokens_total",
    &["prefix_cache_queries_total"],
    "Tokens that were looked up in the prefix cache.",
);
const PREEMPTIONS: Series =
    counter("preemptions_total", &["num_preemptions_total"], "Preemptions of sequences.");
const DRAFTS: Series =
    counter("draft_tokens_total", &["spec_decode_num_draft_tokens_total"], "Drafts that were verified.");
const ACCEPTED_DRAFTS: Series = counter(
    "accepted_draft_tokens_total",
    &["spec_decode_num_accepted_tokens_total"],
    "Drafts that were accepted.",
);
const FINISHED: Series =
    counter("sequences_finished_total", &["request_success_total"], "Ended sequences by reason.");
const RESPONSES: Series = counter("http_responses_total", &[], "Responses by status.");
const QUEUE_TIME: Series =
    histogram("queue_time_seconds", &["request_queue_time_seconds"], "Time until a request may start.");
const FIRST_TOKEN_TIME: Series = histogram(
    "time_to_first_token_seconds",
    &["time_to_first_token_seconds"],
    "Time until the first token of a request.",
);
const TOKEN_TIME: Series = histogram(
    "time_per_output_token_seconds",
    &["time_per_output_token_seconds", "request_time_per_output_token_seconds"],
    "Mean time between the tokens of a sequence.",
);
const REQUEST_TIME: Series = histogram(
    "request_time_seconds",
    &["e2e_request_latency_seconds"],
    "Time of a request from its arrival to its end.",
);

/// Returns a value of a label with the escapes of Prometheus.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct MetricsText {
    text: String,
    label: String,
}

impl MetricsText {
    /// Writes the lines of a series under all its names.
    fn series(&mut self, series: &Series, lines: impl Fn(&mut Self, &str)) {
        let own = format!("ascend_tp_{}", series.name);
        let aliases = series.aliases.iter().map(|alias| format!("vllm:{alias}"));
        for name in std::iter::once(own).chain(aliases) {
            self.line(format_args!("# HELP {name} {}", series.help));
            self.line(format_args!("# TYPE {name} {}", series.kind));
            lines(self, &name);
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _written = writeln!(self.text, "{line}");
    }

    /// Writes a line for each value. Its further labels begin with a comma.
    fn labelled(&mut self, series: &Series, values: &[(String, f64)]) {
        self.series(series, |text, name| {
            let label = text.label.clone();
            for (more, value) in values {
                text.line(format_args!("{name}{{{label}{more}}} {value}"));
            }
        });
    }

    fn histogram(&mut self, series: &Series, histogram: &Histogram) {
        let counts: Vec<u64> = histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = histogram.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        self.series(series, |text, name| {
            let label = text.label.clone();
            let mut total = 0;
            let bounds = histogram.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
            for (bound, count) in bounds.zip(&counts) {
                total += count;
                text.line(format_args!("{name}_bucket{{{label},le=\"{bound}\"}} {total}"));
            }
            text.line(format_args!("{name}_sum{{{label}}} {sum}"));
            text.line(format_args!("{name}_count{{{label}}} {total}"));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_escapes_of_prometheus() {
        assert_eq!(escaped("a\"\\\n\té\u{1}"), "a\\\"\\\\\\n\té\u{1}");
    }

    #[test]
    fn a_series_has_both_names_and_buckets_add_up() {
        let metrics = Metrics::new();
        for milliseconds in [1, 3, 700_000] {
            metrics.first_token_time.observe(Duration::from_millis(milliseconds));
        }
        metrics.sequences_finished("stop", 1);
        let gauges = EngineGauges { available_blocks: 3, total_blocks: 4, ..EngineGauges::default() };
        let text = metrics.text("a\"b", gauges);
        for line in [
            r#"ascend_tp_cache_usage_ratio{model_name="a\"b"} 0.25"#,
            r#"vllm:kv_cache_usage_perc{model_name="a\"b"} 0.25"#,
            r#"vllm:request_success_total{model_name="a\"b",finished_reason="stop"} 1"#,
            r#"vllm:time_to_first_token_seconds_bucket{model_name="a\"b",le="0.001"} 1"#,
            r#"vllm:time_to_first_token_seconds_bucket{model_name="a\"b",le="0.005"} 2"#,
            r#"vllm:time_to_first_token_seconds_bucket{model_name="a\"b",le="600"} 2"#,
            r#"vllm:time_to_first_token_seconds_bucket{model_name="a\"b",le="+Inf"} 3"#,
            r#"ascend_tp_time_to_first_token_seconds_sum{model_name="a\"b"} 700.004"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), count, "a name occurs twice");
    }
}

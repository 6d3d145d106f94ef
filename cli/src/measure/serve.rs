//! Throughput of many requests at once, next to llama.cpp's.
//!
//! Both read a prompt of each stream, and then generate. All streams start together.

use std::ops::ControlFlow;
use std::time::Instant;

use serde::Deserialize;

use super::error::Error;
use super::report::{CellForm, Column, MeasuredTable, column};
use super::{Bench, Effort, Samples, figures, random};
use ascend_tp::base::Diagnostic;
use ascend_tp::compile::Deployment;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::{Request, Session};
use ascend_tp::program::models::Head;

/// Numbers of streams.
pub(crate) const STREAMS: [usize; 3] = [1, 8, 32];

/// Tokens of each prompt, and generated tokens of each stream.
pub(crate) const LENGTHS: [usize; 2] = [64, 64];

/// Tokens per second with one number of streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Throughput {
    pub(crate) streams: usize,
    /// Generated tokens per second, after the prompts.
    pub(crate) decode: f64,
    /// Tokens per second, prompts included.
    pub(crate) total: f64,
}

/// Measures this library in one process with one emulated card.
pub(crate) fn ours(bench: &Bench, streams: usize) -> Result<Throughput, Error> {
    let setting = figures::model()?;
    let [prompt, tokens] = LENGTHS;
    let deployment = Deployment {
        precision: setting.precision,
        batch: streams,
        longest_prompt: prompt,
        context: prompt + tokens,
        head: Head::LastToken,
        ..Deployment::of(&setting.model, 1)
    };
    let engine = EngineOptions::default();
    let mut session =
        Session::start_filled(&bench.cann, &setting.model, &deployment, &engine, random::weights)?;
    let vocabulary = setting.model.vocab_size;
    let request = |stream: usize| {
        let ids = (0..prompt).map(|at| ((at + 31 * stream) * 7919 % vocabulary) as u32);
        Request { max_new_tokens: Some(tokens), ..Request::new(ids.collect::<Vec<u32>>()) }
    };
    let requests: Vec<Request> = (0..streams).map(request).collect();
    // The first batch is a warm-up.
    session.generate(&requests[..1], &mut |_| ControlFlow::Continue(()))?;
    session.clear_caches()?;
    let started = Instant::now();
    let generation = session.generate(&requests, &mut |_| ControlFlow::Continue(()))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Throughput {
        streams,
        decode: generation.summary.decode_tokens as f64 / generation.summary.decode_seconds,
        total: (streams * (prompt + tokens)) as f64 / seconds,
    })
}

/// Returns the arguments of `llama-batched-bench` without the file of the model.
#[must_use]
pub(crate) fn llama_arguments(threads: usize) -> Vec<String> {
    let [prompt, tokens] = LENGTHS;
    let streams = STREAMS.map(|streams| streams.to_string()).join(",");
    let context = STREAMS.iter().max().unwrap_or(&1) * (prompt + tokens);
    format!("-c {context} -npp {prompt} -ntg {tokens} -npl {streams} -t {threads} --output-format jsonl")
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[derive(Deserialize)]
struct LlamaLine {
    pp: usize,
    tg: usize,
    pl: usize,
    speed_tg: f64,
    speed: f64,
}

/// Parses the output of `llama-batched-bench --output-format jsonl`.
pub(crate) fn read_llama(printed: &str) -> Result<Vec<Throughput>, Diagnostic> {
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    let found: Vec<Throughput> = lines
        .filter_map(|line| serde_json::from_str::<LlamaLine>(line).ok())
        .filter(|line| [line.pp, line.tg] == LENGTHS)
        .map(|line| Throughput { streams: line.pl, decode: line.speed_tg, total: line.speed })
        .collect();
    let is_asked = found.iter().map(|throughput| throughput.streams).eq(STREAMS);
    if is_asked && found.iter().all(|throughput| throughput.decode > 0.0 && throughput.total > 0.0) {
        return Ok(found);
    }
    Err(Diagnostic::new("llama.cpp", "cannot parse the output")
        .expected(format!("one line of JSON for each of {STREAMS:?} streams"))
        .found(format!("{} lines", found.len())))
}

/// Ours and theirs of one round, by number of streams.
pub(crate) type ServeRound = (Vec<Throughput>, Option<Vec<Throughput>>);

const COLUMNS: [Column; 8] = [
    column("streams", "streams", CellForm::Whole),
    column("decode_tokens_s", "tokens/s", CellForm::Decimal),
    column("decode_spread", "spread", CellForm::Percent),
    column("tokens_s", "with prompts", CellForm::Decimal),
    column("their_decode_tokens_s", "llama.cpp", CellForm::Decimal),
    column("their_tokens_s", "with prompts", CellForm::Decimal),
    column("ratio", "ratio", CellForm::Decimal),
    column("ratio_with_prompts", "with prompts", CellForm::Decimal),
];

/// Returns the medians of all rounds in this process.
#[must_use]
pub(crate) fn table(rounds: &[ServeRound]) -> MeasuredTable {
    table_of("serve", "", rounds)
}

/// Returns the medians of all rounds over HTTP.
#[must_use]
pub(crate) fn http_table(rounds: &[ServeRound]) -> MeasuredTable {
    table_of("serve_http", " over HTTP", rounds)
}

fn table_of(name: &str, way: &str, rounds: &[ServeRound]) -> MeasuredTable {
    let [prompt, tokens] = LENGTHS;
    let title = format!("Qwen2.5-0.5B in bf16{way}, streams of {prompt} + {tokens} tokens");
    let mut table = MeasuredTable::new(name, title, &COLUMNS);
    for (at, streams) in STREAMS.into_iter().enumerate() {
        let samples = |of: &dyn Fn(&ServeRound) -> Option<f64>| {
            let found: Vec<f64> = rounds.iter().filter_map(of).collect();
            (!found.is_empty()).then(|| Samples::new(found))
        };
        let ours = samples(&|(ours, _)| Some(ours.get(at)?.decode));
        let ours_total = samples(&|(ours, _)| Some(ours.get(at)?.total));
        let theirs = samples(&|(_, theirs)| Some(theirs.as_ref()?.get(at)?.decode));
        let theirs_total = samples(&|(_, theirs)| Some(theirs.as_ref()?.get(at)?.total));
        // A cell without a number stays empty.
        let median = |samples: &Option<Samples>| samples.as_ref().map_or(f64::NAN, Samples::median);
        let ratio = |ours: &Option<Samples>, theirs: &Option<Samples>| median(ours) / median(theirs);
        table.row([
            streams.into(),
            median(&ours).into(),
            ours.as_ref().map_or(f64::NAN, Samples::spread).into(),
            median(&ours_total).into(),
            median(&theirs).into(),
            median(&theirs_total).into(),
            ratio(&ours, &theirs).into(),
            ratio(&ours_total, &theirs_total).into(),
        ]);
    }
    table
}

/// Number of rounds, where both sides take turns.
#[must_use]
pub(crate) const fn rounds(effort: Effort) -> usize {
    match effort {
        Effort::Quick => 1,
        Effort::Full => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_llama_batched_bench_are_read() {
        let line = |pl| {
            format!(
                r#"{{"pp": 64, "tg": 64, "pl": {pl}, "n_kv": 9, "t_pp": 1.0, "speed_tg": {pl}.5, "speed": 2.0}}"#
            )
        };
        let printed = format!("main: loaded\n{}\n", STREAMS.map(line).join("\n"));
        let found = read_llama(&printed).unwrap();
        assert_eq!(found[2], Throughput { streams: 32, decode: 32.5, total: 2.0 });
        assert!(read_llama("main: failed").unwrap_err().to_string().contains("found 0 lines"));
        let words = llama_arguments(2).join(" ");
        assert_eq!(words, "-c 4096 -npp 64 -ntg 64 -npl 1,8,32 -t 2 --output-format jsonl");
    }

    #[test]
    fn rows_compare_medians() {
        let throughput = |streams: usize, decode: f64| Throughput { streams, decode, total: 2.0 * decode };
        let round = |ours: f64, theirs: f64| {
            let of = |decode: f64| STREAMS.map(|streams| throughput(streams, decode)).to_vec();
            (of(ours), Some(of(theirs)))
        };
        let table = table(&[round(3.0, 2.0), round(5.0, 2.0), round(4.0, 2.0)]);
        let ratios: Vec<Option<f64>> = table.cells("ratio").map(super::super::report::Cell::number).collect();
        assert_eq!(ratios, [Some(2.0); 3]);
    }
}

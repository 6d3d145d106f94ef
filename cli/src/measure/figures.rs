//! Comparison of measured figures with targets: a time, a ratio to a limit of the same run, or a
//! ratio to one card. Targets against other programs are in [`peers`](super::peers).

use super::collectives::{self, MeasuredCollective};
use super::compile;
use super::error::Error;
use super::generation::{self, Generated};
use super::operators::{Product, products};
use super::report::{CellForm, Column, MeasuredTable, column};
use super::{Bench, host, load};
use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::Launching;
use ascend_tp::placement::{ExpertShards, Residual};

/// Cards and ranks of figures with several cards.
pub(crate) const CARDS: usize = 8;

pub(super) const MODEL: &str = "qwen2.5-0.5b";

/// Model of the compile and executor figures.
const LARGE_MODEL: &str = "qwen-72b";

/// A large exchange, and one token of a layer of [`LARGE_MODEL`].
pub(super) const BYTES: [usize; 2] = [64 << 20, 16 << 10];

/// Prompt tokens and generated tokens.
pub(super) const LENGTHS: (usize, usize) = (512, 32);

/// Weight sizes: of matrix products, of the vector–matrix product.
const WIDTHS: (usize, usize) = (4096, 8192);

const PRODUCTS: [Product; 3] = [
    Product { dtype: DType::BF16, m: 256, k: WIDTHS.0, n: WIDTHS.0 },
    Product { dtype: DType::F32, m: 256, k: WIDTHS.0, n: WIDTHS.0 },
    Product { dtype: DType::BF16, m: 1, k: WIDTHS.1, n: WIDTHS.1 },
];

const COLUMNS: [Column; 7] = [
    column("what", "figure", CellForm::Text),
    column("figure", "value", CellForm::Decimal),
    column("target", "target", CellForm::Decimal),
    column("unit", "unit", CellForm::Text),
    column("reached", "reached", CellForm::Percent),
    column("met", "met", CellForm::Text),
    column("beside", "note", CellForm::Text),
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) figures: MeasuredTable,
    pub(crate) tables: Vec<MeasuredTable>,
}

/// Returns the exchanges, for one process or several.
#[must_use]
pub(crate) fn exchanges() -> collectives::ExchangeSetting {
    collectives::ExchangeSetting {
        ops: vec![MeasuredCollective::AllReduce],
        dtypes: vec![DType::F32, DType::F16],
        ranks: vec![CARDS],
        bytes: BYTES.to_vec(),
        iterations: None,
        warmup: 5,
    }
}

pub(crate) fn model() -> Result<generation::GenerationSetting, Error> {
    setting(MODEL, &[1])
}

/// Measures all parts except `across`, the result of `CARDS` processes.
pub(crate) fn measure(bench: &Bench, across: MeasuredTable) -> Result<Measured, Error> {
    let in_process = collectives::run(bench, &exchanges())?;
    let products = products(bench, &PRODUCTS)?;
    let model = setting(MODEL, &[1, CARDS])?;
    let Generated { prefill, decode } = generation::run(bench, &model)?;
    let large = setting(LARGE_MODEL, &[CARDS])?;
    let host = host::run(&large, bench.effort)?;
    let compile = compile::CompileSetting { name: large.name, model: large.model, cards: CARDS };
    let compile = compile::run(&[compile], bench.effort.budget())?;
    let load = load::run(bench, &generation::GenerationSetting { cards: vec![CARDS], ..model })?;
    let mut tables = vec![in_process, across, products, prefill, decode, host, compile, load];
    let figures = figures(&tables)?;
    for (table, name) in tables.iter_mut().zip(["collectives_in_process", "collectives_across_processes"]) {
        name.clone_into(&mut table.name);
    }
    Ok(Measured { figures, tables })
}

fn setting(name: &str, cards: &[usize]) -> Result<generation::GenerationSetting, Error> {
    let missing = || Diagnostics::from(Diagnostic::new(name, "unknown preset"));
    Ok(generation::GenerationSetting {
        name: name.to_owned(),
        model: ModelConfig::preset(name).ok_or_else(missing)?,
        cards: cards.to_vec(),
        precision: DType::BF16.into(),
        residual: Residual::Replicate,
        experts: ExpertShards::Whole,
        launching: Launching::Eager,
        prompt: LENGTHS.0,
        tokens: LENGTHS.1,
    })
}

#[derive(Clone, Copy)]
enum FigureGoal {
    AtLeast(f64),
    AtMost(f64),
}

fn figures(tables: &[MeasuredTable]) -> Result<MeasuredTable, Error> {
    let [in_process, _, products, prefill, decode, host, compile, load] = tables else {
        return Err(Diagnostics::from(Diagnostic::new("figures", "a part was not measured")).into());
    };
    let mut figures = Figures(MeasuredTable::new("figures", "Performance targets", &COLUMNS));
    figures.collectives(in_process);
    figures.products(products);
    figures.generation(prefill, decode);
    figures.host(host, compile);
    figures.load(load);
    Ok(figures.0)
}

struct Figures(MeasuredTable);

impl Figures {
    /// Adds a figure; `None` means not measured.
    fn row(
        &mut self,
        subject: &str,
        figure: Option<f64>,
        aim: FigureGoal,
        unit: &str,
        beside: Option<String>,
    ) {
        let (target, reached, sign) = match aim {
            FigureGoal::AtLeast(target) => (target, figure.map(|figure| figure / target), "≥"),
            FigureGoal::AtMost(target) => (target, figure.map(|figure| target / figure), "≤"),
        };
        let met = reached.map_or("not measured", |reached| if reached >= 1.0 { "yes" } else { "no" });
        let unit = format!("{sign} {unit}");
        let beside = beside.unwrap_or_default();
        self.0.row([
            subject.into(),
            figure.into(),
            target.into(),
            unit.into(),
            reached.into(),
            met.into(),
            beside.into(),
        ]);
    }

    fn collectives(&mut self, in_process: &MeasuredTable) {
        let exchange = |dtype: DType, bytes: usize, key: &str| {
            in_process.number(&[("dtype", dtype.name().into()), ("bytes", bytes.into())], key)
        };
        let part = percent(exchange(DType::F32, BYTES[0], "of_copy"));
        self.row(
            "all_reduce f32 64 MiB, 8 ranks in process",
            part,
            FigureGoal::AtLeast(70.0),
            "% of copy",
            None,
        );
        let us = exchange(DType::F16, BYTES[1], "time_us");
        let alone = exchange(DType::F16, BYTES[1], "alone_us").map(|us| format!("{us:.1} alone"));
        self.row("all_reduce f16 16 KiB, 8 ranks in process", us, FigureGoal::AtMost(15.0), "µs", alone);
    }

    fn products(&mut self, products: &MeasuredTable) {
        for (product, name, aim, unit, key, unit_of_rate) in [
            (&PRODUCTS[0], "product bf16, 256 × 4096 × 4096", 75.0, "% of peak", "gflops", "GFLOP/s"),
            (&PRODUCTS[1], "product f32, 256 × 4096 × 4096", 80.0, "% of peak", "gflops", "GFLOP/s"),
            (&PRODUCTS[2], "vector–matrix bf16, 8192 × 8192", 90.0, "% of read", "gb_s", "GB/s"),
        ] {
            let of = |key: &str| {
                products.number(&[("dtype", product.dtype.name().into()), ("m", product.m.into())], key)
            };
            let rate = of(key).map(|rate| format!("{rate:.1} {unit_of_rate}"));
            self.row(name, percent(of("of_limit")), FigureGoal::AtLeast(aim), unit, rate);
        }
    }

    fn generation(&mut self, prefill: &MeasuredTable, decode: &MeasuredTable) {
        let rate = |table: &MeasuredTable, cards: usize| {
            of_cards(table, cards, "tokens_s").map(|rate| format!("{rate:.1} tokens/s"))
        };
        let step = percent(of_cards(decode, 1, "of_limit"));
        self.row(
            &format!("decode {MODEL}, 1 card"),
            step,
            FigureGoal::AtLeast(92.0),
            "% of read",
            rate(decode, 1),
        );
        for (name, table) in [("decode", decode), ("prefill 512", prefill)] {
            let part = percent(of_cards(table, CARDS, "of_first"));
            self.row(
                &format!("{name} {MODEL}, 8 cards"),
                part,
                FigureGoal::AtLeast(85.0),
                "% of 1 card",
                rate(table, CARDS),
            );
        }
    }

    fn host(&mut self, host: &MeasuredTable, compile: &MeasuredTable) {
        let us =
            |launching: &str| host.number(&[("launching", launching.into())], "cpu_ns").map(|ns| ns / 1e3);
        let captured = us("captured").map(|us| format!("{us:.2} captured"));
        let what = format!("executor, kernels off, {LARGE_MODEL}, 8 ranks");
        self.row(&what, us("eager"), FigureGoal::AtMost(1.0), "µs per step and rank", captured);
        let ms = of_cards(compile, CARDS, "time_ms");
        self.row(&format!("compile {LARGE_MODEL} for 8 cards"), ms, FigureGoal::AtMost(100.0), "ms", None);
    }

    fn load(&mut self, load: &MeasuredTable) {
        let loaded = |which: &str, key: &str| load.number(&[("load", which.into())], key);
        for (which, into) in [("first", "new memory"), ("again", "reused memory")] {
            let rate = loaded(which, "gb_s").map(|rate| format!("{rate:.1} GB/s"));
            let part = percent(loaded(which, "of_copy"));
            self.row(
                &format!("load 1 GB on 8 cards, into {into}"),
                part,
                FigureGoal::AtLeast(70.0),
                "% of copy",
                rate,
            );
        }
        let over = loaded("first", "over_shards_bytes").map(|bytes| bytes / f64::from(1 << 20));
        self.row("load, resident memory beyond the shards", over, FigureGoal::AtMost(64.0), "MiB", None);
    }
}

fn percent(part: Option<f64>) -> Option<f64> {
    part.map(|part| 100.0 * part)
}

fn of_cards(table: &MeasuredTable, cards: usize, key: &str) -> Option<f64> {
    table.number(&[("cards", cards.into())], key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::report::Cell;

    const HOST: [Column; 2] =
        [column("launching", "launching", CellForm::Text), column("cpu_ns", "ns", CellForm::Decimal)];

    #[test]
    fn what_is_not_measured_is_not_met() {
        let mut host = MeasuredTable::new("host", "", &HOST);
        host.row(["eager".into(), 500.0.into()]);
        let tables: Vec<MeasuredTable> =
            (0..8).map(|at| if at == 5 { host.clone() } else { MeasuredTable::new("", "", &HOST) }).collect();
        let found = figures(&tables).unwrap();
        let met: Vec<&Cell> = found.cells("met").filter(|met| **met != Cell::from("not measured")).collect();
        assert_eq!((met, found.rows.len()), (vec![&Cell::from("yes")], 13));
        let row = [("what", Cell::from("executor, kernels off, qwen-72b, 8 ranks"))];
        assert_eq!((found.number(&row, "figure"), found.number(&row, "reached")), (Some(0.5), Some(2.0)));
    }
}

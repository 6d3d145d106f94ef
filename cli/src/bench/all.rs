//! `bench all`: measures every figure that has a target, and in a full run the detailed tables.
//!
//! Child processes, one per rank, measure the collectives across processes while this process
//! waits.

use std::ffi::OsString;

use crate::measure::figures::{self, Measured};
use crate::measure::{Bench, Effort, MeasuredTable, collectives, compile, operators, peers, scaling};
use serde_json::Value;

use crate::children::{ChildJob, ChildOutput};
use crate::failure::Failure;

pub(super) fn run(bench: &Bench) -> Result<Vec<MeasuredTable>, Failure> {
    let Measured { figures, tables } = figures::measure(bench, across_processes(bench.effort)?)?;
    let mut all_tables = vec![figures, bench.limits.table()];
    all_tables.extend(tables);
    if bench.effort == Effort::Full {
        let model = figures::model()?;
        all_tables.push(operators::run(bench, &model)?);
        all_tables.push(operators::products(bench, &operators::PRODUCTS)?);
        all_tables.push(compile::run(&compile::CompileSetting::usual(), bench.effort.budget())?);
        all_tables.extend(scaling::run(bench)?);
    }
    all_tables.push(peers::recorded()?);
    Ok(all_tables)
}

pub(super) fn across_processes(effort: Effort) -> Result<MeasuredTable, Failure> {
    let setting = figures::exchanges();
    let list = |items: Vec<String>| items.join(",");
    let names = list(setting.ops.iter().map(ToString::to_string).collect());
    let dtypes = list(setting.dtypes.iter().map(ToString::to_string).collect());
    let (least, most) = (setting.bytes.iter().min().copied(), setting.bytes.iter().max().copied());
    let (least, most) = (least.unwrap_or(1), most.unwrap_or(1));
    let options = format!(
        "bench collectives --json --device emulator --op {names} --dtype {dtypes} --min-bytes {least} --max-bytes {most} \
         --step-factor {} --warmup {}",
        most / least,
        setting.warmup
    );
    let mut arguments: Vec<OsString> = options.split_whitespace().map(OsString::from).collect();
    if effort == Effort::Quick {
        arguments.push("--quick".into());
    }
    let ranks = setting.ranks.first().copied().unwrap_or(1);
    let job = ChildJob::own("the collectives across processes", ranks, &arguments, ChildOutput::Output)?;
    let text = job.start()?.finish(None)?;
    let report: Value = serde_json::from_str(&text).map_err(|error| Failure::Run(error.into()))?;
    Ok(collectives::measured_by(ranks, &report))
}

//! A rehearsal as a trace that Perfetto and `chrome://tracing` open.
//!
//! Input → output: what was recorded → JSON in the trace event format: a process for each rank, with threads for its host
//! calls, its two streams and its links; arrows join the ranks of a collective; a last process names the phases. Times are
//! microseconds of the virtual clock. Invariant: the same rehearsal gives the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use ascend_tp_machine::HostCall;
use serde_json::{Value, json};

use crate::exec::Launching;
use crate::generate::DECODE;
use crate::schedule::plan::{Action, StreamKind};

use super::Rehearsal;
use super::run::Phase;
use super::span::Span;
use super::table::step_name;

/// Threads of a rank's process.
const THREADS: [(u32, &str); 4] =
    [(HOST, "host calls"), (COMPUTE, "compute stream"), (COMMUNICATION, "communication stream"), (LINKS, "links")];
const HOST: u32 = 1;
const COMPUTE: u32 = 2;
const COMMUNICATION: u32 = 3;
const LINKS: u32 = 4;

/// Writes the trace.
///
/// # Errors
/// Those of `out`.
pub fn write(rehearsal: &Rehearsal, out: &mut dyn Write) -> io::Result<()> {
    let mut events = Events { out, is_first: true, arrows: 0 };
    let ranks = rehearsal.setting.cards;
    events.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    let setting = &rehearsal.setting;
    let about = json!({
        "model": setting.name, "cards": setting.cards, "card": setting.profile.soc.name(),
        "topology": setting.topology.name, "batch": setting.batch, "input": setting.input, "output": setting.output,
    });
    write!(events.out, "{about},\"traceEvents\":[")?;
    let placement = setting.placement();
    for (rank, card) in placement.iter().enumerate() {
        events.names(rank, &format!("rank {rank} (card {card})"), &THREADS)?;
    }
    events.names(ranks, "phases", &[(HOST, "programs")])?;
    for phase in &rehearsal.recorded.phases {
        events.slice(ranks, HOST, &phase.name, (phase.start_ns, phase.end_ns), &json!({}))?;
        events.phase(rehearsal, phase)?;
    }
    events.out.write_all(b"\n]}\n")
}

struct Events<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
    arrows: usize,
}

impl Events<'_> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}{event}")
    }

    fn names(&mut self, pid: usize, process: &str, threads: &[(u32, &str)]) -> io::Result<()> {
        self.event(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process}}))?;
        self.event(&json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}))?;
        for (tid, name) in threads {
            self.event(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}))?;
            let order = json!({"sort_index": tid});
            self.event(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order}))?;
        }
        Ok(())
    }

    fn slice(&mut self, pid: usize, tid: u32, name: &str, ns: (u64, u64), args: &Value) -> io::Result<()> {
        let (ts, dur) = (us(ns.0), us(ns.1 - ns.0));
        self.event(&json!({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}))
    }

    fn phase(&mut self, rehearsal: &Rehearsal, phase: &Phase) -> io::Result<()> {
        let plans = &rehearsal.recorded.programs[phase.program];
        // The spans of one collective on all its ranks, by group and step.
        let mut meetings: BTreeMap<(&[usize], usize), Vec<&Span>> = BTreeMap::new();
        let is_replayed = rehearsal.setting.launching == Launching::Captured && phase.program == DECODE;
        let mut calls = BTreeSet::new();
        for span in &phase.spans {
            let plan = &plans[span.rank];
            let step = &plan.steps[span.step];
            let name = step_name(plan, step);
            let is_exchange = span.stream == StreamKind::Communication;
            let tid = if is_exchange { COMMUNICATION } else { COMPUTE };
            let note = plan.notes.get(step.op).map(ToString::to_string);
            let mut args = json!({
                "operator": span.operator, "op": note, "bound": span.work.bound, "bytes": span.work.bytes,
            });
            if span.work.flops > 0.0 {
                args["flops"] = json!(span.work.flops);
            }
            if let Action::Exchange(exchange) = &step.action {
                let ranks = plan.groups[exchange.group].as_slice();
                meetings.entry((ranks, span.step)).or_default().push(span);
                args["ranks"] = json!(ranks);
                if span.arrived_ns < span.start_ns {
                    self.slice(span.rank, tid, "waits for its peers", (span.arrived_ns, span.start_ns), &json!({}))?;
                }
                let seconds = (span.end_ns - span.start_ns) as f64 / 1e9;
                let rate = json!({"bytes": span.work.bytes, "GB/s": span.work.bytes / seconds / 1e9});
                self.slice(span.rank, LINKS, &link_name(rehearsal, ranks), (span.start_ns, span.end_ns), &rate)?;
            }
            self.slice(span.rank, tid, &name, (span.start_ns, span.end_ns), &args)?;
            // One call issues all that a graph replays on a rank.
            let call = if is_replayed { "aclmdlRIExecuteAsync" } else { span.operator.as_str() };
            if !is_replayed || calls.insert(span.rank) {
                let cost_us = rehearsal.setting.profile.host_us(HostCall::of(call), 0.0);
                let start_ns = span.issued_ns.saturating_sub((cost_us * 1e3).round() as u64);
                self.slice(span.rank, HOST, call, (start_ns, span.issued_ns), &json!({}))?;
            }
        }
        for spans in meetings.into_values() {
            self.arrows(&spans)?;
        }
        Ok(())
    }

    /// From the rank that came last to the others.
    fn arrows(&mut self, spans: &[&Span]) -> io::Result<()> {
        let Some(last) = spans.iter().max_by_key(|span| (span.arrived_ns, span.rank)) else { return Ok(()) };
        for span in spans.iter().filter(|span| span.rank != last.rank) {
            let id = self.arrows;
            self.arrows += 1;
            let arrow = |ph: &str, span: &Span| {
                let ts = us(span.start_ns);
                json!({"ph": ph, "cat": "collective", "name": span.operator, "id": id, "pid": span.rank,
                    "tid": COMMUNICATION, "ts": ts})
            };
            self.event(&arrow("s", last))?;
            let mut end = arrow("f", span);
            end["bp"] = json!("e");
            self.event(&end)?;
        }
        Ok(())
    }
}

/// The links a group's exchange crosses at most: the innermost level of the topology that spans it.
fn link_name(rehearsal: &Rehearsal, ranks: &[usize]) -> String {
    let placement = rehearsal.setting.placement();
    let unit = |cards: usize| {
        let mut units = ranks.iter().map(|rank| placement[*rank] / cards.max(1));
        let first = units.next();
        units.all(|unit| Some(unit) == first)
    };
    let levels = &rehearsal.setting.topology.levels;
    levels.iter().find(|level| unit(level.cards)).or(levels.last()).map_or_else(String::new, |level| level.name.clone())
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

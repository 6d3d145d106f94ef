//! Writes a trace of the cards' work for Perfetto and `chrome://tracing`.
//!
//! Input: phases. Output: JSON in the trace event format, with times in microseconds. Each rank is
//! a process with threads for its streams and, if known, host calls and links. Arrows connect the
//! ranks of a collective. The last process names the phases. Invariant: equal phases give equal
//! text.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::schedule::Plan;
use crate::schedule::plan::{Action, StreamKind};

use super::{Phase, Span, step_name};

const HOST: u32 = 1;
const COMPUTE: u32 = 2;
const COMMUNICATION: u32 = 3;
const TRANSFERS: u32 = 4;
const LINKS: u32 = 5;

/// Returns the names of the links between some ranks.
pub type Links<'a> = &'a dyn Fn(&[usize]) -> String;

/// The contents of a trace.
pub struct Trace<'a> {
    /// Description of the run, for the reader.
    pub about: Value,
    /// Process name of each rank: `rank 3 (card 5)`.
    pub ranks: Vec<String>,
    /// The plans, by program and rank.
    pub programs: &'a [Vec<Arc<Plan>>],
    /// The phases of the run.
    pub phases: &'a [Phase],
    /// The links that an exchange uses, if known.
    pub links: Option<Links<'a>>,
}

impl Trace<'_> {
    fn threads(&self) -> Vec<(u32, &'static str)> {
        let has_transfers =
            self.programs.iter().flatten().any(|plan| plan.streams().contains(&StreamKind::Transfers));
        let transfers = has_transfers.then_some((TRANSFERS, "transfers between stages"));
        let streams = [(COMPUTE, "compute stream"), (COMMUNICATION, "communication stream")]
            .into_iter()
            .chain(transfers);
        let has_calls = self.phases.iter().any(|phase| !phase.calls.is_empty());
        let host = has_calls.then_some((HOST, "host calls"));
        host.into_iter().chain(streams).chain(self.links.map(|_| (LINKS, "links"))).collect()
    }

    /// Writes the trace as JSON.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut events = TraceEvents { out, is_first: true, arrows: 0 };
        write!(events.out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\"traceEvents\":[", self.about)?;
        let threads = self.threads();
        for (rank, name) in self.ranks.iter().enumerate() {
            events.names(rank, name, &threads)?;
        }
        let last = self.ranks.len();
        events.names(last, "phases", &[(HOST, "programs")])?;
        for phase in self.phases {
            events.slice(last, HOST, &phase.name, &(phase.start_ns..phase.end_ns), &json!({}))?;
            events.phase(self, phase)?;
        }
        events.out.write_all(b"\n]}\n")
    }
}

impl std::fmt::Debug for Trace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("about", &self.about)
            .field("phases", &self.phases.len())
            .finish_non_exhaustive()
    }
}

struct TraceEvents<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
    arrows: usize,
}

impl TraceEvents<'_> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}{event}")
    }

    fn names(&mut self, pid: usize, process: &str, threads: &[(u32, &str)]) -> io::Result<()> {
        self.event(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process}}))?;
        self.event(
            &json!({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}),
        )?;
        for (tid, name) in threads {
            self.event(
                &json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}),
            )?;
            let order = json!({"sort_index": tid});
            self.event(
                &json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order}),
            )?;
        }
        Ok(())
    }

    fn slice(&mut self, pid: usize, tid: u32, name: &str, ns: &Range<u64>, args: &Value) -> io::Result<()> {
        let (ts, dur) = (us(ns.start), us(ns.end - ns.start));
        self.event(
            &json!({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}),
        )
    }

    fn phase(&mut self, trace: &Trace<'_>, phase: &Phase) -> io::Result<()> {
        let plans = &trace.programs[phase.program];
        // By group and step: the spans of a collective on all its ranks.
        let mut meetings: BTreeMap<(&[usize], usize), Vec<&Span>> = BTreeMap::new();
        for span in &phase.spans {
            let plan = &plans[span.rank];
            let step = &plan.steps[span.step];
            let name = step_name(plan, step);
            let tid = thread(span);
            let note = plan.notes.get(step.op).map(ToString::to_string);
            let mut args = json!({"operator": span.operator, "op": note});
            if let Some(work) = &span.work {
                (args["bound"], args["bytes"]) = (json!(work.bound), json!(work.bytes));
                if work.flops > 0.0 {
                    args["flops"] = json!(work.flops);
                }
            }
            if let Action::Exchange(exchange) = &step.action {
                let ranks = plan.groups[exchange.group].as_slice();
                if !exchange.kind.is_of_two() {
                    meetings.entry((ranks, span.step)).or_default().push(span);
                }
                args["ranks"] = json!(ranks);
                if span.arrived_ns < span.start_ns {
                    self.slice(
                        span.rank,
                        tid,
                        "waits for its peers",
                        &(span.arrived_ns..span.start_ns),
                        &json!({}),
                    )?;
                }
                if let (Some(links), Some(work)) = (trace.links, &span.work) {
                    let seconds = (span.end_ns - span.start_ns) as f64 / 1e9;
                    let rate = json!({"bytes": work.bytes, "GB/s": work.bytes / seconds / 1e9});
                    self.slice(span.rank, LINKS, &links(ranks), &(span.start_ns..span.end_ns), &rate)?;
                }
            }
            self.slice(span.rank, tid, &name, &(span.start_ns..span.end_ns), &args)?;
        }
        for call in &phase.calls {
            self.slice(call.rank, HOST, &call.name, &call.ns, &json!({}))?;
        }
        for spans in meetings.into_values() {
            self.arrows(&spans)?;
        }
        Ok(())
    }

    fn arrows(&mut self, spans: &[&Span]) -> io::Result<()> {
        let Some(last) = spans.iter().max_by_key(|span| (span.arrived_ns, span.rank)) else { return Ok(()) };
        for span in spans.iter().filter(|span| span.rank != last.rank) {
            let id = self.arrows;
            self.arrows += 1;
            let arrow = |ph: &str, span: &Span| {
                let ts = us(span.start_ns);
                json!({"ph": ph, "cat": "collective", "name": span.operator, "id": id, "pid": span.rank,
                    "tid": thread(span), "ts": ts})
            };
            self.event(&arrow("s", last))?;
            let mut end = arrow("f", span);
            end["bp"] = json!("e");
            self.event(&end)?;
        }
        Ok(())
    }
}

const fn thread(span: &Span) -> u32 {
    match span.stream {
        StreamKind::Compute => COMPUTE,
        StreamKind::Communication => COMMUNICATION,
        StreamKind::Transfers => TRANSFERS,
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

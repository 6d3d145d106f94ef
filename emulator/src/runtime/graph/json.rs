//! Export of a graph as a JSON trace for `chrome://tracing`: one row per recording stream, one box
//! per task. Nothing has run, so every box has length one.

use std::fmt::Write as _;

use super::{CapturedGraph, CapturedNode, GraphStep, Outside};
use crate::base::failure::{Failure, code};
use crate::runtime::stream::StreamEntry;
use crate::state::MachineState;

impl MachineState {
    pub(crate) fn graph_json(&self, id: u64) -> Result<String, Failure> {
        let graph = self.runtime.graphs.graph(id)?;
        if graph.capturing().is_some() {
            let what =
                format!("graph {id} is being captured; call aclmdlRICaptureEnd before it is written down");
            return Err(Failure::new(code::MODEL_CAPTURED, what));
        }
        Ok(graph.json(id))
    }
}

impl CapturedGraph {
    fn json(&self, id: u64) -> String {
        let mut text = String::from("{\"traceEvents\":[");
        for (task, node) in self.nodes.iter().enumerate() {
            let separator = if task == 0 { "" } else { "," };
            let (name, kind) = described(node);
            let stream = self.lanes[node.lane].stream;
            let _ = write!(
                text,
                "{separator}\n{{\"name\":{},\"cat\":\"{kind}\",\"ph\":\"X\",\"ts\":{task},\"dur\":1,\"pid\":{id},\
                 \"tid\":{stream},\"args\":{{\"Model ID\":{id},\"StreamQueue ID\":{stream},\"StreamTask ID\":{task},\
                 \"Task Type\":\"{kind}\"{}}}}}",
                quoted(&name),
                node.tag.as_ref().map(|tag| format!(",\"Mark\":{}", quoted(tag))).unwrap_or_default(),
            );
        }
        text.push_str("\n]}\n");
        text
    }
}

fn described(node: &CapturedNode) -> (String, &'static str) {
    match &node.step {
        GraphStep::Work(StreamEntry::Task { name, .. }) => ((*name).to_owned(), "TASK"),
        GraphStep::Work(StreamEntry::Callback(_) | StreamEntry::HostFunction(_)) => {
            ("host function".to_owned(), "HOST_FUNC")
        }
        GraphStep::Work(other) => (format!("{other:?}"), "NOTIFY"),
        GraphStep::Record(number) => (format!("record {number}"), "EVENT_RECORD"),
        GraphStep::Wait(number) => (format!("wait {number}"), "EVENT_WAIT"),
        GraphStep::Outside { event, act: Outside::Record } => {
            (format!("record of event {event}"), "EVENT_RECORD")
        }
        GraphStep::Outside { event, act: Outside::Wait } => (format!("wait for event {event}"), "EVENT_WAIT"),
        GraphStep::Collective { calls, .. } => {
            let names: Vec<String> = calls.iter().map(ToString::to_string).collect();
            (names.join(", "), "COLLECTIVE")
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_are_quoted_as_json_wants_them() {
        assert_eq!(super::quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
    }
}

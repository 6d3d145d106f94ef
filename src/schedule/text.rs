//! The text form of a plan. `parse(print(p)) == p`.
//!
//! One line for each group, buffer, tensor, op, tap and step, in this order. A step line: `@4
//! compute aclnnMatmul a=b3:f32[2,4] b=b1:f32[4,4]/[1,4] out->b5:f32[2,4]`.

use std::fmt;
use std::ops::Range;

use crate::base::{Bytes, Diagnostic, Diagnostics, Id, IdVec, Reduce, Shape};
use crate::program::op::Kind;
use crate::program::{Form, OpId, Source, ValueId};

use super::plan::{
    Action, Collective, CollectiveKind, EventId, GroupId, Launched, OpNote, Plan, Region, Slot, Step,
    StreamKind, Tap, Tensor,
};
use crate::call::{BufferId, Call, View};

const WITH: &str = " with ";

const TENSORS: [&str; 4] = ["param", "state", "input", "output"];

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan \"{}\" rank {} of {} events {}", self.name, self.rank, self.world, self.events)?;
        for (id, ranks) in self.groups.iter() {
            writeln!(f, "group {id} {}", list(ranks))?;
        }
        for (id, slot) in self.buffers.iter() {
            writeln!(f, "buffer {id} {} {} {}", slot.region.name(), slot.offset.0, slot.bytes.0)?;
        }
        for (kind, tensors) in TENSORS.iter().zip([&self.params, &self.states, &self.inputs, &self.outputs]) {
            for tensor in tensors {
                let Tensor { name, shape, dtype, ranges, buffer, offset, source } = tensor;
                let from = if *offset > 0 { format!("+{offset}") } else { String::new() };
                write!(f, "{kind} \"{name}\" {buffer}{from} {dtype}{shape} {}", ranges_text(ranges))?;
                match source {
                    Some(source) => writeln!(f, " {source}")?,
                    None => writeln!(f)?,
                }
            }
        }
        for (id, note) in self.notes.iter() {
            let layer = note.layer.map_or_else(|| "-".to_owned(), |layer| layer.to_string());
            write!(f, "op {id} {} \"{}\" layer {layer}", note.kind, note.value)?;
            match &note.launch {
                Launched::Alone => writeln!(f)?,
                Launched::With(op) => writeln!(f, " with {op}")?,
                Launched::Apart(reason) => writeln!(f, " apart \"{reason}\"")?,
            }
        }
        for Tap { value, view, ranges, partial, is_first_replica, after_steps } in &self.taps {
            let partial = partial.map_or("whole", Reduce::name);
            let replica = if *is_first_replica { "first" } else { "repeats" };
            writeln!(
                f,
                "tap {value} {view} {} {partial} {replica} after {after_steps}",
                ranges_text(ranges)
            )?;
        }
        for Step { stream, action, op } in &self.steps {
            write!(f, "{op} {} ", stream.name())?;
            match action {
                Action::Launch(call) => writeln!(f, "{call}")?,
                Action::Record(event) => writeln!(f, "record {event}")?,
                Action::Wait(event) => writeln!(f, "wait {event}")?,
                Action::Exchange(exchange) => {
                    let Collective { kind, group, send, recv, product } = &**exchange;
                    write!(f, "{} {group} {send} {recv}", kind.name())?;
                    match kind {
                        CollectiveKind::AllReduce { reduce } => write!(f, " {reduce}")?,
                        CollectiveKind::AllGather { counts } => write!(f, " {}", list(counts))?,
                        CollectiveKind::ReduceScatter { reduce, counts } => {
                            write!(f, " {reduce} {}", list(counts))?;
                        }
                        CollectiveKind::AllToAll { send_counts, recv_counts } => {
                            write!(f, " {} {}", list(send_counts), list(recv_counts))?;
                        }
                        CollectiveKind::Reduce { reduce, root } => write!(f, " {reduce} {root}")?,
                        CollectiveKind::Broadcast { root: peer }
                        | CollectiveKind::Send { to: peer }
                        | CollectiveKind::Receive { from: peer } => {
                            write!(f, " {peer}")?;
                        }
                    }
                    match product {
                        Some(call) => writeln!(f, "{WITH}{call}")?,
                        None => writeln!(f)?,
                    }
                }
            }
        }
        Ok(())
    }
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn ranges_text(ranges: &[Range<usize>]) -> String {
    let texts: Vec<String> = ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
    format!("[{}]", texts.join(","))
}

/// Parses a plan.
///
/// # Errors
/// Every line that cannot be parsed, with its number.
pub fn parse(text: &str) -> Result<Plan, Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut plan = Plan::empty(String::new(), 0, 0, IdVec::new());
    for (index, line) in text.lines().enumerate() {
        if self::line(line, &mut plan).is_none() {
            problems.push(
                Diagnostic::new(format!("line {}", index + 1), "is not a line of a plan")
                    .found(format!("`{line}`")),
            );
        }
    }
    problems.into_result(plan)
}

fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (word, tail) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_at(rest.find([' ', '"']).unwrap_or(rest.len())),
        };
        if !word.is_empty() {
            words.push(word);
        }
        rest = tail.trim_start_matches(' ');
    }
    words
}

fn line(line: &str, plan: &mut Plan) -> Option<()> {
    let found = words(line);
    match *found.as_slice() {
        ["plan", name, "rank", rank, "of", world, "events", events] => {
            plan.name = name.to_owned();
            (plan.rank, plan.world, plan.events) =
                (rank.parse().ok()?, world.parse().ok()?, events.parse().ok()?);
        }
        ["group", id, ranks] => next(&mut plan.groups, id, "g", numbers(ranks)?)?,
        ["buffer", id, region, offset, bytes] => {
            let region = Region::ALL.into_iter().find(|known| known.name() == region)?;
            let slot =
                Slot { region, offset: Bytes(offset.parse().ok()?), bytes: Bytes(bytes.parse().ok()?) };
            next(&mut plan.buffers, id, "b", slot)?;
        }
        [kind, name, buffer, typed, ranges, ref source @ ..] if TENSORS.contains(&kind) => {
            let tensor = tensor([name, buffer, typed, ranges], source)?;
            match kind {
                "param" => plan.params.push(tensor),
                "state" => plan.states.push(tensor),
                "input" => plan.inputs.push(tensor),
                _ => plan.outputs.push(tensor),
            }
        }
        ["op", id, kind, value, "layer", layer, ref launch @ ..] => {
            let layer = if layer == "-" { None } else { Some(layer.parse().ok()?) };
            let launch = match *launch {
                [] => Launched::Alone,
                ["with", op] => Launched::With(OpId::from_index(number(op, "@")?)),
                ["apart", reason] => Launched::Apart(reason.to_owned()),
                _ => return None,
            };
            let note = OpNote { kind: kind_name(kind)?, value: value.to_owned(), layer, launch };
            next(&mut plan.notes, id, "@", note)?;
        }
        ["tap", value, view, ranges, partial, replica, "after", after_steps] => plan.taps.push(Tap {
            value: ValueId::from_index(number(value, "%")?),
            view: View::parse(view)?,
            ranges: parse_ranges(ranges)?,
            partial: if partial == "whole" { None } else { Some(Reduce::named(partial)?) },
            is_first_replica: match replica {
                "first" => true,
                "repeats" => false,
                _ => return None,
            },
            after_steps: after_steps.parse().ok()?,
        }),
        [op, stream, ref what @ ..] => {
            let stream = StreamKind::ALL.into_iter().find(|kind| kind.name() == stream)?;
            let action = action(line, what)?;
            plan.steps.push(Step { stream, action, op: OpId::from_index(number(op, "@")?) });
        }
        _ => return None,
    }
    Some(())
}

fn tensor([name, buffer, typed, ranges]: [&str; 4], source: &[&str]) -> Option<Tensor> {
    let (dtype, sizes) = typed.split_at(typed.find('[')?);
    let sizes = numbers(sizes.strip_prefix('[')?.strip_suffix(']')?)?;
    let source = match *source {
        [] => None,
        ["from", tensor, offset, ref form @ ..] => Some(Source {
            tensor: tensor.to_owned(),
            element_offset: offset.strip_prefix('+')?.parse().ok()?,
            form: match form {
                [] => Form::Numbers,
                [form] => Form::parse(form)?,
                _ => return None,
            },
        }),
        _ => return None,
    };
    let (buffer, from) = buffer.split_once('+').unwrap_or((buffer, "0"));
    Some(Tensor {
        name: name.to_owned(),
        shape: Shape::new(sizes),
        dtype: dtype.parse().ok()?,
        ranges: parse_ranges(ranges)?,
        buffer: BufferId::from_index(number(buffer, "b")?),
        offset: from.parse().ok()?,
        source,
    })
}

fn action(line: &str, what: &[&str]) -> Option<Action> {
    Some(match *what {
        ["record", event] => Action::Record(EventId::from_index(number(event, "e")?)),
        ["wait", event] => Action::Wait(EventId::from_index(number(event, "e")?)),
        [name, ..] if Call::is_named(name) => {
            Action::Launch(Box::new(Call::parse(&line[line.find(name)?..]).ok()?))
        }
        [kind, group, send, recv, ref rest @ ..] => {
            let counts = rest.split(|word| *word == WITH.trim()).next()?;
            let product = match line.split_once(WITH) {
                Some((_, call)) => Some(Box::new(Call::parse(call).ok()?)),
                None => None,
            };
            Action::Exchange(Box::new(Collective {
                kind: collective(kind, counts)?,
                group: GroupId::from_index(number(group, "g")?),
                send: View::parse(send)?,
                recv: View::parse(recv)?,
                product,
            }))
        }
        _ => return None,
    })
}

fn collective(kind: &str, rest: &[&str]) -> Option<CollectiveKind> {
    Some(match (kind, rest) {
        ("all_reduce", [reduce]) => CollectiveKind::AllReduce { reduce: Reduce::named(reduce)? },
        ("all_gather", [counts]) => CollectiveKind::AllGather { counts: numbers(counts)? },
        ("reduce_scatter", [reduce, counts]) => {
            CollectiveKind::ReduceScatter { reduce: Reduce::named(reduce)?, counts: numbers(counts)? }
        }
        ("all_to_all", [sent, received]) => {
            CollectiveKind::AllToAll { send_counts: numbers(sent)?, recv_counts: numbers(received)? }
        }
        ("reduce", [reduce, root]) => {
            CollectiveKind::Reduce { reduce: Reduce::named(reduce)?, root: root.parse().ok()? }
        }
        ("broadcast", [root]) => CollectiveKind::Broadcast { root: root.parse().ok()? },
        ("send", [to]) => CollectiveKind::Send { to: to.parse().ok()? },
        ("receive", [from]) => CollectiveKind::Receive { from: from.parse().ok()? },
        _ => return None,
    })
}

fn kind_name(name: &str) -> Option<&'static str> {
    if name == "output" { Some("output") } else { Kind::name_of(name) }
}

fn number(text: &str, prefix: &str) -> Option<usize> {
    text.strip_prefix(prefix)?.parse().ok()
}

fn numbers(text: &str) -> Option<Vec<usize>> {
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}

fn parse_ranges(text: &str) -> Option<Vec<Range<usize>>> {
    let range = |text: &str| {
        let (start, end) = text.split_once("..")?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    inner.split(',').filter(|text| !text.is_empty()).map(range).collect()
}

fn next<K: Id, V>(items: &mut IdVec<K, V>, id: &str, prefix: &str, item: V) -> Option<()> {
    if number(id, prefix)? != items.len() {
        return None;
    }
    items.push(item);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_tensors_survives_its_text() {
        let mut plan = Plan::empty("experts".to_owned(), 0, 1, IdVec::new());
        let forms =
            ["bytes/5", "scales/5", "dims/0,3,21", "mxfp4/0,21,3"].map(Form::parse).map(Option::unwrap);
        for (at, form) in [Form::Numbers].iter().chain(&forms).enumerate() {
            let tensor = "l.3.{4..8}.{gate,up}.weight".to_owned();
            plan.params.push(Tensor {
                name: format!("w{at}"),
                shape: [4, 2, 6, 5].into(),
                dtype: crate::base::DType::F32,
                ranges: vec![1..3, 0..2, 0..6, 0..5],
                buffer: BufferId::from_index(0),
                offset: 0,
                source: Some(Source { tensor, element_offset: 30, form: *form }),
            });
        }
        let text = plan.to_string();
        assert!(text.contains("from \"l.3.{4..8}.{gate,up}.weight\"+30 bytes/5\n"), "{text}");
        assert!(text.contains("+30 dims/0,3,21\n"), "{text}");
        assert_eq!(parse(&text).unwrap(), plan);
    }
}

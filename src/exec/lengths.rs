//! Host lists of a run: lengths of sequences, with which attention over blocks is prepared.
//!
//! Input: the bytes of the inputs. Output: the lengths that launches must be prepared with.
//!
//! Invariant: each run launches with its own lengths.

use crate::call::View;
use crate::schedule::plan::{Action, Plan};

/// Launches that take the same lengths.
#[derive(Debug)]
pub(super) struct LengthLaunches {
    /// Byte range of the lengths in the inputs, as i64.
    bytes: std::ops::Range<usize>,
    pub(super) steps: Vec<usize>,
    /// Lengths of the prepared launches; `None` before the first run.
    pub(super) prepared: Option<Vec<i64>>,
}

impl LengthLaunches {
    pub(super) fn of(plan: &Plan) -> Vec<Self> {
        let mut lists: Vec<(&View, Self)> = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let Action::Launch(call) = &step.action else { continue };
            let Some(lengths) = plan.host_list(call) else { continue };
            match lists.iter_mut().find(|(known, _)| *known == lengths) {
                Some((_, list)) => list.steps.push(index),
                None => {
                    let (_, bytes) = plan.span(lengths);
                    let bytes = bytes.start as usize..bytes.end as usize;
                    lists.push((lengths, Self { bytes, steps: vec![index], prepared: None }));
                }
            }
        }
        lists.into_iter().map(|(_, list)| list).collect()
    }

    /// Returns the lengths in `inputs` if the launches must be prepared again.
    pub(super) fn wanted(&self, inputs: &[u8]) -> Option<Vec<i64>> {
        let (numbers, _) = inputs[self.bytes.clone()].as_chunks();
        let lengths: Vec<i64> = numbers.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect();
        (self.prepared.as_ref() != Some(&lengths)).then_some(lengths)
    }
}

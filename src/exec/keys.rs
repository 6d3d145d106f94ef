//! Computes how many keys attention reads in a run, from the masks among the inputs. Operators take
//! these numbers as a host list when they are prepared.
//!
//! Invariant: all visible keys are read, and fewer than [`BLOCK`] hidden keys per sequence, without
//! effect on the result. Decoding prepares operators again only once per `BLOCK` steps.

use crate::call::View;
use crate::schedule::plan::{Action, Plan};

/// Extra keys that a prepared operator can read. Reading a block takes less device time than
/// preparing an operator takes on the host.
pub const BLOCK: usize = 128;

#[derive(Debug)]
pub(super) struct Keys {
    /// Input `[b,1,s,t]` of the plan.
    mask: View,
    bytes: std::ops::Range<usize>,
    pub(super) steps: Vec<usize>,
    /// Keys per sequence that the launches currently read.
    pub(super) lengths: Vec<i64>,
}

pub(super) fn all(mask: &View) -> Vec<i64> {
    vec![mask.shape[3] as i64; mask.shape[0]]
}

impl Keys {
    pub(super) fn of(plan: &Plan) -> Vec<Self> {
        let mut by_mask: Vec<Self> = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let Action::Launch(call) = &step.action else { continue };
            let Some(mask) = plan.known_mask(call) else { continue };
            match by_mask.iter_mut().find(|keys| keys.mask == *mask) {
                Some(keys) => keys.steps.push(index),
                None => {
                    let (_, bytes) = plan.span(mask);
                    let bytes = bytes.start as usize..bytes.end as usize;
                    by_mask.push(Self { mask: mask.clone(), bytes, steps: vec![index], lengths: all(mask) });
                }
            }
        }
        by_mask
    }

    /// Numbers of keys to prepare for these inputs; `None` if the current ones fit.
    pub(super) fn wanted(&self, inputs: &[u8]) -> Option<Vec<i64>> {
        let &[batch, _, rows, room] = self.mask.shape.sizes() else { return None };
        if batch * rows * room == 0 {
            return None;
        }
        let sequences = inputs[self.bytes.clone()].chunks(rows * room);
        let shown: Vec<usize> = sequences.map(|mask| shown(mask, room)).collect();
        let does = |(ready, shown): (&i64, &usize)| (*shown..shown + BLOCK).contains(&(*ready as usize));
        if self.lengths.iter().zip(&shown).all(does) {
            return None;
        }
        let longest = shown.iter().copied().max().unwrap_or_default();
        let more = longest.next_multiple_of(BLOCK) - longest;
        Some(shown.into_iter().map(|shown| (shown + more).min(room) as i64).collect())
    }
}

/// Number of keys up to the last visible one in any row.
fn shown(mask: &[u8], room: usize) -> usize {
    mask.chunks(room).rev().fold(0, |most, row| {
        let shows = |part: &[u8]| part.contains(&0);
        let hidden = row[most..].rchunks(64).take_while(|part| !shows(part)).map(<[u8]>::len).sum::<usize>();
        let further = row[most..row.len() - hidden].iter().rposition(|hidden| *hidden == 0);
        most + further.map_or(0, |at| at + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Id};
    use crate::call::BufferId;

    fn keys(batch: usize, rows: usize, room: usize) -> Keys {
        let mask = View::contiguous(BufferId::from_index(0), DType::Bool, [batch, 1, rows, room].into());
        Keys { bytes: 3..3 + mask.elems(), lengths: all(&mask), mask, steps: Vec::new() }
    }

    /// The last row of each sequence sees `seen` keys, and each earlier row one less.
    fn inputs(keys: &Keys, seen: &[usize]) -> Vec<u8> {
        let (rows, room) = (keys.mask.shape[2], keys.mask.shape[3]);
        let row = |seen: usize| (0..room).map(move |at| u8::from(at >= seen));
        let rows = seen
            .iter()
            .flat_map(|seen| (0..rows).flat_map(move |at| row((seen + at + 1).saturating_sub(rows))));
        [0; 3].into_iter().chain(rows).collect()
    }

    #[test]
    fn what_is_ready_does_until_the_longest_needs_a_further_block() {
        let mut keys = keys(3, 1, 1000);
        let mut changes = Vec::new();
        for step in 0..300 {
            let seen = [101 + step, 40, 7 + step];
            if let Some(lengths) = keys.wanted(&inputs(&keys, &seen)) {
                keys.lengths.clone_from(&lengths);
                changes.push((step, lengths));
            }
            for (ready, seen) in keys.lengths.iter().zip(seen) {
                assert!((seen..seen + BLOCK).contains(&(*ready as usize)), "{step}: {:?}", keys.lengths);
            }
        }
        let expected = [
            (0, vec![128, 67, 34]),
            (28, vec![256, 167, 162]),
            (156, vec![384, 167, 290]),
            (284, vec![512, 167, 418]),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_run_sees_what_any_of_its_rows_sees_and_no_more_than_there_is_room_for() {
        let mut rows = keys(2, 4, 600);
        assert_eq!(rows.wanted(&inputs(&rows, &[130, 9])), Some(vec![256, 135]));
        assert_eq!(rows.wanted(&inputs(&rows, &[599, 600])), None);
        rows.lengths = vec![256, 135];
        assert_eq!(rows.wanted(&inputs(&rows, &[600, 550])), Some(vec![600, 590]));
        let mut inputs = inputs(&rows, &[200, 100]);
        inputs[3 + 299] = 0;
        assert_eq!(rows.wanted(&inputs), Some(vec![384, 184]));
    }
}

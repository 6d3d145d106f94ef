//! Ring attention: the queries of each rank attend to the keys and values of all ranks that share a
//! sequence.
//!
//! In round `i`, a rank receives the keys and values of the rank `i` places before it, while it
//! computes with the keys and values of the previous round. Softmax statistics combine the rounds.
//! In the backward pass, gradients of received keys and values return to their owner.
//!
//! Invariants: a rank holds the keys and values of itself and at most two other ranks. All ranks
//! have the same rounds in the same order. In round 0, every query attends to at least one own
//! token, so the statistics are defined.

use std::ops::Range;

use crate::base::{AxisId, DType, Id, Shape, defect};
use crate::call::{Call, View};
use crate::program::npu::COPIES;
use crate::program::{Op, OpId, ValueId};

use super::{CollectiveKind, Emitter};

struct Ring {
    own: usize,
    tokens: Vec<Range<usize>>,
}

impl Ring {
    /// Owner of the keys and values that this rank has.
    fn seen(&self, round: usize) -> usize {
        (self.own + self.tokens.len() - round) % self.tokens.len()
    }

    /// Rank that has this rank's keys and values.
    fn sees(&self, round: usize) -> usize {
        (self.own + round) % self.tokens.len()
    }
}

#[derive(Clone)]
struct KeyValuePair {
    all: View,
    each: [View; 2],
}

/// Keys and values, and the card that gets or gives them.
#[derive(Clone, Copy)]
struct ExchangedPair<'a> {
    pair: &'a KeyValuePair,
    card: usize,
}

struct PartialAttention {
    out: View,
    /// `[b,n,s,8]` each: maximum score, and sum of exponentials relative to it.
    statistics: [View; 2],
}

/// Operands of the gradient of one round.
struct RingAttention<'a> {
    /// `[b,s,n,d]` each: queries, cotangents of the output, and the output.
    rows: &'a [View; 3],
    /// Statistics of all rounds, as in [`PartialAttention`].
    statistics: &'a [View; 2],
    pair: &'a KeyValuePair,
    mask: &'a View,
    scale: f64,
}

impl Emitter<'_> {
    pub(super) fn ring_attention(&mut self, id: OpId, op: &Op, axes: &[AxisId], scale: f64) {
        let q = self.view(op.operands[0]);
        let &[b, s, k, g, d] = q.shape.sizes() else { return };
        let shape = q.shape.clone();
        if q.elems() == 0 {
            self.new_views(&op.results);
            return;
        }
        let q = self.shaped(id, q, &[b, s, k * g, d]);
        let (ring, own) = (self.ring(op, axes), self.keys_and_values(id, op));
        let (mut here, mut seen) = (own.clone(), None);
        for round in 0..ring.tokens.len() {
            let next = self.arrival(id, axes, &ring, &own, round + 1);
            let seen_of = ring.seen(round);
            defect!(RingWithOtherMask, let seen_of = (seen_of + 1) % ring.tokens.len());
            let mask = self.columns(id, op, &ring.tokens[seen_of]);
            let more = self.attend(id, &q, &here, mask, scale);
            seen = Some(match seen {
                Some(before) => self.join_seen(id, &before, &more),
                None => more,
            });
            here = next.unwrap_or(here);
        }
        let Some(PartialAttention { out, statistics }) = seen else { return };
        self.views[op.result().index()] = out.reshape(shape);
        for (copies, into) in statistics.into_iter().zip(self.new_views(&op.results[1..])) {
            let from = self.shaped(id, copies.narrow(3, 0, 1), into.shape.sizes());
            self.copy(id, from, into);
        }
    }

    pub(super) fn ring_attention_grad(&mut self, id: OpId, op: &Op, axes: &[AxisId], scale: f64) {
        let results = self.new_views(&op.results);
        let q = self.view(op.operands[0]);
        let (&[b, s, k, g, d], [dq, dk, dv]) = (q.shape.sizes(), results.as_slice()) else { return };
        if q.elems() == 0 {
            return;
        }
        let (ring, own) = (self.ring(op, axes), self.keys_and_values(id, op));
        let rows = [0, 4, 5].map(|at| self.shaped(id, self.view(op.operands[at]), &[b, s, k * g, d]));
        let statistics = [6, 7].map(|at| {
            let row = self.shaped(id, self.view(op.operands[at]), &[b, k * g, s]);
            self.dense(id, row.repeat(3, COPIES))
        });
        let dq = self.shaped(id, dq.clone(), rows[0].shape.sizes());
        let (mut here, mut coming) = (own.clone(), None);
        for round in 0..ring.tokens.len() {
            let next = self.arrival(id, axes, &ring, &own, round + 1);
            let seen_of = ring.seen(round);
            defect!(RingWithOtherMask, let seen_of = (seen_of + 1) % ring.tokens.len());
            let mask = self.columns(id, op, &ring.tokens[seen_of]);
            let attention =
                RingAttention { rows: &rows, statistics: &statistics, pair: &here, mask: &mask, scale };
            if round == 0 {
                self.gradients(id, &attention, [&dq, dk, dv]);
            } else {
                let (part, made) = (self.temporary(dq.dtype, dq.shape.clone()), self.pair(&here.each[0]));
                self.gradients(id, &attention, [&part, &made.each[0], &made.each[1]]);
                self.launch(id, [Call::Add { a: dq.clone(), b: part, out: dq.clone() }]);
                let back = self.pair(&own.each[0]);
                let given = ExchangedPair { pair: &made, card: ring.seen(round) };
                let got = ExchangedPair { pair: &back, card: ring.sees(round) };
                self.shift(id, axes, ring.tokens.len(), [given, got]);
                // The next round's operators run first.
                if let Some(come) = coming.replace(back) {
                    self.add_pair(id, &come, [dk, dv]);
                }
            }
            here = next.unwrap_or(here);
        }
        if let Some(come) = coming {
            self.add_pair(id, &come, [dk, dv]);
        }
    }

    fn new_views(&mut self, results: &[ValueId]) -> Vec<View> {
        let views: Vec<View> = results.iter().map(|result| self.received(*result)).collect();
        results.iter().zip(&views).for_each(|(result, view)| self.views[result.index()] = Some(view.clone()));
        views
    }

    fn shaped(&mut self, id: OpId, view: View, sizes: &[usize]) -> View {
        let shape = Shape::new(sizes.to_vec());
        if let Some(shaped) = view.reshape(shape.clone()).filter(View::is_contiguous) {
            return shaped;
        }
        let dense = self.dense(id, view);
        View { strides: shape.strides(), shape, ..dense }
    }

    fn ring(&self, op: &Op, axes: &[AxisId]) -> Ring {
        let keys = op.operands[1];
        let (mesh, shape) = (&self.placed.mesh, &self.placed.program.values[keys].shape);
        let tokens = |rank: usize| self.placed.layouts[keys].ranges(mesh, shape, rank)[1].clone();
        Ring {
            own: self.position(axes),
            tokens: mesh.group(self.rank, axes).into_iter().map(tokens).collect(),
        }
    }

    fn pair(&mut self, like: &View) -> KeyValuePair {
        let elems = like.elems();
        let all = self.temporary(like.dtype, [2 * elems].into());
        let each = |at: usize| View {
            offset: at * elems,
            ..View::contiguous(all.buffer, all.dtype, like.shape.clone())
        };
        KeyValuePair { each: [each(0), each(1)], all }
    }

    fn keys_and_values(&mut self, id: OpId, op: &Op) -> KeyValuePair {
        let [keys, values] = [1, 2].map(|at| self.view(op.operands[at]));
        let pair = self.pair(&keys);
        for (from, into) in [keys, values].into_iter().zip(pair.each.clone()) {
            self.copy(id, from, into);
        }
        pair
    }

    /// Starts the exchange of a round and returns the views that it fills; `None` after the last
    /// round.
    fn arrival(
        &mut self,
        id: OpId,
        axes: &[AxisId],
        ring: &Ring,
        own: &KeyValuePair,
        round: usize,
    ) -> Option<KeyValuePair> {
        let cards = ring.tokens.len();
        if round == cards {
            return None;
        }
        let keys = &own.each[0];
        let shape = keys.shape.with(1, ring.tokens[ring.seen(round)].len());
        let come = self.pair(&View { strides: shape.strides(), shape, ..keys.clone() });
        let sees = ring.sees(round);
        defect!(RingToOtherNeighbour, let sees = (sees + 1) % cards);
        let got = ExchangedPair { pair: &come, card: ring.seen(round) };
        self.shift(id, axes, cards, [ExchangedPair { pair: own, card: sees }, got]);
        Some(come)
    }

    /// Sends the first pair, and receives the second.
    fn shift(&mut self, id: OpId, axes: &[AxisId], cards: usize, [given, got]: [ExchangedPair<'_>; 2]) {
        let counts = |routed: ExchangedPair<'_>| {
            let mut counts = vec![0; cards];
            counts[routed.card] = routed.pair.all.elems();
            counts
        };
        let kind = CollectiveKind::AllToAll { send_counts: counts(given), recv_counts: counts(got) };
        self.enqueue(id, axes, kind, given.pair.all.clone(), got.pair.all.clone());
    }

    /// Mask columns of these tokens, `[b,1,s,t]`. The dense copy is made once per plan.
    fn columns(&mut self, id: OpId, op: &Op, tokens: &Range<usize>) -> View {
        let columns = self.view(op.operands[3]).narrow(2, tokens.start, tokens.len());
        let known = self.columns.iter().find(|(of, _)| *of == columns).map(|(_, made)| made.clone());
        known.unwrap_or_else(|| {
            let &[b, s, t] = columns.shape.sizes() else {
                unreachable!("masks have three dims, as their rule says")
            };
            let made = self.shaped(id, columns.clone(), &[b, 1, s, t]);
            self.columns.push((columns, made.clone()));
            made
        })
    }

    fn attend(
        &mut self,
        id: OpId,
        q: &View,
        pair: &KeyValuePair,
        mask: View,
        scale: f64,
    ) -> PartialAttention {
        let &[b, s, heads, _] = q.shape.sizes() else { unreachable!("queries have four dims here") };
        let out = self.temporary(q.dtype, q.shape.clone());
        let statistics = [(); 2].map(|()| self.temporary(DType::F32, [b, heads, s, COPIES].into()));
        let [k, v] = pair.each.clone();
        let [max, sum] = statistics.clone();
        let [q, k, v, mask, max, sum, made] = [q.clone(), k, v, mask, max, sum, out.clone()].map(Box::new);
        self.launch(id, [Call::FlashAttention { q, k, v, mask, max, sum, out: made, heads, scale }]);
        PartialAttention { out, statistics }
    }

    fn join_seen(
        &mut self,
        id: OpId,
        before: &PartialAttention,
        more: &PartialAttention,
    ) -> PartialAttention {
        let &[b, s, heads, d] = before.out.shape.sizes() else { unreachable!("queries have four dims here") };
        let out = self.temporary(before.out.dtype, before.out.shape.clone());
        let statistics = [(); 2].map(|()| self.temporary(DType::F32, before.statistics[0].shape.clone()));
        // The operator expects the sequence dim first.
        let rows = |view: &View| {
            View::contiguous(view.buffer, view.dtype, [b, s, heads * d].into()).permute(&[1, 0, 2])
        };
        let [max, sum] = statistics.clone().map(Box::new);
        let [before_max, before_sum] = before.statistics.clone().map(Box::new);
        let [more_max, more_sum] = more.statistics.clone().map(Box::new);
        let [before, more, made] = [&before.out, &more.out, &out].map(|view| Box::new(rows(view)));
        let call = Call::JoinedAttention {
            before,
            before_max,
            before_sum,
            more,
            more_max,
            more_sum,
            out: made,
            max,
            sum,
        };
        self.launch(id, [call]);
        PartialAttention { out, statistics }
    }

    fn gradients(&mut self, id: OpId, attention: &RingAttention<'_>, results: [&View; 3]) {
        let RingAttention { rows, statistics, pair, mask, scale } = *attention;
        let heads = rows[0].shape[2];
        let [k, v] = pair.each.clone().map(Box::new);
        let [max, sum] = statistics.clone().map(Box::new);
        let [q, dy, out] = rows.clone().map(Box::new);
        let ([dq, dk, dv], mask) = (results.map(|view| Box::new(view.clone())), Box::new(mask.clone()));
        self.launch(
            id,
            [Call::FlashAttentionGrad { q, k, v, dy, mask, max, sum, out, dq, dk, dv, heads, scale }],
        );
    }

    fn add_pair(&mut self, id: OpId, pair: &KeyValuePair, into: [&View; 2]) {
        for (more, into) in pair.each.iter().zip(into) {
            self.launch(id, [Call::Add { a: into.clone(), b: more.clone(), out: into.clone() }]);
        }
    }
}

//! Fuses products with the adjacent exchange, so that the device exchanges some rows while it
//! multiplies others.
//!
//! A sum is fused with the product that computes its input, a gather with the first product that
//! reads its result. The operator must support the pair (ops-transformer, `mc2/*/docs`), and the
//! predicted overlap must outweigh the cost: two parts read the weights and pay the link latency
//! twice.
//!
//! Invariants: results and summation order equal the separate calls. No step moves across a
//! conflicting step or an exchange across another. All ranks of a group fuse the same exchanges.

use std::collections::BTreeMap;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{CollectiveCost, Launch, Profile, Soc, Topology, Work};
use rayon::prelude::*;

use crate::base::{DType, Id, IdVec, Reduce};
use crate::call::{BufferId, Call, View};
use crate::program::OpId;

use super::launch::{exchange, product};
use super::parts::CHIP;
use super::plan::{Action, Collective, CollectiveKind, GroupId, Launched, Plan, Region, Step};

/// The pair pays off but is not fused in the chosen plan.
const BESIDE_OTHERS: &str = "concurrent operators hide more than a fused call would";

#[derive(Debug)]
struct Pair {
    product: usize,
    exchange: usize,
    /// Becomes the fused call; the other step is removed.
    stays: usize,
    joined: Collective,
    dims: [usize; 3],
}

#[derive(Debug, Default)]
struct RankPairs {
    pairs: Vec<Pair>,
    apart: Vec<(OpId, String)>,
}

impl RankPairs {
    fn has_product_of(&self, outcome: &Result<Pair, String>) -> bool {
        matches!(outcome, Ok(pair) if self.pairs.iter().any(|known| known.product == pair.product))
    }
}

#[derive(Debug)]
pub(super) struct JoinCandidates(Vec<RankPairs>);

type Outcomes = BTreeMap<(GroupId, usize), (usize, Result<Pair, String>)>;

impl JoinCandidates {
    pub(super) fn of(plans: &[&Plan]) -> Self {
        let mut outcomes: Vec<Outcomes> = plans.par_iter().map(|plan| outcomes(plan)).collect();
        let mut pairs_of_ranks: Vec<RankPairs> = plans.iter().map(|_| RankPairs::default()).collect();
        let (profile, turns) = (Profile::of(CHIP), turns(&outcomes));
        let place = |rank: usize| rank.checked_sub(plans[0].rank).filter(|at| *at < plans.len());
        for (group, turn) in turns {
            let ranks = &plans[0].groups[group];
            // With `Ranks::First`, one rank stands for all ranks of its groups.
            let places: Vec<usize> = ranks.iter().filter_map(|rank| place(*rank)).collect();
            if places.len() < ranks.len().min(plans.len()) {
                continue;
            }
            let of_all: Vec<_> =
                places.iter().filter_map(|at| outcomes[*at].remove(&(group, turn))).collect();
            if of_all.len() < places.len() {
                continue;
            }
            let is_taken = places
                .iter()
                .zip(&of_all)
                .any(|(at, (_, outcome))| pairs_of_ranks[*at].has_product_of(outcome));
            let reason = match agree(&of_all).and_then(|()| pays(&profile, ranks, &of_all)) {
                Ok(()) if is_taken => Some("its product is one call with another exchange".to_owned()),
                judged => judged.err(),
            };
            for (at, (step, outcome)) in places.into_iter().zip(of_all) {
                match (&reason, outcome) {
                    (None, Ok(pair)) => pairs_of_ranks[at].pairs.push(pair),
                    (Some(reason), _) => {
                        pairs_of_ranks[at].apart.push((plans[at].steps[step].op, reason.clone()));
                    }
                    // Unreachable: ranks agree only if each has a pair.
                    (None, Err(_)) => {}
                }
            }
        }
        Self(pairs_of_ranks)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|of| of.pairs.is_empty())
    }

    /// Notes why pairs are separate, in plans without fused calls.
    pub(super) fn note<'a>(&self, plans: impl IntoIterator<Item = &'a mut Plan>) {
        for (plan, RankPairs { pairs, apart }) in plans.into_iter().zip(&self.0) {
            let hidden = pairs.iter().map(|pair| (plan.steps[pair.exchange].op, BESIDE_OTHERS.to_owned()));
            for (op, reason) in hidden.collect::<Vec<_>>().into_iter().chain(apart.iter().cloned()) {
                plan.notes[op].launch = Launched::Apart(reason);
            }
        }
    }

    pub(super) fn join<'a>(self, plans: impl IntoIterator<Item = &'a mut Plan>) -> Vec<Vec<usize>> {
        let join_all = |(plan, RankPairs { pairs, apart }): (&mut Plan, RankPairs)| {
            for (op, reason) in apart {
                plan.notes[op].launch = Launched::Apart(reason);
            }
            join(plan, pairs)
        };
        plans.into_iter().zip(self.0).map(join_all).collect()
    }
}

fn turns(outcomes: &[Outcomes]) -> Vec<(GroupId, usize)> {
    let mut turns: Vec<_> = outcomes.iter().flat_map(BTreeMap::keys).copied().collect();
    turns.sort_unstable();
    turns.dedup();
    turns
}

fn join(plan: &mut Plan, pairs: Vec<Pair>) -> Vec<usize> {
    let mut gone: Vec<usize> = pairs.iter().map(|pair| pair.product + pair.exchange - pair.stays).collect();
    gone.sort_unstable();
    let mut unmade: Vec<BufferId> = Vec::new();
    for Pair { product, exchange, stays, joined, .. } in pairs {
        let [of_product, of_exchange] = [product, exchange].map(|step| plan.steps[step].op);
        for note in of_product.index()..plan.notes.len() {
            let note = &mut plan.notes[OpId::from_index(note)].launch;
            if *note == Launched::With(of_product) {
                *note = Launched::With(of_exchange);
            }
        }
        plan.notes[of_product].launch = Launched::With(of_exchange);
        if let (Action::Exchange(apart), false) =
            (&plan.steps[exchange].action, matches!(joined.kind, CollectiveKind::AllGather { .. }))
        {
            unmade.push(apart.send.buffer);
        }
        plan.steps[stays] =
            Step { action: Action::Exchange(Box::new(joined)), ..plan.steps[exchange].clone() };
    }
    let mut at = 0;
    plan.steps.retain(|_| {
        at += 1;
        gone.binary_search(&(at - 1)).is_err()
    });
    plan.taps.retain(|tap| !unmade.contains(&tap.view.buffer));
    for tap in &mut plan.taps {
        tap.after_steps = left(&gone, tap.after_steps);
    }
    gone
}

/// Remaining steps of the first `steps` after the removal of `gone`.
pub(super) fn left(gone: &[usize], steps: usize) -> usize {
    steps - gone.partition_point(|step| *step < steps)
}

fn agree(of_all: &[(usize, Result<Pair, String>)]) -> Result<(), String> {
    let mut first = None;
    for (_, outcome) in of_all {
        let pair = outcome.as_ref().map_err(Clone::clone)?;
        if *first.get_or_insert(pair.dims) != pair.dims {
            return Err("the cards multiply matrices of different sizes".to_owned());
        }
    }
    Ok(())
}

/// Other ranks have the same sizes as the first.
fn pays(profile: &Profile, ranks: &[usize], of_all: &[(usize, Result<Pair, String>)]) -> Result<(), String> {
    let Some((_, Ok(pair))) = of_all.first() else { return Ok(()) };
    let Some(product) = product(&pair.joined) else { return Ok(()) };
    let us = |launch: &Launch| OperatorCost::of(profile, &Work::of(launch)).duration_us;
    let (product_us, half_us) = (us(&product), us(&half(product)));
    let topology = Topology::atlas_a2_of(ranks.last().map_or(1, |last| last + 1));
    let (exchange, bytes) = exchange(&pair.joined);
    let apart = CollectiveCost::of(profile, &topology, exchange, bytes, ranks);
    let (latency_us, apart_us) = (apart.latency_us, apart.duration_us);
    let hidden_us = apart_us - apart.beside(product_us).duration_us;
    // The weights are read once per part.
    let more_us = latency_us + (2.0 * half_us - product_us).max(0.0);
    if hidden_us >= more_us {
        return Ok(());
    }
    Err(format!("one call would hide {hidden_us:.1} us, and rows in two parts take {more_us:.1} us more"))
}

fn half(mut product: Launch) -> Launch {
    for at in [0, 2] {
        let operand = &mut product.operands[at];
        let rows = operand.dims[0].div_ceil(2);
        operand.distinct = operand.distinct / operand.dims[0] * rows;
        operand.dims[0] = rows;
    }
    product
}

fn touching(plan: &Plan) -> IdVec<BufferId, Vec<usize>> {
    let mut touching: IdVec<BufferId, Vec<usize>> = plan.buffers.ids().map(|_| Vec::new()).collect();
    for (at, step) in plan.steps.iter().enumerate() {
        for view in step.reads().into_iter().chain(step.writes()) {
            let steps = &mut touching[view.buffer];
            if steps.last() != Some(&at) {
                steps.push(at);
            }
        }
    }
    touching
}

fn outcomes(plan: &Plan) -> Outcomes {
    let touching = touching(plan);
    let mut next: BTreeMap<GroupId, usize> = BTreeMap::new();
    let mut outcomes = Outcomes::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let Action::Exchange(exchange) = &step.action else { continue };
        let turn = next.entry(exchange.group).or_default();
        let site = ExchangeSite { plan, touching: &touching, at, exchange };
        if let Some(outcome) = site.pair() {
            outcomes.insert((exchange.group, *turn), (at, outcome));
        }
        *turn += 1;
    }
    outcomes
}

struct ExchangeSite<'a> {
    plan: &'a Plan,
    touching: &'a IdVec<BufferId, Vec<usize>>,
    at: usize,
    exchange: &'a Collective,
}

impl ExchangeSite<'_> {
    /// The pair, or why it cannot be fused; `None` without an adjacent product.
    fn pair(&self) -> Option<Result<Pair, String>> {
        match &self.exchange.kind {
            CollectiveKind::AllReduce { reduce: Reduce::Sum }
            | CollectiveKind::ReduceScatter { reduce: Reduce::Sum, .. } => {
                let touching = &self.touching[self.exchange.send.buffer];
                let before = touching.iter().rev().find(|step| **step < self.at)?;
                self.beside(*before).map(|of| of.and_then(|of| self.summed(*before, of)))
            }
            CollectiveKind::AllGather { .. } => {
                let behind = self.touching[self.exchange.recv.buffer].iter().find(|step| **step > self.at)?;
                self.beside(*behind).map(|of| of.and_then(|of| self.gathered(*behind, of)))
            }
            _ => None,
        }
    }

    /// The product's matrices, or why it cannot be fused; `None` if the step is no product.
    fn beside(&self, step: usize) -> Option<Result<[&View; 3], String>> {
        let Action::Launch(call) = &self.plan.steps[step].action else { return None };
        let refused = |reason: &str| Some(Err(reason.to_owned()));
        match &**call {
            Call::Matmul { a, b, out } => Some(Ok([a, b, out])),
            Call::Addmm { .. } => refused(match self.exchange.kind {
                CollectiveKind::AllReduce { .. } => "its product adds a bias, which every card would add",
                _ => "its product adds a bias, which the operator does not support",
            }),
            Call::QuantMatmul { .. } | Call::DynamicQuant { .. } => refused("its product is quantised"),
            Call::Copy { from, into } if [from, into].into_iter().any(|view| self.is_of_product(view)) => {
                refused("rows are packed between the exchange and the product")
            }
            _ => None,
        }
    }

    fn is_of_product(&self, view: &View) -> bool {
        let is_product = |step: &usize| {
            let call = self.plan.steps[*step].call();
            matches!(call, Some(Call::Matmul { .. } | Call::Addmm { .. }))
        };
        self.touching[view.buffer].iter().any(is_product)
    }

    fn summed(&self, before: usize, [a, b, out]: [&View; 3]) -> Result<Pair, String> {
        let Collective { kind, group, send, recv, .. } = self.exchange;
        let is_alone = self.touching[send.buffer] == [before, self.at]
            && self.plan.buffers[send.buffer].region == Region::Arena
            && is_all_of(out, send);
        if !is_alone {
            return Err("the summed tensor has another reader, or is more than one product".to_owned());
        }
        let dims = self.matrices(a, b, out)?;
        let [m, _, n] = dims;
        let moved =
            |step: &Step| step.writes().into_iter().all(|view| ![a.buffer, b.buffer].contains(&view.buffer));
        if !self.plan.steps[before + 1..self.at].iter().all(moved)
            || [a.buffer, b.buffer].contains(&recv.buffer)
        {
            return Err("its product's operands are written before it".to_owned());
        }
        let (a, b) = (a.clone(), b.clone());
        let (call, send) = match kind {
            CollectiveKind::ReduceScatter { counts, .. } => {
                let rows = self.rows_of_each(counts, n)?;
                (Call::MatmulReduceScatter { a, b, out: matrix(recv, [rows, n]) }, send.clone())
            }
            _ => (Call::MatmulAllReduce { a, b, out: matrix(recv, [m, n]) }, recv.clone()),
        };
        let product = Some(Box::new(call));
        let joined = Collective { kind: kind.clone(), group: *group, send, recv: recv.clone(), product };
        Ok(Pair { product: before, exchange: self.at, stays: self.at, joined, dims })
    }

    fn gathered(&self, behind: usize, [a, b, out]: [&View; 3]) -> Result<Pair, String> {
        let Collective { kind, send, recv, .. } = self.exchange;
        if !is_all_of(a, recv) {
            return Err("its product takes another matrix than the whole gathered one".to_owned());
        }
        let dims = self.matrices(a, b, out)?;
        let CollectiveKind::AllGather { counts } = kind else { return Err("it gathers nothing".to_owned()) };
        let [m, k, n] = dims;
        let rows = self.rows_of_each(counts, k)?;
        if [send.buffer, recv.buffer].contains(&out.buffer) {
            return Err("its product overwrites the gathered tensor".to_owned());
        }
        let stays = self.place_of_gather(behind, out, b)?;
        let gathered = matrix(recv, [m, k]);
        let call = Call::AllGatherMatmul {
            a: matrix(send, [rows, k]),
            b: b.clone(),
            out: matrix(out, [m, n]),
            gathered,
        };
        let joined = Collective { product: Some(Box::new(call)), ..self.exchange.clone() };
        Ok(Pair { product: behind, exchange: self.at, stays, joined, dims })
    }

    /// The step that becomes the fused call of a gather: the gather, or the product at `behind` if
    /// the weights `b` are computed between the two.
    fn place_of_gather(&self, behind: usize, out: &View, b: &View) -> Result<usize, String> {
        let between = &self.plan.steps[self.at + 1..behind];
        let writes =
            |step: &Step, buffer: BufferId| step.writes().into_iter().any(|view| view.buffer == buffer);
        let is_free = |step: &Step| {
            let mut touched = step.reads().into_iter().chain(step.writes());
            touched.all(|view| view.buffer != out.buffer) && !writes(step, b.buffer)
        };
        if between.iter().all(is_free) {
            return Ok(self.at);
        }
        // The product touches the gathered data first. Exchanges must keep their order.
        let can_wait = |step: &Step| {
            !matches!(step.action, Action::Exchange(_)) && !writes(step, self.exchange.send.buffer)
        };
        if between.iter().all(can_wait) {
            return Ok(behind);
        }
        Err("another exchange, or a write to its result, comes between it and its product".to_owned())
    }

    /// `[rows, contracted, columns]`, if product and group are supported.
    fn matrices(&self, a: &View, b: &View, out: &View) -> Result<[usize; 3], String> {
        let ranks = &self.plan.groups[self.exchange.group];
        let servers =
            [ranks.first(), ranks.last()].map(|rank| rank.map(|rank| rank / CHIP.cards_of_a_server()));
        if !CHIP.fuses_exchanges_of(ranks.len()) || servers[0] != servers[1] {
            return Err(format!(
                "the operator takes 2, 4 or 8 cards of one server, these are {}",
                ranks.len()
            ));
        }
        if !matches!(a.dtype, DType::F16 | DType::BF16) || b.dtype != a.dtype || out.dtype != a.dtype {
            return Err(format!("the operator takes f16 or bf16, these are {} and {}", a.dtype, b.dtype));
        }
        let (&[m, k], &[_, n], 2) = (a.shape.sizes(), b.shape.sizes(), out.shape.rank()) else {
            return Err("the operator takes two matrices".to_owned());
        };
        if m * k * n == 0 {
            return Err("the operator takes no empty matrices".to_owned());
        }
        if !a.is_contiguous()
            || !out.is_contiguous()
            || !(b.is_contiguous() || b.permute(&[1, 0]).is_contiguous())
        {
            return Err("the operator takes dense rows and weights that are dense or transposed".to_owned());
        }
        if !matches!(self.exchange.kind, CollectiveKind::AllReduce { .. }) && !Soc::FUSED_ROWS.contains(&k) {
            let (first, last) = (Soc::FUSED_ROWS.start(), Soc::FUSED_ROWS.end());
            return Err(format!("the operator takes rows of {first} to {last} elements, these have {k}"));
        }
        Ok([m, k, n])
    }

    fn rows_of_each(&self, counts: &[usize], width: usize) -> Result<usize, String> {
        let rows = counts[0] / width;
        if counts.iter().any(|count| *count != rows * width) || rows == 0 {
            return Err("the cards have different numbers of rows".to_owned());
        }
        Ok(rows)
    }
}

fn is_all_of(one: &View, other: &View) -> bool {
    (one.buffer, one.offset, one.elems(), one.dtype)
        == (other.buffer, other.offset, other.elems(), other.dtype)
        && one.is_contiguous()
        && other.is_contiguous()
}

fn matrix(view: &View, dims: [usize; 2]) -> View {
    View { offset: view.offset, ..View::contiguous(view.buffer, view.dtype, dims.into()) }
}

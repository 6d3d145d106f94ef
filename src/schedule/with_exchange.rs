//! Products that are one call with the exchange beside them: the card exchanges rows while it multiplies others.
//!
//! Input → output: the plans of all ranks, without offsets and events → [`Found`]: which products and exchanges are one call on all
//! ranks of their group, and of the others why not. A sum takes the product that makes what is summed, a gather the first product of
//! what it gives. They are joined where the operator takes them (ops-transformer, `mc2/*/docs`) and the cost model has it that they hide
//! more of each other than it costs to do rows in two parts, which read the weights and wait for the links twice: so neither in a decode
//! step nor in a short prompt.
//!
//! Invariants: what is computed, and in which order sums are added, is that of the two calls one behind the other; nothing is moved
//! across a step that touches what it touches; all ranks of a group join the same exchanges.

use std::collections::BTreeMap;

use ascend_tp_machine::operator::OperatorCost;
use ascend_tp_machine::{CollectiveCost, Launch, Profile, Topology, Work};

use crate::base::{DType, Id, IdVec};
use crate::program::{OpId, Reduce};

use super::launch::{exchange, product};
use super::parts::CHIP;
use super::plan::{Action, BufferId, Call, Collective, CollectiveKind, GroupId, Launched, Plan, Region, Step, View};

/// Cards of a server, which are linked to each other: the operators take no others.
const CARDS_OF_A_SERVER: usize = 8;

/// What the operators that cut rows contract: as many elements, and fewer.
const DEPTHS: std::ops::Range<usize> = 256..65_535;

/// A product and its exchange, as one rank has them.
#[derive(Debug)]
struct Pair {
    /// The step of the product, which goes.
    product: usize,
    /// The step of the exchange, which then multiplies too.
    exchange: usize,
    joined: Collective,
    /// Rows, what is contracted, and columns.
    dims: [usize; 3],
}

/// What is found of one rank's exchanges.
#[derive(Debug, Default)]
struct OfRank {
    pairs: Vec<Pair>,
    /// Exchanges that stay apart from the product beside them, and why.
    apart: Vec<(OpId, String)>,
}

/// What may be one call, by rank.
#[derive(Debug)]
pub(super) struct Found(Vec<OfRank>);

/// By group and turn of its exchanges.
type Outcomes = BTreeMap<(GroupId, usize), (usize, Result<Pair, String>)>;

impl Found {
    /// Of the plans of all ranks.
    pub(super) fn of(plans: &[Plan]) -> Self {
        let mut outcomes: Vec<Outcomes> = plans.iter().map(outcomes).collect();
        let mut found: Vec<OfRank> = plans.iter().map(|_| OfRank::default()).collect();
        let (profile, turns) = (Profile::of(CHIP), turns(&outcomes));
        for (group, turn) in turns {
            let ranks = &plans[0].groups[group];
            let of_all: Vec<_> = ranks.iter().filter_map(|rank| outcomes[*rank].remove(&(group, turn))).collect();
            if of_all.len() < ranks.len() {
                continue;
            }
            let reason = agree(&of_all).and_then(|()| pays(&profile, ranks, &of_all)).err();
            for (rank, (step, outcome)) in ranks.iter().zip(of_all) {
                match (&reason, outcome) {
                    (None, Ok(pair)) => found[*rank].pairs.push(pair),
                    (Some(reason), _) => found[*rank].apart.push((plans[*rank].steps[step].op, reason.clone())),
                    // Ranks agree only where each has a pair.
                    (None, Err(_)) => {}
                }
            }
        }
        Self(found)
    }

    /// Whether nothing is one call.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|of| of.pairs.is_empty())
    }

    /// Joins what was found, and says of the rest why not.
    pub(super) fn join(self, plans: &mut [Plan]) {
        for (plan, OfRank { pairs, apart }) in plans.iter_mut().zip(self.0) {
            for (op, reason) in apart {
                plan.notes[op].launch = Launched::Apart(reason);
            }
            join(plan, pairs);
        }
    }
}

fn turns(outcomes: &[Outcomes]) -> Vec<(GroupId, usize)> {
    let mut turns: Vec<_> = outcomes.iter().flat_map(BTreeMap::keys).copied().collect();
    turns.sort_unstable();
    turns.dedup();
    turns
}

/// Makes the pairs of a rank one call each.
fn join(plan: &mut Plan, pairs: Vec<Pair>) {
    let mut gone: Vec<usize> = pairs.iter().map(|pair| pair.product).collect();
    gone.sort_unstable();
    // Of a product that is summed nothing is left.
    let mut unmade: Vec<BufferId> = Vec::new();
    for Pair { product, exchange, joined, .. } in pairs {
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
        plan.steps[exchange].action = Action::Exchange(joined);
    }
    let mut at = 0;
    plan.steps.retain(|_| {
        at += 1;
        gone.binary_search(&(at - 1)).is_err()
    });
    plan.taps.retain(|tap| !unmade.contains(&tap.view.buffer));
    for tap in &mut plan.taps {
        tap.after_steps -= gone.partition_point(|step| *step < tap.after_steps);
    }
}

/// What all ranks of a group have to have alike.
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

/// Whether the first rank's pair, and so all others, hides more in one call than it costs to multiply and exchange rows in two parts.
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
    // The weights are read for each part.
    let more_us = latency_us + (2.0 * half_us - product_us).max(0.0);
    if hidden_us >= more_us {
        return Ok(());
    }
    Err(format!("one call would hide {hidden_us:.1} us, and rows in two parts take {more_us:.1} us more"))
}

/// The product of half the rows.
fn half(mut product: Launch) -> Launch {
    for at in [0, 2] {
        let operand = &mut product.operands[at];
        let rows = operand.dims[0].div_ceil(2);
        operand.distinct = operand.distinct / operand.dims[0] * rows;
        operand.dims[0] = rows;
    }
    product
}

/// The steps that touch each buffer.
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

/// Of each exchange of a rank with a product beside it: its step, and the pair or why it is none.
fn outcomes(plan: &Plan) -> Outcomes {
    let touching = touching(plan);
    let mut next: BTreeMap<GroupId, usize> = BTreeMap::new();
    let mut found = Outcomes::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let Action::Exchange(exchange) = &step.action else { continue };
        let turn = next.entry(exchange.group).or_default();
        let site = Site { plan, touching: &touching, at, exchange };
        if let Some(outcome) = site.pair() {
            found.insert((exchange.group, *turn), (at, outcome));
        }
        *turn += 1;
    }
    found
}

/// An exchange of a plan.
struct Site<'a> {
    plan: &'a Plan,
    touching: &'a IdVec<BufferId, Vec<usize>>,
    at: usize,
    exchange: &'a Collective,
}

impl Site<'_> {
    /// The pair of this exchange, or why it is none. None if no product is beside it.
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

    /// The matrices of the product that a step is, or why it cannot be one call with an exchange. None if it is none.
    fn beside(&self, step: usize) -> Option<Result<[&View; 3], String>> {
        let Action::Launch(call) = &self.plan.steps[step].action else { return None };
        let refused = |reason: &str| Some(Err(reason.to_owned()));
        match call {
            Call::Matmul { a, b, out } => Some(Ok([a, b, out])),
            Call::Addmm { .. } => refused(match self.exchange.kind {
                CollectiveKind::AllReduce { .. } => "its product adds a bias, which every card would add",
                _ => "its product adds a bias, of which the operator takes none",
            }),
            Call::QuantMatmul { .. } | Call::DynamicQuant { .. } => refused("its product is of quantised numbers"),
            Call::Copy { from, into } if [from, into].into_iter().any(|view| self.is_of_product(view)) => {
                refused("rows are packed between it and its product")
            }
            _ => None,
        }
    }

    /// Whether a product makes or takes what lies there.
    fn is_of_product(&self, view: &View) -> bool {
        let is_product = |step: &usize| {
            matches!(self.plan.steps[*step].action, Action::Launch(Call::Matmul { .. } | Call::Addmm { .. }))
        };
        self.touching[view.buffer].iter().any(is_product)
    }

    /// A product and the sum over cards of what it makes.
    fn summed(&self, before: usize, [a, b, out]: [&View; 3]) -> Result<Pair, String> {
        let Collective { kind, group, send, recv, .. } = self.exchange;
        let is_alone = self.touching[send.buffer] == [before, self.at]
            && self.plan.buffers[send.buffer].region == Region::Arena
            && is_all_of(out, send);
        if !is_alone {
            return Err("what the cards add up is read elsewhere, or is more than one product".to_owned());
        }
        let dims = self.matrices(a, b, out)?;
        let [m, _, n] = dims;
        let moved = |step: &Step| step.writes().into_iter().all(|view| ![a.buffer, b.buffer].contains(&view.buffer));
        if !self.plan.steps[before + 1..self.at].iter().all(moved) || [a.buffer, b.buffer].contains(&recv.buffer) {
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
        Ok(Pair { product: before, exchange: self.at, joined, dims })
    }

    /// A gather and the first product of what it gives.
    fn gathered(&self, behind: usize, [a, b, out]: [&View; 3]) -> Result<Pair, String> {
        let Collective { kind, send, recv, .. } = self.exchange;
        if !is_all_of(a, recv) {
            return Err("its product takes another matrix than all that is gathered".to_owned());
        }
        let dims = self.matrices(a, b, out)?;
        let CollectiveKind::AllGather { counts } = kind else { return Err("it gathers nothing".to_owned()) };
        let [m, k, n] = dims;
        let rows = self.rows_of_each(counts, k)?;
        let between = &self.plan.steps[self.at + 1..behind];
        let frees = |step: &Step| {
            step.reads().into_iter().chain(step.writes()).all(|view| view.buffer != out.buffer)
                && step.writes().into_iter().all(|view| view.buffer != b.buffer)
        };
        if !between.iter().all(frees) || [send.buffer, recv.buffer].contains(&out.buffer) {
            return Err("what its product writes is in use before it".to_owned());
        }
        let gathered = matrix(recv, [m, k]);
        let call =
            Call::AllGatherMatmul { a: matrix(send, [rows, k]), b: b.clone(), out: matrix(out, [m, n]), gathered };
        let joined = Collective { product: Some(Box::new(call)), ..self.exchange.clone() };
        Ok(Pair { product: behind, exchange: self.at, joined, dims })
    }

    /// Rows, what is contracted and columns of a product, if an operator of the card takes it beside an exchange of the group.
    fn matrices(&self, a: &View, b: &View, out: &View) -> Result<[usize; 3], String> {
        let ranks = &self.plan.groups[self.exchange.group];
        let servers = [ranks.first(), ranks.last()].map(|rank| rank.map(|rank| rank / CARDS_OF_A_SERVER));
        if !CHIP.fuses_exchanges_of(ranks.len()) || servers[0] != servers[1] {
            return Err(format!("the operator takes 2, 4 or 8 cards of one server, these are {}", ranks.len()));
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
        if !a.is_contiguous() || !out.is_contiguous() || !(b.is_contiguous() || b.permute(&[1, 0]).is_contiguous()) {
            return Err("the operator takes dense rows and weights that are dense or transposed".to_owned());
        }
        if !matches!(self.exchange.kind, CollectiveKind::AllReduce { .. }) && !DEPTHS.contains(&k) {
            let last = DEPTHS.end - 1;
            return Err(format!("the operator takes rows of {} to {last} elements, these have {k}", DEPTHS.start));
        }
        Ok([m, k, n])
    }

    /// How many rows of `width` elements each card has, if all have as many.
    fn rows_of_each(&self, counts: &[usize], width: usize) -> Result<usize, String> {
        let rows = counts[0] / width;
        if counts.iter().any(|count| *count != rows * width) || rows == 0 {
            return Err("the cards have different numbers of rows".to_owned());
        }
        Ok(rows)
    }
}

/// Whether two dense views are of the same elements.
fn is_all_of(one: &View, other: &View) -> bool {
    (one.buffer, one.offset, one.elems(), one.dtype) == (other.buffer, other.offset, other.elems(), other.dtype)
        && one.is_contiguous()
        && other.is_contiguous()
}

/// A dense view as a matrix of as many elements.
fn matrix(view: &View, dims: [usize; 2]) -> View {
    View { offset: view.offset, ..View::contiguous(view.buffer, view.dtype, dims.into()) }
}

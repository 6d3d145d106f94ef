//! Routing of tokens to experts and back.
//!
//! Invariants: of equal scores, the lower expert comes first. The copies for one expert are in the
//! order of the tokens. `combine` adds in f32, addends first, then the choices in their order, and
//! converts to the output type once.

use crate::Tiles;
use crate::lane::Lane;
use crate::math;
use crate::reduction::kernels::rows;
use crate::reduction::order::compare;
use crate::view::StridedView;

/// Stores the `k` greatest softmax values of each row and their experts. In rows where
/// `finished` is not 0, each expert index is the number of experts; the values do not change.
pub(crate) fn choose(
    tiles: &dyn Tiles,
    x: &StridedView,
    k: usize,
    finished: Option<&StridedView>,
    y: &StridedView,
    experts: &StridedView,
) {
    let width = x.dims()[x.rank() - 1];
    let (x, y, experts) = (x.collapsed(), y.collapsed(), experts.collapsed());
    let count = x.len() / width;
    let mut done = vec![0i64; finished.map_or(0, StridedView::len)];
    if let Some(finished) = finished {
        i64::load(&finished.collapsed(), 0, &mut done);
    }
    rows(tiles, count, width, &|row| {
        let mut scores = vec![0f32; width];
        f32::load(&x, row * width, &mut scores);
        let greatest = math::greatest(&scores);
        let total = math::exp_shifted(&mut scores, greatest);
        let mut order: Vec<usize> = (0..width).collect();
        order.sort_by(|&a, &b| compare(scores[b], scores[a]));
        order.truncate(k);
        let chosen: Vec<f32> = order.iter().map(|&expert| scores[expert] / total).collect();
        f32::store(&y, row * k, &chosen);
        let is_done = done.get(row).is_some_and(|done| *done != 0);
        let named: Vec<i64> =
            order.iter().map(|&expert| if is_done { width } else { expert } as i64).collect();
        i64::store(&experts, row * k, &named);
    });
}

pub(crate) fn whole(view: &StridedView) -> Vec<i64> {
    let mut values = vec![0i64; view.len()];
    i64::load(&view.collapsed(), 0, &mut values);
    values
}

/// Equal keys keep their order.
pub(crate) fn sorted_places(keys: &[i64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..keys.len()).collect();
    places.sort_by_key(|&place| keys[place]);
    places
}

pub(crate) fn inverse(order: &[usize]) -> Vec<i64> {
    let mut places = vec![0; order.len()];
    for (at, &place) in order.iter().enumerate() {
        places[place] = at as i64;
    }
    places
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyLayout {
    /// Copies of all experts without gaps. The field is the number of rows.
    Dropless(usize),
    /// Fixed number of rows per expert.
    Capacity(usize),
}

#[derive(Debug)]
pub(crate) struct SortedChoices {
    /// Row of each choice's copy; -1 if the expert's capacity was exceeded.
    pub(crate) places: Vec<i64>,
    pub(crate) counts: Vec<i64>,
    /// Index of the choice that is copied to each row. `None` for an empty row.
    pub(crate) copies: Vec<Option<usize>>,
}

/// Sorts the choices by expert. If an expert has more choices than its capacity, the later ones are
/// dropped.
///
/// If `number` is 0, expert indices are not checked.
pub(crate) fn sort_choices(
    chosen: &[i64],
    number: usize,
    layout: CopyLayout,
) -> Result<SortedChoices, String> {
    let order = sorted_places(chosen);
    let length = match layout {
        CopyLayout::Dropless(copies) => copies,
        CopyLayout::Capacity(capacity) => number * capacity,
    };
    let mut sorted_choices =
        SortedChoices { places: inverse(&order), counts: vec![0; number], copies: vec![None; length] };
    for (sorted, &place) in order.iter().enumerate() {
        let expert = usize::try_from(chosen[place]).ok().filter(|&expert| expert < number);
        if expert.is_none() && number > 0 {
            return Err(format!("expertIdx: expected 0 to {}, found {}", number - 1, chosen[place]));
        }
        let own = expert.map(|expert| {
            sorted_choices.counts[expert] += 1;
            (expert, sorted_choices.counts[expert] as usize - 1)
        });
        let to = match (layout, own) {
            (CopyLayout::Capacity(capacity), Some((expert, own))) => {
                let to = (own < capacity).then_some(expert * capacity + own);
                sorted_choices.places[place] = to.map_or(-1, |to| to as i64);
                to
            }
            _ => Some(sorted).filter(|&sorted| sorted < length),
        };
        if let Some(to) = to {
            sorted_choices.copies[to] = Some(place);
        }
    }
    Ok(sorted_choices)
}

/// Computes `out[i] = x[taken[i]]`, or zeros without a source.
///
/// # Shapes
///
/// `x: [n, h]`, `out: [.., h]`.
pub(crate) fn place_rows(tiles: &dyn Tiles, x: &StridedView, taken: &[Option<usize>], out: &StridedView) {
    let width = x.dims()[1];
    let (x, out) = (x.collapsed(), out.collapsed());
    rows(tiles, taken.len(), width, &|row| {
        let mut values = vec![0f32; width];
        if let Some(taken) = taken[row] {
            f32::load(&x, taken * width, &mut values);
        }
        f32::store(&out, row * width, &values);
    });
}

/// One term of a sum: a weighted row of `copies` plus a row of `bias`. Both rows are optional.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowTerm {
    pub(crate) row: Option<usize>,
    pub(crate) factor: f32,
    pub(crate) bias: Option<usize>,
}

/// Computes `out[i] = sum of addends[i] + sum over shares of factor * (copies[row] +
/// bias[expert])`.
///
/// # Shapes
///
/// `copies: [copies, h]`, `addends: [n, h]` each, `bias: [experts, h]`, `out: [n, h]`; `shares` has
/// `n` lists.
pub(crate) fn combine(
    tiles: &dyn Tiles,
    copies: &StridedView,
    addends: &[&StridedView],
    bias: Option<&StridedView>,
    shares: &[Vec<RowTerm>],
    out: &StridedView,
) {
    let width = out.dims()[1];
    let (copies, out) = (copies.collapsed(), out.collapsed());
    let addends: Vec<StridedView> = addends.iter().map(|view| view.collapsed()).collect();
    let bias = bias.map(StridedView::collapsed);
    rows(tiles, shares.len(), width, &|i| {
        let (mut sum, mut row) = (vec![0f32; width], vec![0f32; width]);
        for addend in &addends {
            f32::load(addend, i * width, &mut row);
            math::add(&mut sum, &row);
        }
        for share in &shares[i] {
            row.fill(0.0);
            if let Some(copy) = share.row {
                f32::load(&copies, copy * width, &mut row);
            }
            if let (Some(bias), Some(expert)) = (&bias, share.bias) {
                let mut shift = vec![0f32; width];
                f32::load(bias, expert * width, &mut shift);
                math::add(&mut row, &shift);
            }
            math::add_scaled(&mut sum, &row, share.factor);
        }
        f32::store(&out, i * width, &sum);
    });
}

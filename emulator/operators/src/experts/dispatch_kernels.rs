//! Dispatch of tokens to the cards of their experts (in order, equally many per card), and
//! combination of the results.
//!
//! Invariants: the tokens of an expert are ordered by card, token and choice. Received data is
//! checked before any write. Sums are f32 and rounded once.

use crate::Tiles;
use crate::dtype::AclType;
use crate::elementwise::kernels as elementwise;
use crate::experts::kernels::{self as experts, RowTerm, whole};
use crate::indexing::kernels as index;
use crate::lane::Lane;
use crate::quantization::kernels as quantize;
use crate::reduction::kernels::rows;
use crate::view::StridedView;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deal {
    pub(crate) cards: usize,
    pub(crate) card: usize,
    pub(crate) experts: usize,
    pub(crate) local: usize,
    /// Maximum tokens per card, and choices per token.
    pub(crate) tokens: usize,
    pub(crate) choices: usize,
    pub(crate) width: usize,
}

const NONE: i64 = -1;

/// Integers per row that locate its source.
pub(crate) const ASSIST: usize = 128;

impl Deal {
    pub(crate) fn most_rows(&self) -> usize {
        self.tokens * self.local.min(self.choices)
    }

    /// Returns [`NONE`] for inactive choices.
    fn chosen(&self, ids: &StridedView, mask: Option<&StridedView>) -> Result<Vec<i64>, String> {
        let mut ids = whole(ids);
        if let Some(mask) = mask {
            let (is_of_tokens, mask) = (mask.rank() == 1, whole(mask));
            if is_of_tokens && mask.windows(2).any(|pair| pair[0] == 0 && pair[1] != 0) {
                return Err("xActiveMask: an active token follows an inactive token".to_owned());
            }
            let each = if is_of_tokens { self.choices } else { 1 };
            ids.iter_mut().enumerate().filter(|(at, _)| mask[at / each] == 0).for_each(|(_, id)| *id = NONE);
        }
        let wrong = |id: &i64| *id != NONE && !(0..self.experts as i64).contains(id);
        match ids.iter().position(wrong) {
            None => Ok(ids),
            Some(at) => Err(format!(
                "expertIds: expert {} of token {} is outside 0..{}",
                ids[at],
                at / self.choices,
                self.experts
            )),
        }
    }

    /// Counts, for each choice, the earlier choices of the same expert.
    fn places(&self, chosen: &[i64]) -> Vec<usize> {
        let mut counts = vec![0; self.experts];
        let place = |id: &i64| {
            let Ok(id) = usize::try_from(*id) else { return 0 };
            counts[id] += 1;
            counts[id] - 1
        };
        chosen.iter().map(place).collect()
    }
}

/// Tokens of this card, before their dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTokens<'a> {
    /// States of the tokens, `[tokens, width]`.
    pub(crate) x: &'a StridedView,
    /// Chosen experts of each token, `[tokens, choices]`.
    pub(crate) ids: &'a StridedView,
    pub(crate) mask: Option<&'a StridedView>,
    pub(crate) factors: Option<&'a StridedView>,
}

/// Writes expert ids, factors and tokens for all cards.
pub(crate) fn offer(
    tiles: &dyn Tiles,
    of: Deal,
    own: &OwnTokens<'_>,
    [ids_out, factors_out, x_out]: [&StridedView; 3],
) -> Result<(), String> {
    let mut chosen = of.chosen(own.ids, own.mask)?;
    let own_choices = chosen.len();
    chosen.resize(of.tokens * of.choices, NONE);
    i64::store(&ids_out.collapsed(), 0, &chosen);
    let mut values = vec![0f32; chosen.len()];
    if let Some(factors) = own.factors {
        f32::load(&factors.collapsed(), 0, &mut values[..own_choices]);
    }
    f32::store(&factors_out.collapsed(), 0, &values);
    elementwise::copy(tiles, own.x, &x_out.slice(0, 0, own.x.dims()[0], 1));
    Ok(())
}

/// Locates the source of each row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Assist<'a> {
    /// `[rows * 128]`, which begin with card, token and choice.
    Rows(&'a StridedView),
    /// `[own tokens * choices]`: position among the choices of the same expert.
    Choices(&'a StridedView),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    /// `[rows, width]`; INT8 tokens have `scales` per row.
    pub(crate) x: &'a StridedView,
    pub(crate) scales: Option<&'a StridedView>,
    /// Tokens per expert, `[local]`; cumulative if `is_running`.
    pub(crate) counts: &'a StridedView,
    pub(crate) is_running: bool,
    /// Cumulative counts per expert and card, padded with zeros.
    pub(crate) ends: &'a StridedView,
    pub(crate) assist: Assist<'a>,
    pub(crate) factors: Option<&'a StridedView>,
}

/// `smooth` holds quantisation factors per expert. Fails if the tokens need more rows than the
/// output has.
pub(crate) fn take(
    tiles: &dyn Tiles,
    of: Deal,
    [ids, factors, x]: [&StridedView; 3],
    smooth: Option<&StridedView>,
    out: &Received<'_>,
) -> Result<(), String> {
    let chosen = whole(ids);
    let (each, first) = (of.tokens * of.choices, of.card * of.local);
    // Positions by local expert, then by card.
    let mut taken: Vec<Vec<usize>> = vec![Vec::new(); of.local * of.cards];
    for (at, &id) in chosen.iter().enumerate() {
        let local =
            usize::try_from(id).ok().and_then(|id| id.checked_sub(first)).filter(|local| *local < of.local);
        if let Some(local) = local {
            taken[local * of.cards + at / each].push(at);
        }
    }
    let ends: Vec<i64> = taken
        .iter()
        .scan(0, |end, own| {
            *end += own.len() as i64;
            Some(*end)
        })
        .collect();
    let places: Vec<usize> = taken.into_iter().flatten().collect();
    let room = out.x.dims()[0];
    if places.len() > room {
        return Err(format!(
            "the experts of card {} get {} tokens, but expandX has {room} rows",
            of.card,
            places.len()
        ));
    }
    let expert = |row: usize| ends.partition_point(|end| *end <= row as i64) / of.cards;
    let target = out.x.slice(0, 0, places.len(), 1);
    if out.x.dtype() == AclType::I8 {
        let scales = out.scales.map(StridedView::collapsed);
        let (source, target, smooth) =
            (x.collapsed(), target.collapsed(), smooth.map(StridedView::collapsed));
        rows(tiles, places.len(), of.width, &|row| {
            let mut values = vec![0f32; of.width];
            f32::load(&source, places[row] / of.choices * of.width, &mut values);
            if let Some(smooth) = &smooth {
                let mut own = vec![0f32; of.width];
                f32::load(smooth, (first + expert(row)) * of.width, &mut own);
                elementwise::zip(&mut values, &own, |value, factor| value * factor);
            }
            let scale = quantize::quantized(&mut values);
            f32::store(&target, row * of.width, &values);
            if let Some(scales) = &scales {
                f32::store(scales, row, &[scale]);
            }
        });
    } else {
        let tokens: Vec<usize> = places.iter().map(|at| at / of.choices).collect();
        index::take_rows(tiles, x, &tokens, &target);
    }
    tell(of, &chosen, &places, &ends, factors, out);
    Ok(())
}

fn tell(of: Deal, chosen: &[i64], places: &[usize], ends: &[i64], factors: &StridedView, out: &Received<'_>) {
    let each = of.tokens * of.choices;
    let last = |local: usize| ends[(local + 1) * of.cards - 1];
    let before = |local: usize| if local == 0 || out.is_running { 0 } else { last(local - 1) };
    let counts: Vec<i64> = (0..of.local).map(|local| last(local) - before(local)).collect();
    i64::store(&out.counts.collapsed(), 0, &counts);
    let mut padded = ends.to_vec();
    padded.resize(out.ends.len(), 0);
    i64::store(&out.ends.collapsed(), 0, &padded);
    match out.assist {
        Assist::Rows(assist) => {
            let assist = assist.collapsed();
            for (row, at) in places.iter().enumerate() {
                let own = [at / each, at % each / of.choices, at % of.choices].map(|number| number as i64);
                i64::store(&assist, row * ASSIST, &own);
            }
        }
        Assist::Choices(assist) => {
            let own = &chosen[of.card * each..][..assist.len()];
            let places: Vec<i64> = of.places(own).into_iter().map(|place| place as i64).collect();
            i64::store(&assist.collapsed(), 0, &places);
        }
    }
    if let Some(wanted) = out.factors {
        let (source, target) = (factors.collapsed(), wanted.collapsed());
        for (row, at) in places.iter().enumerate() {
            let mut factor = [0f32];
            f32::load(&source, *at, &mut factor);
            f32::store(&target, row, &factor);
        }
    }
}

/// Writes the row counts and rows for each card.
///
/// Fails if the counts do not come from a dispatch.
pub(crate) fn give_back(
    tiles: &dyn Tiles,
    of: Deal,
    x: &StridedView,
    ends: &StridedView,
    assist: Option<&StridedView>,
    [counts_out, x_out]: [&StridedView; 2],
) -> Result<(), String> {
    let ends = &whole(ends)[..of.local * of.cards];
    let room = x.dims()[0] as i64;
    let starts: Vec<i64> = std::iter::once(0).chain(ends.iter().copied()).collect();
    if starts.windows(2).any(|pair| pair[0] > pair[1]) || starts.last().is_some_and(|last| *last > room) {
        return Err(format!(
            "epSendCounts: {ends:?} are not ascending ends within {room} rows, as a dispatch writes them"
        ));
    }
    let assist = assist.map(StridedView::collapsed);
    for card in 0..of.cards {
        let of_expert = |local: usize| {
            starts[local * of.cards + card] as usize..starts[local * of.cards + card + 1] as usize
        };
        let counts: Vec<i64> = (0..of.local).map(|local| of_expert(local).len() as i64).collect();
        let taken: Vec<usize> = (0..of.local).flat_map(of_expert).collect();
        if taken.len() > of.most_rows() {
            let most = of.most_rows();
            return Err(format!(
                "epSendCounts: {} tokens of card {card}, which can send {most}",
                taken.len()
            ));
        }
        for &row in &taken {
            let mut from = [0i64];
            if let Some(assist) = &assist {
                i64::load(assist, row * ASSIST, &mut from);
                if from[0] != card as i64 {
                    let found = format!("row {row} is of card {}", from[0]);
                    return Err(format!(
                        "assistInfoForCombine: {found}, by epSendCounts it is of card {card}"
                    ));
                }
            }
        }
        i64::store(&counts_out.at(0, card).collapsed(), 0, &counts);
        index::take_rows(tiles, x, &taken, &x_out.at(0, card).slice(0, 0, taken.len(), 1));
    }
    Ok(())
}

/// Choices of this card's tokens, and the rows that the experts return for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned<'a> {
    /// Chosen experts of each token, `[tokens, choices]`, like `factors`.
    pub(crate) ids: &'a StridedView,
    pub(crate) mask: Option<&'a StridedView>,
    pub(crate) factors: &'a StridedView,
    /// Positions as in [`Assist::Choices`].
    pub(crate) assist: Option<&'a StridedView>,
    /// Number of rows per expert.
    pub(crate) counts: &'a StridedView,
    pub(crate) x: &'a StridedView,
}

/// Sums the weighted expert outputs of each token, plus `residual`.
pub(crate) fn join(
    tiles: &dyn Tiles,
    of: Deal,
    returned: &Returned<'_>,
    residual: Option<&StridedView>,
    out: &StridedView,
) -> Result<(), String> {
    let Returned { ids, mask, factors, assist, counts, x } = *returned;
    let chosen = of.chosen(ids, mask)?;
    let places = of.places(&chosen);
    if let Some(assist) = assist {
        let told = whole(assist);
        if let Some(at) = (0..places.len()).find(|&at| told[at] != places[at] as i64) {
            let text =
                format!("expandIdx: {} at position {at}, but a dispatch writes {}", told[at], places[at]);
            return Err(text);
        }
    }
    let counts = whole(counts);
    let mut scales = vec![0f32; chosen.len()];
    f32::load(&factors.collapsed(), 0, &mut scales);
    let mut shares: Vec<Vec<RowTerm>> = vec![Vec::new(); chosen.len() / of.choices];
    for (at, &id) in chosen.iter().enumerate() {
        let Ok(id) = usize::try_from(id) else { continue };
        let (card, local) = (id / of.local, id % of.local);
        let own = &counts[card * of.local..(card + 1) * of.local];
        if places[at] as i64 >= own[local] {
            let text = format!("token {} waits for row {} of expert {id}", at / of.choices, places[at]);
            return Err(format!("{text}, but card {card} returns {} rows", own[local]));
        }
        let before: i64 = own[..local].iter().sum();
        let row = card * of.most_rows() + before as usize + places[at];
        shares[at / of.choices].push(RowTerm { row: Some(row), factor: scales[at], bias: None });
    }
    experts::combine(tiles, x, residual.as_slice(), None, &shares, out);
    Ok(())
}

//! Pooling windows: count, covered elements and divisors.

use crate::operator::Refusal;
use crate::operator::call::OperatorCall;
use crate::operator::names::Name;
use crate::pooling::kernels::{PoolingWindows, WindowSpan};

/// Padding is before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolWindow {
    pub(crate) window: usize,
    pub(crate) stride: usize,
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) dilation: usize,
}

impl PoolWindow {
    /// Returns `None` if no window fits. With rounding up, the last window may begin anywhere
    /// before the end padding.
    pub(crate) fn count(&self, extent: usize, round_up: bool) -> Option<usize> {
        let reach = self.dilation * (self.window - 1) + 1;
        let room = (extent + self.before + self.after).checked_sub(reach)?;
        let count = room / self.stride + 1;
        let has_more =
            round_up && !room.is_multiple_of(self.stride) && count * self.stride < extent + self.before;
        Some(count + usize::from(has_more))
    }

    /// Returns the positions of window `at`, and its size with padding.
    fn span(&self, extent: usize, at: usize) -> (WindowSpan, usize) {
        let first = at * self.stride;
        let up_to = |end: usize| end.saturating_sub(first).div_ceil(self.dilation).min(self.window);
        let (low, high) = (up_to(self.before), up_to(self.before + extent));
        let start = (first + low * self.dilation).saturating_sub(self.before);
        (
            WindowSpan { start, count: high - low, step: self.dilation },
            up_to(self.before + extent + self.after),
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WindowRule {
    Sliding(PoolWindow),
    /// Nearly equal windows over the dim.
    Adaptive,
}

/// Windows over the last dims; 2-D pools have depth 1. They are listed when the call runs and
/// memory of that size exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolWindows {
    pub(crate) dims: usize,
    pub(crate) extents: [usize; 3],
    pub(crate) counts: [usize; 3],
    pub(crate) rules: [WindowRule; 3],
}

impl PoolWindows {
    /// Returns windows of one element each.
    pub(crate) fn of(shape: &[usize], dims: usize) -> Self {
        let mut extents = [1; 3];
        extents[3 - dims..].copy_from_slice(&shape[shape.len() - dims..]);
        Self { dims, extents, counts: extents, rules: [WindowRule::Adaptive; 3] }
    }

    fn window(&self, dim: usize, at: usize) -> (WindowSpan, usize) {
        let (extent, count) = (self.extents[dim], self.counts[dim]);
        match self.rules[dim] {
            WindowRule::Sliding(slide) => slide.span(extent, at),
            WindowRule::Adaptive => {
                // Computed in 128 bits, because the product of two extents may exceed 64.
                let border = |at: usize| at as u128 * extent as u128;
                let (start, end) = (border(at) / count as u128, border(at + 1).div_ceil(count as u128));
                let count = (end - start) as usize;
                (WindowSpan { start: start as usize, count, step: 1 }, count)
            }
        }
    }

    /// Fails for a window without elements.
    pub(crate) fn windows(&self) -> Result<PoolingWindows, String> {
        let spans =
            [0, 1, 2].map(|dim| (0..self.counts[dim]).map(|at| self.window(dim, at).0).collect::<Vec<_>>());
        if let Some(at) = spans.iter().flat_map(|spans| spans.iter().position(|span| span.count == 0)).next()
        {
            return Err(format!("window {at} of a dim covers no element: {:?}", self.rules));
        }
        Ok(PoolingWindows { spans, extents: self.extents })
    }

    pub(crate) fn divisors(&self, divisor: Divisor) -> Vec<f32> {
        let number = |dim: usize, at: usize| {
            let (covered, counted) = self.window(dim, at);
            if divisor == Divisor::Counted { counted } else { covered.count }
        };
        let [depth, rows, columns] =
            [0, 1, 2].map(|dim| (0..self.counts[dim]).map(|at| number(dim, at)).collect::<Vec<_>>());
        let lines = depth.iter().flat_map(|depth| rows.iter().map(move |row| depth * row));
        let product = |line: usize, column: usize| match divisor {
            Divisor::Given(divisor) => divisor as f32,
            _ => (line * column) as f32,
        };
        lines.flat_map(|line| columns.iter().map(move |&column| product(line, column))).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Divisor {
    /// Window size with padding.
    Counted,
    /// Number of covered elements.
    Covered,
    Given(i64),
}

/// The array has one or `dims` elements; an empty array gives `otherwise`. Leading dims get
/// `alone`.
pub(crate) fn per_dim(
    call: &OperatorCall,
    name: Name<[i64]>,
    dims: usize,
    alone: usize,
    least: i64,
    otherwise: Option<[usize; 3]>,
) -> Result<[usize; 3], Refusal> {
    let (values, legal) = (call.ints(name)?, least..=i64::from(i32::MAX));
    if let ([], Some(otherwise)) = (values, otherwise) {
        return Ok(otherwise);
    }
    if ![1, dims].contains(&values.len()) || !values.iter().all(|value| legal.contains(value)) {
        let count = if dims == 2 { "two" } else { "three" };
        let text = format!("expected one or {count} numbers of {least} to {}, found {values:?}", i32::MAX);
        return Err(call.refuse(name, text));
    }
    let mut all = [alone; 3];
    for (at, value) in all[3 - dims..].iter_mut().enumerate() {
        *value = values[at % values.len()] as usize;
    }
    Ok(all)
}

//! Dim orders of queries, keys, values and outputs.

use crate::operator::Refusal;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::Name;
use crate::view::StridedView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Batch, position, heads times depth.
    Bsh,
    /// Batch, position, head, depth.
    Bsnd,
    /// Batch, head, position, depth.
    Bnsd,
    /// Position, head, depth, with packed sequences.
    Tnd,
    /// Head, position, depth, with packed sequences.
    Ntd,
}

/// Packed sequences form a batch of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) len: usize,
    pub(crate) depth: usize,
}

impl Order {
    pub(crate) fn extents(
        self,
        call: &OperatorCall,
        name: Name<CheckedTensor>,
        dims: &[usize],
        heads: usize,
    ) -> Result<Extents, Refusal> {
        let found = match (self, dims) {
            (Self::Bsh, &[batch, len, width]) => {
                if width == 0 || !width.is_multiple_of(heads) {
                    let text = format!("expected a last dim that {heads} heads divide, found {dims:?}");
                    return Err(call.refuse(name, text));
                }
                Extents { batch, heads, len, depth: width / heads }
            }
            (Self::Bsnd, &[batch, len, found, depth]) => Extents { batch, heads: found, len, depth },
            (Self::Bnsd, &[batch, found, len, depth]) => Extents { batch, heads: found, len, depth },
            (Self::Tnd, &[len, found, depth]) | (Self::Ntd, &[found, len, depth]) => {
                Extents { batch: 1, heads: found, len, depth }
            }
            _ => {
                return Err(
                    call.refuse(name, format!("{dims:?} has the wrong number of dims for this inputLayout"))
                );
            }
        };
        if found.heads != heads {
            let text =
                format!("expected {heads} heads as the attributes say, found {} in {dims:?}", found.heads);
            return Err(call.refuse(name, text));
        }
        Ok(found)
    }

    pub(crate) const fn is_packed(self) -> bool {
        matches!(self, Self::Tnd | Self::Ntd)
    }

    pub(crate) const fn position(self) -> usize {
        match self {
            Self::Bsh | Self::Bsnd | Self::Ntd => 1,
            Self::Bnsd => 2,
            Self::Tnd => 0,
        }
    }

    pub(crate) fn dims(self, e: Extents) -> Vec<usize> {
        match self {
            Self::Bsh => vec![e.batch, e.len, e.heads * e.depth],
            Self::Bsnd => vec![e.batch, e.len, e.heads, e.depth],
            Self::Bnsd => vec![e.batch, e.heads, e.len, e.depth],
            Self::Tnd => vec![e.len, e.heads, e.depth],
            Self::Ntd => vec![e.heads, e.len, e.depth],
        }
    }

    pub(crate) fn head_major(self, view: &StridedView, e: Extents) -> StridedView {
        match self {
            Self::Bsh => view.split(2, e.heads, e.depth).permute(&[0, 2, 1, 3]),
            Self::Bsnd => view.permute(&[0, 2, 1, 3]),
            Self::Bnsd => view.clone(),
            Self::Tnd => view.permute(&[1, 0, 2]).unsqueeze(0),
            Self::Ntd => view.unsqueeze(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_agree_on_extents_and_dims() {
        let e = Extents { batch: 2, heads: 3, len: 5, depth: 16 };
        assert_eq!(Order::Bsh.dims(e), [2, 5, 48]);
        assert_eq!(Order::Bsnd.dims(e), [2, 5, 3, 16]);
        assert_eq!(Order::Bnsd.dims(e), [2, 3, 5, 16]);
        let packed = Extents { batch: 1, ..e };
        assert_eq!(Order::Tnd.dims(packed), [5, 3, 16]);
        assert_eq!(Order::Ntd.dims(packed), [3, 5, 16]);
        for order in [Order::Bsh, Order::Bsnd, Order::Bnsd, Order::Tnd, Order::Ntd] {
            assert_eq!(order.dims(packed)[order.position()], 5);
        }
    }
}

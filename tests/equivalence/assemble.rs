//! Assembles the shards of all ranks to the whole value.

use ascend_tp::base::HostData;
use ascend_tp::base::{AxisId, DType, Reduce, Shape};
use ascend_tp::placement::Placed;
use ascend_tp::program::{HostTensor, ValueId};

pub(crate) struct Whole {
    pub(crate) tensor: HostTensor,
    /// Sum of the absolute partial values, for error bounds.
    pub(crate) magnitude: Vec<f64>,
}

impl Whole {
    pub(crate) fn given(tensor: HostTensor) -> Self {
        let magnitude = tensor.floats().iter().map(|x| f64::from(x.abs())).collect();
        Self { tensor, magnitude }
    }
}

pub(crate) fn assemble(placed: &Placed, value: ValueId, parts: &[HostTensor]) -> Result<Whole, String> {
    let (shape, layout) = (&placed.program.values[value].shape, &placed.layouts[value]);
    let axes: Vec<AxisId> = layout.partial.iter().map(|(axis, _)| *axis).collect();
    let reduce = layout.partial.first().map_or(Reduce::Sum, |(_, reduce)| *reduce);
    let mut elements: Vec<Option<Element>> = vec![None; shape.elems()];
    for rank in 0..placed.mesh.cards() {
        let group = placed.mesh.group(rank, &axes);
        if group[0] != rank {
            continue;
        }
        let ranges = layout.ranges(&placed.mesh, shape, rank);
        let local: Shape = ranges.iter().map(std::ops::Range::len).collect();
        if let Some(odd) = group.iter().find(|member| parts[**member].shape != local) {
            return Err(format!("rank {odd} holds {}, expected {local}", parts[*odd].shape));
        }
        for (at, index) in indices(&local).enumerate() {
            let held = group.iter().map(|member| Element::of(&parts[*member], at));
            let found = held.reduce(|a, b| a.combine(b, reduce)).expect("a group has a rank");
            let flat = index
                .iter()
                .zip(&ranges)
                .zip(shape.strides())
                .map(|((i, range), stride)| (range.start + i) * stride);
            let element = &mut elements[flat.sum::<usize>()];
            match element {
                Some(known) if known.bits() != found.bits() => {
                    let whole: Vec<usize> =
                        index.iter().zip(&ranges).map(|(i, range)| range.start + i).collect();
                    return Err(format!("rank {rank} holds {found:?} at {whole:?}, another {known:?}"));
                }
                _ => *element = Some(found),
            }
        }
    }
    let elements: Vec<Element> =
        elements.into_iter().collect::<Option<_>>().ok_or("some element is on no rank")?;
    let dtype = placed.program.values[value].dtype;
    let data = if dtype.is_float() {
        HostData::Float(elements.iter().map(|element| element.float as f32).collect())
    } else {
        HostData::Int(elements.iter().map(|element| element.int).collect())
    };
    let magnitude = elements.iter().map(|element| element.magnitude).collect();
    Ok(Whole { tensor: HostTensor { shape: shape.clone(), dtype, data }, magnitude })
}

#[derive(Clone, Copy, Debug)]
struct Element {
    float: f64,
    magnitude: f64,
    int: i64,
}

impl Element {
    fn of(part: &HostTensor, at: usize) -> Self {
        match &part.data {
            HostData::Float(data) => {
                let float = f64::from(data[at]);
                Self { float, magnitude: float.abs(), int: 0 }
            }
            HostData::Int(data) => Self { float: 0.0, magnitude: 0.0, int: data[at] },
        }
    }

    fn combine(self, other: Self, reduce: Reduce) -> Self {
        let (float, int) = match reduce {
            Reduce::Sum | Reduce::Tree => (self.float + other.float, self.int + other.int),
            Reduce::Max => (self.float.max(other.float), self.int.max(other.int)),
            Reduce::Min => (self.float.min(other.float), self.int.min(other.int)),
        };
        Self { float, magnitude: self.magnitude + other.magnitude, int }
    }

    fn bits(self) -> (u64, i64) {
        ((self.float + 0.0).to_bits(), self.int)
    }
}

pub(crate) fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + use<> {
    let sizes = shape.sizes().to_vec();
    (0..shape.elems()).map(move |mut flat| {
        let mut index = vec![0; sizes.len()];
        for (slot, size) in index.iter_mut().zip(&sizes).rev() {
            *slot = flat % size;
            flat /= size;
        }
        index
    })
}

/// Returns the first difference. The sign of a zero is ignored, because it depends on the start of
/// a sum.
pub(crate) fn difference(found: &HostTensor, expected: &HostTensor) -> Option<String> {
    if (&found.shape, found.dtype) != (&expected.shape, expected.dtype) {
        return Some(format!(
            "found {}{}, expected {}{}",
            found.dtype, found.shape, expected.dtype, expected.shape
        ));
    }
    let index = |at: usize| indices(&expected.shape).nth(at).unwrap_or_default();
    let bits = |x: &f32| (x + 0.0).to_bits();
    let mut floats = found.floats().iter().zip(expected.floats());
    if let Some(at) = floats.position(|(a, b)| bits(a) != bits(b)) {
        return Some(format!(
            "at {:?} found {}, expected {}",
            index(at),
            found.floats()[at],
            expected.floats()[at]
        ));
    }
    let mut ints = found.ints().iter().zip(expected.ints());
    let at = ints.position(|(a, b)| a != b)?;
    Some(format!("at {:?} found {}, expected {}", index(at), found.ints()[at], expected.ints()[at]))
}

pub(crate) fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f64::powi(2.0, -11),
        DType::BF16 => f64::powi(2.0, -8),
        _ => f64::powi(2.0, -24),
    }
}

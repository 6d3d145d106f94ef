//! Kernels of `kernels/` as calls: what their plain arguments say of their tensors.
//!
//! Input: the name of an entry function and the integers it is launched with, in their order. Output: a [`Launch`] with the tensors in
//! the order of the entry's parameters. A kernel that is not here is one that nothing is known of until it runs.

use crate::launch::{Access, Element, Launch, Operand};

/// Tensors of a kernel, of its element type and its integers.
type Tensors = fn(Element, &[u64]) -> Option<Vec<Operand>>;

/// By the name of the file: the tensors of its entries.
const KERNELS: [(&str, Tensors); 3] =
    [("cache_write", cache_write), ("grad_stats", grad_stats), ("ordered_sum", ordered_sum)];

/// Endings of entry functions, by element type.
const ELEMENTS: [(&str, Element); 3] =
    [("_float", Element::F32), ("_bfloat16", Element::Bf16), ("_half", Element::F16)];

/// The launch of an entry function.
#[must_use]
pub fn launch(entry: &str, numbers: &[u64]) -> Option<Launch> {
    let (kernel, element) = ELEMENTS.iter().find_map(|(end, element)| Some((entry.strip_suffix(end)?, *element)))?;
    let (operator, tensors) = KERNELS.iter().find(|(name, _)| *name == kernel)?;
    Some(Launch { operator, operands: tensors(element, numbers)? })
}

fn tensor(element: Element, dims: &[u64], access: Access) -> Operand {
    Operand::dense(element, dims.iter().map(|size| *size as usize).collect::<Vec<_>>(), access)
}

fn cache_write(element: Element, numbers: &[u64]) -> Option<Vec<Operand>> {
    let &[tokens, each, heads, dim, rows, ..] = numbers else { return None };
    let sequences = tokens.checked_div(each)?;
    let new = || tensor(element, &[tokens, heads, dim], Access::Read);
    let angles = || tensor(Element::F32, &[tokens, dim / 2], Access::Read);
    let cache = || tensor(element, &[sequences, rows, heads, dim], Access::Update);
    Some(vec![new(), new(), angles(), angles(), tensor(Element::I64, &[sequences], Access::Read), cache(), cache()])
}

/// Its records are too few to count.
fn grad_stats(element: Element, numbers: &[u64]) -> Option<Vec<Operand>> {
    let &[rewrites, elems] = numbers else { return None };
    Some(vec![tensor(element, &[elems], if rewrites == 0 { Access::Read } else { Access::Update })])
}

fn ordered_sum(element: Element, numbers: &[u64]) -> Option<Vec<Operand>> {
    let &[chunks, elems] = numbers else { return None };
    Some(vec![tensor(element, &[chunks, elems], Access::Read), tensor(element, &[elems], Access::Write)])
}

//! Kernels in `kernels/` as operator calls.
//!
//! The cost of unlisted kernels is unknown until they run.

use crate::launch::{Access, Element, Launch, LaunchOperand};

type OperandsOf = fn(Element, &[u64]) -> Option<Vec<LaunchOperand>>;

const KERNELS: [(&str, OperandsOf); 9] = [
    ("cache_write", cache_write),
    ("grad_stats", grad_stats),
    ("ordered_sum", ordered_sum),
    ("sign_compress", said),
    ("sign_compress_reduce", heard),
    ("topk_threshold_choose", chosen),
    ("topk_threshold_count", counted),
    ("vocab_ce_forward", vocabulary_statistics),
    ("vocab_ce_backward", vocabulary_gradient),
];

const ELEMENTS: [(&str, Element); 4] = [
    ("_float", Element::F32),
    ("_bfloat16", Element::Bf16),
    ("_half", Element::F16),
    ("_int32", Element::I32),
];

/// Returns the launch of an entry function with its integer arguments, or `None` for an unknown
/// function.
#[must_use]
pub fn launch(entry: &str, numbers: &[u64]) -> Option<Launch> {
    let (kernel, element) =
        ELEMENTS.iter().find_map(|(end, element)| Some((entry.strip_suffix(end)?, *element)))?;
    let (operator, tensors) = KERNELS.iter().find(|(name, _)| *name == kernel)?;
    Some(Launch { operator, operands: tensors(element, numbers)? })
}

/// `None` if the number of elements overflows, because an unrelated kernel may have one of these
/// names.
fn tensor(element: Element, dims: &[u64], access: Access) -> Option<LaunchOperand> {
    dims.iter().try_fold(1_u64, |all, size| all.checked_mul(*size))?;
    Some(LaunchOperand::dense(element, dims.iter().map(|size| *size as usize).collect::<Vec<_>>(), access))
}

fn cache_write(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[tokens, each, heads, dim, rows, ..] = numbers else { return None };
    let sequences = tokens.checked_div(each)?;
    let new = || tensor(element, &[tokens, heads, dim], Access::Read);
    let angles = || tensor(Element::F32, &[tokens, dim / 2], Access::Read);
    let cache = || tensor(element, &[sequences, rows, heads, dim], Access::Update);
    let start = tensor(Element::I64, &[sequences], Access::Read);
    [new(), new(), angles(), angles(), start, cache(), cache()].into_iter().collect()
}

fn grad_stats(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    // The scale may precede these numbers; a launch does not mark integers.
    let &[.., rewrites, elems] = numbers else { return None };
    Some(vec![tensor(element, &[elems], if rewrites == 0 { Access::Read } else { Access::Update })?])
}

fn ordered_sum(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[chunks, elems] = numbers else { return None };
    Some(vec![tensor(element, &[chunks, elems], Access::Read)?, tensor(element, &[elems], Access::Write)?])
}

/// Labels and records are too small to count.
fn vocabulary_statistics(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[rows, vocabulary, ..] = numbers else { return None };
    Some(vec![tensor(element, &[rows, vocabulary], Access::Read)?])
}

fn vocabulary_gradient(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[rows, vocabulary, ..] = numbers else { return None };
    Some(vec![tensor(element, &[rows, vocabulary], Access::Update)?])
}

/// Rows of a record of `kernels/sign_compress.cpp`. Their scales form a block of 32 bytes.
pub const SIGN_ROWS: usize = 8;

/// Elements per row of a record.
pub const SIGN_ROW: usize = 1024;

/// One bit per element and one scale per row.
const RECORD_BYTES: u64 = (SIGN_ROWS * (SIGN_ROW / 8 + size_of::<f32>())) as u64;

fn said(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[elems, records, .., parts] = numbers else { return None };
    let read = || tensor(element, &[elems], Access::Read);
    let whole = (parts > 0).then(read);
    let rest = [
        tensor(element, &[elems], Access::Update),
        tensor(Element::I8, &[records, RECORD_BYTES], Access::Write),
    ];
    [read()].into_iter().chain(whole).chain(rest).collect()
}

fn heard(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[elems, share, cards] = numbers else { return None };
    let records = tensor(Element::I8, &[cards, share, RECORD_BYTES], Access::Read);
    [records, tensor(element, &[elems], Access::Write)].into_iter().collect()
}

/// The counters of the cores are too small to count.
fn counted(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[elems, ..] = numbers else { return None };
    let read = || tensor(element, &[elems], Access::Read);
    [read(), read()].into_iter().collect()
}

fn chosen(element: Element, numbers: &[u64]) -> Option<Vec<LaunchOperand>> {
    let &[elems, capacity] = numbers else { return None };
    // Entries after the written ones are unchanged.
    let said = |element| tensor(element, &[capacity], Access::Update);
    let [part, kept] = [Access::Read, Access::Update].map(|access| tensor(element, &[elems], access));
    [part, kept, said(element), said(Element::I32)].into_iter().collect()
}

//! Lossless float compression by the exponent byte.
//!
//! Only the coding of the exponent byte differs from a device. It is stored uncompressed after a
//! header, in the space for incompressible data. It decodes only its own output.

use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{FLOATING, WHOLE32};
use crate::operator::{CallPlan, Refusal};
use crate::view::StridedView;

const HEADER: usize = 512;
const MAGIC: [u8; 8] = *b"unpacked";
/// Per vector core: minimum elements, and tail bytes.
const ELEMENTS_PER_CORE: usize = 32768;
const TAIL_PER_CORE: usize = 8448;
/// Vector cores of a 910B3.
const CORES: usize = 40;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnHansEncode",
        parameters: &[
            input(INPUT_TENSOR, FLOATING, 0, 8),
            in_place(PDF_REF, WHOLE32, 1, 2),
            output(MANTISSA_OUT, FLOATING, 0, 8),
            output(FIXED_OUT, FLOATING, 0, 8),
            output(VAR_OUT, FLOATING, 0, 8),
        ],
        limits: "a multiple of 64 elements, at least 32768; pdfRef has 256 elements; mantissaOut holds all bytes of \
                 each element but the last; fixedOut has at least 512 bytes; fixedOut and (if reshuff is false) varOut \
                 hold the exponents; one element type; the format is the emulator's own and does not compress",
        source: "ops-math math/hans_encode/docs/aclnnHansEncode.md",
        plan: encode,
    },
    Operator {
        name: "aclnnHansDecode",
        parameters: &[
            input(MANTISSA, FLOATING, 0, 8),
            input(FIXED, FLOATING, 0, 8),
            input(VAR, FLOATING, 0, 8),
            input(PDF, WHOLE32, 1, 2),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "the inputs are outputs of aclnnHansEncode for a tensor with as many elements as out; one element type",
        source: "ops-math math/hans_decode/docs/aclnnHansDecode.md",
        plan: decode,
    },
];

fn bytes(view: &StridedView) -> Vec<u8> {
    let view = view.collapsed();
    if view.dtype().size() == size_of::<u32>() {
        let mut words = vec![0u32; view.len()];
        view.read(0, &mut words);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    } else {
        let mut words = vec![0u16; view.len()];
        view.read(0, &mut words);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn put(view: &StridedView, bytes: &[u8]) {
    let view = view.collapsed();
    if view.dtype().size() == size_of::<u32>() {
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        view.write(0, &words);
    } else {
        let words: Vec<u16> = bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        view.write(0, &words);
    }
}

/// Returns the packed bytes that the first output can hold.
fn room(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    pdf: Name<CheckedTensor>,
    [mantissa, fixed, var]: [Name<CheckedTensor>; 3],
) -> Result<usize, Refusal> {
    let tensor = call.tensor(x)?;
    let (count, size) = (tensor.len(), tensor.dtype.size());
    if !count.is_multiple_of(64) || count < ELEMENTS_PER_CORE {
        let text = format!("expected a multiple of 64 elements, at least {ELEMENTS_PER_CORE}, found {count}");
        return Err(call.refuse(x, text));
    }
    for name in [mantissa, fixed, var] {
        call.expect_dtype(name, tensor.dtype, &format!("the type of {x}"))?;
    }
    if call.tensor(pdf)?.len() != 256 {
        return Err(call.refuse(pdf, format!("expected 256 elements, found {:?}", call.tensor(pdf)?.dims)));
    }
    let found = call.tensor(mantissa)?.len();
    if found * size != (size - 1) * count {
        let expected = (size - 1) * count / size;
        return Err(
            call.refuse(mantissa, format!("expected {expected} elements for {count} of {x}, found {found}"))
        );
    }
    let cores = (count / ELEMENTS_PER_CORE).min(CORES);
    let needed = count + count / 64 + TAIL_PER_CORE * cores + HEADER;
    let first = call.tensor(fixed)?.len() * size;
    let all = if call.flag(RESHUFF)? { first } else { first + call.tensor(var)?.len() * size };
    if first < HEADER || all < needed {
        let text =
            format!("expected at least {HEADER} bytes, and {needed} in total, found {first} and {all}");
        return Err(call.refuse(fixed, text));
    }
    Ok(first)
}

fn encode(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let first = room(call, INPUT_TENSOR, PDF_REF, [MANTISSA_OUT, FIXED_OUT, VAR_OUT])?;
    let (x, counts, counted) =
        (call.tensor(INPUT_TENSOR)?, call.tensor(PDF_REF)?.slot, call.flag(STATISTIC)?);
    let (x, size) = (x.slot, x.dtype.size());
    let slot = |name: Name<CheckedTensor>| call.tensor(name).map(|tensor| tensor.slot);
    let [mantissa, fixed, var] = [slot(MANTISSA_OUT)?, slot(FIXED_OUT)?, slot(VAR_OUT)?];
    let plan = CallPlan::new(move |views, _| {
        let all = bytes(views.of(x));
        let elements = all.chunks_exact(size);
        let mantissas: Vec<u8> = elements.clone().flat_map(|element| &element[..size - 1]).copied().collect();
        let exponents: Vec<u8> = elements.map(|element| element[size - 1]).collect();
        if counted {
            let mut numbers = [0i32; 256];
            exponents.iter().for_each(|&exponent| numbers[usize::from(exponent)] += 1);
            views.of(counts).collapsed().write(0, &numbers);
        }
        let mut packed = vec![0u8; HEADER];
        packed[..8].copy_from_slice(&MAGIC);
        packed[8..16].copy_from_slice(&(exponents.len() as u64).to_le_bytes());
        packed.extend_from_slice(&exponents);
        // Elements stay whole.
        let split = packed.len().min(first / 4 * 4);
        put(views.of(mantissa), &mantissas);
        put(views.of(fixed), &packed[..split]);
        put(views.of(var), &packed[split..]);
        Ok(())
    })?;
    Ok(if counted { plan } else { plan.leaving(vec![counts]) })
}

fn decode(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let first = room(call, OUT, PDF, [MANTISSA, FIXED, VAR])?;
    let out = call.tensor(OUT)?;
    let (out, size, count) = (out.slot, out.dtype.size(), out.len());
    let slot = |name: Name<CheckedTensor>| call.tensor(name).map(|tensor| tensor.slot);
    let [mantissa, fixed, var] = [slot(MANTISSA)?, slot(FIXED)?, slot(VAR)?];
    CallPlan::new(move |views, _| {
        let mut packed = bytes(views.of(fixed));
        packed.truncate(first / 4 * 4);
        packed.extend(bytes(views.of(var)));
        let [magic, length] = [&packed[..8], &packed[8..16]];
        if magic != MAGIC || length != (count as u64).to_le_bytes() {
            return Err(format!(
                "fixed: expected an output of this emulator's aclnnHansEncode for {count} elements"
            ));
        }
        let exponents = &packed[HEADER..HEADER + count];
        let mantissas = bytes(views.of(mantissa));
        let elements = mantissas.chunks_exact(size - 1).zip(exponents);
        put(
            views.of(out),
            &elements.flat_map(|(low, high)| low.iter().chain([high])).copied().collect::<Vec<u8>>(),
        );
        Ok(())
    })
}

//! Tests of weights with another order of dims in the checkpoint.

use std::ops::Range;

use half::bf16;
use proptest::prelude::{Just, Strategy, prop};
use proptest::{prop_assert, proptest};
use rustix::param::page_size;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::super::Checkpoint;
use super::super::slice::READ_BYTES;
use super::super::weight::{Scratch, Weight};
use super::BOX_BYTES;
use crate::base::{DType, Shape};
use crate::program::{Form, Source, StoredDims};

/// Shards of the ranks of a process, each with one range per dim.
type Parts = Vec<Vec<Range<usize>>>;

struct Tensor {
    name: &'static str,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Returns a checkpoint of these tensors. Its file stays open after it is deleted.
fn written(tensors: &[Tensor]) -> Checkpoint {
    let file = tempfile::NamedTempFile::new().unwrap();
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap();
        (tensor.name, view)
    });
    std::fs::write(file.path(), safetensors::serialize(views, None).unwrap()).unwrap();
    Checkpoint::open_file(file.path()).unwrap()
}

fn source(form: &str) -> Source {
    Source { tensor: "w".to_owned(), element_offset: 0, form: Form::parse(form).unwrap() }
}

fn all(shape: &Shape) -> Vec<Range<usize>> {
    shape.iter().map(|size| 0..*size).collect()
}

fn is_inside(shape: &Shape, part: &[Range<usize>], element: usize) -> bool {
    let strides = shape.strides();
    (0..shape.rank()).all(|dim| part[dim].contains(&(element / strides[dim] % shape[dim])))
}

/// Returns the numbers that ranks with these shards receive.
fn given(
    checkpoint: &Checkpoint,
    form: &str,
    shape: &Shape,
    to: DType,
    parts: &[Vec<Range<usize>>],
) -> Vec<Vec<f32>> {
    let ranges = parts.iter().map(Vec::as_slice).collect();
    let weight = Weight::new(checkpoint, &source(form), shape, to, ranges).unwrap();
    let size = to.size_bytes();
    let elems = |part: &Vec<Range<usize>>| part.iter().map(Range::len).product::<usize>();
    let mut found: Vec<Vec<u8>> = parts.iter().map(|part| vec![0xff; elems(part) * size]).collect();
    let mut counts = vec![0; parts.len()];
    let mut scratch = Scratch::default();
    for piece in (0..weight.pieces()).rev() {
        weight
            .give(piece, &mut scratch, &mut |at, offset, len_bytes, write| {
                counts[at] += len_bytes;
                write(&mut found[at][offset..offset + len_bytes])
            })
            .unwrap();
    }
    assert_eq!(counts, found.iter().map(Vec::len).collect::<Vec<_>>(), "each byte once");
    let numbers = |bytes: &Vec<u8>| match to {
        DType::F32 => bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect(),
        _ => bytes.as_chunks::<2>().0.iter().map(|x| bf16::from_le_bytes(*x).to_f32()).collect(),
    };
    found.iter().map(numbers).collect()
}

/// Returns the numbers of a shard.
fn inside(shape: &Shape, part: &[Range<usize>], numbers: &[f32]) -> Vec<f32> {
    let elements = (0..numbers.len()).filter(|element| is_inside(shape, part, *element));
    elements.map(|element| numbers[element]).collect()
}

/// Returns the stored tensor of a weight. Numbers outside the shards are NaN.
fn stored(order: &str, dtype: DType, shape: &Shape, numbers: &[f32], parts: &[Vec<Range<usize>>]) -> Tensor {
    let dims = StoredDims::parse(order).unwrap();
    let needed = |at: usize| parts.iter().any(|part| is_inside(shape, part, at));
    let number = |(at, x): (usize, &f32)| {
        let x = if needed(at) { *x } else { f32::NAN };
        if dtype == DType::F32 { x.to_le_bytes().to_vec() } else { bf16::from_f32(x).to_le_bytes().to_vec() }
    };
    let bytes: Vec<u8> = numbers.iter().enumerate().flat_map(number).collect();
    let (bytes, stored) = (dims.stored(shape, dtype.size_bytes(), &bytes), dims.shape(shape).unwrap());
    let dtype = if dtype == DType::F32 { Dtype::F32 } else { Dtype::BF16 };
    Tensor { name: "w", dtype, shape: stored.to_vec(), bytes }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7 + at / 251) % 255) as f32 - 127.0).collect()
}

#[test]
fn gate_and_up_are_separated_and_transposed() {
    // Two experts with three inputs and two outputs: gate of both outputs, then up.
    let shape = Shape::from([2, 2, 2, 3]);
    let element = |e: usize, h: usize, column: usize| (100 * e + 10 * h + column) as f32;
    let mut bytes = Vec::new();
    for (e, h, column) in (0..2).flat_map(|e| (0..3).flat_map(move |h| (0..4).map(move |c| (e, h, c)))) {
        bytes.extend(element(e, h, column).to_le_bytes());
    }
    let checkpoint = written(&[Tensor { name: "w", dtype: Dtype::F32, shape: vec![2, 3, 4], bytes }]);
    let found =
        given(&checkpoint, "dims/0,3,21", &shape, DType::F32, &[all(&shape), vec![1..2, 1..2, 0..1, 1..3]]);
    let expected = [
        [0., 10., 20.],
        [2., 12., 22.],
        [1., 11., 21.],
        [3., 13., 23.],
        [100., 110., 120.],
        [102., 112., 122.],
        [101., 111., 121.],
        [103., 113., 123.],
    ];
    assert_eq!(found, [expected.concat(), vec![111., 121.]]);
}

/// Experts with a number of inner columns that makes half of a stored row a page in bf16.
fn large() -> usize {
    page_size() / 2
}

#[test]
fn a_rank_reads_only_its_experts_and_its_columns_or_rows() {
    let inner = large();
    let gate_up = Shape::from([3, 2, inner, 5]);
    let down = Shape::from([3, 5, inner]);
    let half = 0..inner / 2;
    let cases: [(&str, &Shape, Parts); 6] = [
        ("0,3,21", &gate_up, vec![vec![1..2, 0..2, 0..inner, 0..5]]),
        ("0,3,21", &gate_up, vec![vec![0..3, 0..2, half.clone(), 0..5]]),
        (
            "0,3,21",
            &gate_up,
            vec![vec![0..1, 0..2, half.clone(), 0..5], vec![2..3, 0..2, inner / 2..inner, 0..5]],
        ),
        ("0,21,3", &gate_up, vec![vec![1..3, 0..2, half.clone(), 0..5]]),
        ("0,2,1", &down, vec![vec![2..3, 0..5, 0..inner]]),
        ("0,2,1", &down, vec![vec![0..1, 0..5, half], vec![1..2, 0..5, inner / 2..inner]]),
    ];
    for (order, shape, parts) in cases {
        let numbers = numbers(shape.elems());
        for dtype in [DType::BF16, DType::F32] {
            let checkpoint = written(&[stored(order, dtype, shape, &numbers, &parts)]);
            // Every read of a NaN is an error.
            for to in [DType::BF16, DType::F32] {
                let before = READ_BYTES.get();
                let found = given(&checkpoint, &format!("dims/{order}"), shape, to, &parts);
                for (part, found) in parts.iter().zip(found) {
                    assert!(found == inside(shape, part, &numbers), "{order} {part:?} from {dtype} to {to}");
                }
                // Gate and up are read together, once for each.
                let needed =
                    (0..shape.elems()).filter(|at| parts.iter().any(|part| is_inside(shape, part, *at)));
                let read = needed.count() * dtype.size_bytes();
                assert!(READ_BYTES.get() - before <= 2 * read, "{order} {parts:?}");
            }
        }
    }
}

#[test]
fn a_weight_of_many_pieces_is_read_in_boxes() {
    // Rows of f32 that do not fill the pieces evenly.
    let (rows, columns) = (1100, BOX_BYTES / 4 / 1000);
    let shape = Shape::from([2, rows, columns]);
    let numbers = numbers(shape.elems());
    for order in ["0,2,1", "21,0"] {
        let parts = vec![all(&shape), vec![1..2, 7..1050, 3..columns - 1], vec![0..2, 1099..1100, 0..1]];
        let checkpoint = written(&[stored(order, DType::BF16, &shape, &numbers, &parts)]);
        let ranges: Vec<&[Range<usize>]> = parts.iter().map(Vec::as_slice).collect();
        let weight =
            Weight::new(&checkpoint, &source(&format!("dims/{order}")), &shape, DType::F32, ranges).unwrap();
        assert_eq!(weight.pieces(), 4, "{order}");
        let found = given(&checkpoint, &format!("dims/{order}"), &shape, DType::F32, &parts);
        for (part, found) in parts.iter().zip(found) {
            assert!(found == inside(&shape, part, &numbers), "{order} {part:?}");
        }
    }
}

/// Returns random blocks and scales, and the numbers that they mean.
fn packed(rows: usize, blocks: usize) -> (Vec<u8>, Vec<u8>, Vec<f32>) {
    const VALUES: [f32; 16] =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    let bytes: Vec<u8> = (0..rows * blocks * 16).map(|at| ((at * 37 + at / 7) % 256) as u8).collect();
    let scales: Vec<u8> = (0..rows * blocks).map(|at| 120 + (at * 5 % 13) as u8).collect();
    let number = |at: usize| {
        let byte = bytes[at / 2];
        let code = if at.is_multiple_of(2) { byte % 16 } else { byte / 16 };
        VALUES[usize::from(code)] * 2f32.powi(i32::from(scales[at / 32]) - 127)
    };
    let numbers = (0..rows * blocks * 32).map(number).collect();
    (bytes, scales, numbers)
}

/// Returns the elements of a weight from the elements of its tensor.
fn from_stored(dims: StoredDims, shape: &Shape, numbers: &[f32]) -> Vec<f32> {
    let places: Vec<u8> = (0..shape.elems()).flat_map(|at| (at as u32).to_le_bytes()).collect();
    let mut weight = vec![0.0; numbers.len()];
    for (place, number) in dims.stored(shape, 4, &places).as_chunks::<4>().0.iter().zip(numbers) {
        weight[u32::from_le_bytes(*place) as usize] = *number;
    }
    weight
}

#[test]
fn packed_numbers_are_dequantised_for_each_shard() {
    // Half of a stored row of blocks is more than a page.
    let rows = page_size() / 16;
    for (order, shape) in [("0,21,3", vec![3, 2, rows, 64]), ("0,1,2", vec![3, rows, 64])] {
        let shape = Shape::from(shape);
        let dims = StoredDims::parse(order).unwrap();
        let stored = dims.shape(&shape).unwrap();
        let (bytes, scales, numbers) = packed(stored[0] * stored[1], 2);
        let numbers = from_stored(dims, &shape, &numbers);
        let (rank, half) = (shape.rank(), rows / 2);
        let cut = |experts: Range<usize>, rows: Range<usize>, columns: Range<usize>| {
            let mut part = all(&shape);
            (part[0], part[rank - 2], part[rank - 1]) = (experts, rows, columns);
            part
        };
        for parts in [
            vec![all(&shape)],
            vec![cut(1..2, 0..rows, 0..64)],
            vec![cut(0..3, 0..half, 0..64), cut(2..3, half..rows, 0..64)],
            vec![cut(0..2, 3..9, 5..40), cut(0..2, 3..9, 40..64)],
            vec![cut(2..3, rows - 1..rows, 63..64)],
        ] {
            // Scales of rows that no shard has are NaN, and an error once they are read.
            let is_needed = |at: &usize| parts.iter().any(|part| is_inside(&shape, part, *at));
            let marks: Vec<u8> = (0..shape.elems()).map(|at| u8::from(is_needed(&at))).collect();
            let marks = dims.stored(&shape, 1, &marks);
            let row_is_needed = |row: usize| marks[row * 64..(row + 1) * 64].contains(&1);
            let scales: Vec<u8> = scales
                .iter()
                .enumerate()
                .map(|(at, scale)| if row_is_needed(at / 2) { *scale } else { 255 })
                .collect();
            let checkpoint = written(&[
                Tensor {
                    name: "w_blocks",
                    dtype: Dtype::U8,
                    shape: vec![stored[0], stored[1], 2, 16],
                    bytes: bytes.clone(),
                },
                Tensor {
                    name: "w_scales",
                    dtype: Dtype::U8,
                    shape: vec![stored[0], stored[1], 2],
                    bytes: scales,
                },
            ]);
            for to in [DType::BF16, DType::F32] {
                let found = given(&checkpoint, &format!("mxfp4/{order}"), &shape, to, &parts);
                for (part, found) in parts.iter().zip(found) {
                    assert!(found == inside(&shape, part, &numbers), "{order} {part:?} to {to}");
                }
            }
        }
    }
}

#[test]
fn packed_tensors_that_do_not_fit_are_refused() {
    let shape = Shape::from([2, 64]);
    let refused = |blocks: Tensor, scales: Tensor, to: DType| {
        let checkpoint = written(&[blocks, scales]);
        let mut out = vec![0; 128 * to.size_bytes()];
        let read = checkpoint.read_param(&source("mxfp4/0,1"), &shape, &all(&shape), to, &mut out);
        read.map_err(|error| error.to_string())
    };
    let blocks =
        || Tensor { name: "w_blocks", dtype: Dtype::U8, shape: vec![2, 2, 16], bytes: vec![0x77; 64] };
    let scales = |scale: u8| Tensor {
        name: "w_scales",
        dtype: Dtype::U8,
        shape: vec![2, 2],
        bytes: vec![127, scale, 127, 127],
    };
    refused(blocks(), scales(127), DType::F16).unwrap();
    let floats = Tensor { dtype: Dtype::F32, shape: vec![2, 2], bytes: vec![0; 16], ..scales(0) };
    for (result, expected) in [
        (refused(blocks(), scales(255), DType::F32), "w_scales: element 1 is NaN"),
        (refused(blocks(), scales(254), DType::F32), "w_scales: element 1 is inf"),
        (refused(blocks(), scales(150), DType::F16), "w_blocks: the number 50331650 does not fit f16"),
        (
            refused(blocks(), scales(127), DType::I8),
            "w_blocks: expected a tensor that can be read as i8, found u8",
        ),
        (
            refused(blocks(), floats, DType::F32),
            "w_scales: expected a tensor that can be read as f32, found f32",
        ),
        (
            refused(blocks(), Tensor { shape: vec![3], bytes: vec![127; 3], ..scales(0) }, DType::F32),
            "w_scales: not the tensors of a param: expected 4 bytes for 128 numbers, found 3",
        ),
        (refused(Tensor { name: "w", ..blocks() }, scales(127), DType::F32), "w_blocks: no such tensor"),
    ] {
        let message = result.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

/// Shapes of up to four dims, an order of them, and a shard.
fn orders() -> impl Strategy<Value = (Vec<usize>, String, Vec<Range<usize>>)> {
    prop::collection::vec(1..6usize, 1..5).prop_flat_map(|sizes| {
        let order = Just((0..sizes.len()).collect::<Vec<_>>()).prop_shuffle();
        let fused = prop::collection::vec(prop::bool::ANY, sizes.len());
        let text = (order, fused).prop_map(|(order, fused)| {
            let dim =
                |(at, dim): (usize, &usize)| format!("{}{dim}", if at > 0 && !fused[at] { "," } else { "" });
            order.iter().enumerate().map(dim).collect::<String>()
        });
        let part: Vec<_> = sizes
            .iter()
            .map(|&size| (0..=size, 0..=size).prop_map(|(a, b)| a.min(b)..a.max(b)).boxed())
            .collect();
        (Just(sizes), text, part)
    })
}

proptest! {
    #[test]
    fn any_order_and_any_shard_has_the_numbers_inside((sizes, order, part) in orders()) {
        let shape = Shape::new(sizes);
        let numbers = numbers(shape.elems());
        let parts = [part, all(&shape)];
        let checkpoint = written(&[stored(&order, DType::F32, &shape, &numbers, &parts)]);
        let found = given(&checkpoint, &format!("dims/{order}"), &shape, DType::BF16, &parts);
        for (part, found) in parts.iter().zip(found) {
            prop_assert!(found == inside(&shape, part, &numbers), "{} {:?}", order, part);
        }
    }
}

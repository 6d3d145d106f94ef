//! Tests of weights that are read in pieces.

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

mod packed;

use super::slice::READ_BYTES;
use super::*;

/// Rows of 2 · 3 numbers. The last row is zero. The first row starts at element 1000 of the
/// tensor.
const ROWS: usize = 5;
const ROW: [usize; 2] = [2, 3];
const OFFSET: usize = 1000;

fn numbers() -> Vec<f32> {
    let row =
        |r: usize| (0..6).map(move |i| if r == 4 { 0.0 } else { (i as f32 - 3.5) * (r + 1) as f32 / 8.0 });
    (0..ROWS).flat_map(row).collect()
}

fn checkpoint(numbers: &[f32]) -> Checkpoint {
    let all = std::iter::repeat_n(&9.0, OFFSET).chain(numbers);
    let bytes: Vec<u8> = all.flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
    written([("w".to_owned(), TensorView::new(Dtype::BF16, vec![bytes.len() / 2], &bytes).unwrap())])
}

/// Returns a checkpoint of these tensors. Its file stays open after it is deleted.
fn written<'a>(tensors: impl IntoIterator<Item = (String, TensorView<'a>)>) -> Checkpoint {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), safetensors::serialize(tensors, None).unwrap()).unwrap();
    Checkpoint::open_file(file.path()).unwrap()
}

/// Returns the bytes that ranks with these shards receive. The pieces are read in reverse
/// order.
fn given(
    checkpoint: &Checkpoint,
    source: &Source,
    dtype: DType,
    shape: &[usize],
    parts: &[Vec<Range<usize>>],
) -> Result<Vec<Vec<u8>>, String> {
    let bytes =
        |ranges: &Vec<Range<usize>>| ranges.iter().map(Range::len).product::<usize>() * dtype.size_bytes();
    let mut found: Vec<Vec<u8>> = parts.iter().map(|ranges| vec![0; bytes(ranges)]).collect();
    let mut counts = vec![0; parts.len()];
    let (mut scratch, shape) = (Scratch::default(), Shape::from(shape));
    let ranges = parts.iter().map(Vec::as_slice).collect();
    let weight = Weight::new(checkpoint, source, &shape, dtype, ranges).map_err(|error| error.to_string())?;
    for piece in (0..weight.pieces()).rev() {
        let mut give = |at: usize, offset: usize, len_bytes: usize, write: &mut Write<'_>| {
            counts[at] += len_bytes;
            write(&mut found[at][offset..offset + len_bytes])
        };
        weight.give(piece, &mut scratch, &mut give).map_err(|error| error.to_string())?;
    }
    assert_eq!(counts, found.iter().map(Vec::len).collect::<Vec<_>>(), "each byte once");
    Ok(found)
}

fn source(tensor: &str, element_offset: usize, form: Form) -> Source {
    Source { tensor: tensor.to_owned(), element_offset, form }
}

#[test]
fn each_rank_gets_its_slice_of_every_piece() {
    const SHAPE: [usize; 3] = [37, 9, 4000];
    let elems: usize = SHAPE.iter().product();
    let bytes: Vec<u8> = (0..elems).flat_map(|at| (at as u32).to_le_bytes()).collect();
    let checkpoint = written([("w".to_owned(), TensorView::new(Dtype::F32, vec![elems], &bytes).unwrap())]);
    let alone = |dim: usize, range: Range<usize>| -> Vec<Range<usize>> {
        (0..3).map(|other| if other == dim { range.clone() } else { 0..SHAPE[other] }).collect()
    };
    let cut = |dim: usize, ranges: [Range<usize>; 3]| ranges.map(|range| alone(dim, range)).to_vec();
    let cuts = [
        cut(0, [0..13, 13..30, 30..37]),
        cut(0, [0..37, 20..20, 0..37]),
        cut(1, [0..4, 4..8, 8..9]),
        cut(2, [0..1333, 1333..2666, 2666..4000]),
        vec![alone(2, 30..3900)],
        vec![alone(2, 100..300)],
        vec![alone(1, 3..4)],
        vec![vec![5..6, 2..7, 10..3000], vec![36..37, 8..9, 3999..4000]],
    ];
    for parts in cuts {
        for to in [DType::F32, DType::BF16] {
            let found = given(&checkpoint, &source("w", 0, Form::Numbers), to, &SHAPE, &parts).unwrap();
            for (part, found) in parts.iter().zip(&found) {
                let mut expected = vec![0; found.len()];
                checkpoint.read_slice("w", 0, &SHAPE.into(), part, to, &mut expected).unwrap();
                assert!(*found == expected, "{part:?} as {to}");
            }
        }
    }
}

#[test]
fn each_part_of_a_row_is_scaled_by_the_whole_row() {
    let row_elems = ROW[0] * ROW[1];
    let numbers = numbers();
    let checkpoint = checkpoint(&numbers);
    let steps: Vec<f32> = numbers.chunks(row_elems).map(|row| row[0].abs() / 127.0).collect();
    for rows in [0..5, 1..3, 4..5, 2..2] {
        let scales = source("w", OFFSET, Form::RowScales { row_elems });
        let found = given(&checkpoint, &scales, DType::F32, &[ROWS], &[vec![rows.clone()]]).unwrap();
        let expected: Vec<u8> = steps[rows.clone()].iter().flat_map(|step| step.to_le_bytes()).collect();
        assert_eq!(found, [expected], "{rows:?}");
        for (first, second) in [(0..2, 0..3), (1..2, 0..3), (0..2, 1..2), (0..1, 2..3)] {
            let ranges = [rows.clone(), first.clone(), second.clone()];
            let bytes = source("w", OFFSET, Form::RowBytes { row_elems });
            let found =
                given(&checkpoint, &bytes, DType::I8, &[ROWS, ROW[0], ROW[1]], &[ranges.to_vec()]).unwrap();
            let mut expected = Vec::new();
            for (row, i, j) in rows.clone().flat_map(|row| {
                let second = second.clone();
                first.clone().flat_map(move |i| second.clone().map(move |j| (row, i, j)))
            }) {
                // The reference divides in f64. No quotient in this test is near a tie.
                let x = f64::from(numbers[row * row_elems + i * ROW[1] + j]);
                let byte = if row == 4 { 0.0 } else { (x / f64::from(steps[row])).round() };
                expected.push(byte as i8 as u8);
            }
            assert_eq!(found, [expected], "{ranges:?}");
        }
    }
}

#[test]
fn a_number_that_is_not_finite_is_refused_by_name() {
    let mut numbers = numbers();
    numbers[8] = f32::INFINITY;
    let bytes = source("w", OFFSET, Form::RowBytes { row_elems: 6 });
    let checkpoint = checkpoint(&numbers);
    let of = |rows: Range<usize>| given(&checkpoint, &bytes, DType::I8, &[ROWS, 6], &[vec![rows, 0..6]]);
    let message = of(0..5).unwrap_err();
    assert!(
        message.starts_with("loading weights: w: element 1008 is inf: expected finite numbers"),
        "{message}"
    );
    assert!(of(2..5).is_ok());
}

/// Sizes of a stack of experts: experts, gate and up, rows, columns. Four rows in bf16 are a page.
fn experts() -> [usize; 4] {
    [6, 2, 8, page_size() / 8]
}

/// Returns the numbers of the experts. They are exact in bf16.
fn expert_numbers() -> Vec<f32> {
    (0..experts().iter().product()).map(|at: usize| ((at * 7 + at / 251) % 255) as f32 - 127.0).collect()
}

/// Returns whether an element of a tensor is inside any of the shards.
fn is_needed(shape: &[usize], parts: &[Vec<Range<usize>>], element: usize) -> bool {
    let strides = Shape::from(shape).strides();
    let is_inside = |part: &Vec<Range<usize>>| {
        (0..shape.len()).all(|dim| part[dim].contains(&(element / strides[dim] % shape[dim])))
    };
    parts.iter().any(is_inside)
}

/// Returns the experts as one tensor each for gate and up. Elements outside the shards are NaN.
fn checkpoint_of_experts(dtype: DType, numbers: &[f32], parts: &[Vec<Range<usize>>]) -> Checkpoint {
    let [_, _, rows, columns] = experts();
    let element = |(at, x): (usize, &f32)| {
        let x = if is_needed(&experts(), parts, at) { *x } else { f32::NAN };
        if dtype == DType::F32 { x.to_le_bytes().to_vec() } else { bf16::from_f32(x).to_le_bytes().to_vec() }
    };
    let bytes: Vec<u8> = numbers.iter().enumerate().flat_map(element).collect();
    let stored = if dtype == DType::F32 { Dtype::F32 } else { Dtype::BF16 };
    let tensors = bytes.chunks(rows * columns * dtype.size_bytes()).enumerate().map(|(at, bytes)| {
        let name = format!("l.3.experts.{}.{}.weight", at / 2, ["gate", "up"][at % 2]);
        (name, TensorView::new(stored, vec![rows, columns], bytes).unwrap())
    });
    written(tensors)
}

const STACK: &str = "l.3.experts.{0..6}.{gate,up}.weight";

/// Shards of the ranks of a process: experts, rows of each expert, or both.
fn shards_of_experts() -> Vec<Vec<Vec<Range<usize>>>> {
    let [experts, both, rows, columns] = experts();
    let of = |experts: Range<usize>, rows: Range<usize>| vec![experts, 0..both, rows, 0..columns];
    vec![
        vec![of(0..experts, 0..rows)],
        vec![of(4..6, 0..rows)],
        vec![of(0..1, 0..rows), of(3..5, 0..rows)],
        vec![of(0..experts, 0..4)],
        vec![of(0..experts, 0..2), of(0..experts, 6..8)],
        vec![of(2..3, 0..4), of(2..3, 4..8), of(5..6, 0..4)],
        vec![of(1..4, 4..8), of(4..4, 0..rows)],
        vec![vec![2..5, 1..2, 0..rows, 0..columns]],
    ]
}

#[test]
fn a_rank_reads_only_the_experts_and_rows_that_it_holds() {
    let (shape, numbers) = (experts(), expert_numbers());
    for parts in shards_of_experts() {
        for stored in [DType::F32, DType::BF16] {
            // Every read of a NaN is an error.
            let checkpoint = checkpoint_of_experts(stored, &numbers, &parts);
            let needed = (0..numbers.len()).filter(|at| is_needed(&shape, &parts, *at)).count();
            for to in [DType::F32, DType::BF16] {
                let before = READ_BYTES.get();
                let found = given(&checkpoint, &source(STACK, 0, Form::Numbers), to, &shape, &parts).unwrap();
                assert_eq!(READ_BYTES.get() - before, needed * stored.size_bytes(), "{parts:?}");
                for (part, found) in parts.iter().zip(&found) {
                    let part = std::slice::from_ref(part);
                    let expected = numbers.iter().enumerate().filter(|(at, _)| is_needed(&shape, part, *at));
                    let expected: Vec<u8> = expected
                        .flat_map(|(_, x)| match to {
                            DType::F32 => x.to_le_bytes().to_vec(),
                            _ => bf16::from_f32(*x).to_le_bytes().to_vec(),
                        })
                        .collect();
                    assert!(*found == expected, "{part:?} from {stored} to {to}");
                }
            }
        }
    }
}

#[test]
fn a_number_outside_of_the_shards_is_an_error_once_it_is_read() {
    let [experts, both, rows, columns] = experts();
    let parts = [vec![0..experts, 0..both, 0..rows - 1, 0..columns]];
    let checkpoint = checkpoint_of_experts(DType::F32, &expert_numbers(), &parts);
    let read = |rows| {
        let part = vec![2..3, 1..2, rows, 0..columns];
        given(&checkpoint, &source(STACK, 0, Form::Numbers), DType::F32, &self::experts(), &[part])
    };
    read(0..rows - 1).unwrap();
    let element = (rows - 1) * columns;
    let expected = format!("loading weights: l.3.experts.2.up.weight: element {element} is NaN");
    let message = read(0..rows).unwrap_err();
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn rows_of_experts_are_quantised_alike_on_all_ranks() {
    let (shape, numbers) = (experts(), expert_numbers());
    let row_elems = shape[3];
    for parts in shards_of_experts() {
        let checkpoint = checkpoint_of_experts(DType::BF16, &numbers, &parts);
        let scales: Vec<f32> = numbers.chunks(row_elems).map(quantise::scale).collect();
        let rows: Vec<Vec<Range<usize>>> = parts.iter().map(|part| part[..3].to_vec()).collect();
        let of_scales = source(STACK, 0, Form::RowScales { row_elems });
        let needed = (0..scales.len()).filter(|row| is_needed(&shape[..3], &rows, *row)).count();
        let before = READ_BYTES.get();
        let found = given(&checkpoint, &of_scales, DType::F32, &shape[..3], &rows).unwrap();
        assert_eq!(READ_BYTES.get() - before, needed * row_elems * 2, "scales of {rows:?}");
        for (part, found) in rows.iter().zip(&found) {
            let inside = |at: &usize| is_needed(&shape[..3], std::slice::from_ref(part), *at);
            let expected: Vec<u8> =
                (0..scales.len()).filter(inside).flat_map(|row| scales[row].to_le_bytes()).collect();
            assert!(*found == expected, "scales of {part:?}");
        }
        // Each part has half of the columns. Whole rows are read for it.
        let halves: Vec<Vec<Range<usize>>> = parts
            .iter()
            .map(|part| [&part[..3], std::slice::from_ref(&(row_elems / 2..row_elems))].concat())
            .collect();
        let of_bytes = source(STACK, 0, Form::RowBytes { row_elems });
        let before = READ_BYTES.get();
        let found = given(&checkpoint, &of_bytes, DType::I8, &shape, &halves).unwrap();
        assert_eq!(READ_BYTES.get() - before, needed * row_elems * 2, "bytes of {halves:?}");
        for (part, found) in halves.iter().zip(&found) {
            let inside = |at: &usize| is_needed(&shape, std::slice::from_ref(part), *at);
            let integer = |at: usize| (numbers[at] / scales[at / row_elems]).round_ties_even() as i8 as u8;
            let expected: Vec<u8> = (0..numbers.len()).filter(inside).map(integer).collect();
            assert!(*found == expected, "bytes of {part:?}");
        }
    }
}

#[test]
fn a_part_of_each_tensor_can_be_one_param() {
    // Two tensors, each with two rows of gate and two rows of up.
    let tensor =
        |first: u8| (first..first + 12).flat_map(|x| f32::from(x).to_le_bytes()).collect::<Vec<u8>>();
    let bytes = [tensor(0), tensor(100)];
    let views = bytes
        .iter()
        .enumerate()
        .map(|(at, bytes)| (format!("e.{at}.w13"), TensorView::new(Dtype::F32, vec![4, 3], bytes).unwrap()));
    let checkpoint = written(views);
    let shape = Shape::from([2, 2, 3]);
    let read = |offset, ranges: &[Range<usize>]| {
        let mut out = vec![0; ranges.iter().map(Range::len).product::<usize>() * 4];
        let source = source("e.{0..2}.w13", offset, Form::Numbers);
        checkpoint.read_param(&source, &shape, ranges, DType::F32, &mut out).map_err(|e| e.to_string())?;
        Ok::<_, String>(out.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect::<Vec<_>>())
    };
    assert_eq!(read(0, &[0..2, 1..2, 0..3]).unwrap(), [3., 4., 5., 103., 104., 105.]);
    assert_eq!(read(6, &[0..2, 0..1, 1..3]).unwrap(), [7., 8., 107., 108.]);
    let message = read(7, &[0..2, 0..2, 0..3]).unwrap_err();
    assert!(message.contains("e.0.w13: a view of shape [2,3] from element 7 on"), "{message}");
    let message = read(0, &[0..2, 0..2, 0..4]).unwrap_err();
    assert!(message.contains("e.{0..2}.w13: ranges [0..2, 0..2, 0..4] of a view"), "{message}");
}

#[test]
fn stacks_that_do_not_fit_are_refused() {
    let all = experts().map(|size| 0..size).to_vec();
    let checkpoint = checkpoint_of_experts(DType::F32, &expert_numbers(), std::slice::from_ref(&all));
    let refused = |tensor: &str, shape: &[usize], form| {
        let dtype = if form == Form::Numbers { DType::F32 } else { DType::I8 };
        let all: Vec<Range<usize>> = shape.iter().map(|size| 0..*size).collect();
        given(&checkpoint, &source(tensor, 0, form), dtype, shape, &[all]).unwrap_err()
    };
    let columns = experts()[3];
    for (message, expected) in [
        (
            refused("l.3.experts.{0..7}.up.weight", &[7, 8, columns], Form::Numbers),
            "l.3.experts.6.up.weight: no such tensor",
        ),
        (refused("l.3.experts.{0..6}.up.weight", &[5, 8, columns], Form::Numbers), "do not count 6 tensors"),
        (refused("l.3.experts.{0..6.up.weight", &[6, 8, columns], Form::Numbers), "without its partner"),
        (
            refused("l.3.experts.{0..6}.up.weight", &[6, 9, columns], Form::Numbers),
            "l.3.experts.0.up.weight: a view",
        ),
        (
            refused("l.3.experts.{0..6}.up.weight", &[6, 8, columns], Form::RowBytes { row_elems: 7 }),
            "has no whole rows of 7 elements",
        ),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn an_adapter_belongs_to_one_tensor_of_a_stack() {
    let folder = tempfile::tempdir().unwrap();
    let matrix = |name: &str, shape: [usize; 2], numbers: &[f32]| {
        (name.to_owned(), shape.to_vec(), numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
    };
    let write = |file: &str, tensors: &[(String, Vec<usize>, Vec<u8>)]| {
        let views = tensors.iter().map(|(name, shape, bytes)| {
            (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        });
        std::fs::write(folder.path().join(file), safetensors::serialize(views, None).unwrap()).unwrap();
    };
    let experts = [0, 1, 2].map(|at| matrix(&format!("experts.{at}.up.weight"), [2, 3], &[at as f32; 6]));
    write("model.safetensors", &experts);
    let factor = |letter: &str, shape, numbers: &[f32]| {
        matrix(&format!("base_model.model.experts.1.up.lora_{letter}.weight"), shape, numbers)
    };
    write(
        "adapter_model.safetensors",
        &[factor("A", [1, 3], &[1.0, 2.0, 3.0]), factor("B", [2, 1], &[10.0, 20.0])],
    );
    let config = r#"{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["up"]}"#;
    std::fs::write(folder.path().join("adapter_config.json"), config).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap().with_adapter(folder.path()).unwrap();
    let stack = source("experts.{0..3}.up.weight", 0, Form::Numbers);
    let parts = [vec![0..2, 0..2, 0..3], vec![1..3, 1..2, 1..3]];
    let found = given(&checkpoint, &stack, DType::F32, &[3, 2, 3], &parts).unwrap();
    let expected: [&[f32]; 2] =
        [&[0., 0., 0., 0., 0., 0., 11., 21., 31., 21., 41., 61.], &[41., 61., 2., 2.]];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(*found, expected.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    }
}

#[test]
fn blocks_of_rows_are_read_without_the_rows_between() {
    // Three heads with two key rows and one value row each, of five numbers.
    let bytes: Vec<u8> = (0..45_u32).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![9, 5], &bytes).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(
        folder.path().join("model.safetensors"),
        safetensors::serialize([("w", view)], None).unwrap(),
    )
    .unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let read = |offset: usize, rows: usize, ranges: &[Range<usize>]| {
        let form = Form::Blocks { block_elems: rows * 5, stride_elems: 15 };
        let source = Source { tensor: "w".to_owned(), element_offset: offset, form };
        let elems: usize = ranges.iter().map(Range::len).product();
        let mut out = vec![0; elems * 4];
        READ_BYTES.set(0);
        checkpoint.read_param(&source, &[3, rows, 5].into(), ranges, DType::F32, &mut out).unwrap();
        let numbers: Vec<f32> = out.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        (numbers, READ_BYTES.get())
    };
    let values = |heads: Range<usize>| -> Vec<f32> {
        heads.flat_map(|head| (0..5).map(move |at| (head * 15 + 10 + at) as f32)).collect()
    };
    assert_eq!(read(10, 1, &[0..3, 0..1, 0..5]), (values(0..3), 60));
    assert_eq!(read(10, 1, &[1..2, 0..1, 0..5]), (values(1..2), 20));
    let (keys, bytes) = read(0, 2, &[2..3, 0..2, 0..5]);
    assert_eq!((keys, bytes), ((30..40).map(|at| at as f32).collect(), 40));
}

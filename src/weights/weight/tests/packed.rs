//! Tests of packed weights: each layout is written by its rule and read back in slices.

use super::*;
use crate::base::Packing;
use crate::program::{GroupPlace, GroupRows, PackedRows, RowBlocks};

const OUTPUTS: usize = 24;
const INPUTS: usize = 40;
/// The last group has 8 inputs.
const GROUP: usize = 16;
const GROUPS: usize = 3;

fn number(output: usize, input: usize) -> u32 {
    ((output * 7 + input * 5 + output * input) % 16) as u32
}

fn zero(output: usize, group: usize) -> u32 {
    (output * 3 + group * 5) as u32 % 15 + 1
}

/// Powers of two, so that products are exact.
fn scale(output: usize, group: usize) -> f32 {
    2f32.powi((output % 5) as i32 - 2 * group as i32)
}

fn group_of(input: usize, is_ordered: bool) -> usize {
    if is_ordered { input * 7 % GROUPS } else { input / GROUP }
}

/// Returns words with eight numbers each, the first one in the lowest bits.
fn words(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    let numbers: Vec<u32> = numbers.collect();
    let word = |eight: &[u32]| eight.iter().rev().fold(0, |word: u32, number| word << 4 | number);
    numbers.chunks(8).flat_map(|eight| word(eight).to_le_bytes()).collect()
}

fn pairs(outer: usize, inner: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..outer).flat_map(move |a| (0..inner).map(move |b| (a, b)))
}

type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn tensors(packing: &str) -> Vec<Tensor> {
    let f32s = |numbers: Vec<f32>| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_le_bytes()).collect() };
    let order = |is_ordered| (0..INPUTS).flat_map(move |k| (group_of(k, is_ordered) as i32).to_le_bytes());
    let by_group = f32s(pairs(GROUPS, OUTPUTS).map(|(g, n)| scale(n, g)).collect());
    let by_output = f32s(pairs(OUTPUTS, GROUPS).map(|(n, g)| scale(n, g)).collect());
    // Each word of AWQ has the even outputs first.
    let awq = |n: usize| n / 8 * 8 + [0, 2, 4, 6, 1, 3, 5, 7][n % 8];
    let (of_outputs, of_inputs) = (OUTPUTS / 8, INPUTS / 8);
    match packing {
        "rows:16" | "rows:16:zeros" | "rows:16:zeros:order" => vec![
            (
                "weight_packed",
                Dtype::I32,
                vec![OUTPUTS, of_inputs],
                words(pairs(OUTPUTS, INPUTS).map(|(n, k)| number(n, k))),
            ),
            ("weight_scale", Dtype::F32, vec![OUTPUTS, GROUPS], by_output),
            (
                "weight_zero_point",
                Dtype::I32,
                vec![of_outputs, GROUPS],
                // Words are along the outputs.
                words(
                    pairs(of_outputs, GROUPS).flat_map(|(row, g)| (0..8).map(move |j| zero(8 * row + j, g))),
                ),
            ),
            ("weight_g_idx", Dtype::I32, vec![INPUTS], order(true).collect()),
        ],
        "gptq:16:1" | "gptq:16:0" => vec![
            (
                "qweight",
                Dtype::I32,
                vec![of_inputs, OUTPUTS],
                words(
                    pairs(of_inputs, OUTPUTS)
                        .flat_map(|(row, n)| (0..8).map(move |j| number(n, 8 * row + j))),
                ),
            ),
            ("scales", Dtype::F32, vec![GROUPS, OUTPUTS], by_group),
            (
                "qzeros",
                Dtype::I32,
                vec![GROUPS, of_outputs],
                words(pairs(GROUPS, OUTPUTS).map(|(g, n)| zero(n, g) - u32::from(packing == "gptq:16:1"))),
            ),
            ("g_idx", Dtype::I32, vec![INPUTS], order(true).collect()),
        ],
        "awq:16" => vec![
            (
                "qweight",
                Dtype::I32,
                vec![INPUTS, of_outputs],
                words(pairs(INPUTS, OUTPUTS).map(|(k, n)| number(awq(n), k))),
            ),
            ("scales", Dtype::F32, vec![GROUPS, OUTPUTS], by_group),
            (
                "qzeros",
                Dtype::I32,
                vec![GROUPS, of_outputs],
                words(pairs(GROUPS, OUTPUTS).map(|(g, n)| zero(awq(n), g))),
            ),
        ],
        _ => vec![
            (
                "weight",
                Dtype::F8_E4M3,
                vec![OUTPUTS, INPUTS],
                // Codes 0x38 to 0x3f are 1 to 1.875.
                pairs(OUTPUTS, INPUTS).map(|(n, k)| 0x38 + (number(n, k) % 8) as u8).collect(),
            ),
            (
                "weight_scale_inv",
                Dtype::F32,
                vec![2, GROUPS],
                f32s(pairs(2, GROUPS).map(|(n, g)| scale(n, g)).collect()),
            ),
        ],
    }
}

fn expected(packing: &str, output: usize, input: usize) -> f32 {
    let is_ordered = packing.starts_with("gptq") || packing.ends_with("order");
    let group = group_of(input, is_ordered);
    let number = number(output, input);
    match packing {
        // The second block of rows has 8 rows.
        "fp8:16:16" => (1.0 + (number % 8) as f32 / 8.0) * scale(output / 16, group),
        "rows:16" => (number as f32 - 8.0) * scale(output, group),
        _ => (number as f32 - zero(output, group) as f32) * scale(output, group),
    }
}

#[test]
fn every_layout_is_read_in_any_slice() {
    for packing in
        ["rows:16", "rows:16:zeros", "rows:16:zeros:order", "gptq:16:1", "gptq:16:0", "awq:16", "fp8:16:16"]
    {
        let tensors = tensors(packing);
        let views = tensors.iter().map(|(suffix, dtype, shape, bytes)| {
            (format!("l.{suffix}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let checkpoint = written(views);
        let read = |shape: &[usize], offset: usize, blocks, parts: &[Vec<Range<usize>>]| -> Vec<Vec<f32>> {
            let rows = PackedRows { row_elems: INPUTS, packing: Packing::parse(packing).unwrap(), blocks };
            let source = source("l.weight", offset * INPUTS, Form::Packed(rows));
            let found = given(&checkpoint, &source, DType::F32, shape, parts)
                .unwrap_or_else(|error| panic!("{packing}: {error}"));
            let floats = |bytes: Vec<u8>| {
                bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            };
            found.into_iter().map(floats).collect()
        };
        let rectangle = |rows: Range<usize>, columns: Range<usize>| -> Vec<f32> {
            let columns = move |n| columns.clone().map(move |k| expected(packing, n, k));
            rows.flat_map(columns).collect()
        };
        let parts =
            [(0..24, 0..40), (3..21, 0..40), (0..24, 5..33), (7..8, 39..40), (9..18, 16..32), (4..4, 0..40)];
        let ranges: Vec<Vec<Range<usize>>> =
            parts.iter().map(|(rows, columns)| vec![rows.clone(), columns.clone()]).collect();
        let wanted: Vec<Vec<f32>> =
            parts.into_iter().map(|(rows, columns)| rectangle(rows, columns)).collect();
        assert_eq!(read(&[OUTPUTS, INPUTS], 0, None, &ranges), wanted, "{packing}");
        // Rows from number 6 on, as 3 · 4 outputs and 5 · 8 inputs. Two of the shards are equal.
        let part = vec![0..3, 1..3, 2..4, 0..8];
        let found = read(&[3, 4, 5, 8], 6, None, &[part.clone(), vec![0..3, 0..4, 0..5, 0..8], part]);
        let wanted: Vec<f32> =
            [7, 8, 11, 12, 15, 16].into_iter().flat_map(|row| rectangle(row..row + 1, 16..32)).collect();
        assert_eq!(found, [wanted.clone(), rectangle(6..18, 0..40), wanted], "{packing}");
        // Blocks of two rows of every five, from row 1 on.
        let blocks = Some(RowBlocks { rows: 2, stride: 5 });
        let found = read(&[4, 2, INPUTS], 1, blocks, &[vec![1..4, 0..2, 0..INPUTS]]);
        let wanted: Vec<f32> =
            [6, 11, 16].into_iter().flat_map(|row| rectangle(row..row + 2, 0..40)).collect();
        assert_eq!(found, [wanted], "{packing}");
    }
}

/// Returns the tensors of a packing with groups of consecutive inputs.
fn consecutive(packing: &str) -> Vec<Tensor> {
    let mut tensors = tensors(packing);
    for (suffix, _, _, bytes) in &mut tensors {
        if suffix.ends_with("g_idx") {
            *bytes = (0..INPUTS).flat_map(|input| ((input / GROUP) as i32).to_le_bytes()).collect();
        }
    }
    tensors
}

/// A word has the numbers minus 8 in two's complement. A scale and an offset of each group give the
/// weights, also if a card has smaller groups than the file.
#[test]
fn words_with_their_scales_and_offsets_are_the_weights() {
    for packing in ["rows:16", "rows:16:zeros", "gptq:16:1", "gptq:16:0", "awq:16"] {
        let tensors = consecutive(packing);
        let views = tensors.iter().map(|(suffix, dtype, shape, bytes)| {
            (format!("l.{suffix}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let checkpoint = written(views);
        let rows = PackedRows { row_elems: INPUTS, packing: Packing::parse(packing).unwrap(), blocks: None };
        let read = |form, dtype, shape: &[usize], offset: usize, part: Vec<Range<usize>>| -> Vec<u8> {
            let source = source("l.weight", offset * INPUTS, form);
            let found = given(&checkpoint, &source, dtype, shape, &[part.clone(), part]);
            let mut found = found.unwrap_or_else(|error| panic!("{packing}: {error}"));
            let last = found.pop();
            assert_eq!(last, found.pop(), "ranks with the same shard");
            last.unwrap()
        };
        for (of_rows, of_words) in [(0..24, 0..5), (3..21, 1..4), (7..8, 4..5), (9..18, 2..4)] {
            let part = vec![of_rows.clone(), of_words.clone()];
            let words = read(Form::Words(rows), DType::I32, &[OUTPUTS, INPUTS / 8], 0, part);
            let words: Vec<i32> =
                words.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
            for group in [GROUP, 8] {
                let groups = INPUTS.div_ceil(group);
                let floats = |form| -> Vec<f32> {
                    let part = vec![of_rows.clone(), 0..groups];
                    let bytes = read(form, DType::F32, &[OUTPUTS, groups], 0, part);
                    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
                };
                let scales = floats(Form::GroupScales(GroupRows { rows, group, place: GroupPlace::Last }));
                let offsets = floats(Form::GroupOffsets(GroupRows { rows, group, place: GroupPlace::Last }));
                for (at, row) in of_rows.clone().enumerate() {
                    for input in of_words.start * 8..of_words.end * 8 {
                        let word = words[at * of_words.len() + input / 8 - of_words.start];
                        let number = word << (28 - 4 * (input % 8)) >> 28;
                        let of_group = at * groups + input / group;
                        let weight = (number as f32 + offsets[of_group]) * scales[of_group];
                        let stored = match packing {
                            "rows:16" => 8,
                            _ => zero(row, input / GROUP),
                        };
                        let expected =
                            (self::number(row, input) as f32 - stored as f32) * scale(row, input / GROUP);
                        assert_eq!(weight, expected, "{packing}: {row}, {input}");
                    }
                }
            }
        }
        // Rows from number 6 on, as 3 · 4 outputs and 5 words in one dim before the words.
        let part = vec![1..3, 0..4, 2..5, 0..1];
        let found = read(Form::Words(rows), DType::I32, &[3, 4, 5, 1], 6, part);
        let whole = read(Form::Words(rows), DType::I32, &[12, 5], 6, vec![4..12, 2..5]);
        assert_eq!(found, whole, "{packing}");
        // One scale of a group that starts in the middle of the shard's rows.
        let form = Form::GroupScales(GroupRows { rows, group: 8, place: GroupPlace::Last });
        let found = read(form, DType::F32, &[OUTPUTS, 5, 1], 0, vec![2..4, 1..3, 0..1]);
        let wanted: Vec<u8> = [(2, 0), (2, 1), (3, 0), (3, 1)]
            .into_iter()
            .flat_map(|(n, g)| scale(n, g).to_le_bytes())
            .collect();
        assert_eq!(found, wanted, "{packing}");
    }
    // Words have no order of groups.
    let tensors = tensors("gptq:16:1");
    let views = tensors.iter().map(|(suffix, dtype, shape, bytes)| {
        (format!("l.{suffix}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let rows = PackedRows { row_elems: INPUTS, packing: Packing::parse("gptq:16:1").unwrap(), blocks: None };
    let source = source("l.weight", 0, Form::Words(rows));
    let whole = vec![0..OUTPUTS, 0..INPUTS / 8];
    let found = given(&written(views), &source, DType::I32, &[OUTPUTS, INPUTS / 8], &[whole]).unwrap_err();
    assert!(found.contains("l.qweight") && found.contains("no act order"), "{found}");
}

/// Shards of scales and offsets `[experts, groups, 2, rows]` of matrices `[rows, groups]`.
#[test]
fn groups_of_experts_come_before_the_rows_of_both_projections() {
    let (experts, shape) = (3, [3, 5, 2, 4, 6]);
    for (packing, has_zeros) in [("rows:16:zeros", true), ("rows:16", false), ("gptq:16:1", true)] {
        // The scales of each matrix are multiples of its number.
        let matrices: Vec<(String, Vec<Tensor>)> = pairs(experts, 2)
            .enumerate()
            .map(|(at, (expert, part))| {
                let mut tensors = consecutive(packing);
                for byte in tensors[1].3.as_chunks_mut::<4>().0 {
                    *byte = (f32::from_le_bytes(*byte) * (at + 1) as f32).to_le_bytes();
                }
                (format!("e.{expert}.{}", ["a", "b"][part]), tensors)
            })
            .collect();
        let views = matrices.iter().flat_map(|(name, tensors)| {
            tensors.iter().map(move |(suffix, dtype, shape, bytes)| {
                (format!("{name}.{suffix}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
            })
        });
        let checkpoint = written(views);
        let rows = PackedRows { row_elems: INPUTS, packing: Packing::parse(packing).unwrap(), blocks: None };
        let of_groups = GroupRows { rows, group: 8, place: GroupPlace::Second };
        let parts = [
            shape.iter().map(|size| 0..*size).collect::<Vec<Range<usize>>>(),
            vec![1..3, 0..5, 0..2, 1..3, 0..6],
            vec![0..1, 2..4, 1..2, 0..4, 2..5],
            vec![1..3, 0..5, 0..2, 1..3, 0..6],
            vec![2..3, 0..5, 0..2, 4..4, 0..6],
        ];
        let floats = |form| -> Vec<Vec<f32>> {
            let source = source("e.{0..3}.{a,b}.weight", 0, form);
            let found = given(&checkpoint, &source, DType::F32, &shape, &parts).unwrap();
            let floats = |bytes: Vec<u8>| -> Vec<f32> {
                bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            };
            found.into_iter().map(floats).collect()
        };
        let wanted = |value: &dyn Fn(usize, usize, usize) -> f32| -> Vec<Vec<f32>> {
            let of_part = |part: &Vec<Range<usize>>| {
                let mut values = Vec::new();
                for (expert, group) in part[0].clone().flat_map(|e| part[1].clone().map(move |g| (e, g))) {
                    for half in part[2].clone() {
                        for (a, b) in part[3].clone().flat_map(|a| part[4].clone().map(move |b| (a, b))) {
                            values.push(value(2 * expert + half, 6 * a + b, group / 2));
                        }
                    }
                }
                values
            };
            parts.iter().map(of_part).collect()
        };
        let scales = wanted(&|matrix, row, group| (matrix + 1) as f32 * scale(row, group));
        assert_eq!(floats(Form::GroupScales(of_groups)), scales, "{packing}");
        let offset = |row, group| if has_zeros { 8.0 - zero(row, group) as f32 } else { 0.0 };
        let offsets = wanted(&|_, row, group| offset(row, group));
        assert_eq!(floats(Form::GroupOffsets(of_groups)), offsets, "{packing}");
    }
}

/// Every shard has the integers of the whole rows, and the scale of a row is the same in all.
#[test]
fn rows_of_blocks_become_integers_with_one_scale() {
    let packing = "fp8:16:16";
    let tensors = tensors(packing);
    let views = tensors.iter().map(|(suffix, dtype, shape, bytes)| {
        (format!("l.{suffix}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let checkpoint = written(views);
    let row =
        |output: usize| -> Vec<f32> { (0..INPUTS).map(|input| expected(packing, output, input)).collect() };
    let scale_of = |output: usize| row(output).iter().fold(0.0, |a: f32, b| a.max(b.abs())) / 127.0;
    let integers = |output: usize, columns: Range<usize>| -> Vec<u8> {
        let of_row = row(output).into_iter().map(|x| (x / scale_of(output)).round_ties_even() as i8 as u8);
        of_row.collect::<Vec<u8>>()[columns].to_vec()
    };
    let form = |blocks| PackedRows { row_elems: INPUTS, packing: Packing::parse(packing).unwrap(), blocks };
    let whole = |shape: &[usize]| -> Vec<Range<usize>> { shape.iter().map(|size| 0..*size).collect() };
    let bytes = source("l.weight", 0, Form::PackedBytes(form(None)));
    let parts = [vec![0..24, 0..40], vec![3..21, 7..33], vec![23..24, 39..40], vec![3..21, 7..33]];
    let found = given(&checkpoint, &bytes, DType::I8, &[OUTPUTS, INPUTS], &parts).unwrap();
    for (part, found) in parts.iter().zip(found) {
        let wanted: Vec<u8> = part[0].clone().flat_map(|output| integers(output, part[1].clone())).collect();
        assert_eq!(found, wanted, "{part:?}");
    }
    let scales = source("l.weight", 0, Form::PackedScales(form(None)));
    let parts = [vec![0..4, 0..6], vec![1..3, 2..5]];
    let found = given(&checkpoint, &scales, DType::F32, &[4, 6], &parts).unwrap();
    for (part, found) in parts.iter().zip(found) {
        let rows = part[0].clone().flat_map(|a| part[1].clone().map(move |b| a * 6 + b));
        let wanted: Vec<u8> = rows.flat_map(|output| scale_of(output).to_le_bytes()).collect();
        assert_eq!(found, wanted, "{part:?}");
    }
    // Blocks of two rows of every five, from row 1 on.
    let blocks = Some(RowBlocks { rows: 2, stride: 5 });
    let bytes = source("l.weight", INPUTS, Form::PackedBytes(form(blocks)));
    let shape = [4, 2, INPUTS];
    let found = given(&checkpoint, &bytes, DType::I8, &shape, &[whole(&shape)]).unwrap();
    let rows = [1, 2, 6, 7, 11, 12, 16, 17];
    let wanted: Vec<u8> = rows.into_iter().flat_map(|output| integers(output, 0..INPUTS)).collect();
    assert_eq!(found, [wanted]);
    let scales = source("l.weight", INPUTS, Form::PackedScales(form(blocks)));
    let found = given(&checkpoint, &scales, DType::F32, &[4, 2], &[vec![0..4, 1..2]]).unwrap();
    let wanted: Vec<u8> =
        [2, 7, 12, 17].into_iter().flat_map(|output| scale_of(output).to_le_bytes()).collect();
    assert_eq!(found, [wanted]);
}

#[test]
fn a_shard_reads_its_words_and_scales_alone() {
    // Rows are longer than a page, so that no gap is read.
    let (outputs, inputs) = (16, 1 << 16);
    let words = vec![0x77; outputs * inputs / 2];
    let scales: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), outputs * inputs / 32).flatten().collect();
    let packed = TensorView::new(Dtype::I32, vec![outputs, inputs / 8], &words).unwrap();
    let scales = TensorView::new(Dtype::F32, vec![outputs, inputs / 32], &scales).unwrap();
    let checkpoint = written([("l.weight_packed".to_owned(), packed), ("l.weight_scale".to_owned(), scales)]);
    let rows = PackedRows { row_elems: inputs, packing: Packing::parse("rows:32").unwrap(), blocks: None };
    let read = |part: Vec<Range<usize>>| {
        READ_BYTES.set(0);
        let source = source("l.weight", 0, Form::Packed(rows));
        given(&checkpoint, &source, DType::BF16, &[outputs, inputs], &[part]).unwrap();
        READ_BYTES.get()
    };
    let bytes_of = |rows: usize, columns: usize| rows * (columns / 2 + columns / 32 * 4);
    assert_eq!(read(vec![4..8, 0..inputs]), bytes_of(4, inputs));
    assert_eq!(read(vec![0..outputs, 0..inputs / 4]), bytes_of(outputs, inputs / 4));
    // Words are half a byte for each weight.
    READ_BYTES.set(0);
    let source = source("l.weight", 0, Form::Words(rows));
    let part = vec![4..8, inputs / 32..inputs / 16];
    given(&checkpoint, &source, DType::I32, &[outputs, inputs / 8], &[part]).unwrap();
    assert_eq!(READ_BYTES.get(), 4 * inputs / 8);
}

#[test]
fn damaged_tensors_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut tensors = tensors("gptq:16:1");
        change(&mut tensors);
        let views = tensors.iter().map(|(suffix, dtype, shape, bytes)| {
            (format!("l.{suffix}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let checkpoint = written(views);
        let packing = Packing::parse("gptq:16:1").unwrap();
        let source =
            source("l.weight", 0, Form::Packed(PackedRows { row_elems: INPUTS, packing, blocks: None }));
        given(&checkpoint, &source, DType::F32, &[OUTPUTS, INPUTS], &[vec![0..OUTPUTS, 0..INPUTS]])
            .unwrap_err()
    };
    let found = refused(&|tensors| tensors[3].3[..4].copy_from_slice(&9_i32.to_le_bytes()));
    assert!(found.contains("l.g_idx") && found.contains("input 0 has group 9"), "{found}");
    let found = refused(&|tensors| tensors[1].3[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert!(found.contains("l.qweight") && found.contains("NaN"), "{found}");
    let found = refused(&|tensors| drop(tensors.remove(2)));
    assert!(found.contains("l.qzeros: no such tensor"), "{found}");
    let found = refused(&|tensors| {
        tensors[1].2 = vec![2, OUTPUTS];
        tensors[1].3.truncate(2 * OUTPUTS * 4);
    });
    assert!(found.contains("l.scales: ") && found.contains("expected [3,24]"), "{found}");
}

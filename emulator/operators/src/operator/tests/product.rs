//! Batched and grouped matrix products, with addends.

use super::*;
use crate::dtype::AclType;

/// Follows PyTorch's rules for vectors and batches.
fn naive(a: &[f64], a_dims: &[usize], b: &[f64], b_dims: &[usize]) -> (Vec<usize>, Vec<f64>) {
    let a2 = if a_dims.len() == 1 { vec![1, a_dims[0]] } else { a_dims.to_vec() };
    let b2 = if b_dims.len() == 1 { vec![b_dims[0], 1] } else { b_dims.to_vec() };
    let (m, k, n) = (a2[a2.len() - 2], a2[a2.len() - 1], b2[b2.len() - 1]);
    let (a_batch, b_batch) = (&a2[..a2.len() - 2], &b2[..b2.len() - 2]);
    let batch = call::broadcast(a_batch, b_batch).unwrap();
    let mut out = Vec::new();
    for i in 0..batch.iter().product() {
        let (p, q) =
            (broadcast_index(a_batch, &batch, i) * m * k, broadcast_index(b_batch, &batch, i) * k * n);
        for row in 0..m {
            for col in 0..n {
                out.push((0..k).map(|d| a[p + row * k + d] * b[q + d * n + col]).sum());
            }
        }
    }
    let mut dims = batch;
    dims.extend((a_dims.len() > 1).then_some(m));
    dims.extend((b_dims.len() > 1).then_some(n));
    (dims, out)
}

const SHAPES: [(&[usize], &[usize]); 13] = [
    (&[3, 4], &[4, 5]),
    (&[4], &[4]),
    (&[4], &[4, 5]),
    (&[3, 4], &[4]),
    (&[2, 3, 4], &[4, 5]),
    (&[3, 4], &[2, 4, 5]),
    (&[2, 1, 3, 4], &[6, 4, 5]),
    (&[2, 3, 4], &[4]),
    (&[4], &[2, 4, 5]),
    (&[0, 4], &[4, 5]),
    (&[3, 0], &[0, 5]),
    (&[1, 1, 1, 1, 130, 70], &[70, 300]),
    (&[1, 512], &[512, 33]),
];

#[test]
fn products_of_every_rank_type_and_layout() {
    for (a_dims, b_dims) in SHAPES {
        for (dtype, other, result) in [
            (AclType::F32, AclType::F32, AclType::F32),
            (AclType::F16, AclType::F16, AclType::F16),
            (AclType::BF16, AclType::BF16, AclType::BF16),
            (AclType::F16, AclType::F16, AclType::F32),
            (AclType::F16, AclType::F32, AclType::F32),
        ] {
            for strided in [false, true] {
                let small = |n: usize, seed: usize| -> Vec<f64> {
                    counted(n, seed).iter().map(|v| v - 3.0).collect()
                };
                let (x, y) = (small(a_dims.iter().product(), 1), small(b_dims.iter().product(), 2));
                let (dims, wanted) = naive(&x, a_dims, &y, b_dims);
                let (mut a, mut b) = (Data::new(dtype, a_dims, &x), Data::new(other, b_dims, &y));
                let mut out = Data::new(result, &dims, &vec![7.0; wanted.len()]);
                if strided {
                    (a, b, out) = (a.strided(), b.strided(), out.strided());
                }
                run("aclnnMatmul", vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(0)])
                    .unwrap();
                let wanted: Vec<f64> = wanted.iter().map(|&v| rounded(v, result)).collect();
                close(
                    &out.values(),
                    &wanted,
                    0.0,
                    &format!("{a_dims:?} @ {b_dims:?} {dtype} {other} {strided}"),
                );
            }
        }
    }
}

#[test]
fn halves_accumulate_in_single_precision() {
    // A running sum in f16 would stall near 1/4.
    let n = 4096;
    let mut a = Data::new(AclType::F16, &[1, n], &vec![1.0 / 64.0; n]);
    let mut b = Data::new(AclType::F16, &[n, 1], &vec![1.0 / 64.0; n]);
    let mut out = Data::blank(AclType::F16, &[1, 1]);
    run("aclnnMm", vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(0)]).unwrap();
    assert_eq!(out.values(), [1.0]);
}

#[test]
fn a_product_of_two_long_rows_is_their_sum() {
    for n in [60_000, 100_000, 1 << 20] {
        let (mut a, mut b) = (
            Data::new(AclType::F32, &[1, n], &vec![1.0; n]),
            Data::new(AclType::F32, &[n, 1], &vec![1.0; n]),
        );
        let mut out = Data::blank(AclType::F32, &[1, 1]);
        run("aclnnMm", vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(0)]).unwrap();
        assert_eq!(out.values(), [n as f64]);
    }
}

#[test]
fn batched_products_repeat_a_batch_of_one() {
    for (a_batch, b_batch) in [(2, 2), (1, 3), (3, 1)] {
        let (x, y) = (counted(a_batch * 6, 3), counted(b_batch * 12, 4));
        let (a_dims, b_dims) = ([a_batch, 2, 3], [b_batch, 3, 4]);
        let (dims, wanted) = naive(&x, &a_dims, &y, &b_dims);
        let (mut a, mut b) =
            (Data::new(AclType::BF16, &a_dims, &x), Data::new(AclType::BF16, &b_dims, &y).strided());
        let mut out = Data::blank(AclType::BF16, &dims);
        run("aclnnBatchMatMul", vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(0)]).unwrap();
        close(&out.values(), &wanted, 0.0, "batched");
    }
}

#[test]
fn addmm_broadcasts_its_first_operand() {
    for dtype in FLOATS {
        for c_dims in [&[2usize, 3][..], &[3], &[1, 3], &[2, 1], &[]] {
            let (c, a, b) = (counted(c_dims.iter().product(), 5), counted(8, 6), counted(12, 7));
            let (_, product) = naive(&a, &[2, 4], &b, &[4, 3]);
            let wanted: Vec<f64> =
                (0..6).map(|i| 2.0 * c[broadcast_index(c_dims, &[2, 3], i)] + 0.5 * product[i]).collect();
            let (mut vc, mut va, mut vb) =
                (Data::new(dtype, c_dims, &c), Data::new(dtype, &[2, 4], &a), Data::new(dtype, &[4, 3], &b));
            let mut out = Data::blank(dtype, &[2, 3]);
            let arguments = vec![
                Arg::T(&mut vc),
                Arg::T(&mut va),
                Arg::T(&mut vb),
                whole(2),
                real(0.5),
                Arg::T(&mut out),
                Arg::I(0),
            ];
            run("aclnnAddmm", arguments).unwrap();
            let wanted: Vec<f64> = wanted.iter().map(|&v| rounded(v, dtype)).collect();
            close(&out.values(), &wanted, 0.0, &format!("{dtype} {c_dims:?}"));
        }
    }
}

#[test]
fn the_cube_modes_lose_the_documented_digits() {
    // Only FLOAT keeps 1 + 2^-12.
    let value = 1.0 + 1.0 / 4096.0;
    for (mode, expected) in [(0, value), (1, 1.0), (2, 1.0), (3, 1.0), (4, value)] {
        let (mut a, mut b) =
            (Data::new(AclType::F32, &[1, 1], &[value]), Data::new(AclType::F32, &[1, 1], &[1.0]));
        let mut out = Data::blank(AclType::F32, &[1, 1]);
        run("aclnnMm", vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(mode)]).unwrap();
        assert_eq!(out.values(), [expected], "cubeMathType {mode}");
    }
}

#[test]
fn products_refuse_what_the_cube_refuses() {
    let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![0.0; dims.iter().product()]);
    let says = |name: &str, mut a: Data, mut b: Data, mut out: Data, mode: i64, part: &str| {
        refused(name, vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(mode)], &[part]);
    };
    use AclType::{BF16, F16, F32, I32};
    let (x, y, z) = ([2, 3], [3, 4], [2, 4]);
    says(
        "aclnnMatmul",
        data(F32, &x),
        data(F32, &[2, 4]),
        data(F32, &z),
        0,
        "mat2: expected a contracted dim of 3",
    );
    says(
        "aclnnMatmul",
        data(F32, &x),
        data(F32, &y),
        data(F32, &[4, 2]),
        0,
        "out: expected shape [2, 4] (of self @ mat2)",
    );
    says(
        "aclnnMatmul",
        data(I32, &x),
        data(I32, &y),
        data(I32, &z),
        0,
        "expected an element type of FLOAT, FLOAT16",
    );
    says("aclnnMatmul", data(F32, &[]), data(F32, &y), data(F32, &z), 0, "expected 1 to 6 dims, found 0");
    says("aclnnMatmul", data(F32, &[2, 2, 3]), data(F32, &[3, 3, 4]), data(F32, &z), 0, "batch dims");
    says("aclnnMatmul", data(BF16, &x), data(BF16, &y), data(BF16, &z), 2, "not legal for BFLOAT16");
    says("aclnnMatmul", data(F32, &x), data(F32, &y), data(F32, &z), 5, "found 5");
    says("aclnnMm", data(F32, &[1, 2, 3]), data(F32, &y), data(F32, &z), 0, "expected 2 to 2 dims, found 3");
    says("aclnnMm", data(F16, &x), data(F32, &y), data(I32, &z), 0, "out: expected an element type of FLOAT");
    says("aclnnBatchMatMul", data(F32, &x), data(F32, &y), data(F32, &z), 0, "expected 3 to 3 dims");
}

/// Sums products of `[K, M]` and `[K, N]`; returns result and reference.
fn grouped(
    dtype: AclType,
    [depth, m, n]: [usize; 3],
    ends: &[i64],
    dims: &[usize],
    strided: bool,
) -> Result<[Vec<f64>; 2], String> {
    let (x, weight, sums) = (varied(depth * m, 1), varied(depth * n, 2), varied(dims.iter().product(), 3));
    let (mut a, mut b) = (Data::new(dtype, &[depth, m], &x), Data::new(dtype, &[depth, n], &weight));
    if strided {
        (a, b) = (a.strided(), b.strided());
    }
    let ends_held: Vec<f64> = ends.iter().map(|&end| end as f64).collect();
    let mut groups = Data::new(AclType::I64, &[ends.len()], &ends_held);
    let mut y = Data::new(AclType::F32, dims, &sums);
    let arguments = vec![
        Arg::T(&mut a),
        Arg::T(&mut b),
        Arg::T(&mut groups),
        Arg::T(&mut y),
        Arg::B(true),
        Arg::B(false),
        Arg::I(2),
    ];
    run("aclnnGroupedMatmulAdd", arguments)?;
    let mut wanted = sums;
    for (group, &end) in ends.iter().enumerate() {
        let start = if group == 0 { 0 } else { ends[group - 1] };
        for i in 0..m * n {
            let product = |d: i64| x[d as usize * m + i / n] * weight[d as usize * n + i % n];
            wanted[group * m * n + i] += (start..end).map(product).sum::<f64>();
        }
    }
    Ok([y.values(), wanted])
}

#[test]
fn sums_of_products_of_groups() {
    for dtype in [AclType::F16, AclType::BF16] {
        for strided in [false, true] {
            for (sizes, ends) in [
                ([7, 3, 5], &[7][..]),
                ([150, 33, 70], &[150]),
                ([20, 4, 3], &[5, 5, 20]),
                ([300, 17, 9], &[0, 130, 250]),
                ([3, 1, 1], &[3]),
            ] {
                let [_, m, n] = sizes;
                for dims in [&[ends.len() * m, n][..], &[ends.len(), m, n]] {
                    let [found, wanted] = grouped(dtype, sizes, ends, dims, strided).unwrap();
                    close(&found, &wanted, 1e-5, &format!("{dtype} {sizes:?} {ends:?}"));
                }
            }
        }
    }
}

#[test]
fn sums_of_products_of_groups_are_refused_by_name() {
    let says = |result: Result<[Vec<f64>; 2], String>, part: &str| {
        let message = result.expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    };
    let call = |dtype, ends: &[i64], dims: &[usize]| grouped(dtype, [6, 2, 3], ends, dims, false);
    says(call(AclType::F16, &[4, 2], &[4, 3]), "groupList: group 1 ends at 2, expected 4 to 6");
    says(call(AclType::F16, &[4, 7], &[4, 3]), "groupList: group 1 ends at 7, expected 4 to 6");
    says(call(AclType::F16, &[4, 6], &[2, 3]), "yRef: expected [4, 3] or [2, 2, 3], found [2, 3]");
    says(call(AclType::F32, &[6], &[2, 3]), "x: expected an element type of FLOAT16, BFLOAT16, found FLOAT");
    let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
    let flags = |x: &[usize], weight: AclType, transposed: bool, kind: i64, part: &str| {
        let (mut x, mut weight) = (data(AclType::F16, x), data(weight, &[6, 3]));
        let (mut ends, mut y) = (Data::new(AclType::I64, &[1], &[6.0]), data(AclType::F32, &[2, 3]));
        let arguments = vec![
            Arg::T(&mut x),
            Arg::T(&mut weight),
            Arg::T(&mut ends),
            Arg::T(&mut y),
            Arg::B(transposed),
            Arg::B(false),
            Arg::I(kind),
        ];
        refused("aclnnGroupedMatmulAdd", arguments, &[part]);
    };
    flags(&[6, 2], AclType::F16, false, 2, "transposeX: expected true, found false");
    flags(&[6, 2], AclType::F16, true, 0, "groupType: expected 2 (groups along K), found 0");
    flags(&[6, 2], AclType::BF16, true, 2, "weight: expected FLOAT16 (the type of x), found BFLOAT16");
    flags(&[5, 2], AclType::F16, true, 2, "weight: expected a first dim of 5 as in x [5, 2], found [6, 3]");
}

/// Returns the arguments of a grouped product of integers by rows.
fn of_integers<'a>(
    [x, weight, scale, tokens, lengths, out]: [&'a mut Data; 6],
    group_type: i64,
) -> Vec<Arg<'a>> {
    let mut arguments =
        vec![Arg::List(vec![x]), Arg::List(vec![weight]), Arg::NoList, Arg::List(vec![scale])];
    arguments.extend([Arg::NoList, Arg::NoList, Arg::NoList, Arg::List(vec![tokens]), Arg::T(lengths)]);
    arguments.extend([
        Arg::NoList,
        Arg::NoList,
        Arg::NoList,
        Arg::I(3),
        Arg::I(group_type),
        Arg::I(1),
        Arg::I(0),
    ]);
    arguments.extend([Arg::List(vec![out]), Arg::NoList, Arg::NoList]);
    arguments
}

#[test]
fn integers_of_groups_have_scales_of_rows_and_columns() {
    use AclType::{BF16, F16, F32, I8, I64};
    let (m, k, n) = (6, 40, 5);
    // The second group has no row, and the last row belongs to no group.
    let (groups, lengths) = ([0, 0, 2, 2, 2], [2.0, 0.0, 3.0]);
    let small =
        |count: usize, step: usize| (0..count).map(|at| (at * step % 5) as f64 - 2.0).collect::<Vec<f64>>();
    let power = |count: usize| (0..count).map(|at| [0.5, 1.0, 2.0][at % 3]).collect::<Vec<f64>>();
    let (x, w, scale, tokens) = (small(m * k, 7), small(3 * k * n, 11), power(3 * n), power(m));
    for (out, of_scale) in [(BF16, BF16), (F16, F32)] {
        let [mut x_data, mut w_data] =
            [Data::new(I8, &[m, k], &x), Data::new(I8, &[3, k, n], &w)].map(Data::strided);
        let mut scale_data = Data::new(of_scale, &[3, n], &scale);
        let mut tokens_data = Data::new(F32, &[m], &tokens);
        let mut lengths = Data::new(I64, &[3], &lengths);
        let mut y = Data::new(out, &[m, n], &vec![7.0; m * n]);
        let data = [&mut x_data, &mut w_data, &mut scale_data, &mut tokens_data, &mut lengths, &mut y];
        run("aclnnGroupedMatmulV4", of_integers(data, 0)).unwrap();
        let wanted = (0..m * n).map(|at| match groups.get(at / n) {
            Some(group) => {
                let (row, column) = (at / n, at % n);
                let terms = (0..k).map(|inner| x[row * k + inner] * w[(group * k + inner) * n + column]);
                terms.sum::<f64>() * scale[group * n + column] * tokens[row]
            }
            None => 7.0,
        });
        assert_eq!(y.values(), wanted.collect::<Vec<f64>>(), "{out}");
    }
}

#[test]
fn integers_of_groups_are_refused_by_name() {
    use AclType::{BF16, F16, F32, I8, I64};
    let says = |weight: AclType, scale: AclType, out: AclType, tokens: usize, group_type: i64, part: &str| {
        let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
        let (mut x, mut w, mut scale) = (data(I8, &[2, 4]), data(weight, &[1, 4, 3]), data(scale, &[1, 3]));
        let mut tokens = data(F32, &[tokens]);
        let (mut lengths, mut y) = (Data::new(I64, &[1], &[2.0]), data(out, &[2, 3]));
        let data = [&mut x, &mut w, &mut scale, &mut tokens, &mut lengths, &mut y];
        refused("aclnnGroupedMatmulV4", of_integers(data, group_type), &[part]);
    };
    says(F16, F32, F16, 2, 0, "weight: expected INT8 for x of INT8 and out of FLOAT16, found FLOAT16");
    says(
        I8,
        F32,
        BF16,
        2,
        0,
        "scaleOptional: expected BFLOAT16 for x of INT8 and out of BFLOAT16, found FLOAT",
    );
    says(I8, F32, F32, 2, 0, "out: expected FLOAT16 or BFLOAT16 for x of INT8, found FLOAT");
    says(I8, F32, F16, 3, 0, "perTokenScaleOptional: tensor 0: expected [2], found [3]");
    says(I8, F32, F16, 2, 2, "groupType: expected 0 (along M) for x of INT8, found 2");
}

/// Operands of a grouped product with words of 4-bit integers.
struct OfWords {
    x: Data,
    weight: Data,
    bias: Option<Data>,
    scale: Option<Data>,
    offset: Option<Data>,
    lengths: Data,
    y: Data,
    group_type: i64,
}

impl OfWords {
    /// Returns valid operands of one group, `[2, 16] x [1, 16, 8]`, with two groups of scales.
    fn small(dtype: AclType) -> Self {
        let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
        Self {
            x: data(dtype, &[2, 16]),
            weight: data(AclType::I32, &[1, 16, 1]),
            bias: None,
            scale: Some(data(dtype, &[1, 2, 8])),
            offset: Some(data(dtype, &[1, 2, 8])),
            lengths: Data::new(AclType::I64, &[1], &[2.0]),
            y: data(dtype, &[2, 8]),
            group_type: 0,
        }
    }

    fn arguments(&mut self, name: &str) -> Vec<Arg<'_>> {
        fn list(data: &mut Option<Data>) -> Arg<'_> {
            data.as_mut().map_or(Arg::NoList, |data| Arg::List(vec![data]))
        }
        let mut arguments =
            vec![Arg::List(vec![&mut self.x]), Arg::List(vec![&mut self.weight]), list(&mut self.bias)];
        arguments.extend([Arg::NoList, Arg::NoList, list(&mut self.scale), list(&mut self.offset)]);
        arguments.extend([Arg::NoList, Arg::T(&mut self.lengths), Arg::NoList, Arg::NoList, Arg::NoList]);
        arguments.extend([Arg::I(3), Arg::I(self.group_type), Arg::I(1), Arg::I(0)]);
        arguments.extend((name == "aclnnGroupedMatmulV5").then_some(Arg::NoInts));
        arguments.extend([Arg::List(vec![&mut self.y]), Arg::NoList, Arg::NoList]);
        arguments
    }
}

/// Returns signed words of eight integers each, the first one in the lowest bits.
fn words_of(integers: &[f64]) -> Vec<f64> {
    let word = |eight: &[f64]| {
        let halves = eight.iter().map(|integer| *integer as i64 as u32 & 15);
        f64::from(halves.rev().fold(0, |word, half| word << 4 | half) as i32)
    };
    integers.chunks(8).map(word).collect()
}

#[test]
fn words_of_groups_have_scales_and_offsets_along_the_depth() {
    use AclType::{BF16, F16, F32, I32, I64};
    let (m, k, n) = (6, 48, 16);
    // The second group has no row, and the last row belongs to no group.
    let (of_rows, lengths) = ([0, 0, 2, 2, 2], [2.0, 0.0, 3.0]);
    let whole = |count: usize, step: usize, most: usize| -> Vec<f64> {
        (0..count).map(|at| (at * step % (2 * most)) as f64 - most as f64).collect()
    };
    let (x, w, bias) = (whole(m * k, 7, 1), whole(3 * k * n, 11, 8), whole(3 * n, 3, 2));
    // `[3, k / 8, n]` with swapped dims is `[3, n, k / 8]` in memory.
    let by_columns: Vec<f64> =
        (0..3 * n * k).map(|at| w[(at / (n * k) * k + at % k) * n + at / k % n]).collect();
    let turned = |words: Vec<f64>| {
        let mut data = Data::new(I32, &[3, n, k / 8], &words);
        data.dims = vec![3, k / 8, n];
        data.strides = vec![(n * k / 8) as isize, 1, (k / 8) as isize];
        data
    };
    let weights = [Data::new(I32, &[3, k, n / 8], &words_of(&w)), turned(words_of(&by_columns))];
    for (name, dtype) in [("aclnnGroupedMatmulV4", F16), ("aclnnGroupedMatmulV5", BF16)] {
        for (weight, groups, has_bias) in
            [(&weights[0], 1, false), (&weights[1], 1, true), (&weights[0], 3, true), (&weights[1], 6, false)]
        {
            let scale: Vec<f64> = (0..3 * groups * n).map(|at| [0.5, 1.0, 2.0][at % 7 % 3]).collect();
            let offset = whole(3 * groups * n, 5, 3);
            // One group has a scale for each column.
            let dims = if groups == 1 { vec![3, n] } else { vec![3, groups, n] };
            let mut call = OfWords {
                x: Data::new(dtype, &[m, k], &x).strided(),
                weight: weight.clone(),
                bias: has_bias.then(|| Data::new(if dtype == BF16 { F32 } else { F16 }, &[3, n], &bias)),
                scale: Some(Data::new(dtype, &dims, &scale).strided()),
                offset: Some(Data::new(dtype, &dims, &offset)),
                lengths: Data::new(I64, &[3], &lengths),
                y: Data::new(dtype, &[m, n], &vec![7.0; m * n]),
                group_type: 0,
            };
            run(name, call.arguments(name)).unwrap();
            let wanted = (0..m * n).map(|at| {
                let (row, column) = (at / n, at % n);
                let Some(group) = of_rows.get(row) else { return 7.0 };
                let term = |inner: usize| {
                    let of = (group * groups + inner * groups / k) * n + column;
                    x[row * k + inner] * (w[(group * k + inner) * n + column] + offset[of]) * scale[of]
                };
                let added = if has_bias { bias[group * n + column] } else { 0.0 };
                (0..k).map(term).sum::<f64>() + added
            });
            let wanted: Vec<f64> = wanted.collect();
            let rounded = Data::new(dtype, &[m, n], &wanted).values();
            assert_eq!(call.y.values(), rounded, "{name}, {groups} groups");
        }
    }
}

#[test]
fn words_of_groups_are_refused_by_name() {
    use AclType::{BF16, F16, F32, I32};
    let data = |dtype, dims: &[usize]| Data::new(dtype, dims, &vec![1.0; dims.iter().product()]);
    let says = |change: &dyn Fn(&mut OfWords), part: &str| {
        let mut call = OfWords::small(F16);
        run("aclnnGroupedMatmulV4", call.arguments("aclnnGroupedMatmulV4")).unwrap();
        change(&mut call);
        refused("aclnnGroupedMatmulV4", call.arguments("aclnnGroupedMatmulV4"), &[part]);
    };
    let null = "is NULL and must be given for weight of INT32";
    says(&|call| call.scale = None, &format!("antiquantScaleOptional: {null}"));
    // CANN's host code requires offsets also if all are zero.
    says(&|call| call.offset = None, &format!("antiquantOffsetOptional: {null}"));
    says(
        &|call| call.scale = Some(data(BF16, &[1, 2, 8])),
        "antiquantScaleOptional: expected FLOAT16 for x of FLOAT16, found BFLOAT16",
    );
    says(
        &|call| call.scale = Some(data(F16, &[1, 3, 8])),
        "antiquantScaleOptional: expected groups of one size along K of 16, even for swapped dims, found 3",
    );
    says(
        &|call| call.offset = Some(data(F16, &[1, 8])),
        "antiquantOffsetOptional: tensor 0: expected [1, 2, 8], found [1, 8]",
    );
    says(
        &|call| call.scale = Some(data(F16, &[1, 2, 7])),
        "antiquantScaleOptional: tensor 0: expected [1, 2, 8], found [1, 2, 7]",
    );
    says(&|call| call.group_type = -1, "groupType: expected 0 (along M) for weight of INT32, found -1");
    // Without swapped dims, words are along the columns.
    says(
        &|call| call.weight = data(I32, &[1, 2, 8]),
        "weight: tensor 0: expected [1, 16, 1], found [1, 2, 8]",
    );
    says(
        &|call| {
            call.weight = data(I32, &[1, 8, 2]);
            call.weight.dims = vec![1, 2, 8];
            call.weight.strides = vec![16, 1, 2];
            let groups = data(F16, &[1, 16, 8]);
            (call.scale, call.offset) = (Some(groups.clone()), Some(groups));
        },
        "antiquantScaleOptional: expected groups of one size along K of 16, even for swapped dims, found 16",
    );
    says(
        &|call| call.bias = Some(data(F32, &[1, 8])),
        "biasOptional: expected FLOAT16 for x of FLOAT16, found FLOAT",
    );
    says(&|call| call.y = data(F32, &[2, 8]), "out: expected FLOAT16 for x of FLOAT16, found FLOAT");
    says(
        &|call| call.weight = data(F16, &[1, 16, 8]),
        "antiquantScaleOptional: expected NULL for weight of FLOAT16, found a list",
    );
}

#[test]
fn operands_of_two_types_multiply_in_the_common_one() {
    use AclType::{BF16, F16, F32};
    let (x, y) = (counted(6, 5), counted(12, 6));
    let (_, wanted) = naive(&x, &[2, 3], &y, &[3, 4]);
    for (name, batch) in [("aclnnMm", &[][..]), ("aclnnMatmul", &[][..]), ("aclnnBatchMatMul", &[1][..])] {
        for (a, b) in [(F32, F16), (BF16, F32), (F16, BF16)] {
            let (mut a, mut b) =
                (Data::new(a, &[batch, &[2, 3]].concat(), &x), Data::new(b, &[batch, &[3, 4]].concat(), &y));
            let mut out = Data::blank(F32, &[batch, &[2, 4]].concat());
            run(name, vec![Arg::T(&mut a), Arg::T(&mut b), Arg::T(&mut out), Arg::I(0)]).unwrap();
            assert_eq!(out.values(), wanted, "{name}");
        }
    }
}

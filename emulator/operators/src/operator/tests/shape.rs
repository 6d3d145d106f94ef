//! Operators that move elements or compute them from positions.

use super::*;
use crate::dtype::AclType;

fn iota(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

#[test]
fn cat_joins_along_any_dim_and_promotes() {
    for (dim, dims, wanted) in [
        (0i64, [3usize, 2], vec![0.0, 1.0, 0.0, 1.0, 2.0, 3.0]),
        (-1, [1, 6], vec![0.0, 1.0, 0.0, 1.0, 2.0, 3.0]),
    ] {
        let second: [usize; 2] = if dim == 0 { [2, 2] } else { [1, 4] };
        let (mut a, mut b) = (
            Data::new(AclType::F16, &[1, 2], &iota(2)),
            Data::new(AclType::F32, &second, &iota(4)).strided(),
        );
        let mut out = Data::new(AclType::F32, &dims, &[9.0; 6]).strided();
        run("aclnnCat", vec![Arg::List(vec![&mut a, &mut b]), Arg::I(dim), Arg::T(&mut out)]).unwrap();
        assert_eq!(out.values(), wanted);
    }
    let (mut a, mut b) =
        (Data::new(AclType::F32, &[2, 2], &iota(4)), Data::new(AclType::F32, &[2, 3], &iota(6)));
    let mut out = Data::blank(AclType::F32, &[4, 2]);
    let parts = ["tensors: tensor 1 is [2, 3], tensor 0 is [2, 2]: only dim 0 may differ"];
    refused("aclnnCat", vec![Arg::List(vec![&mut a, &mut b]), Arg::I(0), Arg::T(&mut out)], &parts);
    refused("aclnnCat", vec![Arg::List(vec![]), Arg::I(0), Arg::T(&mut out)], &["found an empty list"]);
    refused("aclnnCat", vec![Arg::NoList, Arg::I(0), Arg::T(&mut out)], &["tensors: is NULL"]);
    let mut empty = Data::blank(AclType::F32, &[0, 2]);
    let mut same = Data::blank(AclType::F32, &[2, 2]);
    run("aclnnCat", vec![Arg::List(vec![&mut empty, &mut a]), Arg::I(0), Arg::T(&mut same)]).unwrap();
    assert_eq!(same.values(), iota(4));
}

#[test]
fn permute_moves_dims() {
    let mut x = Data::new(AclType::I16, &[2, 3, 4], &iota(24));
    let mut out = Data::new(AclType::I16, &[4, 2, 3], &[0.0; 24]).strided();
    run("aclnnPermute", vec![Arg::T(&mut x), Arg::Ints(&[-1, 0, 1]), Arg::T(&mut out)]).unwrap();
    let wanted: Vec<f64> = (0..24).map(|i| ((i % 6) * 4 + i / 6) as f64).collect();
    assert_eq!(out.values(), wanted);
    refused(
        "aclnnPermute",
        vec![Arg::T(&mut x), Arg::Ints(&[0, 0, 1]), Arg::T(&mut out)],
        &["expected a permutation of 3"],
    );
    refused("aclnnPermute", vec![Arg::T(&mut x), Arg::NoInts, Arg::T(&mut out)], &["dims: is NULL"]);
}

#[test]
fn slices_count_from_both_ends_and_stay_inside() {
    let mut x = Data::new(AclType::F32, &[2, 6], &iota(12)).strided();
    for (start, end, step, picks) in [
        (1, 4, 1, vec![1, 2, 3]),
        (-2, 100, 1, vec![4, 5]),
        (0, 6, 4, vec![0, 4]),
        (3, 3, 1, vec![]),
        (5, 2, 1, vec![]),
    ] {
        let mut out = Data::blank(AclType::F32, &[2, picks.len()]);
        let arguments =
            vec![Arg::T(&mut x), Arg::I(1), Arg::I(start), Arg::I(end), Arg::I(step), Arg::T(&mut out)];
        run("aclnnSlice", arguments).unwrap();
        let wanted: Vec<f64> =
            [0, 6].iter().flat_map(|row| picks.iter().map(move |p| f64::from(row + p))).collect();
        assert_eq!(out.values(), wanted, "{start} {end} {step}");
    }
    let mut out = Data::blank(AclType::F32, &[2, 6]);
    let arguments = vec![Arg::T(&mut x), Arg::I(1), Arg::I(0), Arg::I(6), Arg::I(0), Arg::T(&mut out)];
    refused("aclnnSlice", arguments, &["step: expected a step above 0, found 0"]);
}

#[test]
fn repeat_and_expand() {
    let mut x = Data::new(AclType::F16, &[2, 1], &[1.0, 2.0]).strided();
    let mut out = Data::new(AclType::F16, &[2, 4, 3], &[0.0; 24]).strided();
    run("aclnnRepeat", vec![Arg::T(&mut x), Arg::Ints(&[2, 2, 3]), Arg::T(&mut out)]).unwrap();
    let block = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0];
    assert_eq!(out.values(), [block, block].concat());
    let mut wide = Data::blank(AclType::F16, &[3, 2, 2]);
    run("aclnnExpand", vec![Arg::T(&mut x), Arg::Ints(&[3, -1, 2]), Arg::T(&mut wide)]).unwrap();
    assert_eq!(wide.values(), [1.0, 1.0, 2.0, 2.0].repeat(3));
    let parts = ["repeats: expected 2 to 8 numbers of at least 0, found [2]"];
    refused("aclnnRepeat", vec![Arg::T(&mut x), Arg::Ints(&[2]), Arg::T(&mut out)], &parts);
    let parts = ["size: self [2, 1] does not expand to [3, 2]"];
    refused("aclnnExpand", vec![Arg::T(&mut x), Arg::Ints(&[3, 2]), Arg::T(&mut wide)], &parts);
    refused(
        "aclnnExpand",
        vec![Arg::T(&mut x), Arg::Ints(&[-1, 2, 2]), Arg::T(&mut wide)],
        &["does not expand"],
    );
    let mut none = Data::blank(AclType::F16, &[0, 3]);
    run("aclnnRepeat", vec![Arg::T(&mut x), Arg::Ints(&[0, 3]), Arg::T(&mut none)]).unwrap();
}

#[test]
fn pads_add_and_cut() {
    let mut x = Data::new(AclType::F32, &[2, 3], &iota(6)).strided();
    let mut out = Data::blank(AclType::F32, &[3, 4]);
    run("aclnnConstantPadNd", vec![Arg::T(&mut x), Arg::Ints(&[1, 0, 0, 1]), real(9.0), Arg::T(&mut out)])
        .unwrap();
    assert_eq!(out.values(), [9.0, 0.0, 1.0, 2.0, 9.0, 3.0, 4.0, 5.0, 9.0, 9.0, 9.0, 9.0]);
    let mut cut = Data::blank(AclType::F32, &[2, 3]);
    run("aclnnConstantPadNd", vec![Arg::T(&mut x), Arg::Ints(&[-1, 1]), real(9.0), Arg::T(&mut cut)])
        .unwrap();
    assert_eq!(cut.values(), [1.0, 2.0, 9.0, 4.0, 5.0, 9.0]);
    let parts = ["pad: dim 1 of extent 3 would become -1"];
    refused(
        "aclnnConstantPadNd",
        vec![Arg::T(&mut x), Arg::Ints(&[-2, -2]), real(0.0), Arg::T(&mut cut)],
        &parts,
    );
    refused(
        "aclnnConstantPadNd",
        vec![Arg::T(&mut x), Arg::Ints(&[1]), real(0.0), Arg::T(&mut cut)],
        &["up to 2 pairs"],
    );
}

#[test]
fn a_pad_may_cut_everything_on_one_side() {
    let mut x = Data::new(AclType::F32, &[3], &iota(3));
    let mut out = Data::blank(AclType::F32, &[2]);
    run("aclnnConstantPadNd", vec![Arg::T(&mut x), Arg::Ints(&[-4, 3]), real(7.0), Arg::T(&mut out)])
        .unwrap();
    assert_eq!(out.values(), [7.0, 7.0]);
}

#[test]
fn ranges_count_up_and_down() {
    let mut out = Data::blank(AclType::I64, &[4]);
    run("aclnnArange", vec![whole(2), whole(9), whole(2), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [2.0, 4.0, 6.0, 8.0]);
    let mut out = Data::blank(AclType::F32, &[3]);
    run("aclnnArange", vec![real(1.0), real(-0.5), real(-0.5), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0, 0.5, 0.0]);
    let mut long = Data::blank(AclType::I32, &[3000]);
    run("aclnnArange", vec![whole(0), whole(3000), whole(1), Arg::T(&mut long)]).unwrap();
    assert_eq!(long.values(), iota(3000));
    refused(
        "aclnnArange",
        vec![whole(0), whole(3), whole(-1), Arg::T(&mut out)],
        &["step: -1 does not lead from 0 to 3"],
    );
    refused(
        "aclnnArange",
        vec![whole(0), whole(4), whole(1), Arg::T(&mut out)],
        &["out: expected ceil((end - start) / step) elements, 4"],
    );
    let mut ints = Data::blank(AclType::I32, &[2]);
    refused(
        "aclnnArange",
        vec![real(0.0), real(1.0), real(0.5), Arg::T(&mut ints)],
        &["cannot hold a range of fractions"],
    );
}

#[test]
fn triangles_of_batches() {
    for diagonal in [-2i64, -1, 0, 1, 3] {
        let values: Vec<f64> = iota(24).iter().map(|v| v + 1.0).collect();
        let mut x = Data::new(AclType::BF16, &[2, 3, 4], &values).strided();
        let mut out = Data::new(AclType::BF16, &[2, 3, 4], &[0.0; 24]).strided();
        let keep = |upper: bool| -> Vec<f64> {
            (0..24usize)
                .map(|i| {
                    let place = (i % 4) as i64 - (i / 4 % 3) as i64;
                    let kept = if upper { place >= diagonal } else { place <= diagonal };
                    if kept { values[i] } else { 0.0 }
                })
                .collect()
        };
        run("aclnnTriu", vec![Arg::T(&mut x), Arg::I(diagonal), Arg::T(&mut out)]).unwrap();
        assert_eq!(out.values(), keep(true));
        run("aclnnTril", vec![Arg::T(&mut x), Arg::I(diagonal), Arg::T(&mut out)]).unwrap();
        assert_eq!(out.values(), keep(false));
        run("aclnnInplaceTriu", vec![Arg::T(&mut x), Arg::I(diagonal)]).unwrap();
        assert_eq!(x.values(), keep(true));
    }
    let (mut x, mut out) = (Data::new(AclType::F32, &[3], &iota(3)), Data::blank(AclType::F32, &[3]));
    refused(
        "aclnnTriu",
        vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut out)],
        &["expected 2 to 8 dims, found 1"],
    );
}

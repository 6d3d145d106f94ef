//! Tests of lookups and scatters.

use super::*;
use crate::dtype::AclType;

fn indices(dtype: AclType, dims: &[usize], values: &[f64]) -> Data {
    Data::new(dtype, dims, values)
}

#[test]
fn embedding_looks_rows_up_for_every_type_and_rank() {
    for dtype in [AclType::F32, AclType::F16, AclType::BF16, AclType::I64, AclType::I8, AclType::Bool] {
        for index_type in [AclType::I32, AclType::I64] {
            for dims in [&[4usize][..], &[2, 2], &[], &[0]] {
                let table: Vec<f64> = counted(15, 1)
                    .iter()
                    .map(|v| if dtype == AclType::Bool { v % 2.0 } else { *v })
                    .collect();
                let ids = [4.0, 0.0, 2.0, 4.0];
                let count: usize = dims.iter().product();
                let mut weight = Data::new(dtype, &[5, 3], &table).strided();
                let mut index = indices(index_type, dims, &ids[..count]);
                let shape = [dims, &[3]].concat();
                let mut out = Data::new(dtype, &shape, &vec![0.0; count * 3]).strided();
                run("aclnnEmbedding", vec![Arg::T(&mut weight), Arg::T(&mut index), Arg::T(&mut out)])
                    .unwrap();
                let wanted: Vec<f64> =
                    (0..count * 3).map(|i| table[ids[i / 3] as usize * 3 + i % 3]).collect();
                close(&out.values(), &wanted, 0.0, &format!("{dtype} {index_type} {dims:?}"));
            }
        }
    }
}

#[test]
fn indices_out_of_range_fail_when_the_operator_runs() {
    let mut weight = Data::new(AclType::F32, &[5, 3], &[0.0; 15]);
    let mut out = Data::blank(AclType::F32, &[2, 3]);
    for (bad, says) in
        [(5.0, "index 5 at position 1 is outside 0..5"), (-1.0, "index -1 at position 1 is outside 0..5")]
    {
        let mut index = indices(AclType::I64, &[2], &[1.0, bad]);
        let error = run("aclnnEmbedding", vec![Arg::T(&mut weight), Arg::T(&mut index), Arg::T(&mut out)])
            .unwrap_err();
        assert_eq!(error, format!("indices: {says}"));
    }
    let mut float = indices(AclType::F32, &[2], &[0.0; 2]);
    let parts = ["indices: expected an element type of INT32, INT64"];
    refused("aclnnEmbedding", vec![Arg::T(&mut weight), Arg::T(&mut float), Arg::T(&mut out)], &parts);
    let mut index = indices(AclType::I64, &[3], &[0.0; 3]);
    refused(
        "aclnnEmbedding",
        vec![Arg::T(&mut weight), Arg::T(&mut index), Arg::T(&mut out)],
        &["out: expected shape [3, 3]"],
    );
    let mut half = Data::blank(AclType::F16, &[3, 3]);
    refused(
        "aclnnEmbedding",
        vec![Arg::T(&mut weight), Arg::T(&mut index), Arg::T(&mut half)],
        &["out: expected FLOAT"],
    );
}

#[test]
fn selections_replace_a_dim_by_the_dims_of_the_index() {
    let values = counted(24, 2);
    for (dim, axis) in [(0i64, 0usize), (1, 1), (-1, 2)] {
        let dims = [2usize, 3, 4];
        let picks = [1.0, 0.0, 1.0];
        let mut x = Data::new(AclType::F16, &dims, &values).strided();
        let mut index = indices(AclType::I32, &[3], &picks);
        let mut shape = dims;
        shape[axis] = 3;
        let (mut selected, mut gathered) =
            (Data::blank(AclType::F16, &shape), Data::blank(AclType::F16, &shape));
        let arguments = vec![Arg::T(&mut x), Arg::I(dim), Arg::T(&mut index), Arg::T(&mut selected)];
        run("aclnnIndexSelect", arguments).unwrap();
        run("aclnnGatherV2", vec![Arg::T(&mut x), Arg::I(dim), Arg::T(&mut index), Arg::T(&mut gathered)])
            .unwrap();
        let inner: usize = dims[axis + 1..].iter().product();
        let wanted: Vec<f64> = (0..shape.iter().product())
            .map(|i| {
                let (outer, pick, rest) = (i / (3 * inner), i / inner % 3, i % inner);
                values[(outer * dims[axis] + picks[pick] as usize) * inner + rest]
            })
            .collect();
        assert_eq!((selected.values(), gathered.values()), (wanted.clone(), wanted));
    }
    let mut x = Data::new(AclType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let mut one = indices(AclType::I64, &[], &[2.0]);
    let mut column = Data::blank(AclType::F32, &[2, 1]);
    run("aclnnIndexSelect", vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut one), Arg::T(&mut column)]).unwrap();
    assert_eq!(column.values(), [3.0, 6.0], "a single index keeps the dim");
    let mut square = indices(AclType::I64, &[2, 2], &[0.0, 1.0, 2.0, 0.0]);
    let mut out = Data::blank(AclType::F32, &[2, 2, 2]);
    run("aclnnGatherV2", vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut square), Arg::T(&mut out)]).unwrap();
    assert_eq!(out.values(), [1.0, 2.0, 3.0, 1.0, 4.0, 5.0, 6.0, 4.0]);
    let parts = ["index: expected 0 to 1 dims, found 2"];
    refused(
        "aclnnIndexSelect",
        vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut square), Arg::T(&mut out)],
        &parts,
    );
    let mut far = indices(AclType::I64, &[1], &[3.0]);
    let mut out = Data::blank(AclType::F32, &[2, 1]);
    let error = run("aclnnGatherV2", vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut far), Arg::T(&mut out)])
        .unwrap_err();
    assert_eq!(error, "index: index 3 at position 0 is outside -3..3");
}

#[test]
fn gather_takes_one_index_per_element_and_negative_ones() {
    let mut x = Data::new(AclType::BF16, &[2, 4], &counted(8, 3)).strided();
    let values = x.values();
    let mut index = indices(AclType::I64, &[2, 3], &[3.0, -1.0, 0.0, -4.0, 1.0, 2.0]).strided();
    let mut out = Data::blank(AclType::BF16, &[2, 3]);
    run("aclnnGather", vec![Arg::T(&mut x), Arg::I(-1), Arg::T(&mut index), Arg::T(&mut out)]).unwrap();
    let wanted = [values[3], values[3], values[0], values[4], values[5], values[6]];
    assert_eq!(out.values(), wanted);
    let mut tall = indices(AclType::I64, &[3, 3], &[0.0; 9]);
    let mut out = Data::blank(AclType::BF16, &[3, 3]);
    let parts = ["index: [3, 3] must have the rank of self [2, 4] and no greater extents"];
    refused("aclnnGather", vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut tall), Arg::T(&mut out)], &parts);
    let mut empty = Data::blank(AclType::BF16, &[2, 0]);
    let mut index = indices(AclType::I64, &[2, 1], &[0.0; 2]);
    let mut out = Data::blank(AclType::BF16, &[2, 1]);
    let parts = ["self: dim 1 is empty but index has 2 elements"];
    refused("aclnnGather", vec![Arg::T(&mut empty), Arg::I(1), Arg::T(&mut index), Arg::T(&mut out)], &parts);
    let mut index = indices(AclType::I64, &[2, 1], &[0.0, -5.0]);
    let error = run("aclnnGather", vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut index), Arg::T(&mut out)])
        .unwrap_err();
    assert_eq!(error, "index: index -5 at position 1 is outside -4..4");
}

#[test]
fn index_copy_writes_rows_of_a_cache() {
    for dtype in [AclType::F16, AclType::F32, AclType::I64] {
        let mut cache = Data::new(dtype, &[4, 2, 3], &[0.0; 24]).strided();
        let mut index = indices(AclType::I32, &[2], &[3.0, 1.0]);
        let values: Vec<f64> = (1..=12).map(f64::from).collect();
        let mut source = Data::new(dtype, &[2, 2, 3], &values).strided();
        let arguments = vec![Arg::T(&mut cache), Arg::I(0), Arg::T(&mut index), Arg::T(&mut source)];
        run("aclnnInplaceIndexCopy", arguments).unwrap();
        let found = cache.values();
        assert_eq!((&found[18..], &found[6..12]), (&values[..6], &values[6..]));
        assert!(found[..6].iter().chain(&found[12..18]).all(|&value| value == 0.0));
    }
    let mut cache = Data::new(AclType::F32, &[2, 4], &[0.0; 8]);
    let mut index = indices(AclType::I64, &[2], &[0.0, 4.0]);
    let mut source = Data::new(AclType::F32, &[2, 2], &[1.0; 4]);
    let arguments = vec![Arg::T(&mut cache), Arg::I(1), Arg::T(&mut index), Arg::T(&mut source)];
    assert_eq!(
        run("aclnnInplaceIndexCopy", arguments).unwrap_err(),
        "index: index 4 at position 1 is outside 0..4"
    );
    assert_eq!(cache.values(), [0.0; 8], "nothing is written before every index is checked");
    let mut half = Data::new(AclType::F16, &[2, 2], &[1.0; 4]);
    let arguments = vec![Arg::T(&mut cache), Arg::I(1), Arg::T(&mut index), Arg::T(&mut half)];
    refused(
        "aclnnInplaceIndexCopy",
        arguments,
        &["source: expected FLOAT (the type of selfRef), found FLOAT16"],
    );
    let mut wrong = Data::new(AclType::F32, &[2, 3], &[1.0; 6]);
    let arguments = vec![Arg::T(&mut cache), Arg::I(1), Arg::T(&mut index), Arg::T(&mut wrong)];
    refused("aclnnInplaceIndexCopy", arguments, &["source: expected shape [2, 2]"]);
}

#[test]
fn scatter_add_and_index_add_accumulate() {
    for dtype in [AclType::F32, AclType::F16, AclType::I32] {
        let mut x = Data::new(dtype, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut index = indices(AclType::I64, &[2, 2], &[0.0, 2.0, 0.0, 2.0]);
        let mut src = Data::new(dtype, &[3, 2], &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        let mut out = Data::blank(dtype, &[3, 2]);
        let arguments =
            vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut index), Arg::T(&mut src), Arg::T(&mut out)];
        run("aclnnScatterAdd", arguments).unwrap();
        assert_eq!(
            out.values(),
            [41.0, 2.0, 3.0, 4.0, 5.0, 66.0],
            "only the corner the index covers is added"
        );

        let mut index = indices(AclType::I32, &[3], &[1.0, 1.0, 0.0]);
        let mut source = Data::new(dtype, &[3, 3], &counted(9, 4));
        let mut x = Data::new(dtype, &[3, 2], &[0.0; 6]);
        let mut source_rows = Data::new(dtype, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let arguments = vec![
            Arg::T(&mut x),
            Arg::I(0),
            Arg::T(&mut index),
            Arg::T(&mut source_rows),
            whole(2),
            Arg::T(&mut out),
        ];
        run("aclnnIndexAdd", arguments).unwrap();
        assert_eq!(out.values(), [10.0, 12.0, 8.0, 12.0, 0.0, 0.0]);
        let arguments = vec![
            Arg::T(&mut x),
            Arg::I(0),
            Arg::T(&mut index),
            Arg::T(&mut source),
            whole(2),
            Arg::T(&mut out),
        ];
        refused("aclnnIndexAdd", arguments, &["source: expected shape [3, 2]"]);
    }
}

#[test]
fn repeated_additions_are_rounded_once() {
    // 2048 + 1 is 2048 in f16; 2048 + 1 + 1 is 2050.
    let mut x = Data::new(AclType::F16, &[1], &[2048.0]);
    let mut index = indices(AclType::I64, &[2], &[0.0, 0.0]);
    let mut src = Data::new(AclType::F16, &[2], &[1.0, 1.0]);
    let mut out = Data::blank(AclType::F16, &[1]);
    let arguments = vec![Arg::T(&mut x), Arg::I(0), Arg::T(&mut index), Arg::T(&mut src), Arg::T(&mut out)];
    run("aclnnScatterAdd", arguments).unwrap();
    assert_eq!(out.values(), [2050.0]);
}

#[test]
fn scatter_update_writes_each_batch_at_its_own_place() {
    let mut data = Data::new(AclType::F16, &[2, 1, 4, 2], &[0.0; 16]);
    let mut starts = indices(AclType::I64, &[2], &[2.0, 0.0]);
    let mut updates = Data::new(AclType::F16, &[2, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let arguments = vec![Arg::T(&mut data), Arg::T(&mut starts), Arg::T(&mut updates), Arg::I(-2)];
    run("aclnnInplaceScatterUpdate", arguments).unwrap();
    let wanted = [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(data.values(), wanted);
    let mut late = indices(AclType::I64, &[2], &[3.0, 0.0]);
    let arguments = vec![Arg::T(&mut data), Arg::T(&mut late), Arg::T(&mut updates), Arg::I(-2)];
    let error = run("aclnnInplaceScatterUpdate", arguments).unwrap_err();
    assert_eq!(error, "indices: index 3 at position 0 is outside 0..3 (the updates are 2 long)");
    let arguments = vec![Arg::T(&mut data), Arg::T(&mut starts), Arg::T(&mut updates), Arg::I(0)];
    refused("aclnnInplaceScatterUpdate", arguments, &["axis: expected a dim other than 0"]);
    let mut empty = Data::blank(AclType::F16, &[2, 1, 0, 2]);
    let arguments = vec![Arg::T(&mut data), Arg::T(&mut starts), Arg::T(&mut empty), Arg::I(2)];
    refused("aclnnInplaceScatterUpdate", arguments, &["updates: expected a tensor with elements"]);
}

#[test]
fn one_hot_sets_one_class_per_index() {
    let mut x = indices(AclType::I32, &[3], &[1.0, 3.0, 0.0]);
    let (mut on, mut off) = (Data::new(AclType::F32, &[1], &[1.0]), Data::new(AclType::F32, &[], &[-1.0]));
    for (axis, dims, wanted) in [
        (-1, [3usize, 2], [-1.0, 1.0, -1.0, -1.0, 1.0, -1.0]),
        (0, [2, 3], [-1.0, -1.0, 1.0, 1.0, -1.0, -1.0]),
    ] {
        let mut out = Data::new(AclType::F32, &dims, &[0.0; 6]).strided();
        let arguments = vec![
            Arg::T(&mut x),
            Arg::I(2),
            Arg::T(&mut on),
            Arg::T(&mut off),
            Arg::I(axis),
            Arg::T(&mut out),
        ];
        run("aclnnOneHot", arguments).unwrap();
        assert_eq!(out.values(), wanted, "axis {axis}; class 3 of 2 lights nothing");
    }
    let mut out = Data::blank(AclType::F32, &[3, 2]);
    let mut two = Data::new(AclType::F32, &[2], &[0.0; 2]);
    let arguments =
        vec![Arg::T(&mut x), Arg::I(2), Arg::T(&mut two), Arg::T(&mut off), Arg::I(-1), Arg::T(&mut out)];
    refused("aclnnOneHot", arguments, &["onValue: expected one element, found [2]"]);
}

#[test]
fn a_result_without_elements_asks_for_nothing() {
    let mut x = Data::new(AclType::F32, &[2, 3], &[1.0; 6]);
    let mut indices = [Data::blank(AclType::I64, &[0]), Data::blank(AclType::I64, &[0])];
    let (mut none, mut one) = (Data::blank(AclType::F32, &[0]), Data::blank(AclType::F32, &[1]));
    run("aclnnIndex", vec![Arg::T(&mut x), Arg::List(indices.iter_mut().collect()), Arg::T(&mut none)])
        .unwrap();
    let arguments = vec![Arg::T(&mut x), Arg::List(indices.iter_mut().collect()), Arg::T(&mut one)];
    refused("aclnnIndex", arguments, &["indices: expected at least one tensor with elements"]);
}

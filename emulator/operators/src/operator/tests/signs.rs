//! Sign packing, with documented examples of `torch_npu`.

use super::*;
use crate::dtype::AclType;

/// `npu_sign_bits_pack`: zero is positive, missing signs are negative.
#[test]
fn signs_are_bits_from_the_lowest_on() {
    let x = [5.0, 4.0, 3.0, 2.0, 0.0, -1.0, -2.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0];
    for dtype in [AclType::F32, AclType::F16] {
        let (mut x, mut bits) = (Data::new(dtype, &[14], &x).strided(), Data::blank(AclType::U8, &[2, 1]));
        run("aclnnSignBitsPack", vec![Arg::T(&mut x), Arg::I(2), Arg::T(&mut bits)]).unwrap();
        assert_eq!(bits.values(), [159.0, 15.0], "{dtype}");
        let mut bits = Data::new(AclType::U8, &[2], &[159.0, 15.0]).strided();
        let mut signs = Data::blank(dtype, &[2, 8]).strided();
        run("aclnnSignBitsUnpack", vec![Arg::T(&mut bits), Arg::I(2), Arg::D(dtype), Arg::T(&mut signs)])
            .unwrap();
        let wanted = [1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0];
        assert_eq!(signs.values(), wanted, "{dtype}");
    }
}

#[test]
fn many_signs_come_back() {
    // More than a tile, and not a multiple of eight.
    let values: Vec<f64> = (0..300_005_u64).map(|i| if i * i % 7 < 3 { 0.5 } else { -0.25 }).collect();
    let bytes = values.len().div_ceil(8);
    let (mut x, mut bits) =
        (Data::new(AclType::F32, &[values.len()], &values), Data::blank(AclType::U8, &[1, bytes]));
    run("aclnnSignBitsPack", vec![Arg::T(&mut x), Arg::I(1), Arg::T(&mut bits)]).unwrap();
    let mut flat = Data::new(AclType::U8, &[bytes], &bits.values());
    let mut signs = Data::blank(AclType::F32, &[1, 8 * bytes]);
    run("aclnnSignBitsUnpack", vec![Arg::T(&mut flat), Arg::I(1), Arg::D(AclType::F32), Arg::T(&mut signs)])
        .unwrap();
    let padded = values.iter().copied().chain(std::iter::repeat(-1.0)).take(8 * bytes);
    assert!(padded.zip(signs.values()).all(|(x, sign)| sign == x.signum()));
}

#[test]
fn rows_of_signs_that_do_not_divide_are_refused() {
    let (mut x, mut bits) = (Data::blank(AclType::F32, &[24]), Data::blank(AclType::U8, &[2, 1]));
    refused(
        "aclnnSignBitsPack",
        vec![Arg::T(&mut x), Arg::I(2), Arg::T(&mut bits)],
        &["size", "3 bytes of signs"],
    );
    let (mut x, mut signs) = (Data::blank(AclType::U8, &[1]), Data::blank(AclType::F32, &[3, 2]));
    let arguments = vec![Arg::T(&mut x), Arg::I(3), Arg::D(AclType::F32), Arg::T(&mut signs)];
    refused("aclnnSignBitsUnpack", arguments, &["size", "8 bits of self"]);
}

//! Construction, copies and splitting of complex numbers.

use super::*;

fn complex(parts: Data) -> Data {
    let last = parts.dims.len() - 1;
    let strides = parts.strides[..last].iter().map(|stride| stride / 2).collect();
    Data { dtype: AclType::C64, dims: parts.dims[..last].to_vec(), strides, ..parts }
}

fn parts(numbers: &Data) -> Vec<f64> {
    let strides = numbers.strides.iter().map(|stride| stride * 2).chain([1]).collect();
    let dims = [&numbers.dims[..], &[2]].concat();
    Data { dtype: AclType::F32, dims, strides, offset: 2 * numbers.offset, ..numbers.clone() }.values()
}

/// Allocates contiguous memory, or in reversed dim order with an offset.
fn room(dims: &[usize], is_strided: bool) -> Data {
    let plain = complex(Data::blank(AclType::F32, &[dims, &[2]].concat()));
    if !is_strided {
        return plain;
    }
    let mut strides = vec![0isize; dims.len()];
    let mut step = 2isize;
    for (stride, &dim) in strides.iter_mut().zip(dims) {
        *stride = step;
        step *= dim.max(1) as isize;
    }
    Data { memory: vec![0x5555_5555_5555_5555; step as usize + 1], strides, offset: 1, ..plain }
}

#[test]
fn complex_numbers_are_made_copied_and_taken_apart() {
    for dims in [&[2, 3][..], &[], &[0, 4], &[700]] {
        let len = dims.iter().product();
        for is_strided in [false, true] {
            let lay = |data: Data| if is_strided { data.strided() } else { data };
            let (lengths, angles) = (varied(len, 1), varied(len, 2));
            let (mut x, mut angle) =
                (lay(Data::new(AclType::F32, dims, &lengths)), lay(Data::new(AclType::F32, dims, &angles)));
            let mut out = room(dims, is_strided);
            run("aclnnPolar", vec![Arg::T(&mut x), Arg::T(&mut angle), Arg::T(&mut out)]).unwrap();
            let wanted: Vec<f64> = lengths
                .iter()
                .zip(&angles)
                .flat_map(|(x, angle)| [x * angle.cos(), x * angle.sin()])
                .collect();
            close(&parts(&out), &wanted, 1e-6, "polar");

            run("aclnnComplex", vec![Arg::T(&mut x), Arg::T(&mut angle), Arg::T(&mut out)]).unwrap();
            let wanted: Vec<f64> = lengths.iter().zip(&angles).flat_map(|(x, angle)| [*x, *angle]).collect();
            assert_eq!(parts(&out), wanted);
            let mut copy = room(dims, !is_strided);
            run("aclnnInplaceCopy", vec![Arg::T(&mut copy), Arg::T(&mut out)]).unwrap();
            assert_eq!(parts(&copy), wanted);
            let mut real = lay(Data::blank(AclType::F32, dims));
            run("aclnnReal", vec![Arg::T(&mut copy), Arg::T(&mut real)]).unwrap();
            assert_eq!(real.values(), lengths);
        }
    }
    let (mut row, mut column) =
        (Data::new(AclType::F32, &[2], &[1.0, 2.0]), Data::new(AclType::F32, &[2, 1], &[3.0, 4.0]));
    let mut out = room(&[2, 2], false);
    run("aclnnComplex", vec![Arg::T(&mut row), Arg::T(&mut column), Arg::T(&mut out)]).unwrap();
    assert_eq!(parts(&out), [1.0, 3.0, 2.0, 3.0, 1.0, 4.0, 2.0, 4.0]);
}

#[test]
fn a_cast_adds_or_drops_the_imaginary_part() {
    for from in [AclType::F32, AclType::F16, AclType::F64, AclType::I64, AclType::U8] {
        let mut x = Data::new(from, &[2, 2], &[0.0, 1.0, 2.0, 3.0]).strided();
        let mut numbers = room(&[2, 2], true);
        run("aclnnCast", vec![Arg::T(&mut x), Arg::D(AclType::C64), Arg::T(&mut numbers)]).unwrap();
        assert_eq!(parts(&numbers), [0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0], "{from}");
        let mut same = room(&[2, 2], false);
        run("aclnnCast", vec![Arg::T(&mut numbers), Arg::D(AclType::C64), Arg::T(&mut same)]).unwrap();
        assert_eq!(parts(&same), parts(&numbers), "{from}");
        let mut back = Data::blank(from, &[2, 2]);
        run("aclnnCast", vec![Arg::T(&mut same), Arg::D(from), Arg::T(&mut back)]).unwrap();
        assert_eq!(back.values(), [0.0, 1.0, 2.0, 3.0], "{from}");
    }
    let (mut x, mut y) =
        (Data::new(AclType::F32, &[2], &[1.5, -2.0]), Data::new(AclType::F32, &[2], &[7.0, 8.0]));
    let (mut numbers, mut real) = (room(&[2], false), Data::blank(AclType::F32, &[2]));
    run("aclnnComplex", vec![Arg::T(&mut x), Arg::T(&mut y), Arg::T(&mut numbers)]).unwrap();
    run("aclnnCast", vec![Arg::T(&mut numbers), Arg::D(AclType::F32), Arg::T(&mut real)]).unwrap();
    assert_eq!(real.values(), [1.5, -2.0]);
}

#[test]
fn what_has_no_parts_and_what_loses_them_is_refused() {
    let (mut x, mut out) = (Data::blank(AclType::F32, &[2]), room(&[2], false));
    let into = vec![Arg::T(&mut x), Arg::T(&mut out)];
    refused("aclnnInplaceCopy", into, &["src: COMPLEX64 is not converted to FLOAT"]);
    refused(
        "aclnnInplaceCopy",
        vec![Arg::T(&mut out), Arg::T(&mut x)],
        &["FLOAT is not converted to COMPLEX64"],
    );
    let mut half = Data::blank(AclType::F16, &[2]);
    refused(
        "aclnnReal",
        vec![Arg::T(&mut out), Arg::T(&mut half)],
        &["out: expected FLOAT (by the type of self), found FLOAT16"],
    );
    refused(
        "aclnnAdd",
        vec![Arg::T(&mut out), Arg::T(&mut x), whole(1), Arg::T(&mut half)],
        &["found COMPLEX64"],
    );
    let mut other = Data::blank(AclType::F32, &[3]);
    refused(
        "aclnnPolar",
        vec![Arg::T(&mut x), Arg::T(&mut other), Arg::T(&mut out)],
        &["angle: expected shape [2]"],
    );
}

#[test]
fn complex_numbers_are_padded_and_cleared() {
    let values = varied(12, 1);
    let mut x = complex(Data::new(AclType::F32, &[2, 3, 2], &values));
    let mut out = room(&[2, 5], true);
    let call = vec![Arg::T(&mut x), Arg::Ints(&[1, 1]), real(0.5), Arg::T(&mut out)];
    run("aclnnConstantPadNd", call).unwrap();
    let row = |at: usize| [&[0.5, 0.0][..], &values[at * 6..at * 6 + 6], &[0.5, 0.0]].concat();
    assert_eq!(parts(&out), [row(0), row(1)].concat());
    run("aclnnInplaceZero", vec![Arg::T(&mut out)]).unwrap();
    assert_eq!(parts(&out), [0.0; 20]);
}

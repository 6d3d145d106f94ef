//! Exponent byte packing.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::*;

/// Returns values of many exponents and both signs, with infinity.
fn spread(n: usize, seed: u64) -> Vec<f64> {
    let mut random = SplitMix64::seed_from_u64(seed);
    let value = |_| {
        let bits = random.next_u64();
        match bits >> 60 {
            0 => f64::INFINITY,
            1 => -0.0,
            _ => ((bits as i32) as f64) * ((bits >> 32 & 31) as f64 - 16.0).exp2() / 65536.0,
        }
    };
    (0..n).map(value).collect()
}

fn bytes(data: &Data, count: usize) -> Vec<u8> {
    data.memory.iter().flat_map(|word| word.to_le_bytes()).take(count).collect()
}

fn decode([mantissa, fixed, var, pdf, out]: [&mut Data; 5], reshuffled: bool) -> Result<(), String> {
    let packed = [mantissa, fixed, var, pdf].map(Arg::T);
    run("aclnnHansDecode", packed.into_iter().chain([Arg::B(reshuffled), Arg::T(out)]).collect())
}

#[test]
fn what_is_packed_comes_back() {
    for (dtype, seed) in FLOATS.into_iter().zip(1..) {
        for (count, reshuffled, counted) in
            [(32768, false, true), (65536 + 64, true, true), (65536, false, false)]
        {
            let size = dtype.size();
            let mut x = Data::new(dtype, &[count], &spread(count, seed));
            let needed = count + count / 64 + 8448 * (count / 32768) + 512;
            let first = if reshuffled { needed } else { 1024 };
            let blank = |bytes: usize| Data::blank(dtype, &[bytes.div_ceil(size)]);
            let (mut mantissa, mut fixed, mut var) =
                (Data::blank(dtype, &[count * (size - 1) / size]), blank(first), blank(needed - first));
            let mut pdf = Data::new(AclType::I32, &[1, 256], &counted_before());
            let mut out = Data::blank(dtype, &[count]);
            let arguments = vec![
                Arg::T(&mut x),
                Arg::T(&mut pdf),
                Arg::B(counted),
                Arg::B(reshuffled),
                Arg::T(&mut mantissa),
                Arg::T(&mut fixed),
                Arg::T(&mut var),
            ];
            run("aclnnHansEncode", arguments).unwrap();

            let all = bytes(&x, count * size);
            let mantissas: Vec<u8> =
                all.chunks(size).flat_map(|element| element[..size - 1].to_vec()).collect();
            assert_eq!(bytes(&mantissa, mantissas.len()), mantissas, "{dtype}");
            let mut wanted = counted_before();
            if counted {
                wanted = vec![0.0; 256];
                all.chunks(size).for_each(|element| wanted[usize::from(element[size - 1])] += 1.0);
            }
            assert_eq!(pdf.values(), wanted, "{dtype}");

            decode([&mut mantissa, &mut fixed, &mut var, &mut pdf, &mut out], reshuffled).unwrap();
            assert_eq!(bytes(&out, count * size), all, "{dtype}");

            fixed.memory[0] ^= 1;
            let failed =
                decode([&mut mantissa, &mut fixed, &mut var, &mut pdf, &mut out], reshuffled).unwrap_err();
            assert!(failed.contains("fixed: expected an output of this emulator's"), "{failed}");
        }
    }
}

fn counted_before() -> Vec<f64> {
    (0..256).map(f64::from).collect()
}

#[test]
fn rooms_that_are_too_small_are_refused() {
    let encode = |count: usize, mantissa: usize, fixed: usize| {
        let mut x = Data::blank(AclType::F32, &[count]);
        let mut pdf = Data::blank(AclType::I32, &[256]);
        let [mut mantissa, mut fixed, mut var] =
            [mantissa, fixed, 64].map(|count| Data::blank(AclType::F32, &[count]));
        let outputs = [&mut mantissa, &mut fixed, &mut var].map(Arg::T);
        let inputs = [Arg::T(&mut x), Arg::T(&mut pdf), Arg::B(true), Arg::B(false)];
        run("aclnnHansEncode", inputs.into_iter().chain(outputs).collect()).unwrap_err()
    };
    assert!(encode(32704, 24528, 20000).contains("inputTensor: expected a multiple of 64 elements"));
    assert!(encode(32768, 24575, 20000).contains("mantissaOut: expected 24576 elements"));
    assert!(encode(32768, 24576, 10000).contains("fixedOut: expected at least 512 bytes, and 42240"));
}

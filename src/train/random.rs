//! Random bits as a function of a number, the same on every host and in every version.

/// Mixes 64 bits by a bijection: the first number of `SplitMix64` (Steele, Lea, Flood 2014). A
/// change of one bit changes about half of the result's bits.
pub(super) const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_number() {
        assert_eq!(mixed(1_234_567), 6_457_827_717_110_365_317);
    }
}

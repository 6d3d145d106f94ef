//! Selection of the vector instruction set, once per process.
//!
//! Invariants: an unavailable instruction set is never used. An unknown or unavailable name in
//! `ASCEND_EMULATOR_ISA` is an error when a machine is built. `dispatched!` compiles a function for
//! every set.

use std::sync::OnceLock;

/// An instruction set, which includes the earlier sets of its processor kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain loops with the target's baseline: SSE2 on x86-64, NEON on aarch64.
    Portable,
    /// NEON with fused multiply-add, on every aarch64 server.
    Neon,
    /// AVX2 with FMA and F16C (x86-64-v3).
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL (x86-64-v4).
    Avx512,
    /// AVX-512 with products of bf16 pairs.
    Avx512Bf16,
}

/// Environment variable that selects an instruction set; the best by default.
pub const ISA_VARIABLE: &str = "ASCEND_EMULATOR_ISA";

impl Isa {
    /// The instruction sets, in ascending order.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Neon, Self::Avx2, Self::Avx512, Self::Avx512Bf16];

    /// Returns the name used in [`ISA_VARIABLE`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
        }
    }

    /// Returns whether this processor supports the instruction set.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let v3 = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2");
            let v4 = v3
                && has!("avx512f")
                && has!("avx512bw")
                && has!("avx512cd")
                && has!("avx512dq")
                && has!("avx512vl");
            match self {
                Self::Portable => true,
                Self::Neon => false,
                Self::Avx2 => v3,
                Self::Avx512 => v4,
                Self::Avx512Bf16 => v4 && has!("avx512bf16"),
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            self == Self::Portable || self == Self::Neon && std::arch::is_aarch64_feature_detected!("neon")
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            self == Self::Portable
        }
    }

    fn choose(asked: Option<&str>) -> Result<Self, String> {
        let available = || Self::ALL.into_iter().filter(|isa| isa.is_available());
        let Some(asked) = asked.filter(|text| !text.is_empty()) else {
            return Ok(available().next_back().unwrap_or(Self::Portable));
        };
        available().find(|isa| isa.name() == asked).ok_or_else(|| {
            let names: Vec<&str> = available().map(Self::name).collect();
            let found = if Self::ALL.iter().any(|isa| isa.name() == asked) {
                "which this processor lacks"
            } else {
                "which is no instruction set"
            };
            format!("{ISA_VARIABLE}={asked}, {found}; possible here: {}", names.join(", "))
        })
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the instruction set in use.
///
/// # Errors
///
/// The value of [`ISA_VARIABLE`] is unusable.
pub fn chosen() -> Result<Isa, String> {
    static CHOSEN: OnceLock<Result<Isa, String>> = OnceLock::new();
    CHOSEN.get_or_init(|| Isa::choose(std::env::var(ISA_VARIABLE).ok().as_deref())).clone()
}

/// Returns the instruction set in use.
///
/// # Panics
///
/// [`ISA_VARIABLE`] is unusable. Building a machine reports this earlier.
#[inline]
pub fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(|| chosen().unwrap_or_else(|problem| panic!("{problem}")))
}

/// Defines a function that is compiled for every instruction set. The body must not fuse
/// multiplications, so that all versions give the same bits. aarch64 has one version, with NEON.
macro_rules! dispatched {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$meta])*
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls functions for the instructions in use"))]
        $vis fn $name($($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $out)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
                fn avx2($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
                fn avx512($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }
                match $crate::simd::isa::isa() {
                    // SAFETY: a set in use is available (`Isa::is_available`).
                    $crate::simd::isa::Isa::Avx512 | $crate::simd::isa::Isa::Avx512Bf16 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::isa::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::isa::Isa::Portable | $crate::simd::isa::Isa::Neon => {}
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use dispatched;

#[cfg(test)]
mod tests {
    use super::*;

    dispatched! {
        fn increment(values: &mut [f32]) -> usize {
            values.iter_mut().for_each(|value| *value += 1.0);
            values.len()
        }
    }

    #[test]
    fn what_is_dispatched_runs() {
        let mut values = [1.5_f32; 37];
        assert_eq!(increment(&mut values), 37);
        assert_eq!(values, [2.5; 37]);
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_what_can() {
        assert_eq!(Isa::choose(Some("portable")), Ok(Isa::Portable));
        assert!(Isa::choose(None).is_ok_and(Isa::is_available));
        let elsewhere = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
        let lacking = Isa::choose(Some(elsewhere.name())).expect_err("of another kind of processor");
        assert!(lacking.contains("which this processor lacks"), "{lacking}");
        let unknown = Isa::choose(Some("mmx")).expect_err("unknown");
        assert!(
            unknown.contains("mmx, which is no instruction set") && unknown.contains("portable"),
            "{unknown}"
        );
    }
}

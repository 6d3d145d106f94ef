//! The chips: what each Ascend card of the machine has.
//!
//! Input: a [`Soc`]. Output: its name, cores, memory, caches and limits. Every such number is declared here once; what the
//! runtime answers and what the accounts count comes from this file.
//! Sources: CANN 8.1 `platform_config/Ascend910B*.ini` (cores, frequency, memory, L2); where a row says otherwise, that.
//! Does not: say how fast a card is.

/// Chip of every card. Names are what `aclrtGetSocName` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Soc {
    /// 24 cube cores, 64 GiB.
    Ascend910B1,
    /// 24 cube cores, 64 GiB.
    Ascend910B2,
    /// 20 cube cores, 64 GiB.
    #[default]
    Ascend910B3,
    /// 20 cube cores, 32 GiB.
    Ascend910B4,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Of a card's memory the driver keeps 3.1 GiB: PyTorch sees 60.9 GiB of 64 (vllm-ascend issues 1987, 6572, 4474).
const HBM_KEPT_BY_DRIVER_BYTES: u64 = 31 * GIB / 10;

impl Soc {
    /// Every chip that can be emulated.
    pub const ALL: [Self; 4] = [Self::Ascend910B1, Self::Ascend910B2, Self::Ascend910B3, Self::Ascend910B4];

    /// The name CANN gives this chip.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ascend910B1 => "Ascend910B1",
            Self::Ascend910B2 => "Ascend910B2",
            Self::Ascend910B3 => "Ascend910B3",
            Self::Ascend910B4 => "Ascend910B4",
        }
    }

    /// Memory soldered on one card, in bytes (`memory_size`).
    #[must_use]
    pub const fn hbm_installed_bytes(self) -> u64 {
        match self {
            Self::Ascend910B1 | Self::Ascend910B2 | Self::Ascend910B3 => 64 * GIB,
            Self::Ascend910B4 => 32 * GIB,
        }
    }

    /// Memory a program can get on one card, in bytes: what the driver leaves, a multiple of 2 MiB.
    #[must_use]
    pub const fn hbm_usable_bytes(self) -> u64 {
        (self.hbm_installed_bytes() - HBM_KEPT_BY_DRIVER_BYTES) >> 21 << 21
    }

    /// AI cores, each with one cube unit (`cube_core_cnt`).
    #[must_use]
    pub const fn cube_cores(self) -> u32 {
        match self {
            Self::Ascend910B1 | Self::Ascend910B2 => 24,
            Self::Ascend910B3 | Self::Ascend910B4 => 20,
        }
    }

    /// Vector cores: two to a cube core on the Atlas A2 (Ascend C guide, separated architecture).
    #[must_use]
    pub const fn vector_cores(self) -> u32 {
        2 * self.cube_cores()
    }

    /// Architecture operators are compiled for (Ascend C guide, `__NPU_ARCH__`).
    #[must_use]
    pub const fn npu_arch(self) -> u32 {
        match self {
            Self::Ascend910B1 | Self::Ascend910B2 | Self::Ascend910B3 | Self::Ascend910B4 => 2201,
        }
    }

    /// Second-level cache of one card, in bytes (`l2_size`).
    #[must_use]
    pub const fn l2_bytes(self) -> u64 {
        match self {
            Self::Ascend910B1 | Self::Ascend910B2 | Self::Ascend910B3 => 192 * MIB,
            Self::Ascend910B4 => 96 * MIB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_gib_card_offers_60_9_gib() {
        let gib = Soc::Ascend910B3.hbm_usable_bytes() as f64 / GIB as f64;
        assert!((60.89..=60.9).contains(&gib), "{gib}");
        assert_eq!(Soc::Ascend910B4.hbm_installed_bytes(), 32 * GIB);
    }
}

//! Properties of the Ascend chips. Every such number is declared here only.
//!
//! The source is `data/platform_config/Ascend910*.ini` of CANN 8.1.RC1 (`cube_core_cnt`,
//! `cube_freq`, `memory_size`, `l2_size`) unless noted otherwise. Series names match
//! `tensor_cast/device.py` of Ascend/msmodeling.

use std::ops::RangeInclusive;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// PyTorch sees 60.9 of 64 GiB (vllm-ascend issues 1987, 6572, 4474).
const HBM_KEPT_BY_DRIVER_BYTES: u64 = 31 * GIB / 10;

/// Per cube unit and cycle at 16 bits: 16 × 16 × 16.
const CUBE_MACS: f64 = 4096.0;

/// A 64 GiB card has 1.6 TiB/s (`tensor_cast/device.py`; half with 32 GiB). The `ddr_rate` of
/// `platform_config`, 32 bytes per cycle and core, is no limit: copies exceed it by 5 % on a 910B2,
/// weights of products by a fifth on the slowest die.
const HBM_BYTES_PER_US: f64 = 1_759_218.6;

/// Cache bandwidth per core in bytes per cycle (`l2_rate`).
const L2_BYTES_PER_CYCLE_AND_CORE: f64 = 110.0;

/// Chip of a card, or one die of a 910C. The names match `aclrtGetSocName`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Soc {
    /// 24 cube cores at 1850 MHz, 64 GiB.
    Ascend910B1,
    /// 24 cube cores at 1800 MHz, 64 GiB.
    Ascend910B2,
    /// 20 cube cores at 1800 MHz, 64 GiB.
    #[default]
    Ascend910B3,
    /// 20 cube cores at 1500 MHz, 32 GiB.
    Ascend910B4,
    /// 910C die: 24 cube cores at 1850 MHz, 64 GiB.
    Ascend910_9391,
    /// 910C die: 24 cube cores at 1800 MHz, 64 GiB.
    Ascend910_9381,
    /// 910C die: 20 cube cores at 1800 MHz, 64 GiB.
    Ascend910_9372,
    /// 910C die: 20 cube cores at 1500 MHz, 32 GiB.
    Ascend910_9362,
}

#[derive(Debug, Clone, Copy)]
struct SocRow {
    name: &'static str,
    short: &'static str,
    cube_cores: u32,
    cube_mhz: u32,
    hbm_gib: u64,
    l2_mib: u64,
}

/// Same order as [`Soc::ALL`].
const ROWS: [SocRow; 8] = [
    SocRow { name: "Ascend910B1", short: "910b1", cube_cores: 24, cube_mhz: 1850, hbm_gib: 64, l2_mib: 192 },
    SocRow { name: "Ascend910B2", short: "910b2", cube_cores: 24, cube_mhz: 1800, hbm_gib: 64, l2_mib: 192 },
    SocRow { name: "Ascend910B3", short: "910b3", cube_cores: 20, cube_mhz: 1800, hbm_gib: 64, l2_mib: 192 },
    SocRow { name: "Ascend910B4", short: "910b4", cube_cores: 20, cube_mhz: 1500, hbm_gib: 32, l2_mib: 96 },
    SocRow {
        name: "Ascend910_9391",
        short: "910c-752",
        cube_cores: 24,
        cube_mhz: 1850,
        hbm_gib: 64,
        l2_mib: 192,
    },
    SocRow {
        name: "Ascend910_9381",
        short: "910c-707",
        cube_cores: 24,
        cube_mhz: 1800,
        hbm_gib: 64,
        l2_mib: 192,
    },
    SocRow {
        name: "Ascend910_9372",
        short: "910c-626",
        cube_cores: 20,
        cube_mhz: 1800,
        hbm_gib: 64,
        l2_mib: 192,
    },
    SocRow {
        name: "Ascend910_9362",
        short: "910c-560",
        cube_cores: 20,
        cube_mhz: 1500,
        hbm_gib: 32,
        l2_mib: 168,
    },
];

impl Soc {
    /// Chips in enum order.
    pub const ALL: [Self; 8] = [
        Self::Ascend910B1,
        Self::Ascend910B2,
        Self::Ascend910B3,
        Self::Ascend910B4,
        Self::Ascend910_9391,
        Self::Ascend910_9381,
        Self::Ascend910_9372,
        Self::Ascend910_9362,
    ];

    const fn row(self) -> &'static SocRow {
        &ROWS[self as usize]
    }

    /// Returns the name that CANN uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the series name.
    #[must_use]
    pub const fn series(self) -> &'static str {
        match self {
            Self::Ascend910B1 | Self::Ascend910B2 | Self::Ascend910B3 | Self::Ascend910B4 => "Atlas A2",
            Self::Ascend910_9391 | Self::Ascend910_9381 | Self::Ascend910_9372 | Self::Ascend910_9362 => {
                "Atlas A3"
            }
        }
    }

    /// Returns whether fused products and exchanges support this many cards
    /// (`aclnnAllGatherMatmul`, `aclnnMatmulReduceScatter`): 2, 4 and 8 on an Atlas A2, also 16 and
    /// 32 on an Atlas A3.
    #[must_use]
    pub const fn fuses_exchanges_of(self, cards: usize) -> bool {
        let most = match self {
            Self::Ascend910B1 | Self::Ascend910B2 | Self::Ascend910B3 | Self::Ascend910B4 => 8,
            Self::Ascend910_9391 | Self::Ascend910_9381 | Self::Ascend910_9372 | Self::Ascend910_9362 => 32,
        };
        cards > 1 && cards <= most && cards.is_power_of_two()
    }

    /// Valid row lengths of `aclnnAllGatherMatmul` and `aclnnMatmulReduceScatter` (ops-transformer,
    /// `mc2/*/docs`).
    pub const FUSED_ROWS: RangeInclusive<usize> = 256..=65_534;

    /// Returns the linked cards of a server: eight for an Atlas A2, sixteen dies for an Atlas A3.
    #[must_use]
    pub const fn cards_of_a_server(self) -> usize {
        match self {
            Self::Ascend910B1 | Self::Ascend910B2 | Self::Ascend910B3 | Self::Ascend910B4 => 8,
            Self::Ascend910_9391 | Self::Ascend910_9381 | Self::Ascend910_9372 | Self::Ascend910_9362 => 16,
        }
    }

    /// Returns the name for the command line.
    #[must_use]
    pub const fn short_name(self) -> &'static str {
        self.row().short
    }

    /// Finds a chip by either name, ignoring case.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|soc| name.eq_ignore_ascii_case(soc.name()) || name.eq_ignore_ascii_case(soc.short_name()))
    }

    /// Returns the memory of one card (`memory_size`).
    #[must_use]
    pub const fn hbm_installed_bytes(self) -> u64 {
        self.row().hbm_gib * GIB
    }

    /// Returns the memory without the driver's share, a multiple of 2 MiB.
    #[must_use]
    pub const fn hbm_usable_bytes(self) -> u64 {
        (self.hbm_installed_bytes() - HBM_KEPT_BY_DRIVER_BYTES) >> 21 << 21
    }

    /// Counts the AI cores, with one cube unit each (`cube_core_cnt`).
    #[must_use]
    pub const fn cube_cores(self) -> u32 {
        self.row().cube_cores
    }

    /// Counts the vector cores, two per cube core (Ascend C guide, separated architecture).
    #[must_use]
    pub const fn vector_cores(self) -> u32 {
        2 * self.cube_cores()
    }

    /// Returns the clock rate (`cube_freq`).
    #[must_use]
    pub const fn cycles_per_us(self) -> f64 {
        self.row().cube_mhz as f64
    }

    /// Returns the operations of all cube units at 16 bits. 8-bit integers are twice as fast,
    /// 32-bit floats a quarter.
    #[must_use]
    pub const fn cube_flops_per_us(self) -> f64 {
        self.cube_cores() as f64 * self.cycles_per_us() * CUBE_MACS * 2.0
    }

    /// Returns the memory bandwidth.
    #[must_use]
    pub const fn hbm_bytes_per_us(self) -> f64 {
        match self {
            Self::Ascend910B4 => HBM_BYTES_PER_US / 2.0,
            _ => HBM_BYTES_PER_US,
        }
    }

    /// Returns the cache bandwidth per core (`l2_rate`).
    #[must_use]
    pub const fn l2_bytes_per_cycle_and_core(self) -> f64 {
        L2_BYTES_PER_CYCLE_AND_CORE
    }

    /// Returns the cache bandwidth of all cores.
    #[must_use]
    pub const fn l2_bytes_per_us(self) -> f64 {
        self.cube_cores() as f64 * self.cycles_per_us() * L2_BYTES_PER_CYCLE_AND_CORE
    }

    /// Returns the 32-bit lanes of all vector cores. A vector core processes 256 bytes per cycle
    /// (Ascend C guide). The 22 TFLOP/s of `tensor_cast/device.py` are this rate at 16 bits with
    /// two operations per lane.
    #[must_use]
    pub const fn vector_lanes_per_us(self) -> f64 {
        self.vector_cores() as f64 * self.cycles_per_us() * 64.0
    }

    /// Returns the compiler architecture (Ascend C guide, `__NPU_ARCH__`).
    #[must_use]
    pub const fn npu_arch(self) -> u32 {
        2201
    }

    /// Returns the second-level cache size (`l2_size`).
    #[must_use]
    pub const fn l2_bytes(self) -> u64 {
        self.row().l2_mib * MIB
    }
}

impl std::fmt::Display for Soc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
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

    #[test]
    fn rates_are_those_of_the_published_tables() {
        for (soc, tflops, tbps) in [
            (Soc::Ascend910B1, 363.7, 1.759),
            (Soc::Ascend910B2, 353.9, 1.759),
            (Soc::Ascend910B3, 294.9, 1.759),
            (Soc::Ascend910B4, 245.8, 0.88),
        ] {
            let (flops, bytes) = (soc.cube_flops_per_us() / 1e6, soc.hbm_bytes_per_us() / 1e6);
            assert!((flops - tflops).abs() < 0.05 && (bytes - tbps).abs() < 0.001, "{soc}: {flops}, {bytes}");
        }
    }

    #[test]
    fn a_chip_is_found_by_both_names() {
        for soc in Soc::ALL {
            assert_eq!((Soc::find(soc.name()), Soc::find(soc.short_name())), (Some(soc), Some(soc)));
        }
        assert_eq!(Soc::find("910B3"), Some(Soc::Ascend910B3));
        assert_eq!(Soc::find("h100"), None);
    }
}

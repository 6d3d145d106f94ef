//! Limits of a machine: the denominators of every ratio.
//!
//! Limits of emulated cards are those of the host's processor, measured with all cores. Limits of a
//! chip are its published facts.

use std::time::Duration;

use ascend_tp::emulator::limits;
use ascend_tp_machine::Soc;
use serde::{Deserialize, Serialize};

use super::report::{Column, Form, Table, column};
use ascend_tp::base::DType;

/// Bandwidths and compute rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Instruction set, or name of the chip.
    pub(crate) of: String,
    /// Threads of the measurement.
    pub(crate) threads: usize,
    /// Read bandwidth of memory, in bytes per second.
    pub(crate) read_bytes_s: f64,
    /// Copy bandwidth in bytes per second. Bytes read and bytes written both count.
    pub(crate) copy_bytes_s: f64,
    /// Bandwidth of `a[i] = b[i] + s · c[i]` in bytes per second. All three arrays count.
    pub(crate) triad_bytes_s: f64,
    /// Peak f32 rate in operations per second.
    pub f32_flops: f64,
    /// Peak bf16 rate with f32 accumulation, in operations per second.
    pub bf16_flops: f64,
}

const COLUMNS: [Column; 3] = [
    column("limit", "limit", Form::Text),
    column("value", "value", Form::Decimal),
    column("unit", "unit", Form::Text),
];

impl Limits {
    /// Measures this host. All limits together take about `budget`.
    #[must_use]
    pub(crate) fn of_host(budget: Duration) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let found = limits::measure(threads, budget);
        Self {
            of: found.isa.to_string(),
            threads: found.threads,
            read_bytes_s: found.read_bytes_per_s,
            copy_bytes_s: found.copy_bytes_per_s,
            triad_bytes_s: found.triad_bytes_per_s,
            f32_flops: found.peak_f32_flops,
            bf16_flops: found.peak_bf16_flops,
        }
    }

    /// Returns the published limits of a chip, or `None` for an unknown name. Reads and writes
    /// share one bandwidth.
    #[must_use]
    pub(crate) fn of_chip(name: &str) -> Option<Self> {
        let soc = Soc::ALL.into_iter().find(|soc| soc.name() == name)?;
        let bandwidth = soc.hbm_bytes_per_us() * 1e6;
        Some(Self {
            of: name.to_owned(),
            threads: 1,
            read_bytes_s: bandwidth,
            copy_bytes_s: bandwidth,
            triad_bytes_s: bandwidth,
            // Cube units do not support f32. Vector lanes have 32 bits.
            f32_flops: soc.vector_lanes_per_us() * 1e6,
            bf16_flops: soc.cube_flops_per_us() * 1e6,
        })
    }

    /// Returns the peak rate of matrix products in an element type.
    #[must_use]
    pub(crate) const fn flops(&self, dtype: DType) -> f64 {
        match dtype {
            DType::BF16 => self.bf16_flops,
            _ => self.f32_flops,
        }
    }

    #[must_use]
    pub(crate) fn table(&self) -> Table {
        let title = format!("Limits of this machine, {} threads, {}", self.threads, self.of);
        let mut table = Table::new("limits", title, &COLUMNS);
        for (name, value, unit) in [
            ("read", self.read_bytes_s / 1e9, "GB/s"),
            ("copy (bytes read and written)", self.copy_bytes_s / 1e9, "GB/s"),
            ("triad (bytes read and written)", self.triad_bytes_s / 1e9, "GB/s"),
            ("f32", self.f32_flops / 1e9, "GFLOP/s"),
            ("bf16", self.bf16_flops / 1e9, "GFLOP/s"),
        ] {
            table.row([name.into(), value.into(), unit.into()]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_known_by_the_name_that_cards_give() {
        let limits = Limits::of_chip("Ascend910B3").unwrap();
        assert!(limits.bf16_flops > 1e14 && limits.read_bytes_s > 1e12, "{limits:?}");
        assert_eq!(Limits::of_chip("Ascend1"), None);
        assert_eq!(limits.table().rows.len(), 5);
    }
}

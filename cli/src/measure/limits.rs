//! Limits of a machine: the denominators of every ratio. Emulated cards use limits of the host's
//! processor, measured with all cores. Chips use published facts.

use std::time::Duration;

use ascend_tp::emulator::limits;
use ascend_tp_machine::Soc;
use serde::{Deserialize, Serialize};

use super::Samples;
use super::report::{CellForm, Column, MeasuredTable, column};
use ascend_tp::base::DType;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) of: String,
    pub(crate) threads: usize,
    pub(crate) read_bytes_s: f64,
    /// Bytes read plus bytes written per second of a copy.
    pub(crate) copy_bytes_s: f64,
    /// Bytes of all three arrays per second of `a[i] = b[i] + s · c[i]`.
    pub(crate) triad_bytes_s: f64,
    pub f32_flops: f64,
    /// Peak bf16 rate with f32 accumulation.
    pub bf16_flops: f64,
}

const COLUMNS: [Column; 3] = [
    column("limit", "limit", CellForm::Text),
    column("value", "value", CellForm::Decimal),
    column("unit", "unit", CellForm::Text),
];

impl Limits {
    /// Measures this host for about `budget`.
    #[must_use]
    pub(crate) fn of_host(budget: Duration) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let measured = limits::measure(threads, budget);
        Self {
            of: measured.isa.to_string(),
            threads: measured.threads,
            read_bytes_s: measured.read_bytes_per_s,
            copy_bytes_s: measured.copy_bytes_per_s,
            triad_bytes_s: measured.triad_bytes_per_s,
            f32_flops: measured.peak_f32_flops,
            bf16_flops: measured.peak_bf16_flops,
        }
    }

    /// Returns the median of each limit.
    #[must_use]
    pub(crate) fn median_of(measured: &[Self]) -> Self {
        let median = |limit: fn(&Self) -> f64| Samples::new(measured.iter().map(limit).collect()).median();
        Self {
            read_bytes_s: median(|limits| limits.read_bytes_s),
            copy_bytes_s: median(|limits| limits.copy_bytes_s),
            triad_bytes_s: median(|limits| limits.triad_bytes_s),
            f32_flops: median(|limits| limits.f32_flops),
            bf16_flops: median(|limits| limits.bf16_flops),
            ..measured[0].clone()
        }
    }

    /// Returns the published limits of a chip. Reads and writes share one bandwidth.
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
            // Cube units lack f32. Vector lanes have 32 bits.
            f32_flops: soc.vector_lanes_per_us() * 1e6,
            bf16_flops: soc.cube_flops_per_us() * 1e6,
        })
    }

    /// Returns the peak rate of matrix products.
    #[must_use]
    pub(crate) const fn flops(&self, dtype: DType) -> f64 {
        match dtype {
            DType::BF16 => self.bf16_flops,
            _ => self.f32_flops,
        }
    }

    #[must_use]
    pub(crate) fn table(&self) -> MeasuredTable {
        let title = format!("Limits of this machine, {} threads, {}", self.threads, self.of);
        let mut table = MeasuredTable::new("limits", title, &COLUMNS);
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

    #[test]
    fn each_limit_has_its_own_median() {
        let of = |read_bytes_s, bf16_flops| Limits { read_bytes_s, bf16_flops, ..Limits::default() };
        let median = Limits::median_of(&[of(1.0, 9.0), of(3.0, 7.0), of(2.0, 8.0)]);
        assert_eq!(median, of(2.0, 8.0));
    }
}

//! Maps the `hardware` column of a row to a chip and a topology.

use ascend_tp_machine::Soc;

/// Words, chip and topology; the first match counts. Assumptions for rows without a chip: Atlas
/// 800T A2 has the chip of the training points, 24 cores are a 910B2, vLLM-Ascend CI and users'
/// 910B are a 910B3, A3 dies have the chip of the Atlas 800I A3.
const MACHINES: [(&str, Soc, &str); 19] = [
    ("ATLAS_800_A3_560T", Soc::Ascend910_9362, "atlas-a3"),
    ("752T", Soc::Ascend910_9391, "atlas-a3"),
    ("ATLAS_800_A2_376T", Soc::Ascend910B2, "atlas-a2"),
    // Its 8-bit products reach more than the peak of a 560T die.
    ("two nodes, GLM-5", Soc::Ascend910_9391, "atlas-a3"),
    ("910B/A3", Soc::Ascend910_9391, "atlas-a3"),
    ("910B3", Soc::Ascend910B3, "atlas-a2"),
    ("910B4", Soc::Ascend910B4, "atlas-a2"),
    ("910B1", Soc::Ascend910B1, "atlas-a2"),
    ("910B2", Soc::Ascend910B2, "atlas-a2"),
    ("1.85 GHz", Soc::Ascend910B1, "atlas-a2"),
    ("800T A2", Soc::Ascend910B2, "atlas-a2"),
    ("24 AIC", Soc::Ascend910B2, "atlas-a2"),
    ("24 cores", Soc::Ascend910B2, "atlas-a2"),
    ("24 cube", Soc::Ascend910B2, "atlas-a2"),
    ("A3", Soc::Ascend910_9362, "atlas-a3"),
    ("910C", Soc::Ascend910_9362, "atlas-a3"),
    ("A2", Soc::Ascend910B3, "atlas-a2"),
    ("910B", Soc::Ascend910B3, "atlas-a2"),
    ("Ascend", Soc::Ascend910B3, "atlas-a2"),
];

/// Chips without a cost model; their names contain words of [`MACHINES`].
const UNMODELLED: [&str; 1] = ["950"];

fn is_unmodelled(hardware: &str) -> bool {
    UNMODELLED.iter().any(|words| hardware.contains(words))
}

/// Returns whether a row names its machine, with a cost model or without.
pub(crate) fn is_named(hardware: &str) -> bool {
    is_unmodelled(hardware) || machine(hardware).is_some()
}

pub(crate) fn machine(hardware: &str) -> Option<(Soc, &'static str)> {
    if is_unmodelled(hardware) {
        return None;
    }
    MACHINES.iter().find(|(words, _, _)| hardware.contains(words)).map(|(_, soc, topology)| (*soc, *topology))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chip_without_a_cost_model_is_no_other_chip() {
        for hardware in ["Atlas 950 (sub-type not stated)", "Atlas 950PR", "Ascend 950PR", "Atlas 950DT"] {
            assert!(machine(hardware).is_none() && is_named(hardware), "{hardware}");
        }
        assert!(!is_named("a chip of another maker"));
        assert_eq!(machine("Ascend 910B (sub-type not stated)").unwrap().0, Soc::Ascend910B3);
    }
}

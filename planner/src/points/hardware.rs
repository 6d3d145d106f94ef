//! Maps the `hardware` column of a row to a chip and a topology.

use ascend_tp_machine::Soc;

/// Words, chip and topology; the first match counts. Assumptions for rows without a chip: Atlas
/// 800T A2 has the chip of the training points, 24 cores are a 910B2, vLLM-Ascend CI and users'
/// 910B are a 910B3, A3 dies have the chip of the Atlas 800I A3.
const MACHINES: [(&str, Soc, &str); 18] = [
    ("ATLAS_800_A3_560T", Soc::Ascend910_9362, "atlas-a3"),
    ("752T", Soc::Ascend910_9391, "atlas-a3"),
    ("ATLAS_800_A2_376T", Soc::Ascend910B2, "atlas-a2"),
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

pub(crate) fn machine(hardware: &str) -> Option<(Soc, &'static str)> {
    MACHINES.iter().find(|(words, _, _)| hardware.contains(words)).map(|(_, soc, topology)| (*soc, *topology))
}

//! A chip with the coefficients that were fitted for it. Text: TOML.

use serde::{Deserialize, Serialize};

use crate::soc::Soc;

/// What an operator or a call costs beside what the chip's facts say: fitted on measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Largest part of the cube units' rate a product reaches.
    pub cube_efficiency: f64,
    /// Part of the vector units' rate an operator reaches.
    pub vector_efficiency: f64,
    /// Part of the memory's rate a kernel reaches.
    pub hbm_efficiency: f64,
    /// What a kernel takes on the card however small it is, in microseconds.
    pub kernel_us: f64,
    /// Part of a link's rate a collective reaches.
    pub link_efficiency: f64,
    /// What a collective takes on the card however small it is, in microseconds.
    pub collective_us: f64,
    /// Host time.
    pub host: Host,
}

/// Time of the calling thread in calls of the C ABI, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// First phase of an operator: checks, tiling, workspace.
    pub plan_us: f64,
    /// Second phase: the launch.
    pub launch_us: f64,
    /// A collective.
    pub collective_us: f64,
    /// An event: record or wait.
    pub event_us: f64,
    /// A copy between host and card, beside the bytes.
    pub copy_us: f64,
    /// Bytes a copy moves in a microsecond.
    pub copy_bytes_per_us: f64,
    /// The replay of a captured graph.
    pub replay_us: f64,
    /// What the card takes to begin the next node of a graph.
    pub replay_node_us: f64,
    /// Any other call.
    pub call_us: f64,
    /// What a waiting thread takes to notice that the card is done.
    pub wake_us: f64,
}

/// A chip with its coefficients.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The chip.
    pub soc: Soc,
    /// What was fitted.
    pub coefficients: Coefficients,
}

impl Profile {
    /// The profile that ships for a chip.
    #[must_use]
    pub fn of(soc: Soc) -> Self {
        let coefficients = Coefficients {
            cube_efficiency: 0.7,
            vector_efficiency: 0.6,
            hbm_efficiency: 0.8,
            kernel_us: 2.0,
            link_efficiency: 0.77,
            collective_us: 16.0,
            host: Host {
                plan_us: 5.0,
                launch_us: 4.0,
                collective_us: 8.0,
                event_us: 1.0,
                copy_us: 10.0,
                copy_bytes_per_us: 20_000.0,
                replay_us: 20.0,
                replay_node_us: 0.5,
                call_us: 0.2,
                wake_us: 5.0,
            },
        };
        Self { soc, coefficients }
    }
}

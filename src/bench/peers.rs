//! What others reach at the same tasks.
//!
//! Input → output: `docs/performance/peers.toml`, which ships with the program → [`Peers`]. Each was measured on the machine that
//! the file names, with a program of `benches/peers/` or by the command it gives; none is measured here.

use serde::Deserialize;

/// The file.
const TEXT: &str = include_str!("../../docs/performance/peers.toml");

/// All peers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// Where they were measured.
    pub machine: String,
    /// When.
    pub date: String,
    /// The figures.
    #[serde(rename = "peer")]
    pub figures: Vec<Peer>,
}

/// A figure of a peer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// At what.
    pub task: String,
    /// Whose, with version and setting.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// How it was taken.
    pub how: String,
}

impl Peers {
    /// Those that ship.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn shipped() -> Result<Self, toml::de::Error> {
        toml::from_str(TEXT)
    }

    /// The figure of the peer whose name begins with `name`.
    #[must_use]
    pub fn value(&self, task: &str, name: &str) -> Option<f64> {
        let found = self.figures.iter().find(|peer| peer.task == task && peer.name.starts_with(name));
        found.map(|peer| peer.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_sound_and_has_everyone_that_figures_stand_beside() {
        let peers = Peers::shipped().unwrap();
        for (task, name) in [
            ("decode", "llama.cpp"),
            ("decode", "transformers"),
            ("prefill", "transformers"),
            ("all_reduce 64 MiB, 8 processes", "Open MPI"),
            ("all_reduce 64 MiB, 8 processes", "gloo"),
            ("all_reduce 16 KiB, 8 processes", "Open MPI"),
            ("all_reduce 16 KiB, 8 processes", "gloo"),
        ] {
            assert!(peers.value(task, name).is_some_and(|value| value > 0.0), "{task}: {name}");
        }
    }
}

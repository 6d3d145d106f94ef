//! Why a process does not find its place in a world, or the others.

use std::fmt;

/// The failure of [`World::from_env`](super::World::from_env) or of a [`ProcessGroup`](super::ProcessGroup).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Variables contradict each other, are incomplete or unreadable; all of it.
    #[error("{0}")]
    Environment(Box<EnvironmentError>),
    /// The processes did not find each other.
    #[error("{0}")]
    Meeting(String),
    /// Another process failed, and this one ends with it.
    #[error(transparent)]
    Peer(#[from] PeerFailure),
}

/// Everything that is wrong with the launcher's variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentError {
    /// One sentence each.
    pub problems: Vec<String>,
    /// Every variable that was read, with its value and whose it is.
    pub variables: Vec<(String, String, &'static str)>,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the environment does not say which rank this process is")?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        let mut owners: Vec<&str> = Vec::new();
        for (_, _, owner) in &self.variables {
            if !owners.contains(owner) {
                owners.push(owner);
            }
        }
        for owner in &owners {
            let own = self.variables.iter().filter(|(_, _, other)| other == owner);
            let pairs: Vec<String> = own.map(|(name, value, _)| format!("{name}={value}")).collect();
            write!(f, "\nset by {owner}: {}", pairs.join(" "))?;
        }
        if owners.len() > 1 {
            write!(f, "\nkeep the variables of the launcher that starts the ranks, and unset the others:")?;
            for owner in &owners {
                let own = self.variables.iter().filter(|(_, _, other)| other == owner);
                let names: Vec<&str> = own.map(|(name, _, _)| name.as_str()).collect();
                write!(f, "\n  not {owner}: unset {}", names.join(" "))?;
            }
        }
        Ok(())
    }
}

/// Another process of the group failed or is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFailure {
    /// The process' rank.
    pub rank: usize,
    /// `rank 3 (process 4711 on node-2)`.
    pub process: String,
    /// What it said, or how it went.
    pub text: String,
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a process says about its own rank opens with it already.
        if self.text.starts_with(&format!("rank {} ", self.rank)) {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", self.process, self.text)
        }
    }
}

impl std::error::Error for PeerFailure {}

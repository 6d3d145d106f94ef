//! Errors of the environment and of the rendezvous.

use std::fmt;

/// Error of [`World::from_env`](super::World::from_env) or a [`ProcessGroup`](super::ProcessGroup).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Contradictory, incomplete or unreadable variables, with all problems.
    #[error("{0}")]
    Environment(Box<EnvironmentError>),
    /// The processes did not meet.
    #[error("{0}")]
    Meeting(String),
    /// Another process failed, so this one ends too.
    #[error(transparent)]
    Peer(#[from] PeerFailure),
}

/// Problems with the launcher's variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentError {
    /// One sentence per problem.
    pub problems: Vec<String>,
    /// Read variables: name, value, owner.
    pub variables: Vec<(String, String, &'static str)>,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the variables of the launcher cannot be used")?;
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
            write!(
                f,
                "\nkeep the variables of the launcher that starts the ranks, and unset the other variables:"
            )?;
            for owner in &owners {
                let own = self.variables.iter().filter(|(_, _, other)| other == owner);
                let names: Vec<&str> = own.map(|(name, _, _)| name.as_str()).collect();
                write!(f, "\n  not {owner}: unset {}", names.join(" "))?;
            }
        }
        Ok(())
    }
}

/// Failure or loss of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFailure {
    /// Rank of the process.
    pub rank: usize,
    /// Description such as `rank 3 (process 4711 on node-2)`.
    pub process: String,
    /// Message, or how the process ended.
    pub text: String,
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.starts_with(&format!("rank {} ", self.rank)) {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", self.process, self.text)
        }
    }
}

impl std::error::Error for PeerFailure {}

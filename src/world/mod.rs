//! Determines this process's rank, world size and card, and connects it to the other processes.
//!
//! Invariants: contradictions are errors, never guesses. Without variables, the world is this
//! process. Rank 0 serves a store on `MASTER_ADDR:MASTER_PORT`, or on one host on a Unix socket in
//! a private folder. If a process dies, is stopped or is unreachable, all others fail.
//!
//! Not here: moving tensors (HCCL), starting processes (launchers), restarts.

mod error;
mod group;
mod launcher;
mod nodelist;
mod place;
mod rank_table;
mod ranks;
mod store;
mod variables;
mod visible;

use std::path::Path;
use std::time::Duration;

pub use error::{EnvironmentError, Error, PeerFailure};
pub use group::{Notice, ProcessGroup};
pub use launcher::Launcher;
pub use place::MeetingPlace;
pub use ranks::named_ranks;
pub use store::Peer;
pub use visible::visible_cards;

use launcher::{LaunchIdentity, agree};
use rank_table::RankTable;
use variables::Variables;

/// Checks a complete rank table, and returns its number of ranks.
///
/// # Errors
/// A sentence about the problem.
pub fn check_rank_table(text: &str) -> Result<usize, String> {
    RankTable::parse(text).map(|table| table.rows.len())
}

/// HCCL's default wait for a rank.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

const CONNECT_LIMIT: &str = "HCCL_CONNECT_TIMEOUT";

/// The longest wait, in seconds: a week.
const MOST_SECONDS: usize = 7 * 24 * 3600;

/// Every Kubernetes pod has this variable.
const POD: &str = "KUBERNETES_SERVICE_HOST";

/// The position of this process in the world.
///
/// ```
/// use ascend_tp::World;
///
/// // `from_env` reads the variables of torchrun, mpirun, srun or Kubernetes.
/// let world = World::from_env().unwrap_or_else(|_| World::alone());
/// println!("rank {} of {}", world.rank, world.size);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct World {
    /// Rank of this process, from 0.
    pub rank: usize,
    /// Processes, one per rank.
    pub size: usize,
    /// Index on this host, if given; otherwise determined at the rendezvous.
    pub local_rank: Option<usize>,
    /// Processes on this host, if given.
    pub local_size: Option<usize>,
    /// Index among the visible cards, if given; otherwise the local rank's.
    pub card: Option<usize>,
    /// Physical cards of `ASCEND_RT_VISIBLE_DEVICES`.
    pub visible: Option<Vec<usize>>,
    /// Launcher of the ranks.
    pub launcher: Launcher,
    /// Rendezvous of the processes.
    pub place: MeetingPlace,
    /// Timeout of the rendezvous.
    pub timeout: Duration,
    /// Host names may get an address later, as pods' do.
    pub waits_for_names: bool,
}

impl World {
    /// Creates a world of one process.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            local_rank: None,
            local_size: None,
            card: None,
            visible: None,
            launcher: Launcher::Alone,
            place: MeetingPlace::Nowhere,
            timeout: CONNECT_TIMEOUT,
            waits_for_names: false,
        }
    }

    /// Reads the launcher's variables.
    ///
    /// # Errors
    /// Everything that is contradictory, incomplete or unreadable, and which variables to unset.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(&Variables::of_process()).map_err(|error| Error::Environment(Box::new(error)))
    }

    fn from_variables(variables: &Variables) -> Result<Self, EnvironmentError> {
        let wrong = |problem: String, named: &[&str]| EnvironmentError {
            problems: vec![problem],
            variables: variables
                .matching(|name| named.contains(&name))
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned(), "the environment"))
                .collect(),
        };
        let table = match variables.text("RANK_TABLE_FILE") {
            None => None,
            Some(path) => {
                let table = rank_table::read(Path::new(path)).and_then(|text| RankTable::parse(&text));
                Some(table.map_err(|what| {
                    wrong(format!("rank table {path} {what}"), &["RANK_TABLE_FILE", "RANK_ID"])
                })?)
            }
        };
        let agreed = agree(variables, table.as_ref())?;
        let visible = variables.text("ASCEND_RT_VISIBLE_DEVICES").map(visible_cards);
        let card = card(&agreed, visible.as_deref()).map_err(|what| {
            wrong(
                what,
                &["ASCEND_RT_VISIBLE_DEVICES", "LOCAL_RANK", "DEVICE_ID", "RANK_TABLE_FILE", "RANK_ID"],
            )
        })?;
        let place = place::find(variables, table.as_ref(), &agreed).map_err(|what| {
            wrong(
                what,
                &["MASTER_ADDR", "MASTER_PORT", place::OVERRIDE, "SLURM_JOB_NODELIST", "RANK", "WORLD_SIZE"],
            )
        })?;
        let mut problems = Vec::new();
        let seconds = variables.number(CONNECT_LIMIT, &mut problems).filter(|said| {
            let is_usable = (1..=MOST_SECONDS).contains(&said.value);
            if !is_usable {
                let found = said.value;
                problems.push(format!(
                    "{CONNECT_LIMIT} is \"{found}\": expected seconds from 1 to {MOST_SECONDS}"
                ));
            }
            is_usable
        });
        if let Some(problem) = problems.pop() {
            return Err(wrong(problem, &[CONNECT_LIMIT]));
        }
        Ok(Self {
            rank: agreed.rank,
            size: agreed.size,
            local_rank: agreed.local_rank,
            local_size: agreed.local_size,
            card,
            visible,
            launcher: agreed.launcher,
            place,
            timeout: seconds.map_or(CONNECT_TIMEOUT, |said| Duration::from_secs(said.value as u64)),
            waits_for_names: variables.has(POD),
        })
    }
}

#[doc(hidden)]
impl World {
    /// Returns the physical number of a visible card (`ASCEND_RT_VISIBLE_DEVICES` may hide some).
    #[must_use]
    pub fn physical_card(&self, card: usize) -> usize {
        self.visible.as_ref().and_then(|visible| visible.get(card).copied()).unwrap_or(card)
    }
}

fn card(agreed: &LaunchIdentity, visible: Option<&[usize]>) -> Result<Option<usize>, String> {
    let Some(visible) = visible else { return Ok(agreed.card.or(agreed.local_rank)) };
    if let Some(physical) = agreed.card {
        let found = visible.iter().position(|card| *card == physical);
        return found.map(Some).ok_or_else(|| {
            format!(
                "card {physical} is rank {}'s, and ASCEND_RT_VISIBLE_DEVICES shows {visible:?} only",
                agreed.rank
            )
        });
    }
    match (visible, agreed.local_rank) {
        // Each process sees only its own card.
        ([_], _) => Ok(Some(0)),
        (_, Some(local)) if agreed.size > 1 && local >= visible.len() => Err(format!(
            "local rank {local} has no card: ASCEND_RT_VISIBLE_DEVICES shows {visible:?} only, which CANN reads up to the \
             first character that is not a digit"
        )),
        (_, local) => Ok(local),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::rank_table::tests::TWO_SERVERS;
    use super::variables::tests::variables;
    use super::*;

    fn world(text: &str) -> World {
        World::from_variables(&variables(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn problem(text: &str) -> String {
        World::from_variables(&variables(text)).unwrap_err().to_string()
    }

    #[test]
    fn nothing_set_is_one_process() {
        assert_eq!(world(""), World::alone());
        assert_eq!(world("HCCL_CONNECT_TIMEOUT=7").timeout, Duration::from_secs(7));
        for wrong in ["never", "0", "-1", "604801", "18446744073709551615"] {
            let error = problem(&format!("HCCL_CONNECT_TIMEOUT={wrong}"));
            assert!(error.contains(&format!("HCCL_CONNECT_TIMEOUT is \"{wrong}\"")), "{error}");
        }
    }

    #[test]
    fn cards_follow_the_local_rank_among_those_that_are_visible() {
        let ranks = "RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5";
        assert_eq!(world(ranks).card, Some(2));
        let seen = world(&format!("{ranks} ASCEND_RT_VISIBLE_DEVICES=4,5,6,7"));
        assert_eq!((seen.card, seen.visible), (Some(2), Some(vec![4, 5, 6, 7])));
        assert_eq!(
            world(&format!("{ranks} ASCEND_RT_VISIBLE_DEVICES=6")).card,
            Some(0),
            "one card for each process"
        );
        let error = problem(&format!("{ranks} ASCEND_RT_VISIBLE_DEVICES=4,5"));
        assert!(error.contains("local rank 2 has no card") && error.contains("[4, 5]"), "{error}");
        assert_eq!(world("RANK=2 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=5").card, None);
    }

    #[test]
    fn a_rank_table_is_read_from_its_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(TWO_SERVERS.as_bytes()).unwrap();
        let path = file.path().display();
        let found = world(&format!("RANK_TABLE_FILE={path} RANK_ID=1"));
        assert_eq!((found.rank, found.size, found.card), (1, 4, Some(5)));
        let found = world(&format!("RANK_TABLE_FILE={path} RANK_ID=1 ASCEND_RT_VISIBLE_DEVICES=4,5"));
        assert_eq!(found.card, Some(1), "the table has physical numbers");
        let error = problem(&format!("RANK_TABLE_FILE={path} RANK_ID=1 ASCEND_RT_VISIBLE_DEVICES=4"));
        assert!(error.contains("card 5 is rank 1's"), "{error}");
        let error = problem(&format!("RANK_TABLE_FILE={path}.gone RANK_ID=1"));
        assert!(error.contains("No such file"), "{error}");
        let error = problem("RANK_TABLE_FILE=/dev/zero RANK_ID=1");
        assert!(error.contains("rank table /dev/zero cannot be read: expected a regular file"), "{error}");
        file.as_file().set_len(rank_table::MOST_BYTES + 1).unwrap();
        let error = problem(&format!("RANK_TABLE_FILE={path} RANK_ID=1"));
        assert!(error.contains("is too long: expected at most "), "{error}");
    }
}

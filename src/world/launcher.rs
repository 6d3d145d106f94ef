//! Reads the launchers' variables, and checks that they agree.
//!
//! Launchers can be nested, and the innermost one starts the ranks. torchrun
//! (`TORCHELASTIC_RUN_ID`) can run inside anything. The mpirun of Open MPI or Hydra can run inside
//! a Slurm allocation. Slurm's variables then number mpirun's daemons. All can run inside a Volcano
//! or Kubernetes pod. Launchers of one level must agree.
//!
//! Sources: PyTorch "torchrun" (environment variables); Open MPI 5.0 "Environment variables set for
//! MPI applications"; Intel MPI and MPICH Hydra; Slurm srun(1); Kubeflow training operator, Volcano
//! plugins `pytorch`, `env` and `svc`; the Ascend operator of `MindCluster`; CANN
//! `RANK_TABLE_FILE`, `RANK_ID`, `RANK_SIZE`, `DEVICE_ID`.

use super::error::EnvironmentError;
use super::nodelist::tasks_by_node;
use super::rank_table::RankTable;
use super::variables::{VariableValue, Variables};

/// Launcher of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// No launcher: a single process.
    Alone,
    /// PyTorch's `torchrun`, which sets `TORCHELASTIC_RUN_ID`.
    Torchrun,
    /// `RANK` and `WORLD_SIZE`, from a shell or a Kubernetes operator.
    Shell,
    /// The mpirun of Open MPI.
    OpenMpi,
    /// MPICH's or Intel's Hydra, or Slurm's PMI.
    Hydra,
    /// `srun`, one task per rank.
    Slurm,
    /// Volcano without its pytorch plugin: one rank per pod.
    Volcano,
    /// HCCL's rank table, or `RANK_ID` and `RANK_SIZE`.
    RankTable,
}

impl Launcher {
    /// Returns the name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "nobody",
            Self::Torchrun => "torchrun",
            Self::Shell => "a shell or an operator",
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "Hydra",
            Self::Slurm => "Slurm",
            Self::Volcano => "Volcano",
            Self::RankTable => "the rank table",
        }
    }
}

#[derive(Debug)]
struct Claim {
    launcher: Launcher,
    /// In the order of [`QUANTITIES`].
    said: [Option<VariableValue>; 4],
}

/// A larger size is a mistake.
pub(super) const MOST_RANKS: usize = 1 << 20;

const MOST_CARDS: usize = u16::MAX as usize;

const QUANTITIES: [&str; 4] = ["rank", "world size", "local rank", "local world size"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LaunchIdentity {
    pub(super) launcher: Launcher,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) local_rank: Option<usize>,
    pub(super) local_size: Option<usize>,
    pub(super) card: Option<usize>,
}

pub(super) fn agree(
    variables: &Variables,
    table: Option<&RankTable>,
) -> Result<LaunchIdentity, EnvironmentError> {
    let mut problems = Vec::new();
    let claims = claims(variables, table, &mut problems);
    let card = variables.number("DEVICE_ID", &mut problems);
    if let Some(card) = card.as_ref().filter(|card| card.value > MOST_CARDS) {
        problems.push(format!("DEVICE_ID is {}: expected a card from 0 to {MOST_CARDS}", card.value));
    }
    if problems.is_empty() {
        for (index, quantity) in QUANTITIES.iter().enumerate() {
            let said: Vec<&VariableValue> =
                claims.iter().filter_map(|claim| claim.said[index].as_ref()).collect();
            if said.iter().any(|other| other.value != said[0].value) {
                let texts: Vec<String> =
                    said.iter().map(|s| format!("{} says {}", s.variable, s.value)).collect();
                problems.push(format!("{quantity}: {}", texts.join(", ")));
            }
        }
    }
    let first = |index: usize| claims.iter().find_map(|claim| claim.said[index].as_ref());
    let (rank, size, local_rank, local_size) = (first(0), first(1), first(2), first(3));
    let (own_rank, world_size) = (rank.map_or(0, |said| said.value), size.map_or(1, |said| said.value));
    if problems.is_empty() {
        too_many(size, &mut problems);
        incomplete(rank, size, &mut problems);
        below(rank, size, &mut problems);
        below(local_rank, local_size, &mut problems);
        if let (Some(local), Some(size)) = (local_size, size)
            && local.value > size.value
        {
            problems.push(format!(
                "{} is {} and {} is {}",
                local.variable, local.value, size.variable, size.value
            ));
        }
        let listed = table.and_then(|table| table.rows.get(own_rank)).map(|row| row.card);
        if let (Some(card), Some(listed)) = (&card, listed)
            && card.value != listed
        {
            problems.push(format!("card: DEVICE_ID says {}, the rank table says {listed}", card.value));
        }
    }
    if !problems.is_empty() {
        return Err(EnvironmentError { problems, variables: read_variables(variables) });
    }
    Ok(LaunchIdentity {
        launcher: claims.first().map_or(Launcher::Alone, |claim| claim.launcher),
        rank: own_rank,
        size: world_size,
        local_rank: local_rank.map(|said| said.value),
        local_size: local_size.map(|said| said.value),
        card: table
            .and_then(|table| table.rows.get(own_rank))
            .map(|row| row.card)
            .or(card.map(|said| said.value)),
    })
}

fn too_many(size: Option<&VariableValue>, problems: &mut Vec<String>) {
    if let Some(size) = size.filter(|size| size.value == 0 || size.value > MOST_RANKS) {
        problems.push(format!("{} is {}: expected 1 to {MOST_RANKS} ranks", size.variable, size.value));
    }
}

fn incomplete(rank: Option<&VariableValue>, size: Option<&VariableValue>, problems: &mut Vec<String>) {
    match (rank, size) {
        (Some(rank), None) => problems.push(format!(
            "{} is {} but the number of ranks is unknown: set WORLD_SIZE",
            rank.variable, rank.value
        )),
        (None, Some(size)) if size.value > 1 => {
            problems.push(format!(
                "{} is {} but the rank of this process is unknown: set RANK",
                size.variable, size.value
            ));
        }
        _ => {}
    }
}

fn below(rank: Option<&VariableValue>, size: Option<&VariableValue>, problems: &mut Vec<String>) {
    if let (Some(rank), Some(size)) = (rank, size)
        && rank.value >= size.value
    {
        problems.push(format!(
            "{} is {} and {} is {}: ranks count from 0 and are below the size",
            rank.variable, rank.value, size.variable, size.value
        ));
    }
}

fn claims(variables: &Variables, table: Option<&RankTable>, problems: &mut Vec<String>) -> Vec<Claim> {
    let mut claim = |launcher, names: [&str; 4]| {
        let said = names.map(|name| if name.is_empty() { None } else { variables.number(name, problems) });
        said.iter().any(Option::is_some).then_some(Claim { launcher, said })
    };
    let torch = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];
    let mut claims = Vec::new();
    if variables.has("TORCHELASTIC_RUN_ID") {
        claims.extend(claim(Launcher::Torchrun, torch));
    } else {
        if variables.has("RANK") || variables.has("WORLD_SIZE") {
            claims.extend(claim(Launcher::Shell, torch));
        }
        let mpi = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"].map(|name| format!("OMPI_COMM_WORLD_{name}"));
        claims.extend(claim(Launcher::OpenMpi, mpi.each_ref().map(String::as_str)));
        claims.extend(claim(Launcher::Hydra, ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"]));
    }
    let has_mpi = claims.iter().any(|claim| matches!(claim.launcher, Launcher::OpenMpi | Launcher::Hydra));
    let is_step = variables.has("SLURM_STEP_ID") || variables.has("SLURM_STEPID");
    // The shell of a batch job also has SLURM_PROCID=0.
    if !variables.has("TORCHELASTIC_RUN_ID") && !has_mpi && (is_step || claims.is_empty()) {
        claims.extend(slurm(variables, problems));
    }
    claims.extend(rank_table(variables, table, claims.first(), problems));
    if claims.is_empty() {
        claims.extend(volcano(variables, problems));
    }
    if let Some(text) = variables.text("LOCAL_RANK").filter(|text| text.contains(',')) {
        let what = format!(
            "LOCAL_RANK=\"{text}\" lists the cards of a pod, as the Ascend operator sets it: start one process per \
             card in the pod, for example with torchrun"
        );
        problems.retain(|problem| !problem.starts_with("LOCAL_RANK "));
        problems.push(what);
    }
    claims
}

fn slurm(variables: &Variables, problems: &mut Vec<String>) -> Option<Claim> {
    let rank = variables.number("SLURM_PROCID", problems)?;
    let sizes = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
    let size =
        sizes.iter().find(|name| variables.has(name)).and_then(|name| variables.number(name, problems));
    let local_rank = variables.number("SLURM_LOCALID", problems);
    let node = variables.number("SLURM_NODEID", problems).map(|said| said.value);
    let lists = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
    let local_size = lists.iter().find_map(|name| {
        let value = *tasks_by_node(variables.text(name)?)?.get(node.unwrap_or(0))?;
        Some(VariableValue { variable: (*name).to_owned(), value })
    });
    // The job's list does not fit a step with other tasks.
    let local_size = local_size.filter(|local| size.as_ref().is_none_or(|size| local.value <= size.value));
    Some(Claim { launcher: Launcher::Slurm, said: [Some(rank), size, local_rank, local_size] })
}

fn rank_table(
    variables: &Variables,
    table: Option<&RankTable>,
    other: Option<&Claim>,
    problems: &mut Vec<String>,
) -> Option<Claim> {
    let (rank, size) = (variables.number("RANK_ID", problems), variables.number("RANK_SIZE", problems));
    let Some(table) = table else {
        let is_claim = rank.is_some();
        return is_claim.then_some(Claim { launcher: Launcher::RankTable, said: [rank, size, None, None] });
    };
    let named = "RANK_TABLE_FILE".to_owned();
    if let Some(size) = size.filter(|size| size.value != table.rows.len()) {
        problems.push(format!(
            "world size: RANK_SIZE says {}, the rank table lists {}",
            size.value,
            table.rows.len()
        ));
    }
    let is = rank.as_ref().or(other.and_then(|claim| claim.said[0].as_ref())).map(|said| said.value);
    if is.is_none() && table.rows.len() > 1 {
        problems
            .push("RANK_TABLE_FILE is set but the rank of this process is unknown: set RANK_ID".to_owned());
    }
    let local = table.local(is.unwrap_or(0));
    let said = |value| VariableValue { variable: named.clone(), value };
    // Servers of the table may be pods, so the launcher's local values override it.
    let local_rank =
        local.filter(|_| other.is_none_or(|claim| claim.said[2].is_none())).map(|(rank, _)| said(rank));
    let local_size =
        local.filter(|_| other.is_none_or(|claim| claim.said[3].is_none())).map(|(_, size)| said(size));
    Some(Claim {
        launcher: Launcher::RankTable,
        said: [rank, Some(said(table.rows.len())), local_rank, local_size],
    })
}

/// A Volcano job of one task type with one rank per pod: `VC_TASK_INDEX`, and `VC_<TASK>_NUM` of
/// the only task.
fn volcano(variables: &Variables, problems: &mut Vec<String>) -> Option<Claim> {
    let rank = variables.number("VC_TASK_INDEX", problems)?;
    let counts = variables.matching(|name| name.starts_with("VC_") && name.ends_with("_NUM"));
    let size = match counts.as_slice() {
        [(name, _)] => variables.number(name, problems),
        _ => None,
    };
    let one = |variable: &str, value| Some(VariableValue { variable: variable.to_owned(), value });
    // One process per pod.
    Some(Claim { launcher: Launcher::Volcano, said: [Some(rank), size, one("VC_TASK_INDEX (pod)", 0), None] })
}

fn read_variables(variables: &Variables) -> Vec<(String, String, &'static str)> {
    let owner = |name: &str| -> Option<&'static str> {
        let torch = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
        let slurm = [
            "PROCID",
            "NTASKS",
            "NPROCS",
            "LOCALID",
            "NODEID",
            "STEP_ID",
            "STEP_NUM_TASKS",
            "STEP_TASKS_PER_NODE",
        ];
        if torch.contains(&name) || name.starts_with("TORCHELASTIC_RUN") {
            let elastic = variables.has("TORCHELASTIC_RUN_ID");
            return Some(if elastic { Launcher::Torchrun.name() } else { Launcher::Shell.name() });
        }
        if name.starts_with("OMPI_COMM_WORLD_") && !name.ends_with("NODE_RANK") {
            return Some(Launcher::OpenMpi.name());
        }
        if ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"].contains(&name) {
            return Some(Launcher::Hydra.name());
        }
        if name.strip_prefix("SLURM_").is_some_and(|rest| slurm.contains(&rest)) {
            return Some(Launcher::Slurm.name());
        }
        if ["RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE", "DEVICE_ID"].contains(&name) {
            return Some(Launcher::RankTable.name());
        }
        let is_volcano = name.starts_with("VC_") && (name.ends_with("_NUM") || name.ends_with("TASK_INDEX"));
        is_volcano.then_some(Launcher::Volcano.name())
    };
    let set = variables.matching(|name| owner(name).is_some());
    set.into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned(), owner(name).unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::rank_table::tests::TWO_SERVERS;
    use super::super::variables::tests::variables;
    use super::*;

    fn agreed(text: &str) -> LaunchIdentity {
        agree(&variables(text), None).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[track_caller]
    fn is(
        text: &str,
        launcher: Launcher,
        rank: usize,
        size: usize,
        local_rank: Option<usize>,
        local_size: Option<usize>,
    ) {
        let found = agreed(text);
        assert_eq!((found.launcher, found.rank, found.size), (launcher, rank, size), "{text}");
        assert_eq!((found.local_rank, found.local_size), (local_rank, local_size), "{text}");
    }

    #[test]
    fn no_variables_are_a_world_of_one() {
        is("HOME=/root PATH=/bin", Launcher::Alone, 0, 1, None, None);
    }

    /// `torchrun --nnodes 2 --nproc-per-node 4`, also if srun or mpirun started torchrun.
    #[test]
    fn torchrun_is_the_innermost() {
        let torch = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 ROLE_RANK=5 ROLE_WORLD_SIZE=8 \
                     MASTER_ADDR=node0 MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 \
                     TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True";
        is(torch, Launcher::Torchrun, 5, 8, Some(1), Some(4));
        let slurm = "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2";
        is(&format!("{torch} {slurm}"), Launcher::Torchrun, 5, 8, Some(1), Some(4));
        is(
            &format!("{torch} OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"),
            Launcher::Torchrun,
            5,
            8,
            Some(1),
            Some(4),
        );
    }

    /// The variables of a shell loop, and of Kubeflow's `PyTorchJob` with one rank per pod.
    #[test]
    fn rank_and_world_size_are_enough() {
        is("RANK=3 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=12355", Launcher::Shell, 3, 4, None, None);
        let job = "PYTHONUNBUFFERED=1 MASTER_PORT=23456 PET_MASTER_PORT=23456 MASTER_ADDR=job-master-0 \
                   PET_MASTER_ADDR=job-master-0 WORLD_SIZE=3 RANK=2 PET_NODE_RANK=2 PET_NNODES=3";
        is(job, Launcher::Shell, 2, 3, None, None);
        // Volcano's pytorch plugin sets the same variables in addition to its indices.
        let volcano = "VC_TASK_INDEX=1 VK_TASK_INDEX=1 VC_MASTER_NUM=1 VC_WORKER_NUM=2 RANK=2 WORLD_SIZE=3 \
                       MASTER_ADDR=job-master-0 MASTER_PORT=23456";
        is(volcano, Launcher::Shell, 2, 3, None, None);
    }

    /// Open MPI 4.1.4 with `-np 2` on one host (captured), and inside a Slurm allocation.
    #[test]
    fn open_mpi() {
        let mpi = "OMPI_COMMAND=env OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 \
                   OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_UNIVERSE_SIZE=2 PMIX_NAMESPACE=1449000961 PMIX_RANK=1";
        is(mpi, Launcher::OpenMpi, 1, 2, Some(1), Some(2));
        let daemons = "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1";
        is(&format!("{mpi} {daemons}"), Launcher::OpenMpi, 1, 2, Some(1), Some(2));
        is(&format!("{mpi} RANK=1 WORLD_SIZE=2"), Launcher::Shell, 1, 2, Some(1), Some(2));
    }

    #[test]
    fn hydra() {
        let hydra = "PMI_RANK=6 PMI_SIZE=8 PMI_FD=9 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4";
        is(hydra, Launcher::Hydra, 6, 8, Some(2), Some(4));
    }

    /// `srun -N 2 -n 5`, and a step with fewer tasks than its job.
    #[test]
    fn slurm_steps() {
        let step = "SLURM_JOB_ID=200505 SLURM_STEP_ID=0 SLURM_PROCID=4 SLURM_NTASKS=5 SLURM_STEP_NUM_TASKS=5 SLURM_LOCALID=1 \
                    SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=3,2 SLURM_TASKS_PER_NODE=3,2 SLURM_JOB_NODELIST=gnode[10,20]";
        is(step, Launcher::Slurm, 4, 5, Some(1), Some(2));
        let fewer = "SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_NODEID=0 \
                     SLURM_TASKS_PER_NODE=8";
        is(fewer, Launcher::Slurm, 1, 2, Some(1), None);
        is("SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=3", Launcher::Slurm, 3, 8, Some(3), None);
        let batch =
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 RANK=2 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1";
        is(batch, Launcher::Shell, 2, 4, None, None);
    }

    #[test]
    fn volcano_without_plugin() {
        let pods = "VC_TASK_INDEX=2 VK_TASK_INDEX=2 VC_WORKER_HOSTS=j-worker-0.j,j-worker-1.j,j-worker-2.j VC_WORKER_NUM=3";
        is(pods, Launcher::Volcano, 2, 3, Some(0), None);
    }

    #[test]
    fn rank_tables() {
        let table = RankTable::parse(TWO_SERVERS).unwrap();
        let found = agree(&variables("RANK_TABLE_FILE=t RANK_ID=1"), Some(&table)).unwrap();
        assert_eq!(
            (found.launcher, found.rank, found.size, found.card),
            (Launcher::RankTable, 1, 4, Some(5))
        );
        assert_eq!((found.local_rank, found.local_size), (Some(1), Some(2)));
        // The rank may come from mpirun.
        let mpi =
            "RANK_TABLE_FILE=t OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0";
        let found = agree(&variables(mpi), Some(&table)).unwrap();
        assert_eq!((found.rank, found.card, found.local_rank), (2, Some(0), Some(0)));
        for (text, expected) in [
            ("RANK_TABLE_FILE=t", "the rank of this process is unknown: set RANK_ID"),
            ("RANK_TABLE_FILE=t RANK_ID=4", "RANK_ID is 4 and RANK_TABLE_FILE is 4"),
            ("RANK_TABLE_FILE=t RANK_ID=1 RANK_SIZE=8", "RANK_SIZE says 8, the rank table lists 4"),
            ("RANK_TABLE_FILE=t RANK_ID=1 DEVICE_ID=1", "DEVICE_ID says 1, the rank table says 5"),
        ] {
            let error = agree(&variables(text), Some(&table)).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        is("RANK_ID=1 RANK_SIZE=2 DEVICE_ID=1", Launcher::RankTable, 1, 2, None, None);
    }

    #[test]
    fn contradictions_are_one_error_with_every_variable() {
        let text = "RANK=1 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 HOME=/root";
        let error = agree(&variables(text), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the variables of the launcher cannot be used\n\
             \u{20} rank: RANK says 1, OMPI_COMM_WORLD_RANK says 2\n\
             \u{20} world size: WORLD_SIZE says 8, OMPI_COMM_WORLD_SIZE says 4\n\
             set by Open MPI: OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4\n\
             set by a shell or an operator: RANK=1 WORLD_SIZE=8\n\
             keep the variables of the launcher that starts the ranks, and unset the other variables:\n\
             \u{20} not Open MPI: unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE\n\
             \u{20} not a shell or an operator: unset RANK WORLD_SIZE"
        );
        for (text, expected) in [
            ("RANK=0 WORLD_SIZE=1000000000", "WORLD_SIZE is 1000000000: expected 1 to 1048576 ranks"),
            ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE is 0: expected 1 to"),
            (
                "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1000000000",
                "OMPI_COMM_WORLD_SIZE is 1000000000: expected",
            ),
            ("PMI_RANK=0 PMI_SIZE=1000000000", "PMI_SIZE is 1000000000: expected"),
            (
                "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1000000000",
                "SLURM_NTASKS is 1000000000: expected",
            ),
            ("RANK_ID=0 RANK_SIZE=1000000000", "RANK_SIZE is 1000000000: expected"),
            ("VC_TASK_INDEX=0 VC_WORKER_NUM=1000000000", "VC_WORKER_NUM is 1000000000: expected"),
            (
                "RANK=0 WORLD_SIZE=99999999999999999999",
                "WORLD_SIZE is \"99999999999999999999\": expected a whole number",
            ),
            ("RANK_ID=0 RANK_SIZE=2 DEVICE_ID=18446744073709551615", "expected a card from 0 to 65535"),
            ("PMI_RANK=9 PMI_SIZE=8", "PMI_RANK is 9 and PMI_SIZE is 8"),
            (
                "RANK=8 WORLD_SIZE=8",
                "RANK is 8 and WORLD_SIZE is 8: ranks count from 0 and are below the size",
            ),
            ("RANK=1", "RANK is 1 but the number of ranks is unknown: set WORLD_SIZE"),
            ("WORLD_SIZE=2", "WORLD_SIZE is 2 but the rank of this process is unknown: set RANK"),
            ("RANK=one WORLD_SIZE=2", "RANK is \"one\": expected a whole number"),
            (
                "RANK=0 WORLD_SIZE=2 LOCAL_RANK=4 LOCAL_WORLD_SIZE=4",
                "LOCAL_RANK is 4 and LOCAL_WORLD_SIZE is 4",
            ),
            ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", "LOCAL_WORLD_SIZE is 4 and WORLD_SIZE is 2"),
            ("PMI_RANK=0 PMI_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "PMI_RANK says 0"),
            ("RANK=1 WORLD_SIZE=4 SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=4", "SLURM_PROCID says 2"),
            ("RANK=1 WORLD_SIZE=4 RANK_ID=2 RANK_SIZE=4", "RANK_ID says 2"),
            (
                "RANK=1 WORLD_SIZE=8 LOCAL_RANK=0,1,2,3 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=2222",
                "LOCAL_RANK=\"0,1,2,3\" lists the cards of a pod",
            ),
        ] {
            let error = agree(&variables(text), None).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

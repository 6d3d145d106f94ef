//! Finds the rendezvous of the processes, the same on every process of a job.
//!
//! With `TORCHELASTIC_USE_AGENT_STORE=True`, torchrun's agents occupy `MASTER_ADDR:MASTER_PORT`
//! with a store of another protocol. Then the ranks of one host use a Unix socket, and the ranks of
//! several hosts use the next port.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::launcher::{LaunchIdentity, Launcher};
use super::nodelist::hosts;
use super::rank_table::RankTable;
use super::variables::Variables;

/// Overrides the launcher's rendezvous: `host:port`.
pub(super) const OVERRIDE: &str = "ASCEND_TP_STORE";

/// First port for jobs that have a number but no port. The range of 16384 ports ends below the
/// ephemeral ports.
const FIRST_PORT: u16 = 16_384;

/// Rendezvous of the processes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeetingPlace {
    /// There is only one process.
    Nowhere,
    /// Rank 0's TCP port.
    Tcp {
        /// Name or address of rank 0's host.
        host: String,
        /// The port that rank 0 listens on.
        port: u16,
    },
    /// A Unix socket of this user.
    Socket {
        /// Job identifier on this host.
        job: String,
    },
}

impl std::fmt::Display for MeetingPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nowhere => f.write_str("nowhere"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Socket { job } => write!(f, "the socket of job {job}"),
        }
    }
}

pub(super) fn find(
    variables: &Variables,
    table: Option<&RankTable>,
    agreed: &LaunchIdentity,
) -> Result<MeetingPlace, String> {
    if agreed.size == 1 {
        return Ok(MeetingPlace::Nowhere);
    }
    if let Some(text) = variables.text(OVERRIDE) {
        let read = text
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok().filter(|p| *p > 0)?)));
        let (host, port) = read.ok_or_else(|| format!("{OVERRIDE} is \"{text}\": expected host:port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !is_host(&host) {
            return Err(format!("{OVERRIDE} is \"{text}\": expected host:port"));
        }
        return Ok(MeetingPlace::Tcp { host, port });
    }
    let on_one_host = agreed.local_size == Some(agreed.size);
    let is_agents = variables.text("TORCHELASTIC_USE_AGENT_STORE") == Some("True");
    let address = match (variables.text("MASTER_ADDR"), variables.text("MASTER_PORT")) {
        (Some(host), Some(port)) => {
            let port: u16 = port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| format!("MASTER_PORT is \"{port}\": expected a port from 1 to 65535"))?;
            if !is_host(host) {
                return Err(format!(
                    "MASTER_ADDR is \"{host}\": expected a host name or an address, without a port"
                ));
            }
            Some((host.to_owned(), port))
        }
        (Some(host), None) if !on_one_host => {
            return Err(format!(
                "MASTER_ADDR is {host} and MASTER_PORT is not set: choose a free port on that host"
            ));
        }
        (None, Some(port)) if !on_one_host => {
            return Err(format!(
                "MASTER_PORT is {port} and MASTER_ADDR is not set: it is the host of rank 0"
            ));
        }
        _ => None,
    };
    match address {
        Some((_, port)) if is_agents && on_one_host => {
            let text = |name| variables.text(name).unwrap_or("0");
            let (run, restart) = (text("TORCHELASTIC_RUN_ID"), text("TORCHELASTIC_RESTART_COUNT"));
            Ok(MeetingPlace::Socket { job: format!("torchrun-{run}-{port}-{restart}") })
        }
        Some((host, port)) if is_agents => {
            Ok(MeetingPlace::Tcp { host, port: port.checked_add(1).unwrap_or(port - 1) })
        }
        Some((host, port)) => Ok(MeetingPlace::Tcp { host, port }),
        None if on_one_host => Ok(MeetingPlace::Socket { job: job(variables, agreed.launcher) }),
        None => without_address(variables, table, agreed),
    }
}

fn is_host(text: &str) -> bool {
    const LONGEST_NAME: usize = 253;
    let of_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    // Link addresses have a zone: `fe80::1%eth0`.
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<IpAddr>().is_ok() || (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(of_name)
}

fn job(variables: &Variables, launcher: Launcher) -> String {
    let text = |name| variables.text(name);
    let named = match launcher {
        Launcher::OpenMpi => text("PMIX_NAMESPACE").or(text("OMPI_MCA_ess_base_jobid")).map(str::to_owned),
        Launcher::Slurm => slurm_step(variables),
        Launcher::RankTable => text("RANK_TABLE_FILE").map(|path| number(path).to_string()),
        _ => None,
    };
    // All ranks of a host share a parent: mpirun's proxy, or the shell that runs the loop.
    let name = named.unwrap_or_else(|| format!("parent-{}", std::os::unix::process::parent_id()));
    format!("{}-{name}", launcher.name().replace(' ', "-").to_lowercase())
}

fn slurm_step(variables: &Variables) -> Option<String> {
    let job = variables.text("SLURM_JOB_ID").or(variables.text("SLURM_JOBID"))?;
    let step = variables.text("SLURM_STEP_ID").or(variables.text("SLURM_STEPID")).unwrap_or("batch");
    Some(format!("{job}.{step}"))
}

fn without_address(
    variables: &Variables,
    table: Option<&RankTable>,
    agreed: &LaunchIdentity,
) -> Result<MeetingPlace, String> {
    let port = |job: &str| FIRST_PORT + (number(job) % u64::from(FIRST_PORT)) as u16;
    match agreed.launcher {
        Launcher::Slurm => {
            let names = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
            let Some(name) = names.iter().find(|name| variables.has(name)) else {
                return Err(
                    "Slurm's variables name no node (SLURM_JOB_NODELIST): set MASTER_ADDR and MASTER_PORT"
                        .to_owned(),
                );
            };
            let text = variables.text(name).unwrap_or_default();
            let nodes = hosts(text)
                .ok_or_else(|| format!("{name} is \"{text}\": expected a list such as n[1-3,7]"))?;
            let step = slurm_step(variables).unwrap_or_default();
            match nodes.as_slice() {
                [_] => Ok(MeetingPlace::Socket { job: job(variables, agreed.launcher) }),
                // The exception is --distribution=arbitrary.
                nodes => Ok(MeetingPlace::Tcp { host: nodes[0].clone(), port: port(&step) }),
            }
        }
        Launcher::Volcano => {
            let lists = variables.matching(|name| name.starts_with("VC_") && name.ends_with("_HOSTS"));
            let first = lists.first().and_then(|(_, hosts)| hosts.split(',').next());
            let host = first.ok_or(
                "Volcano's variables name no host: add the svc plugin, or set MASTER_ADDR and MASTER_PORT",
            )?;
            Ok(MeetingPlace::Tcp { host: host.to_owned(), port: port(host) })
        }
        Launcher::RankTable if table.is_some() => {
            let address: Option<IpAddr> =
                table.and_then(|table| table.rows.first()).and_then(|row| row.address);
            let path = variables.text("RANK_TABLE_FILE").unwrap_or_default();
            let address = address.ok_or(
                "the rank table gives no address for the host of rank 0 (host_ip, or server_id as an address): set \
                 MASTER_ADDR and MASTER_PORT",
            )?;
            Ok(MeetingPlace::Tcp { host: address.to_string(), port: port(path) })
        }
        Launcher::Shell | Launcher::RankTable => Err(format!(
            "the address of rank 0 for {} ranks is unknown: set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free \
             port there, or LOCAL_WORLD_SIZE={} if all are on this host",
            agreed.size, agreed.size
        )),
        launcher => Err(format!(
            "the {} ranks are on several hosts and {} does not say where rank 0 is: set MASTER_ADDR to its host and \
             MASTER_PORT to a free port there, on all ranks (mpirun -x MASTER_ADDR -x MASTER_PORT)",
            agreed.size,
            launcher.name()
        )),
    }
}

fn number(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::launcher::agree;
    use super::super::rank_table::tests::TWO_SERVERS;
    use super::super::variables::tests::variables;
    use super::*;

    fn place(text: &str, table: Option<&RankTable>) -> Result<MeetingPlace, String> {
        let variables = variables(text);
        find(&variables, table, &agree(&variables, table).unwrap())
    }

    fn tcp(text: &str) -> (String, u16) {
        match place(text, None) {
            Ok(MeetingPlace::Tcp { host, port }) => (host, port),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn socket(text: &str) -> String {
        match place(text, None) {
            Ok(MeetingPlace::Socket { job }) => job,
            other => panic!("{text}: {other:?}"),
        }
    }

    const TORCH: &str = "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 TORCHELASTIC_RUN_ID=j7 TORCHELASTIC_RESTART_COUNT=2 \
                         MASTER_ADDR=h MASTER_PORT=29500";

    #[test]
    fn an_address_is_taken_as_it_is() {
        assert_eq!(
            tcp("RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=12"),
            ("10.0.0.1".to_owned(), 12)
        );
        assert_eq!(
            tcp("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1 ASCEND_TP_STORE=[::1]:9"),
            ("::1".to_owned(), 9)
        );
        assert_eq!(tcp(&format!("{TORCH} TORCHELASTIC_USE_AGENT_STORE=False")), ("h".to_owned(), 29500));
        assert_eq!(place("RANK=0 WORLD_SIZE=1 MASTER_ADDR=h", None), Ok(MeetingPlace::Nowhere));
    }

    #[test]
    fn a_port_that_torchruns_agent_holds_is_not_bound() {
        let agents = format!("{TORCH} TORCHELASTIC_USE_AGENT_STORE=True");
        assert_eq!(socket(&format!("{agents} LOCAL_WORLD_SIZE=4")), "torchrun-j7-29500-2");
        assert_eq!(tcp(&format!("{agents} LOCAL_WORLD_SIZE=2")), ("h".to_owned(), 29501));
        let last = agents.replace("29500", "65535");
        assert_eq!(tcp(&last), ("h".to_owned(), 65534));
    }

    #[test]
    fn one_host_needs_no_address() {
        let mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1449000961";
        assert_eq!(socket(mpi), "open-mpi-1449000961");
        let slurm =
            "SLURM_STEP_ID=3 SLURM_JOB_ID=77 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE=2";
        assert_eq!(socket(slurm), "slurm-77.3");
        assert_eq!(
            socket("SLURM_STEP_ID=3 SLURM_JOB_ID=77 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n4"),
            "slurm-77.3"
        );
        let hydra = "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2";
        assert_eq!(socket(hydra), format!("hydra-parent-{}", std::os::unix::process::parent_id()));
    }

    #[test]
    fn several_hosts_meet_at_the_first() {
        let slurm = "SLURM_STEP_ID=0 SLURM_JOB_ID=77 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) \
                     SLURM_JOB_NODELIST=n[08-09]";
        let (host, port) = tcp(slurm);
        assert!(host == "n08" && (FIRST_PORT..2 * FIRST_PORT).contains(&port), "{host}:{port}");
        assert_eq!(tcp(&slurm.replace("SLURM_PROCID=1", "SLURM_PROCID=3 SLURM_NODEID=1")), (host, port));
        assert_ne!(tcp(&slurm.replace("=77", "=78")).1, port);
        let pods = "VC_TASK_INDEX=1 VC_WORKER_HOSTS=w-0.j,w-1.j VC_WORKER_NUM=2";
        assert_eq!(tcp(pods).0, "w-0.j");
        let table = RankTable::parse(TWO_SERVERS).unwrap();
        let Ok(MeetingPlace::Tcp { host, .. }) = place("RANK_TABLE_FILE=t RANK_ID=3", Some(&table)) else {
            panic!("tcp")
        };
        assert_eq!(host, "10.0.0.1");
    }

    #[test]
    fn no_place_says_what_to_set() {
        for (text, expected) in [
            (
                "RANK=1 WORLD_SIZE=2",
                "set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, or LOCAL_WORLD_SIZE=2",
            ),
            ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not set"),
            ("RANK=1 WORLD_SIZE=2 MASTER_PORT=5", "MASTER_ADDR is not set"),
            ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0", "MASTER_PORT is \"0\": expected a port"),
            (
                "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536",
                "MASTER_PORT is \"65536\": expected a port",
            ),
            (
                "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h:12 MASTER_PORT=5",
                "expected a host name or an address, without a port",
            ),
            ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=http://h MASTER_PORT=5", "expected a host name or an address"),
            ("RANK=1 WORLD_SIZE=2 ASCEND_TP_STORE=here", "expected host:port"),
            ("RANK=1 WORLD_SIZE=2 ASCEND_TP_STORE=:9", "expected host:port"),
            ("RANK=1 WORLD_SIZE=2 ASCEND_TP_STORE=h:70000", "expected host:port"),
            (
                "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                "mpirun -x MASTER_ADDR",
            ),
            (
                "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_JOB_NODELIST=n[1-",
                "expected a list such as n[1-3,7]",
            ),
        ] {
            let error = place(text, None).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

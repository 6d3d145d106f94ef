//! Configuration of an emulated machine.
//!
//! Only [`Config::default`] reads the environment.

use std::time::Duration;

use ascend_tp_machine::{Profile, Soc, Topology};

use crate::base::collective_engine::CollectiveEngine;
use crate::base::report::ReportKind;
use crate::faults::fault::Fault;

/// Execution order and amount of checking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Computes real results as fast as the host allows.
    #[default]
    Parallel,
    /// Executes calls and tasks one at a time in an order selected by the seed, and reports illegal
    /// use.
    Strict {
        /// Seed of the order of execution.
        seed: u64,
    },
    /// Simulates the time of cards, links and threads from the cost of operators, exchanges and
    /// calls.
    Timed {
        /// Computation of results by the cards.
        numbers: Numbers,
    },
    /// Checks calls and advances queues, but computes nothing. Measures the host cost of a program.
    /// Memory is accounted but not used, and the host reads zeros.
    HostOnly,
}

/// Computation of results in timed mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Numbers {
    /// Only time passes. Memory is accounted but not used, and the host reads zeros.
    #[default]
    None,
    /// Operators, copies and collectives compute as in parallel mode.
    Real,
}

impl Mode {
    /// Returns the seed of strict mode.
    #[must_use]
    pub const fn seed(self) -> Option<u64> {
        match self {
            Self::Parallel | Self::Timed { .. } | Self::HostOnly => None,
            Self::Strict { seed } => Some(seed),
        }
    }

    /// Returns true if the mode computes the real contents of memory.
    #[must_use]
    pub const fn has_numbers(self) -> bool {
        match self {
            Self::Parallel | Self::Strict { .. } | Self::Timed { numbers: Numbers::Real } => true,
            Self::Timed { numbers: Numbers::None } | Self::HostOnly => false,
        }
    }
}

/// Transport of collective data between processes of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory within a host, TCP between hosts.
    #[default]
    Auto,
    /// TCP between all processes, even within a host.
    Tcp,
}

impl Transport {
    /// An empty name is the default.
    fn find(name: &str) -> Option<Self> {
        match name.trim() {
            "" | "auto" => Some(Self::Auto),
            "tcp" => Some(Self::Tcp),
            _ => None,
        }
    }
}

/// Processes that can access the cards' memory. The choice is fixed when the machine is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sharing {
    /// Only this process. Cards use private pages, possibly huge pages. Memory cannot be exported;
    /// communicators with other processes use links.
    #[default]
    Process,
    /// Every process of this host that a communicator or key names. Cards use an anonymous file,
    /// which other processes map. Most systems grant it only small pages, so the first access takes
    /// longer.
    Host,
}

/// Output for messages about refused calls, one per call site. Codes and messages are always
/// readable (`aclrtGetLastError`, `aclGetRecentErrMsg`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Messages {
    /// No output; programs read codes and `aclGetRecentErrMsg`.
    #[default]
    Quiet,
    /// Output on the standard error stream.
    StandardError,
    /// Standard output, like CANN's log with `ASCEND_SLOG_PRINT_TO_STDOUT=1`.
    StandardOutput,
}

/// Assumptions of strict mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrictRules {
    /// Alignment of allocations in bytes: addresses are odd multiples of this power of two.
    /// `aclrtMalloc` and `aclrtMallocHost` promise only 64 (AscendCL guide 8.0 to 8.5); cards use
    /// 512.
    pub alignment: usize,
    /// Report kinds that are printed but not counted.
    pub ignored: Vec<ReportKind>,
    /// Findings that are printed but not counted: the text up to the first call. Numbers may
    /// differ.
    pub known: Vec<String>,
}

impl StrictRules {
    /// Valid values of [`alignment`](Self::alignment), in bytes.
    pub const ALIGNMENTS: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
}

impl Default for StrictRules {
    fn default() -> Self {
        Self { alignment: 64, ignored: Vec::new(), known: Vec::new() }
    }
}

/// CANN version with its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum CannVersion {
    /// CANN 8.1.RC1, of spring 2025.
    V8_1,
    /// CANN 8.5.0, released in winter 2025.
    V8_5,
    /// CANN 9.0.0, the newest supported version.
    #[default]
    V9_0,
}

impl CannVersion {
    /// Lists all versions in ascending order.
    pub const ALL: [Self; 3] = [Self::V8_1, Self::V8_5, Self::V9_0];

    /// Returns the major and minor number as text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V8_1 => "8.1",
            Self::V8_5 => "8.5",
            Self::V9_0 => "9.0",
        }
    }

    pub(crate) const fn numbers(self) -> [i32; 3] {
        match self {
            Self::V8_1 => [8, 1, 0],
            Self::V8_5 => [8, 5, 0],
            Self::V9_0 => [9, 0, 0],
        }
    }

    /// Returns the version of AscendCL's interface (`ACL_MAJOR_VERSION` … in the headers).
    pub(crate) const fn interface(self) -> [i32; 3] {
        match self {
            Self::V8_1 => [1, 13, 0],
            Self::V8_5 => [1, 16, 0],
            Self::V9_0 => [1, 17, 0],
        }
    }

    /// Returns the full name after the major and minor number.
    pub(crate) const fn release(self) -> &'static str {
        match self {
            Self::V8_1 => "RC1",
            Self::V8_5 | Self::V9_0 => "0",
        }
    }

    pub(crate) fn full_name(self) -> String {
        format!("{}.{}", self.name(), self.release())
    }
}

/// Configuration of an emulated machine.
#[derive(Debug, Clone)]
pub struct Config {
    /// Number of cards, from 1 to [`Config::MAX_CARDS`].
    pub cards: usize,
    /// Chip of every card.
    pub soc: Soc,
    /// Memory available to programs per card, in bytes. The host provides memory when it is used.
    pub hbm_bytes: u64,
    /// Number of threads that run the tasks of all cards, at least 1.
    pub threads: usize,
    /// Execution order of the machine.
    pub mode: Mode,
    /// Assumptions of strict mode.
    pub strict: StrictRules,
    /// Cost profile of the chip, for timed mode.
    pub profile: Profile,
    /// Connections between the cards, for timed mode.
    pub topology: Topology,
    /// Engine of collectives (`HCCL_OP_EXPANSION_MODE`), which determines HCCL's streams on a card.
    /// Results and durations do not depend on it.
    pub engine: CollectiveEngine,
    /// Size of each of a communicator's two buffers in bytes (`HCCL_BUFFSIZE`, in MiB), unless its
    /// configuration differs. Every card of the communicator holds both.
    pub communicator_buffer_bytes: u64,
    /// Time limit for the ranks of a new communicator (`HCCL_CONNECT_TIMEOUT`, in seconds).
    pub connect_timeout: Duration,
    /// Time limit for the ranks of a collective (`HCCL_EXEC_TIMEOUT`, in seconds).
    pub exec_timeout: Duration,
    /// Transport between processes (`ASCEND_EMULATOR_TRANSPORT`: `auto` or `tcp`).
    pub transport: Transport,
    /// Processes that can access the cards' memory. Private by default; [`Config::from_env`]
    /// selects shared memory.
    pub sharing: Sharing,
    /// Version of the emulated CANN installation.
    pub cann: CannVersion,
    /// Output for messages about refused calls.
    pub messages: Messages,
    /// Faults that are active from the first call on.
    pub faults: Vec<Fault>,
}

impl Config {
    /// Maximum number of cards of one emulator.
    pub const MAX_CARDS: usize = 1024;

    /// Maximum number of threads; no host has more cores.
    pub const MAX_THREADS: usize = 1024;

    /// Returns the default machine with another number of cards.
    #[must_use]
    pub fn with_cards(cards: usize) -> Self {
        Self { cards, ..Self::default() }
    }

    /// Returns a timed machine of servers with eight cards each, with the chip's shipped profile.
    #[must_use]
    pub fn timed(soc: Soc, cards: usize, numbers: Numbers) -> Self {
        Self {
            soc,
            hbm_bytes: soc.hbm_usable_bytes(),
            mode: Mode::Timed { numbers },
            profile: Profile::of(soc),
            topology: Topology::atlas_a2_of(cards),
            ..Self::with_cards(cards)
        }
    }
}

impl Default for Config {
    /// Returns eight `Ascend910B3` cards, as on an Atlas 800 A2.
    fn default() -> Self {
        Self {
            cards: 8,
            soc: Soc::default(),
            hbm_bytes: Soc::default().hbm_usable_bytes(),
            mode: Mode::default(),
            strict: StrictRules::default(),
            profile: Profile::of(Soc::default()),
            topology: Topology::atlas_a2(1),
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            engine: CollectiveEngine::named(&std::env::var(EXPANSION).unwrap_or_default()),
            communicator_buffer_bytes: number_from_environment("HCCL_BUFFSIZE", 200) << 20,
            connect_timeout: seconds_from_environment("HCCL_CONNECT_TIMEOUT", 120),
            exec_timeout: exec_timeout_from_environment(),
            transport: std::env::var(TRANSPORT)
                .ok()
                .and_then(|text| Transport::find(&text))
                .unwrap_or_default(),
            sharing: Sharing::default(),
            cann: CannVersion::default(),
            messages: Messages::default(),
            faults: Vec::new(),
        }
    }
}

const EXPANSION: &str = "HCCL_OP_EXPANSION_MODE";

const TRANSPORT: &str = "ASCEND_EMULATOR_TRANSPORT";

/// Checks the HCCL and transport variables. HCCL fails to initialise (EI0001) for values out of
/// range. Short time limits are accepted here, for tests.
pub(crate) fn variable_problems(text: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (variable, least, meaning) in [
        ("HCCL_BUFFSIZE", 1, "the MB of a communicator's buffer, from 1 on"),
        ("HCCL_CONNECT_TIMEOUT", 1, "seconds to wait for a rank, from 1 on"),
        ("HCCL_EXEC_TIMEOUT", 0, "seconds to wait in a collective, or 0 for ever"),
    ] {
        let most = i32::MAX as u64;
        if let Some(text) = text(variable).filter(|text| !text.trim().is_empty())
            && !text.trim().parse::<u64>().is_ok_and(|number| (least..=most).contains(&number))
        {
            problems.push(format!("{variable} is \"{text}\": expected {meaning}"));
        }
    }
    if let Some(text) = text(TRANSPORT).filter(|text| Transport::find(text).is_none()) {
        problems.push(format!("{TRANSPORT} is \"{text}\": expected auto or tcp"));
    }
    problems
}

/// 0 means practically no limit, as `HCCL_EXEC_TIMEOUT` defines.
fn exec_timeout_from_environment() -> Duration {
    match std::env::var("HCCL_EXEC_TIMEOUT").as_deref().map(str::trim) {
        Ok("0") => Duration::from_secs(i32::MAX as u64),
        _ => seconds_from_environment("HCCL_EXEC_TIMEOUT", 1836),
    }
}

/// Ignores invalid values, because [`Config::default`] cannot fail. [`Config::from_env`] reports
/// them.
fn number_from_environment(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok().and_then(|text| text.trim().parse().ok());
    value.filter(|number| *number > 0).unwrap_or(default)
}

fn seconds_from_environment(variable: &str, default: u64) -> Duration {
    Duration::from_secs(number_from_environment(variable, default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_out_of_range_are_named() {
        let problems = |set: &[(&str, &str)]| {
            variable_problems(|name| {
                set.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned())
            })
        };
        let good = [
            ("HCCL_BUFFSIZE", "200"),
            ("HCCL_CONNECT_TIMEOUT", " 7 "),
            ("HCCL_EXEC_TIMEOUT", "0"),
            (TRANSPORT, "tcp"),
        ];
        assert_eq!(problems(&good), Vec::<String>::new());
        assert_eq!(problems(&[("HCCL_BUFFSIZE", "")]), Vec::<String>::new());
        let bad = [
            ("HCCL_BUFFSIZE", "-1"),
            ("HCCL_CONNECT_TIMEOUT", "abc"),
            ("HCCL_EXEC_TIMEOUT", "1e3"),
            (TRANSPORT, "udp"),
        ];
        let found = problems(&bad);
        assert_eq!(found.len(), 4, "{found:?}");
        for ((name, text), problem) in bad.iter().zip(&found) {
            assert!(problem.starts_with(&format!("{name} is \"{text}\": expected ")), "{problem}");
        }
    }

    #[test]
    fn the_default_machine_is_an_eight_card_server() {
        let config = Config::default();
        assert_eq!((config.cards, config.soc.name()), (8, "Ascend910B3"));
        assert!(config.threads >= 1);
        assert_eq!(Config::with_cards(3).cards, 3);
    }
}

//! What machine to emulate: how many cards, which chip, how much memory, how many cores work for them.
//!
//! Input: the user's [`Config`]. Output: the same, checked. Does not: read anything but three HCCL variables from
//! the environment, and those only in [`Config::default`].

use std::time::Duration;

use ascend_tp_machine::{Profile, Soc, Topology};

use crate::base::collective_engine::CollectiveEngine;
use crate::base::report::ReportKind;
use crate::faults::fault::Fault;

/// In which order a machine works, and how closely it watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Real numbers as fast as the host allows.
    #[default]
    Parallel,
    /// Every call and every queued task waits for its turn, which the seed picks; illegal use is reported.
    Strict {
        /// Same seed, same order.
        seed: u64,
    },
    /// Cards, links and threads have a virtual time, which costs of operators, exchanges and calls add up to.
    Timed {
        /// Whether the cards compute.
        numbers: Numbers,
    },
    /// Calls are checked and queues go on, but nothing is computed and no time is kept: what is left is what a program and
    /// the path of its calls cost the host. Memory is accounted and never touched, the host reads zeros.
    HostOnly,
}

/// Whether the cards of a timed machine compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Numbers {
    /// Nothing but time passes: memory is accounted and never touched, the host reads zeros.
    #[default]
    None,
    /// Operators, copies and collectives do what they do in parallel mode.
    Real,
}

impl Mode {
    /// The seed of strict mode.
    #[must_use]
    pub const fn seed(self) -> Option<u64> {
        match self {
            Self::Parallel | Self::Timed { .. } | Self::HostOnly => None,
            Self::Strict { seed } => Some(seed),
        }
    }

    /// Whether bytes of cards are what the program computes.
    #[must_use]
    pub const fn has_numbers(self) -> bool {
        match self {
            Self::Parallel | Self::Strict { .. } | Self::Timed { numbers: Numbers::Real } => true,
            Self::Timed { numbers: Numbers::None } | Self::HostOnly => false,
        }
    }
}

/// What carries the data of collectives between processes of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory within a host, TCP between hosts.
    #[default]
    Auto,
    /// TCP everywhere, within a host too.
    Tcp,
}

impl Transport {
    /// The transport of this name; no name is the default.
    fn find(name: &str) -> Option<Self> {
        match name.trim() {
            "" | "auto" => Some(Self::Auto),
            "tcp" => Some(Self::Tcp),
            _ => None,
        }
    }
}

/// Which processes reach the memory of the cards. Chosen when a machine is made: memory lies where it is made until it is
/// freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sharing {
    /// This one. Cards have pages of the process's own, huge ones where the system grants them; memory cannot be exported,
    /// and data of communicators with other processes goes by links.
    #[default]
    Process,
    /// Every process of this host that a communicator or a key names: cards have memory of a nameless file, which the others
    /// map. Most systems grant it small pages only, which take longer to be touched first.
    Host,
}

/// Where a machine says which calls it refuses, each call site once. Code and message are always there for the program
/// (`aclrtGetLastError`, `aclGetRecentErrMsg`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Messages {
    /// Nothing is said; codes and `aclGetRecentErrMsg` tell.
    #[default]
    Quiet,
    /// On standard error.
    StandardError,
    /// On standard output, as CANN's log with `ASCEND_SLOG_PRINT_TO_STDOUT=1`.
    StandardOutput,
}

/// What strict mode takes for granted, beside its seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrictRules {
    /// First addresses are odd multiples of this many bytes: a power of two from 64, all that `aclrtMalloc` and
    /// `aclrtMallocHost` promise (AscendCL guide 8.0 to 8.5, both pages), to 2048. A card gives multiples of 512.
    pub alignment: usize,
    /// Kinds that are told of and are no reports.
    pub ignored: Vec<ReportKind>,
    /// Reports that are told of and are no reports: as they are printed, up to the first call they name. Numbers need not agree.
    pub known: Vec<String>,
}

impl StrictRules {
    /// What [`alignment`](Self::alignment) may be, in bytes.
    pub const ALIGNMENTS: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
}

impl Default for StrictRules {
    /// The strictest legal card.
    fn default() -> Self {
        Self { alignment: 64, ignored: Vec::new(), known: Vec::new() }
    }
}

/// The CANN whose rules hold where they have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum CannVersion {
    /// 8.1.RC1, of spring 2025.
    V8_1,
    /// 8.5.0, of winter 2025.
    V8_5,
    /// 9.0.0, the newest that is known here.
    #[default]
    V9_0,
}

impl CannVersion {
    /// Every version there is.
    pub const ALL: [Self; 3] = [Self::V8_1, Self::V8_5, Self::V9_0];

    /// Major and minor number, as written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V8_1 => "8.1",
            Self::V8_5 => "8.5",
            Self::V9_0 => "9.0",
        }
    }

    /// Major, minor and patch number.
    pub(crate) const fn numbers(self) -> [i32; 3] {
        match self {
            Self::V8_1 => [8, 1, 0],
            Self::V8_5 => [8, 5, 0],
            Self::V9_0 => [9, 0, 0],
        }
    }

    /// Major, minor and patch number of AscendCL's interface, which has numbers of its own (`ACL_MAJOR_VERSION` … of the
    /// headers).
    pub(crate) const fn interface(self) -> [i32; 3] {
        match self {
            Self::V8_1 => [1, 13, 0],
            Self::V8_5 => [1, 16, 0],
            Self::V9_0 => [1, 17, 0],
        }
    }

    /// What follows major and minor number in the whole name.
    pub(crate) const fn release(self) -> &'static str {
        match self {
            Self::V8_1 => "RC1",
            Self::V8_5 | Self::V9_0 => "0",
        }
    }

    /// The whole name.
    pub(crate) fn full_name(self) -> String {
        format!("{}.{}", self.name(), self.release())
    }
}

/// The machine to emulate.
#[derive(Debug, Clone)]
pub struct Config {
    /// Number of cards, at least 1, at most [`Config::MAX_CARDS`].
    pub cards: usize,
    /// Chip of every card.
    pub soc: Soc,
    /// Memory a program can get on one card, in bytes; costs nothing on the host until it is touched.
    pub hbm_bytes: u64,
    /// Threads of the one pool that runs the tasks of all cards, at least 1.
    pub threads: usize,
    /// In which order the machine works.
    pub mode: Mode,
    /// What strict mode takes for granted.
    pub strict: StrictRules,
    /// The chip's costs, which timed mode asks.
    pub profile: Profile,
    /// How the cards are joined, which timed mode asks.
    pub topology: Topology,
    /// Which way collectives are run (`HCCL_OP_EXPANSION_MODE`), by which a card has more or fewer streams for them. What they compute
    /// and how long they take is the same.
    pub engine: CollectiveEngine,
    /// Size of each of a communicator's two buffers, in bytes (`HCCL_BUFFSIZE`, MiB), unless its own configuration says
    /// otherwise. Each communicator holds both on every card it spans (CANN environment variables, `HCCL_BUFFSIZE`: "2 ×
    /// `HCCL_BUFFSIZE`, for receiving and for sending").
    pub communicator_buffer_bytes: u64,
    /// How long a rank waits for the others when a communicator is built (`HCCL_CONNECT_TIMEOUT`, seconds).
    pub connect_timeout: Duration,
    /// How long a collective waits for its last rank before it fails (`HCCL_EXEC_TIMEOUT`, seconds).
    pub exec_timeout: Duration,
    /// What carries data between processes (`ASCEND_EMULATOR_TRANSPORT`: `auto` or `tcp`).
    pub transport: Transport,
    /// Which processes reach the cards' memory. A machine that a program embeds keeps its memory to itself; one that the
    /// environment asks for ([`Config::from_env`]) shares it.
    pub sharing: Sharing,
    /// The CANN whose rules hold.
    pub cann: CannVersion,
    /// Where it says which calls it refuses.
    pub messages: Messages,
    /// Faults that are laid over it from its first call on.
    pub faults: Vec<Fault>,
}

impl Config {
    /// More cards than this in one emulator are refused.
    pub const MAX_CARDS: usize = 1024;

    /// More threads than this are refused: no host has as many cores.
    pub const MAX_THREADS: usize = 1024;

    /// The default machine with another number of cards.
    #[must_use]
    pub fn with_cards(cards: usize) -> Self {
        Self { cards, ..Self::default() }
    }

    /// A timed machine of servers with eight cards of a chip each, as many as it takes; its profile is the one that ships.
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
    /// Eight `Ascend910B3` cards as a program finds them on an Atlas 800 A2, worked by all cores of this host.
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
            transport: std::env::var(TRANSPORT).ok().and_then(|text| Transport::find(&text)).unwrap_or_default(),
            sharing: Sharing::default(),
            cann: CannVersion::default(),
            messages: Messages::default(),
            faults: Vec::new(),
        }
    }
}

/// The variable that says what runs collectives.
const EXPANSION: &str = "HCCL_OP_EXPANSION_MODE";

/// The variable that says how processes reach each other: `auto` or `tcp`.
const TRANSPORT: &str = "ASCEND_EMULATOR_TRANSPORT";

/// What is wrong with the variables of HCCL that a machine follows, and with that of the transport. HCCL fails to initialise
/// (EI0001) over values that are out of range; limits below HCCL's least are taken here, for tests.
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

/// 0 is a limit that nobody lives to see, as `HCCL_EXEC_TIMEOUT` has it.
fn exec_timeout_from_environment() -> Duration {
    match std::env::var("HCCL_EXEC_TIMEOUT").as_deref().map(str::trim) {
        Ok("0") => Duration::from_secs(i32::MAX as u64),
        _ => seconds_from_environment("HCCL_EXEC_TIMEOUT", 1836),
    }
}

/// [`Config::default`] cannot fail, so it takes the default for what is no positive number; [`Config::from_env`] refuses it.
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
            variable_problems(|name| set.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned()))
        };
        let good =
            [("HCCL_BUFFSIZE", "200"), ("HCCL_CONNECT_TIMEOUT", " 7 "), ("HCCL_EXEC_TIMEOUT", "0"), (TRANSPORT, "tcp")];
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

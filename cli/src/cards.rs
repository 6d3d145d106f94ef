//! The cards that a command runs on: NPUs of an installed toolkit, or the emulator.

use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::device::KernelSource;
use ascend_tp::emulator::{Config, Emulator, EmulatorError, Messages, Mode, Numbers, Sharing};
use ascend_tp::exec::{Clock, EngineOptions, Marks};
use ascend_tp::world::ProcessGroup;
use ascend_tp_machine::Soc;
use ascend_tp_planner::train::job::peak_flops_per_s;
use ascend_tp_sys::{LoadError, Table, load};

use super::failure::Failure;
use super::note;
use super::numbers::counted;
use super::site::Site;
use super::values::DeviceKind;

#[derive(Debug)]
pub(super) struct Cards {
    pub(super) cann: Arc<Cann>,
    count: usize,
    /// Streams of a strict emulator are marked, so that its reports name ops.
    marks: Marks,
    emulator: Option<Emulator>,
    /// For example `8 emulated Ascend910B3 cards`.
    pub(super) description: String,
}

/// Opens the requested device for the processes of a group. The first process notes the choice on
/// stderr.
///
/// # Errors
/// NPUs were requested and there is no usable toolkit, or the library does not start.
pub(super) fn open(kind: DeviceKind, group: &ProcessGroup) -> Result<Cards, Failure> {
    open_for(kind, group, None, 0)
}

/// Opens as [`open`] does, with at least `wanted` cards of an emulator.
pub(super) fn open_at_least(kind: DeviceKind, group: &ProcessGroup, wanted: usize) -> Result<Cards, Failure> {
    open_for(kind, group, None, wanted)
}

/// Opens as [`open`] does, with exactly `emulated_cards` or at least `wanted` cards of an emulator.
pub(super) fn open_for(
    kind: DeviceKind,
    group: &ProcessGroup,
    emulated_cards: Option<usize>,
    wanted: usize,
) -> Result<Cards, Failure> {
    let emulated = || {
        let emulator = emulator(group, emulated_cards, wanted)?;
        Ok::<_, Failure>((emulator.table(), Some(emulator)))
    };
    let (table, emulator) = match kind {
        DeviceKind::Emulator => emulated()?,
        DeviceKind::Npu => (toolkit(load(None))?, None),
        DeviceKind::Auto => match load(None) {
            Err(LoadError::NotFound { .. }) => {
                if group.is_first() {
                    note("no CANN toolkit is installed: running on the emulator");
                }
                emulated()?
            }
            // A broken toolkit is reported instead of falling back to the emulator.
            found => (toolkit(found)?, None),
        },
    };
    let cann = Cann::new(table).map_err(|error| Failure::Run(error.into()))?;
    let count = cann.device_count().map_err(|error| Failure::Run(error.into()))?;
    let chip = cann.soc_name().unwrap_or_else(|| "Ascend".to_owned());
    let adjective = if emulator.is_some() { "emulated " } else { "" };
    let description = format!("{count} {adjective}{chip} card{}", if count == 1 { "" } else { "s" });
    let is_strict =
        emulator.as_ref().is_some_and(|emulator| matches!(emulator.config().mode, Mode::Strict { .. }));
    let marks = if is_strict { Marks::EachOp } else { Marks::None };
    Ok(Cards { cann, count, marks, emulator, description })
}

/// Environment variable with the path of a library of the kernels in `kernels/`.
const KERNEL_LIBRARY: &str = "ASCEND_TP_KERNEL_LIBRARY";

/// Returns the source of the kernels: the library named by `ASCEND_TP_KERNEL_LIBRARY`, else the
/// built-in kernels.
///
/// Emulated cards cannot run the built-in kernels.
pub(super) fn kernels(are_emulated: bool) -> Result<KernelSource, Diagnostics> {
    let Some(path) = std::env::var_os(KERNEL_LIBRARY).filter(|path| !path.is_empty()) else {
        return Ok(if are_emulated { KernelSource::None } else { KernelSource::BuiltIn });
    };
    let found = std::path::Path::new(&path).canonicalize().map_err(|error| {
        let problem = Diagnostic::new(KERNEL_LIBRARY, format!("the library cannot be found: {error}"))
            .found(path.display());
        problem.help("`ascend-tp kernel build kernels/*.cpp --out FILE` builds a library for emulated cards")
    })?;
    Ok(KernelSource::Library(found))
}

/// Creates the emulator that `ASCEND_EMULATOR` describes, with at least `wanted` cards. The
/// processes of the group share its memory.
fn emulator(group: &ProcessGroup, cards: Option<usize>, wanted: usize) -> Result<Emulator, Failure> {
    let config = Config::from_env().map_err(|error| Failure::Input(error.into()))?;
    let sharing = if group.size() > 1 { config.sharing } else { Sharing::Process };
    // This program reports failures itself.
    let messages = Messages::Quiet;
    let cards = cards.unwrap_or(config.cards.max(wanted));
    Emulator::new(Config { cards, sharing, messages, ..config }).map_err(|error| match error {
        EmulatorError::TooManyEmulators | EmulatorError::Memory(_) | EmulatorError::Threads(_) => {
            Failure::Run(error.into())
        }
        error => Failure::Input(anyhow::anyhow!("ASCEND_EMULATOR: {error}")),
    })
}

fn toolkit(found: Result<Table, LoadError>) -> Result<Arc<Table>, Failure> {
    let hint = "use --device emulator to run without a toolkit";
    found.map(Arc::new).map_err(|error| Failure::Input(anyhow::anyhow!("{error}\n{hint}")))
}

impl Cards {
    /// Returns the peak rate of products of one card for an element type, in floating-point
    /// operations per second. None for emulated cards and unknown chips.
    pub(super) fn peak_flops(&self, dtype: DType) -> Option<f64> {
        let soc = Soc::find(&self.cann.soc_name().filter(|_| !self.is_emulated())?)?;
        Some(peak_flops_per_s(soc, dtype))
    }

    /// Returns the chip and the topology of the cards, or None for an unknown chip.
    pub(super) fn site(&self) -> Option<Site> {
        Some(Site::of(Soc::find(&self.cann.soc_name()?)?))
    }

    pub(super) fn kernels(&self) -> Result<KernelSource, Diagnostics> {
        kernels(self.is_emulated())
    }

    /// Returns the options of an engine on these cards.
    ///
    /// # Errors
    /// The library of kernels cannot be used.
    pub(super) fn engine_options(&self, group: &Arc<ProcessGroup>) -> Result<EngineOptions, Diagnostics> {
        let (group, kernels) = (Arc::clone(group), self.kernels()?);
        Ok(EngineOptions { group, marks: self.marks, kernels, ..EngineOptions::default() })
    }

    pub(super) const fn is_emulated(&self) -> bool {
        self.emulator.is_some()
    }

    /// Returns the virtual clock of a timed emulator.
    pub(super) fn clock(&self) -> Option<Clock> {
        let is_timed = |emulator: &&Emulator| matches!(emulator.config().mode, Mode::Timed { .. });
        let emulator = self.emulator.as_ref().filter(is_timed)?.clone();
        Some(Clock(Arc::new(move || emulator.thread_now_ns())))
    }

    /// Fails if these cards compute no numbers.
    pub(super) fn require_numbers(&self) -> Result<(), Failure> {
        match self.emulator.as_ref().map(|emulator| emulator.config().mode) {
            Some(Mode::Timed { numbers: Numbers::None } | Mode::HostOnly) => {
                Err(Failure::Input(anyhow::anyhow!(
                    "ASCEND_EMULATOR describes cards that compute nothing: leave `timed` out, use `timed=numbers`, or use \
                 `ascend-tp rehearse` for times without numbers"
                )))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_reports(&self) -> Result<(), Failure> {
        let reports = self.emulator.as_ref().map(Emulator::reports).unwrap_or_default();
        if reports.is_empty() {
            return Ok(());
        }
        let what = format!("the strict emulator found {}, see above", counted(reports.len(), "problem"));
        Err(Failure::Run(anyhow::anyhow!(what)))
    }

    pub(super) fn problem(&self, wanted: usize) -> Option<Diagnostic> {
        (wanted == 0 || wanted > self.count).then(|| {
            let problem = Diagnostic::new("--cards", "not enough cards")
                .expected(format!("1 to {}, of {}", self.count, self.description))
                .found(wanted);
            match self.emulator {
                Some(_) if (self.count..=Config::MAX_CARDS).contains(&wanted) => {
                    problem.help(format!("ASCEND_EMULATOR=cards={wanted} sets the number of emulated cards"))
                }
                _ => problem,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_has_eight_cards() {
        let cards = open(DeviceKind::Emulator, &ProcessGroup::alone()).unwrap();
        assert_eq!(cards.description, "8 emulated Ascend910B3 cards");
        assert_eq!(cards.problem(8), None);
        let message = cards.problem(9).unwrap().to_string();
        let expected = "--cards: not enough cards: expected 1 to 8, of 8 emulated Ascend910B3 cards, found 9; \
                        ASCEND_EMULATOR=cards=9 sets the number of emulated cards";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_toolkit_that_is_missing_names_the_way_out() {
        let missing = Err(LoadError::NotFound { looked_at: vec!["nowhere".to_owned()] });
        let Err(Failure::Input(error)) = toolkit(missing) else { panic!("bad input") };
        let text = error.to_string();
        assert!(text.contains("nowhere") && text.contains("--device emulator"), "{text}");
    }
}

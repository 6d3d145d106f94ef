//! Supervision of training processes: `--processes` starts the ranks, and `--max-restarts` restarts
//! them.
//!
//! - Input: the options of `train`.
//! - Output: ranks as child processes with the same options, until they end.
//! - A request to end this process is passed on, and the ranks save. Ranks with wrong options and
//!   interrupted ranks are not restarted.
//! - Each start uses the cards that answer at that time, so a run shrinks to the remaining cards. A
//!   run with fewer cards than allowed looks for more; when cards return, it saves and restarts on
//!   them.
//! - With `--max-restarts 0`, the first failure ends the run. Exception: after a failure on cards
//!   that have just returned, the run continues without these cards.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ascend_tp::Cann;
use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::device::{self, Buffer, Device};
use ascend_tp::generate::Model;
use ascend_tp::machine::Soc;
use ascend_tp::world::{ProcessGroup, World};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::super::children::{ChildJob, ChildOutput, Children, OrderlyEnd};
use super::super::failure::{Failure, Outcome};
use super::super::numbers::counted;
use super::super::site::Site;
use super::super::values::{DeviceKind, MOST_STARTED};
use super::super::{cards, interrupt, model, note, print_json};
use super::TrainOptions;
use super::step::{StepContext, StepOptions};

#[derive(Clone, Debug, Args)]
pub(super) struct RestartOptions {
    /// Number of processes to start, one card each. MIN:MAX starts one process
    /// for each card that responds, as far as the mesh allows
    #[arg(long, value_name = "N", conflicts_with = "cards", help_heading = "Processes")]
    processes: Option<Processes>,
    /// Maximum number of restarts of all processes from the newest checkpoint after a failure
    #[arg(
        long,
        value_name = "N",
        requires_all = ["processes", "save_every"],
        default_value_t = 0,
        help_heading = "Processes"
    )]
    max_restarts: usize,
    /// Seconds between checks whether failed cards respond again; 0 disables the checks. They need
    /// --save and --processes MIN:MAX. When cards respond, all ranks save and restart on more
    /// cards. If the run then fails within an hour, it continues without these cards, does not
    /// count a restart, and doubles the interval
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "processes",
        default_value_t = 60,
        help_heading = "Processes"
    )]
    look_every: u64,
    /// Number of this start in a run with `--processes`.
    #[arg(long, hide = true)]
    restart: Option<usize>,
    /// File to create after the first step.
    #[arg(long, hide = true, value_name = "FILE")]
    begun: Option<PathBuf>,
    /// Prints for each card the reason why it does not answer.
    #[arg(long, hide = true)]
    cards_that_answer: bool,
    /// Cards in use, which are not tried.
    #[arg(long, hide = true, value_delimiter = ',')]
    at_work: Vec<usize>,
}

/// Time limit of a check of the cards, because a driver may hang.
const LOOK_LIMIT: Duration = Duration::from_secs(120);

/// Time that a restart waits for cards that a killed process has not released yet, or that are
/// being reset.
const BACK_LIMIT: Duration = Duration::from_secs(60);

/// Trial period of returned cards.
const TRIAL: Duration = Duration::from_secs(3600);

const LOOK_AGAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processes {
    least: usize,
    most: usize,
}

impl FromStr for Processes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once(':').unwrap_or((text, text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 0 < least && least <= most && most <= MOST_STARTED => {
                Ok(Self { least, most })
            }
            _ => Err(format!("expected a number from 1 to {MOST_STARTED}, or two such as 4:8")),
        }
    }
}

impl RestartOptions {
    pub(super) const fn is_started(&self) -> bool {
        self.restart.is_some()
    }

    /// Notifies the supervisor that a step is done, if it asked for the notice. Only the first rank
    /// notifies.
    pub(super) fn say_begun(&self, speaks: bool) {
        if let Some(path) = self.begun.as_ref().filter(|_| speaks) {
            // Without the file the supervisor looks for no cards, which is harmless.
            let _made = File::create(path);
        }
    }

    /// Returns whether this process belongs to a restart of the run.
    pub(super) fn is_restart(&self) -> bool {
        self.restart.is_some_and(|restart| restart > 0)
    }
}

/// Returns the problem of a run that its launcher may restart without `--resume`.
pub(super) fn problem(options: &TrainOptions) -> Option<Diagnostic> {
    const RESTARTS: &str = "TORCHELASTIC_MAX_RESTARTS";
    let restarts: usize = std::env::var(RESTARTS).ok()?.trim().parse().ok()?;
    let is_refused = restarts > 0 && options.save.is_some() && !options.resume;
    is_refused.then(|| {
        let problem = Diagnostic::new(
            "--save",
            "torchrun may restart this run, which would then find its own checkpoints",
        );
        problem.expected("--resume, or torchrun --max-restarts 0").found(format!("{RESTARTS}={restarts}"))
    })
}

/// Returns whether this run was restarted automatically.
pub(super) fn is_unattended(options: &TrainOptions) -> bool {
    let restart =
        std::env::var("TORCHELASTIC_RESTART_COUNT").ok().and_then(|count| count.trim().parse().ok());
    options.restarts.is_restart() || restart.is_some_and(|restart: usize| restart > 0)
}

/// Starts the ranks and waits for them, with restarts. Returns None without `--processes`, and in a
/// rank.
///
/// # Errors
/// A launcher started several processes, too few cards answer, or a rank fails after the last
/// restart.
pub(super) fn supervise(options: &TrainOptions) -> Result<Option<Outcome>, Failure> {
    let asked = &options.restarts;
    if asked.cards_that_answer {
        return answer(options.device, &asked.at_work).map(Some);
    }
    let Some(processes) = asked.processes.filter(|_| asked.restart.is_none()) else { return Ok(None) };
    let world = World::from_env().map_err(|error| Failure::Input(error.into()))?;
    if world.size > 1 {
        let problem =
            Diagnostic::new("--processes", "a launcher has already started processes").found(world.size);
        return Err(Diagnostics::from(problem.help("leave it out and use torchrun --max-restarts")).into());
    }
    let _requested = interrupt::catch(&Arc::new(ProcessGroup::alone()));
    interrupt::end_in_order();
    let supervisor = JobSupervisor::new(options, processes, world)?;
    let (mut starts, mut restart) = (0, 0);
    let mut every = Duration::from_secs(asked.look_every);
    // The cards before the run grew, and the time of the growth.
    let mut grown: Option<(Vec<usize>, Instant)> = None;
    let mut only: Option<Vec<usize>> = None;
    loop {
        let mut cards = Vec::new();
        let started = supervisor.start(starts, every, only.take().as_deref(), &mut cards);
        starts += 1;
        let failure = match started {
            Ok(OrderlyEnd::Done) => return Ok(Some(Outcome::Done)),
            Ok(OrderlyEnd::Asked) => {
                grown = Some((cards, Instant::now()));
                continue;
            }
            Err(failure) if interrupt::is_requested() => return Err(failure),
            Err(failure) => failure,
        };
        let Failure::Run(error) = failure else { return Err(failure) };
        // A card that answers but fails at work would use up restarts that a run without it does
        // not need.
        if let Some((before, _)) = grown.take().filter(|(_, since)| since.elapsed() < TRIAL) {
            every *= 2;
            only = Some(before);
            let every = every.as_secs();
            note(&format!("{error:#}; restarts without the returned cards; checks for more every {every} s"));
            continue;
        }
        if restart == asked.max_restarts {
            let error = if restart == 0 {
                error
            } else {
                error.context(format!("after {}", counted(restart, "restart")))
            };
            return Err(Failure::Run(error));
        }
        restart += 1;
        note(&format!("{error:#}; restart {restart} of {}", asked.max_restarts));
    }
}

struct JobSupervisor<'a> {
    options: &'a TrainOptions,
    /// Options of a step with the defaults that ranks use.
    step: StepOptions,
    /// None: the configuration cannot be read; the ranks report the reason.
    model: Option<ModelConfig>,
    processes: Processes,
    world: World,
    arguments: Vec<OsString>,
}

impl<'a> JobSupervisor<'a> {
    fn new(options: &'a TrainOptions, processes: Processes, world: World) -> Result<Self, Failure> {
        let open = || {
            let options = options.complete(&ProcessGroup::alone())?;
            let folder = model::folder(options.model.as_deref())?;
            Ok::<_, Diagnostics>((Model::open_config(&folder)?, options.step))
        };
        let (model, mut step) = match open() {
            Ok((model, step)) => (Some(model), step),
            Err(problems) if options.step.is_planned() => return Err(problems.into()),
            Err(_) => (None, options.step.clone()),
        };
        step.mesh.clone_from(&options.step.mesh);
        let arguments = std::env::args_os().skip(1).collect();
        Ok(Self { options, step, model, processes, world, arguments })
    }

    /// Starts the ranks for the `start`-th time and waits for them. `only` limits the cards, if
    /// enough of them answer.
    ///
    /// Checks for more cards have the interval `every`. `used` receives the cards of this start.
    fn start(
        &self,
        start: usize,
        every: Duration,
        only: Option<&[usize]>,
        used: &mut Vec<usize>,
    ) -> Result<OrderlyEnd, Failure> {
        let since = Instant::now();
        let (cards, chip) = loop {
            let of_look = |failure| if interrupt::is_requested() { Failure::Interrupted } else { failure };
            let said = self.look(&[])?.finish(Some(LOOK_LIMIT)).map_err(of_look)?;
            let answers: CardAnswers =
                serde_json::from_str(&said).map_err(|error| Failure::Run(error.into()))?;
            let among = only.and_then(|only| self.choose(&answers.among(only)).ok());
            let missing = match among.map_or_else(|| self.choose(&answers), Ok) {
                Ok(cards) => break (cards, answers.chip),
                Err(problems) if start == 0 => return Err(problems.into()),
                Err(missing) => missing,
            };
            if interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            if since.elapsed() > BACK_LIMIT {
                return Err(missing.into());
            }
            note(&format!("{missing}; trying again"));
            std::thread::sleep(LOOK_AGAIN);
        };
        let most = self.processes.most;
        if cards.len() < most {
            note(&format!("trains on {} of {}", cards.len(), counted(most, "card")));
        }
        used.clone_from(&cards);
        let is_all = cards.iter().enumerate().all(|(at, card)| at == *card);
        // Only a run that saves keeps the work since the newest checkpoint.
        let all = CardAnswers { chip, problems: vec![None; most] };
        let can_grow = self.choose(&all).is_ok_and(|best| best.len() > cards.len());
        let grows = can_grow && self.options.save.is_some() && !every.is_zero();
        let mut words = self.words(&["--restart", &start.to_string()]);
        let folder = if grows { Some(tempfile::tempdir()?) } else { None };
        let begun = folder.as_ref().map(|folder| folder.path().join("begun"));
        words.extend(begun.iter().flat_map(|path| ["--begun".into(), path.clone().into_os_string()]));
        let mut job = ChildJob::own("training", cards.len(), &words, ChildOutput::Through)?;
        job.cards = (!is_all).then(|| cards.iter().map(|card| self.world.physical_card(*card)).collect());
        let growth = |begun| Growth { supervisor: self, begun, every, cards, before: None, look: None };
        let mut growth = begun.map(growth);
        job.start()?.finish_in_order(&mut || growth.as_mut().is_some_and(Growth::is_due))
    }

    fn words(&self, more: &[&str]) -> Vec<OsString> {
        self.arguments.iter().cloned().chain(more.iter().map(OsString::from)).collect()
    }

    /// Starts a check of the cards that are not in use, which prints [`CardAnswers`]. It is a
    /// separate process because a driver may hang.
    fn look(&self, at_work: &[usize]) -> Result<Children, Failure> {
        let mut words = self.words(&["--cards-that-answer"]);
        words.extend(at_work.iter().map(|card| format!("--at-work={card}").into()));
        ChildJob::own("the check of the cards", 1, &words, ChildOutput::OutputAndErrors)?.start()
    }

    fn choose(&self, answers: &CardAnswers) -> Result<Vec<usize>, Diagnostics> {
        let site = answers.chip.as_deref().and_then(Soc::find).map(Site::of);
        let (residual, experts) = (self.options.layout.residual(), self.options.layout.experts());
        let on =
            |cards| StepContext { cards, residual, experts, model: self.model.as_ref(), site: site.as_ref() };
        choose(self.processes, &answers.problems, |cards| self.step.price(on(cards), self.options.dtype))
    }
}

/// Checks regularly whether more cards answer than the ranks use.
///
/// Checks start after the first step, because the ranks have nothing to save before. A failed check
/// is ignored.
struct Growth<'a> {
    supervisor: &'a JobSupervisor<'a>,
    begun: PathBuf,
    every: Duration,
    cards: Vec<usize>,
    /// End of the previous check, or of the first step.
    before: Option<Instant>,
    look: Option<Children>,
}

impl Growth<'_> {
    fn is_due(&mut self) -> bool {
        let Some(before) = self.before else {
            self.before = self.begun.exists().then(Instant::now);
            return false;
        };
        let since = before.elapsed();
        match self.look.take() {
            None if since <= self.every => false,
            None => {
                self.look = self.supervisor.look(&self.cards).ok();
                self.before = Some(if self.look.is_some() { before } else { Instant::now() });
                false
            }
            Some(look) if look.have_ended() => {
                self.before = Some(Instant::now());
                self.are_more(&look.finish(None).unwrap_or_default())
            }
            look if since < self.every + LOOK_LIMIT => {
                self.look = look;
                false
            }
            // After one check hangs in a driver, start no other check.
            look => {
                end_elsewhere(look);
                self.every = Duration::MAX;
                false
            }
        }
    }

    fn are_more(&self, said: &str) -> bool {
        let Ok(answers) = serde_json::from_str::<CardAnswers>(said) else { return false };
        let count = self.supervisor.choose(&answers).map_or(0, |cards| cards.len());
        if count > self.cards.len() {
            note(&format!("{} answer: all ranks save and restart on them", counted(count, "card")));
        }
        count > self.cards.len()
    }
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        end_elsewhere(self.look.take());
    }
}

/// Ends a check without waiting. A process that hangs in a driver cannot even be killed.
fn end_elsewhere(look: Option<Children>) {
    std::thread::spawn(move || drop(look));
}

#[derive(Debug, Serialize, Deserialize)]
struct CardAnswers {
    chip: Option<String>,
    /// For each card, the reason why it does not answer.
    problems: Vec<Option<String>>,
}

impl CardAnswers {
    /// Returns the answers as if only these cards had answered.
    fn among(&self, only: &[usize]) -> Self {
        let mut problems = self.problems.clone();
        for (card, problem) in problems.iter_mut().enumerate().filter(|(card, _)| !only.contains(card)) {
            problem.get_or_insert_with(|| format!("card {card} failed during training"));
        }
        Self { chip: self.chip.clone(), problems }
    }
}

/// Chooses the cards to use: the first cards without a problem, in the number with the lowest
/// `price`.
fn choose(
    processes: Processes,
    problems: &[Option<String>],
    price: impl Fn(usize) -> Result<f64, Diagnostics>,
) -> Result<Vec<usize>, Diagnostics> {
    let answering: Vec<usize> = (0..problems.len()).filter(|card| problems[*card].is_none()).collect();
    let Processes { least, most } = processes;
    let there = answering.len().min(most);
    if there < least {
        let silent =
            problems.iter().enumerate().filter_map(|(card, problem)| Some((card, problem.as_ref()?)));
        let silent = silent.map(|(card, problem)| format!("card {card}: {problem}"));
        let found = std::iter::once(answering.len().to_string()).chain(silent).collect::<Vec<_>>().join("; ");
        let problem =
            Diagnostic::new("--processes", "too few cards answer").expected(format!("{least} or more"));
        return Err(problem.found(found).into());
    }
    let prices = (least..=there).filter_map(|count| Some((count, price(count).ok()?)));
    match prices.min_by(|one, other| one.1.total_cmp(&other.1)) {
        Some((count, _)) => Ok(answering.into_iter().take(count).collect()),
        None => Err(price(there).err().unwrap_or_default()),
    }
}

/// Prints for each card the reason why it does not answer. Cards in use are not tried.
fn answer(device: DeviceKind, at_work: &[usize]) -> Result<Outcome, Failure> {
    let cards = cards::open(device, &ProcessGroup::alone())?;
    let count = cards.cann.device_count().map_err(|error| Failure::Run(error.into()))?;
    // Each card gets a separate thread: after a thread has selected a lost card, it gets no answers
    // about other cards.
    let problem = |card: usize| {
        if at_work.contains(&card) {
            return None;
        }
        let cann = &cards.cann;
        let tried = std::thread::scope(|scope| scope.spawn(|| try_card(cann, card)).join());
        match tried {
            Ok(tried) => tried.err().map(|error| error.to_string()),
            Err(_) => Some("the check panicked".to_owned()),
        }
    };
    print_json(&CardAnswers { chip: cards.cann.soc_name(), problems: (0..count).map(problem).collect() })?;
    Ok(Outcome::Done)
}

/// Allocates memory on a card, writes it and reads it.
fn try_card(cann: &Arc<Cann>, card: usize) -> device::Result<()> {
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let device = Device::open(cann, card)?;
    let buffer = Buffer::new(&device, bytes.len())?;
    buffer.write(0, &bytes)?;
    buffer.read(0, &mut vec![0; bytes.len()])?;
    drop(buffer);
    device.close()
}

#[cfg(test)]
mod tests {
    use ascend_tp::placement::{ExpertShards, Residual};

    use super::*;

    fn chosen(
        processes: &str,
        cards: usize,
        silent: &[usize],
        mesh_text: &str,
    ) -> Result<Vec<usize>, String> {
        let problem = |card| silent.contains(&card).then(|| "lost heartbeat".to_owned());
        let problems: Vec<Option<String>> = (0..cards).map(problem).collect();
        let step = StepOptions::on_mesh(mesh_text);
        let (residual, experts) = (Residual::Replicate, ExpertShards::Whole);
        let on = |cards| StepContext { cards, residual, experts, model: None, site: None };
        let price = |cards| step.price(on(cards), None);
        choose(processes.parse().unwrap(), &problems, price).map_err(|error| error.to_string())
    }

    #[test]
    fn as_many_cards_as_answer_and_the_mesh_takes() {
        assert_eq!(chosen("8", 8, &[], "dp=*,tp=2").unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(chosen("4:8", 8, &[2, 5], "dp=*,tp=2").unwrap(), [0, 1, 3, 4, 6, 7]);
        assert_eq!(chosen("2:8", 8, &[2], "dp=*,tp=2").unwrap(), [0, 1, 3, 4, 5, 6]);
        assert_eq!(chosen("4:8", 16, &[], "dp=*").unwrap().len(), 8);
        let few = chosen("8", 8, &[2], "dp=*,tp=2").unwrap_err();
        assert_eq!(
            few,
            "--processes: too few cards answer: expected 8 or more, found 7; card 2: lost heartbeat"
        );
        let none = chosen("2:3", 8, &[], "dp=2,tp=2").unwrap_err();
        assert!(none.starts_with("--mesh: does not match the cards: expected a product of 3"), "{none}");
    }

    #[test]
    fn as_many_cards_as_are_fastest() {
        // Seven cards do not divide the work of eight or six cards.
        let price = |cards: usize| Ok([f64::MAX, 9.0, 5.0, 4.0, 3.0, 2.9, 2.0, 2.5, 1.0][cards]);
        let chosen = |silent: &[usize]| {
            let problems = (0..8).map(|card| silent.contains(&card).then(|| "lost heartbeat".to_owned()));
            choose("2:8".parse().unwrap(), &problems.collect::<Vec<_>>(), price).unwrap()
        };
        assert_eq!(chosen(&[]).len(), 8);
        assert_eq!(chosen(&[3]), [0, 1, 2, 4, 5, 6]);
        let refuse =
            |cards| Err::<f64, _>(Diagnostic::new("--mesh auto", format!("nothing for {cards}")).into());
        let none = choose("2:8".parse().unwrap(), &[None, None, None], refuse).unwrap_err();
        assert_eq!(none.to_string(), "--mesh auto: nothing for 3");
    }

    #[test]
    fn numbers_of_processes_are_one_or_two() {
        for wrong in ["0", "8:4", "0:4", "a", "4:", ":4", "1:2:3", "1025", "1:1000000000"] {
            assert!(wrong.parse::<Processes>().is_err(), "{wrong}");
        }
        assert_eq!("3".parse(), Ok(Processes { least: 3, most: 3 }));
    }
}

//! The processes that run a command together, joined by the environment variables of a launcher.
//!
//! Only the first process prints results. A problem that all processes have is reported once.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::weights::file;
use ascend_tp::world::{self, Notice, ProcessGroup, World, named_ranks};
use clap::{ArgMatches, Command, CommandFactory};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::arguments::Arguments;
use super::failure::{Failure, Outcome};
use super::note;

/// Joins the other processes, if a launcher started several. All processes must have the same
/// version and options.
pub(super) fn join() -> Result<Arc<ProcessGroup>, Failure> {
    let notice: Notice = Arc::new(note);
    let met = World::from_env().and_then(|world| ProcessGroup::join_telling(&world, &notice));
    let group = met.map(Arc::new).map_err(|error| match error {
        error @ world::Error::Environment(_) => Failure::Input(error.into()),
        error => Failure::Run(error.into()),
    })?;
    agree_on(&group, "the options of each process", Inputs::of_process(), Ok(()))?;
    Ok(group)
}

/// Runs a command in the world of all processes. Its failure ends the other processes.
pub(super) fn run(
    command: impl FnOnce(&Arc<ProcessGroup>) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    let group = join()?;
    let done = command(&group);
    if let Some(text) = done.as_ref().err().and_then(Failure::for_peers) {
        group.fail(&text);
    }
    done
}

/// Returns the number of cards to use: the number of processes, if there are several.
pub(super) fn cards(
    asked: Option<usize>,
    group: &ProcessGroup,
    default: Option<usize>,
) -> Result<usize, Diagnostic> {
    match (asked, group.size()) {
        (Some(cards), 1) => Ok(cards),
        (None, 1) => default.ok_or_else(|| {
            Diagnostic::new("--cards", "not given")
                .help("pass --cards N, or start one process per card with a launcher")
        }),
        (Some(cards), size) if cards != size => {
            Err(Diagnostic::new("--cards", "differs from the number of processes")
                .expected(format!("{size}, one process per card"))
                .found(cards)
                .help("leave --cards out, or start the same number of processes"))
        }
        (_, size) => Ok(size),
    }
}

/// Names and values that must be equal in all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inputs(Vec<(String, String)>);

/// Number of bytes at the end of a weights file that distinguish files of equal length.
const TAIL_BYTES: u64 = 64 << 10;

impl Inputs {
    /// Returns the version, the command and the options of this process, without the options for
    /// verbosity.
    fn of_process() -> Self {
        let mut inputs = Self::default();
        inputs.add("version of ascend-tp", env!("CARGO_PKG_VERSION"));
        let whole = Arguments::command();
        // The arguments were parsed before, so this cannot fail.
        let Ok(matches) = whole.clone().try_get_matches_from(std::env::args_os()) else { return inputs };
        let mut at = Some((&whole, &matches));
        while let Some((command, matches)) = at {
            inputs.add_arguments(command, matches);
            at = matches.subcommand().and_then(|(name, inner)| {
                inputs.add("command", name);
                Some((command.find_subcommand(name)?, inner))
            });
        }
        inputs
    }

    fn add_arguments(&mut self, command: &Command, matches: &ArgMatches) {
        for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
            let id = argument.get_id().as_str();
            let name = argument.get_long().map_or_else(|| id.to_owned(), |long| format!("--{long}"));
            let given = matches.try_get_raw(id).ok().flatten();
            let values = given.into_iter().flatten().map(|value| value.to_string_lossy().into_owned());
            self.add(&name, values.collect::<Vec<_>>().join(" "));
        }
    }

    /// Returns digests of the configuration and the tokenizer in a model's folder.
    pub(super) fn of_config(folder: &Path) -> Self {
        let mut inputs = Self::default();
        for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
            let digest = file::read(&folder.join(name))
                .map_or_else(|_| "no file".to_owned(), |bytes| short_digest(&bytes));
            inputs.add(&format!("{name} of the model"), digest);
        }
        inputs
    }

    /// Returns the values of [`Inputs::of_config`] and a digest of the names, lengths and ends of
    /// the weights files.
    pub(super) fn of_model(folder: &Path) -> Self {
        let mut inputs = Self::of_config(folder);
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
        files.sort_unstable();
        let about: Vec<u8> = files.iter().filter_map(|path| about_weights(path).ok()).flatten().collect();
        inputs.add("weights of the model", short_digest(&about));
        inputs
    }

    pub(super) fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }
}

fn about_weights(path: &Path) -> io::Result<Vec<u8>> {
    let file = file::open(path)?;
    let length = file.metadata()?.len();
    let mut tail = vec![0; usize::try_from(length.min(TAIL_BYTES)).unwrap_or_default()];
    let start = length - tail.len() as u64;
    file.read_exact_at(&mut tail, start)?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    Ok([name, &length.to_le_bytes(), &tail].concat())
}

fn short_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).fold("SHA-256 ".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Checks that every process has read the same input and found no problem.
///
/// # Errors
/// On the first process, the problems, with their ranks unless all processes have the same
/// problems. [`Failure::Elsewhere`] on the other processes.
pub(super) fn agree<T>(
    group: &ProcessGroup,
    inputs: Inputs,
    made: Result<T, Diagnostics>,
) -> Result<T, Failure> {
    agree_on(group, "the input", inputs, made)
}

fn agree_on<T>(
    group: &ProcessGroup,
    what: &str,
    inputs: Inputs,
    made: Result<T, Diagnostics>,
) -> Result<T, Failure> {
    if group.size() == 1 {
        return Ok(made?);
    }
    let problems = made.as_ref().err().map(Diagnostics::lines).unwrap_or_default();
    let mine = serde_json::to_vec(&ReadInput { inputs: inputs.0, problems }).map_err(failed)?;
    let all = group.exchange(what, mine).map_err(|failure| Failure::Run(failure.into()))?;
    let all: Vec<ReadInput> =
        all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(failed)).collect::<Result<_, _>>()?;
    let differing = differences(&all);
    match made {
        Ok(made) if differing.is_empty() => Ok(made),
        _ if !group.is_first() => Err(Failure::Elsewhere),
        // Equal problems are reported as if there were one process.
        Err(problems) if all.iter().all(|one| *one == all[0]) => Err(problems.into()),
        _ => Err(differing.into()),
    }
}

fn failed(error: serde_json::Error) -> Failure {
    Failure::Run(error.into())
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReadInput {
    inputs: Vec<(String, String)>,
    problems: Vec<String>,
}

/// Returns the inputs that differ between ranks, and the problems of each rank.
fn differences(all: &[ReadInput]) -> Diagnostics {
    let mut differing = Diagnostics::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in all.iter().flat_map(|one| &one.inputs) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        // Ranks by value. Ranks with another command or with problems have no value.
        let mut ranks_of: Vec<(&str, Vec<usize>)> = Vec::new();
        for (rank, one) in all.iter().enumerate() {
            let Some((_, value)) = one.inputs.iter().find(|(other, _)| other == name) else { continue };
            match ranks_of.iter_mut().find(|(other, _)| other == value) {
                Some((_, ranks)) => ranks.push(rank),
                None => ranks_of.push((value, vec![rank])),
            }
        }
        if ranks_of.len() > 1 {
            let parts: Vec<String> = ranks_of.iter().map(|(value, ranks)| has(ranks, value)).collect();
            let problem = Diagnostic::new(name, format!("the processes disagree: {}", parts.join(", ")));
            differing.push(problem.help("start all processes with the same program, options and files"));
        }
    }
    for (rank, one) in all.iter().enumerate() {
        for problem in &one.problems {
            differing.push(Diagnostic::new(format!("rank {rank}"), problem));
        }
    }
    differing
}

/// Formats a value with its ranks, such as `ranks 1 to 3 have 2`.
fn has(ranks: &[usize], value: &str) -> String {
    const LONGEST: usize = 80;
    let (verb, value) = (if ranks.len() == 1 { "has" } else { "have" }, value.trim());
    let value = match value.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None if value.is_empty() => "no value".to_owned(),
        None => value.to_owned(),
    };
    format!("{} {verb} {value}", named_ranks(ranks.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_the_processes() {
        let alone = ProcessGroup::alone();
        assert_eq!(cards(None, &alone, Some(8)), Ok(8));
        assert_eq!(cards(Some(3), &alone, Some(8)), Ok(3));
        assert!(cards(None, &alone, None).unwrap_err().to_string().starts_with("--cards: not given"));
    }

    fn read(seed: &str, model: Option<&str>, problems: &[&str]) -> ReadInput {
        let mut inputs = Inputs::default();
        inputs.add("--seed", seed);
        model.into_iter().for_each(|model| inputs.add("config.json of the model", model));
        ReadInput { inputs: inputs.0, problems: problems.iter().map(|text| (*text).to_owned()).collect() }
    }

    #[test]
    fn each_disagreement_is_a_sentence_with_the_ranks_of_each_value() {
        assert!(differences(&[read("1", None, &[]), read("1", None, &[])]).is_empty());
        let all = [
            read("1", Some("a"), &[]),
            read("2", Some("b"), &[]),
            read("2", Some("a"), &[]),
            read("2", None, &["config.json: missing"]),
            read("", Some("a"), &[]),
        ];
        let help = "start all processes with the same program, options and files";
        assert_eq!(
            differences(&all).to_string(),
            format!(
                "--seed: the processes disagree: rank 0 has 1, ranks 1 to 3 have 2, rank 4 has no value; {help}\n\
                 config.json of the model: the processes disagree: ranks 0, 2, 4 have a, rank 1 has b; {help}\n\
                 rank 3: config.json: missing"
            )
        );
    }

    #[test]
    fn models_differ_by_their_configuration_and_by_their_weights() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for (folder, [config, weights]) in folders.iter().zip([["{}", "one"], ["{}", "two"], ["{1}", "one"]])
        {
            fs::write(folder.path().join("config.json"), config).unwrap();
            fs::write(folder.path().join("model.safetensors"), weights).unwrap();
        }
        let [one, two, three] = folders.each_ref().map(|folder| Inputs::of_model(folder.path()).0);
        let differ = |other: &[(String, String)]| {
            let names = one.iter().zip(other).filter(|(a, b)| a != b).map(|(a, _)| a.0.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(differ(&two), ["weights of the model"]);
        assert_eq!(differ(&three), ["config.json of the model"]);
    }
}

//! Reads the command line and explains the options that it refuses.
//!
//! - For an option of vLLM, torchtitan, Megatron or transformers, the message names the option of
//!   this program.
//! - Every option takes a negative number as its value, so the check of the value reports the
//!   option.

use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

use ascend_tp::base::Diagnostic;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, FromArgMatches as _};

use super::arguments::Arguments;
use super::{terminal, write_message};

/// Options of other programs: their names, the commands that the answer applies to, and the answer.
///
/// An empty list of commands means every command without a separate row. `N` in the answer is
/// replaced by the value.
const FOREIGN: &[(&str, &str, &str)] = &[
    (
        "tensor-parallel-size tp tensor-model-parallel-size parallelism.tensor-parallel-degree",
        "train",
        "use --mesh tp=N",
    ),
    (
        "tensor-parallel-size tp tensor-model-parallel-size parallelism.tensor-parallel-degree",
        "",
        "use --cards N",
    ),
    (
        "pipeline-parallel-size pp pipeline-model-parallel-size parallelism.pipeline-parallel-degree",
        "plan",
        "plan --train finds the number of stages; --why pp=N explains a given number",
    ),
    (
        "pipeline-parallel-size pp pipeline-model-parallel-size parallelism.pipeline-parallel-degree",
        "generate verify rehearse train explain",
        "use --mesh pp=N,tp=CARDS",
    ),
    ("data-parallel-size dp", "train", "use --mesh dp=N"),
    ("data-parallel-size dp", "generate", "start the command once for each replica"),
    ("parallelism.data-parallel-shard-degree fsdp", "train", "use --mesh dp=N --zero 3"),
    ("parallelism.data-parallel-replicate-degree", "train", "use --mesh dp_rep=N,dp_shard=M"),
    ("parallelism.context-parallel-degree context-parallel-size", "train", "use --mesh cp=N"),
    ("parallelism.pipeline-parallel-schedule", "train", "use --pipeline SCHEDULE"),
    (
        "parallelism.pipeline-parallel-microbatch-size training.local-batch-size micro-batch-size per-device-train-batch-size",
        "train explain rehearse verify",
        "use --micro-batch N",
    ),
    (
        "gradient-accumulation-steps",
        "train",
        "use --global-batch and --micro-batch; their ratio is the number of steps",
    ),
    ("max-model-len max-seq-len", "explain", "use --context N"),
    ("max-model-len max-seq-len", "rehearse plan", "use --input and --output; their sum is the length"),
    (
        "max-model-len max-seq-len",
        "generate",
        "leave it out: the KV cache has the size of the prompts and --max-new-tokens",
    ),
    ("max-num-seqs num-prompts batch-size", "generate", "pass --prompt once for each sequence"),
    ("max-num-seqs num-prompts batch-size", "explain plan", "use --batch N"),
    ("num-prompts batch-size", "rehearse", "use --batch N, or --serve --requests N"),
    ("max-num-batched-tokens", "explain", "use --sequence N"),
    (
        "max-num-batched-tokens",
        "generate rehearse",
        "leave it out: a step reads at most 2048 tokens of a prompt",
    ),
    (
        "gpu-memory-utilization",
        "",
        "leave it out: the KV cache has the size of the sequences; `rehearse` shows the bytes",
    ),
    ("kv-cache-dtype", "train", "leave it out: training has no KV cache"),
    (
        "kv-cache-dtype",
        "generate verify explain rehearse plan serve",
        "use --kv-dtype int8, or leave it out: the KV cache has the type of activations",
    ),
    ("quantization", "generate verify explain rehearse plan", "use --dtype w8a8"),
    ("torch-dtype", "", "use --dtype N"),
    ("max-tokens max-length max-new-token n-predict", "generate", "use --max-new-tokens N"),
    ("enforce-eager", "generate", "leave it out: launches are eager without --captured"),
    ("enforce-eager", "rehearse", "use --eager"),
    ("enable-lora lora-modules lora-path", "generate", "use --adapter DIR"),
    (
        "tokenizer trust-remote-code load-format",
        "generate",
        "leave it out: --model names a folder with weights and tokenizer",
    ),
    ("input-len random-input-len", "rehearse plan", "use --input N"),
    ("output-len random-output-len", "rehearse plan", "use --output N"),
    ("input-len random-input-len", "bench", "use --prompt N"),
    ("output-len random-output-len", "bench", "use --tokens N"),
    ("training.steps train-iters max-steps", "train", "use --steps N"),
    ("num-train-epochs", "train", "use --steps N, the number of steps of the run"),
    ("training.seq-len seq-length max-seq-length", "train explain rehearse verify plan", "use --seq N"),
    (
        "training.global-batch-size global-batch-size",
        "train explain rehearse verify plan",
        "use --global-batch N",
    ),
    ("training.max-norm clip-grad max-grad-norm", "train", "use --clip-norm N"),
    ("moe-aux-loss-coeff router-aux-loss-coef", "train", "use --aux-loss COEFFICIENT"),
    ("moe-router-bias-update-rate", "train", "use --router-bias-rate RATE"),
    ("moe-z-loss-coeff", "train", "use --z-loss COEFFICIENT"),
    ("training.dtype training.mixed-precision-param bf16 fp16", "train", "use --dtype bf16 or --dtype f16"),
    ("training.dataset training.dataset-path dataset data-path", "train", "use --data PATH"),
    (
        "training.seed debug.seed seed",
        "train",
        "use --data-seed N for the data, --init-seed N for the weights",
    ),
    ("training.deterministic debug.deterministic deterministic-mode", "train", "use --exact"),
    ("optimizer.name", "train", "use --optimizer N"),
    ("optimizer.lr learning-rate", "train", "use --lr N"),
    ("optimizer.eps adam-eps adam-epsilon", "train", "use --eps N"),
    ("optimizer.beta1 optimizer.beta2 adam-beta1 adam-beta2", "train", "use --betas BETA1,BETA2"),
    ("optimizer.weight-decay", "train", "use --weight-decay N"),
    ("lr-scheduler.warmup-steps lr-warmup-iters", "train", "use --warmup-steps N"),
    ("lr-scheduler.decay-type lr-decay-style lr-scheduler-type", "train", "use --schedule N"),
    ("lr-scheduler.min-lr-factor", "train", "use --min-lr RATE"),
    (
        "activation-checkpoint.mode recompute-granularity gradient-checkpointing recompute-activations",
        "train explain rehearse",
        "use --recompute full or --recompute selective",
    ),
    ("checkpoint.folder checkpoint.enable output-dir", "train", "use --save DIR"),
    ("checkpoint.interval save-interval save-steps", "train", "use --save DIR --save-every N"),
    ("checkpoint.keep-latest-k save-total-limit", "train", "use --save DIR --keep N"),
    ("checkpoint.load-step load resume-from-checkpoint", "train", "use --save DIR --resume"),
    ("metrics.enable-tensorboard tensorboard-dir logging-dir", "train", "use --tensorboard DIR"),
    (
        "metrics.log-freq log-interval logging-steps",
        "train",
        "use --metrics FILE, which gets one line per step",
    ),
    (
        "model.name model.flavor model.hf-assets-path checkpoint.initial-load-path pretrained model-name-or-path",
        "",
        "use --model DIR",
    ),
    ("model.tokenizer-path tokenizer-model", "train", "use --tokenizer DIR"),
    ("job.config-file", "train explain rehearse verify", "use --recipe FILE"),
    ("profiling.enable-profiling", "train rehearse", "use --trace FILE"),
    ("sequence-parallel enable-sequence-parallel", "", "use --residual seq"),
    ("use-distributed-optimizer zero-stage", "train", "use --zero 1, 2 or 3"),
    ("nproc-per-node nproc", "train", "use --processes N"),
];

const HELP: usize = 100;

/// Reads the command line of this process.
///
/// # Errors
/// The exit code, after the help or the message has been printed.
pub(super) fn parse() -> Result<Arguments, ExitCode> {
    let words: Vec<OsString> = env::args_os().collect();
    read(&words).map_err(|error| {
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        if let Some(problem) = answer(&error, &words) {
            write_message(&format!("error: {problem}"));
        } else if error.use_stderr() {
            write_message(error.render().to_string().trim_end());
        } else {
            // A closed stream must not change the exit code.
            let _closed = error.print();
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// Reads a command line. Its first word is the name of the program.
pub(super) fn read<T: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = T>,
) -> Result<Arguments, clap::Error> {
    let mut command = definition();
    if let Some(width) = terminal::width() {
        command = command.term_width(width.min(HELP));
    }
    let mut matches = command.try_get_matches_from_mut(words)?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn definition() -> Command {
    with_negative_numbers(Arguments::command())
}

fn with_negative_numbers(command: Command) -> Command {
    let takes = |argument: clap::Arg| {
        let is_option = argument.get_long().is_some() && argument.get_action().takes_values();
        if is_option && !argument.is_allow_hyphen_values_set() {
            argument.allow_negative_numbers(true)
        } else {
            argument
        }
    };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

/// Returns the message for a refused command line, if this program explains more than the parser.
fn answer(error: &clap::Error, words: &[String]) -> Option<Diagnostic> {
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    match error.kind() {
        ErrorKind::UnknownArgument => unknown(argument.split('=').next().unwrap_or_default(), words),
        ErrorKind::ValueValidation => {
            let place = argument.split(' ').next().unwrap_or_default().to_owned();
            let cause = error.source()?;
            let (what, expected) = match cause.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
                Some(IntErrorKind::PosOverflow) => ("too large a number", "at most 18446744073709551615"),
                Some(IntErrorKind::Zero) => ("not a number above 0", "1 or more"),
                Some(_) => ("not a whole number", "0 or more"),
                None if cause.is::<ParseFloatError>() => ("not a number", "a number such as 0.5"),
                None => return None,
            };
            Some(Diagnostic::new(place, what).expected(expected).found(text(ContextKind::InvalidValue)?))
        }
        _ => None,
    }
}

/// Returns the message for an unknown option, or None if the parser's message is enough.
fn unknown(option: &str, words: &[String]) -> Option<Diagnostic> {
    // The parser reports only the first letter of an option such as `-tp`.
    let is_it = |word: &&String| {
        let word = word.split('=').next().unwrap_or_default();
        word == option || !option.starts_with("--") && !word.starts_with("--") && word.starts_with(option)
    };
    let position = words.iter().position(|word| is_it(&word))?;
    let (option, stated) = match words[position].split_once('=') {
        Some((option, value)) => (option, Some(value)),
        None => (words[position].as_str(), None),
    };
    let command = command_of(words);
    if option.strip_prefix('-').is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit())) {
        let before = words[..position].last().filter(|word| word.starts_with("--"));
        let problem = Diagnostic::new(
            before.map_or(command.as_str(), String::as_str),
            "a value that looks like an option",
        );
        let help = before.map(|before| format!("write {before}={option}"));
        return Some(help.into_iter().fold(problem.found(option), Diagnostic::help));
    }
    let value =
        stated.or_else(|| words.get(position + 1).map(String::as_str).filter(|word| !word.starts_with('-')));
    let ours = ours(option, command.split(' ').next().unwrap_or_default())?;
    let help = value.map_or_else(|| ours.to_owned(), |value| with_value(ours, value));
    Some(Diagnostic::new(option, format!("`{command}` has no such option")).help(help))
}

fn with_value(answer: &str, value: &str) -> String {
    let words = answer.split_inclusive([' ', '=', ',', ';']);
    let words = words.map(|word| match word.strip_prefix('N') {
        Some(end) if !end.starts_with(|letter: char| letter.is_alphanumeric()) => format!("{value}{end}"),
        _ => word.to_owned(),
    });
    words.collect()
}

fn ours(option: &str, command: &str) -> Option<&'static str> {
    let name = option.trim_start_matches('-').replace('_', "-").to_lowercase();
    let rows = FOREIGN.iter().filter(|(names, _, _)| names.split(' ').any(|known| known == name));
    let is_of = |commands: &str| commands.split(' ').any(|known| known == command);
    let of_command = rows.clone().find(|(_, commands, _)| is_of(commands));
    of_command
        .or_else(|| rows.clone().find(|(_, commands, _)| commands.is_empty()))
        .map(|(_, _, answer)| *answer)
}

/// Returns the commands named by the words, such as `generate` or `bench decode`.
fn command_of(words: &[String]) -> String {
    let mut command = Arguments::command();
    let mut names: Vec<String> = Vec::new();
    for word in words.iter().skip(1) {
        let found = command.find_subcommand(word).cloned();
        if let Some(found) = found {
            names.push(found.get_name().to_owned());
            command = found;
        }
    }
    if names.is_empty() { "ascend-tp".to_owned() } else { names.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<String> =
            std::iter::once("ascend-tp").chain(line.split_whitespace()).map(str::to_owned).collect();
        let Err(error) = read(&words) else { panic!("{line} is accepted") };
        answer(&error, &words).map_or_else(|| error.to_string(), |problem| problem.to_string())
    }

    fn commands(of: &Command, words: &str) -> Vec<(String, Command)> {
        let mut all = Vec::new();
        for command in of.get_subcommands().filter(|command| command.get_name() != "help") {
            let words = format!("{words} {}", command.get_name());
            all.extend(commands(command, &words));
            all.push((words, command.clone()));
        }
        all
    }

    #[test]
    fn no_option_takes_a_negative_number_for_an_option() {
        let mut tried = 0;
        for (words, command) in commands(&definition(), "") {
            for argument in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
                let Some(option) = argument.get_long() else { continue };
                let line = format!("ascend-tp{words} --{option} -1");
                if let Err(error) = read(line.split_whitespace()) {
                    assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{line}: {error}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 100, "{tried}");
    }

    #[test]
    fn a_negative_number_is_refused_at_its_option() {
        for (line, expected) in [
            ("generate --seed -1", "--seed: not a whole number: expected 0 or more, found -1"),
            ("generate --top-k -1", "--top-k: not a whole number: expected 0 or more, found -1"),
            ("rehearse qwen-72b --cards -2", "--cards: not a whole number: expected 0 or more, found -2"),
            ("train --keep 0 --save x", "--keep: not a number above 0: expected 1 or more, found 0"),
            (
                "generate --temperature high",
                "--temperature: not a number: expected a number such as 0.5, found high",
            ),
            (
                "plan qwen-72b --serve --cards 99999999999999999999",
                "--cards: too large a number: expected at most ",
            ),
            (
                "train --betas -1,2",
                "--betas: a value that looks like an option: found -1,2; write --betas=-1,2",
            ),
        ] {
            let message = refused(line);
            assert!(message.starts_with(expected), "{line}: {message}");
        }
    }

    #[test]
    fn options_of_other_programs_are_answered_with_ours() {
        for (line, expected) in [
            (
                "generate --tensor-parallel-size 8",
                "--tensor-parallel-size: `generate` has no such option; use --cards 8",
            ),
            (
                "generate --tensor-parallel-size=8",
                "--tensor-parallel-size: `generate` has no such option; use --cards 8",
            ),
            ("generate -tp 8", "-tp: `generate` has no such option; use --cards 8"),
            ("generate --pipeline_parallel_size 2", "use --mesh pp=2,tp=CARDS"),
            ("generate --max-model-len 4096", "leave it out: the KV cache has the size of"),
            ("explain qwen-72b --cards 8 --max-model-len 4096", "use --context 4096"),
            ("explain qwen-72b --cards 8 --max-num-seqs 16", "use --batch 16"),
            ("rehearse qwen-72b --cards 8 --num-prompts 16", "use --batch 16, or --serve --requests 16"),
            ("generate --gpu-memory-utilization 0.9", "leave it out: "),
            ("train --training.steps 10", "--training.steps: `train` has no such option; use --steps 10"),
            ("train --training.local_batch_size 4", "use --micro-batch 4"),
            (
                "bench decode --output-len 4",
                "--output-len: `bench decode` has no such option; use --tokens 4",
            ),
        ] {
            let message = refused(line);
            assert!(message.contains(expected), "{line}: {message}");
        }
        assert!(refused("generate --walk").starts_with("error: unexpected argument '--walk'"));
    }

    /// Checks that answers name existing options of the command, and that no answer hides an
    /// existing option.
    #[test]
    fn answers_name_options_that_there_are() {
        let all = commands(&definition(), "");
        let has = |command: &str, option: &str| {
            let of = all.iter().filter(|(words, _)| words.trim_start().split(' ').next() == Some(command));
            of.flat_map(|(_, command)| command.get_arguments())
                .any(|argument| argument.get_long() == Some(option))
        };
        for (names, of, answer) in FOREIGN {
            let commands = if of.is_empty() {
                vec!["generate", "verify", "explain", "rehearse", "train"]
            } else {
                of.split(' ').collect()
            };
            for command in commands {
                assert!(all.iter().any(|(words, _)| words.trim_start() == command), "{command}");
                let options = answer.split(' ').filter_map(|word| word.strip_prefix("--"));
                for option in options.map(|option| option.trim_matches([',', ';', '='])) {
                    assert!(has(command, option), "{names}: {command} has no --{option}");
                }
                let hidden = names.split(' ').find(|name| has(command, name));
                assert_eq!(hidden, None, "{command} has it");
            }
        }
    }
}

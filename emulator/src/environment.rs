//! The configuration that the environment requests.
//!
//! Invariants: an unknown word is an error. A word other than `fault` occurs at most once.

use std::fmt;

use ascend_tp_machine::Soc;

use crate::base::report::ReportKind;
use crate::config::{CannVersion, Config, Messages, Mode, Numbers, Sharing, StrictRules, variable_problems};
use crate::faults::fault::Fault;

const VARIABLE: &str = "ASCEND_EMULATOR";
const VISIBLE: &str = "ASCEND_RT_VISIBLE_DEVICES";
const TO_STDOUT: &str = "ASCEND_SLOG_PRINT_TO_STDOUT";
/// Prefix of every printed line.
const SPEAKER: &str = "ascend emulator: ";
/// Not documented by CANN.
const CARD_ALIGNMENT: usize = 512;

/// Errors of the environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatorEnvironmentError {
    /// Each sentence names the variable, the expected value and the value found.
    pub problems: Vec<String>,
}

impl fmt::Display for EmulatorEnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

impl std::error::Error for EmulatorEnvironmentError {}

/// One word of `ASCEND_EMULATOR`.
#[derive(Debug)]
pub struct Word {
    /// Form of the word; `…` stands for a value.
    pub form: &'static str,
    /// Effect of the word.
    pub meaning: &'static str,
}

/// The words of `ASCEND_EMULATOR`.
pub const WORDS: &[Word] = &[
    Word {
        form: "strict",
        meaning: "strict mode: a seed determines the order of calls and tasks, and misuse is reported",
    },
    Word {
        form: "align=…",
        meaning: "alignment of allocations in strict mode, in bytes, with addresses at odd multiples: 512 (default, as \
                  on a card), 64 (the guarantee of aclrtMalloc), 128, 256, 1024 or 2048",
    },
    Word {
        form: "ignore=…",
        meaning: "a kind of report that is printed but not counted, with - for a space: leak, use-after-free; can be \
                  repeated",
    },
    Word {
        form: "baseline=…",
        meaning: "a file with reports of a strict run: such reports are printed but not counted, whatever their \
                  numbers",
    },
    Word { form: "seed=…", meaning: "the seed of strict mode, an integer; default 0" },
    Word {
        form: "timed",
        meaning: "timed mode: cards, links and threads have a virtual clock; memory is accounted, but nothing is \
                  computed",
    },
    Word { form: "timed=numbers", meaning: "timed mode that also computes" },
    Word { form: "cards=…", meaning: "the number of cards; default 8" },
    Word {
        form: "soc=…",
        meaning: "the chip: Ascend910B1, Ascend910B2, Ascend910B3 (default), Ascend910B4, or a die of a 910C: \
                  Ascend910_9391, Ascend910_9381, Ascend910_9372, Ascend910_9362",
    },
    Word {
        form: "hbm=…",
        meaning: "memory of a card for programs, with a unit: 512MiB, 32GiB; default: the memory of the chip",
    },
    Word { form: "threads=…", meaning: "the number of threads for all cards; default: one per core" },
    Word {
        form: "private",
        meaning: "the memory of cards is private to this process and uses huge pages: for programs of one process that \
                  export no memory",
    },
    Word {
        form: "cann=…",
        meaning: "the version of CANN to follow where rules changed: 8.1, 8.5 or 9.0 (default)",
    },
    Word {
        form: "fault=…",
        meaning: "a fault injected into the machine from the first call on; can be repeated",
    },
    Word { form: "quiet", meaning: "refused calls are not reported" },
    Word {
        form: "@…",
        meaning: "a file of words, separated by commas or newlines, read when a process starts: cards of a job can \
                  change while it runs",
    },
];

impl Config {
    /// Returns [`Config::default`] with the words of `ASCEND_EMULATOR` and the cards in
    /// `ASCEND_RT_VISIBLE_DEVICES`. Refused calls are reported on stderr, or on stdout with
    /// `ASCEND_SLOG_PRINT_TO_STDOUT=1`, unless `quiet` is given.
    ///
    /// # Errors
    ///
    /// Returns all errors of these variables and of HCCL's (`HCCL_BUFFSIZE`,
    /// `HCCL_CONNECT_TIMEOUT`, `HCCL_EXEC_TIMEOUT`).
    pub fn from_env() -> Result<Self, EmulatorEnvironmentError> {
        let text =
            |variable: &str| std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
        let found = config(text(VARIABLE).as_deref(), text(VISIBLE).as_deref());
        let wrong = variable_problems(text);
        let mut config = match found {
            Ok(config) if wrong.is_empty() => config,
            found => {
                let words = found.err().map(|error| error.problems).unwrap_or_default();
                return Err(EmulatorEnvironmentError { problems: [words, wrong].concat() });
            }
        };
        if config.messages == Messages::StandardError && text(TO_STDOUT).as_deref() == Some("1") {
            config.messages = Messages::StandardOutput;
        }
        Ok(config)
    }
}

fn config(words: Option<&str>, visible: Option<&str>) -> Result<Config, EmulatorEnvironmentError> {
    let mut asked = RequestedConfig::default();
    let mut problems = Vec::new();
    for word in parted(words.unwrap_or_default()) {
        let found = match word.strip_prefix('@') {
            Some(path) => asked.take_file(path),
            None => asked.take(word, |_| true).map_err(|problem| vec![problem]),
        };
        problems.extend(found.err().into_iter().flatten().map(|problem| format!("{VARIABLE}: {problem}")));
    }
    if asked.strict.is_none() {
        problems.extend(asked.without_strict().map(|problem| format!("{VARIABLE}: {problem}")));
    }
    if asked.strict.is_some() && asked.timed.is_some() {
        problems
            .push(format!("{VARIABLE}: strict and timed are given, but a machine has one mode; remove one"));
    }
    let soc = asked.soc.unwrap_or_default();
    let cards = asked.cards.unwrap_or_else(|| Config::default().cards);
    let mut config = Config { mode: Mode::Parallel, ..Config::timed(soc, cards, Numbers::None) };
    config.hbm_bytes = asked.hbm_bytes.unwrap_or(config.hbm_bytes);
    if let Some(numbers) = asked.timed {
        config.mode = Mode::Timed { numbers };
    }
    config.threads = asked.threads.unwrap_or(config.threads);
    config.sharing = if asked.private.is_some() { Sharing::Process } else { Sharing::Host };
    config.cann = asked.cann.unwrap_or_default();
    config.messages = if asked.quiet.is_some() { Messages::Quiet } else { Messages::StandardError };
    config.faults = asked.faults;
    if asked.strict.is_some() {
        config.mode = Mode::Strict { seed: asked.seed.unwrap_or(0) };
        config.strict = StrictRules {
            alignment: asked.alignment.unwrap_or(CARD_ALIGNMENT),
            ignored: asked.ignored,
            known: asked.known.unwrap_or_default(),
        };
    }
    if let Some(text) = visible {
        match visible_cards(text, config.cards) {
            Ok(cards) => config.cards = cards.len(),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(config) } else { Err(EmulatorEnvironmentError { problems }) }
}

#[derive(Debug, Default)]
struct RequestedConfig {
    strict: Option<()>,
    timed: Option<Numbers>,
    seed: Option<u64>,
    alignment: Option<usize>,
    ignored: Vec<ReportKind>,
    known: Option<Vec<String>>,
    cards: Option<usize>,
    soc: Option<Soc>,
    hbm_bytes: Option<u64>,
    threads: Option<usize>,
    private: Option<()>,
    cann: Option<CannVersion>,
    quiet: Option<()>,
    faults: Vec<Fault>,
}

impl RequestedConfig {
    /// Errors about words that need `strict`.
    fn without_strict(&self) -> impl Iterator<Item = String> {
        let given = [
            (self.seed.is_some(), "seed", "has an order to pick"),
            (self.alignment.is_some(), "align", "chooses first addresses"),
            (!self.ignored.is_empty(), "ignore", "has reports"),
            (self.known.is_some(), "baseline", "has reports"),
        ];
        let problems = given.into_iter().filter(|(is_given, ..)| *is_given);
        problems.map(|(_, word, does)| format!("{word} is given without strict, which alone {does}"))
    }

    /// The file must not name another file.
    fn take_file(&mut self, path: &str) -> Result<(), Vec<String>> {
        let text = std::fs::read_to_string(path).map_err(|error| vec![format!("@{path}: {error}")])?;
        let is_of_file = |form: &str| !form.starts_with('@');
        let problem = |word: &str| match is_of_file(word) {
            true => self.take(word, is_of_file).err(),
            false => Some(format!("`{word}`: a file names no other file")),
        };
        let problems: Vec<String> =
            parted(&text).filter_map(problem).map(|problem| format!("@{path}: {problem}")).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// The error for an unknown word lists the accepted forms.
    fn take(&mut self, word: &str, may_stand: impl Fn(&str) -> bool) -> Result<(), String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("strict", None) => once(&mut self.strict, name, Some(()), ""),
            ("private", None) => once(&mut self.private, name, Some(()), ""),
            ("timed", None) => once(&mut self.timed, name, Some(Numbers::None), ""),
            ("timed", Some("numbers")) => once(&mut self.timed, name, Some(Numbers::Real), ""),
            ("align", Some(value)) => {
                let alignment = value.parse().ok().filter(|bytes| StrictRules::ALIGNMENTS.contains(bytes));
                once(&mut self.alignment, name, alignment, value)
            }
            ("ignore", Some(value)) => {
                let kind = ReportKind::ALL.into_iter().find(|kind| kind.name().replace(' ', "-") == value);
                self.ignored.push(kind.ok_or_else(|| {
                    let kinds: Vec<String> =
                        ReportKind::ALL.iter().map(|kind| kind.name().replace(' ', "-")).collect();
                    format!("ignore={value}: expected {}", kinds.join(", "))
                })?);
                Ok(())
            }
            ("baseline", Some(path)) => {
                let text =
                    std::fs::read_to_string(path).map_err(|error| format!("baseline={path}: {error}"))?;
                once(&mut self.known, name, Some(findings(&text)), path)
            }
            ("seed", Some(value)) => once(&mut self.seed, name, value.parse().ok(), value),
            ("cards", Some(value)) => once(&mut self.cards, name, value.parse().ok(), value),
            ("soc", Some(value)) => once(&mut self.soc, name, Soc::find(value), value),
            ("hbm", Some(value)) => once(&mut self.hbm_bytes, name, bytes(value), value),
            ("threads", Some(value)) => once(&mut self.threads, name, value.parse().ok(), value),
            ("cann", Some(value)) => {
                let version = CannVersion::ALL.into_iter().find(|version| version.name() == value);
                once(&mut self.cann, name, version, value)
            }
            ("quiet", None) => once(&mut self.quiet, name, Some(()), ""),
            ("fault", Some(text)) => {
                self.faults.push(text.parse().map_err(|error| format!("{error}"))?);
                Ok(())
            }
            _ => {
                let known: Vec<&str> =
                    WORDS.iter().map(|word| word.form).filter(|form| may_stand(form)).collect();
                Err(format!("`{word}` is not a known word; expected {}", known.join(", ")))
            }
        }
    }
}

fn parted(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty())
}

/// A finding is the text between the emulator's prefix and the first call.
fn findings(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim_start_matches(SPEAKER).trim_start_matches("note: "));
    let findings = lines.map(|line| line.split("; [1] ").next().unwrap_or(line).trim().to_owned());
    findings.filter(|finding| !finding.is_empty()).collect()
}

fn once<T>(place: &mut Option<T>, name: &str, value: Option<T>, text: &str) -> Result<(), String> {
    let meaning = || {
        WORDS.iter().find(|word| word.form.split('=').next() == Some(name)).map_or("", |word| word.meaning)
    };
    let value = value.ok_or_else(|| format!("{name}={text}: expected {}", meaning()))?;
    if place.replace(value).is_some() {
        return Err(format!("{name} is given more than once"));
    }
    Ok(())
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 1_u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// Parses ascending ids separated by commas (CANN environment reference). Text after the first
/// invalid or unordered id is ignored.
fn visible_cards(text: &str, cards: usize) -> Result<Vec<usize>, String> {
    let mut visible: Vec<usize> = Vec::new();
    for id in text.split(',') {
        let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let Some(id) = id.parse().ok().filter(|id| digits && *id < cards) else { break };
        if visible.last().is_some_and(|last| *last >= id) {
            return Err(format!("{VISIBLE}: expected ids in ascending order, found {text}"));
        }
        visible.push(id);
    }
    if visible.is_empty() {
        return Err(format!(
            "{VISIBLE}: expected ids from 0 to {}, separated by commas only, found `{text}`",
            cards - 1
        ));
    }
    Ok(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(words: &str) -> Vec<String> {
        config(Some(words), None).expect_err("something is wrong").problems
    }

    #[test]
    fn no_words_ask_for_the_default_machine() {
        let found = config(None, None).expect("nothing is wrong");
        let expected = Config::default();
        assert_eq!(
            (found.cards, found.soc, found.hbm_bytes),
            (expected.cards, expected.soc, expected.hbm_bytes)
        );
        assert_eq!((found.threads, found.mode), (expected.threads, Mode::Parallel));
        assert_eq!(config(Some(" "), None).expect("nothing is wrong").cards, expected.cards);
    }

    #[test]
    fn every_word_has_its_effect() {
        let found = config(Some("strict, seed=7,cards=3,soc=Ascend910B4,hbm=512MiB,threads=2"), None);
        let found = found.expect("nothing is wrong");
        assert_eq!((found.mode, found.cards), (Mode::Strict { seed: 7 }, 3));
        assert_eq!((found.soc, found.hbm_bytes, found.threads), (Soc::Ascend910B4, 512 << 20, 2));
        let chips_own = config(Some("soc=Ascend910B4"), None).expect("nothing is wrong");
        assert_eq!(chips_own.hbm_bytes, Soc::Ascend910B4.hbm_usable_bytes());
        for soc in Soc::ALL {
            assert!(
                WORDS.iter().any(|word| word.form == "soc=…" && word.meaning.contains(soc.name())),
                "{soc}"
            );
            assert_eq!(config(Some(&format!("soc={soc}")), None).expect("a chip").soc, soc);
        }
        for (words, numbers) in [("timed,cards=16", Numbers::None), ("timed=numbers,cards=16", Numbers::Real)]
        {
            let found = config(Some(words), None).expect("nothing is wrong");
            assert_eq!((found.mode, found.cards, found.topology.cards()), (Mode::Timed { numbers }, 16, 16));
        }
        assert_eq!(config(Some("strict"), None).expect("nothing is wrong").mode, Mode::Strict { seed: 0 });
        for version in CannVersion::ALL {
            let found = config(Some(&format!("cann={}", version.name())), None).expect("a version");
            assert_eq!((found.cann, found.messages), (version, Messages::StandardError));
        }
        let found = config(Some("quiet,fault=slow:card=1:us=5,fault=out-of-memory:at=2"), None)
            .expect("nothing is wrong");
        assert_eq!((found.cann, found.messages), (CannVersion::V9_0, Messages::Quiet));
        let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults, ["slow:card=1:us=5", "out-of-memory:at=2"]);
    }

    #[test]
    fn what_is_not_known_or_contradictory_is_refused_with_what_is() {
        let all = problems("strickt,cards=x,seed=1,cards=2,cards=3,hbm=12,strict=1");
        assert_eq!(all.len(), 6, "{all:?}");
        assert!(all[0].contains("`strickt`") && all[0].contains("cards=…"), "{all:?}");
        assert!(all[1].contains("cards=x: expected the number of cards"), "{all:?}");
        assert!(all[2].contains("cards is given more than once"), "{all:?}");
        assert!(all[3].contains("hbm=12") && all[3].contains("512MiB"), "{all:?}");
        assert!(all[4].contains("`strict=1`"), "{all:?}");
        assert!(all[5].contains("seed is given without strict"), "{all:?}");
        let three = problems("cann=7.0,fault=meteor:at=1,quiet=1");
        assert_eq!(three.len(), 3, "{three:?}");
        assert!(
            three[0].contains("cann=7.0: expected the version of CANN") && three[0].contains("8.5"),
            "{three:?}"
        );
        assert!(
            three[1].contains("there is no fault \"meteor\"") && three[2].contains("`quiet=1`"),
            "{three:?}"
        );
        let two = problems("strict,timed,timed=fast");
        assert_eq!(two.len(), 2, "{two:?}");
        assert!(two[0].contains("`timed=fast`") && two[1].contains("strict and timed"), "{two:?}");
    }

    #[test]
    fn every_word_is_known_by_its_form() {
        for word in WORDS.iter().filter(|word| !word.form.starts_with('@')) {
            let example =
                word.form.replace('…', "1").replace("soc=1", "soc=Ascend910B1").replace("hbm=1", "hbm=1GiB");
            let example = example.replace("align=1", "align=64").replace("ignore=1", "ignore=leak");
            let example = example
                .replace("baseline=1", "baseline=/dev/null")
                .replace("cann=1", "cann=8.1")
                .replace("fault=1", "fault=out-of-memory:at=1");
            assert_eq!(RequestedConfig::default().take(&example, |_| true), Ok(()), "{}", word.form);
        }
    }

    #[test]
    fn words_are_also_those_of_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("a path in UTF-8");
        std::fs::write(path, "cards=3\nfault=slow:card=1:us=5, quiet\n").expect("written");
        let found = config(Some(&format!("threads=2,@{path}")), None).expect("nothing is wrong");
        assert_eq!((found.cards, found.threads, found.messages), (3, 2, Messages::Quiet));
        assert_eq!(found.faults.len(), 1);
        std::fs::write(path, format!("card=3,@{path}")).expect("written");
        let wrong = problems(&format!("cards=2,@{path},@/no/such/file"));
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].contains("`card=3`") && !wrong[0].contains("@…"), "{wrong:?}");
        assert!(wrong[1].contains("a file names no other file"), "{wrong:?}");
        assert!(wrong[2].contains("/no/such/file"), "{wrong:?}");
        assert!(problems("card=3")[0].contains(", @…"));
    }

    #[test]
    fn rules_of_strict_mode_are_words_and_need_it() {
        let found = config(Some("strict,align=64,ignore=leak,ignore=use-after-free"), None)
            .expect("nothing is wrong");
        assert_eq!(found.strict.alignment, 64);
        assert_eq!(found.strict.ignored, [ReportKind::Leak, ReportKind::UseAfterFree]);
        assert_eq!(config(Some("strict"), None).expect("nothing is wrong").strict.alignment, CARD_ALIGNMENT);
        let wrong = problems("align=64,ignore=leak,align=100,ignore=leaks,baseline=/no/such/file");
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        assert!(wrong[0].contains("align=100: expected") && wrong[1].contains("use-after-free"), "{wrong:?}");
        assert!(
            wrong[2].contains("/no/such/file") && wrong[3].contains("align is given without strict"),
            "{wrong:?}"
        );
        assert!(wrong[4].contains("ignore is given without strict"), "{wrong:?}");
    }

    #[test]
    fn a_baseline_is_what_a_run_has_said() {
        let text = "ascend emulator: strict, seed 0\nascend emulator: leak: 1 buffer left; [1] aclrtMalloc (call 3)\n\nnote: race: x\n";
        assert_eq!(findings(text), ["strict, seed 0", "leak: 1 buffer left", "race: x"]);
    }

    #[test]
    fn visible_cards_are_those_before_the_first_thing_that_is_no_id() {
        let seen = |text| visible_cards(text, 8);
        assert_eq!(seen("1,2,3"), Ok(vec![1, 2, 3]));
        assert_eq!(seen("1, 2,3"), Ok(vec![1]));
        assert_eq!(seen("1,3,8"), Ok(vec![1, 3]));
        assert_eq!(seen("1,2,-1,3"), Ok(vec![1, 2]));
        assert!(seen("3,2,1").unwrap_err().contains("ascending"));
        assert!(seen("").unwrap_err().contains("0 to 7"));
        assert_eq!(config(Some("cards=4"), Some("1,2")).expect("nothing is wrong").cards, 2);
    }
}

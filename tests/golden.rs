//! Compares the text of every pass with files, so that a changed pass shows as a diff.
//!
//! One decoder layer of the `qwen2-gqa` fixture (2 key heads, 8 query heads, 259 words) in three
//! splits. Four cards are more than key heads, so `tp` is split in two. The second split also
//! shards the residual stream along the sequence. Three cards divide no size. `UPDATE_GOLDEN=1
//! cargo test golden` rewrites the files.

use std::fs;

use ascend_tp::base::DType;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::{self, Residual};
use ascend_tp::program::models::{Head, RunShape, decoder};
use ascend_tp::program::{Program, text};
use ascend_tp::schedule::{self, Plan, Scheduling, schedule};
use ascend_tp::{Mesh, Parallelized, Pins, parallelize};

use crate::common::{fixture, path};

struct Case {
    name: &'static str,
    cards: usize,
    residual: Residual,
    head: Head,
}

const CASES: [Case; 3] = [
    Case { name: "tp4-replicate", cards: 4, residual: Residual::Replicate, head: Head::LastLogits },
    Case { name: "tp4-seq", cards: 4, residual: Residual::Seq, head: Head::LastLogits },
    Case { name: "tp3-replicate", cards: 3, residual: Residual::Replicate, head: Head::LastToken },
];

struct Stages {
    logical: Program,
    split: Parallelized,
    plans: Vec<Plan>,
}

impl Case {
    fn stages(&self) -> Stages {
        let path = fixture("qwen2-gqa").join("config.json");
        let mut config = ModelConfig::from_json(&fs::read_to_string(path).unwrap()).unwrap();
        config.layers = 1;
        let run = RunShape::new(1, 5, 8);
        let logical = decoder(&config, run, DType::F32, self.head).unwrap();
        let mesh = Mesh::tensor_parallel(self.cards, config.kv_heads, config.heads_per_kv_head()).unwrap();
        let split = parallelize(&logical, &mesh, &Pins::auto(self.residual)).unwrap();
        let plans = schedule(&split.lowered, Scheduling::default()).unwrap();
        Stages { logical, split, plans }
    }
}

impl Stages {
    fn texts(&self) -> Vec<(String, String)> {
        let last = self.plans.len() - 1;
        vec![
            ("1-logical".to_owned(), text::print(&self.logical)),
            ("2-resharded".to_owned(), placement::print(&self.split.resharded)),
            ("3-lowered".to_owned(), placement::print(&self.split.lowered)),
            ("4-plan-rank0".to_owned(), self.plans[0].to_string()),
            (format!("5-plan-rank{last}"), self.plans[last].to_string()),
        ]
    }
}

fn first_difference(expected: &str, found: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (expected, found) = (lines(expected), lines(found));
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let show = |lines: &[String]| {
        lines[same.min(lines.len())..].iter().take(3).cloned().collect::<Vec<_>>().join("\n    ")
    };
    format!("line {}:\n  expected\n    {}\n  found\n    {}", same + 1, show(&expected), show(&found))
}

#[test]
fn the_text_of_every_pass_is_as_recorded() {
    let update = std::env::var("UPDATE_GOLDEN").is_ok_and(|value| value == "1");
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for case in &CASES {
        for (stage, found) in case.stages().texts() {
            let file = format!("{}.{stage}.txt", case.name);
            let path = path("tests/golden").join(&file);
            if update {
                fs::write(&path, &found).unwrap();
            }
            match fs::read_to_string(&path) {
                Ok(expected) if expected == found => {}
                Ok(expected) => problems.push(format!("{file}, {}", first_difference(&expected, &found))),
                Err(error) => problems.push(format!("{file}: {error}")),
            }
            files.push(file);
        }
    }
    let kept = fs::read_dir(path("tests/golden"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    problems.extend(
        kept.filter(|file| !files.contains(file)).map(|file| format!("{file}: no pass writes it any more")),
    );
    let help = "if this is what was meant: UPDATE_GOLDEN=1 cargo test golden";
    assert!(problems.is_empty(), "{}\n{help}", problems.join("\n"));
}

#[test]
fn texts_parse_to_what_was_printed() {
    for case in &CASES {
        let Stages { logical, split, plans } = case.stages();
        assert_eq!(text::parse(&text::print(&logical)).unwrap(), logical, "{}", case.name);
        for placed in [&split.resharded, &split.lowered] {
            assert_eq!(placement::parse(&placement::print(placed)).unwrap(), *placed, "{}", case.name);
        }
        for plan in &plans {
            assert_eq!(
                schedule::text::parse(&plan.to_string()).unwrap(),
                *plan,
                "{} rank {}",
                case.name,
                plan.rank
            );
        }
    }
}

#[test]
fn compiling_twice_gives_the_same_texts() {
    for case in &CASES {
        assert_eq!(case.stages().texts(), case.stages().texts(), "{}", case.name);
    }
}

//! `validate`: compares predictions with published measurements. See [`USAGE`].

use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use ascend_tp_machine::Soc;
use ascend_tp_planner_validation::{Validation, calibrate, document};

const USAGE: &str = "usage: cargo xtask validate [--points FILE…] [--json]
       cargo xtask validate --write
       cargo xtask validate --fit CHIP --points FILE

  --points FILE  predict the rows of FILE with the shipped coefficients, instead of all rows in planner/validation/points;
                 columns as there; can be repeated
  --json         print rows and errors by kind as JSON
  --write        write what follows from the rows: coefficients, error bars, docs/VALIDATION.md and docs/costs.svg
  --fit CHIP     print a profile of CHIP with coefficients fitted to the operators in FILE";

#[derive(Default)]
struct ValidateArguments {
    points: Vec<String>,
    fit: Option<String>,
    is_json: bool,
    is_write: bool,
}

impl ValidateArguments {
    fn parse(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut arguments = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => arguments.is_json = true,
                "--write" => arguments.is_write = true,
                "--fit" => arguments.fit = Some(words.next().context("--fit: expected a chip")?),
                "--points" => {
                    arguments.points.push(words.next().context("--points: expected a file")?);
                }
                // A shell expands `--points *.csv` to several words.
                file if !file.starts_with('-') && !arguments.points.is_empty() => arguments.points.push(word),
                _ => bail!("unknown option `{word}`\n{USAGE}"),
            }
        }
        Ok(arguments)
    }
}

fn main() -> ExitCode {
    match ValidateArguments::parse(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _unwritable = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &ValidateArguments) -> Result<()> {
    let texts: Vec<(&str, String)> = arguments
        .points
        .iter()
        .map(|place| {
            Ok((place.as_str(), fs::read_to_string(place).with_context(|| format!("--points {place}"))?))
        })
        .collect::<Result<_>>()?;
    if let Some(name) = &arguments.fit {
        let [(place, text)] = texts.as_slice() else { bail!("--fit: expected one --points FILE") };
        let known = || Soc::ALL.map(Soc::short_name).join(", ");
        let soc = Soc::find(name)
            .with_context(|| format!("--fit: no such chip: expected {}, found {name}", known()))?;
        return print(&calibrate(place, text, soc)?.to_toml());
    }
    let mut validation = Validation::default();
    for (place, text) in &texts {
        validation.extend(Validation::of(place, text)?);
    }
    if texts.is_empty() {
        validation = Validation::shipped();
    }
    if arguments.is_write {
        return write(&validation);
    }
    if arguments.is_json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&validation.summaries())?));
    }
    print(&validation.text(None))
}

/// The chore runs in the root of the workspace.
fn write(validation: &Validation) -> Result<()> {
    let place = document::COEFFICIENTS;
    let before = fs::read_to_string(place).with_context(|| format!("{place}: cannot be read"))?;
    for (place, text) in document::files(validation, &before) {
        // A new date of the coefficients would build the whole workspace again.
        if fs::read_to_string(place).is_ok_and(|held| held == text) {
            continue;
        }
        fs::write(place, text).with_context(|| format!("{place}: cannot be written"))?;
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("standard output")
}

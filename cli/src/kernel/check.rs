//! `kernel check`: launches a kernel and reports findings and cost.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::device::{
    self, Buffer, Cann, Device, ErrorKind, Kernel, KernelArgument, KernelBinary, Stream,
};
use ascend_tp::emulator::compiler::{Compiler, KernelEntry};
use ascend_tp::emulator::{Config, Emulator, KernelFinding, KernelRun, Mode, Soc};
use ascend_tp_machine::{OperatorCost, Profile};
use serde::Serialize;

use super::argument::{self, KernelValue, MemoryArgument, MemorySource, MemoryUse};
use super::{CheckOptions, input, signature};
use crate::failure::{Failure, Outcome};
use crate::site::{chip, keep};
use crate::{files, note, print_json, print_report};

#[derive(Debug, Serialize)]
struct KernelReport {
    kernel: String,
    blocks: u32,
    /// Number of core schedules; findings belong to the last.
    orders: u64,
    findings: Vec<CheckFinding>,
    cost: LaunchCost,
}

/// A broken rule of the vector cores, or wrong use of a buffer.
#[derive(Debug, Serialize)]
struct CheckFinding {
    rule: String,
    core: Option<u32>,
    file: Option<String>,
    line: Option<u32>,
    call: Option<String>,
    operand: Option<String>,
    expected: String,
    found: String,
    /// The finding as one message.
    text: String,
}

#[derive(Debug, Default, Serialize)]
struct LaunchCost {
    /// Cycles of the slowest core.
    cycles: u64,
    scalar_cycles: u64,
    vector_cycles: u64,
    copy_in_cycles: u64,
    copy_out_cycles: u64,
    global_bytes: u64,
    unified_buffer_bytes: u64,
    /// Duration including launch overhead.
    microseconds: f64,
    bound: &'static str,
}

/// Arguments with the contents of their files.
struct PreparedLaunch {
    values: Vec<PreparedValue>,
    names: Vec<String>,
}

enum PreparedValue {
    Value(Vec<u8>),
    Memory { argument: MemoryArgument, contents: Option<Vec<u8>>, expected: Option<Vec<u8>> },
}

pub(super) fn run(options: &CheckOptions) -> Result<Outcome, Failure> {
    let mut problems = Diagnostics::new();
    let soc = keep(chip(&options.card).map_err(Into::into), &mut problems);
    let values: Vec<PreparedValue> =
        options.arguments.iter().filter_map(|argument| keep(given(argument), &mut problems)).collect();
    let Some(soc) = soc.filter(|_| problems.is_empty()) else { return Err(problems.into()) };
    let compiler = Compiler::find().map_err(input)?;
    let folder = tempfile::tempdir().context("cannot create a temporary folder").map_err(Failure::Input)?;
    let library = folder.path().join("libkernels.so");
    let sources = std::slice::from_ref(&options.file);
    let entries = compiler.build(sources, &options.source.options, &library).map_err(input)?;
    let entry = find(&entries, options)?;
    let prepared = PreparedLaunch { values, names: entry.params.clone() };
    let bench = KernelBench::open(soc, &library, &options.launch)?;
    let mut findings = Vec::new();
    let mut last = None;
    let mut orders = 0;
    // Each launch has another seed. A broken rule may leave the card in any state.
    while findings.is_empty() && orders < options.orders {
        let (run, outputs) = bench.launch(options.blocks, &prepared)?;
        findings = judge(&run, &outputs, &prepared);
        orders += 1;
        if findings.is_empty() && orders == options.orders {
            save(&outputs, &prepared)?;
        }
        last = Some(run);
    }
    let run = last.unwrap_or_default();
    let cost = cost(soc, &run);
    let report =
        KernelReport { kernel: options.launch.clone(), blocks: options.blocks, orders, findings, cost };
    if options.json {
        print_json(&report)?;
    } else {
        print_report(&text(&report, soc))?;
    }
    Ok(if report.findings.is_empty() { Outcome::Done } else { Outcome::OutsideBound })
}

fn given(argument: &KernelValue) -> Result<PreparedValue, Diagnostics> {
    Ok(match argument {
        KernelValue::Value(bytes) => PreparedValue::Value(bytes.clone()),
        KernelValue::Structure(path) => PreparedValue::Value(argument::read(path)?),
        KernelValue::Memory(memory) => {
            if let (MemoryUse::Out, MemorySource::File(path)) = (memory.direction, &memory.source) {
                files::check("--arg", path)?;
            }
            PreparedValue::Memory {
                argument: memory.clone(),
                contents: memory.contents()?,
                expected: memory.expected()?,
            }
        }
    })
}

fn find<'a>(entries: &'a [KernelEntry], options: &CheckOptions) -> Result<&'a KernelEntry, Failure> {
    let known = || entries.iter().map(signature).collect::<String>().trim_end().replace('\n', ", ");
    let entry = entries.iter().find(|entry| entry.name == options.launch).ok_or_else(|| {
        Diagnostics::from(
            Diagnostic::new("--launch", "no such kernel").expected(known()).found(&options.launch),
        )
    })?;
    if entry.params.len() != options.arguments.len() {
        return Err(Diagnostics::from(
            Diagnostic::new("--arg", "wrong number of arguments")
                .expected(signature(entry).trim_end())
                .found(options.arguments.len()),
        )
        .into());
    }
    Ok(entry)
}

struct KernelBench {
    device: Arc<Device>,
    stream: Stream,
    kernel: Kernel,
    ran: Arc<Mutex<Option<KernelRun>>>,
}

/// Address and final contents of a buffer; `None` for a value.
type OutputBytes = Option<(u64, Vec<u8>)>;

impl KernelBench {
    fn open(soc: Soc, library: &Path, name: &str) -> Result<Self, Failure> {
        // Strict mode has exact bounds. Otherwise an allocation has spare bytes.
        let config = Config { soc, mode: Mode::Strict { seed: 0 }, ..Config::with_cards(1) };
        let emulator =
            Emulator::new(config).context("cannot create the emulated card").map_err(Failure::Run)?;
        let ran: Arc<Mutex<Option<KernelRun>>> = Arc::default();
        let kept = Arc::clone(&ran);
        emulator.watch_kernels(move |run| {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
        });
        let cann = Cann::new(emulator.table()).map_err(failed)?;
        let device = Device::open(&cann, 0).map_err(failed)?;
        let stream = Stream::new(&device).map_err(failed)?;
        let kernel =
            KernelBinary::load(&device, library).and_then(|binary| binary.kernel(name)).map_err(failed)?;
        Ok(Self { device, stream, kernel, ran })
    }

    /// Returns the record of a launch and the final contents of buffers.
    fn launch(
        &self,
        blocks: u32,
        prepared: &PreparedLaunch,
    ) -> Result<(KernelRun, Vec<OutputBytes>), Failure> {
        let (mut buffers, mut arguments) = (Vec::new(), Vec::new());
        for value in &prepared.values {
            let (buffer, argument) = match value {
                PreparedValue::Value(bytes) => (None, KernelArgument::Value(bytes.clone())),
                PreparedValue::Memory { argument, contents, .. } => {
                    let buffer = Buffer::new(&self.device, argument.len_bytes()).map_err(failed)?;
                    if let Some(contents) = contents {
                        buffer.write(0, contents).map_err(failed)?;
                    }
                    let whole = buffer.whole();
                    (Some(buffer), KernelArgument::Memory(whole))
                }
            };
            buffers.push(buffer);
            arguments.push(argument);
        }
        self.kernel.enqueue(&self.stream, blocks, &arguments).map_err(failed)?;
        let outcome = self.stream.synchronize();
        let run = match (self.ran.lock().unwrap_or_else(PoisonError::into_inner).take(), outcome) {
            (Some(run), outcome) if outcome.is_ok() || run.finding.is_some() => run,
            (_, Err(error)) => return Err(failed(error)),
            (_, Ok(())) => return Err(Failure::Run(anyhow::anyhow!("the kernel did not run"))),
        };
        let held = |buffer: &Buffer| {
            let mut bytes = vec![0; buffer.len_bytes()];
            if run.finding.is_none() {
                buffer.read(0, &mut bytes)?;
            }
            Ok((buffer.whole().device_address(), bytes))
        };
        let outputs =
            buffers.iter().map(|buffer| buffer.as_ref().map(held).transpose()).collect::<Result<_, _>>();
        Ok((run, outputs.map_err(failed)?))
    }
}

/// Maps invalid arguments to input errors.
fn failed(error: device::Error) -> Failure {
    match error.kind() {
        ErrorKind::InvalidArgument => Failure::Input(error.into()),
        _ => Failure::Run(error.into()),
    }
}

fn judge(run: &KernelRun, outputs: &[OutputBytes], prepared: &PreparedLaunch) -> Vec<CheckFinding> {
    if let Some(finding) = &run.finding {
        return vec![broken(finding)];
    }
    let mut all = Vec::new();
    for ((output, value), name) in outputs.iter().zip(&prepared.values).zip(&prepared.names) {
        let (Some((address, bytes)), PreparedValue::Memory { argument, expected, .. }) = (output, value)
        else {
            continue;
        };
        let own = *address..*address + bytes.len() as u64;
        let touched = |is_write: bool| {
            run.touched
                .iter()
                .filter(move |touch| touch.is_write == is_write)
                .filter(|touch| own.contains(&touch.address))
        };
        let mut add = |rule: &str, expected: String, found: String| {
            all.push(of_memory(run, name, rule, expected, found));
        };
        let written: u64 = touched(true).map(|touch| touch.bytes).sum();
        match argument.direction {
            MemoryUse::In => {
                if let Some(first) = touched(true).next() {
                    let found = format!("byte {} written", first.address - address);
                    add("range", "read-only memory, as declared by --arg in".to_owned(), found);
                }
            }
            MemoryUse::Out => {
                if let Some(first) = touched(false).next() {
                    let found = format!("byte {} read before it is written", first.address - address);
                    add(
                        "unwritten",
                        "memory that is written first, as declared by --arg out".to_owned(),
                        found,
                    );
                }
                if written < bytes.len() as u64 {
                    add(
                        "unwritten",
                        format!("all {} bytes written", bytes.len()),
                        format!("{written} written"),
                    );
                }
            }
            MemoryUse::InOut => {}
        }
        let width = argument.element.bytes();
        let pairs =
            expected.iter().flat_map(|expected| expected.chunks(width).zip(bytes.chunks(width)).enumerate());
        let wrong: Vec<_> = pairs.filter(|(_, (expected, found))| expected != found).collect();
        if let Some((index, (expected, found))) = wrong.first() {
            let found = format!("{} ({} of {} elements differ)", hex(found), wrong.len(), argument.count);
            add("value", format!("{} at element {index}", hex(expected)), found);
        }
    }
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn broken(finding: &KernelFinding) -> CheckFinding {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    CheckFinding {
        rule: finding.rule.clone(),
        core: finding.core,
        file: some(&finding.file),
        line: (finding.line != 0).then_some(finding.line),
        call: some(&finding.call),
        operand: some(&finding.operand),
        expected: finding.expected.clone(),
        found: finding.found.clone(),
        text: finding.text.clone(),
    }
}

fn of_memory(run: &KernelRun, name: &str, rule: &str, expected: String, found: String) -> CheckFinding {
    let text = format!("{}, `{name}`: [{rule}] expected {expected}, found {found}", run.kernel);
    CheckFinding {
        rule: rule.to_owned(),
        core: None,
        file: None,
        line: None,
        call: None,
        operand: Some(name.to_owned()),
        expected,
        found,
        text,
    }
}

/// Writes results of `--arg out:…:FILE`.
fn save(outputs: &[OutputBytes], prepared: &PreparedLaunch) -> Result<(), Failure> {
    for (output, value) in outputs.iter().zip(&prepared.values) {
        let (Some((_, bytes)), PreparedValue::Memory { argument, .. }) = (output, value) else { continue };
        if let (MemoryUse::Out, MemorySource::File(path)) = (argument.direction, &argument.source) {
            files::write("--arg", path, |out| out.write_all(bytes))?;
            note(&format!("wrote {}", path.display()));
        }
    }
    Ok(())
}

fn cost(soc: Soc, run: &KernelRun) -> LaunchCost {
    let [scalar_cycles, vector_cycles, copy_in_cycles, copy_out_cycles] = run.busy_cycles;
    let cost = OperatorCost::of_kernel(&Profile::of(soc), run.cycles as f64, run.global_bytes as f64);
    LaunchCost {
        cycles: run.cycles,
        scalar_cycles,
        vector_cycles,
        copy_in_cycles,
        copy_out_cycles,
        global_bytes: run.global_bytes,
        unified_buffer_bytes: run.local_bytes,
        microseconds: cost.duration_us,
        bound: cost.bound.name(),
    }
}

fn text(report: &KernelReport, soc: Soc) -> String {
    let mut text: String = report.findings.iter().map(|finding| format!("{}\n", finding.text)).collect();
    let cost = &report.cost;
    if report.findings.is_empty() {
        text += &format!(
            "{} on {} blocks: no findings in {} core schedules\n{} bytes of unified buffer, {} of global memory, {} \
             cycles (scalar {}, vector {}, in {}, out {}): {:.1} us on {}, bound by {}\n",
            report.kernel,
            report.blocks,
            report.orders,
            cost.unified_buffer_bytes,
            cost.global_bytes,
            cost.cycles,
            cost.scalar_cycles,
            cost.vector_cycles,
            cost.copy_in_cycles,
            cost.copy_out_cycles,
            cost.microseconds,
            soc.name(),
            cost.bound,
        );
    }
    text
}

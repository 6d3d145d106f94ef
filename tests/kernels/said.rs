//! Compression by kernels, compared with aclnn calls in numbers, launches and bytes, and with
//! injected faults.

use std::sync::{Arc, Mutex, PoisonError};

use ascend_tp::Cann;
use ascend_tp::device::{Buffer, Device, KernelArgument, KernelBinary, KernelSource, Stream};
use ascend_tp::emulator::{Config, Emulator, Mode, Numbers};
use ascend_tp::program::compress::Compression;
use ascend_tp::schedule::Plan;
use ascend_tp::schedule::plan::Action;
use ascend_tp_emulator::{Recording, ReportKind};

use super::launched::{count, library};
use crate::compress::{Case, CompressedSum, expected, numbers};

const ONE_BIT: Compression = Compression::OneBit;
const TOP: Compression = Compression::TopK { share: 0.1 };

/// A rank's last share is shorter than other shares and has a partial row.
fn case(by: Compression, cards: usize) -> Case {
    Case { by, cards, across: 1, rows: 3, columns: 23_501 * cards }
}

fn elems(case: &Case) -> usize {
    case.rows * case.columns
}

fn parts(case: &Case, seed: u64, is_whole: bool) -> Vec<Vec<f32>> {
    let whole = |x: f32| if x >= 0.0 { 1.0 + f32::from(x > 0.5) } else { -1.0 - f32::from(x < -0.5) };
    let of = |card| {
        numbers(seed * 100 + card).take(elems(case)).map(|x| if is_whole { whole(x) } else { x }).collect()
    };
    (0..case.cards as u64).map(of).collect()
}

#[test]
fn one_bit_of_whole_numbers_has_the_bits_of_calls_and_loops() {
    let Some(kernels) = library() else { return };
    for cards in [2, 3, 5] {
        let case = case(ONE_BIT, cards);
        let plans = case.plans(kernels.kernels());
        assert_eq!((count(&plans, "sign_compress"), count(&plans, "sign_compress_reduce")), (2, 2));
        let parts = parts(&case, 1, true);
        let whole: Vec<f32> = numbers(7).take(elems(&case)).map(|x| x.round() * cards as f32).collect();
        let [calls, kernel] = [KernelSource::None, kernels.clone()]
            .map(|source| case.run(&mut case.engine_with(source), &parts, &whole));
        let mut kept = vec![vec![0.0; elems(&case)]; cards];
        let sum = expected(ONE_BIT, &parts, &whole, &mut kept);
        // The last row is no power of two, so its mean is not exact.
        let full = elems(&case) / 1024 * 1024;
        let of_rows = |CompressedSum { sum, kept }: &CompressedSum| {
            let kept: Vec<Vec<f32>> = kept.iter().map(|kept| kept[..full].to_vec()).collect();
            (sum[..full].to_vec(), kept)
        };
        assert!(
            of_rows(&calls) == of_rows(&CompressedSum { sum, kept }),
            "{cards} cards: calls are not the loops"
        );
        assert!(of_rows(&kernel) == of_rows(&calls), "{cards} cards: the kernel is not the calls");
        is_near(&kernel, &calls, 3.0, &format!("{cards} cards"));
    }
}

/// Kernels and calls sum the magnitudes of a row in different orders: up to ten levels and one
/// scaling, twice. The second time they sum decoded values. Numbers are at most `most`.
fn is_near(found: &CompressedSum, wanted: &CompressedSum, most: f32, place: &str) {
    let bound = 2.0 * 2.0 * 11.0 / (1 << 24) as f32 * most;
    let all = |CompressedSum { sum, kept }: &CompressedSum| [sum.clone(), kept.concat()].concat();
    for (at, (found, wanted)) in all(found).iter().zip(all(wanted)).enumerate() {
        assert!((found - wanted).abs() <= bound, "{place}, {at}: {found} is not {wanted}");
    }
}

#[test]
fn one_bit_of_any_numbers_is_within_the_bound_of_means() {
    let Some(kernels) = library() else { return };
    let case = case(ONE_BIT, 2);
    let mut engines = [KernelSource::None, kernels].map(|source| case.engine_with(source));
    for round in 0..2 {
        let (parts, whole) =
            (parts(&case, round, false), numbers(round + 50).take(elems(&case)).collect::<Vec<f32>>());
        let [calls, kernel] = engines.each_mut().map(|engine| case.run(engine, &parts, &whole));
        is_near(&kernel, &calls, 3.0, &format!("round {round}"));
    }
}

type Strict = (Vec<(ReportKind, String)>, Result<CompressedSum, String>);

fn strict(case: &Case, plans: Vec<Plan>, kernels: &KernelSource, seed: u64) -> Strict {
    let mode = Mode::Strict { seed };
    let emulator = Emulator::new(Config { mode, ..Config::with_cards(case.cards) }).unwrap();
    let (parts, whole) = (parts(case, 3, false), vec![0.5; elems(case)]);
    let found = case
        .engine_on(&emulator, plans, kernels.clone())
        .and_then(|mut engine| case.try_run(&mut engine, &parts, &whole))
        .map_err(|error| error.to_string());
    (emulator.reports().iter().map(|report| (report.kind(), report.to_string())).collect(), found)
}

#[test]
fn sums_by_kernels_are_without_reports_in_strict_mode() {
    let Some(kernels) = library() else { return };
    for by in [ONE_BIT, TOP] {
        let case = case(by, 2);
        let plans = case.plans(kernels.kernels());
        let free = case.run(
            &mut case.engine_with(kernels.clone()),
            &parts(&case, 3, false),
            &vec![0.5; elems(&case)],
        );
        for seed in 0..3 {
            let (reports, found) = strict(&case, plans.clone(), &kernels, seed);
            assert_eq!(reports, [], "{by}, seed {seed}");
            assert!(found.unwrap() == free, "{by}, seed {seed}");
        }
    }
}

#[test]
fn a_race_with_a_kernel_is_named() {
    let Some(kernels) = library() else { return };
    let case = case(ONE_BIT, 2);
    let plans = case.plans(kernels.kernels());
    let waits: Vec<usize> = (0..plans[0].steps.len())
        .filter(|at| matches!(plans[0].steps[*at].action, Action::Wait(_)))
        .collect();
    assert_eq!(waits.len(), 4, "each exchange waits for a kernel, and a kernel for it");
    for at in waits {
        let mut changed = plans.clone();
        changed[0].steps.remove(at);
        changed[0].taps.clear();
        let mut reports = (0..3).map(|seed| strict(&case, changed.clone(), &kernels, seed).0);
        let found =
            reports.find(|found| !found.is_empty()).unwrap_or_else(|| panic!("step {at}: not reported"));
        let named =
            found.iter().any(|(kind, text)| *kind == ReportKind::Race && text.contains("sign_compress"));
        assert!(named, "step {at}: {found:?}");
    }
}

#[test]
fn launches_that_do_not_fit_their_tensors_are_refused() {
    let Some(KernelSource::Library(path)) = library() else { return };
    let emulator = Emulator::new(Config::with_cards(1)).unwrap();
    let cann = Cann::new(emulator.table()).unwrap();
    // Arguments: elements, records, records per share, the rank's share, parts.
    let launch = |numbers: &[u32]| {
        let device = Device::open(&cann, 0)?;
        let kernel = KernelBinary::load(&device, &path)?.kernel("sign_compress_float")?;
        let buffer = |bytes| Buffer::new(&device, bytes).map(|buffer| KernelArgument::Memory(buffer.whole()));
        let mut arguments =
            [4 * 8192, 4 * 8192, 4 * 8192, 1056].map(buffer).into_iter().collect::<Result<Vec<_>, _>>()?;
        arguments.extend(numbers.iter().map(|number| KernelArgument::Value(number.to_ne_bytes().to_vec())));
        let stream = Stream::new(&device)?;
        kernel.enqueue(&stream, 40, &arguments)?;
        stream.synchronize()
    };
    let said = |numbers: &[u32]| launch(numbers).map_err(|error: ascend_tp::device::Error| error.to_string());
    assert_eq!(said(&[8192, 1, 1, 1, 2]), Ok(()));
    for (numbers, part) in [
        (&[8192, 1, 1, 1][..], "parts"),
        (&[8193, 2, 1, 1, 2][..], "range"),
        (&[8192, 2, 1, 1, 2][..], "range"),
    ] {
        let refused = said(numbers).unwrap_err();
        assert!(refused.contains("sign_compress_float") && refused.contains(part), "{numbers:?}: {refused}");
    }
}

fn work(case: &Case, source: &KernelSource) -> (usize, f64) {
    let mode = Mode::Timed { numbers: Numbers::Real };
    let emulator = Emulator::new(Config { mode, ..Config::with_cards(case.cards) }).unwrap();
    let moved: Arc<Mutex<(usize, u64)>> = Arc::default();
    let kept = Arc::clone(&moved);
    emulator.watch_kernels(move |run| {
        let mut moved = kept.lock().unwrap_or_else(PoisonError::into_inner);
        *moved = (moved.0 + 1, moved.1 + run.global_bytes);
    });
    let mut engine = case.engine_on(&emulator, case.plans(source.kernels()), source.clone()).unwrap();
    emulator.record_timeline(Recording::Everything);
    case.run(&mut engine, &parts(case, 1, false), &vec![0.0; elems(case)]);
    let spans = emulator.timeline();
    let of_card = spans.iter().filter(|span| span.card == 0);
    let of_calls: Vec<f64> =
        of_card.filter(|span| span.name.starts_with("aclnn")).map(|span| span.bytes).collect();
    let (launches, bytes) = *moved.lock().unwrap_or_else(PoisonError::into_inner);
    let all = of_calls.iter().sum::<f64>() + bytes as f64 / case.cards as f64;
    (of_calls.len() + launches / case.cards, all / elems(case) as f64)
}

#[test]
fn kernels_say_with_fewer_launches_and_a_part_of_the_bytes() {
    let Some(kernels) = library() else { return };
    let case = Case { by: ONE_BIT, cards: 2, across: 1, rows: 1, columns: 1 << 18 };
    let [calls, kernel] = [KernelSource::None, kernels].map(|source| work(&case, &source));
    println!("one bit, launches and bytes an element: calls {calls:?}, kernels {kernel:?}");
    // In both variants, one launch and 12 bytes initialise the parts. The sum is added in place.
    let rest = (1, 12.0);
    assert_eq!((calls.0 - rest.0, kernel.0 - rest.0), (31, 4));
    assert!((kernel.1 - rest.1) * 5.0 < calls.1 - rest.1, "{kernel:?} beside {calls:?}");
}

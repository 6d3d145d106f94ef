//! Compressed sums, compared with plain loops, in bytes on the wire, and in training.

use std::collections::{BTreeMap, BTreeSet};

use ascend_tp::base::{DType, Kernels};
use ascend_tp::device::KernelSource;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::exec::{Engine, EngineOptions, Error, NamedTensors, ProgramId};
use ascend_tp::placement::Placed;
use ascend_tp::program::compress::Compression;
use ascend_tp::program::{Builder, Kind};
use ascend_tp::schedule::{Joining, Plan, Scheduling, Target, schedule};
use ascend_tp::train::checkpoint::Checkpoint;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compress, Layout, Progress, Trainer, Zero, compile, lower};
use ascend_tp::{Cann, Mesh, Pins, parallelize};
use ascend_tp_emulator::{Lane, Mode, Numbers, Recording};

use crate::common::cases::{cases, first_cases, seed};
use crate::common::random::Random;
use crate::common::trainers::{save, whole_parts};
use crate::common::{Tensors, start_with};
use crate::training::Golden;

const TOP: Compression = Compression::TopK { share: 0.1 };

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// A matrix with partial sums on `cards` cards, and rows sharded over `across`.
pub(crate) struct Case {
    pub(crate) by: Compression,
    pub(crate) cards: usize,
    pub(crate) across: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompressedSum {
    pub(crate) sum: Vec<f32>,
    /// Compression error that each card keeps for the next run.
    pub(crate) kept: Vec<Vec<f32>>,
}

impl Case {
    pub(crate) fn plans(&self, kernels: Kernels) -> Vec<Plan> {
        let mut build = Builder::new("compressed");
        let x = build.input("x", [self.cards, self.rows, self.columns], DType::F32);
        let kept = build.state("kept", [self.rows, self.columns], DType::F32);
        let part = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
        let part = build.name(part, "part");
        let whole = build.input("whole", [self.rows, self.columns], DType::F32);
        let [_, sum] =
            build.several(Kind::CompressedSum { axes: Vec::new(), by: self.by }, &[part, kept, whole]);
        build.output("sum", sum);
        let pins = Pins::default()
            .value("x", &[(0, "dp"), (1, "tp")])
            .value("whole", &[(0, "tp")])
            .partial_value("part", &[(0, "tp")], &["dp"])
            .partial_value("kept", &[(0, "tp")], &["dp"]);
        let mesh = Mesh::new(&[("dp", self.cards), ("tp", self.across)]).unwrap();
        let program = build.finish().unwrap();
        let lowered = parallelize(&program, &mesh, &pins).unwrap().lowered;
        schedule(
            &lowered,
            Scheduling {
                joining: Joining::InPlace,
                target: Target::with_kernels(kernels),
                ..Scheduling::default()
            },
        )
        .unwrap()
    }

    pub(crate) fn run(&self, engine: &mut Engine, parts: &[Vec<f32>], whole: &[f32]) -> CompressedSum {
        self.try_run(engine, parts, whole).unwrap()
    }

    pub(crate) fn try_run(
        &self,
        engine: &mut Engine,
        parts: &[Vec<f32>],
        whole: &[f32],
    ) -> Result<CompressedSum, Error> {
        let inputs = NamedTensors::new().with("x", parts.concat()).with("whole", whole);
        let outputs = engine.run(ProgramId(0), &inputs)?;
        let mut kept = vec![Vec::new(); self.cards];
        engine.load(|shards| {
            for part in shards.states().iter().flatten() {
                kept[part.rank() / self.across].extend(floats(&part.read()?));
            }
            Ok(())
        })?;
        Ok(CompressedSum { sum: outputs.only()?.floats().to_vec(), kept })
    }

    fn engine(&self) -> Engine {
        self.engine_with(KernelSource::None)
    }

    pub(crate) fn engine_with(&self, kernels: KernelSource) -> Engine {
        let emulator = Emulator::new(Config::with_cards(self.cards * self.across)).unwrap();
        self.engine_on(&emulator, self.plans(kernels.kernels()), kernels).unwrap()
    }

    pub(crate) fn engine_on(
        &self,
        emulator: &Emulator,
        plans: Vec<Plan>,
        kernels: KernelSource,
    ) -> Result<Engine, Error> {
        let options = EngineOptions { kernels, ..EngineOptions::default() };
        start_with(&Cann::new(emulator.table()).unwrap(), plans, &Tensors::new(), &options)
    }
}

/// Computes the compressed sum of one shard with plain loops.
pub(crate) fn expected(
    by: Compression,
    parts: &[Vec<f32>],
    whole: &[f32],
    kept: &mut [Vec<f32>],
) -> Vec<f32> {
    if let ([part], [kept]) = (parts, &mut *kept) {
        let kept = std::mem::replace(kept, vec![0.0; part.len()]);
        return part.iter().zip(whole).zip(kept).map(|((x, whole), kept)| x + whole + kept).collect();
    }
    let (cards, elems) = (parts.len(), parts[0].len());
    let share = (cards as f64).recip() as f32;
    let own = |(x, kept): (&Vec<f32>, &Vec<f32>)| -> Vec<f32> {
        x.iter().zip(kept).zip(whole).map(|((x, kept), whole)| whole * share + x + kept).collect()
    };
    let with: Vec<Vec<f32>> = parts.iter().zip(kept.iter()).map(own).collect();
    let mut sum = vec![0.0; elems];
    match by {
        Compression::OneBit => {
            let share = elems.div_ceil(cards).div_ceil(32) * 32;
            // Large shares have one mean per row of 1,024, with eight rows per record.
            let (share, row) = if elems.div_ceil(cards) < 1 << 16 {
                (share, share)
            } else {
                (elems.div_ceil(cards).next_multiple_of(8192), 1024)
            };
            let sign = |x: f32| if x >= 0.0 { 1.0 } else { -1.0 };
            let mean =
                |x: &[f32]| (x.iter().map(|x| f64::from(x.abs())).sum::<f64>() / x.len() as f64) as f32;
            for start in (0..elems).step_by(row) {
                let (owner, end) = (start / share, (start + row).min(elems));
                let mut all: Vec<f32> = with[owner][start..end].to_vec();
                for card in (0..cards).filter(|card| *card != owner) {
                    let said = mean(&with[card][start..end]);
                    for (at, all) in all.iter_mut().enumerate() {
                        let told = sign(with[card][start + at]) * said;
                        *all += told;
                        kept[card][start + at] = with[card][start + at] - told;
                    }
                }
                let said = mean(&all);
                for (at, all) in all.iter().enumerate() {
                    sum[start + at] = sign(*all) * said;
                    kept[owner][start + at] = all - sum[start + at];
                }
            }
        }
        Compression::TopK { share } => {
            let count = ((elems as f64 * share).round() as usize).max(1);
            for (with, kept) in with.iter().zip(kept) {
                let mut order: Vec<usize> = (0..elems).collect();
                order.sort_by(|a, b| with[*b].abs().total_cmp(&with[*a].abs()).then(a.cmp(b)));
                kept.clone_from(with);
                for at in order.into_iter().take(count) {
                    sum[at] += with[at];
                    kept[at] = 0.0;
                }
            }
        }
    }
    sum
}

pub(crate) fn numbers(seed: u64) -> impl Iterator<Item = f32> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || random.unit())
}

fn follows(case: &Case, rounds: u64, bound: f32, x: impl Fn(f32) -> f32) {
    let (mut engine, elems) = (case.engine(), case.rows * case.columns);
    let mut kept = vec![vec![0.0; elems]; case.cards];
    for round in 0..rounds {
        let part = |card: usize| numbers(round * 100 + card as u64).map(&x).take(elems).collect::<Vec<f32>>();
        let parts: Vec<Vec<f32>> = (0..case.cards).map(part).collect();
        // Shares are 0 or one half, so sums of whole numbers stay exact.
        let half = case.cards as f32 / 2.0;
        let whole: Vec<f32> = numbers(round * 100 + 99).map(|at| at.round() * half).take(elems).collect();
        let CompressedSum { sum, kept: left } = case.run(&mut engine, &parts, &whole);
        let piece = elems / case.across;
        let mut wanted = Vec::new();
        for at in (0..case.across).map(|across| across * piece..(across + 1) * piece) {
            let of = |all: &[Vec<f32>]| all.iter().map(|all| all[at.clone()].to_vec()).collect::<Vec<_>>();
            let mut own = of(&kept);
            wanted.extend(expected(case.by, &of(&parts), &whole[at.clone()], &mut own));
            kept.iter_mut().zip(own).for_each(|(kept, own)| kept[at.clone()].copy_from_slice(&own));
        }
        let all = |sum: &[f32], kept: &[Vec<f32>]| [sum.to_vec(), kept.concat()].concat();
        for (at, (found, wanted)) in all(&sum, &left).iter().zip(all(&wanted, &kept)).enumerate() {
            let is_off = (found - wanted).abs() > bound * wanted.abs().max(1.0);
            assert!(
                !is_off,
                "{} over {} × {}: round {round}, {at}: {found} is not {wanted}",
                case.by, case.cards, case.across
            );
        }
    }
}

#[test]
fn one_bit_of_whole_numbers_is_bit_for_bit_what_loops_say() {
    // Means over 32 elements are exact; two rounds need 24 bits. With rows of 1,024, one round is
    // exact.
    for (cards, across, each, rounds) in
        [(2, 1, 32, 2), (4, 1, 32, 2), (2, 2, 32, 2), (2, 1, 1 << 16, 1), (3, 1, 9 << 13, 1)]
    {
        let case =
            Case { by: Compression::OneBit, cards, across, rows: 8 * across, columns: each / 8 * cards };
        follows(&case, rounds, 0.0, |x| {
            if x >= 0.0 { 1.0 + f32::from(x > 0.5) } else { -1.0 - f32::from(x < -0.5) }
        });
    }
}

#[test]
fn one_bit_of_any_numbers_and_shares_that_lack_elements() {
    // Means of up to 224 numbers of at most 1.5, with residuals of three rounds: a few times 2⁻²⁴ ·
    // √224.
    for (cards, across, rows, columns) in
        [(3, 1, 37, 5), (5, 1, 1, 70), (2, 2, 26, 17), (8, 1, 3, 3), (1, 2, 4, 3)]
    {
        follows(&Case { by: Compression::OneBit, cards, across, rows, columns }, 4, 3e-6, |x| x);
    }
}

#[test]
fn the_greatest_are_bit_for_bit_what_loops_say() {
    for (cards, across, rows, columns) in
        [(2, 1, 16, 10), (5, 1, 7, 9), (2, 2, 26, 17), (8, 1, 1, 3), (1, 2, 4, 3)]
    {
        follows(&Case { by: TOP, cards, across, rows, columns }, 4, 0.0, |x| x);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Parts,
    Rows,
    Columns,
    Copies,
}

#[derive(Debug)]
struct MeshMatrix {
    by: Compression,
    axes: Vec<(&'static str, usize, Does)>,
    rows: usize,
    columns: usize,
}

impl MeshMatrix {
    fn drawn(random: &mut Random) -> Self {
        let mut axes = Vec::new();
        let mut cards = 1;
        for name in ["a", "b", "c"] {
            let size = 2 + random.below(3) as usize;
            if cards * size <= 8 {
                cards *= size;
                let does = [Does::Parts, Does::Parts, Does::Rows, Does::Columns, Does::Copies];
                axes.push((name, size, does[random.below(5) as usize]));
            }
        }
        let by = [Compression::OneBit, TOP, Compression::TopK { share: 1.0 }][random.below(3) as usize];
        Self { by, axes, rows: 1 + random.below(20) as usize, columns: 1 + random.below(20) as usize }
    }

    fn named(&self, does: Does) -> Vec<&'static str> {
        self.axes.iter().filter(|(.., what)| *what == does).map(|(name, ..)| *name).collect()
    }

    fn parts(&self) -> usize {
        self.axes.iter().filter(|(.., does)| *does == Does::Parts).map(|(_, size, _)| size).product()
    }

    fn lowered(&self) -> Placed {
        let mut build = Builder::new("compressed");
        let x = build.input("x", [self.parts(), self.rows, self.columns], DType::F32);
        let kept = build.state("kept", [self.rows, self.columns], DType::F32);
        let part = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
        let part = build.name(part, "part");
        let whole = build.input("whole", [self.rows, self.columns], DType::F32);
        let [_, sum] =
            build.several(Kind::CompressedSum { axes: Vec::new(), by: self.by }, &[part, kept, whole]);
        build.output("sum", sum);
        let cut = |first: usize| -> Vec<(usize, &str)> {
            let of = |dim: usize, does| self.named(does).into_iter().map(move |name| (dim, name));
            of(first, Does::Rows).chain(of(first + 1, Does::Columns)).collect()
        };
        let parts = self.named(Does::Parts);
        let given: Vec<(usize, &str)> = parts.iter().map(|name| (0, *name)).chain(cut(1)).collect();
        let given = Pins::default().value("x", &given).value("whole", &cut(0));
        let pins =
            ["part", "kept"].into_iter().fold(given, |pins, name| pins.partial_value(name, &cut(0), &parts));
        let mesh =
            Mesh::new(&self.axes.iter().map(|(name, size, _)| (*name, *size)).collect::<Vec<_>>()).unwrap();
        parallelize(&build.finish().unwrap(), &mesh, &pins).unwrap().lowered
    }

    fn follows(&self) {
        let lowered = self.lowered();
        let cards = lowered.mesh.cards();
        let emulator = Emulator::new(Config::with_cards(cards)).unwrap();
        let plans = schedule(&lowered, Scheduling::default()).unwrap();
        let mut engine =
            Engine::start(&Cann::new(emulator.table()).unwrap(), vec![plans], &EngineOptions::default())
                .unwrap();
        let ranges = |name: &str, rank: usize| {
            let (id, value) = lowered.program.values.iter().find(|(_, value)| value.name == name).unwrap();
            lowered.layouts[id].ranges(&lowered.mesh, &value.shape, rank)
        };
        let piece = |rank: usize| -> Vec<usize> {
            let [rows, columns] = <[_; 2]>::try_from(ranges("kept", rank)).unwrap();
            rows.flat_map(|row| columns.clone().map(move |column| row * self.columns + column)).collect()
        };
        let places: Vec<(usize, Vec<usize>)> =
            (0..cards).map(|rank| (ranges("x", rank)[0].start, piece(rank))).collect();
        let elems = self.rows * self.columns;
        let mut kept: BTreeMap<Vec<usize>, Vec<Vec<f32>>> = BTreeMap::new();
        for round in 0..2 {
            let part = |at: usize| numbers(round * 100 + at as u64).take(elems).collect::<Vec<f32>>();
            let parts: Vec<Vec<f32>> = (0..self.parts()).map(part).collect();
            let half = self.parts() as f32 / 2.0;
            let whole: Vec<f32> = numbers(round * 100 + 99).map(|at| at.round() * half).take(elems).collect();
            let inputs = NamedTensors::new().with("x", parts.concat()).with("whole", whole.as_slice());
            let found = engine.run(ProgramId(0), &inputs).unwrap().only().unwrap().floats().to_vec();
            for piece in places.iter().map(|(_, piece)| piece).collect::<BTreeSet<_>>() {
                let of: Vec<Vec<f32>> =
                    parts.iter().map(|part| piece.iter().map(|at| part[*at]).collect()).collect();
                let own = kept.entry(piece.clone()).or_insert_with(|| vec![vec![0.0; piece.len()]; of.len()]);
                let whole: Vec<f32> = piece.iter().map(|at| whole[*at]).collect();
                let sum = if piece.is_empty() { Vec::new() } else { expected(self.by, &of, &whole, own) };
                self.is_near(piece.iter().map(|at| found[*at]), sum);
            }
            engine
                .load(|shards| {
                    for part in shards.states().iter().flatten() {
                        let (at, piece) = &places[part.rank()];
                        self.is_near(floats(&part.read()?), kept[piece][*at].iter().copied());
                    }
                    Ok(())
                })
                .unwrap();
        }
    }

    /// Values and indices are exact. Means are of up to 400 numbers of at most 1.5, with two rounds
    /// of residuals.
    fn is_near(&self, found: impl IntoIterator<Item = f32>, wanted: impl IntoIterator<Item = f32>) {
        let bound = if self.by == Compression::OneBit { 3e-6 } else { 0.0 };
        let (found, wanted): (Vec<f32>, Vec<f32>) =
            (found.into_iter().collect(), wanted.into_iter().collect());
        assert_eq!(found.len(), wanted.len(), "{self:?}");
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!(
                (found - wanted).abs() <= bound * wanted.abs().max(1.0),
                "{self:?}: {found} is not {wanted}"
            );
        }
    }
}

#[test]
fn matrices_that_lie_anyhow_follow_the_loops() {
    let mut random = Random::new(seed());
    let drawn: Vec<MeshMatrix> = (0..cases(60)).map(|_| MeshMatrix::drawn(&mut random)).collect();
    let with_parts = |count| drawn.iter().filter(|lying| lying.named(Does::Parts).len() == count).count();
    assert!((0..3).all(|count| with_parts(count) > 5), "each number of axes on which a matrix is a part");
    drawn.iter().for_each(MeshMatrix::follows);
}

fn wire_bytes(plans: Vec<Plan>, cards: usize) -> f64 {
    let mode = Mode::Timed { numbers: Numbers::Real };
    let emulator = Emulator::new(Config { mode, ..Config::with_cards(cards) }).unwrap();
    let mut engine =
        Engine::start(&Cann::new(emulator.table()).unwrap(), vec![plans], &EngineOptions::default()).unwrap();
    emulator.record_timeline(Recording::Everything);
    let inputs = NamedTensors::zeros(&engine.plans(ProgramId(0))[0].inputs);
    engine.run(ProgramId(0), &inputs).unwrap();
    let spans = emulator.timeline();
    let own = spans.iter().filter(|span| span.card == 0 && span.lane == Lane::Communication);
    let others = (cards - 1) as f64 / cards as f64;
    own.map(|span| span.bytes * others * if span.name == "HcclAllReduce" { 2.0 } else { 1.0 }).sum()
}

#[test]
fn bytes_on_the_wire_are_a_sixteenth_of_f16_or_what_the_share_says() {
    let (cards, rows, columns) = (8, 128, 96);
    let elems = rows * columns;
    let mut build = Builder::new("whole");
    let x = build.input("x", [cards, rows, columns], DType::F16);
    let sum = build.op(Kind::ReduceSum { dim: 0 }, &[x]);
    build.output("sum", sum);
    let (mesh, pins) = (Mesh::new(&[("dp", cards)]).unwrap(), Pins::default().value("x", &[(0, "dp")]));
    let lowered = parallelize(&build.finish().unwrap(), &mesh, &pins).unwrap().lowered;
    let f16 = wire_bytes(schedule(&lowered, Scheduling::default()).unwrap(), cards);
    assert_eq!(f16, 2.0 * 7.0 / 8.0 * 2.0 * elems as f64);
    let of = |by| {
        let case = Case { by, cards, across: 1, rows, columns };
        wire_bytes(case.plans(Kernels::NONE), cards)
    };
    let ratio = of(Compression::OneBit) / f16;
    assert!((ratio * 16.0 - 1.0).abs() < 0.05, "{ratio}");
    for share in [0.01, 0.1] {
        let kept = (elems as f64 * share).round();
        assert_eq!(
            of(Compression::TopK { share }),
            7.0 * 8.0 * kept,
            "a value and a place each, to seven others"
        );
    }
}

const ONE: Layout = Layout { micro_batch: 1, ..Layout::ONE };

fn golden(name: &str, by: Option<Compression>) -> Golden {
    let mut golden = Golden::read(name);
    golden.recipe.compress = by.map(|by| Compress { by, warmup_steps: Some(golden.recipe.steps / 5) });
    golden
}

/// Relative bound of the final loss. 1.2 % was observed with one bit, because frozen second moments
/// do not follow shrinking gradients. A wrong factor, scale or moment gives at least 8 %.
const NEAR: f64 = 0.02;

/// Like [`golden`], but compresses from the middle on, when second moments are settled.
fn settled(name: &str, by: Compression) -> Golden {
    let mut golden = golden(name, None);
    golden.recipe.compress = Some(Compress { by, warmup_steps: Some(golden.recipe.steps / 2) });
    golden
}

/// Like [`golden`], but compresses from the third step on.
fn soon(name: &str, by: Compression) -> Golden {
    let mut golden = golden(name, None);
    golden.recipe.compress = Some(Compress { by, warmup_steps: Some(2) });
    golden
}

fn losses(golden: &Golden, trainer: &mut Trainer) -> Vec<f64> {
    let mut losses = Vec::new();
    while trainer.next_step() < golden.recipe.steps {
        losses.push(trainer.step(&golden.batches[trainer.next_step()]).unwrap().loss);
    }
    losses
}

fn last(losses: &[f64]) -> f64 {
    let tail = &losses[losses.len() - losses.len() / 10..];
    tail.iter().sum::<f64>() / tail.len() as f64
}

#[test]
fn curves_end_beside_what_is_not_compressed() {
    let layouts = [
        Layout { data: 4, micro_batch: 2, ..ONE },
        Layout { data: 2, tensor: 2, micro_batch: 2, ..ONE },
        Layout { data: 2, context: 2, micro_batch: 4, ..ONE },
    ];
    // The first two of each model have every layout, and each model with both compressions.
    let one_bit = Compression::OneBit;
    let of_both = [
        ("qwen2-gqa-adamw", [(one_bit, 0), (TOP, 1), (one_bit, 2), (TOP, 0), (one_bit, 1), (TOP, 2)]),
        ("llama3-sgd", [(TOP, 2), (one_bit, 1), (TOP, 0), (one_bit, 0), (TOP, 1), (one_bit, 2)]),
    ];
    for (name, compressed) in of_both {
        let usual = golden(name, None);
        let usual = last(&losses(&usual, &mut usual.start(layouts[0]).unwrap()));
        for (by, at) in first_cases(&compressed, 2) {
            let (golden, layout) = (settled(name, *by), layouts[*at]);
            let found = last(&losses(&golden, &mut golden.start(layout).unwrap()));
            assert!((found / usual - 1.0).abs() < NEAR, "{name}, {by}, {layout:?}: {found} beside {usual}");
        }
    }
}

fn resumed(golden: &Golden, layout: Layout, folder: &std::path::Path) -> Trainer {
    let mut trainer = golden.start(layout).unwrap();
    let saved = Checkpoint::latest(folder).unwrap().unwrap();
    let progress = serde_json::from_value(saved.index().state.clone()).unwrap();
    trainer.restore(&saved, progress).unwrap();
    trainer
}

#[test]
fn a_run_goes_on_with_the_same_bits_and_what_was_kept_back_is_not_lost_on_other_meshes() {
    for by in [Compression::OneBit, TOP] {
        let golden = soon("qwen2-gqa-adamw", by);
        let layout = Layout { data: 2, tensor: 2, micro_batch: 2, ..ONE };
        let folder = tempfile::tempdir().unwrap();
        let mut trainer = golden.start(layout).unwrap();
        while trainer.next_step() < 4 {
            trainer.step(&golden.batches[trainer.next_step()]).unwrap();
        }
        save(&mut trainer, folder.path());
        let at_save = whole_parts(&mut trainer);
        let end = |trainer: &mut Trainer| {
            while trainer.next_step() < 6 {
                trainer.step(&golden.batches[trainer.next_step()]).unwrap();
            }
            whole_parts(trainer)
        };
        assert!(end(&mut trainer) == end(&mut resumed(&golden, layout, folder.path())), "{by}");
        let kept_back = |held: &BTreeMap<String, Vec<u8>>| -> Vec<f32> {
            let of = held.iter().filter(|(name, _)| name.starts_with("kept_back."));
            of.flat_map(|(_, bytes)| bytes.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())))
                .collect()
        };
        let expected = kept_back(&at_save);
        assert!(expected.iter().any(|x| *x != 0.0));
        for other in [
            Layout { data: 4, micro_batch: 2, ..ONE },
            Layout { data: 3, tensor: 2, micro_batch: 1, ..ONE },
            Layout { data: 2, tensor: 4, micro_batch: 4, ..ONE },
            Layout { micro_batch: 8, ..ONE },
        ] {
            let mut trainer = resumed(&golden, other, folder.path());
            let found = whole_parts(&mut trainer);
            // Equal numbers of ranks keep residuals identical. Otherwise their sum is redistributed
            // and rounded.
            let bound = if other.data == layout.data { 0.0 } else { 4.0 * f32::EPSILON };
            is_kept_back(&kept_back(&found), &expected, bound, &format!("{by}, {other:?}"));
            let again = tempfile::tempdir().unwrap();
            save(&mut trainer, again.path());
            let mut dealt = resumed(&golden, Layout { data: 4, micro_batch: 2, ..ONE }, again.path());
            let found = kept_back(&whole_parts(&mut dealt));
            is_kept_back(&found, &expected, 8.0 * f32::EPSILON, &format!("{by}, {other:?}, then dp=4"));
            let step = trainer.step(&golden.batches[4]).unwrap();
            assert!(step.loss.is_finite());
        }
    }
}

fn is_kept_back(found: &[f32], expected: &[f32], bound: f32, place: &str) {
    assert_eq!(found.len(), expected.len(), "{place}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= bound * expected.abs(), "{place}: {found} is not {expected}");
    }
}

#[test]
fn moments_that_stopped_elsewhere_are_refused() {
    let golden = soon("qwen2-gqa-adamw", Compression::OneBit);
    let layout = Layout { data: 2, micro_batch: 4, ..ONE };
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = golden.start(layout).unwrap();
    while trainer.next_step() < 4 {
        trainer.step(&golden.batches[trainer.next_step()]).unwrap();
    }
    save(&mut trainer, folder.path());
    let saved = Checkpoint::latest(folder.path()).unwrap().unwrap();
    let kept: Progress = serde_json::from_value(saved.index().state.clone()).unwrap();
    let began = kept.frozen_at.expect("updates");
    for (frozen_at, found) in
        [(Some(began + 1), format!("{}", began + 1)), (None, "moments of 4 uncompressed updates".to_owned())]
    {
        let refused = trainer.restore(&saved, Progress { frozen_at, ..kept }).unwrap_err().to_string();
        assert!(refused.contains("--compress-after") && refused.contains(&found), "{refused}");
    }
    trainer.restore(&saved, kept).unwrap();
}

#[test]
fn stages_of_a_pipeline_compress_their_own_and_copies_stay_alike() {
    for name in first_cases(&["qwen2-tied-uneven-masked", "qwen2-gqa-adamw"], 1) {
        let usual = golden(name, None);
        let layout = Layout { stages: 2, data: 2, micro_batch: 1, ..ONE };
        let usual = last(&losses(&usual, &mut usual.start(layout).unwrap()));
        let golden = settled(name, Compression::OneBit);
        let found = last(&losses(&golden, &mut golden.start(layout).unwrap()));
        assert!((found / usual - 1.0).abs() < NEAR, "{name}: {found} beside {usual}");
    }
}

#[test]
fn what_cannot_be_compressed_is_said_before_anything_runs() {
    let mut golden = golden("qwen2-gqa-adamw", Some(Compression::TopK { share: 0.5 }));
    golden.recipe.exact = true;
    golden.recipe.precision = TrainingPrecision::F16;
    let layout = Layout { data: 2, zero: Zero::Moments, ..ONE };
    let text = compile(&golden.model.config, &golden.recipe, &layout, Target::ANY).unwrap_err().to_string();
    for part in [
        "so sums are not exact",
        "expected --zero 0, found --zero 1",
        "found f16",
        "a share below 0.5, found 0.5",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Data-parallel ranks exchange compressed gradients; all else is vectors and scalars.
#[test]
fn behind_the_warm_up_only_vectors_are_summed_whole() {
    let golden = golden("qwen2-gqa-adamw", Some(Compression::OneBit));
    let layout = Layout { data: 2, tensor: 2, micro_batch: 4, ..ONE };
    let lowered = lower(&golden.model.config, &golden.recipe, &layout).unwrap();
    let (_, placed) = lowered.parts.iter().find(|(part, _)| format!("{part:?}") == "Compressed").unwrap();
    let found = ascend_tp::collective::exchanges(placed);
    let of_data: Vec<_> = found.iter().filter(|exchange| exchange.axes.contains("dp")).collect();
    assert!(of_data.iter().any(|exchange| exchange.kind == "compressed_sum"));
    for exchange in of_data.iter().filter(|exchange| exchange.kind != "compressed_sum") {
        let op = &placed.program.ops[exchange.op];
        let rank = |id: &ascend_tp::program::ValueId| placed.program.values[*id].shape.rank();
        assert!(
            op.operands.iter().all(|operand| rank(operand) < 2 || exchange.value.contains("bias")),
            "{exchange:?}"
        );
    }
}

#[test]
fn a_step_whose_second_moments_stay_follows_its_formula() {
    let (rows, columns, decay, epsilon, correction) = (6, 5, 0.1, 1e-8, 0.4);
    let mut build = Builder::new("frozen");
    let mut matrix = |name: &str| build.input(name, [rows, columns], DType::F32);
    let [w, v, g] = ["w", "v", "g"].map(&mut matrix);
    let m = build.state("m", [rows, columns], DType::F32);
    let [least, factor, rate, corrected] =
        ["least", "factor", "rate", "corrected"].map(|name| build.input(name, [], DType::F32));
    let [scale, inverse] = build.several(Kind::AdamWScale { correction, epsilon }, &[v, least]);
    let kind = Kind::FrozenAdamW { decay };
    let [_, moved] = build.several(kind, &[w, m, inverse, g, factor, rate, corrected]);
    for (name, value) in [("scale", scale), ("moved", moved)] {
        build.output(name, value);
    }
    // Sharded moments are overwritten in place.
    let pins = ["w", "v", "g", "m"].iter().fold(Pins::default(), |pins, name| pins.value(name, &[(1, "tp")]));
    let mesh = Mesh::new(&[("tp", 2)]).unwrap();
    let plans = schedule(
        &parallelize(&build.finish().unwrap(), &mesh, &pins).unwrap().lowered,
        Scheduling::default(),
    )
    .unwrap();
    let emulator = Emulator::new(Config::with_cards(2)).unwrap();
    let mut engine =
        Engine::start(&Cann::new(emulator.table()).unwrap(), vec![plans], &EngineOptions::default()).unwrap();
    for round in 0..3 {
        let of = |seed: u64| numbers(round * 10 + seed).take(rows * columns).collect::<Vec<f32>>();
        let (w, g, v) = (of(1), of(2), of(3).iter().map(|x| x * x).collect::<Vec<f32>>());
        let given = [0.25_f32, 0.5, 0.01, 0.02];
        let mut inputs: NamedTensors = [("w", w.as_slice()), ("v", &v), ("g", &g)].into_iter().collect();
        inputs.extend(["least", "factor", "rate", "corrected"].into_iter().zip(given));
        let outputs = engine.run(ProgramId(0), &inputs).unwrap();
        let [least, factor, rate, corrected] = given.map(f64::from);
        for at in 0..rows * columns {
            let scale = ((f64::from(v[at]) + least) / correction).sqrt() + epsilon;
            let moment = f64::from(g[at]) * factor;
            let moved = f64::from(w[at]) * (1.0 - rate * decay) - corrected * moment / scale;
            for (name, expected) in [("scale", scale), ("moved", moved)] {
                let found = f64::from(outputs.get(name).unwrap().floats()[at]);
                assert!(
                    (found - expected).abs() <= 8.0 * f64::from(f32::EPSILON),
                    "{name} {at}: {found}, not {expected}"
                );
            }
        }
    }
}

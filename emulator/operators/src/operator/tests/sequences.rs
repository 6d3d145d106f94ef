//! Fused attention over packed sequences and block caches, against an f64 reference.

use ascend_tp_machine::{OperatorCost, Profile, Soc, Work};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::attention::triangle;
use super::*;
use crate::dtype::AclType;

const SCALE: f64 = 0.3;

#[derive(Clone, Copy, Debug)]
struct BlockCache {
    /// Number of keys per block.
    block: usize,
    /// Whether heads precede keys in a block.
    heads_first: bool,
}

#[derive(Clone, Debug)]
struct Case {
    dtype: AclType,
    layout: &'static str,
    heads: [usize; 2],
    depths: [usize; 2],
    /// Rows and keys per sequence.
    sequences: Vec<(usize, usize)>,
    cache: Option<BlockCache>,
    sparse_mode: i64,
    before: i64,
    after: i64,
    sums: bool,
    strided: bool,
    seed: usize,
    /// Invalid values for errors.
    ends: Option<[Vec<i64>; 2]>,
    table: Option<Vec<f64>>,
    block_size: Option<i64>,
}

struct Draw(SplitMix64);

impl Draw {
    fn below(&mut self, below: usize) -> usize {
        self.0.next_u64() as usize % below
    }
}

/// Values by head, position and element.
struct Meaning {
    parts: [Vec<f64>; 3],
    out: Vec<f64>,
    sums: Vec<f64>,
}

impl Case {
    fn new(dtype: AclType, layout: &'static str, sequences: &[(usize, usize)]) -> Self {
        Self {
            dtype,
            layout,
            heads: [4, 2],
            depths: [16, 16],
            sequences: sequences.to_vec(),
            cache: None,
            sparse_mode: 0,
            before: 2_147_483_647,
            after: 2_147_483_647,
            sums: false,
            strided: false,
            seed: 0,
            ends: None,
            table: None,
            block_size: None,
        }
    }

    fn is_packed(&self) -> bool {
        self.layout.starts_with("TND") || self.layout.starts_with("NTD")
    }

    fn sees(&self, rows: usize, keys: usize, i: usize, j: usize) -> bool {
        let place = i as i64 + keys as i64 - rows as i64;
        match self.sparse_mode {
            0 => true,
            3 => j as i64 <= place,
            _ => j as i64 <= place + self.after && j as i64 >= place - self.before,
        }
    }

    fn meaning(&self, index: usize) -> Meaning {
        let ((rows, keys), [heads, kv_heads], [depth, width]) =
            (self.sequences[index], self.heads, self.depths);
        let drawn = |n: usize, part: usize| -> Vec<f64> {
            let all = varied(n, 31 * self.seed + 7 * index + part);
            all.iter().map(|value| rounded(value / 2.0, self.dtype)).collect()
        };
        let [q, k, v] =
            [(heads * rows * depth, 1), (kv_heads * keys * depth, 2), (kv_heads * keys * width, 3)]
                .map(|(n, part)| drawn(n, part));
        let (mut out, mut sums) = (Vec::new(), Vec::new());
        for n in 0..heads {
            let head = n / (heads / kv_heads) * keys;
            for i in 0..rows {
                let row = &q[(n * rows + i) * depth..][..depth];
                let score = |j: usize| -> f64 {
                    let key = &k[(head + j) * depth..][..depth];
                    SCALE * row.iter().zip(key).map(|(a, b)| a * b).sum::<f64>()
                };
                let weights: Vec<f64> = (0..keys)
                    .map(|j| if self.sees(rows, keys, i, j) { score(j).exp() } else { 0.0 })
                    .collect();
                let sum: f64 = weights.iter().sum();
                sums.push(if sum > 0.0 { sum.ln() } else { f64::INFINITY });
                out.extend((0..width).map(|d| {
                    let total: f64 =
                        weights.iter().enumerate().map(|(j, w)| w * v[(head + j) * width + d]).sum();
                    if sum > 0.0 { total / sum } else { 0.0 }
                }));
            }
        }
        Meaning { parts: [q, k, v], out, sums }
    }

    /// Elements of the padding are NaN.
    fn laid_out(&self, order: &str, parts: &[Vec<f64>], lens: &[usize], [heads, depth]: [usize; 2]) -> Data {
        let longest = lens.iter().copied().max().unwrap_or(0);
        let (batch, total) = (lens.len(), lens.iter().sum::<usize>());
        let dims = match order {
            "TND" => vec![total, heads, depth],
            "NTD" => vec![heads, total, depth],
            "BNSD" => vec![batch, heads, longest, depth],
            "BSND" => vec![batch, longest, heads, depth],
            _ => vec![batch, longest, heads * depth],
        };
        let mut values = vec![f64::NAN; dims.iter().product()];
        let mut start = 0;
        for (b, (part, &len)) in parts.iter().zip(lens).enumerate() {
            for (at, &value) in part.iter().enumerate() {
                let (n, s, d) = (at / depth / len, at / depth % len, at % depth);
                let row = match order {
                    "TND" => (start + s) * heads + n,
                    "NTD" => n * total + start + s,
                    "BNSD" => (b * heads + n) * longest + s,
                    _ => (b * longest + s) * heads + n,
                };
                values[row * depth + d] = value;
            }
            start += len;
        }
        Data::new(self.dtype, &dims, &values)
    }

    /// Returns a cache of all sequences and its block table; unused elements are NaN.
    fn cached(&self, parts: &[Vec<f64>], cache: BlockCache, depth: usize) -> (Data, Data) {
        let BlockCache { block, heads_first } = cache;
        let (heads, lens) = (self.heads[1], self.sequences.iter().map(|of| of.1).collect::<Vec<_>>());
        let columns = lens.iter().map(|len| len.div_ceil(block)).max().unwrap_or(0).max(1) + 1;
        let blocks = lens.iter().map(|len| len.div_ceil(block)).sum::<usize>() + 3;
        let mut draw = Draw(SplitMix64::seed_from_u64(self.seed as u64));
        let mut free: Vec<usize> = (0..blocks).collect();
        let mut table = vec![-1.0; lens.len() * columns];
        let mut values = vec![f64::NAN; blocks * block * heads * depth];
        for (b, (part, &len)) in parts.iter().zip(&lens).enumerate() {
            for place in 0..len.div_ceil(block) {
                table[b * columns + place] = free.swap_remove(draw.below(free.len())) as f64;
            }
            for (at, &value) in part.iter().enumerate() {
                let (n, s, d) = (at / depth / len, at / depth % len, at % depth);
                let (of, s) = (table[b * columns + s / block] as usize, s % block);
                let line =
                    if heads_first { (of * heads + n) * block + s } else { (of * block + s) * heads + n };
                values[line * depth + d] = value;
            }
        }
        let dims =
            if heads_first { vec![blocks, heads, block, depth] } else { vec![blocks, block, heads * depth] };
        let table = self.table.clone().unwrap_or(table);
        (Data::new(self.dtype, &dims, &values), Data::new(AclType::I32, &[lens.len(), columns], &table))
    }

    fn run(&self, name: &'static str) -> Result<[Data; 4], String> {
        self.play(name, |arguments| run(name, arguments)).map(|((), data)| data)
    }

    fn work(&self, name: &'static str) -> Work {
        let found = self.play(name, |arguments| {
            let (call, plan, _) = prepared(name, arguments)?;
            Ok(work(name, &call, &plan))
        });
        found.expect("the call is legal").0
    }

    fn play<T>(
        &self,
        name: &str,
        body: impl FnOnce(Vec<Arg<'_>>) -> Result<T, String>,
    ) -> Result<(T, [Data; 4]), String> {
        let meanings: Vec<Meaning> = (0..self.sequences.len()).map(|index| self.meaning(index)).collect();
        let part = |at: usize| meanings.iter().map(|of| of.parts[at].clone()).collect::<Vec<_>>();
        let (rows, keys): (Vec<usize>, Vec<usize>) = self.sequences.iter().copied().unzip();
        let ([heads, kv_heads], [depth, width]) = (self.heads, self.depths);
        let (order, out_order) = self.layout.split_once('_').unwrap_or((self.layout, self.layout));
        let mut query = self.laid_out(order, &part(0), &rows, [heads, depth]);
        let (mut key, mut value, mut table) = match self.cache {
            Some(cache) => {
                let (key, table) = self.cached(&part(1), cache, depth);
                (key, self.cached(&part(2), cache, width).0, Some(table))
            }
            None => {
                let laid_out = |at, depth| self.laid_out(order, &part(at), &keys, [kv_heads, depth]);
                (laid_out(1, depth), laid_out(2, width), None)
            }
        };
        if self.strided {
            (query, key, value) = (query.strided(), key.strided(), value.strided());
            table = table.map(Data::strided);
        }
        let outs: Vec<Vec<f64>> = meanings.iter().map(|of| of.out.clone()).collect();
        let wanted = self.laid_out(out_order, &outs, &rows, [heads, width]);
        let logs: Vec<Vec<f64>> = meanings.iter().map(|of| of.sums.clone()).collect();
        let sums_order = if self.is_packed() { "TND" } else { "BNSD" };
        let logs =
            Self { dtype: AclType::F32, ..self.clone() }.laid_out(sums_order, &logs, &rows, [heads, 1]);
        let (mut out, mut sums) =
            (Data::blank(self.dtype, &wanted.dims), Data::blank(AclType::F32, &logs.dims));
        let ends = |lens: &[usize], is_end: bool| -> Vec<i64> {
            let mut total = 0;
            lens.iter()
                .map(|&len| {
                    total = if is_end { total + len } else { len };
                    total as i64
                })
                .collect()
        };
        let [row_ends, key_ends] = self.ends.clone().unwrap_or_else(|| {
            [ends(&rows, self.is_packed()), ends(&keys, self.is_packed() && self.cache.is_none())]
        });
        let mut mask = (self.sparse_mode != 0).then(triangle);
        let lengths =
            |values: &'static [i64]| if values.is_empty() { Arg::NoInts } else { Arg::Ints(values) };
        let mut arguments = vec![
            Arg::T(&mut query),
            Arg::List(vec![&mut key]),
            Arg::List(vec![&mut value]),
            Arg::Null,
            mask.as_mut().map_or(Arg::Null, Arg::T),
            lengths(row_ends.leak()),
            lengths(key_ends.leak()),
        ];
        arguments.extend((0..7).map(|_| Arg::Null));
        arguments.push(table.as_mut().map_or(Arg::Null, Arg::T));
        arguments.extend((0..8).map(|_| Arg::Null));
        arguments.push(Arg::NoInts);
        let more = match name {
            FUSED => 3,
            FUSED_V4 => 5,
            _ => 0,
        };
        arguments.extend((0..more).map(|_| Arg::Null));
        let block_size = self.block_size.unwrap_or(self.cache.map_or(0, |cache| cache.block as i64));
        arguments.extend([Arg::I(heads as i64), Arg::F(SCALE), Arg::I(self.before), Arg::I(self.after)]);
        arguments.extend([
            Arg::Text(self.layout),
            Arg::I(kv_heads as i64),
            Arg::I(self.sparse_mode),
            Arg::I(0),
        ]);
        arguments.extend([Arg::I(block_size), Arg::I(0), Arg::B(self.sums), Arg::I(0), Arg::I(0)]);
        if name == FUSED_V4 {
            arguments.push(Arg::I(0));
        }
        arguments.push(Arg::T(&mut out));
        arguments.push(if self.sums { Arg::T(&mut sums) } else { Arg::Null });
        let found = body(arguments)?;
        Ok((found, [out, wanted, sums, logs]))
    }

    #[track_caller]
    fn agrees(&self) {
        for name in ["aclnnFusedInferAttentionScoreV2", FUSED, FUSED_V4] {
            let [out, wanted, sums, logs] = self.run(name).unwrap();
            // Rows past a length are zeros with log-sum-exp +inf.
            let padded = |data: &Data, padding: f64| -> Vec<f64> {
                data.values().into_iter().map(|value| if value.is_nan() { padding } else { value }).collect()
            };
            close(&out.values(), &padded(&wanted, 0.0), precision(self.dtype), &format!("{self:?}"));
            if self.sums {
                close(&sums.values(), &padded(&logs, f64::INFINITY), 1e-4, &format!("sums of {self:?}"));
            }
        }
    }

    #[track_caller]
    fn refused(&self, part: &str) {
        let message = self.run("aclnnFusedInferAttentionScoreV3").expect_err("must be refused");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn sequences_one_behind_the_other() {
    for dtype in [AclType::F16, AclType::BF16] {
        for layout in ["TND", "NTD_TND"] {
            let mut case = Case::new(dtype, layout, &[(5, 7), (1, 33), (0, 4), (40, 40), (3, 300)]);
            if layout == "NTD_TND" {
                case.depths = [64, 64];
            }
            case.sums = true;
            case.agrees();
            case.sparse_mode = 3;
            case.agrees();
            (case.sparse_mode, case.before, case.after) = (4, 9, 0);
            case.agrees();
            (case.depths, case.strided) = ([192, 128], true);
            case.agrees();
        }
    }
}

#[test]
fn caches_of_blocks_in_every_layout() {
    for (layout, sequences) in [
        ("TND", vec![(1, 1), (1, 130), (4, 4), (0, 0), (2, 700)]),
        ("BSH", vec![(6, 40), (4, 130), (2, 2)]),
        ("BSND", vec![(1, 40), (1, 16), (1, 0)]),
        ("BNSD", vec![(3, 300), (3, 5)]),
        ("BNSD_BSND", vec![(3, 30), (2, 5)]),
    ] {
        for (block, heads_first) in
            [(16, false), (128, false), (128, true), (48, true), (512, false), (1024, true)]
        {
            let mut case = Case::new(AclType::BF16, layout, &sequences);
            (case.cache, case.sums) = (Some(BlockCache { block, heads_first }), true);
            case.agrees();
            case.strided = true;
            case.agrees();
            if sequences.iter().any(|of| of.0 > 1) {
                case.sparse_mode = 3;
                case.agrees();
            }
        }
    }
}

#[test]
fn calls_that_seeds_give() {
    for seed in 0..60 {
        let mut draw = Draw(SplitMix64::seed_from_u64(seed as u64 + 1));
        let sequences: Vec<(usize, usize)> = (0..1 + draw.below(4))
            .map(|_| {
                let keys = draw.below(300);
                ([0, 1, 1, 2, 5, 17][draw.below(6)].min(keys), keys)
            })
            .collect();
        let mut case = Case::new([AclType::F16, AclType::BF16][draw.below(2)], "TND", &sequences);
        if sequences.iter().all(|of| of.0 == 0) {
            case.sequences.push((2, 5));
        }
        case.heads = [[1, 1], [2, 2], [4, 2], [6, 1], [5, 1], [4, 4]][draw.below(6)];
        case.depths = [[16, 16], [32, 32], [48, 48], [80, 80], [192, 128], [16, 16]][draw.below(6)];
        let cache = BlockCache { block: 16 * (1 + draw.below(64)), heads_first: draw.below(2) == 0 };
        case.cache = [None, Some(cache)][draw.below(2)];
        (case.sparse_mode, case.before, case.after) =
            [(0, 0, 0), (3, 0, 0), (4, draw.below(200) as i64, draw.below(3) as i64)][draw.below(3)];
        (case.seed, case.sums, case.strided) = (seed, draw.below(2) == 0, draw.below(4) == 0);
        case.agrees();
    }
}

const FUSED: &str = "aclnnFusedInferAttentionScoreV3";
const FUSED_V4: &str = "aclnnFusedInferAttentionScoreV4";

/// A decode step multiplies each row with its keys twice and reads the keys once.
#[test]
fn a_step_over_a_cache_costs_what_its_lengths_say() {
    let mut case = Case::new(AclType::F16, "TND", &[(1, 600), (1, 600), (1, 600)]);
    case.cache = Some(BlockCache { block: 128, heads_first: false });
    let mut durations = Vec::new();
    for lengths in [[1, 16, 3], [130, 16, 30], [600, 600, 600]] {
        case.ends = Some([vec![1, 2, 3], lengths.to_vec()]);
        let (work, keys) = (case.work(FUSED), lengths.iter().sum::<i64>() as f64);
        let ([heads, key_heads], [depth, _]) = (case.heads.map(|n| n as f64), case.depths.map(|d| d as f64));
        assert_eq!(work.flops(), 4.0 * heads * depth * keys);
        assert_eq!(work.read_bytes, 2.0 * depth * (3.0 * heads + 2.0 * keys * key_heads) + 4.0 * 18.0);
        assert_eq!(work.written_bytes, 2.0 * 3.0 * heads * depth);
        assert_eq!(work.tasks, 3.0 * key_heads);
        durations.push(OperatorCost::of(&Profile::of(Soc::Ascend910B3), &work).duration_us);
    }
    assert!(durations.is_sorted_by(|a, b| a < b), "{durations:?}");
}

/// Causal rows see half of a prompt.
#[test]
fn prompts_one_behind_the_other_cost_what_they_see() {
    let mut case = Case::new(AclType::BF16, "TND", &[(40, 40), (7, 100), (7, 100), (0, 4)]);
    case.sparse_mode = 3;
    let work = case.work(FUSED);
    let pairs = 40.0 * 20.5 + 2.0 * 7.0 * 97.0;
    assert_eq!(work.flops(), 4.0 * 4.0 * 16.0 * pairs);
    let parts = 2.0 * 16.0 * (4.0 * 54.0 + 2.0 * 2.0 * 240.0);
    assert_eq!(work.read_bytes, parts + 2048.0 * 2048.0);
}

#[test]
fn a_call_costs_the_same_in_each_layout() {
    let of = |layout| Case::new(AclType::F16, layout, &[(3, 50), (3, 50)]).work(FUSED);
    for layout in ["BSH", "BNSD", "BNSD_BSND", "TND"] {
        assert_eq!(of(layout), of("BSND"), "{layout}");
    }
}

#[test]
fn a_cache_gives_the_bits_of_keys_beside_each_other() {
    let mut case = Case::new(AclType::F16, "TND", &[(1, 700), (9, 600), (1, 3)]);
    (case.sparse_mode, case.depths) = (3, [64, 64]);
    let [beside, ..] = case.run("aclnnFusedInferAttentionScoreV3").unwrap();
    for (block, heads_first) in
        [(16, false), (48, true), (128, false), (144, true), (512, true), (768, false), (1024, true)]
    {
        let cache = BlockCache { block, heads_first };
        case.cache = Some(cache);
        let [cached, ..] = case.run("aclnnFusedInferAttentionScoreV3").unwrap();
        assert_eq!(cached.values(), beside.values(), "{cache:?}");
    }
}

#[test]
fn what_sequences_and_caches_may_not_be() {
    let case = Case::new(AclType::F16, "TND", &[(2, 3), (1, 9)]);
    let with = |change: &dyn Fn(&mut Case), part: &str| {
        let mut case = case.clone();
        change(&mut case);
        case.refused(part);
    };
    let ends = |rows: &[i64], keys: &[i64]| Some([rows.to_vec(), keys.to_vec()]);
    with(
        &|case| case.ends = ends(&[], &[3, 12]),
        "actualSeqLengthsOptional: expected the end of each of 1 to 65536",
    );
    with(&|case| case.ends = ends(&[2, 3], &[]), "actualSeqLengthsKvOptional: expected the end of each");
    with(&|case| case.ends = ends(&[2, 1], &[3, 12]), "expected an end of 2 to 3 for sequence 1, found 1");
    with(&|case| case.ends = ends(&[-1, 3], &[3, 12]), "expected an end of 0 to 3 for sequence 0, found -1");
    with(
        &|case| case.ends = ends(&[1, 2], &[3, 12]),
        "expected the last end to equal the length of the tensor, 3, found 2",
    );
    with(
        &|case| case.ends = ends(&[2, 3], &[12]),
        "actualSeqLengthsKvOptional: expected 2 ends as for query, found 1",
    );
    with(&|case| case.sparse_mode = 2, "sparseMode: expected 0 without a mask, or 3 or 4 with one");
    with(
        &|case| case.depths = [272, 272],
        "query: expected a head size that is a multiple of 16 up to 256, found 272",
    );
    with(&|case| case.depths = [24, 24], "multiple of 16 up to 256, found 24");
    with(
        &|case| case.depths = [64, 128],
        "value: expected values of head size 64, or 128 with keys of 192, found 128",
    );
    with(&|case| case.layout = "NTD_TND", "query: expected a head size that is 64 or 128, found 16");
    let cached = |change: &dyn Fn(&mut Case), part: &str| {
        with(
            &|case| {
                case.cache = Some(BlockCache { block: 16, heads_first: false });
                change(case);
            },
            part,
        );
    };
    cached(
        &|case| case.block_size = Some(0),
        "blockSize: expected a multiple of 16 up to 1024 with a block table, found 0",
    );
    cached(&|case| case.block_size = Some(24), "found 24");
    cached(&|case| case.cache = Some(BlockCache { block: 1040, heads_first: false }), "found 1040");
    cached(&|case| case.block_size = Some(32), "key: expected blocks of 32 keys as blockSize says, found 16");
    cached(&|case| case.ends = ends(&[2, 3], &[3, 33]), "expected 0 to 32 for batch 1, found 33");
    cached(&|case| case.ends = ends(&[2, 3], &[]), "a cache of blocks needs the lengths of keys");
    cached(
        &|case| case.ends = ends(&[1, 2, 3], &[3, 9, 9]),
        "blockTableOptional: expected a line of blocks for each of 3 batches",
    );
    cached(&|case| case.table = Some(vec![0.0, 1.0, 5.0, 1.0]), "batch 1 has 5 at place 0");
    cached(&|case| case.table = Some(vec![-1.0, 1.0, 2.0, 1.0]), "batch 0 has -1 at place 0");
    cached(&|case| (case.layout, case.depths) = ("NTD_TND", [64, 64]), "NTD_TND takes no block table");
    cached(
        &|case| (case.heads, case.depths) = ([256, 256], [256, 256]),
        "expected up to 65535 elements a line of 256 heads, found 65536",
    );
}

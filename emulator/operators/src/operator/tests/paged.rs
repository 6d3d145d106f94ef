//! What a serving engine relies on: one bit pattern of a row in training, prompts, chunks and
//! decode steps, and writes at slots of a cache.

use super::attention::triangle;
use super::*;
use crate::dtype::AclType;

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DEPTH: usize = 64;
const BLOCK: usize = 128;
const SCALE: f64 = 0.125;

fn data(dtype: AclType, dims: &[usize], seed: usize) -> Data {
    let n: usize = dims.iter().product();
    let values: Vec<f64> =
        (0..n).map(|i| ((i * 7919 + i / 64 * 31 + seed * 5_077) % 1009) as f64 / 504.5 - 1.0).collect();
    Data::new(dtype, dims, &values)
}

/// Attributes and host lists of a call in BSND, with caches `[blocks, 128, heads x D]` if there is
/// a table.
struct Fused<'a> {
    row_lengths: &'a [i64],
    key_lengths: &'a [i64],
    mask: Option<Data>,
    table: Option<Data>,
    sparse_mode: i64,
    before: i64,
}

impl Fused<'_> {
    fn run(&mut self, query: &Data, key: &Data, value: &Data) -> Vec<f64> {
        let [mut query, mut key, mut value] = [query, key, value].map(Data::clone);
        let mut out = Data::blank(query.dtype, &query.dims);
        let lengths = |values: &[i64]| Arg::Ints(values.to_vec().leak());
        let block = if self.table.is_some() { BLOCK as i64 } else { 0 };
        let mut arguments = vec![
            Arg::T(&mut query),
            Arg::List(vec![&mut key]),
            Arg::List(vec![&mut value]),
            Arg::Null,
            self.mask.as_mut().map_or(Arg::Null, Arg::T),
            lengths(self.row_lengths),
            lengths(self.key_lengths),
        ];
        arguments.extend((0..7).map(|_| Arg::Null));
        arguments.push(self.table.as_mut().map_or(Arg::Null, Arg::T));
        arguments.extend((0..8).map(|_| Arg::Null));
        arguments.extend([Arg::NoInts, Arg::I(HEADS as i64), Arg::F(SCALE), Arg::I(self.before), Arg::I(0)]);
        arguments.extend([Arg::Text("BSND"), Arg::I(KV_HEADS as i64), Arg::I(self.sparse_mode), Arg::I(0)]);
        arguments.extend([Arg::I(block), Arg::I(0), Arg::B(false), Arg::I(0), Arg::I(0), Arg::T(&mut out)]);
        arguments.push(Arg::Null);
        run("aclnnFusedInferAttentionScoreV2", arguments).unwrap();
        out.values()
    }
}

/// Rows `first..first + count` of `[1, rows, …]`, followed by NaN up to `len` rows.
fn rows(of: &Data, first: usize, count: usize, len: usize) -> Data {
    let width = of.dims[2..].iter().product::<usize>();
    let mut values = of.values()[first * width..(first + count) * width].to_vec();
    values.resize(len * width, f64::NAN);
    Data::new(of.dtype, &[&[1, len][..], &of.dims[2..]].concat(), &values)
}

/// Writes rows to slots of caches that hold NaN; token `i` has slot `slots[i]`.
fn cached(new: [&Data; 2], blocks: usize, slots: &[usize]) -> [Data; 2] {
    let [mut key, mut value] = new.map(|of| Data { dims: of.dims[1..].to_vec(), ..of.clone() });
    for of in [&mut key, &mut value] {
        of.strides = contiguous_strides(&of.dims);
    }
    let empty = || {
        let dims = [blocks, BLOCK, KV_HEADS, DEPTH];
        Data::new(new[0].dtype, &dims, &vec![f64::NAN; dims.iter().product()])
    };
    let (mut keys, mut values) = (empty(), empty());
    let slots: Vec<f64> = slots.iter().map(|&slot| slot as f64).collect();
    let mut slots = Data::new(AclType::I64, &[slots.len()], &slots);
    scatter([&mut key, &mut keys, &mut value, &mut values], &mut slots, [Arg::Text("Norm"), Arg::NoText])
        .unwrap();
    [keys, values].map(|cache| Data { dims: vec![blocks, BLOCK, KV_HEADS * DEPTH], ..cache }).map(|cache| {
        let strides = contiguous_strides(&cache.dims);
        Data { strides, ..cache }
    })
}

fn scatter(
    [key, key_cache, value, value_cache]: [&mut Data; 4],
    slots: &mut Data,
    [cache_mode, scatter_mode]: [Arg<'_>; 2],
) -> Result<(), String> {
    let arguments = vec![
        Arg::T(key),
        Arg::T(key_cache),
        Arg::T(slots),
        Arg::T(value),
        Arg::T(value_cache),
        Arg::Null,
        Arg::Null,
        Arg::Null,
        cache_mode,
        scatter_mode,
        Arg::Ints(&[1, 1]),
        Arg::Ints(&[0, 0]),
    ];
    run("aclnnScatterPaKvCache", arguments)
}

fn table(blocks: &[usize]) -> Option<Data> {
    let blocks: Vec<f64> = blocks.iter().map(|&block| block as f64).collect();
    Some(Data::new(AclType::I32, &[1, blocks.len()], &blocks))
}

/// Slots of consecutive tokens in these blocks.
fn slots(blocks: &[usize], tokens: usize) -> Vec<usize> {
    (0..tokens).map(|token| blocks[token / BLOCK] * BLOCK + token % BLOCK).collect()
}

#[test]
fn chunks_and_decode_steps_give_the_bits_of_the_whole_prompt() {
    const LEN: usize = 700;
    const WIDTH: usize = HEADS * DEPTH;
    let (blocks, mask) = ([4, 1, 9, 0, 7, 3], triangle());
    for dtype in [AclType::F16, AclType::BF16] {
        let query = data(dtype, &[1, LEN, HEADS, DEPTH], 1);
        let [key, value] = [2, 3].map(|seed| data(dtype, &[1, LEN, KV_HEADS, DEPTH], seed));
        let whole = Fused {
            row_lengths: &[LEN as i64],
            key_lengths: &[LEN as i64],
            mask: Some(mask.clone()),
            table: None,
            sparse_mode: 3,
            before: 0,
        }
        .run(&query, &key, &value);
        let [keys, values] = cached([&key, &value], 10, &slots(&blocks, LEN));
        // Chunks are padded on the right to 64 rows; the mask ends at the last real row.
        for (first, count) in [(0, 64), (64, 64), (100, 37), (511, 2), (636, 64), (512, 1)] {
            let chunk = Fused {
                row_lengths: &[count as i64],
                key_lengths: &[(first + count) as i64],
                mask: Some(mask.clone()),
                table: table(&blocks),
                sparse_mode: 3,
                before: 0,
            }
            .run(&rows(&query, first, count, 64), &keys, &values);
            let (found, padding) = chunk.split_at(count * WIDTH);
            assert!(*found == whole[first * WIDTH..][..count * WIDTH], "{dtype}, rows {first} + {count}");
            assert!(padding.iter().all(|value| *value == 0.0), "{dtype}, padding of rows {first} + {count}");
        }
        for row in [0, 127, 128, 300, 699] {
            let step = Fused {
                row_lengths: &[1],
                key_lengths: &[row as i64 + 1],
                mask: None,
                table: table(&blocks),
                sparse_mode: 0,
                before: 0,
            }
            .run(&rows(&query, row, 1, 1), &keys, &values);
            assert!(step == whole[row * WIDTH..][..WIDTH], "{dtype}, decode of row {row}");
        }
    }
}

/// A decode step has no sparse mode. Its table begins at the first block of the window, and a mask
/// hides the keys before the window.
#[test]
fn a_decode_step_over_the_blocks_of_a_window_gives_the_bits_of_a_banded_prompt() {
    const LEN: usize = 1000;
    const WINDOW: usize = 300;
    const WIDTH: usize = HEADS * DEPTH;
    let blocks: [usize; 8] = [5, 2, 0, 8, 3, 7, 1, 6];
    let dtype = AclType::BF16;
    let query = data(dtype, &[1, LEN, HEADS, DEPTH], 4);
    let [key, value] = [5, 6].map(|seed| data(dtype, &[1, LEN, KV_HEADS, DEPTH], seed));
    let whole = Fused {
        row_lengths: &[LEN as i64],
        key_lengths: &[LEN as i64],
        mask: Some(triangle()),
        table: None,
        sparse_mode: 4,
        before: WINDOW as i64 - 1,
    }
    .run(&query, &key, &value);
    let [keys, values] = cached([&key, &value], 9, &slots(&blocks, LEN));
    for row in [10, 299, 300, 427, 428, 640, 999] {
        let start = (row + 1_usize).saturating_sub(WINDOW);
        let first = start / BLOCK;
        let own = &blocks[first..=row / BLOCK];
        let mask: Vec<f64> =
            (0..own.len() * BLOCK).map(|key| f64::from(u8::from(key + first * BLOCK < start))).collect();
        let step = Fused {
            row_lengths: &[1],
            key_lengths: &[(row + 1 - first * BLOCK) as i64],
            mask: Some(Data::new(AclType::Bool, &[1, 1, 1, mask.len()], &mask)),
            table: table(own),
            sparse_mode: 0,
            before: 0,
        }
        .run(&rows(&query, row, 1, 1), &keys, &values);
        assert!(step == whole[row * WIDTH..][..WIDTH], "row {row}");
    }
}

#[test]
fn training_attention_gives_the_bits_of_inference() {
    let triangle = triangle();
    for (dtype, len) in [(AclType::F16, 333), (AclType::BF16, 128), (AclType::BF16, 9)] {
        let query = data(dtype, &[1, len, HEADS, DEPTH], 7);
        let [key, value] = [8, 9].map(|seed| data(dtype, &[1, len, KV_HEADS, DEPTH], seed));
        for sparse_mode in [0, 3] {
            let mask = || (sparse_mode != 0).then(|| triangle.clone());
            let length = [len as i64];
            let inference = Fused {
                row_lengths: &length,
                key_lengths: &length,
                mask: mask(),
                table: None,
                sparse_mode,
                before: 0,
            }
            .run(&query, &key, &value);
            let [mut query, mut key, mut value] = [&query, &key, &value].map(Data::clone);
            let mut mask = mask();
            let statistics = [1, HEADS, len, 8];
            let [mut max, mut sum] = [0, 1].map(|_| Data::blank(AclType::F32, &statistics));
            let mut out = Data::blank(dtype, &query.dims);
            let arguments = vec![
                Arg::T(&mut query),
                Arg::T(&mut key),
                Arg::T(&mut value),
                Arg::Null,
                Arg::Null,
                Arg::Null,
                mask.as_mut().map_or(Arg::Null, Arg::T),
                Arg::NoInts,
                Arg::F(SCALE),
                Arg::F(1.0),
                Arg::I(i64::from(i32::MAX)),
                Arg::I(i64::from(i32::MAX)),
                Arg::I(HEADS as i64),
                Arg::Text("BSND"),
                Arg::I(0),
                Arg::I(sparse_mode),
                Arg::T(&mut max),
                Arg::T(&mut sum),
                Arg::Null,
                Arg::T(&mut out),
            ];
            run("aclnnFlashAttentionScore", arguments).unwrap();
            assert!(out.values() == inference, "{dtype}, {len} rows, sparse mode {sparse_mode}");
        }
    }
}

/// Caches of 8-bit integers `[blocks, 32, KV_HEADS * DEPTH]` with scales `[blocks, KV_HEADS, 32]`.
struct Quantised {
    key: Data,
    value: Data,
    key_scale: Data,
    value_scale: Data,
    block: usize,
    modes: [i64; 2],
    mask: Option<Data>,
}

impl Quantised {
    const BLOCKS: usize = 6;

    fn new(block: usize) -> Self {
        let cache = |seed: usize| {
            let dims = [Self::BLOCKS, block, KV_HEADS * DEPTH];
            let n: usize = dims.iter().product();
            let values: Vec<f64> =
                (0..n).map(|i| ((i * 7919 + i / 64 * 31 + seed * 5_077) % 255) as f64 - 127.0).collect();
            Data::new(AclType::I8, &dims, &values)
        };
        let scale = |seed: usize| {
            let dims = [Self::BLOCKS, KV_HEADS, block];
            let n: usize = dims.iter().product();
            let values: Vec<f64> =
                (0..n).map(|i| f64::from((1.0 + ((i * 37 + seed * 11) % 101) as f32) / 12_700.0)).collect();
            Data::new(AclType::F32, &dims, &values)
        };
        let [key, value] = [1, 2].map(cache);
        let [key_scale, value_scale] = [3, 4].map(scale);
        Self { key, value, key_scale, value_scale, block, modes: [5; 2], mask: None }
    }

    fn run(&self, query: &Data, table: &Data, lengths: &[i64]) -> Result<Vec<f64>, String> {
        let [mut query, mut key, mut value] = [query, &self.key, &self.value].map(Data::clone);
        let [mut key_scale, mut value_scale] = [&self.key_scale, &self.value_scale].map(Data::clone);
        let (mut table, mut mask) = (table.clone(), self.mask.clone());
        let mut out = Data::blank(query.dtype, &query.dims);
        let mut arguments = vec![
            Arg::T(&mut query),
            Arg::List(vec![&mut key]),
            Arg::List(vec![&mut value]),
            Arg::Null,
            mask.as_mut().map_or(Arg::Null, Arg::T),
            Arg::NoInts,
            Arg::Ints(lengths.to_vec().leak()),
        ];
        arguments.extend((0..7).map(|_| Arg::Null));
        arguments.extend([Arg::T(&mut table), Arg::Null, Arg::Null]);
        arguments.extend([Arg::T(&mut key_scale), Arg::Null, Arg::T(&mut value_scale), Arg::Null]);
        arguments.extend([Arg::Null, Arg::Null, Arg::NoInts, Arg::I(HEADS as i64), Arg::F(SCALE)]);
        arguments.extend([Arg::I(0), Arg::I(0), Arg::Text("BSND"), Arg::I(KV_HEADS as i64), Arg::I(0)]);
        arguments.extend([Arg::I(0), Arg::I(self.block as i64), Arg::I(0), Arg::B(false)]);
        let [of_keys, of_values] = self.modes;
        arguments.extend([Arg::I(of_keys), Arg::I(of_values), Arg::T(&mut out), Arg::Null]);
        run("aclnnFusedInferAttentionScoreV2", arguments)?;
        Ok(out.values())
    }

    /// Returns caches of floats with the same numbers, rounded to `dtype`.
    fn floats(&self, dtype: AclType) -> [Data; 2] {
        let floats = |cache: &Data, scales: &Data| {
            let (numbers, scales) = (cache.values(), scales.values());
            let of = |at: usize| {
                let (head, row) = (at / DEPTH % KV_HEADS, at / (DEPTH * KV_HEADS));
                let scale = scales[(row / self.block * KV_HEADS + head) * self.block + row % self.block];
                f64::from(numbers[at] as f32 * scale as f32)
            };
            Data::new(dtype, &cache.dims, &(0..numbers.len()).map(of).collect::<Vec<_>>())
        };
        [floats(&self.key, &self.key_scale), floats(&self.value, &self.value_scale)]
    }

    /// Returns attention in f64, by its definition.
    fn defined(&self, query: &Data, table: &[usize], length: usize, shift: usize) -> Vec<f64> {
        let tensors = [&self.key, &self.key_scale, &self.value, &self.value_scale].map(Data::values);
        let query = query.values();
        let head_of = |head: usize| {
            let own = head / (HEADS / KV_HEADS);
            let rows = |[cache, scales]: [&Vec<f64>; 2]| -> Vec<Vec<f64>> {
                let row = |token: usize| {
                    let (block, row) = (table[token / self.block], token % self.block);
                    let place = ((block * self.block + row) * KV_HEADS + own) * DEPTH;
                    let other = (row + shift) % self.block;
                    let scale = scales[(block * KV_HEADS + own) * self.block + other];
                    cache[place..place + DEPTH].iter().map(|number| number * scale).collect()
                };
                (0..length).map(row).collect()
            };
            let [key, key_scale, value, value_scale] = &tensors;
            let (keys, values) = (rows([key, key_scale]), rows([value, value_scale]));
            let score = |key: &Vec<f64>| -> f64 {
                let terms = key.iter().zip(&query[head * DEPTH..]);
                (terms.map(|(k, q)| k * q).sum::<f64>() * SCALE).exp()
            };
            let weights: Vec<f64> = keys.iter().map(score).collect();
            let sum: f64 = weights.iter().sum();
            let out = |dim: usize| {
                weights.iter().zip(&values).map(|(weight, value)| weight * value[dim]).sum::<f64>() / sum
            };
            (0..DEPTH).map(out).collect::<Vec<f64>>()
        };
        (0..HEADS).flat_map(head_of).collect()
    }
}

/// Caches with the products of integers and scales give the same bits. The numbers follow the
/// definition. Scales of the next token give other numbers.
#[test]
fn integers_with_scales_are_read_like_their_products() {
    for (dtype, tolerance) in [(AclType::F16, 0.001), (AclType::BF16, 0.008)] {
        for block in [32, 128] {
            let quantised = Quantised::new(block);
            let [key, value] = quantised.floats(dtype);
            let blocks = [4, 1, 5];
            let numbers = blocks.map(|block| block as f64);
            let table = Data::new(AclType::I32, &[1, 3], &numbers);
            let query = data(dtype, &[1, 1, HEADS, DEPTH], 6);
            for length in [1, 31, 33, 3 * block] {
                let found = quantised.run(&query, &table, &[length as i64]).unwrap();
                if block == BLOCK {
                    let mut floats = Fused {
                        row_lengths: &[1],
                        key_lengths: &[length as i64],
                        mask: None,
                        table: Some(table.clone()),
                        sparse_mode: 0,
                        before: 0,
                    };
                    assert!(found == floats.run(&query, &key, &value), "{dtype}, {length} keys");
                }
                let error = |shift| {
                    let expected = quantised.defined(&query, &blocks, length, shift);
                    let largest = expected.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
                    let errors = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
                    errors.fold(0.0, f64::max) / largest
                };
                assert!(error(0) <= tolerance, "{dtype}, blocks of {block}, {length} keys: {}", error(0));
                assert!(error(1) > 4.0 * tolerance, "{dtype}, {length} keys: scales of the next token");
            }
        }
    }
}

#[test]
fn what_integers_with_scales_may_not_be() {
    let says = |change: &dyn Fn(&mut Quantised, &mut Data), part: &str| {
        let mut quantised = Quantised::new(32);
        let mut query = data(AclType::BF16, &[1, 1, HEADS, DEPTH], 6);
        change(&mut quantised, &mut query);
        let table = Data::new(AclType::I32, &[1, 2], &[0.0, 1.0]);
        let error = quantised.run(&query, &table, &[40]).expect_err(part);
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    };
    let halves = |dims: &[usize]| Data::new(AclType::BF16, dims, &vec![0.0; dims.iter().product()]);
    says(&|of, _| of.modes = [4; 2], "keyAntiquantMode: expected 5 with scales");
    says(&|of, _| of.modes = [5, 0], "valueAntiquantMode: expected 5 with scales");
    says(
        &|_, query| *query = halves(&[1, 2, HEADS, DEPTH]),
        "query: caches of INT8 in blocks need one query",
    );
    says(&|of, _| *of = Quantised::new(48), "key: INT8 needs a blockSize that is a multiple of 32, found 48");
    says(
        &|of, _| of.key_scale = Data::new(AclType::F32, &[6, 32, KV_HEADS], &[1.0; 384]),
        "keyAntiquantScaleOptional: expected",
    );
    says(&|of, _| of.key = halves(&[6, 32, KV_HEADS * DEPTH]), "key: expected INT8, INT8 with scales");
}

#[test]
fn keys_and_values_are_written_at_slots() {
    for (dtype, index) in
        [(AclType::F16, AclType::I32), (AclType::BF16, AclType::I64), (AclType::I8, AclType::I32)]
    {
        let mut key = Data::new(dtype, &[3, 2, 4], &counted(24, 1));
        let mut value = Data::new(dtype, &[3, 2, 3], &counted(18, 2));
        let mut keys = Data::new(dtype, &[2, 16, 2, 4], &[7.0; 256]);
        let mut values = Data::new(dtype, &[2, 16, 2, 3], &[9.0; 192]);
        let mut at = Data::new(index, &[3], &[31.0, 0.0, 16.0]);
        let modes = [Arg::NoText, Arg::Text("None")];
        scatter([&mut key, &mut keys, &mut value, &mut values], &mut at, modes).unwrap();
        for (new, cache, width, rest) in [(&key, &keys, 8, 7.0), (&value, &values, 6, 9.0)] {
            let mut wanted = vec![rest; 32 * width];
            for (token, slot) in [31, 0, 16].into_iter().enumerate() {
                wanted[slot * width..][..width].copy_from_slice(&new.values()[token * width..][..width]);
            }
            assert_eq!(cache.values(), wanted, "{dtype}");
        }
        for (slots, part) in [
            ([31.0, 32.0, 0.0], "slotMapping: index 32 at position 1 is outside 0..32"),
            ([31.0, -1.0, 0.0], "slotMapping: index -1 at position 1 is outside 0..32"),
            ([5.0, 1.0, 5.0], "slotMapping: slot 5 is given twice"),
        ] {
            let before = keys.values();
            let mut at = Data::new(index, &[3], &slots);
            let modes = [Arg::Text("Norm"), Arg::Text("")];
            let error = scatter([&mut key, &mut keys, &mut value, &mut values], &mut at, modes).unwrap_err();
            assert!(error.contains(part), "{error:?} lacks {part:?}");
            assert_eq!(keys.values(), before, "nothing is written before every slot is checked");
        }
    }
}

#[test]
fn what_a_write_at_slots_may_not_be() {
    let says = |change: &dyn Fn(&mut [Data; 4], &mut Data), modes: [Arg<'_>; 2], part: &str| {
        let halves = |dims: &[usize]| Data::new(AclType::F16, dims, &vec![0.0; dims.iter().product()]);
        let mut all =
            [halves(&[3, 2, 4]), halves(&[2, 16, 2, 4]), halves(&[3, 2, 4]), halves(&[2, 16, 2, 4])];
        let mut at = Data::new(AclType::I32, &[3], &[0.0, 1.0, 2.0]);
        change(&mut all, &mut at);
        let error = scatter(all.each_mut(), &mut at, modes).expect_err(part);
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    };
    let norm = || [Arg::NoText, Arg::NoText];
    let halves = |dims: &[usize]| Data::new(AclType::F16, dims, &vec![0.0; dims.iter().product()]);
    says(&|_, _| (), [Arg::Text("PA_NZ"), Arg::NoText], "cacheModeOptional: expected NULL or one of");
    says(&|_, _| (), [Arg::NoText, Arg::Text("Nct")], "scatterModeOptional: expected NULL or one of");
    says(&|all, _| all[0] = halves(&[4, 2, 4]), norm(), "key: expected shape [3, 2, 4]");
    says(&|all, _| all[1] = halves(&[2, 16, 2, 5]), norm(), "keyCacheRef: expected shape [2, 16, 2, 4]");
    says(&|all, _| all[2] = halves(&[3, 1, 4]), norm(), "value: expected shape [3, 2, 4]");
    says(&|all, _| all[3] = halves(&[2, 16, 1, 4]), norm(), "valueCacheRef: expected shape [2, 16, 2, 4]");
    says(
        &|all, _| all[3] = Data::new(AclType::BF16, &[2, 16, 2, 4], &[0.0; 256]),
        norm(),
        "valueCacheRef: expected",
    );
    says(
        &|_, at| *at = Data::new(AclType::F32, &[3], &[0.0; 3]),
        norm(),
        "slotMapping: expected an element type",
    );
    let (mut key, mut keys) = (halves(&[1, 2, 4]), halves(&[2, 16, 2, 4]));
    let mut at = Data::new(AclType::I32, &[1], &[3.0]);
    let mut value = halves(&[1, 2, 4]);
    for (value, is_legal) in [(Arg::T(&mut value), false), (Arg::Null, true)] {
        let mut arguments = vec![Arg::T(&mut key), Arg::T(&mut keys), Arg::T(&mut at), value];
        arguments.extend((0..4).map(|_| Arg::Null));
        arguments.extend([Arg::NoText, Arg::NoText, Arg::NoInts, Arg::NoInts]);
        match run("aclnnScatterPaKvCache", arguments) {
            Ok(()) => assert!(is_legal),
            Err(error) => {
                assert!(!is_legal && error.contains("value: expected value and valueCacheRef"), "{error}");
            }
        }
    }
}

//! One order of sums: bits do not depend on cache blocks, hidden pieces or other sequences.

use super::*;

/// Keys and values of a [`Stored`] in cache blocks in any order; other elements are NaN.
struct Cache {
    key: Vec<u8>,
    value: Vec<u8>,
    blocks: Vec<usize>,
    /// Heads precede keys, or follow them.
    dims: [usize; 4],
    heads_first: bool,
}

impl Cache {
    fn new(stored: &mut Stored, size: usize, heads_first: bool) -> Self {
        let ([_, heads], depth, dtype) = (stored.heads, stored.depth, stored.dtype);
        let count = stored.keys.div_ceil(size) + 2;
        let dims = if heads_first { [count, heads, size, depth] } else { [count, size, heads, depth] };
        // 7 and 11 are prime to every count of the tests.
        let step = if count.is_multiple_of(7) { 11 } else { 7 };
        let blocks: Vec<usize> = (0..stored.keys.div_ceil(size)).map(|i| (i * step + 1) % count).collect();
        let nothing = vec![f32::NAN; dims.iter().product()];
        let mut all = [vec![0; nothing.len() * dtype.size()], vec![0; nothing.len() * dtype.size()]];
        for (bytes, from) in all.iter_mut().zip([&mut stored.key, &mut stored.value]) {
            f32::store(&view_of(bytes, dtype, &dims), 0, &nothing);
            let into = Self::head_major(view_of(bytes, dtype, &dims), heads_first);
            let from = view_of(from, dtype, &[heads, stored.keys, depth]);
            let mut line = vec![0_u16; depth];
            for (head, key) in (0..heads).flat_map(|head| (0..stored.keys).map(move |key| (head, key))) {
                from.at(0, head).at(0, key).read(0, &mut line);
                into.at(0, blocks[key / size]).at(0, head).at(0, key % size).write(0, &line);
            }
        }
        let [key, value] = all;
        Self { key, value, blocks, dims, heads_first }
    }

    fn head_major(view: StridedView, heads_first: bool) -> StridedView {
        if heads_first { view } else { view.permute(&[0, 2, 1, 3]) }
    }

    fn replace(&mut self, dtype: AclType, batch: &mut AttentionBatch) {
        let view =
            |bytes: &mut Vec<u8>| Self::head_major(view_of(bytes, dtype, &self.dims), self.heads_first);
        (batch.key, batch.value) = (view(&mut self.key), view(&mut self.value));
        batch.blocks = Some(self.blocks.clone());
    }
}

type Change<'a> = &'a dyn Fn(&mut AttentionBatch);

#[test]
fn cache_blocks_of_any_size_give_the_bits_of_contiguous_keys() {
    const ROWS: usize = 66;
    const KEYS: usize = 700;
    let mut mask: Vec<u8> =
        (0..ROWS * KEYS).map(|at| u8::from(at % 7 == 3 || at % KEYS < at / KEYS * 3)).collect();
    let mask = view(&mut mask, AclType::Bool, &[ROWS, KEYS]);
    let window = |batch: &mut AttentionBatch| {
        causal(batch);
        batch.before = 290 - batch.after;
    };
    let masked = |batch: &mut AttentionBatch| batch.mask = Some(mask.slice(0, 0, batch.query_len, 1));
    let changes: [(&str, Change<'_>); 3] = [("causal", &causal), ("window", &window), ("mask", &masked)];
    for (dtype, depth) in [(AclType::F16, 80), (AclType::BF16, 64)] {
        let mut stored = Stored::new(dtype, depth, [3, 1], ROWS, KEYS);
        let sizes =
            [(16, true), (48, false), (64, true), (128, false), (144, true), (256, false), (1024, true)];
        let caches = sizes.map(|(size, heads_first)| Mutex::new(Cache::new(&mut stored, size, heads_first)));
        let cases = [(0, 1, KEYS), (3, 5, 512), (3, 4, 17), (0, ROWS, KEYS), (9, 40, 129)];
        for ((isa, (what, change)), (first, count, keys)) in sets()
            .flat_map(|isa| changes.map(|change| (isa, change)))
            .flat_map(|of| cases.map(|case| (of, case)))
        {
            let expected = stored.attend(&Serial, isa, first, count, keys, change);
            for ((size, _), cache) in sizes.iter().zip(&caches) {
                let cached = |batch: &mut AttentionBatch| {
                    cache.lock().unwrap().replace(dtype, batch);
                    change(batch);
                };
                let found = stored.attend(&Threads(3), isa, first, count, keys, &cached);
                let what = format!("{isa} {dtype} {what} {first} + {count} of {keys}, blocks of {size}");
                assert_same(&found, &expected, 0, &what);
            }
        }
    }
}

#[test]
fn whole_pieces_of_hidden_keys_before_a_row_change_no_bits() {
    const ROWS: usize = 90;
    const KEYS: usize = 1500;
    const WINDOW: i64 = 300;
    let sees = |i: usize, j: usize| j + ROWS >= 1010 + i && !(i + j).is_multiple_of(5);
    let mut mask: Vec<u8> = (0..ROWS * KEYS).map(|at| u8::from(!sees(at / KEYS, at % KEYS))).collect();
    let mask = view(&mut mask, AclType::Bool, &[ROWS, KEYS]);
    let masked = |batch: &mut AttentionBatch| batch.mask = Some(mask.slice(0, 0, batch.query_len, 1));
    let window = |batch: &mut AttentionBatch| {
        causal(batch);
        batch.before = WINDOW - batch.after;
    };
    let changes: [(&str, Change<'_>); 2] = [("window", &window), ("mask", &masked)];
    for (dtype, depth) in [(AclType::F32, 32), (AclType::BF16, 128)] {
        let mut stored = Stored::new(dtype, depth, [4, 2], ROWS, KEYS);
        for isa in sets() {
            for ((what, change), (first, count)) in
                changes.into_iter().flat_map(|of| [(0, 1), (7, 3), (0, ROWS)].map(|rows| (of, rows)))
            {
                let expected = stored.attend(&Threads(2), isa, first, count, KEYS, change);
                for hidden in [1, 3, 4, 7].map(|pieces| pieces * PIECE) {
                    let shorter = |batch: &mut AttentionBatch| {
                        change(batch);
                        batch.key_len -= hidden;
                        let rest = |view: &StridedView, dim| view.slice(dim, hidden, KEYS - hidden, 1);
                        (batch.key, batch.value) = (rest(&batch.key, 1), rest(&batch.value, 1));
                        batch.mask = batch.mask.as_ref().map(|mask| rest(mask, 1));
                        batch.before = batch.before.saturating_add(hidden as i64);
                        if batch.after < i64::MAX {
                            batch.after -= hidden as i64;
                        }
                    };
                    let found = stored.attend(&Serial, isa, first, count, KEYS, &shorter);
                    let what = format!("{isa} {dtype} {what}, {count} rows without {hidden} keys");
                    assert_same(&found, &expected, 0, &what);
                }
            }
        }
    }
}

#[test]
fn a_sequence_has_the_same_bits_alone_and_in_a_batch() {
    const DEPTH: usize = 64;
    for rows in [1, 4, 40] {
        let lengths = [(rows, 700), (1, 1), (rows, 0), (rows.min(3), 1300), (0, 90)];
        let mut stored: Vec<Stored> =
            lengths.iter().map(|_| Stored::new(AclType::BF16, DEPTH, [4, 1], rows, 1300)).collect();
        let views: Vec<[StridedView; 3]> = stored
            .iter_mut()
            .map(|stored| {
                let view =
                    |bytes: &mut Vec<u8>, heads, len| view_of(bytes, AclType::BF16, &[heads, len, DEPTH]);
                [
                    view(&mut stored.query, 4, rows),
                    view(&mut stored.key, 1, 1300),
                    view(&mut stored.value, 1, 1300),
                ]
            })
            .collect();
        let run = |tiles: &dyn Tiles, chosen: &[usize]| -> Vec<Vec<u32>> {
            let mut query = vec![0_f32; chosen.len() * 4 * rows * DEPTH];
            for (line, &of) in query.chunks_exact_mut(4 * rows * DEPTH).zip(chosen) {
                f32::load(&views[of][0], 0, line);
                line.iter_mut().for_each(|value| *value *= 1.0 + of as f32);
            }
            let mut out = vec![f32::NAN; query.len()];
            let batch = |&of: &usize| AttentionBatch {
                key: views[of][1].clone(),
                value: views[of][2].clone(),
                blocks: None,
                scales: None,
                query_len: lengths[of].0,
                key_len: lengths[of].1,
                mask: None,
                before: i64::MAX,
                after: lengths[of].1 as i64 - lengths[of].0 as i64,
                bias: None,
                dropout: None,
            };
            let dims = [chosen.len(), 4, rows, DEPTH];
            let job = AttentionCall {
                query: view(&mut query, AclType::F32, &dims),
                batches: chosen.iter().map(batch).collect(),
                scale: 0.2,
                out: view(&mut out, AclType::F32, &dims),
                statistics: SoftmaxStatistics::None,
            };
            attention(tiles, &job);
            out.chunks_exact(4 * rows * DEPTH)
                .map(|of| of.iter().map(|value| value.to_bits()).collect())
                .collect()
        };
        let together = run(&Threads(3), &[3, 0, 4, 2, 1]);
        for (found, of) in together.iter().zip([3, 0, 4, 2, 1]) {
            assert!(run(&Serial, &[of])[0] == *found, "{rows} rows, sequence {of}");
            let padding = lengths[of].0 * DEPTH;
            let is_zero = |head: &[u32]| head[padding..].iter().all(|bits| *bits == 0);
            assert!(found.chunks_exact(rows * DEPTH).all(is_zero), "rows past the length of sequence {of}");
        }
    }
}

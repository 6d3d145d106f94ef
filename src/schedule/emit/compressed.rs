//! Sums of which cards say less than all: [`Compression`] as calls and collectives.
//!
//! Input → output: a card's part of a sum and what it kept back before → the same sum on all cards, and what this card keeps back
//! now. Invariant: what cards add and decode they do alike, in the order of the cards, so all have the same bits.

use smallvec::smallvec;

use crate::base::{AxisId, DType, Id, KERNEL_BLOCKS, Shape};
use crate::program::call::{Call, Number, View};
use crate::program::compress::{Compression, Dealt};
use crate::program::{Op, OpId};

use super::{CollectiveKind, Emitter};

/// Places that the kernel leaves empty at most: each core's elements fill whole blocks of 32 bytes.
const EMPTY_PLACES: usize = (BLOCK - 1) * KERNEL_BLOCKS as usize;

/// Elements of 32 bytes.
const BLOCK: usize = 8;

/// Elements from which on they are chosen by the kernel: empty places are at most an eighth more bytes.
const LEAST_CHOSEN: usize = 8 * EMPTY_PLACES;

/// Numbers of the state of [`Call::ThresholdNarrowed`], the thresholds that end it, and the rounds that find one exactly.
const THRESHOLD_STATE: usize = 16;
const THRESHOLDS: usize = 8;
const EXACT_ROUNDS: usize = 10;

/// The operands of a compressed sum on one card, dense.
struct Parts {
    /// The card's part.
    x: View,
    /// What it kept back.
    kept: View,
    /// A summand that all cards have.
    whole: View,
    /// The sum.
    out: View,
}

impl Emitter<'_> {
    pub(super) fn compressed_sum(&mut self, id: OpId, op: &Op, axes: &[AxisId], by: Compression) {
        let kept = self.view(op.operands[1]);
        self.views[op.results[0].index()] = Some(kept.clone());
        let x = self.view(op.operands[0]);
        let elems = x.elems();
        let out = op.results.get(1).map(|result| {
            let out = self.received(*result);
            self.views[result.index()] = Some(out.clone());
            out
        });
        if elems == 0 {
            return;
        }
        let x = self.dense(id, x);
        let whole = self.view(op.operands[2]);
        let whole = self.dense(id, whole);
        let out = out.unwrap_or_else(|| self.temporary(x.dtype, x.shape.clone()));
        let [x, kept, whole, out] = [x, kept, whole, out].map(|view| flat(&view, view.offset, elems));
        let parts = Parts { x, kept, whole, out };
        match by {
            Compression::OneBit => self.one_bit(id, axes, &parts),
            Compression::TopK { share } => self.top(id, axes, &parts, Compression::kept(share, elems)),
        }
    }

    /// What a card would say if it said all: its part, what it kept back, and its share of what all have.
    fn own_part(&mut self, id: OpId, Parts { x, kept, whole, .. }: &Parts, cards: usize, out: &View) {
        self.launch(
            id,
            [
                Call::Muls { x: whole.clone(), out: out.clone(), by: Number::Float((cards as f64).recip()) },
                Call::Add { a: out.clone(), b: x.clone(), out: out.clone() },
                Call::Add { a: out.clone(), b: kept.clone(), out: out.clone() },
            ],
        );
    }

    fn one_bit(&mut self, id: OpId, axes: &[AxisId], parts: &Parts) {
        let Parts { kept, out, .. } = parts;
        let (elems, cards, own) = (kept.elems(), self.placed.mesh.joint_size(axes), self.position(axes));
        let dealt = Dealt::new(elems, cards);
        let chunk = dealt.chunk;
        // By card: what this one has of its share.
        let mine = self.temporary(DType::F32, [cards, chunk].into());
        let all = flat(&mine, 0, elems);
        let tail = flat(&mine, elems, cards * chunk - elems);
        self.own_part(id, parts, cards, &all);
        self.zero(id, tail);
        let counts: Vec<usize> = (0..cards).map(|card| dealt.count(card)).collect();
        let (said, decoded) = self.say_signs(id, &mine, &counts);
        let heard = self.temporary(DType::U8, said.shape.clone());
        let bytes = vec![dealt.record_bytes(); cards];
        let kind = CollectiveKind::AllToAll { send_counts: bytes.clone(), recv_counts: bytes.clone() };
        self.enqueue(id, axes, kind, said, heard.clone());
        // The sum of this card's share, its own part as it is.
        let heard = self.hear_signs(id, &heard, dealt);
        let sum = self.temporary(DType::F32, [1, chunk].into());
        let own_share = |view: &View| view.narrow(0, own, 1);
        self.copy(id, own_share(&mine), own_share(&heard));
        self.add_by_pairs(id, heard, &flat(&sum, 0, chunk));
        self.zero(id, flat(&sum, counts[own], chunk - counts[own]));
        let (said, _) = self.say_signs(id, &sum, &counts[own..=own]);
        let heard = self.temporary(DType::U8, [cards, dealt.record_bytes()].into());
        self.enqueue(id, axes, CollectiveKind::AllGather { counts: bytes }, said, heard.clone());
        let heard = self.hear_signs(id, &heard, dealt);
        // Kept back: of others' shares what was not said to them, of its own what was not said of the sum.
        self.launch(
            id,
            [
                Call::Sub { a: mine.clone(), b: decoded, out: mine.clone() },
                Call::Sub { a: sum, b: own_share(&heard), out: own_share(&mine) },
            ],
        );
        self.copy(id, all, kept.clone());
        self.copy(id, flat(&heard, 0, elems), out.clone());
    }

    /// What is said of the rows of `rows`, of which `counts` elements are: a record each, and rows as they will be decoded.
    fn say_signs(&mut self, id: OpId, rows: &View, counts: &[usize]) -> (View, View) {
        let (count, chunk) = (rows.shape[0], rows.shape[1]);
        let row = Dealt::new(chunk, 1);
        let records = self.temporary(DType::U8, [count, row.record_bytes()].into());
        let signs = self.temporary(DType::U8, [count, row.sign_bytes()].into());
        let decoded = self.temporary(DType::F32, rows.shape.clone());
        let magnitudes = self.temporary(DType::F32, rows.shape.clone());
        let scales = self.temporary(DType::F32, [count, 1].into());
        self.launch(
            id,
            [
                Call::SignBitsPack { x: flat(rows, rows.offset, rows.elems()), out: signs.clone() },
                Call::SignBitsUnpack { x: flat(&signs, 0, signs.elems()), out: decoded.clone() },
                Call::Mul { a: rows.clone(), b: decoded.clone(), out: magnitudes.clone() },
                Call::ReduceSum { x: magnitudes, out: scales.clone(), dim: 1 },
            ],
        );
        // Rows of as many elements stand together: full ones, one that lacks some, and empty ones, whose sum is 0.
        let mut first = 0;
        for alike in counts.chunk_by(|a, b| a == b) {
            let mean = scales.narrow(0, first, alike.len());
            first += alike.len();
            if alike[0] > 0 {
                let by = Number::Float((alike[0] as f64).recip());
                self.launch(id, [Call::Muls { x: mean.clone(), out: mean, by }]);
            }
        }
        self.launch(id, [Call::Mul { a: decoded.clone(), b: scales.clone(), out: decoded.clone() }]);
        self.copy(id, signs, signs_of(&records, row));
        self.copy(id, scales, scales_of(&records, row));
        (records, decoded)
    }

    /// The rows that records say.
    fn hear_signs(&mut self, id: OpId, records: &View, row: Dealt) -> View {
        let count = records.shape[0];
        let signs = self.temporary(DType::U8, [count, row.sign_bytes()].into());
        self.copy(id, signs_of(records, row), signs.clone());
        let decoded = self.temporary(DType::F32, [count, row.chunk].into());
        self.launch(
            id,
            [
                Call::SignBitsUnpack { x: flat(&signs, 0, signs.elems()), out: decoded.clone() },
                Call::Mul { a: decoded.clone(), b: scales_of(records, row), out: decoded.clone() },
            ],
        );
        decoded
    }

    fn top(&mut self, id: OpId, axes: &[AxisId], parts: &Parts, count: usize) {
        let Parts { kept, out, .. } = parts;
        let cards = self.placed.mesh.joint_size(axes);
        let by_kernel = self.joins.kernels.has("topk_threshold") && count >= LEAST_CHOSEN;
        let entries = if by_kernel { (count + EMPTY_PLACES).next_multiple_of(BLOCK) } else { count };
        let bytes = entries * Compression::PLACED_BYTES;
        let [said, heard] = [1, cards].map(|cards| self.temporary(DType::U8, [cards * bytes].into()));
        // Values, and behind them their places.
        let as_type = |record: &View, dtype: DType, card: usize| {
            let behind = if dtype == DType::I32 { entries } else { 0 };
            View { offset: 2 * entries * card + behind, ..View::contiguous(record.buffer, dtype, [entries].into()) }
        };
        let own = [DType::F32, DType::I32].map(|dtype| as_type(&said, dtype, 0));
        if by_kernel {
            self.chosen_by_kernel(id, parts, cards, count, own);
        } else {
            self.chosen_by_calls(id, parts, cards, own);
        }
        self.enqueue(id, axes, CollectiveKind::AllGather { counts: vec![bytes; cards] }, said, heard.clone());
        self.zero(id, out.clone());
        for card in 0..cards {
            let index = self.temporary(DType::I64, [entries].into());
            self.launch(id, [Call::Cast { x: as_type(&heard, DType::I32, card), out: index.clone() }]);
            if by_kernel {
                // An entry that says nothing adds 0 to the first element.
                let (low, high) = (Number::Int(0), Number::Int(kept.elems() as i64 - 1));
                self.launch(id, [Call::Clamp { x: index.clone(), out: index.clone(), low, high }]);
            }
            let from = as_type(&heard, DType::F32, card);
            self.launch(id, [Call::ScatterAdd { index, from, into: out.clone(), dim: 0 }]);
        }
    }

    /// Values and places of the greatest elements, in the order of their magnitudes; the rest is kept back.
    fn chosen_by_calls(&mut self, id: OpId, parts: &Parts, cards: usize, [values, places]: [View; 2]) {
        let kept = &parts.kept;
        let [mine, magnitudes] = [(); 2].map(|()| self.temporary(DType::F32, kept.shape.clone()));
        let [greatest, back] = [(); 2].map(|()| self.temporary(DType::F32, values.shape.clone()));
        let index = self.temporary(DType::I64, values.shape.clone());
        self.own_part(id, parts, cards, &mine);
        self.launch(
            id,
            [
                Call::Abs { x: mine.clone(), out: magnitudes.clone() },
                Call::Topk { x: magnitudes, values: greatest, indices: index.clone(), dim: 0 },
                Call::Gather { x: mine.clone(), index: index.clone(), out: values.clone(), dim: 0 },
                Call::Cast { x: index.clone(), out: places },
                Call::Muls { x: values, out: back.clone(), by: Number::Float(-1.0) },
                Call::ScatterAdd { index, from: back, into: mine.clone(), dim: 0 },
            ],
        );
        self.copy(id, mine, kept.clone());
    }

    /// The same elements in the order of their places, by the kernel, with entries that say nothing.
    fn chosen_by_kernel(&mut self, id: OpId, parts: &Parts, cards: usize, count: usize, [values, places]: [View; 2]) {
        let Parts { x, kept, whole, .. } = parts;
        let mine = self.temporary(DType::F32, kept.shape.clone());
        let cores = KERNEL_BLOCKS as usize;
        let both = self.temporary(DType::I32, [THRESHOLD_STATE + cores * THRESHOLDS].into());
        let (state, all) = (flat(&both, 0, THRESHOLD_STATE), both.clone());
        let counts = View {
            shape: [cores, THRESHOLDS].into(),
            strides: smallvec![THRESHOLDS, 1],
            offset: THRESHOLD_STATE,
            ..both
        };
        let counted = || Call::MagnitudesCounted {
            x: mine.clone(),
            kept: kept.clone(),
            state: state.clone(),
            counts: counts.clone(),
        };
        let narrowed =
            |last: usize| Call::ThresholdNarrowed { counts: counts.clone(), state: state.clone(), most: count, last };
        self.launch(
            id,
            [
                Call::Muls { x: whole.clone(), out: mine.clone(), by: Number::Float((cards as f64).recip()) },
                Call::Add { a: mine.clone(), b: x.clone(), out: mine.clone() },
                Call::Zero { into: all },
                narrowed(0),
            ],
        );
        for round in 1..=EXACT_ROUNDS {
            self.launch(id, [counted(), narrowed(usize::from(round == EXACT_ROUNDS))]);
        }
        let [x, kept, state_read, counts_read, values, places] =
            [mine.clone(), kept.clone(), state.clone(), counts.clone(), values, places].map(Box::new);
        self.launch(
            id,
            [counted(), Call::MagnitudesChosen { x, kept, state: state_read, counts: counts_read, values, places }],
        );
    }

    /// Zeros, unless there is nothing to fill.
    fn zero(&mut self, id: OpId, into: View) {
        if into.elems() > 0 {
            self.launch(id, [Call::Zero { into }]);
        }
    }
}

/// So many elements of a dense view's buffer in a row.
fn flat(view: &View, offset: usize, elems: usize) -> View {
    View { offset, shape: [elems].into(), strides: smallvec![1], ..view.clone() }
}

/// The signs in records, a row each.
fn signs_of(records: &View, row: Dealt) -> View {
    records.narrow(1, 0, row.sign_bytes())
}

/// The mean magnitudes in records, a row each.
fn scales_of(records: &View, row: Dealt) -> View {
    let words = row.record_bytes() / size_of::<f32>();
    View {
        buffer: records.buffer,
        offset: row.sign_bytes() / size_of::<f32>(),
        dtype: DType::F32,
        shape: Shape::from([records.shape[0], 1]),
        strides: smallvec![words, 1],
    }
}

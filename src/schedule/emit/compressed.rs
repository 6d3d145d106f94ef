//! Sums with compressed communication: lowers [`Compression`] to calls and collectives. All ranks
//! add and decode in rank order, so their results are bitwise equal.

use smallvec::smallvec;

use crate::base::{AxisId, DType, Id, KERNEL_BLOCKS, Number, Shape};
use crate::call::{Call, View};
use crate::program::compress::{Compression, Dealt};
use crate::program::{Op, OpId};

use super::{CollectiveKind, Emitter};

/// Largest number of entries that the kernel leaves empty, because the entries of each core fill
/// blocks of 32 bytes.
const EMPTY_PLACES: usize = (BLOCK - 1) * KERNEL_BLOCKS as usize;

const BLOCK: usize = 8;

/// Number of elements from which the kernel selects them. Empty entries add at most 1/8 to the
/// bytes.
const LEAST_CHOSEN: usize = 8 * EMPTY_PLACES;

/// Thresholds per round of [`Call::MagnitudesCounted`], and rounds that find one exactly.
const THRESHOLDS: usize = 8;
const EXACT_ROUNDS: usize = 10;

struct SumOperands {
    x: View,
    kept: View,
    /// Summand that all ranks have in full.
    whole: View,
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
        let parts = SumOperands { x, kept, whole, out };
        match by {
            Compression::OneBit => self.one_bit(id, axes, &parts),
            Compression::TopK { share } => self.top(id, axes, &parts, Compression::kept(share, elems)),
        }
    }

    /// The uncompressed contribution: partial sum, residual, and `1/cards` of the common summand.
    fn own_part(
        &mut self,
        id: OpId,
        SumOperands { x, kept, whole, .. }: &SumOperands,
        cards: usize,
        out: &View,
    ) {
        self.launch(
            id,
            [
                Call::Muls { x: whole.clone(), out: out.clone(), by: Number::Float((cards as f64).recip()) },
                Call::Add { a: out.clone(), b: x.clone(), out: out.clone() },
                Call::Add { a: out.clone(), b: kept.clone(), out: out.clone() },
            ],
        );
    }

    fn one_bit(&mut self, id: OpId, axes: &[AxisId], parts: &SumOperands) {
        let SumOperands { kept, out, .. } = parts;
        let (elems, cards, own) = (kept.elems(), self.placed.mesh.joint_size(axes), self.position(axes));
        let dealt = Dealt::new(elems, cards);
        if dealt.is_in_rows() && self.joins.kernels.has("sign_compress") {
            return self.one_bit_by_kernel(id, axes, parts, dealt);
        }
        let share = dealt.share();
        let mine = self.temporary(DType::F32, [cards, share].into());
        let all = flat(&mine, 0, elems);
        let tail = flat(&mine, elems, cards * share - elems);
        self.own_part(id, parts, cards, &all);
        self.zero(id, tail);
        let (said, decoded) = self.say_signs(id, &mine, dealt, &dealt.row_counts(0..cards));
        let heard = self.exchange_shares(id, axes, said, dealt);
        // This rank's own contribution is not compressed.
        let heard = self.hear_signs(id, &heard, dealt);
        let sum = self.temporary(DType::F32, [1, share].into());
        let own_share = |view: &View| flat(view, own * share, share);
        self.copy(id, own_share(&mine), own_share(&heard));
        let rows = View { shape: [cards, share].into(), strides: smallvec![share, 1], ..heard };
        self.launch(id, [Call::ReduceSum { x: rows, out: flat(&sum, 0, share), dim: 0 }]);
        let count = dealt.count(own);
        self.zero(id, flat(&sum, count, share - count));
        let (said, _) = self.say_signs(id, &sum, dealt, &dealt.row_counts(own..own + 1));
        let heard = self.gather_shares(id, axes, said, dealt);
        let heard = self.hear_signs(id, &heard, dealt);
        // The residual: for shares of other ranks, the error of the sent data; for the own share,
        // of the sum.
        let mine = flat(&mine, 0, cards * share);
        self.launch(
            id,
            [
                Call::Sub { a: mine.clone(), b: flat(&decoded, 0, cards * share), out: mine.clone() },
                Call::Sub { a: flat(&sum, 0, share), b: own_share(&heard), out: own_share(&mine) },
            ],
        );
        self.copy(id, all, kept.clone());
        self.copy(id, flat(&heard, 0, elems), out.clone());
    }

    /// Adds the contributions of the other ranks before its own.
    fn one_bit_by_kernel(&mut self, id: OpId, axes: &[AxisId], parts: &SumOperands, dealt: Dealt) {
        let SumOperands { x, kept, whole, out } = parts;
        let (cards, own) = (self.placed.mesh.joint_size(axes), self.position(axes));
        let (share, count) = (dealt.records, dealt.count(own));
        let of = |cards: usize, records: usize| [cards, records, dealt.record_bytes()];
        let said = self.temporary(DType::U8, [cards * share, dealt.record_bytes()].into());
        let [boxed_x, boxed_whole, boxed_kept, records] =
            [x, whole, kept, &said].map(|view| Box::new(view.clone()));
        self.launch(
            id,
            [Call::SignsSaid {
                x: boxed_x,
                whole: boxed_whole,
                kept: boxed_kept,
                records,
                share,
                own,
                parts: cards,
            }],
        );
        let heard = self.exchange_shares(id, axes, said, dealt);
        let said = self.temporary(DType::U8, [share, dealt.record_bytes()].into());
        if count == 0 {
            self.zero(id, said.clone());
        } else {
            let others = self.temporary(DType::F32, [count].into());
            let mine = flat(kept, kept.offset + own * dealt.share(), count);
            let [x, whole, kept, records] =
                [&others, &others, &mine, &said].map(|view| Box::new(view.clone()));
            let heard = heard.reshape(of(cards, share)).unwrap_or(heard);
            self.launch(
                id,
                [
                    Call::SignsAdded { records: heard, out: others },
                    Call::SignsSaid { x, whole, kept, records, share, own: 1, parts: 0 },
                ],
            );
        }
        let heard = self.gather_shares(id, axes, said, dealt);
        let records = heard.reshape(of(1, cards * share)).unwrap_or(heard);
        self.launch(id, [Call::SignsAdded { records, out: out.clone() }]);
    }

    /// Sends each rank the data of its share, and returns the data that all ranks sent for this
    /// rank's share.
    fn exchange_shares(&mut self, id: OpId, axes: &[AxisId], said: View, dealt: Dealt) -> View {
        let heard = self.temporary(DType::U8, said.shape.clone());
        let bytes = vec![dealt.share_bytes(); said.shape[0] / dealt.records];
        let kind = CollectiveKind::AllToAll { send_counts: bytes.clone(), recv_counts: bytes };
        self.enqueue(id, axes, kind, said, heard.clone());
        heard
    }

    fn gather_shares(&mut self, id: OpId, axes: &[AxisId], said: View, dealt: Dealt) -> View {
        let cards = self.placed.mesh.joint_size(axes);
        let heard = self.temporary(DType::U8, [cards * dealt.records, dealt.record_bytes()].into());
        self.enqueue(
            id,
            axes,
            CollectiveKind::AllGather { counts: vec![dealt.share_bytes(); cards] },
            said,
            heard.clone(),
        );
        heard
    }

    fn say_signs(&mut self, id: OpId, shares: &View, dealt: Dealt, counts: &[usize]) -> (View, View) {
        let count = counts.len();
        let rows =
            View { shape: [count, dealt.row].into(), strides: smallvec![dealt.row, 1], ..shares.clone() };
        let records = self.temporary(DType::U8, [count / dealt.rows, dealt.record_bytes()].into());
        let signs = self.temporary(DType::U8, [count / dealt.rows, dealt.sign_bytes()].into());
        let decoded = self.temporary(DType::F32, rows.shape.clone());
        let magnitudes = self.temporary(DType::F32, rows.shape.clone());
        let scales = self.temporary(DType::F32, [count, 1].into());
        self.launch(
            id,
            [
                Call::SignBitsPack { x: flat(&rows, rows.offset, rows.elems()), out: signs.clone() },
                Call::SignBitsUnpack { x: flat(&signs, 0, signs.elems()), out: decoded.clone() },
                Call::Mul { a: rows, b: decoded.clone(), out: magnitudes.clone() },
                Call::ReduceSum { x: magnitudes, out: scales.clone(), dim: 1 },
            ],
        );
        // Full rows, one partial row, and empty rows with sum 0.
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
        self.copy(id, signs, signs_of(&records, dealt));
        let scales = View {
            shape: [count / dealt.rows, dealt.rows].into(),
            strides: smallvec![dealt.rows, 1],
            ..scales
        };
        self.copy(id, scales, scales_of(&records, dealt));
        (records, decoded)
    }

    fn hear_signs(&mut self, id: OpId, records: &View, dealt: Dealt) -> View {
        let count = records.shape[0];
        let signs = self.temporary(DType::U8, [count, dealt.sign_bytes()].into());
        self.copy(id, signs_of(records, dealt), signs.clone());
        let decoded = self.temporary(DType::F32, [count, dealt.rows, dealt.row].into());
        let scales = scales_of(records, dealt);
        let unpacked = View {
            shape: [count * dealt.rows, dealt.row].into(),
            strides: smallvec![dealt.row, 1],
            ..decoded
        };
        self.launch(
            id,
            [
                Call::SignBitsUnpack { x: flat(&signs, 0, signs.elems()), out: unpacked },
                Call::Mul {
                    a: decoded.clone(),
                    b: View {
                        shape: [count, dealt.rows, 1].into(),
                        strides: smallvec![scales.strides[0], 1, 1],
                        ..scales
                    },
                    out: decoded.clone(),
                },
            ],
        );
        decoded
    }

    fn top(&mut self, id: OpId, axes: &[AxisId], parts: &SumOperands, count: usize) {
        let SumOperands { kept, out, .. } = parts;
        let cards = self.placed.mesh.joint_size(axes);
        let by_kernel = self.joins.kernels.has("topk_threshold") && count >= LEAST_CHOSEN;
        let entries = if by_kernel { (count + EMPTY_PLACES).next_multiple_of(BLOCK) } else { count };
        let bytes = entries * Compression::PLACED_BYTES;
        let [said, heard] = [1, cards].map(|cards| self.temporary(DType::U8, [cards * bytes].into()));
        // A record holds the values, then their indices.
        let as_type = |record: &View, dtype: DType, card: usize| {
            let behind = if dtype == DType::I32 { entries } else { 0 };
            View {
                offset: 2 * entries * card + behind,
                ..View::contiguous(record.buffer, dtype, [entries].into())
            }
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
                // An empty entry adds 0 to the first element.
                let (low, high) = (Number::Int(0), Number::Int(kept.elems() as i64 - 1));
                self.launch(id, [Call::Clamp { x: index.clone(), out: index.clone(), low, high }]);
            }
            let from = as_type(&heard, DType::F32, card);
            self.launch(id, [Call::ScatterAdd { index, from, into: out.clone(), dim: 0 }]);
        }
    }

    /// Selects the largest elements by magnitude. The rest becomes the residual.
    fn chosen_by_calls(&mut self, id: OpId, parts: &SumOperands, cards: usize, [values, places]: [View; 2]) {
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

    fn chosen_by_kernel(
        &mut self,
        id: OpId,
        parts: &SumOperands,
        cards: usize,
        count: usize,
        [values, places]: [View; 2],
    ) {
        let SumOperands { x, kept, whole, .. } = parts;
        let mine = self.temporary(DType::F32, kept.shape.clone());
        let rounds =
            [(); 2].map(|()| self.temporary(DType::I32, [KERNEL_BLOCKS as usize + 1, THRESHOLDS].into()));
        self.launch(
            id,
            [
                Call::Muls { x: whole.clone(), out: mine.clone(), by: Number::Float((cards as f64).recip()) },
                Call::Add { a: mine.clone(), b: x.clone(), out: mine.clone() },
                Call::Zero { into: rounds[0].clone() },
                Call::Zero { into: values.clone() },
                Call::Fill { into: places.clone(), value: Number::Int(-1) },
            ],
        );
        let boxed = |view: &View| Box::new(view.clone());
        for round in 0..=EXACT_ROUNDS {
            let [before, after] = [round, round + 1].map(|at| boxed(&rounds[at % 2]));
            let last = usize::from(round == EXACT_ROUNDS);
            let (x, kept) = (boxed(&mine), boxed(kept));
            self.launch(id, [Call::MagnitudesCounted { x, kept, before, after, most: count, last }]);
        }
        let [x, kept, round, values, places] =
            [&mine, kept, &rounds[(EXACT_ROUNDS + 1) % 2], &values, &places].map(boxed);
        self.launch(id, [Call::MagnitudesChosen { x, kept, round, values, places }]);
    }

    fn zero(&mut self, id: OpId, into: View) {
        if into.elems() > 0 {
            self.launch(id, [Call::Zero { into }]);
        }
    }
}

fn flat(view: &View, offset: usize, elems: usize) -> View {
    View { offset, shape: [elems].into(), strides: smallvec![1], ..view.clone() }
}

fn signs_of(records: &View, dealt: Dealt) -> View {
    records.narrow(1, 0, dealt.sign_bytes())
}

fn scales_of(records: &View, dealt: Dealt) -> View {
    let words = dealt.record_bytes() / size_of::<f32>();
    View {
        buffer: records.buffer,
        offset: dealt.sign_bytes() / size_of::<f32>(),
        dtype: DType::F32,
        shape: Shape::from([records.shape[0], dealt.rows]),
        strides: smallvec![words, 1],
    }
}

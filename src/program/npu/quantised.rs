//! Calls on 8-bit integers, also in forms that CANN lacks for f32.

use super::Emit;
use crate::base::{DType, Number};
use crate::call::{Call, View};
use crate::program::Form;

pub(super) struct QuantisedProduct {
    pub(super) x: View,
    /// Row scales of `x`, `[m]`.
    pub(super) tokens: View,
    pub(super) w: View,
    /// Row scales of `w`, `[n]`.
    pub(super) scale: View,
    /// Integers that are added to the sums, `[n]`.
    pub(super) bias: Option<View>,
    pub(super) out: View,
}

impl Emit<'_> {
    /// Writes the scales of the f32 rows of `x`.
    pub(super) fn row_scales(&mut self, x: View, out: View) {
        let magnitudes = self.temporary(DType::F32, x.shape.clone());
        let [largest, divisor] = [x.shape[0], 1].map(|count| self.temporary(DType::F32, [count]));
        let indices = self.temporary(DType::I64, [x.shape[0]]);
        self.calls.extend([
            Call::Abs { x, out: magnitudes.clone() },
            Call::MaxDim { x: magnitudes, values: largest.clone(), indices, dim: 1 },
            Call::Fill { into: divisor.clone(), value: Number::Float(Form::LARGEST.into()) },
            Call::Div { a: largest, b: divisor, out },
        ]);
    }

    /// Writes the integers of the f32 rows of `x` with these scales.
    pub(super) fn quantised_rows(&mut self, x: View, scales: View, out: View) {
        let divisors = self.temporary(DType::F32, scales.shape.clone());
        let (low, high) = (Number::Float(f32::MIN_POSITIVE.into()), Number::Float(f32::MAX.into()));
        self.calls.push(Call::Clamp { x: scales, out: divisors.clone(), low, high });
        self.calls.push(Call::Quantize { x, scales: divisors, out });
    }

    /// Multiplies `x [m,k]` by a packed weight. `params` are the words, scales and optional
    /// offsets, with as many elements as `[n,k/8]` and `[n,groups]`. `group` is the number of
    /// inputs per scale.
    pub(super) fn packed_product(&mut self, x: View, params: Vec<View>, group: usize, out: View) {
        let (k, n) = (x.shape[1], out.shape[1]);
        let x = self.dense(x);
        let rows = |emit: &mut Self, view: View| {
            let columns = view.elems() / n;
            let rows = emit.shaped(view, [n, columns]);
            emit.dense(rows).permute(&[1, 0])
        };
        let mut params = params.into_iter().map(|view| rows(self, view));
        let (Some(w), Some(scale)) = (params.next(), params.next()) else { return };
        let offset = params.next().map(Box::new);
        let group = if group < k { group } else { 0 };
        self.calls.push(Call::WeightQuantMatmul { x, w, scale, offset, out, group });
    }

    pub(super) fn quantised_product(&mut self, of: QuantisedProduct) {
        let QuantisedProduct { x, tokens, w, scale, bias, out } = of;
        if out.dtype != DType::F32 {
            let x = self.dense(x);
            let bias = bias.map(|bias| Box::new(self.dense(bias)));
            self.calls.push(Call::QuantMatmul { x, w, scale, tokens, bias, out });
            return;
        }
        // aclnnQuantMatmulV4 returns 16-bit results. In f32, products of 8-bit integers and sums
        // below 2^24 are exact.
        let [a, b] = [&x, &w].map(|view| self.temporary(DType::F32, view.shape.clone()));
        let sums = self.temporary(DType::F32, out.shape.clone());
        self.calls.extend([
            Call::Cast { x, out: a.clone() },
            Call::Cast { x: w, out: b.clone() },
            Call::Matmul { a, b: b.permute(&[1, 0]), out: sums.clone() },
        ]);
        if let Some(bias) = bias {
            let wide = self.temporary(DType::F32, bias.shape.clone());
            self.calls.extend([
                Call::Cast { x: bias, out: wide.clone() },
                Call::Add { a: sums.clone(), b: wide, out: sums.clone() },
            ]);
        }
        self.calls.extend([
            Call::Mul { a: sums.clone(), b: scale, out: sums.clone() },
            Call::Mul { a: sums, b: tokens.repeat(1, 1), out },
        ]);
    }
}

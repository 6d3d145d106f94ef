//! Latent attention: keys and values are projections of one short vector per token.
//!
//! Input: the normalised input of an attention part. Output: its result.
//!
//! The cache has the latent vector and the rotated part of the key, which all heads share.
//! Attention runs on these rows: the key projection is applied to the queries, and the value
//! projection to the results. This form has the smallest cache, and gives a token the same bits in
//! a prompt and in a continuation.
//!
//! Not here: the attention itself. It is grouped attention with one key head.

use crate::config::LatentAttention;
use crate::program::build::{Builder, Operand};
use crate::program::graph::{Form, Source};
use crate::program::op::Kind;

use super::attention::Scoring;
use super::layers::{LayerInputs, whole};

impl LayerInputs<'_> {
    pub(super) fn latent(
        &self,
        build: &mut Builder,
        layer: usize,
        latent: &LatentAttention,
        x: Operand,
    ) -> Operand {
        let (h, heads) = (self.config.hidden_size, self.config.heads);
        let LatentAttention { width, plain_dims, rotary_dims, value_dims, .. } = *latent;
        let tag = |name: &str| format!("layers.{layer}.attention.{name}");
        let q = self.latent_queries(build, layer, latent, x);
        let q = build.name(q, tag("q"));
        let plain = build.op(Kind::Narrow { dim: 4, start: 0, size: plain_dims }, &[q]);
        let turned = build.op(Kind::Narrow { dim: 4, start: plain_dims, size: rotary_dims }, &[q]);
        let turned = self.rotated(build, latent.rotary, turned);
        let row = self.latent_rows(build, layer, latent, x);
        let name = self.config.layer_tensor(layer, self.tensors().latent.kv_up);
        let rows = [("keys", 0, plain_dims), ("values", plain_dims, value_dims)];
        let [keys, values] = rows.map(|(part, first, count)| {
            // The rows of a head are its key rows, and then its value rows.
            let stride_elems = (plain_dims + value_dims) * width;
            let source = Source {
                tensor: format!("{name}.weight"),
                element_offset: first * width,
                form: Form::Blocks { block_elems: count * width, stride_elems },
            };
            let source = self.as_floats(build, source, width);
            self.param(build, &format!("{name}.{part}.weight"), &[1, heads, count, width], source)
        });
        let absorbed = build.matmul("bskgd,kgdr->bskgr", plain, keys);
        let q = build.op(Kind::Concat { dim: 4 }, &[absorbed, turned]);
        let scores = Scoring { scale: latent.scale, cap: None, window: None, sinks: None };
        let Some(y) = self.attended(build, layer, &scores, q, &[("latent", row)]) else { return x };
        let y = build.op(Kind::Narrow { dim: 4, start: 0, size: width }, &[y]);
        let y = build.matmul("bskgr,kgdr->bskgd", y, values);
        let y = build.name(y, tag("heads"));
        let name = format!("{}.weight", self.config.layer_tensor(layer, self.tensors().attention_out));
        let y = self.linear(build, "bskgd,okgd->bso", y, &name, whole(&name), &[h, 1, heads, value_dims]);
        build.name(y, tag("out"))
    }

    /// Projects `x` to queries `[b,s,1,g,d]`, through the latent of queries if there is one.
    fn latent_queries(
        &self,
        build: &mut Builder,
        layer: usize,
        latent: &LatentAttention,
        x: Operand,
    ) -> Operand {
        let (h, tensors) = (self.config.hidden_size, &self.tensors().latent);
        let name = |path: &str| self.config.layer_tensor(layer, path);
        let (input, projection, inputs) = match latent.query_width {
            None => (x, tensors.query, h),
            Some(width) => {
                let down = format!("{}.weight", name(tensors.query_down));
                let y = self.linear(build, "bsi,ri->bsr", x, &down, whole(&down), &[width, h]);
                let y = self.latent_norm(build, latent, y, &name(tensors.query_norm));
                (y, tensors.query_up, width)
            }
        };
        let projection = format!("{}.weight", name(projection));
        let rows = latent.plain_dims + latent.rotary_dims;
        let shape = [1, self.config.heads, rows, inputs];
        self.linear(build, "bsi,kgdi->bskgd", input, &projection, whole(&projection), &shape)
    }

    /// Projects `x` to the rows `[b,s,1,d]` of the cache.
    fn latent_rows(
        &self,
        build: &mut Builder,
        layer: usize,
        latent: &LatentAttention,
        x: Operand,
    ) -> Operand {
        let (width, tensors) = (latent.width, &self.tensors().latent);
        let name = |path: &str| self.config.layer_tensor(layer, path);
        let down = format!("{}.weight", name(tensors.kv_down));
        let shape = [1, width + latent.rotary_dims, self.config.hidden_size];
        let row = self.linear(build, "bsi,kdi->bskd", x, &down, whole(&down), &shape);
        let row = build.name(row, format!("layers.{layer}.attention.k"));
        let z = build.op(Kind::Narrow { dim: 3, start: 0, size: width }, &[row]);
        let z = self.latent_norm(build, latent, z, &name(tensors.kv_norm));
        let key = build.op(Kind::Narrow { dim: 3, start: width, size: latent.rotary_dims }, &[row]);
        let key = self.rotated(build, latent.rotary, key);
        build.op(Kind::Concat { dim: 3 }, &[z, key])
    }

    fn latent_norm(&self, build: &mut Builder, latent: &LatentAttention, x: Operand, name: &str) -> Operand {
        let wide = self.cast(build, x, self.stored);
        let width = build.value(wide).shape.last().copied().unwrap_or_default();
        let gamma = self.factor_of_norm(build, name, &[width]);
        let normed = build.rms_norm(wide, gamma, latent.norm_epsilon);
        self.cast(build, normed, self.dtype)
    }
}

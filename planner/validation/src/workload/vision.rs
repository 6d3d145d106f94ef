//! Vision towers: full attention over image patches, replicated on every card.

use serde::Deserialize;

use super::launches::{ACTIVATION, AttentionLaunch, Operands, SeenPositions, elementwise, matmul};
use super::{Section, WorkloadStep};

/// Sizes of a vision tower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vision {
    /// Number of tower layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Width of the feed-forward block.
    pub intermediate: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Side of the patch square per token.
    pub merge: usize,
}

impl Vision {
    /// Counts the tokens of an image. Sides are padded to whole patch squares.
    #[must_use]
    pub const fn tokens(&self, height: usize, width: usize) -> usize {
        let side = self.patch * self.merge;
        height.div_ceil(side) * width.div_ceil(side)
    }

    /// Returns the tower over `images` images of `tokens` tokens, and the projection to `out` dims.
    #[must_use]
    pub fn forward(&self, images: usize, tokens: usize, out: usize) -> Vec<Section> {
        let (patches, merged) = (tokens * self.merge * self.merge, self.hidden * self.merge * self.merge);
        let rows = images * patches;
        let norm = || -> WorkloadStep {
            let dims = [rows, self.hidden];
            Operands::new().read(ACTIVATION, &dims).write(ACTIVATION, &dims).of("aclnnLayerNorm")
        };
        let attention = AttentionLaunch {
            batch: images,
            query: patches,
            positions: patches,
            heads: self.heads,
            kv_heads: self.heads,
            key_dim: self.hidden / self.heads,
            value_dim: self.hidden / self.heads,
            sight: SeenPositions::Everything,
        };
        let layer = vec![
            norm(),
            matmul(rows, self.hidden, 3 * self.hidden),
            elementwise("aclnnRotaryPositionEmbedding", ACTIVATION, &[rows, 2 * self.hidden], 1),
            attention.step(),
            matmul(rows, self.hidden, self.hidden),
            elementwise("aclnnAdd", ACTIVATION, &[rows, self.hidden], 2),
            norm(),
            matmul(rows, self.hidden, self.intermediate),
            elementwise("aclnnGelu", ACTIVATION, &[rows, self.intermediate], 1),
            matmul(rows, self.intermediate, self.hidden),
            elementwise("aclnnAdd", ACTIVATION, &[rows, self.hidden], 2),
        ];
        let projector = vec![
            matmul(images * tokens, merged, merged),
            elementwise("aclnnGelu", ACTIVATION, &[images * tokens, merged], 1),
            matmul(images * tokens, merged, out),
        ];
        vec![
            Section { name: "vision layer", repeats: self.layers, steps: layer },
            Section { name: "projector", repeats: 1, steps: projector },
        ]
    }
}

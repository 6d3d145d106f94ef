//! Published sizes of models with different layers (`points/architectures.json`, with sources).

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Hybrid, LatentDecoder, ParallelSplit, ProductPrecision, Section, Tokens, Vision};

static PUBLISHED: LazyLock<Vec<Published>> = LazyLock::new(|| {
    let text = include_str!("../../points/architectures.json");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("points/architectures.json: {error}"))
});

/// Published sizes of a model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    models: Vec<String>,
    /// Source of the sizes.
    pub source: String,
    decoder: PublishedDecoder,
    vision: Option<Vision>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PublishedDecoder {
    Latent(LatentDecoder),
    Hybrid(Hybrid),
}

impl Published {
    /// Finds the model with this exact name.
    #[must_use]
    pub fn of(model: &str) -> Option<&'static Self> {
        PUBLISHED.iter().find(|published| published.models.iter().any(|name| name == model))
    }

    /// Returns a forward pass with `drafts` drafted tokens. An image of `rows` × `columns` pixels
    /// precedes each prompt.
    #[must_use]
    pub fn forward(
        &self,
        tokens: Tokens,
        image: Option<(usize, usize)>,
        drafts: usize,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<Section> {
        let Some(((rows, columns), tower)) = image.zip(self.vision) else {
            return self.decode(tokens, drafts, split, precision);
        };
        let image = tower.tokens(rows, columns);
        let mut sections = tower.forward(tokens.batch, image, self.hidden());
        let tokens = Tokens { query: tokens.query + image, ..tokens };
        sections.extend(self.decode(tokens, drafts, split, precision));
        sections
    }

    fn decode(
        &self,
        tokens: Tokens,
        drafts: usize,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<Section> {
        match &self.decoder {
            PublishedDecoder::Latent(latent) => latent.forward(tokens, drafts, split, precision),
            PublishedDecoder::Hybrid(hybrid) => hybrid.forward(tokens, drafts, split, precision),
        }
    }

    const fn hidden(&self) -> usize {
        match &self.decoder {
            PublishedDecoder::Latent(latent) => latent.hidden,
            PublishedDecoder::Hybrid(hybrid) => hybrid.hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_one_entry_with_a_source() {
        let mut seen = std::collections::HashSet::new();
        for published in PUBLISHED.iter() {
            assert!(!published.source.is_empty(), "{:?}", published.models);
            for model in &published.models {
                assert!(seen.insert(model), "{model} is listed twice");
                assert!(Published::of(model).is_some());
            }
        }
        assert!(Published::of("DeepSeek").is_none());
    }
}

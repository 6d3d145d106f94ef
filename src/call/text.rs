//! The text form of views.

use std::fmt;

use super::{BufferId, View};
use crate::base::{Dims, Id, Shape};

impl fmt::Display for View {
    /// Formats as `b3+64:f32[2,4]`. Strides follow a slash if the view is not dense.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.buffer)?;
        if self.offset > 0 {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, ":{}{}", self.dtype, self.shape)?;
        if self.strides != self.shape.strides() {
            write!(f, "/{}", Shape::from(self.strides.clone()))?;
        }
        Ok(())
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl View {
    /// Parses the output of `Display`, such as `b3+64:f32[2,4]`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once(':')?;
        let (buffer, offset) = place.split_once('+').unwrap_or((place, "0"));
        let (typed, strides) =
            rest.split_once('/').map_or((rest, None), |(typed, strides)| (typed, Some(strides)));
        let (dtype, sizes) = typed.split_at(typed.find('[')?);
        let list = |text: &str| -> Option<Dims> {
            let inner = text.strip_prefix('[')?.strip_suffix(']')?;
            inner.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect()
        };
        let shape = Shape::from(list(sizes)?);
        Some(Self {
            buffer: BufferId::from_index(buffer.strip_prefix('b')?.parse().ok()?),
            offset: offset.parse().ok()?,
            dtype: dtype.parse().ok()?,
            strides: strides.map_or_else(|| Some(shape.strides()), list)?,
            shape,
        })
    }
}

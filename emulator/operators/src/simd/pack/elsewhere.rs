//! For processors without instructions for rows in place.

use std::convert::Infallible;
use std::marker::PhantomData;

use super::source::PackSource;
use crate::raw::{Pod, Rows};
use crate::simd::isa::Isa;

/// There is none: see [`super::source::is_possible`].
#[derive(Debug)]
pub(crate) struct SlabPacking<'a> {
    never: Infallible,
    memory: PhantomData<&'a ()>,
}

impl<'a> SlabPacking<'a> {
    pub(crate) fn new<T: Pod>(isa: Isa, source: PackSource, _: &Rows<'a>, _: &'a mut [T]) -> Self {
        panic!("{source:?} in place on {isa}");
    }

    pub(in crate::simd) fn step(&mut self) {
        match self.never {}
    }

    pub(crate) fn finish(&mut self) -> bool {
        match self.never {}
    }
}

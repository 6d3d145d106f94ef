//! Tensors that lie in blocks, as operators see them: without.
//!
//! Input: the tensors of a call and their memory. Output: views of memory of the task, filled before the operator runs and laid into
//! blocks behind it. Does not: decide which operators take such tensors (see their rows).

use ascend_tp_emulator_operators::Tiles;
use ascend_tp_emulator_operators::fractal::Fractal;
use ascend_tp_emulator_operators::operator::TensorRole;
use ascend_tp_emulator_operators::raw::MemorySpan;
use ascend_tp_emulator_operators::view::StridedView;

use crate::nn::executor::Bound;

/// A tensor that lies in blocks before or after a call.
#[derive(Clone, Copy, Debug)]
struct BlockedTensor {
    /// Which of the views it is.
    at: usize,
    span: MemorySpan,
    fractal: Fractal,
    is_read: bool,
    is_written: bool,
}

/// Those of a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// Whose elements the operator sees elsewhere.
    apart: Vec<BlockedTensor>,
    /// That the call lays into blocks where it lies.
    becoming: Vec<BlockedTensor>,
}

impl Blocks {
    /// Keeps a tensor that lies in blocks, or is to.
    pub(super) fn keep(&mut self, at: usize, bound: &Bound, span: MemorySpan) {
        let (is_read, is_written) = (bound.tensor.role != TensorRole::Output, bound.is_written);
        let block = |fractal| BlockedTensor { at, span, fractal, is_read, is_written };
        self.apart.extend(bound.tensor.fractal.map(block));
        self.becoming.extend(bound.becomes.map(block));
    }

    /// The same views, but those of tensors in blocks show memory of `buffers` with their elements; None if there are no such tensors.
    pub(super) fn opened(
        &self,
        tiles: &dyn Tiles,
        views: &[StridedView],
        buffers: &mut Vec<Vec<u8>>,
    ) -> Result<Option<Vec<StridedView>>, String> {
        if self.apart.is_empty() {
            return Ok(None);
        }
        let mut views = views.to_vec();
        for block in &self.apart {
            let mut buffer = vec![0u8; block.fractal.plain_bytes()];
            // SAFETY: the memory of the vector stays where it is while it moves into `buffers`, which outlives the views.
            let span = unsafe { MemorySpan::from_raw(buffer.as_mut_ptr(), buffer.len()) };
            if block.is_read {
                block.fractal.unpack(tiles, block.span, span);
            }
            let seen = &views[block.at];
            views[block.at] = StridedView::new(span, seen.dtype(), seen.dims(), seen.strides(), 0)?;
            buffers.push(buffer);
        }
        Ok(Some(views))
    }

    /// Lays into blocks what the operator has written.
    pub(super) fn close(&self, buffers: &[Vec<u8>]) {
        for (block, buffer) in self.apart.iter().zip(buffers).filter(|(block, _)| block.is_written) {
            block.fractal.pack(buffer, block.span);
        }
        for block in &self.becoming {
            let mut plain = vec![0u8; block.fractal.plain_bytes()];
            block.span.read_run(0, 1, &mut plain);
            block.fractal.pack(&plain, block.span);
        }
    }
}

//! Tensors in a blocked storage format. Operators see plain copies, filled before the run and
//! packed into blocks after it.

use ascend_tp_emulator_operators::Tiles;
use ascend_tp_emulator_operators::fractal::Fractal;
use ascend_tp_emulator_operators::operator::TensorRole;
use ascend_tp_emulator_operators::raw::MemorySpan;
use ascend_tp_emulator_operators::view::StridedView;

use crate::nn::executor::BoundTensor;

#[derive(Clone, Copy, Debug)]
struct BlockedTensor {
    at: usize,
    span: MemorySpan,
    fractal: Fractal,
    is_read: bool,
    is_written: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct BlockedTensors {
    /// Tensors that the operator accesses through a plain copy.
    apart: Vec<BlockedTensor>,
    /// Converted to blocks in place.
    becoming: Vec<BlockedTensor>,
}

impl BlockedTensors {
    pub(super) fn keep(&mut self, at: usize, bound: &BoundTensor, span: MemorySpan) {
        let (is_read, is_written) = (bound.tensor.role != TensorRole::Output, bound.is_written);
        let block = |fractal| BlockedTensor { at, span, fractal, is_read, is_written };
        self.apart.extend(bound.tensor.fractal.map(block));
        self.becoming.extend(bound.becomes.map(block));
    }

    /// Replaces blocked tensors by plain copies in `buffers`; `None` if there are none.
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
            // SAFETY: the vector's heap memory does not move with the vector, and `buffers`
            // outlives the views.
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

// add_custom: the sum of two vectors, in the structure that Ascend C teaches: copies in, computing and copies out of tiles in
// queues of two buffers, so that the three run side by side.
//
//   z[i] = x[i] + y[i]
//
// Shapes: x, y, z [length], of half; length a multiple of 16 x the number of cores, because a copy moves blocks of 32 bytes.
#include "kernel_operator.h"

constexpr int32_t BUFFER_NUM = 2;
constexpr uint32_t TILE_LENGTH = 2048;

class KernelAdd {
  public:
    __aicore__ inline KernelAdd() {}

    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t totalLength) {
        length = totalLength / AscendC::GetBlockNum();
        const uint64_t begin = (uint64_t)length * AscendC::GetBlockIdx();
        xGm.SetGlobalBuffer((__gm__ half *)x + begin, length);
        yGm.SetGlobalBuffer((__gm__ half *)y + begin, length);
        zGm.SetGlobalBuffer((__gm__ half *)z + begin, length);
        pipe.InitBuffer(inQueueX, BUFFER_NUM, TILE_LENGTH * sizeof(half));
        pipe.InitBuffer(inQueueY, BUFFER_NUM, TILE_LENGTH * sizeof(half));
        pipe.InitBuffer(outQueueZ, BUFFER_NUM, TILE_LENGTH * sizeof(half));
    }

    __aicore__ inline void Process() {
        for (uint32_t at = 0; at < length; at += TILE_LENGTH) {
            const uint32_t count = length - at < TILE_LENGTH ? length - at : TILE_LENGTH;
            CopyIn(at, count);
            Compute(count);
            CopyOut(at, count);
        }
    }

  private:
    __aicore__ inline void CopyIn(uint32_t at, uint32_t count) {
        AscendC::LocalTensor<half> xLocal = inQueueX.AllocTensor<half>();
        AscendC::LocalTensor<half> yLocal = inQueueY.AllocTensor<half>();
        AscendC::DataCopy(xLocal, xGm[at], count);
        AscendC::DataCopy(yLocal, yGm[at], count);
        inQueueX.EnQue(xLocal);
        inQueueY.EnQue(yLocal);
    }

    __aicore__ inline void Compute(uint32_t count) {
        AscendC::LocalTensor<half> xLocal = inQueueX.DeQue<half>();
        AscendC::LocalTensor<half> yLocal = inQueueY.DeQue<half>();
        AscendC::LocalTensor<half> zLocal = outQueueZ.AllocTensor<half>();
        AscendC::Add(zLocal, xLocal, yLocal, count);
        outQueueZ.EnQue<half>(zLocal);
        inQueueX.FreeTensor(xLocal);
        inQueueY.FreeTensor(yLocal);
    }

    __aicore__ inline void CopyOut(uint32_t at, uint32_t count) {
        AscendC::LocalTensor<half> zLocal = outQueueZ.DeQue<half>();
        AscendC::DataCopy(zGm[at], zLocal, count);
        outQueueZ.FreeTensor(zLocal);
    }

    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::TPosition::VECIN, BUFFER_NUM> inQueueX, inQueueY;
    AscendC::TQue<AscendC::TPosition::VECOUT, BUFFER_NUM> outQueueZ;
    AscendC::GlobalTensor<half> xGm, yGm, zGm;
    uint32_t length = 0;
};

extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t totalLength) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    KernelAdd op;
    op.Init(x, y, z, totalLength);
    op.Process();
}

#ifndef ASCENDC_CPU_DEBUG
// For programs of a card's compiler that launch it by name.
void add_custom_do(uint32_t blockDim, void *stream, uint8_t *x, uint8_t *y, uint8_t *z, uint32_t totalLength) {
    add_custom<<<blockDim, nullptr, stream>>>(x, y, z, totalLength);
}
#endif

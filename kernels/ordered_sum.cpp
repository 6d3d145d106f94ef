// ordered_sum: y[i] = tree(x[0][i], …, x[chunks - 1][i]), the local step of a reduction whose bits must not depend on
// who adds.
//
//   tree(a) = a; tree(a_0 … a_{c-1}) = tree(a_0 … a_{p-1}) + tree(a_p … a_{c-1}) with p the largest power of two below c
//
// Shapes: x [chunks, n] without gaps, y [n]; chunks 1 to 32, n from 0. More chunks are a sum of sums of 32.
// Types: float, bfloat16_t, half, of x and y alike. Added in float, rounded to nearest even once, at the end.
// Tiling: 4,096 elements. Two tiles of x and two of y, and sums of 1, 2, 4, … 32 chunks:
//   float 2 x 16,384 + 2 x 16,384 + 6 x 16,384 = 163,840 bytes of unified buffer; the others 131,072.
// Alignment: x and y at multiples of their element; the parts of cores meet at borders of 32 bytes of y.
// Overwritten: y, which does not overlap x. Accumulated: nothing.
// Global memory: chunks + 1 elements an element of y.
#include "kernel_operator.h"
#include "part.h"
#include "tile.h"

namespace {

constexpr uint32_t ORDERED_SUM_TILE = 4096, ORDERED_SUM_LEVELS = 6;

template <class T>
class OrderedSum {
  public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, uint32_t chunkCount, uint32_t elements) {
        chunks = chunkCount, n = elements;
        part = PartOf(y, n, sizeof(T));
        source.SetGlobalBuffer((__gm__ T *)x, uint64_t(chunks) * n);
        target.SetGlobalBuffer((__gm__ T *)y, n);
        pipe.InitBuffer(in, 2, ORDERED_SUM_TILE * sizeof(T));
        pipe.InitBuffer(out, 2, ORDERED_SUM_TILE * sizeof(T));
        pipe.InitBuffer(partial, ORDERED_SUM_LEVELS * ORDERED_SUM_TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        for (uint64_t at = part.from; at < part.to; at += ORDERED_SUM_TILE) {
            const uint32_t count = part.to - at < ORDERED_SUM_TILE ? part.to - at : ORDERED_SUM_TILE;
            for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
                Fetch(in, source[uint64_t(chunk) * n + at], count);
                Count(chunk, count);
            }
            LocalTensor<T> result = out.template AllocTensor<T>();
            Finish(result, count);
            Store(out, result, target[at], count);
        }
    }

  private:
    // A binary counter: after chunk c, level l holds a sum of 2^l chunks where bit l of c + 1 is set.
    __aicore__ inline void Count(uint32_t chunk, uint32_t count) {
        uint32_t level = 0;
        while ((chunk >> level & 1) != 0) ++level;
        LocalTensor<float> sums = partial.template Get<float>(), sum = sums[level * ORDERED_SUM_TILE];
        LocalTensor<T> tile = in.template DeQue<T>();
        Widen(sum, tile, count);
        in.FreeTensor(tile);
        for (uint32_t below = 0; below < level; ++below) {
            PipeBarrier<PIPE_V>();
            Add(sum, sums[below * ORDERED_SUM_TILE], sum, count);
        }
    }

    // What is left are sums of as many chunks as the bits of `chunks` say, later chunks in smaller ones.
    __aicore__ inline void Finish(const LocalTensor<T> &result, uint32_t count) {
        LocalTensor<float> sums = partial.template Get<float>();
        uint32_t level = 0;
        while ((chunks >> level & 1) == 0) ++level;
        for (uint32_t next = level + 1; next < ORDERED_SUM_LEVELS; ++next) {
            if ((chunks >> next & 1) == 0) continue;
            PipeBarrier<PIPE_V>();
            Add(sums[next * ORDERED_SUM_TILE], sums[next * ORDERED_SUM_TILE], sums[level * ORDERED_SUM_TILE], count);
            level = next;
        }
        PipeBarrier<PIPE_V>();
        Narrow(result, sums[level * ORDERED_SUM_TILE], count);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    TBuf<TPosition::VECCALC> partial;
    GlobalTensor<T> source, target;
    uint32_t chunks, n;
    Part part;
};

}  // namespace

extern "C" __global__ __aicore__ void ordered_sum_float(GM_ADDR x, GM_ADDR y, uint32_t chunks, uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<OrderedSum<float>>(x, y, chunks, n);
}
extern "C" __global__ __aicore__ void ordered_sum_bfloat16(GM_ADDR x, GM_ADDR y, uint32_t chunks, uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<OrderedSum<bfloat16_t>>(x, y, chunks, n);
}
extern "C" __global__ __aicore__ void ordered_sum_half(GM_ADDR x, GM_ADDR y, uint32_t chunks, uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<OrderedSum<half>>(x, y, chunks, n);
}

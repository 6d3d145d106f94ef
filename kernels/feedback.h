// What a card has to say of a sum, tile by tile, for kernels that say less and keep the rest:
// u = whole / parts + x + kept.
#pragma once

#include "kernel_operator.h"
#include "tile.h"

// Without parts there is no `whole`. Takes of the unified buffer a tile for u and two for each of the others.
class Feedback {
  public:
    __aicore__ inline void Init(TPipe &pipe, GM_ADDR xAddress, GM_ADDR wholeAddress, GM_ADDR keptAddress, uint32_t n,
                                uint32_t parts, uint32_t elements) {
        tile = elements, factor = parts == 0 ? 0.0f : 1.0f / parts;
        x.SetGlobalBuffer((__gm__ float *)xAddress, n);
        whole.SetGlobalBuffer((__gm__ float *)wholeAddress, n);
        kept.SetGlobalBuffer((__gm__ float *)keptAddress, n);
        pipe.InitBuffer(inX, 2, tile * sizeof(float));
        if (factor != 0.0f) pipe.InitBuffer(inWhole, 2, tile * sizeof(float));
        pipe.InitBuffer(inKept, 2, tile * sizeof(float));
        pipe.InitBuffer(sums, tile * sizeof(float));
    }

    // The copies of a tile of some elements are under way, of at most two tiles at once.
    __aicore__ inline void Begin(uint64_t at, uint32_t count) {
        Fetch(inX, x[at], count);
        if (factor != 0.0f) Fetch(inWhole, whole[at], count);
        Fetch(inKept, kept[at], count);
    }

    // u of the tile that was begun first, behind a barrier: its elements, and zeros to the end of the tile.
    __aicore__ inline LocalTensor<float> Take(uint32_t count) {
        LocalTensor<float> u = sums.Get<float>();
        Duplicate(u, 0.0f, tile);
        if (count != 0 && factor != 0.0f) AddTerm(inWhole, factor, count);
        if (count != 0) AddTerm(inX, 1.0f, count);
        if (count != 0) AddTerm(inKept, 1.0f, count);
        PipeBarrier<PIPE_V>();
        return u;
    }

    GlobalTensor<float> kept;

  private:
    template <class Queue>
    __aicore__ inline void AddTerm(Queue &queue, float by, uint32_t count) {
        LocalTensor<float> term = queue.template DeQue<float>();
        PipeBarrier<PIPE_V>();
        Axpy(sums.Get<float>(), term, by, count);
        queue.FreeTensor(term);
    }

    TQue<QuePosition::VECIN, 2> inX, inWhole, inKept;
    TBuf<TPosition::VECCALC> sums;
    GlobalTensor<float> x, whole;
    uint32_t tile;
    float factor;
};

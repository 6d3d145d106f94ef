// grad_stats: one pass over a gradient: takes the scale of its loss off, sums its squares, says whether all of it is
// finite.
//
//   u[i] = x[i] * scale, x[i] = u[i] if `rewrites`; stats = { sum of u[i]^2, whether some u[i] is infinite or no number }
//
// Shapes: x [n], n from 0; stats [cores, 3, 8], a record of 96 bytes a core of the launch: 8 lanes of the sum, 8 of
// what rounding took from it, 8 that are 0 or, where not all is finite, NaN. The sum is that of all lanes of the first
// two, in double.
// Types: x float, bfloat16_t or half; stats float. u is float, and is squared before it is rounded to x's type.
// Added in float: a tile's squares as a tree over halves down to 64 lanes, tiles by two-sum, which keeps what rounding
// takes. A square beyond float's range makes the sum infinite or NaN, and leaves the other lanes at 0.
// Tiling: 4,096 elements. Two tiles of x in and out, two tiles and seven rows of 64 lanes in float:
//   float 4 x 16,384 + 2 x 16,384 + 7 x 256 + 96 = 100,192 bytes of unified buffer; the others 67,424.
// Alignment: x at a multiple of its element, stats of 32 bytes; the parts of cores meet at borders of 32 bytes of x.
// Overwritten: stats; x if `rewrites`. Accumulated: nothing.
// Global memory: an element read an element, and one written if `rewrites`.
#include "kernel_operator.h"
#include "part.h"
#include "tile.h"

namespace {

constexpr uint32_t GRAD_STATS_TILE = 4096, GRAD_STATS_LANES = 64, GRAD_STATS_RECORD = 24;

template <class T>
class GradStats {
  public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR stats, float factor, uint32_t rewrites, uint32_t n) {
        scale = factor, isRewritten = rewrites != 0;
        part = PartOf(x, n, sizeof(T));
        gradient.SetGlobalBuffer((__gm__ T *)x, n);
        records.SetGlobalBuffer((__gm__ float *)stats, GetBlockNum() * GRAD_STATS_RECORD);
        pipe.InitBuffer(in, 2, GRAD_STATS_TILE * sizeof(T));
        pipe.InitBuffer(out, 2, GRAD_STATS_TILE * sizeof(T));
        pipe.InitBuffer(record, 1, GRAD_STATS_RECORD * sizeof(float));
        pipe.InitBuffer(scaled, GRAD_STATS_TILE * sizeof(float));
        pipe.InitBuffer(squares, GRAD_STATS_TILE * sizeof(float));
        pipe.InitBuffer(lanes, 7 * GRAD_STATS_LANES * sizeof(float));
    }

    __aicore__ inline void Process() {
        LocalTensor<float> rows = lanes.Get<float>();
        high = rows, low = rows[GRAD_STATS_LANES], flaws = rows[2 * GRAD_STATS_LANES];
        Duplicate(rows, 0.0f, 3 * GRAD_STATS_LANES);
        for (uint64_t at = part.from; at < part.to; at += GRAD_STATS_TILE) {
            const uint32_t count = part.to - at < GRAD_STATS_TILE ? part.to - at : GRAD_STATS_TILE;
            Fetch(in, gradient[at], count);
            Scale(count);
            if (isRewritten) Rewrite(at, count);
            Tally();
        }
        Finish();
    }

  private:
    // Whole tiles are added, so what lies beyond the end counts as 0.
    __aicore__ inline void Scale(uint32_t count) {
        LocalTensor<float> values = scaled.Get<float>();
        LocalTensor<T> tile = in.template DeQue<T>();
        if (count < GRAD_STATS_TILE) Duplicate(values, 0.0f, GRAD_STATS_TILE);
        PipeBarrier<PIPE_V>();
        if constexpr (sizeof(T) == sizeof(float)) {
            Muls(values, tile, scale, count);
        } else {
            Cast(values, tile, RoundMode::CAST_NONE, count);
            PipeBarrier<PIPE_V>();
            Muls(values, values, scale, count);
        }
        in.FreeTensor(tile);
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Rewrite(uint64_t at, uint32_t count) {
        LocalTensor<T> tile = out.template AllocTensor<T>();
        Narrow(tile, scaled.Get<float>(), count);
        Store(out, tile, gradient[at], count);
    }

    __aicore__ inline void Tally() {
        LocalTensor<float> values = scaled.Get<float>(), square = squares.Get<float>();
        Mul(square, values, values, GRAD_STATS_TILE);
        // An infinity times 0 is no number, as is what was none before.
        Muls(values, values, 0.0f, GRAD_STATS_TILE);
        for (uint32_t half = GRAD_STATS_TILE / 2; half >= GRAD_STATS_LANES; half /= 2) {
            PipeBarrier<PIPE_V>();
            Add(square, square, square[half], half);
            Add(values, values, values[half], half);
        }
        PipeBarrier<PIPE_V>();
        Add(flaws, flaws, values, GRAD_STATS_LANES);
        TwoSum(square, low, GRAD_STATS_LANES);
    }

    // high + term, rounded, becomes high; what rounding took and `rest` are added to low. (Knuth, TAOCP 2, 4.2.2,
    // theorem B)
    __aicore__ inline void TwoSum(const LocalTensor<float> &term, const LocalTensor<float> &rest, uint32_t size) {
        LocalTensor<float> rows = lanes.Get<float>();
        LocalTensor<float> sum = rows[3 * GRAD_STATS_LANES], part1 = rows[4 * GRAD_STATS_LANES];
        LocalTensor<float> part2 = rows[5 * GRAD_STATS_LANES], error = rows[6 * GRAD_STATS_LANES];
        Add(sum, high, term, size);
        PipeBarrier<PIPE_V>();
        Sub(part2, sum, high, size);
        PipeBarrier<PIPE_V>();
        Sub(part1, sum, part2, size);
        Sub(part2, term, part2, size);
        PipeBarrier<PIPE_V>();
        Sub(error, high, part1, size);
        PipeBarrier<PIPE_V>();
        Add(error, error, part2, size);
        Muls(high, sum, 1.0f, size);
        PipeBarrier<PIPE_V>();
        Add(low, rest, error, size);
        PipeBarrier<PIPE_V>();
    }

    // 64 lanes become 8, so that a record is three blocks.
    __aicore__ inline void Finish() {
        PipeBarrier<PIPE_V>();
        for (uint32_t half = GRAD_STATS_LANES / 2; half >= 8; half /= 2) {
            Add(flaws, flaws, flaws[half], half);
            Add(low, low, low[half], half);
            TwoSum(high[half], low, half);
        }
        LocalTensor<float> result = record.AllocTensor<float>();
        Muls(result, high, 1.0f, 8);
        Muls(result[8], low, 1.0f, 8);
        Muls(result[16], flaws, 1.0f, 8);
        Store(record, result, records[GetBlockIdx() * GRAD_STATS_RECORD], GRAD_STATS_RECORD);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    TQue<QuePosition::VECOUT, 1> record;
    TBuf<TPosition::VECCALC> scaled, squares, lanes;
    LocalTensor<float> high, low, flaws;
    GlobalTensor<T> gradient;
    GlobalTensor<float> records;
    float scale;
    bool isRewritten;
    Part part;
};

}  // namespace

extern "C" __global__ __aicore__ void grad_stats_float(GM_ADDR x, GM_ADDR stats, float scale, uint32_t rewrites,
                                                       uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<GradStats<float>>(x, stats, scale, rewrites, n);
}
extern "C" __global__ __aicore__ void grad_stats_bfloat16(GM_ADDR x, GM_ADDR stats, float scale, uint32_t rewrites,
                                                          uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<GradStats<bfloat16_t>>(x, stats, scale, rewrites, n);
}
extern "C" __global__ __aicore__ void grad_stats_half(GM_ADDR x, GM_ADDR stats, float scale, uint32_t rewrites,
                                                      uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<GradStats<half>>(x, stats, scale, rewrites, n);
}

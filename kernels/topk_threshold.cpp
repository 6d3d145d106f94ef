// topk_threshold: the elements of a gradient of the largest magnitude, as values and places; what is left out kept for
// the next step.
//
//   u = g + e; t = the least threshold found with at most k elements |u[i]| >= t
//   chosen = { (u[i], i) : |u[i]| >= t }; e = u where not chosen, else 0
//
// (Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", 2017; Stich et al., "Sparsified SGD with
// Memory", 2018)
//
// Three kernels, launched as (topk_count, topk_narrow) x rounds, topk_count, topk_compact, all but topk_narrow, which
// takes one core, on the same number of cores. A round counts |u| >= t for eight t and keeps the ninth of the bits'
// range in which k lies: as positive floats are ordered as their bits are, 10 rounds find the exact least t, 5 one that
// is 0.5 % above it. The last round passes `isLast`, and all eight thresholds become t.
// Shapes: g, e [n], n from 0 below 2^31; state [16] = { low, high, k, …, t_0 … t_7 }, where low, high and t are the
// bits of floats and the caller begins with low 0, high 0x7f800000 and any t between; counts [cores, 8]; values,
// indices [capacity], capacity a multiple of 8 of k + 7 x cores or more. A core's chosen elements follow one another in
// the order of their places, then up to 7 of value 0 and index -1, and so does all behind the last.
// Types: g, e, values float; state, counts, indices int32_t. u is rounded once, as float, and is finite.
// Tiling: 4,096 elements. Count: two tiles each of g and e, three more and bits; compact: two tiles each of g, e and
// the new e, one of values and one of indices, and u, |u| or the places, and bits: 7 x 16,384 + 544 = 115,232 and 10 x
// 16,384 + 512 = 164,352 bytes of unified buffer. Beyond them Select needs the last 8,192.
// Alignment: g at a multiple of 4 bytes, e too; the rest of 32. The parts of cores meet at borders of 32 bytes of e.
// Overwritten: counts, state, values, indices, e. Accumulated: e is read and then holds what was left out.
// Global memory: count 8 bytes read an element; compact 8 read and 4 written, and 8 written an element that is chosen.
#include "kernel_operator.h"
#include "part.h"

namespace {

constexpr uint32_t TOPK_TILE = 4096, TOPK_WIDTH = 8, TOPK_STATE = 16;

// What counting and choosing share: u of one tile after the other, and its magnitude.
class TopkTiles {
  public:
    __aicore__ inline void Init(TPipe &pipe, GM_ADDR g, GM_ADDR e, uint32_t n) {
        part = PartOf(e, n, sizeof(float));
        gradient.SetGlobalBuffer((__gm__ float *)g, n);
        error.SetGlobalBuffer((__gm__ float *)e, n);
        pipe.InitBuffer(inGradient, 2, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(inError, 2, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(sums, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(magnitudes, TOPK_TILE * sizeof(float));
    }

    // Beyond the end u is 0, which no threshold chooses. The vector unit may go on once it has a barrier of its own.
    __aicore__ inline void Load(uint64_t at) {
        const uint32_t count = Count(at);
        if (at == part.from) CopyIn(at);
        LocalTensor<float> u = sums.Get<float>(), g = inGradient.DeQue<float>(), e = inError.DeQue<float>();
        // The scalar unit waits for every count, so the next tile must be under way before.
        if (part.to - at > count) CopyIn(at + count);
        if (count < TOPK_TILE) Duplicate(u, 0.0f, TOPK_TILE);
        PipeBarrier<PIPE_V>();
        Add(u, g, e, count);
        inGradient.FreeTensor(g);
        inError.FreeTensor(e);
        PipeBarrier<PIPE_V>();
        Abs(magnitudes.Get<float>(), u, TOPK_TILE);
        PipeBarrier<PIPE_V>();
    }

    // Elements of the tile that begins at an element. Tiles meet at borders of 32 bytes of e, as one is written while
    // the next is read.
    __aicore__ inline uint32_t Count(uint64_t at) const {
        const uint32_t most = TOPK_TILE - ((uint64_t)error.GetPhyAddr(at) % 32) / sizeof(float);
        return part.to - at < most ? part.to - at : most;
    }

    TQue<QuePosition::VECIN, 2> inGradient, inError;
    TBuf<TPosition::VECCALC> sums, magnitudes;
    GlobalTensor<float> gradient, error;
    Part part;

  private:
    __aicore__ inline void CopyIn(uint64_t at) {
        const DataCopyExtParams copy{1, uint32_t(Count(at) * sizeof(float)), 0, 0, 0};
        const DataCopyPadExtParams<float> noPadding{false, 0, 0, 0.0f};
        LocalTensor<float> g = inGradient.AllocTensor<float>(), e = inError.AllocTensor<float>();
        DataCopyPad(g, gradient[at], copy, noPadding);
        DataCopyPad(e, error[at], copy, noPadding);
        inGradient.EnQue(g);
        inError.EnQue(e);
    }
};

// The bits of a float as the float.
__aicore__ inline float TopkThreshold(int32_t bits) { return *reinterpret_cast<float *>(&bits); }

class TopkCount {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR stateAddress, GM_ADDR countAddress, uint32_t n) {
        tiles.Init(pipe, g, e, n);
        state.SetGlobalBuffer((__gm__ int32_t *)stateAddress, TOPK_STATE);
        counts.SetGlobalBuffer((__gm__ int32_t *)countAddress, GetBlockNum() * TOPK_WIDTH);
        pipe.InitBuffer(bits, TOPK_TILE / 8);
        pipe.InitBuffer(packed, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(out, 1, TOPK_WIDTH * sizeof(int32_t));
    }

    __aicore__ inline void Process() {
        float thresholds[TOPK_WIDTH];
        int32_t found[TOPK_WIDTH];
        for (uint32_t index = 0; index < TOPK_WIDTH; ++index) {
            thresholds[index] = TopkThreshold(state.GetValue(TOPK_WIDTH + index));
            found[index] = 0;
        }
        for (uint64_t at = tiles.part.from; at < tiles.part.to; at += tiles.Count(at)) {
            tiles.Load(at);
            for (uint32_t index = 0; index < TOPK_WIDTH; ++index) found[index] += CountFrom(thresholds[index]);
        }
        LocalTensor<int32_t> result = out.AllocTensor<int32_t>();
        for (uint32_t index = 0; index < TOPK_WIDTH; ++index) result.SetValue(index, found[index]);
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        out.EnQue(result);
        result = out.DeQue<int32_t>();
        DataCopy(counts[GetBlockIdx() * TOPK_WIDTH], result, TOPK_WIDTH);
        out.FreeTensor(result);
    }

  private:
    __aicore__ inline uint32_t CountFrom(float threshold) {
        LocalTensor<float> magnitude = tiles.magnitudes.Get<float>();
        CompareScalar(bits.Get<uint8_t>(), magnitude, threshold, CMPMODE::GE, TOPK_TILE);
        PipeBarrier<PIPE_V>();
        uint64_t kept = 0;
        GatherMask(packed.Get<float>(), magnitude, bits.Get<uint32_t>(), true, TOPK_TILE, GatherMaskParams{1, 1, 0, 0},
                   kept);
        return kept;
    }

    TPipe pipe;
    TopkTiles tiles;
    TBuf<TPosition::VECCALC> bits, packed;
    TQue<QuePosition::VECOUT, 1> out;
    GlobalTensor<int32_t> state, counts;
};

class TopkNarrow {
  public:
    __aicore__ inline void Init(GM_ADDR stateAddress, GM_ADDR countAddress, uint32_t coreCount, uint32_t isLastRound) {
        cores = coreCount, isLast = isLastRound != 0;
        state.SetGlobalBuffer((__gm__ int32_t *)stateAddress, TOPK_STATE);
        counts.SetGlobalBuffer((__gm__ int32_t *)countAddress, cores * TOPK_WIDTH);
        pipe.InitBuffer(inState, 1, TOPK_STATE * sizeof(int32_t));
        pipe.InitBuffer(inCounts, 1, cores * TOPK_WIDTH * sizeof(int32_t));
        pipe.InitBuffer(out, 1, TOPK_STATE * sizeof(int32_t));
        pipe.InitBuffer(sums, TOPK_WIDTH * sizeof(int32_t));
    }

    __aicore__ inline void Process() {
        LocalTensor<int32_t> before = inState.AllocTensor<int32_t>(), each = inCounts.AllocTensor<int32_t>(),
                             sum = sums.Get<int32_t>();
        DataCopy(before, state, TOPK_STATE);
        DataCopy(each, counts, cores * TOPK_WIDTH);
        inState.EnQue(before);
        inCounts.EnQue(each);
        before = inState.DeQue<int32_t>();
        each = inCounts.DeQue<int32_t>();
        Duplicate(sum, 0, TOPK_WIDTH);
        for (uint32_t core = 0; core < cores; ++core) {
            PipeBarrier<PIPE_V>();
            Add(sum, sum, each[core * TOPK_WIDTH], TOPK_WIDTH);
        }
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        // Counts fall as thresholds rise, so the first with few enough is the new upper end.
        int32_t low = before.GetValue(0), high = before.GetValue(1);
        const int32_t most = before.GetValue(2);
        bool isFound = false;
        for (uint32_t index = 0; index < TOPK_WIDTH && !isFound; ++index) {
            const int32_t threshold = before.GetValue(TOPK_WIDTH + index);
            isFound = sum.GetValue(index) <= most;
            if (isFound) high = threshold;
            else low = threshold;
        }
        LocalTensor<int32_t> after = out.AllocTensor<int32_t>();
        after.SetValue(0, low);
        after.SetValue(1, high);
        after.SetValue(2, most);
        for (uint32_t index = 3; index < TOPK_WIDTH; ++index) after.SetValue(index, 0);
        for (uint32_t index = 0; index < TOPK_WIDTH; ++index) {
            const int32_t between = low + int32_t(int64_t(high - low) * (index + 1) / (TOPK_WIDTH + 1));
            after.SetValue(TOPK_WIDTH + index, isLast || between == 0 ? high : between);
        }
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        inState.FreeTensor(before);
        inCounts.FreeTensor(each);
        out.EnQue(after);
        after = out.DeQue<int32_t>();
        DataCopy(state, after, TOPK_STATE);
        out.FreeTensor(after);
    }

  private:
    TPipe pipe;
    TQue<QuePosition::VECIN, 1> inState, inCounts;
    TQue<QuePosition::VECOUT, 1> out;
    TBuf<TPosition::VECCALC> sums;
    GlobalTensor<int32_t> state, counts;
    uint32_t cores;
    bool isLast;
};

class TopkCompact {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR stateAddress, GM_ADDR countAddress, GM_ADDR valueAddress,
                                GM_ADDR indexAddress, uint32_t n, uint32_t size) {
        capacity = size;
        tiles.Init(pipe, g, e, n);
        state.SetGlobalBuffer((__gm__ int32_t *)stateAddress, TOPK_STATE);
        counts.SetGlobalBuffer((__gm__ int32_t *)countAddress, GetBlockNum() * TOPK_WIDTH);
        values.SetGlobalBuffer((__gm__ float *)valueAddress, capacity);
        indices.SetGlobalBuffer((__gm__ int32_t *)indexAddress, capacity);
        pipe.InitBuffer(bits, TOPK_TILE / 8);
        pipe.InitBuffer(outValues, 1, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(outIndices, 1, TOPK_TILE * sizeof(int32_t));
        pipe.InitBuffer(outError, 2, TOPK_TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        const float threshold = TopkThreshold(state.GetValue(1));
        uint64_t to = 0;
        for (uint32_t core = 0; core < GetBlockIdx(); ++core) to += (counts.GetValue(core * TOPK_WIDTH) + 7) / 8 * 8;
        for (uint64_t at = tiles.part.from; at < tiles.part.to; at += tiles.Count(at)) {
            tiles.Load(at);
            to += Choose(at, to, threshold);
            Keep(at, tiles.Count(at), threshold);
        }
        const uint64_t end = GetBlockIdx() + 1 == GetBlockNum() ? capacity : (to + 7) / 8 * 8;
        while (to < end) to += Fill(to, end - to);
    }

  private:
    __aicore__ inline void CopyOut(uint64_t to, uint32_t count, LocalTensor<float> value, LocalTensor<int32_t> index) {
        const DataCopyExtParams copy{1, uint32_t(count * sizeof(float)), 0, 0, 0};
        outValues.EnQue(value);
        outIndices.EnQue(index);
        value = outValues.DeQue<float>();
        index = outIndices.DeQue<int32_t>();
        if (count != 0) DataCopyPad(values[to], value, copy);
        if (count != 0) DataCopyPad(indices[to], index, copy);
        outValues.FreeTensor(value);
        outIndices.FreeTensor(index);
    }

    __aicore__ inline uint32_t Choose(uint64_t at, uint64_t to, float threshold) {
        LocalTensor<float> value = outValues.AllocTensor<float>(), u = tiles.sums.Get<float>();
        LocalTensor<int32_t> index = outIndices.AllocTensor<int32_t>();
        LocalTensor<int32_t> places = tiles.magnitudes.Get<int32_t>();
        CompareScalar(bits.Get<uint8_t>(), tiles.magnitudes.Get<float>(), threshold, CMPMODE::GE, TOPK_TILE);
        CreateVecIndex(places, int32_t(at), TOPK_TILE);
        PipeBarrier<PIPE_V>();
        uint64_t kept = 0;
        GatherMask(value, u, bits.Get<uint32_t>(), true, TOPK_TILE, GatherMaskParams{1, 1, 0, 0}, kept);
        GatherMask(index, places, bits.Get<uint32_t>(), true, TOPK_TILE, GatherMaskParams{1, 1, 0, 0}, kept);
        CopyOut(to, kept, value, index);
        return kept;
    }

    __aicore__ inline void Keep(uint64_t at, uint32_t count, float threshold) {
        LocalTensor<float> u = tiles.sums.Get<float>(), magnitude = tiles.magnitudes.Get<float>();
        Abs(magnitude, u, TOPK_TILE);
        PipeBarrier<PIPE_V>();
        CompareScalar(bits.Get<uint8_t>(), magnitude, threshold, CMPMODE::LT, TOPK_TILE);
        LocalTensor<float> rest = outError.AllocTensor<float>();
        PipeBarrier<PIPE_V>();
        Select(rest, bits.Get<uint8_t>(), u, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, TOPK_TILE);
        outError.EnQue(rest);
        rest = outError.DeQue<float>();
        DataCopyPad(tiles.error[at], rest, DataCopyExtParams{1, uint32_t(count * sizeof(float)), 0, 0, 0});
        outError.FreeTensor(rest);
    }

    __aicore__ inline uint32_t Fill(uint64_t to, uint64_t room) {
        const uint32_t count = room < TOPK_TILE ? room : TOPK_TILE;
        LocalTensor<float> value = outValues.AllocTensor<float>();
        LocalTensor<int32_t> index = outIndices.AllocTensor<int32_t>();
        Duplicate(value, 0.0f, count);
        Duplicate(index, -1, count);
        CopyOut(to, count, value, index);
        return count;
    }

    TPipe pipe;
    TopkTiles tiles;
    TBuf<TPosition::VECCALC> bits;
    TQue<QuePosition::VECOUT, 1> outValues, outIndices;
    TQue<QuePosition::VECOUT, 2> outError;
    GlobalTensor<int32_t> state, counts, indices;
    GlobalTensor<float> values;
    uint32_t capacity;
};

}  // namespace

extern "C" __global__ __aicore__ void topk_count(GM_ADDR g, GM_ADDR e, GM_ADDR state, GM_ADDR counts, uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TopkCount kernel;
    kernel.Init(g, e, state, counts, n);
    kernel.Process();
}
extern "C" __global__ __aicore__ void topk_narrow(GM_ADDR state, GM_ADDR counts, uint32_t cores, uint32_t isLast) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TopkNarrow kernel;
    kernel.Init(state, counts, cores, isLast);
    kernel.Process();
}
extern "C" __global__ __aicore__ void topk_compact(GM_ADDR g, GM_ADDR e, GM_ADDR state, GM_ADDR counts, GM_ADDR values,
                                                   GM_ADDR indices, uint32_t n, uint32_t capacity) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TopkCompact kernel;
    kernel.Init(g, e, state, counts, values, indices, n, capacity);
    kernel.Process();
}

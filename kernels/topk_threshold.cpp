// topk_threshold: the k elements of a gradient of the largest magnitude, as values and places; what is left out kept
// for the next step.
//
//   u = g + e; high = the least threshold found with at most k elements |u[i]| >= high, low = the next that was tried
//   chosen = { (u[i], i) : |u[i]| >= high }, and of those low <= |u[i]| < high the first that make it k
//   e = u where not chosen, else 0
//
// (Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", 2017; Stich et al., "Sparsified SGD with
// Memory", 2018)
//
// Three kernels, launched as narrow, (count, narrow) x rounds, count, choose, on the same number of cores, of which
// narrow takes the first. A state of zeros begins; a round counts |u| >= t for eight t and keeps the ninth of the bits'
// range in which k lies: as positive floats are ordered as their bits are, 10 rounds find the exact threshold, 5 one
// that is 0.5 % above it. The last round passes `isLast`: what is counted then is what is chosen. Of equal magnitudes
// the first are chosen; zeros are not, so there are fewer than k where fewer have a magnitude; what is no number has
// the largest.
// Shapes: g, e [n], n from 0 below 2^31; state [16] = { low, high, k, ..., t_0 ... t_7 }, where low, high and t are the
// bits of floats; counts [cores, 8]; values, indices [capacity], capacity a multiple of 8 of k + 7 x cores or more. A
// core's chosen elements follow one another in the order of their places, then up to 7 of value 0 and index -1, and so
// does all behind the last.
// Types: g, e, values float; state, counts, indices int32_t. u is rounded once, as float.
// Tiling: 4,096 elements. Two tiles each of g and e, u, |u|, one that is packed, and bits: 7 x 16,384 + 544 = 115,232
// bytes of unified buffer; choose two tiles of the new e, one of values and one of indices more: 180,736. Beyond them
// Select needs the last 8,192.
// Alignment: g at a multiple of 4 bytes, e too; the rest of 32. The parts of cores meet at borders of 32 bytes of e.
// Overwritten: counts, state, values, indices, e. Accumulated: e is read and then holds what was left out.
// Global memory: count 8 bytes read an element; choose 8 read and 4 written, and 8 written an element that is chosen.
#include "kernel_operator.h"
#include "part.h"

namespace {

constexpr uint32_t TOPK_TILE = 4096, TOPK_WIDTH = 8, TOPK_STATE = 16;

// The bits of infinity, and of a threshold that nothing reaches: of what is no number.
constexpr int32_t TOPK_MOST = 0x7f800000, TOPK_ABOVE = TOPK_MOST + 1;

// The bits of a float as the float.
__aicore__ inline float TopkThreshold(int32_t bits) { return *reinterpret_cast<float *>(&bits); }

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
        pipe.InitBuffer(packed, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(bits, TOPK_TILE / 8);
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
        LocalTensor<float> magnitude = magnitudes.Get<float>();
        Abs(magnitude, u, TOPK_TILE);
        Compare(bits.Get<uint8_t>(), u, u, CMPMODE::EQ, TOPK_TILE);
        PipeBarrier<PIPE_V>();
        Select(magnitude, bits.Get<uint8_t>(), magnitude, TopkThreshold(TOPK_MOST), SELMODE::VSEL_TENSOR_SCALAR_MODE,
               TOPK_TILE);
        PipeBarrier<PIPE_V>();
    }

    // How many elements of the tile are of a magnitude, of which `bits` are set.
    __aicore__ inline uint32_t CountFrom(float threshold) {
        LocalTensor<float> magnitude = magnitudes.Get<float>();
        CompareScalar(bits.Get<uint8_t>(), magnitude, threshold, CMPMODE::GE, TOPK_TILE);
        PipeBarrier<PIPE_V>();
        uint64_t kept = 0;
        GatherMask(packed.Get<float>(), magnitude, bits.Get<uint32_t>(), true, TOPK_TILE, GatherMaskParams{1, 1, 0, 0},
                   kept);
        return kept;
    }

    // Elements of the tile that begins at an element. Tiles meet at borders of 32 bytes of e, as one is written while
    // the next is read.
    __aicore__ inline uint32_t Count(uint64_t at) const {
        const uint32_t most = TOPK_TILE - ((uint64_t)error.GetPhyAddr(at) % 32) / sizeof(float);
        return part.to - at < most ? part.to - at : most;
    }

    TQue<QuePosition::VECIN, 2> inGradient, inError;
    TBuf<TPosition::VECCALC> sums, magnitudes, packed, bits;
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

class TopkCount {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR stateAddress, GM_ADDR countAddress, uint32_t n) {
        tiles.Init(pipe, g, e, n);
        state.SetGlobalBuffer((__gm__ int32_t *)stateAddress, TOPK_STATE);
        counts.SetGlobalBuffer((__gm__ int32_t *)countAddress, GetBlockNum() * TOPK_WIDTH);
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
            for (uint32_t index = 0; index < TOPK_WIDTH; ++index) found[index] += tiles.CountFrom(thresholds[index]);
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
    TPipe pipe;
    TopkTiles tiles;
    TQue<QuePosition::VECOUT, 1> out;
    GlobalTensor<int32_t> state, counts;
};

class TopkNarrow {
  public:
    __aicore__ inline void Init(GM_ADDR stateAddress, GM_ADDR countAddress, uint32_t coreCount, uint32_t atMost,
                                uint32_t isLastRound) {
        cores = coreCount, most = atMost, isLast = isLastRound != 0;
        state.SetGlobalBuffer((__gm__ int32_t *)stateAddress, TOPK_STATE);
        counts.SetGlobalBuffer((__gm__ int32_t *)countAddress, cores * TOPK_WIDTH);
        pipe.InitBuffer(inState, 1, TOPK_STATE * sizeof(int32_t));
        pipe.InitBuffer(inCounts, 1, cores * TOPK_WIDTH * sizeof(int32_t));
        pipe.InitBuffer(out, 1, TOPK_STATE * sizeof(int32_t));
        pipe.InitBuffer(sums, TOPK_WIDTH * sizeof(int32_t));
    }

    __aicore__ inline void Process() {
        int32_t low, high;
        Narrow(low, high);
        LocalTensor<int32_t> after = out.AllocTensor<int32_t>();
        after.SetValue(0, low);
        after.SetValue(1, high);
        after.SetValue(2, most);
        for (uint32_t index = 3; index < TOPK_WIDTH; ++index) after.SetValue(index, 0);
        for (uint32_t index = 0; index < TOPK_WIDTH; ++index) after.SetValue(TOPK_WIDTH + index, Next(low, high, index));
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        out.EnQue(after);
        after = out.DeQue<int32_t>();
        DataCopy(state, after, TOPK_STATE);
        out.FreeTensor(after);
    }

  private:
    // At the end what is chosen in any case is counted, and with what lies between both thresholds.
    __aicore__ inline int32_t Next(int32_t low, int32_t high, uint32_t index) const {
        if (isLast) return index == 0 || low == 0 ? high : low;
        const int32_t between = low + int32_t(int64_t(high - low) * (index + 1) / (TOPK_WIDTH + 1));
        return between == 0 ? high : between;
    }

    // Counts fall as thresholds rise, so the first with few enough is the new upper end.
    __aicore__ inline void Narrow(int32_t &low, int32_t &high) {
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
        low = before.GetValue(0), high = before.GetValue(1);
        bool isFound = high == 0;
        if (isFound) high = TOPK_ABOVE;
        for (uint32_t index = 0; index < TOPK_WIDTH && !isFound; ++index) {
            const int32_t threshold = before.GetValue(TOPK_WIDTH + index);
            isFound = sum.GetValue(index) <= int32_t(most);
            if (isFound) high = threshold;
            else low = threshold;
        }
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        inState.FreeTensor(before);
        inCounts.FreeTensor(each);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 1> inState, inCounts;
    TQue<QuePosition::VECOUT, 1> out;
    TBuf<TPosition::VECCALC> sums;
    GlobalTensor<int32_t> state, counts;
    uint32_t cores, most;
    bool isLast;
};

class TopkChoose {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR stateAddress, GM_ADDR countAddress, GM_ADDR valueAddress,
                                GM_ADDR indexAddress, uint32_t n, uint32_t size) {
        capacity = size;
        tiles.Init(pipe, g, e, n);
        state.SetGlobalBuffer((__gm__ int32_t *)stateAddress, TOPK_STATE);
        counts.SetGlobalBuffer((__gm__ int32_t *)countAddress, GetBlockNum() * TOPK_WIDTH);
        values.SetGlobalBuffer((__gm__ float *)valueAddress, capacity);
        indices.SetGlobalBuffer((__gm__ int32_t *)indexAddress, capacity);
        pipe.InitBuffer(outValues, 1, TOPK_TILE * sizeof(float));
        pipe.InitBuffer(outIndices, 1, TOPK_TILE * sizeof(int32_t));
        pipe.InitBuffer(outError, 2, TOPK_TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        low = TopkThreshold(state.GetValue(0)), high = TopkThreshold(state.GetValue(1));
        // Of what lies between both thresholds the first cores have theirs chosen first.
        int32_t left = state.GetValue(2);
        for (uint32_t core = 0; core < GetBlockNum(); ++core) left -= counts.GetValue(core * TOPK_WIDTH);
        uint64_t to = 0;
        for (uint32_t core = 0; core <= GetBlockIdx(); ++core) {
            const int32_t above = counts.GetValue(core * TOPK_WIDTH),
                          between = counts.GetValue(core * TOPK_WIDTH + 1) - above;
            more = between < left ? between : left;
            left -= more;
            if (core < GetBlockIdx()) to += (above + more + 7) / 8 * 8;
        }
        for (uint64_t at = tiles.part.from; at < tiles.part.to; at += tiles.Count(at)) {
            tiles.Load(at);
            to += Choose(at, to, Threshold());
            Keep(at, tiles.Count(at));
        }
        const uint64_t end = GetBlockIdx() + 1 == GetBlockNum() ? capacity : (to + 7) / 8 * 8;
        while (to < end) to += Fill(to, end - to);
    }

  private:
    // From which magnitude on the tile's elements are chosen. Where some between both thresholds are too many, they lose it.
    __aicore__ inline float Threshold() {
        if (more == 0) return high;
        const int32_t between = tiles.CountFrom(low) - tiles.CountFrom(high);
        if (between <= more) {
            more -= between;
            return low;
        }
        LocalTensor<float> magnitude = tiles.magnitudes.Get<float>();
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        for (uint32_t index = 0; index < TOPK_TILE; ++index) {
            const float of = magnitude.GetValue(index);
            if (of < low || of >= high) continue;
            if (more == 0) magnitude.SetValue(index, 0.0f);
            else --more;
        }
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        return low;
    }

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
        LocalTensor<uint32_t> bits = tiles.bits.Get<uint32_t>();
        CompareScalar(tiles.bits.Get<uint8_t>(), tiles.magnitudes.Get<float>(), threshold, CMPMODE::GE, TOPK_TILE);
        CreateVecIndex(places, int32_t(at), TOPK_TILE);
        PipeBarrier<PIPE_V>();
        uint64_t kept = 0;
        GatherMask(value, u, bits, true, TOPK_TILE, GatherMaskParams{1, 1, 0, 0}, kept);
        GatherMask(index, places, bits, true, TOPK_TILE, GatherMaskParams{1, 1, 0, 0}, kept);
        CopyOut(to, kept, value, index);
        return kept;
    }

    // What was not chosen, by the bits of what was.
    __aicore__ inline void Keep(uint64_t at, uint32_t count) {
        LocalTensor<float> rest = outError.AllocTensor<float>(), zeros = tiles.packed.Get<float>();
        Duplicate(zeros, 0.0f, TOPK_TILE);
        PipeBarrier<PIPE_V>();
        Select(rest, tiles.bits.Get<uint8_t>(), zeros, tiles.sums.Get<float>(), SELMODE::VSEL_TENSOR_TENSOR_MODE,
               TOPK_TILE);
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
    TQue<QuePosition::VECOUT, 1> outValues, outIndices;
    TQue<QuePosition::VECOUT, 2> outError;
    GlobalTensor<int32_t> state, counts, indices;
    GlobalTensor<float> values;
    uint32_t capacity;
    float low, high;
    // Of this core's elements between both thresholds those that are still to be chosen.
    int32_t more;
};

}  // namespace

extern "C" __global__ __aicore__ void topk_threshold_count_float(GM_ADDR g, GM_ADDR e, GM_ADDR state, GM_ADDR counts, uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TopkCount kernel;
    kernel.Init(g, e, state, counts, n);
    kernel.Process();
}
extern "C" __global__ __aicore__ void topk_threshold_narrow_int32(GM_ADDR state, GM_ADDR counts, uint32_t cores, uint32_t most,
                                                                  uint32_t isLast) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    if (GetBlockIdx() != 0) return;
    TopkNarrow kernel;
    kernel.Init(state, counts, cores, most, isLast);
    kernel.Process();
}
extern "C" __global__ __aicore__ void topk_threshold_choose_float(GM_ADDR g, GM_ADDR e, GM_ADDR state, GM_ADDR counts, GM_ADDR values,
                                                   GM_ADDR indices, uint32_t n, uint32_t capacity) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TopkChoose kernel;
    kernel.Init(g, e, state, counts, values, indices, n, capacity);
    kernel.Process();
}

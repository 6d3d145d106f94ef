// topk_threshold: the k largest elements of a gradient as values and places; what is left out kept for the next step.
//
//   u = g + e; high = the least threshold found with at most k elements |u[i]| >= high, low = the next that was tried
//   chosen = { (u[i], i) : |u[i]| >= high }, and of those low <= |u[i]| < high the first that make it k
//   e = u where not chosen, else 0
//
// (Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", 2017; Stich et al., "Sparsified SGD with
// Memory", 2018)
// Launched as count x (rounds + 1), choose, on the same number of cores. Zeros are the round before the first; each
// count takes the one before it, keeps the ninth of the bits' range in which k lies, and counts |u| >= t for eight t in
// it: positive floats are ordered as their bits are, so 10 rounds find the exact threshold. The last passes `isLast`:
// what it counts is what is chosen. Of equal magnitudes the first are chosen; zeros are not, so there are fewer than k
// where fewer have a magnitude; what is no number has the largest.
// Shapes: g, e [n], n from 0 below 2^31; a round [cores + 1, 8]: what each core counted, then { low, high, k, 0, ... },
// low and high as bits of floats; values, indices [capacity], at least k + 7 x cores. A core's chosen elements follow
// one another in the order of their places, the next core's begin at a multiple of 8; other entries stay as they are.
// Types: g, e, values float; rounds, indices int32_t. u is rounded once, as float.
// Tiling: 4,096 elements. Two tiles each of g and e, u, |u|, one that is packed, bits, a round and two rows:
// 7 x 16,384 + 512 + 32 x (cores + 3) = 116,832 bytes of unified buffer on 48 cores; choose has two tiles of the new e,
// one of values and one of indices, no rows: 182,304. Beyond them Select needs the last 8,192.
// Alignment: g at a multiple of 4 bytes, the rest of 32. The parts of cores meet at borders of 32 bytes of e.
// Overwritten: the round; of values and indices what is chosen. Accumulated: e, which then holds what was left out.
// Global memory: count 8 bytes read an element; choose 8 read and 4 written, and 8 written an element that is chosen.
#include "kernel_operator.h"
#include "tile.h"
#include "topk.h"

namespace {

class TopkCount : Topk {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR before, GM_ADDR next, uint32_t n,
                                uint32_t k, uint32_t last) {
        most = k, isLast = last != 0;
        Begin(g, e, before, n);
        after.SetGlobalBuffer((__gm__ int32_t *)next, size);
        pipe.InitBuffer(out, 2, TOPK_WIDTH * sizeof(int32_t));
    }

    __aicore__ inline void Process() {
        Narrow();
        int32_t found[TOPK_WIDTH] = {};
        for (uint64_t at = part.from; at < part.to; at += Count(at)) {
            Load(at);
            // At the end what is chosen in any case, and with what lies between both thresholds.
            for (uint32_t index = 0; index < TOPK_WIDTH; ++index)
                found[index] += CountFrom(!isLast ? Between(low, high, index) : index == 0 ? high : low);
        }
        const int32_t range[TOPK_WIDTH] = {low, high, most};
        Write(GetBlockIdx(), found);
        if (GetBlockIdx() == 0) Write(cores, range);
    }

  private:
    // What was counted falls as thresholds rise, so the first with few enough is the new upper end.
    __aicore__ inline void Narrow() {
        LocalTensor<int32_t> round = Round();
        const int32_t begin = low, end = high;
        if (end == 0) high = MOST + 1;
        for (uint32_t index = 0; index < TOPK_WIDTH && end != 0; ++index) {
            int32_t found = 0;
            for (uint32_t core = 0; core < cores; ++core) found += round.GetValue(core * TOPK_WIDTH + index);
            (found <= most ? high : low) = Between(begin, end, index);
            if (found <= most) break;
        }
        in.FreeTensor(round);
        // What has no magnitude is not chosen.
        if (isLast && low == 0) low = high;
    }

    // Rounded up, so that it is above 0.
    __aicore__ inline int32_t Between(int32_t begin, int32_t end, uint32_t index) const {
        return begin + int32_t((int64_t(end - begin) * (index + 1) + TOPK_WIDTH) / (TOPK_WIDTH + 1));
    }

    __aicore__ inline void Write(uint32_t row, const int32_t (&numbers)[TOPK_WIDTH]) {
        LocalTensor<int32_t> result = out.AllocTensor<int32_t>();
        for (uint32_t index = 0; index < TOPK_WIDTH; ++index) result.SetValue(index, numbers[index]);
        Await<HardEvent::S_V>();
        Store(out, result, after[row * TOPK_WIDTH], TOPK_WIDTH);
    }

    TQue<QuePosition::VECOUT, 2> out;
    GlobalTensor<int32_t> after;
    int32_t most;
    bool isLast;
};

class TopkChoose : Topk {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR last, GM_ADDR valueAddress, GM_ADDR indexAddress,
                                uint32_t n, uint32_t capacity) {
        Begin(g, e, last, n);
        values.SetGlobalBuffer((__gm__ float *)valueAddress, capacity);
        indices.SetGlobalBuffer((__gm__ int32_t *)indexAddress, capacity);
        pipe.InitBuffer(outValues, 1, TILE * sizeof(float));
        pipe.InitBuffer(outIndices, 1, TILE * sizeof(int32_t));
        pipe.InitBuffer(outError, 2, TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        uint64_t to = Share();
        for (uint64_t at = part.from; at < part.to; at += Count(at)) to += Choose(at, to);
    }

  private:
    // Where this core's elements go. Of what lies between both thresholds the first cores have theirs chosen first.
    __aicore__ inline uint64_t Share() {
        LocalTensor<int32_t> round = Round();
        int32_t left = round.GetValue(cores * TOPK_WIDTH + 2);
        for (uint32_t core = 0; core < cores; ++core) left -= round.GetValue(core * TOPK_WIDTH);
        uint64_t to = 0;
        for (uint32_t core = 0; core <= GetBlockIdx(); ++core) {
            const int32_t above = round.GetValue(core * TOPK_WIDTH);
            const int32_t between = round.GetValue(core * TOPK_WIDTH + 1) - above;
            more = between < left ? between : left;
            left -= more;
            if (core < GetBlockIdx()) to += (above + more + 7) / 8 * 8;
        }
        in.FreeTensor(round);
        return to;
    }

    // From which magnitude on the tile's elements are chosen. What is too much between both thresholds loses its own.
    __aicore__ inline int32_t Threshold() {
        if (more == 0) return high;
        const int32_t between = CountFrom(low) - CountFrom(high);
        if (between <= more) {
            more -= between;
            return low;
        }
        // The vector unit is done with what was counted.
        LocalTensor<int32_t> magnitude = magnitudes.Get<int32_t>();
        for (uint32_t index = 0; index < TILE; ++index) {
            const int32_t of = magnitude.GetValue(index);
            if (of < low || of >= high) continue;
            if (more == 0) magnitude.SetValue(index, 0);
            else --more;
        }
        Await<HardEvent::S_V>();
        return low;
    }

    __aicore__ inline uint32_t Choose(uint64_t at, uint64_t to) {
        const LocalTensor<float> u = Load(at), zeros = scratch.Get<float>();
        const int32_t threshold = Threshold();
        LocalTensor<float> value = outValues.AllocTensor<float>(), rest = outError.AllocTensor<float>();
        LocalTensor<int32_t> index = outIndices.AllocTensor<int32_t>(), places = scratch.Get<int32_t>();
        CreateVecIndex(places, int32_t(at), TILE);
        const uint32_t count = Pack(value, u, threshold);
        Pack(index, places, threshold);
        Store(outValues, value, values[to], count);
        Store(outIndices, index, indices[to], count);
        Duplicate(zeros, 0.0f, TILE);
        PipeBarrier<PIPE_V>();
        // What was not chosen, by the bits of what was.
        Select(rest, bits.Get<uint8_t>(), zeros, u, SELMODE::VSEL_TENSOR_TENSOR_MODE, TILE);
        Store(outError, rest, feedback.kept[at], Count(at));
        return count;
    }

    TQue<QuePosition::VECOUT, 1> outValues, outIndices;
    TQue<QuePosition::VECOUT, 2> outError;
    GlobalTensor<float> values;
    GlobalTensor<int32_t> indices;
    int32_t more;
};

}  // namespace

extern "C" __global__ __aicore__ void topk_threshold_count_float(GM_ADDR g, GM_ADDR e, GM_ADDR before, GM_ADDR after,
                                                                 uint32_t n, uint32_t k, uint32_t isLast) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<TopkCount>(g, e, before, after, n, k, isLast);
}
extern "C" __global__ __aicore__ void topk_threshold_choose_float(GM_ADDR g, GM_ADDR e, GM_ADDR round, GM_ADDR values,
                                                                  GM_ADDR indices, uint32_t n, uint32_t capacity) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<TopkChoose>(g, e, round, values, indices, n, capacity);
}

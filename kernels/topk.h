// What the kernels of topk_threshold.cpp share: the round before, the tiles of a core's part with their magnitudes, and
// the elements that reach a threshold.
#pragma once

#include "feedback.h"
#include "part.h"

// Thresholds of a round.
constexpr uint32_t TOPK_WIDTH = 8;

class Topk {
  protected:
    static constexpr uint32_t TILE = 4096;
    // The bits of infinity, which is the magnitude of what is no number.
    static constexpr int32_t MOST = 0x7f800000;

    __aicore__ inline void Begin(GM_ADDR g, GM_ADDR e, GM_ADDR before, uint32_t n) {
        part = PartOf(e, n, sizeof(float)), cores = GetBlockNum(), size = (cores + 1) * TOPK_WIDTH;
        GlobalTensor<int32_t> round;
        round.SetGlobalBuffer((__gm__ int32_t *)before, size);
        pipe.InitBuffer(in, 1, size * sizeof(int32_t));
        feedback.Init(pipe, g, g, e, n, 0, TILE);
        pipe.InitBuffer(magnitudes, TILE * sizeof(float));
        pipe.InitBuffer(scratch, TILE * sizeof(float));
        pipe.InitBuffer(bits, TILE / 8);
        Fetch(in, round, size);
        if (part.from < part.to) feedback.Begin(part.from, Count(part.from));
    }

    // The round and its range, for the scalar unit.
    __aicore__ inline LocalTensor<int32_t> Round() {
        LocalTensor<int32_t> round = in.DeQue<int32_t>();
        Await<HardEvent::V_S>();
        low = round.GetValue(cores * TOPK_WIDTH), high = round.GetValue(cores * TOPK_WIDTH + 1);
        return round;
    }

    // Elements of the tile that begins at an element.
    __aicore__ inline uint32_t Count(uint64_t at) const { return part.to - at < TILE ? part.to - at : TILE; }

    // u of the next tile, and its magnitudes, which are 0 beyond the part.
    __aicore__ inline LocalTensor<float> Load(uint64_t at) {
        const uint64_t next = at + Count(at);
        // The scalar unit waits for every count, so the next tile must be under way before.
        if (next < part.to) feedback.Begin(next, Count(next));
        const LocalTensor<float> u = feedback.Take(Count(at)), magnitude = magnitudes.Get<float>();
        Abs(magnitude, u, TILE);
        Compare(bits.Get<uint8_t>(), u, u, CMPMODE::EQ, TILE);
        PipeBarrier<PIPE_V>();
        Select(magnitude, bits.Get<uint8_t>(), magnitude, FloatOf(MOST), SELMODE::VSEL_TENSOR_SCALAR_MODE, TILE);
        return u;
    }

    // Packs those elements of a tile whose magnitude reaches a threshold, and says how many they are, `bits` which.
    template <class T>
    __aicore__ inline int32_t Pack(const LocalTensor<T> &to, const LocalTensor<T> &from, int32_t threshold) {
        uint64_t kept = 0;
        PipeBarrier<PIPE_V>();
        CompareScalar(bits.Get<uint8_t>(), magnitudes.Get<float>(), FloatOf(threshold), CMPMODE::GE, TILE);
        PipeBarrier<PIPE_V>();
        GatherMask(to, from, bits.Get<uint32_t>(), true, TILE, GatherMaskParams{1, 1, 0, 0}, kept);
        return kept;
    }

    __aicore__ inline int32_t CountFrom(int32_t threshold) {
        return Pack(scratch.Get<float>(), magnitudes.Get<float>(), threshold);
    }

    TPipe pipe;
    Feedback feedback;
    TQue<QuePosition::VECIN, 1> in;
    TBuf<TPosition::VECCALC> magnitudes, scratch, bits;
    Part part;
    uint32_t cores, size;
    // Thresholds are the bits of floats, as positive floats are ordered as their bits are.
    int32_t low, high;

  private:
    __aicore__ inline float FloatOf(int32_t threshold) const { return *reinterpret_cast<float *>(&threshold); }
};

// sign_compress: a gradient as its signs and one scale a chunk, what that leaves out kept for the next step; and the
// sum of peers'.
//
//   compress: u = g + e; scale = mean over the chunk of |u|; bit = u >= 0; e = u - (bit ? scale : -scale)
//   reduce:   y = factor * sum over peers p, in their order, of (bit_p ? scale_p : -scale_p)
//
// (Seide et al., "1-Bit Stochastic Gradient Descent", 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", 2019)
// Shapes: g, e, y [n], n from 0; a message is ceil(n / 4096) records of 544 bytes, one a chunk of 4,096 elements: the
// scale 8 times as float, then 4,096 bits, the lowest of a byte first. Bits beyond n are set. messages [peers], one
// after the other; peers from 1.
// Types: g, e, y float. |u| is added in float as a tree over halves of the chunk down to 64, then by pairs; its mean is
// rounded once.
// Tiling: a chunk. compress: two tiles each of g, e and the new e, two records, u and one more: 6 x 16,384 + 2 x 544 +
// 2 x 16,384 + 32 = 132,192 bytes of unified buffer; reduce: eight records, two tiles of y and three more: 4,352 + 5 x
// 16,384 = 86,272. Beyond them Select needs the last 8,192.
// Alignment: g at a multiple of 4 bytes, e, y and the messages of 32. A chunk is one core's.
// Overwritten: e and the message; y. Accumulated: e is read and then holds what was left out.
// Global memory: compress 8 bytes read and 4.13 written an element; reduce 0.13 read a peer and 4 written.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t SIGN_CHUNK = 4096, SIGN_HEADER = 32, SIGN_RECORD = SIGN_HEADER + SIGN_CHUNK / 8;

class SignCompress {
  public:
    __aicore__ inline void Init(GM_ADDR g, GM_ADDR e, GM_ADDR message, uint32_t elements) {
        n = elements, chunks = (uint64_t(n) + SIGN_CHUNK - 1) / SIGN_CHUNK;
        gradient.SetGlobalBuffer((__gm__ float *)g, n);
        error.SetGlobalBuffer((__gm__ float *)e, n);
        records.SetGlobalBuffer((__gm__ uint8_t *)message, uint64_t(chunks) * SIGN_RECORD);
        pipe.InitBuffer(inGradient, 2, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(inError, 2, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(outError, 2, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(outRecord, 2, SIGN_RECORD);
        pipe.InitBuffer(sums, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(scratch, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(total, 32);
    }

    __aicore__ inline void Process() {
        for (uint32_t chunk = GetBlockIdx(); chunk < chunks; chunk += GetBlockNum()) {
            const uint64_t at = uint64_t(chunk) * SIGN_CHUNK;
            const uint32_t count = n - at < SIGN_CHUNK ? n - at : SIGN_CHUNK;
            CopyIn(at, count);
            AddError(count);
            Compress(count);
            CopyOut(chunk, at, count);
        }
    }

  private:
    __aicore__ inline void CopyIn(uint64_t at, uint32_t count) {
        const DataCopyExtParams copy{1, uint32_t(count * sizeof(float)), 0, 0, 0};
        const DataCopyPadExtParams<float> noPadding{false, 0, 0, 0.0f};
        LocalTensor<float> g = inGradient.AllocTensor<float>(), e = inError.AllocTensor<float>();
        DataCopyPad(g, gradient[at], copy, noPadding);
        DataCopyPad(e, error[at], copy, noPadding);
        inGradient.EnQue(g);
        inError.EnQue(e);
    }

    // Beyond the end u is 0, which adds nothing and sets its bit.
    __aicore__ inline void AddError(uint32_t count) {
        LocalTensor<float> u = sums.Get<float>(), g = inGradient.DeQue<float>(), e = inError.DeQue<float>();
        if (count < SIGN_CHUNK) Duplicate(u, 0.0f, SIGN_CHUNK);
        PipeBarrier<PIPE_V>();
        Add(u, g, e, count);
        inGradient.FreeTensor(g);
        inError.FreeTensor(e);
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline float Mean(uint32_t count) {
        LocalTensor<float> magnitude = scratch.Get<float>(), sum = total.Get<float>();
        Abs(magnitude, sums.Get<float>(), SIGN_CHUNK);
        for (uint32_t half = SIGN_CHUNK / 2; half >= 64; half /= 2) {
            PipeBarrier<PIPE_V>();
            Add(magnitude, magnitude, magnitude[half], half);
        }
        PipeBarrier<PIPE_V>();
        WholeReduceSum(sum, magnitude, 64, 1, 1, 1, 8);
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        const float mean = sum.GetValue(0) / count;
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        return mean;
    }

    __aicore__ inline void Compress(uint32_t count) {
        LocalTensor<float> u = sums.Get<float>(), step = scratch.Get<float>();
        LocalTensor<uint8_t> record = outRecord.AllocTensor<uint8_t>();
        CompareScalar(record[SIGN_HEADER], u, 0.0f, CMPMODE::GE, SIGN_CHUNK);
        const float scale = Mean(count);
        Duplicate(record.ReinterpretCast<float>(), scale, SIGN_HEADER / sizeof(float));
        Duplicate(step, scale, SIGN_CHUNK);
        PipeBarrier<PIPE_V>();
        Select(step, record[SIGN_HEADER], step, -scale, SELMODE::VSEL_TENSOR_SCALAR_MODE, SIGN_CHUNK);
        LocalTensor<float> e = outError.AllocTensor<float>();
        PipeBarrier<PIPE_V>();
        Sub(e, u, step, count);
        outRecord.EnQue(record);
        outError.EnQue(e);
    }

    __aicore__ inline void CopyOut(uint32_t chunk, uint64_t at, uint32_t count) {
        LocalTensor<uint8_t> record = outRecord.DeQue<uint8_t>();
        LocalTensor<float> e = outError.DeQue<float>();
        DataCopy(records[uint64_t(chunk) * SIGN_RECORD], record, SIGN_RECORD);
        DataCopyPad(error[at], e, DataCopyExtParams{1, uint32_t(count * sizeof(float)), 0, 0, 0});
        outRecord.FreeTensor(record);
        outError.FreeTensor(e);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> inGradient, inError;
    TQue<QuePosition::VECOUT, 2> outError, outRecord;
    TBuf<TPosition::VECCALC> sums, scratch, total;
    GlobalTensor<float> gradient, error;
    GlobalTensor<uint8_t> records;
    uint32_t n, chunks;
};

class SignReduce {
  public:
    __aicore__ inline void Init(GM_ADDR messages, GM_ADDR result, uint32_t peerCount, float scaleOfSum,
                                uint32_t elements) {
        n = elements, peers = peerCount, factor = scaleOfSum, chunks = (uint64_t(n) + SIGN_CHUNK - 1) / SIGN_CHUNK;
        records.SetGlobalBuffer((__gm__ uint8_t *)messages, uint64_t(peers) * chunks * SIGN_RECORD);
        y.SetGlobalBuffer((__gm__ float *)result, n);
        pipe.InitBuffer(in, 8, SIGN_RECORD);
        pipe.InitBuffer(out, 2, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(ones, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(signs, SIGN_CHUNK * sizeof(float));
        pipe.InitBuffer(sums, SIGN_CHUNK * sizeof(float));
    }

    __aicore__ inline void Process() {
        Duplicate(ones.Get<float>(), 1.0f, SIGN_CHUNK);
        for (uint32_t chunk = GetBlockIdx(); chunk < chunks; chunk += GetBlockNum()) {
            // As many of the peers' records are under way as there are buffers.
            for (uint32_t peer = 0; peer < peers + 7; ++peer) {
                if (peer < peers) CopyIn(uint64_t(peer) * chunks + chunk);
                if (peer >= 7) AddPeer(peer == 7);
            }
            CopyOut(uint64_t(chunk) * SIGN_CHUNK);
        }
    }

  private:
    __aicore__ inline void CopyIn(uint64_t number) {
        LocalTensor<uint8_t> record = in.AllocTensor<uint8_t>();
        DataCopy(record, records[number * SIGN_RECORD], SIGN_RECORD);
        in.EnQue(record);
    }

    __aicore__ inline void AddPeer(bool isFirst) {
        LocalTensor<float> sign = signs.Get<float>();
        LocalTensor<uint8_t> record = in.DeQue<uint8_t>();
        SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
        const float scale = record.ReinterpretCast<float>().GetValue(0);
        PipeBarrier<PIPE_V>();
        Select(sign, record[SIGN_HEADER], ones.Get<float>(), -1.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, SIGN_CHUNK);
        PipeBarrier<PIPE_V>();
        if (isFirst) Muls(sums.Get<float>(), sign, scale, SIGN_CHUNK);
        else Axpy(sums.Get<float>(), sign, scale, SIGN_CHUNK);
        // The buffer may be filled again only after it was read here too.
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        in.FreeTensor(record);
    }

    __aicore__ inline void CopyOut(uint64_t at) {
        const uint32_t count = n - at < SIGN_CHUNK ? n - at : SIGN_CHUNK;
        LocalTensor<float> result = out.AllocTensor<float>();
        PipeBarrier<PIPE_V>();
        Muls(result, sums.Get<float>(), factor, count);
        out.EnQue(result);
        result = out.DeQue<float>();
        DataCopyPad(y[at], result, DataCopyExtParams{1, uint32_t(count * sizeof(float)), 0, 0, 0});
        out.FreeTensor(result);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 8> in;
    TQue<QuePosition::VECOUT, 2> out;
    TBuf<TPosition::VECCALC> ones, signs, sums;
    GlobalTensor<uint8_t> records;
    GlobalTensor<float> y;
    uint32_t n, peers, chunks;
    float factor;
};

}  // namespace

extern "C" __global__ __aicore__ void sign_compress(GM_ADDR g, GM_ADDR e, GM_ADDR message, uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    SignCompress kernel;
    kernel.Init(g, e, message, n);
    kernel.Process();
}
extern "C" __global__ __aicore__ void sign_reduce(GM_ADDR messages, GM_ADDR y, uint32_t peers, float factor,
                                                  uint32_t n) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    SignReduce kernel;
    kernel.Init(messages, y, peers, factor, n);
    kernel.Process();
}

// vocab_ce: softmax cross entropy, and the arg-max, of logits whose vocabulary is cut over cards; one pass each way.
//
//   forward:  record[r] = { m = max_v x[r][v], sum_v exp(x[r][v] - m), x[r][label], arg-max }
//   backward: x[r][v] = (exp(x[r][v] - m[r]) / s[r] - [v is the label]) * g[r]
//
// Between them the cards exchange the records: with M the largest m, s = sum over cards of their sum * exp(m - M), the
// loss is log(s) + M - label's logit, and the arg-max is that of the card with the largest m.
// Shapes: logits [rows, vocab], this card's part of the vocabulary, which begins at token `first`; labels [rows],
// tokens of the whole vocabulary; record [rows, 8] of which the first four are as above, the arg-max as the bits of an
// int32_t (a token of the whole vocabulary, the lowest of equals), the others 0; scales [rows, 8] = { m, s, g }, the
// others ignored. The label's logit is 0 on cards without it. An empty vocabulary gives { -FLT_MAX, 0, 0, -1 }.
// Types: logits float, bfloat16_t or half; labels int32_t; records and scales float. Everything is computed in float;
// the sum is kept in 64 lanes, each with the largest it has met. Logits are finite or -infinity, at least one in a row
// finite.
// Tiling: 4,096 elements. Forward: two tiles, one and a half in float, 3 rows of 64 lanes and two of 8, 576 bytes of
// work of ReduceMax, two records; backward: two tiles in, two out, one in float:
//   forward float 58,848 + 8 x (1 + tiles of a row), backward float 81,920 bytes of unified buffer.
// Alignment: logits and labels at multiples of their element, record and scales of 32 bytes. Forward, a core has whole
// rows; backward, the parts of cores meet at borders of 32 bytes of the logits, wherever rows end.
// Overwritten: record; backward, the logits. Accumulated: nothing.
// Global memory: forward an element read, backward one read and one written an element.
#include "kernel_operator.h"
#include "part.h"

namespace {

constexpr uint32_t VOCAB_CE_TILE = 4096, VOCAB_CE_LANES = 64, VOCAB_CE_RECORD = 8;
// Elements that ReduceMax with an index needs for itself for a tile of floats: 128, 8 and 8.
constexpr uint32_t VOCAB_CE_WORK = 144;
constexpr float VOCAB_CE_LOWEST = -3.4028234663852886e38f;

template <class T>
class VocabCeForward {
  public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR labelAddress, GM_ADDR record, uint32_t rowCount, uint32_t vocabulary,
                                uint32_t firstToken) {
        rows = rowCount, vocab = vocabulary, first = firstToken;
        tiles = (vocab + VOCAB_CE_TILE - 1) / VOCAB_CE_TILE;
        logits.SetGlobalBuffer((__gm__ T *)x, uint64_t(rows) * vocab);
        labels.SetGlobalBuffer((__gm__ int32_t *)labelAddress, rows);
        records.SetGlobalBuffer((__gm__ float *)record, uint64_t(rows) * VOCAB_CE_RECORD);
        pipe.InitBuffer(in, 2, VOCAB_CE_TILE * sizeof(T));
        pipe.InitBuffer(picked, 1, 32);
        pipe.InitBuffer(out, 2, VOCAB_CE_RECORD * sizeof(float));
        pipe.InitBuffer(wide, VOCAB_CE_TILE * sizeof(float));
        pipe.InitBuffer(folded, VOCAB_CE_TILE / 2 * sizeof(float));
        pipe.InitBuffer(lanes, (3 * VOCAB_CE_LANES + 16) * sizeof(float));
        pipe.InitBuffer(work, VOCAB_CE_WORK * sizeof(float));
        pipe.InitBuffer(best, (tiles + 1) * 2 * sizeof(float));
    }

    __aicore__ inline void Process() {
        const uint32_t cores = GetBlockNum(), each = (rows + cores - 1) / cores, from = each * GetBlockIdx();
        for (uint32_t row = from; row < from + each && row < rows; ++row) Row(row);
    }

  private:
    __aicore__ inline void Row(uint32_t row) {
        LocalTensor<float> all = lanes.Get<float>();
        largest = all, sum = all[VOCAB_CE_LANES], next = all[2 * VOCAB_CE_LANES], one = all[3 * VOCAB_CE_LANES],
        total = all[3 * VOCAB_CE_LANES + 8];
        Duplicate(largest, VOCAB_CE_LOWEST, VOCAB_CE_LANES);
        Duplicate(sum, 0.0f, VOCAB_CE_LANES);
        Duplicate(one, 0.0f, 8);
        const int64_t label = int64_t(labels.GetValue(row)) - first;
        const bool hasLabel = label >= 0 && label < vocab;
        if (hasLabel) Pick(uint64_t(row) * vocab + label);
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            const uint32_t at = tile * VOCAB_CE_TILE, count = vocab - at < VOCAB_CE_TILE ? vocab - at : VOCAB_CE_TILE;
            CopyIn(uint64_t(row) * vocab + at, count);
            Widen(count);
            Tally(tile, count);
        }
        Finish(row);
    }

    __aicore__ inline void Pick(uint64_t at) {
        LocalTensor<T> tile = picked.template AllocTensor<T>();
        DataCopyPad(tile, logits[at], DataCopyExtParams{1, sizeof(T), 0, 0, 0},
                    DataCopyPadExtParams<T>{false, 0, 0, T{}});
        picked.EnQue(tile);
        tile = picked.template DeQue<T>();
        PipeBarrier<PIPE_V>();
        if constexpr (sizeof(T) == sizeof(float)) Muls(one, tile, 1.0f, 1);
        else Cast(one, tile, RoundMode::CAST_NONE, 1);
        picked.FreeTensor(tile);
    }

    __aicore__ inline void CopyIn(uint64_t at, uint32_t count) {
        LocalTensor<T> tile = in.template AllocTensor<T>();
        DataCopyPad(tile, logits[at], DataCopyExtParams{1, uint32_t(count * sizeof(T)), 0, 0, 0},
                    DataCopyPadExtParams<T>{false, 0, 0, T{}});
        in.EnQue(tile);
    }

    __aicore__ inline void Widen(uint32_t count) {
        LocalTensor<float> values = wide.Get<float>();
        LocalTensor<T> tile = in.template DeQue<T>();
        if (count < VOCAB_CE_TILE) Duplicate(values, VOCAB_CE_LOWEST, VOCAB_CE_TILE);
        PipeBarrier<PIPE_V>();
        if constexpr (sizeof(T) == sizeof(float)) Muls(values, tile, 1.0f, count);
        else Cast(values, tile, RoundMode::CAST_NONE, count);
        in.FreeTensor(tile);
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Tally(uint32_t tile, uint32_t count) {
        LocalTensor<float> values = wide.Get<float>(), fold = folded.Get<float>();
        ReduceMax(best.Get<float>()[2 * tile], values, work.Get<float>(), count, true);
        Max(fold, values, values[VOCAB_CE_TILE / 2], VOCAB_CE_TILE / 2);
        for (uint32_t half = VOCAB_CE_TILE / 4; half >= VOCAB_CE_LANES; half /= 2) {
            PipeBarrier<PIPE_V>();
            Max(fold, fold, fold[half], half);
        }
        PipeBarrier<PIPE_V>();
        Max(next, largest, fold, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        // Each repeat of 64 less the same 64 lanes. What was summed so far was less the old ones.
        Sub(values, values, next, VOCAB_CE_LANES, VOCAB_CE_TILE / VOCAB_CE_LANES, BinaryRepeatParams{1, 1, 1, 8, 8, 0});
        Sub(largest, largest, next, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        Exp(values, values, VOCAB_CE_TILE);
        Exp(largest, largest, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        Mul(sum, sum, largest, VOCAB_CE_LANES);
        for (uint32_t half = VOCAB_CE_TILE / 2; half >= VOCAB_CE_LANES; half /= 2) {
            Add(values, values, values[half], half);
            PipeBarrier<PIPE_V>();
        }
        Add(sum, sum, values, VOCAB_CE_LANES);
        Muls(largest, next, 1.0f, VOCAB_CE_LANES);
    }

    __aicore__ inline void Finish(uint32_t row) {
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        LocalTensor<float> maxima = best.Get<float>();
        LocalTensor<int32_t> places = maxima.ReinterpretCast<int32_t>();
        float maximum = VOCAB_CE_LOWEST;
        int32_t token = -1;
        for (uint32_t tile = 0; tile < tiles; ++tile) {
            const float value = maxima.GetValue(2 * tile);
            if (token >= 0 && value <= maximum) continue;
            maximum = value;
            token = int32_t(first + tile * VOCAB_CE_TILE) + places.GetValue(2 * tile + 1);
        }
        Adds(largest, largest, -maximum, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        Exp(largest, largest, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        Mul(sum, sum, largest, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        WholeReduceSum(total, sum, VOCAB_CE_LANES, 1, 1, 1, 8);
        LocalTensor<float> record = out.AllocTensor<float>();
        Duplicate(record, 0.0f, VOCAB_CE_RECORD);
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        record.SetValue(0, maximum);
        record.SetValue(1, total.GetValue(0));
        record.SetValue(2, one.GetValue(0));
        record.ReinterpretCast<int32_t>().SetValue(3, token);
        // The vector unit goes on with the next row only after what was read here.
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
        out.EnQue(record);
        record = out.DeQue<float>();
        DataCopy(records[uint64_t(row) * VOCAB_CE_RECORD], record, VOCAB_CE_RECORD);
        out.FreeTensor(record);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECIN, 1> picked;
    TQue<QuePosition::VECOUT, 2> out;
    TBuf<TPosition::VECCALC> wide, folded, lanes, work, best;
    LocalTensor<float> largest, sum, next, one, total;
    GlobalTensor<T> logits;
    GlobalTensor<int32_t> labels;
    GlobalTensor<float> records;
    uint32_t rows, vocab, first, tiles;
};

template <class T>
class VocabCeBackward {
  public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR labelAddress, GM_ADDR scaleAddress, uint32_t rows,
                                uint32_t vocabulary, uint32_t firstToken) {
        vocab = vocabulary, first = firstToken;
        part = PartOf(x, uint64_t(rows) * vocab, sizeof(T));
        logits.SetGlobalBuffer((__gm__ T *)x, uint64_t(rows) * vocab);
        labels.SetGlobalBuffer((__gm__ int32_t *)labelAddress, rows);
        scales.SetGlobalBuffer((__gm__ float *)scaleAddress, uint64_t(rows) * VOCAB_CE_RECORD);
        pipe.InitBuffer(in, 2, VOCAB_CE_TILE * sizeof(T));
        pipe.InitBuffer(out, 2, VOCAB_CE_TILE * sizeof(T));
        pipe.InitBuffer(wide, VOCAB_CE_TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        for (uint64_t at = part.from; at < part.to;) {
            const uint32_t row = at / vocab, column = at % vocab;
            uint64_t count = vocab - column;
            if (count > VOCAB_CE_TILE) count = VOCAB_CE_TILE;
            if (count > part.to - at) count = part.to - at;
            Tile(at, row, column, count);
            at += count;
        }
    }

  private:
    __aicore__ inline void Tile(uint64_t at, uint32_t row, uint32_t column, uint32_t count) {
        LocalTensor<T> tile = in.template AllocTensor<T>();
        DataCopyPad(tile, logits[at], DataCopyExtParams{1, uint32_t(count * sizeof(T)), 0, 0, 0},
                    DataCopyPadExtParams<T>{false, 0, 0, T{}});
        in.EnQue(tile);
        const uint64_t scale = uint64_t(row) * VOCAB_CE_RECORD;
        const float maximum = scales.GetValue(scale), sum = scales.GetValue(scale + 1),
                    gradient = scales.GetValue(scale + 2);
        const int64_t label = int64_t(labels.GetValue(row)) - first - column;
        LocalTensor<float> values = wide.Get<float>();
        tile = in.template DeQue<T>();
        if constexpr (sizeof(T) == sizeof(float)) {
            Adds(values, tile, -maximum, count);
        } else {
            Cast(values, tile, RoundMode::CAST_NONE, count);
            PipeBarrier<PIPE_V>();
            Adds(values, values, -maximum, count);
        }
        in.FreeTensor(tile);
        PipeBarrier<PIPE_V>();
        Exp(values, values, count);
        PipeBarrier<PIPE_V>();
        Muls(values, values, gradient / sum, count);
        if (label >= 0 && label < count) TakeLabel(values, label, gradient);
        LocalTensor<T> result = out.template AllocTensor<T>();
        PipeBarrier<PIPE_V>();
        if constexpr (sizeof(T) == sizeof(float)) Muls(result, values, 1.0f, count);
        else Cast(result, values, RoundMode::CAST_RINT, count);
        out.EnQue(result);
        result = out.template DeQue<T>();
        DataCopyPad(logits[at], result, DataCopyExtParams{1, uint32_t(count * sizeof(T)), 0, 0, 0});
        out.FreeTensor(result);
    }

    __aicore__ inline void TakeLabel(const LocalTensor<float> &values, uint32_t label, float gradient) {
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        values.SetValue(label, values.GetValue(label) - gradient);
        SetFlag<HardEvent::S_V>(EVENT_ID0);
        WaitFlag<HardEvent::S_V>(EVENT_ID0);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    TBuf<TPosition::VECCALC> wide;
    GlobalTensor<T> logits;
    GlobalTensor<int32_t> labels;
    GlobalTensor<float> scales;
    uint32_t vocab, first;
    Part part;
};

template <template <class> class Kernel, class T>
__aicore__ inline void RunVocabCe(GM_ADDR x, GM_ADDR labels, GM_ADDR rowData, uint32_t rows, uint32_t vocab,
                                  uint32_t first) {
    Kernel<T> kernel;
    kernel.Init(x, labels, rowData, rows, vocab, first);
    kernel.Process();
}

}  // namespace

#define VOCAB_CE_ENTRY(name, kernel, type)                                                                \
    extern "C" __global__ __aicore__ void name(GM_ADDR x, GM_ADDR labels, GM_ADDR rowData, uint32_t rows, \
                                               uint32_t vocab, uint32_t first) {                          \
        KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);                                                   \
        RunVocabCe<kernel, type>(x, labels, rowData, rows, vocab, first);                                 \
    }
VOCAB_CE_ENTRY(vocab_ce_forward_float, VocabCeForward, float)
VOCAB_CE_ENTRY(vocab_ce_forward_bfloat16, VocabCeForward, bfloat16_t)
VOCAB_CE_ENTRY(vocab_ce_forward_half, VocabCeForward, half)
VOCAB_CE_ENTRY(vocab_ce_backward_float, VocabCeBackward, float)
VOCAB_CE_ENTRY(vocab_ce_backward_bfloat16, VocabCeBackward, bfloat16_t)
VOCAB_CE_ENTRY(vocab_ce_backward_half, VocabCeBackward, half)

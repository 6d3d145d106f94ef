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
// the sum is kept in 64 lanes, less the largest element met so far. Logits are finite or -infinity, at least one in a
// row finite.
// Tiling: 4,096 elements. Forward: two tiles, one in float, 64 lanes and as many for a factor, the largest and its
// place, 576 bytes of work of ReduceMax, two records; backward: two tiles in, two out, one in float:
//   forward float 50,336, backward float 81,920 bytes of unified buffer.
// Alignment: logits and labels at multiples of their element, record and scales of 32 bytes. Forward, a core has whole
// rows; backward, the parts of cores meet at borders of 32 bytes of the logits, wherever rows end.
// Overwritten: record; backward, the logits. Accumulated: nothing.
// Global memory: forward an element read, backward one read and one written an element.
#include "kernel_operator.h"
#include "part.h"
#include "tile.h"

namespace {

constexpr uint32_t VOCAB_CE_TILE = 4096, VOCAB_CE_LANES = 64, VOCAB_CE_RECORD = 8;
// Elements that ReduceMax with an index needs for itself for a tile of floats: 128, 8 and 8.
constexpr uint32_t VOCAB_CE_WORK = 144;
constexpr float VOCAB_CE_LOWEST = -3.4028234663852886e38f;

template <class T>
class VocabCe {
  public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR labelAddress, GM_ADDR data, uint32_t rowCount, uint32_t vocabulary,
                                uint32_t firstToken) {
        rows = rowCount, vocab = vocabulary, first = firstToken;
        part = PartOf(x, uint64_t(rows) * vocab, sizeof(T));
        logits.SetGlobalBuffer((__gm__ T *)x, uint64_t(rows) * vocab);
        labels.SetGlobalBuffer((__gm__ int32_t *)labelAddress, rows);
        rowData.SetGlobalBuffer((__gm__ float *)data, uint64_t(rows) * VOCAB_CE_RECORD);
        pipe.InitBuffer(in, 2, VOCAB_CE_TILE * sizeof(T));
        pipe.InitBuffer(wide, VOCAB_CE_TILE * sizeof(float));
    }

    __aicore__ inline void Forward() {
        pipe.InitBuffer(out, 2, VOCAB_CE_RECORD * sizeof(float));
        pipe.InitBuffer(lanes, 2 * VOCAB_CE_LANES * sizeof(float));
        pipe.InitBuffer(work, VOCAB_CE_WORK * sizeof(float));
        pipe.InitBuffer(best, 32);
        const uint32_t cores = GetBlockNum(), each = (rows + cores - 1) / cores, from = each * GetBlockIdx();
        end = from + each < rows ? from + each : rows;
        if (vocab != 0 && from < end) Begin(from, 0);
        for (uint32_t row = from; row < end; ++row) Row(row);
    }

    __aicore__ inline void Backward() {
        pipe.InitBuffer(out, 2, VOCAB_CE_TILE * sizeof(T));
        for (uint64_t at = part.from; at < part.to;) {
            const uint64_t left = part.to - at;
            const uint32_t column = at % vocab, most = Count(column), count = left < most ? left : most;
            Tile(at, at / vocab, column, count);
            at += count;
        }
    }

  private:
    __aicore__ inline uint32_t Count(uint32_t column) const {
        return vocab - column < VOCAB_CE_TILE ? vocab - column : VOCAB_CE_TILE;
    }

    __aicore__ inline void Begin(uint32_t row, uint32_t column) {
        Fetch(in, logits[uint64_t(row) * vocab + column], Count(column));
    }

    // The tile that was begun first, behind a barrier; beyond its end there are no powers.
    __aicore__ inline LocalTensor<float> Take(uint32_t count) {
        LocalTensor<float> values = wide.Get<float>();
        LocalTensor<T> tile = in.template DeQue<T>();
        if (count < VOCAB_CE_TILE) Duplicate(values, VOCAB_CE_LOWEST, VOCAB_CE_TILE);
        PipeBarrier<PIPE_V>();
        Widen(values, tile, count);
        in.FreeTensor(tile);
        PipeBarrier<PIPE_V>();
        return values;
    }

    __aicore__ inline void Row(uint32_t row) {
        maximum = VOCAB_CE_LOWEST, chosen = 0.0f, token = -1, label = int64_t(labels.GetValue(row)) - first;
        Duplicate(lanes.Get<float>(), 0.0f, VOCAB_CE_LANES);
        for (uint32_t at = 0; at < vocab; at += VOCAB_CE_TILE) {
            // The scalar unit waits for what is largest, so the next tile must be under way before.
            if (vocab - at > VOCAB_CE_TILE) Begin(row, at + VOCAB_CE_TILE);
            else if (row + 1 < end) Begin(row + 1, 0);
            Tally(at, Count(at));
        }
        Finish(row);
    }

    // What was summed so far was less the largest before.
    __aicore__ inline void Tally(uint32_t at, uint32_t count) {
        const LocalTensor<float> values = Take(count), sum = lanes.Get<float>(), factor = sum[VOCAB_CE_LANES];
        ReduceMax(best.Get<float>(), values, work.Get<float>(), count, true);
        Await<HardEvent::V_S>();
        const float before = maximum, largest = best.Get<float>().GetValue(0);
        if (token < 0 || largest > maximum) token = int32_t(first + at) + best.Get<int32_t>().GetValue(1);
        if (largest > maximum) maximum = largest;
        if (label >= at && label < at + count) chosen = values.GetValue(label - at);
        Await<HardEvent::S_V>();
        Adds(values, values, -maximum, VOCAB_CE_TILE);
        Duplicate(factor, before - maximum, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        Exp(values, values, VOCAB_CE_TILE);
        Exp(factor, factor, VOCAB_CE_LANES);
        PipeBarrier<PIPE_V>();
        Mul(sum, sum, factor, VOCAB_CE_LANES);
        for (uint32_t half = VOCAB_CE_TILE / 2; half >= VOCAB_CE_LANES; half /= 2) {
            Add(values, values, values[half], half);
            PipeBarrier<PIPE_V>();
        }
        Add(sum, sum, values, VOCAB_CE_LANES);
    }

    __aicore__ inline void Finish(uint32_t row) {
        LocalTensor<float> record = out.template AllocTensor<float>();
        Duplicate(record, 0.0f, VOCAB_CE_RECORD);
        PipeBarrier<PIPE_V>();
        WholeReduceSum(record[1], lanes.Get<float>(), VOCAB_CE_LANES, 1, 1, 1, 8);
        Await<HardEvent::V_S>();
        record.SetValue(0, maximum);
        record.SetValue(2, chosen);
        record.template ReinterpretCast<int32_t>().SetValue(3, token);
        Await<HardEvent::S_V>();
        Store(out, record, rowData[uint64_t(row) * VOCAB_CE_RECORD], VOCAB_CE_RECORD);
    }

    __aicore__ inline void Tile(uint64_t at, uint32_t row, uint32_t column, uint32_t count) {
        Fetch(in, logits[at], count);
        const uint64_t scale = uint64_t(row) * VOCAB_CE_RECORD;
        const float most = rowData.GetValue(scale), all = rowData.GetValue(scale + 1),
                    gradient = rowData.GetValue(scale + 2);
        label = int64_t(labels.GetValue(row)) - first - column;
        const LocalTensor<float> values = Take(count);
        Adds(values, values, -most, count);
        PipeBarrier<PIPE_V>();
        Exp(values, values, count);
        PipeBarrier<PIPE_V>();
        Muls(values, values, gradient / all, count);
        if (label >= 0 && label < count) {
            Await<HardEvent::V_S>();
            values.SetValue(label, values.GetValue(label) - gradient);
            Await<HardEvent::S_V>();
        }
        LocalTensor<T> result = out.template AllocTensor<T>();
        PipeBarrier<PIPE_V>();
        Narrow(result, values, count);
        Store(out, result, logits[at], count);
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    TBuf<TPosition::VECCALC> wide, lanes, work, best;
    GlobalTensor<T> logits;
    GlobalTensor<int32_t> labels;
    GlobalTensor<float> rowData;
    Part part;
    uint32_t rows, vocab, first, end;
    int64_t label;
    float maximum, chosen;
    int32_t token;
};

}  // namespace

#define VOCAB_CE_ENTRY(name, type, way)                                                                   \
    extern "C" __global__ __aicore__ void name(GM_ADDR x, GM_ADDR labels, GM_ADDR rowData, uint32_t rows, \
                                               uint32_t vocab, uint32_t first) {                          \
        KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);                                                   \
        VocabCe<type> kernel;                                                                             \
        kernel.Init(x, labels, rowData, rows, vocab, first);                                              \
        kernel.way();                                                                                     \
    }
VOCAB_CE_ENTRY(vocab_ce_forward_float, float, Forward)
VOCAB_CE_ENTRY(vocab_ce_forward_bfloat16, bfloat16_t, Forward)
VOCAB_CE_ENTRY(vocab_ce_forward_half, half, Forward)
VOCAB_CE_ENTRY(vocab_ce_backward_float, float, Backward)
VOCAB_CE_ENTRY(vocab_ce_backward_bfloat16, bfloat16_t, Backward)
VOCAB_CE_ENTRY(vocab_ce_backward_half, half, Backward)

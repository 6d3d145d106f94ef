// sign_compress: what a card says to others of a sum in one bit an element, what that leaves out kept for the next
// time; and the sum of what cards said.
//
//   compress: u = whole / parts + x + kept; in each row: bit = u >= 0, scale = mean of |u|;
//             kept = u - (bit ? scale : -scale), but u in the records of this card's own share, whose scales are 0
//   reduce:   y = sum over cards, in their order, of (bit ? scale : -scale)
//
// (Seide et al., "1-Bit Stochastic Gradient Descent", 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", 2019)
// Shapes: x, whole, kept, y [n], n from 0. A record of 1,056 bytes is of 8 rows of 1,024 elements: their bits, the
// lowest of a byte first, and behind them 8 scales as float; records [at least ceil(n / 8192)], of which `share` are the
// card's own from own * share on, if there are as many. Bits beyond n are set. Without parts there is no `whole`.
// reduce: records [cards, share], cards from 1.
// Types: float. |u| is added by pairs of neighbours, 64 and then 16; the mean is the sum times 1 / elements, rounded.
// Tiling: two rows. compress: two tiles each of x, whole, kept and the new kept, two records, u, ones and one more:
// 11 x 8,192 + 2 x 1,056 + 416 = 92,640 bytes of unified buffer; reduce: four records, two of y, ones and one more:
// 4,224 + 2 x 32,768 + 2 x 8,192 + 256 = 86,400. Beyond them Select needs the last 8,192.
// Alignment: x and whole at multiples of 4 bytes, kept, y and records of 32. A record is one core's.
// Overwritten: records; y. Accumulated: kept is read and then holds what was left out.
// Global memory: compress 8 bytes read and 4.13 written an element, 4 more read with `whole`; reduce 0.13 read a card
// and 4 written.
#include "feedback.h"
#include "kernel_operator.h"
#include "tile.h"

namespace {

constexpr uint32_t SIGN_ROW = 1024, SIGN_ROWS = 8, SIGN_TILE = 2 * SIGN_ROW, SIGN_ELEMENTS = SIGN_ROWS * SIGN_ROW;
constexpr uint32_t SIGN_SCALES = SIGN_ELEMENTS / 8, SIGN_BYTES = SIGN_SCALES + SIGN_ROWS * sizeof(float);

// What a record says.
class SignHear {
  public:
    __aicore__ inline void Init(TPipe &pipe) {
        pipe.InitBuffer(ones, SIGN_TILE * sizeof(float));
        pipe.InitBuffer(signs, SIGN_TILE * sizeof(float));
        pipe.InitBuffer(blocks, SIGN_ROWS * 32);
        Duplicate(ones.Get<float>(), 1.0f, SIGN_TILE);
    }

    // Of the tile from an element of the record on, instead of `y` or added to it.
    __aicore__ inline void Tile(const LocalTensor<float> &y, const LocalTensor<uint8_t> &record, uint32_t from,
                                bool isAdded) {
        const LocalTensor<float> sign = isAdded ? signs.Get<float>() : y, scale = blocks.Get<float>();
        PipeBarrier<PIPE_V>();
        Select(sign, record[from / 8], ones.Get<float>(), -1.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, SIGN_TILE);
        Brcb(scale, record[SIGN_SCALES].ReinterpretCast<float>(), 1, BrcbRepeatParams{1, 8});
        PipeBarrier<PIPE_V>();
        // All elements of a row with the block of its scale.
        const BinaryRepeatParams byScale = BinaryRepeatParams{1, 1, 0, 8, 8, 0};
        for (uint32_t at = 0; at < SIGN_TILE; at += SIGN_ROW) {
            const LocalTensor<float> block = scale[(from + at) / SIGN_ROW * 8];
            if (isAdded) MulAddDst(y[at], sign[at], block, 64, SIGN_ROW / 64, byScale);
            else Mul(y[at], sign[at], block, 64, SIGN_ROW / 64, byScale);
        }
    }

    TBuf<TPosition::VECCALC> ones, signs, blocks;
};

class SignCompress {
  public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR whole, GM_ADDR kept, GM_ADDR recordAddress, uint32_t n,
                                uint32_t recordCount, uint32_t share, uint32_t own, uint32_t parts) {
        elements = n, count = recordCount, ownFrom = share * own, ownTo = ownFrom + share;
        records.SetGlobalBuffer((__gm__ uint8_t *)recordAddress, uint64_t(count) * SIGN_BYTES);
        feedback.Init(pipe, x, whole, kept, n, parts, SIGN_TILE);
        hear.Init(pipe);
        pipe.InitBuffer(out, 2, SIGN_TILE * sizeof(float));
        pipe.InitBuffer(outRecord, 2, SIGN_BYTES);
        pipe.InitBuffer(sums, (SIGN_TILE / 64 + SIGN_ROWS) * sizeof(float));
    }

    __aicore__ inline void Process() {
        for (uint32_t record = GetBlockIdx(); record < count; record += GetBlockNum()) {
            LocalTensor<uint8_t> said = outRecord.AllocTensor<uint8_t>();
            Duplicate(said[SIGN_SCALES].ReinterpretCast<float>(), 0.0f, SIGN_ROWS);
            for (uint32_t from = 0; from < SIGN_ELEMENTS; from += SIGN_TILE) {
                const uint64_t at = uint64_t(record) * SIGN_ELEMENTS + from, left = at < elements ? elements - at : 0;
                const uint32_t some = left < SIGN_TILE ? left : SIGN_TILE;
                if (some != 0) feedback.Begin(at, some);
                const LocalTensor<float> u = feedback.Take(some), heard = hear.signs.Get<float>();
                CompareScalar(said[from / 8], u, 0.0f, CMPMODE::GE, SIGN_TILE);
                if (record < ownFrom || record >= ownTo) AddMeans(said, u, from, some);
                hear.Tile(heard, said, from, false);
                LocalTensor<float> rest = out.AllocTensor<float>();
                PipeBarrier<PIPE_V>();
                if (some != 0) Sub(rest, u, heard, some);
                Store(out, rest, feedback.kept[at], some);
            }
            Store(outRecord, said, records[uint64_t(record) * SIGN_BYTES], SIGN_BYTES);
        }
    }

  private:
    // The means of a tile's rows; those of the others are 0 until theirs are added.
    __aicore__ inline void AddMeans(const LocalTensor<uint8_t> &said, const LocalTensor<float> &u, uint32_t from,
                                    uint32_t some) {
        const LocalTensor<float> magnitude = hear.signs.Get<float>(), lanes = sums.Get<float>();
        const LocalTensor<float> scales = said[SIGN_SCALES].ReinterpretCast<float>(), means = lanes[SIGN_TILE / 64];
        Abs(magnitude, u, SIGN_TILE);
        PipeBarrier<PIPE_V>();
        WholeReduceSum(lanes, magnitude, 64, SIGN_TILE / 64, 1, 1, 8);
        for (uint32_t row = 0; row * SIGN_ROW < some; ++row) {
            const uint32_t rest = some - row * SIGN_ROW, size = rest < SIGN_ROW ? rest : SIGN_ROW;
            Duplicate(means, 0.0f, SIGN_ROWS);
            PipeBarrier<PIPE_V>();
            WholeReduceSum(means[from / SIGN_ROW + row], lanes[row * 16], 16, 1, 1, 1, 2);
            PipeBarrier<PIPE_V>();
            Axpy(scales, means, 1.0f / size, SIGN_ROWS);
        }
    }

    TPipe pipe;
    Feedback feedback;
    SignHear hear;
    TQue<QuePosition::VECOUT, 2> out, outRecord;
    TBuf<TPosition::VECCALC> sums;
    GlobalTensor<uint8_t> records;
    uint32_t elements, count, ownFrom, ownTo;
};

class SignReduce {
  public:
    __aicore__ inline void Init(GM_ADDR recordAddress, GM_ADDR result, uint32_t n, uint32_t ofCard,
                                uint32_t cardCount) {
        elements = n, share = ofCard, cards = cardCount;
        records.SetGlobalBuffer((__gm__ uint8_t *)recordAddress, uint64_t(cards) * share * SIGN_BYTES);
        y.SetGlobalBuffer((__gm__ float *)result, n);
        pipe.InitBuffer(in, 4, SIGN_BYTES);
        pipe.InitBuffer(out, 2, SIGN_ELEMENTS * sizeof(float));
        hear.Init(pipe);
    }

    __aicore__ inline void Process() {
        for (uint32_t record = GetBlockIdx(); uint64_t(record) * SIGN_ELEMENTS < elements; record += GetBlockNum()) {
            const uint64_t at = uint64_t(record) * SIGN_ELEMENTS, left = elements - at;
            LocalTensor<float> sum = out.AllocTensor<float>();
            for (uint32_t card = 0; card < cards; ++card) {
                Fetch(in, records[(uint64_t(card) * share + record) * SIGN_BYTES], SIGN_BYTES);
                LocalTensor<uint8_t> said = in.DeQue<uint8_t>();
                for (uint32_t from = 0; from < SIGN_ELEMENTS; from += SIGN_TILE)
                    hear.Tile(sum[from], said, from, card != 0);
                in.FreeTensor(said);
            }
            Store(out, sum, y[at], left < SIGN_ELEMENTS ? left : SIGN_ELEMENTS);
        }
    }

  private:
    TPipe pipe;
    SignHear hear;
    TQue<QuePosition::VECIN, 4> in;
    TQue<QuePosition::VECOUT, 2> out;
    GlobalTensor<uint8_t> records;
    GlobalTensor<float> y;
    uint32_t elements, share, cards;
};

}  // namespace

extern "C" __global__ __aicore__ void sign_compress_float(GM_ADDR x, GM_ADDR whole, GM_ADDR kept, GM_ADDR records,
                                                          uint32_t n, uint32_t count, uint32_t share, uint32_t own,
                                                          uint32_t parts) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<SignCompress>(x, whole, kept, records, n, count, share, own, parts);
}
extern "C" __global__ __aicore__ void sign_compress_reduce_float(GM_ADDR records, GM_ADDR y, uint32_t n, uint32_t share,
                                                                 uint32_t cards) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Run<SignReduce>(records, y, n, share, cards);
}

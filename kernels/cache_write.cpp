// cache_write: turns the keys of new tokens by their positions and writes keys and values into the rows of a cache, in
// one launch.
//
//   token t = i * each + j is number j of sequence i; where starts[i] >= 0:
//   row = i * rows + starts[i] + j
//   keyCache[row][h] = rotate(key[t][h], cosine[t], sine[t]), valueCache[row][h] = value[t][h]
//   rotate(x, c, s) = { x[i] * c[i] - x[i + d/2] * s[i], x[i + d/2] * c[i] + x[i] * s[i] } for i < d/2
//
// With each = 1 and rows = 0 `starts` names a row of its own for each token, as caches in blocks have them.
// Shapes: key, value [tokens, heads, dim], tokens `keyStride` and `valueStride` elements apart; cosine, sine
// [tokens, dim / 2]; starts [tokens / each]; caches [cache rows, heads, dim], each row written once. dim is a multiple of
// 16 up to 256; tokens and heads from 0. A sequence with a start below 0 is left out.
// Types: key, value and caches bfloat16_t or half alike; cosine and sine float; starts int64_t. Turned in float, each
// product and difference rounded, then to the type, to nearest even.
// Tiling: heads of one token, up to 4,096 elements. Two tiles of keys in and out, two of values, three in float, two of
// cosine and sine:
//   6 x 8,192 + 3 x 16,384 + 2 x 1,024 = 100,352 bytes of unified buffer.
// Alignment: key, value, cosine, sine and starts at multiples of their element, caches of 32 bytes.
// Overwritten: the rows that are named, whole. Accumulated: nothing.
// Global memory: an element of each read and written, and cosine and sine once a token.
#include "kernel_operator.h"
#include "tile.h"

namespace {

constexpr uint32_t CACHE_WRITE_TILE = 4096, CACHE_WRITE_MAX_HALF = 128, CACHE_WRITE_MAX_HEADS = 128;

struct CacheShape {
    uint32_t tokens, each, heads, dim, rows, keyStride, valueStride;
};

template <class T>
class CacheWrite {
  public:
    __aicore__ inline void Init(GM_ADDR key, GM_ADDR value, GM_ADDR cosine, GM_ADDR sine, GM_ADDR startAddress,
                                GM_ADDR keyCache, GM_ADDR valueCache, const CacheShape &given) {
        shape = given, tokens = given.tokens, heads = given.heads, dim = given.dim, half = given.dim / 2;
        keys.SetGlobalBuffer((__gm__ T *)key);
        values.SetGlobalBuffer((__gm__ T *)value);
        cosines.SetGlobalBuffer((__gm__ float *)cosine, uint64_t(tokens) * half);
        sines.SetGlobalBuffer((__gm__ float *)sine, uint64_t(tokens) * half);
        starts.SetGlobalBuffer((__gm__ int64_t *)startAddress);
        cachedKeys.SetGlobalBuffer((__gm__ T *)keyCache);
        cachedValues.SetGlobalBuffer((__gm__ T *)valueCache);
        pipe.InitBuffer(in, 2, CACHE_WRITE_TILE * sizeof(T));
        pipe.InitBuffer(angles, 2, 2 * CACHE_WRITE_MAX_HALF * sizeof(float));
        pipe.InitBuffer(out, 2, CACHE_WRITE_TILE * sizeof(T));
        pipe.InitBuffer(through, 2, CACHE_WRITE_TILE * sizeof(T));
        pipe.InitBuffer(wide, CACHE_WRITE_TILE * sizeof(float));
        pipe.InitBuffer(products, CACHE_WRITE_TILE * sizeof(float));
        pipe.InitBuffer(turned, CACHE_WRITE_TILE * sizeof(float));
    }

    // Tokens go round the cores, so that those which are left out are shared evenly too.
    __aicore__ inline void Process() {
        uint32_t most = CACHE_WRITE_TILE / dim;
        if (most > CACHE_WRITE_MAX_HEADS) most = CACHE_WRITE_MAX_HEADS;
        for (uint32_t token = GetBlockIdx(); token < tokens; token += GetBlockNum()) {
            const uint32_t sequence = token / shape.each;
            const int64_t start = starts.GetValue(sequence);
            if (start < 0 || heads == 0) continue;
            const uint64_t row = uint64_t(sequence) * shape.rows + start + token % shape.each;
            CopyAngles(token);
            LocalTensor<float> angle = angles.DeQue<float>();
            for (uint32_t head = 0; head < heads; head += most) {
                const uint32_t some = heads - head < most ? heads - head : most;
                const uint64_t to = (row * heads + head) * dim;
                CopyValues(uint64_t(token) * shape.valueStride + head * dim, to, some * dim);
                Fetch(in, keys[uint64_t(token) * shape.keyStride + head * dim], some * dim);
                Store(out, Turn(angle, some), cachedKeys[to], some * dim);
            }
            angles.FreeTensor(angle);
        }
    }

  private:
    __aicore__ inline void CopyAngles(uint32_t token) {
        LocalTensor<float> angle = angles.AllocTensor<float>();
        const DataCopyExtParams copy{1, uint32_t(half * sizeof(float)), 0, 0, 0};
        DataCopyPad(angle, cosines[uint64_t(token) * half], copy, DataCopyPadExtParams<float>{false, 0, 0, 0.0f});
        DataCopyPad(angle[CACHE_WRITE_MAX_HALF], sines[uint64_t(token) * half], copy,
                    DataCopyPadExtParams<float>{false, 0, 0, 0.0f});
        angles.EnQue(angle);
    }

    __aicore__ inline void CopyValues(uint64_t from, uint64_t to, uint32_t count) {
        Fetch(through, values[from], count);
        LocalTensor<T> tile = through.template DeQue<T>();
        DataCopyPad(cachedValues[to], tile, DataCopyExtParams{1, uint32_t(count * sizeof(T)), 0, 0, 0});
        through.FreeTensor(tile);
    }

    // A repeat is up to 64 elements of one half of a head; all heads have the same angles, so those do not move on.
    __aicore__ inline LocalTensor<T> Turn(const LocalTensor<float> &angle, uint32_t some) {
        const uint32_t count = some * dim;
        LocalTensor<float> x = wide.Get<float>(), y = turned.Get<float>(), product = products.Get<float>();
        LocalTensor<T> tile = in.template DeQue<T>();
        Cast(x, tile, RoundMode::CAST_NONE, count);
        in.FreeTensor(tile);
        PipeBarrier<PIPE_V>();
        const uint8_t next = dim / 8;
        const BinaryRepeatParams byAngle{1, 1, 1, next, next, 0}, both{1, 1, 1, next, next, next};
        for (uint32_t at = 0; at < half; at += 64) {
            const uint64_t mask = half - at < 64 ? half - at : 64;
            LocalTensor<float> cosine = angle[at], sine = angle[CACHE_WRITE_MAX_HALF + at];
            Mul(y[at], x[at], cosine, mask, some, byAngle);
            Mul(y[half + at], x[half + at], cosine, mask, some, byAngle);
            Mul(product[at], x[half + at], sine, mask, some, byAngle);
            Mul(product[half + at], x[at], sine, mask, some, byAngle);
            PipeBarrier<PIPE_V>();
            Sub(y[at], y[at], product[at], mask, some, both);
            Add(y[half + at], y[half + at], product[half + at], mask, some, both);
        }
        LocalTensor<T> result = out.template AllocTensor<T>();
        PipeBarrier<PIPE_V>();
        Cast(result, y, RoundMode::CAST_RINT, count);
        return result;
    }

    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in, angles;
    TQue<QuePosition::VECOUT, 2> out;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 2> through;
    TBuf<TPosition::VECCALC> wide, products, turned;
    GlobalTensor<T> keys, values, cachedKeys, cachedValues;
    GlobalTensor<float> cosines, sines;
    GlobalTensor<int64_t> starts;
    CacheShape shape;
    uint32_t tokens, heads, dim, half;
};

}  // namespace

#define CACHE_WRITE_ENTRY(name, type)                                                                          \
    extern "C" __global__ __aicore__ void name(GM_ADDR key, GM_ADDR value, GM_ADDR cosine, GM_ADDR sine,       \
                                               GM_ADDR starts, GM_ADDR keyCache, GM_ADDR valueCache,           \
                                               uint32_t tokens, uint32_t each, uint32_t heads, uint32_t dim,   \
                                               uint32_t rows, uint32_t keyStride, uint32_t valueStride) {      \
        KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);                                                        \
        CacheWrite<type> kernel;                                                                               \
        kernel.Init(key, value, cosine, sine, starts, keyCache, valueCache,                                    \
                    CacheShape{tokens, each, heads, dim, rows, keyStride, valueStride});                       \
        kernel.Process();                                                                                      \
    }
CACHE_WRITE_ENTRY(cache_write_bfloat16, bfloat16_t)
CACHE_WRITE_ENTRY(cache_write_half, half)

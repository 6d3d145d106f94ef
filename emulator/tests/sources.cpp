// Kernels that use what sources for CANN's compiler use: pointers of global memory, tiling data, variants, and calls that
// move elements by value or index.
#include "kernel_operator.h"
#include "kernel_tiling/kernel_tiling.h"

using namespace AscendC;

// y[i] = 2 x[i], without a GlobalTensor. A core has 40 elements.
extern "C" __global__ __aicore__ void pointers(__gm__ int32_t *x, __gm__ int32_t *y, uint32_t n) {
    for (uint32_t i = 40 * block_idx; i < n && i < 40 * (block_idx + 1); ++i) y[i] = x[i] * 2;
}

// Reads what a copy wrote before. The scalar cache may hold older bytes.
extern "C" __global__ __aicore__ void stale(__gm__ int32_t *x, __gm__ int32_t *y, uint32_t isCleaned) {
    TPipe pipe;
    TBuf<> buffer;
    GlobalTensor<int32_t> global;
    global.SetGlobalBuffer(x, 8);
    pipe.InitBuffer(buffer, 32);
    Duplicate(buffer.Get<int32_t>(), 7, 8);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(global, buffer.Get<int32_t>(), 8);
    PipeBarrier<PIPE_ALL>();
    if (isCleaned != 0) dcci(x, cache_line_t::SINGLE_CACHE_LINE, dcci_dst_t::CACHELINE_OUT);
    y[0] = x[3];
}

struct ScaleTiling {
    uint32_t count;
    float factor;
};

// y = factor x of half, or of bfloat16_t in the variant 2.
template <class T>
__aicore__ inline void Scale(GM_ADDR x, GM_ADDR y, const ScaleTiling &tiling) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    TQue<TPosition::VECOUT, 1> out;
    TBuf<> work;
    GlobalTensor<T> source, target;
    source.SetGlobalBuffer((__gm__ T *)x, tiling.count), target.SetGlobalBuffer((__gm__ T *)y, tiling.count);
    pipe.InitBuffer(in, 1, 256), pipe.InitBuffer(out, 1, 256), pipe.InitBuffer(work, 512);
    LocalTensor<T> tile = in.AllocTensor<T>();
    DataCopyPadExtParams<T> padding{true, 0, uint8_t(16 - tiling.count % 16), 0};
    DataCopyPad(tile, source, {1, uint32_t(tiling.count * sizeof(T)), 0, 0, 0}, padding);
    in.EnQue(tile);
    tile = in.DeQue<T>();
    LocalTensor<T> result = out.AllocTensor<T>();
    LocalTensor<float> wide = work.Get<float>();
    Cast(wide, tile, RoundMode::CAST_NONE, tiling.count);
    Muls<float>(wide, wide, tiling.factor, tiling.count);
    Cast(result, wide, RoundMode::CAST_RINT, tiling.count);
    in.FreeTensor(tile), out.EnQue(result);
    result = out.DeQue<T>();
    DataCopyPad(target, result, {1, uint32_t(tiling.count * sizeof(T)), 0, 0, 0});
    out.FreeTensor(result);
}
extern "C" __global__ __aicore__ void scale(GM_ADDR x, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(ScaleTiling);
    GET_TILING_DATA(data, tiling);
    if (TILING_KEY_IS(1)) Scale<half>(x, y, data);
    else if (TILING_KEY_IS(2)) Scale<bfloat16_t>(x, y, data);
    else AscendC::printf("scale of %u elements has no variant %d\n", data.count, int(TILING_KEY_VAR));
}

// Sorts 128 numbers, and writes them with their indices; `order` gathers `by` of them.
extern "C" __global__ __aicore__ void sorted(__gm__ float *x, __gm__ uint32_t *by, __gm__ float *y, uint32_t *indices,
                                             __gm__ float *gathered) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 8192);
    LocalTensor<float> values = buffer.Get<float>(), pairs = values[256], merged = values[512], tail = values[768];
    LocalTensor<uint32_t> places = buffer.Get<uint32_t>()[128], found = buffer.Get<uint32_t>()[1024];
    GlobalTensor<float> source, target, other;
    GlobalTensor<uint32_t> offsets, numbers;
    source.SetGlobalBuffer(x, 128), target.SetGlobalBuffer(y, 128), other.SetGlobalBuffer(gathered, 128);
    offsets.SetGlobalBuffer(by, 128), numbers.SetGlobalBuffer(indices, 128);
    DataCopy(values, source, 128);
    CreateVecIndex(places.ReinterpretCast<int32_t>(), 0, 128);
    PipeBarrier<PIPE_ALL>();
    Sort32(pairs, values, places, 4);
    PipeBarrier<PIPE_V>();
    const uint16_t lengths[4] = {32, 32, 32, 32};
    MrgSort(merged, {pairs, pairs[64], pairs[128], pairs[192]}, MrgSort4Info(lengths, false, 15, 1));
    PipeBarrier<PIPE_V>();
    Extract(tail, found, merged, 4);
    PipeBarrier<PIPE_ALL>();
    DataCopy(target, tail, 128), DataCopy(numbers, found, 128);
    DataCopy(places, offsets, 128);
    PipeBarrier<PIPE_ALL>();
    Gather(pairs, values, places, 0, 128);
    PipeBarrier<PIPE_ALL>();
    DataCopy(other, pairs, 128);
}

// Of 128 numbers: the sums of pairs, the largest of each 64 with its index, and the first 8 repeated 8 times.
extern "C" __global__ __aicore__ void reduced(__gm__ float *x, __gm__ float *pairs, __gm__ float *largest,
                                              __gm__ float *repeated) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 4096);
    LocalTensor<float> values = buffer.Get<float>(), sums = values[128], most = values[192], wide = values[256];
    GlobalTensor<float> source, target, top, rows;
    source.SetGlobalBuffer(x, 128), target.SetGlobalBuffer(pairs, 64), top.SetGlobalBuffer(largest, 8);
    rows.SetGlobalBuffer(repeated, 64);
    DataCopy(values, source, 128);
    Duplicate<float>(most, 0, 8 * GetSubBlockNum());
    PipeBarrier<PIPE_ALL>();
    PairReduceSum(sums, values, 2, 64, 1, 1, 8);
    WholeReduceMax(most, values, 64, 2, 1, 1, 8);
    const uint32_t to[2] = {8, 8}, from[2] = {8, 1};
    BroadCast<float, 2, 1>(wide, values, to, from);
    PipeBarrier<PIPE_ALL>();
    DataCopy(target, sums, 64), DataCopy(top, most, 8), DataCopy(rows, wide, 64);
}

// Of 8 rows of 16 numbers: the sums of the rows, the largest of each column, and every fourth number from the second.
extern "C" __global__ __aicore__ void rows(__gm__ float *x, __gm__ float *sums, __gm__ float *largest,
                                           __gm__ float *fourth) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 1024);
    LocalTensor<float> values = buffer.Get<float>(), sum = values[128], most = values[136];
    GlobalTensor<float> source, target, top;
    source.SetGlobalBuffer(x, 128), target.SetGlobalBuffer(sums, 8), top.SetGlobalBuffer(largest, 16);
    DataCopy(values, source, 128);
    PipeBarrier<PIPE_ALL>();
    const uint32_t shape[2] = {8, 16};
    const LocalTensor<uint8_t> work = values[192].ReinterpretCast<uint8_t>();
    ReduceSum<float, Pattern::Reduce::AR>(sum, values, work, shape, true);
    ReduceMax<float, Pattern::Reduce::RA>(most, values, work, shape, true);
    PipeBarrier<PIPE_ALL>();
    DataCopy(target, sum, 8), DataCopy(top, most, 16);
    PipeBarrier<PIPE_ALL>();
    GlobalTensor<float> some;
    some.SetGlobalBuffer(fourth, 32);
    uint64_t kept = 0;
    GatherMask(sum, values, uint8_t(4), false, 0, {1, 2, 8, 0}, kept);
    PipeBarrier<PIPE_ALL>();
    DataCopy(some, sum, kept);
}

extern "C" __global__ __aicore__ void trapped() { asm("trap"); }

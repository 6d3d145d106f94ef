// The types that kernels and calls share: element types, enumerations, parameter structures.
//
// Values and units are those of the Ascend C operator API of CANN 8.x for Atlas A2 (architecture dav-c220).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#define __aicore__
#ifdef ASCEND_HOST_SCAN
#define __global__ __ascend_global__
#else
#define __global__
#endif
#define __gm__
#define __ubuf__
#define __inline__ inline
#define GM_ADDR uint8_t *
#define __CCE_AICORE__ 220
#define __NPU_ARCH__ 2201

#ifndef __FLT16_MAX__
#error "the host model needs a compiler with _Float16: GCC 12 or newer, or clang 15 or newer"
#endif

using half = _Float16;

// A bfloat16 is a storage type: the vector unit of this architecture computes nothing in it, so no arithmetic is
// offered.
struct bfloat16_t {
    uint16_t bits;
};

inline float ToFloat(bfloat16_t value) {
    const uint32_t bits = uint32_t(value.bits) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

inline bfloat16_t ToBfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value != value) return {uint16_t((bits >> 16) | 0x40)};
    return {uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_M, PIPE_MTE1, PIPE_FIX, PIPE_ALL };

using event_t = int32_t;
constexpr event_t EVENT_ID0 = 0, EVENT_ID1 = 1, EVENT_ID2 = 2, EVENT_ID3 = 3;
constexpr event_t EVENT_ID4 = 4, EVENT_ID5 = 5, EVENT_ID6 = 6, EVENT_ID7 = 7;
using TEventID = int32_t;

namespace AscendC {

enum class TPosition { GM, VECIN, VECOUT, VECCALC };
using QuePosition = TPosition;

enum class RoundMode { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
enum class CMPMODE { LT, GT, EQ, LE, GE, NE };
enum class SELMODE { VSEL_CMPMASK_SPR, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class ReduceOrder { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class CacheLine { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };

// First the pipe that sets, then the one that waits.
enum class HardEvent {
    S_V,
    S_MTE2,
    S_MTE3,
    V_S,
    V_V,
    V_MTE2,
    V_MTE3,
    MTE2_S,
    MTE2_V,
    MTE2_MTE3,
    MTE3_S,
    MTE3_V,
    MTE3_MTE2
};

// A block is 32 bytes. On the side of the unified buffer, strides of all copies count blocks from the end of one row to
// the start of the next. `DataCopy` counts blocks everywhere; `DataCopyPad` counts `blockLen` and strides of global
// memory in bytes.
struct DataCopyParams {
    uint16_t blockCount = 1, blockLen = 0, srcStride = 0, dstStride = 0;
    DataCopyParams() = default;
    DataCopyParams(uint16_t count, uint16_t length, uint16_t source, uint16_t target)
        : blockCount(count), blockLen(length), srcStride(source), dstStride(target) {}
};

struct DataCopyExtParams {
    uint16_t blockCount = 1;
    uint32_t blockLen = 0, srcStride = 0, dstStride = 0, rsv = 0;
    DataCopyExtParams() = default;
    DataCopyExtParams(uint16_t count, uint32_t length, uint32_t source, uint32_t target, uint32_t reserved)
        : blockCount(count), blockLen(length), srcStride(source), dstStride(target), rsv(reserved) {}
};

struct DataCopyPadParams {
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    uint64_t paddingValue = 0;
    DataCopyPadParams() = default;
    DataCopyPadParams(bool pad, uint8_t left, uint8_t right, uint64_t value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};

template <class T>
struct DataCopyPadExtParams {
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    T paddingValue = T{};
    DataCopyPadExtParams() = default;
    DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
};

struct UnaryRepeatParams {
    uint16_t dstBlkStride = 1, srcBlkStride = 1;
    uint8_t dstRepStride = 8, srcRepStride = 8;
    UnaryRepeatParams() = default;
    UnaryRepeatParams(uint16_t dstBlock, uint16_t srcBlock, uint8_t dstRepeat, uint8_t srcRepeat)
        : dstBlkStride(dstBlock), srcBlkStride(srcBlock), dstRepStride(dstRepeat), srcRepStride(srcRepeat) {}
};

struct BinaryRepeatParams {
    uint8_t dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1, dstRepStride = 8, src0RepStride = 8,
            src1RepStride = 8;
    BinaryRepeatParams() = default;
    BinaryRepeatParams(uint8_t dstBlock, uint8_t src0Block, uint8_t src1Block, uint8_t dstRepeat, uint8_t src0Repeat,
                       uint8_t src1Repeat)
        : dstBlkStride(dstBlock),
          src0BlkStride(src0Block),
          src1BlkStride(src1Block),
          dstRepStride(dstRepeat),
          src0RepStride(src0Repeat),
          src1RepStride(src1Repeat) {}
};

struct CopyRepeatParams {
    uint16_t dstStride = 1, srcStride = 1, dstRepeatSize = 8, srcRepeatSize = 8;
};

struct BrcbRepeatParams {
    uint16_t dstBlkStride = 1, dstRepStride = 8;
    BrcbRepeatParams() = default;
    BrcbRepeatParams(uint16_t block, uint16_t repeat) : dstBlkStride(block), dstRepStride(repeat) {}
};

struct GatherMaskParams {
    uint8_t src0BlockStride = 1;
    uint16_t repeatTimes = 0, src0RepeatStride = 0;
    uint8_t src1RepeatStride = 0;
    GatherMaskParams() = default;
    GatherMaskParams(uint8_t block, uint16_t repeats, uint16_t repeat0, uint8_t repeat1)
        : src0BlockStride(block), repeatTimes(repeats), src0RepeatStride(repeat0), src1RepeatStride(repeat1) {}
};

}  // namespace AscendC

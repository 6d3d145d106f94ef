// Tiling data that a kernel reads from global memory, the variants of a kernel, and its workspace.
//
// The host writes the structure; the kernel's last parameter is its address. Which variant a launch wants is its tiling
// key: a launch of `name_7` runs `name` with the key 7, a launch of `name` with 0.
#pragma once

#include "gather.h"

namespace ascend_host {

// A name of C++, so that `#if TILING_KEY_VAR == 1` takes it for 0.
struct TilingKey {
    operator uint64_t() const { return current->launch->tiling_key; }
};

// The scalar unit copies the structure.
template <class S>
void copy_tiling(const char *call, S *data, const void *place, uint64_t bytes = sizeof(S), At at = At::here()) {
    const Use use{call, "tiling", at};
    const auto *from = static_cast<const uint8_t *>(place);
    const uint32_t time = current->begin(use, PIPE_S, SCALAR_LOAD_CYCLES);
    current->launch->check_scalar_cache(use, from, bytes);
    move_bytes(data, current->launch->access(use, PIPE_S, time, from, bytes, false, false), bytes);
}

// What the runtime keeps of a workspace for itself, at its beginning.
constexpr uint64_t SYSTEM_WORKSPACE_BYTES = 16 << 20;

}  // namespace ascend_host

// `tiling_of_the_kernel` is the structure that `REGISTER_TILING_DEFAULT` names, or the one of the operator's host code.
#define REGISTER_TILING_DEFAULT(S) using tiling_of_the_kernel [[maybe_unused]] = S
#define REGISTER_TILING_FOR_TILINGKEY(condition, S)
#define REGISTER_NONE_TILING
#define GET_TILING_DATA(data, place) \
    tiling_of_the_kernel data;       \
    ascend_host::copy_tiling("GET_TILING_DATA", &data, place)
#define GET_TILING_DATA_WITH_STRUCT(S, data, place) \
    S data;                                         \
    ascend_host::copy_tiling("GET_TILING_DATA_WITH_STRUCT", &data, place)
#define GET_TILING_DATA_MEMBER(S, member, data, place)                                                 \
    decltype(S::member) data;                                                                          \
    ascend_host::copy_tiling("GET_TILING_DATA_MEMBER", &data,                                          \
                             reinterpret_cast<const uint8_t *>(place) + offsetof(S, member))
#define GET_TILING_DATA_PTR_WITH_STRUCT(S, data, place) \
    S data##_copy;                                      \
    ascend_host::copy_tiling("GET_TILING_DATA_PTR_WITH_STRUCT", &data##_copy, place); \
    const S *data = &data##_copy

#ifndef TILING_KEY_VAR
inline constexpr ascend_host::TilingKey TILING_KEY_VAR{};
#endif
#define TILING_KEY_IS(key) (TILING_KEY_VAR == (key))
#define TILING_KEY_LIST(...)

// Keys of templates are read by the compiler's driver, which instantiates the kernel for each of their values.
#define ASCENDC_TPL_ARGS_DECL(...)
#define ASCENDC_TPL_ARGS_SEL(...)
#define ASCENDC_TPL_SEL(...)

#define C_DT_FLOAT float
#define C_DT_FLOAT16 half
#define C_DT_BF16 bfloat16_t
#define C_DT_INT8 int8_t
#define C_DT_UINT8 uint8_t
#define C_DT_INT16 int16_t
#define C_DT_INT32 int32_t
#define C_DT_UINT32 uint32_t
#define C_DT_INT64 int64_t
#define C_DT_BOOL bool

// Of high-level calls and of collectives, as parts of an operator's structure. Their calls are not modelled.
struct SoftMaxTiling {
    uint32_t srcM, srcK, srcSize, outMaxM, outMaxK, outMaxSize, splitM, splitK, splitSize, reduceM, reduceK, reduceSize,
        rangeM, tailM, tailSplitSize, tailReduceSize;
};
struct Mc2InitTiling {
    uint8_t reserved[64];
};
struct Mc2CcTiling {
    uint8_t reserved[280];
};
struct TopkTiling {
    int32_t tmpLocalSize, allDataSize, innerDataSize, sortRepeat, mrgSortRepeat, kAlignFourBytes, kAlignTwoBytes,
        maskOffset, maskVreducev2FourBytes, maskVreducev2TwoBytes, mrgSortSrc1offset, mrgSortSrc2offset,
        mrgSortSrc3offset, mrgSortTwoQueueSrc1Offset, mrgFourQueueTailPara1, mrgFourQueueTailPara2, srcIndexOffset;
    uint32_t copyUbToUbBlockCount;
    int32_t topkMrgSrc1MaskSizeOffset, topkNSmallSrcIndexOffset;
    uint32_t vreduceValMask0, vreduceValMask1, vreduceIdxMask0, vreduceIdxMask1;
    uint16_t vreducehalfValMask0, vreducehalfValMask1, vreducehalfValMask2, vreducehalfValMask3, vreducehalfValMask4,
        vreducehalfValMask5, vreducehalfValMask6, vreducehalfValMask7;
};

namespace AscendC {

inline uint8_t *GetUserWorkspace(uint8_t *workspace) { return workspace + ascend_host::SYSTEM_WORKSPACE_BYTES; }
inline void SetSysWorkspace(uint8_t *) {}

}  // namespace AscendC

// Element types and layouts of an operator's tensors, as numbers that `#if` compares.
#define DT_FLOAT 0
#define DT_FLOAT16 1
#define DT_INT8 2
#define DT_INT32 3
#define DT_UINT8 4
#define DT_INT16 6
#define DT_UINT16 7
#define DT_UINT32 8
#define DT_INT64 9
#define DT_UINT64 10
#define DT_DOUBLE 11
#define DT_BOOL 12
#define DT_COMPLEX64 16
#define DT_COMPLEX128 17
#define DT_BF16 27
#define DT_INT4 29
#define FORMAT_NCHW 0
#define FORMAT_NHWC 1
#define FORMAT_ND 2
#define FORMAT_FRACTAL_NZ 29

// What the scalar unit has besides tensors: numbers of blocks, intrinsics of the compiler, small functions of the API.
#pragma once

#include "vector.h"

// The compiler's own name of the block's number.
struct AscendHostBlockIdx {
    operator int64_t() const { return ascend_host::current->index; }
};
struct AscendHostBlockNum {
    operator int64_t() const { return ascend_host::current->launch->cores; }
};
inline constexpr AscendHostBlockIdx block_idx{};
inline constexpr AscendHostBlockNum block_num{};
inline int64_t get_block_idx() { return block_idx; }
inline int64_t get_block_num() { return block_num; }
inline int64_t get_subblockid() { return 0; }
inline int64_t get_subblockdim() { return 1; }

enum class cache_line_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class dcci_dst_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };

template <class T>
void dcci(T *place, cache_line_t lines, dcci_dst_t = dcci_dst_t::CACHELINE_OUT,
          ascend_host::At at = ascend_host::At::here()) {
    AscendC::clean_cache("dcci", at, place, lines == cache_line_t::ENTIRE_DATA_CACHE);
}

#define ASCEND_IS_AIV constexpr(true)
#define ASCEND_IS_AIC constexpr(false)

namespace AscendC {

inline int64_t GetSubBlockNum() { return 1; }
// Ends the kernel with an error, as the instruction of that name does.
[[noreturn]] inline void Trap(At at = At::here()) {
    current->fail({"trap", "", at}, "trap", "no trap", "one");
}
inline int64_t GetSystemCycle() { return int64_t(current->free_at[PIPE_S]); }
constexpr uint32_t GetDataBlockSizeInBytes() { return ascend_host::BLOCK; }
inline uint64_t GetUBSizeInBytes() { return ascend_host::UB_BYTES; }
inline void ICachePreLoad(int64_t) {}

constexpr uint32_t ONE_BLK_SIZE = 32, DEFAULT_BLK_NUM = 8, ONE_REPEAT_BYTE_SIZE = 256, DEFAULT_REPEAT_STRIDE = 8,
                   MAX_REPEAT_TIMES = 255, DEFAULT_BLOCK_SIZE = 256, DEFAULT_C0_SIZE = 32;
constexpr uint32_t BYTE_PER_BLOCK = 32, TOTAL_UB_SIZE = ascend_host::UB_BYTES;

// The model has vector cores alone.
enum { AIC = 1, AIV = 2, MIX = 3 };
constexpr int g_coreType = AIV;

// Bits of numbers of float.
constexpr uint32_t F32_INF = 0x7f800000, F32_NEG_INF = 0xff800000, F32_NAN = 0x7fc00000;

template <class T, class U>
struct IsSameType {
    static constexpr bool value = std::is_same_v<T, U>;
};

constexpr uint32_t AlignUp(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }
constexpr uint32_t CeilDivision(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit; }
constexpr uint32_t DivCeil(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit; }
template <class T, class U, class = std::enable_if_t<std::is_integral_v<T> && std::is_integral_v<U>>>
constexpr auto Ceil(T value, U unit) {
    return (value + unit - 1) / unit;
}

// Bits of a word that are `bit`, and the place of the first of them; -1 where there is none.
template <int bit>
int64_t ScalarGetCountOfValue(uint64_t word) {
    return __builtin_popcountll(bit == 1 ? word : ~word);
}
template <int bit>
int64_t ScalarGetSFFValue(uint64_t word) {
    const uint64_t bits = bit == 1 ? word : ~word;
    return bits == 0 ? -1 : __builtin_ctzll(bits);
}
inline int64_t ScalarCountLeadingZero(uint64_t word) { return word == 0 ? 64 : __builtin_clzll(word); }
template <class T, class U, RoundMode mode>
U ScalarCast(T value) {
    return vector_detail::converted<U>(value, mode);
}

namespace Std {
using std::conditional_t;
using std::enable_if_t;
using std::is_same;
using std::is_same_v;
template <class T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T>
constexpr T max(T a, T b) { return a < b ? b : a; }
}  // namespace Std

}  // namespace AscendC

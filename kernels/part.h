// Which elements a core works on.
#pragma once

#include "kernel_operator.h"

using namespace AscendC;

// Elements `from` to `to` of `n`.
struct Part {
    uint64_t from, to;
};

// This core's part of `n` elements of `bytes` bytes that lie at `address` and are written. Parts meet at borders of 32
// bytes of memory, as no two cores may write one such block; elements before the first border are the first core's.
__aicore__ inline Part PartOf(GM_ADDR address, uint64_t n, uint32_t bytes) {
    const uint64_t perBlock = 32 / bytes, skew = ((uint64_t)address % 32) / bytes, cores = GetBlockNum();
    const uint64_t blocks = (n + skew + perBlock - 1) / perBlock, each = (blocks + cores - 1) / cores * perBlock;
    const uint64_t begin = each * GetBlockIdx(), end = begin + each;
    const uint64_t from = begin < skew ? 0 : begin - skew, to = end < skew ? 0 : end - skew;
    return {from < n ? from : n, to < n ? to : n};
}

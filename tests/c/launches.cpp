// A kernel, an instance of a template, and the functions that launch them, in the syntax of CANN's compiler.
#include "kernel_operator.h"

extern "C" __global__ __aicore__ void increment(__gm__ int32_t *x) { x[block_idx * 8] += 1; }

template <class T>
__global__ __aicore__ void negate(__gm__ T *x) {
    x[AscendC::GetBlockIdx() * 8] = -x[AscendC::GetBlockIdx() * 8];
}

int32_t launch_increment(uint32_t blocks, void *stream, int32_t *x) {
    return static_cast<int32_t>(increment<<<blocks, nullptr, stream>>>(x));
}
void launch_negate(uint32_t blocks, void *stream, int32_t *x) { negate<int32_t><<<blocks, nullptr, stream>>>(x); }

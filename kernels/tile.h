// What kernels do with a tile: copies in and out by queues, float as the type to compute in, and which unit waits for
// which.
#pragma once

#include "kernel_operator.h"

using namespace AscendC;

// `count` elements of global memory, at any multiple of their size, into the next buffer of a queue.
template <class T, class Queue>
__aicore__ inline void Fetch(Queue &queue, const GlobalTensor<T> &from, uint32_t count) {
    LocalTensor<T> tile = queue.template AllocTensor<T>();
    DataCopyPad(tile, from, DataCopyExtParams{1, uint32_t(count * sizeof(T)), 0, 0, 0},
                DataCopyPadExtParams<T>{false, 0, 0, T{}});
    queue.EnQue(tile);
}

// `count` elements of a buffer of a queue, once they are computed, to global memory; without elements it is given back.
template <class T, class Queue>
__aicore__ inline void Store(Queue &queue, LocalTensor<T> tile, const GlobalTensor<T> &to, uint32_t count) {
    queue.EnQue(tile);
    tile = queue.template DeQue<T>();
    if (count != 0) DataCopyPad(to, tile, DataCopyExtParams{1, uint32_t(count * sizeof(T)), 0, 0, 0});
    queue.FreeTensor(tile);
}

// As float. Times 1 keeps every bit, the sign of zero too.
template <class T>
__aicore__ inline void Widen(const LocalTensor<float> &to, const LocalTensor<T> &from, uint32_t count) {
    if constexpr (sizeof(T) == sizeof(float)) Muls(to, from, 1.0f, count);
    else Cast(to, from, RoundMode::CAST_NONE, count);
}

// Of float, rounded to nearest even.
template <class T>
__aicore__ inline void Narrow(const LocalTensor<T> &to, const LocalTensor<float> &from, uint32_t count) {
    if constexpr (sizeof(T) == sizeof(float)) Muls(to, from, 1.0f, count);
    else Cast(to, from, RoundMode::CAST_RINT, count);
}

// The second unit of the event goes on once the first has done what it was given.
template <HardEvent event>
__aicore__ inline void Await() {
    SetFlag<event>(EVENT_ID0);
    WaitFlag<event>(EVENT_ID0);
}

template <class Kernel, class... Given>
__aicore__ inline void Run(Given... given) {
    Kernel kernel;
    kernel.Init(given...);
    kernel.Process();
}

// Text of a kernel: printf, tensors, assertions.
//
// A card collects the text and prints it when the stream is synchronised; the model prints it at once, a line of a core
// never within that of another.
#pragma once

#include <cassert>
#include <cstdio>

#include "tiling.h"

namespace AscendC {

namespace print_detail {
template <class T>
auto printable(T value) {
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>) return double(float(value));
    else return value;
}
template <class T>
void values(const char *what, uint32_t number, uint32_t count, const T *values) {
    std::string line = text(what, " ", number, ", core ", current->index, ", ", count, " elements: [");
    for (uint32_t index = 0; index < count; ++index) {
        if (index != 0) line += ", ";
        line += std::to_string(printable(values[index]));
    }
    std::printf("%s]\n", line.c_str());
}
}  // namespace print_detail

template <class... Values>
void printf(const char *format, Values... values) {
    if constexpr (sizeof...(values) == 0) std::fputs(format, stdout);
    else std::printf(format, print_detail::printable(values)...);
}
template <class... Values>
void PRINTF(const char *format, Values... values) {
    printf(format, values...);
}

template <class T>
void DumpTensor(const LocalTensor<T> &tensor, uint32_t number, uint32_t count, At at = At::here()) {
    const Use use{"DumpTensor", "tensor", at};
    tensor.check(use, 0, uint64_t(count) * sizeof(T));
    current->barrier(use, PIPE_ALL);
    print_detail::values("DumpTensor", number, count, tensor.data());
}
template <class T>
void DumpTensor(const GlobalTensor<T> &tensor, uint32_t number, uint32_t count, At at = At::here()) {
    const Use use{"DumpTensor", "tensor", at};
    std::vector<T> values(count);
    current->barrier(use, PIPE_ALL);
    const auto *place = reinterpret_cast<const uint8_t *>(tensor.pointer);
    const uint32_t time = current->begin(use, PIPE_MTE2, uint64_t(count) * sizeof(T) / ascend_host::BLOCK + 1);
    const uint64_t bytes = uint64_t(count) * sizeof(T);
    if (count == 0) return;
    ascend_host::move_bytes(values.data(),
                            current->launch->access(use, PIPE_MTE2, time, place, bytes, false, false), bytes);
    print_detail::values("DumpTensor", number, count, values.data());
}

}  // namespace AscendC

namespace ascend_host {
template <class... Values>
void check_assertion(bool holds, const char *condition, At at, const char *format = "", Values... values) {
    if (holds) return;
    AscendC::printf(format, values...);
    current->fail({"assert", "", at}, "trap", condition, "that it does not hold");
}
}  // namespace ascend_host

#undef assert
#define assert(condition, ...) \
    ascend_host::check_assertion(bool(condition), #condition, ascend_host::At::here(), ##__VA_ARGS__)
#define ascendc_assert(condition, ...) \
    ascend_host::check_assertion(bool(condition), #condition, ascend_host::At::here(), ##__VA_ARGS__)
#define ASCENDC_ASSERT(condition, behaviour) \
    do {                                     \
        if (!(condition)) {                  \
            behaviour;                       \
        }                                    \
    } while (0)
#define ASSERT(condition) ascend_host::check_assertion(bool(condition), #condition, ascend_host::At::here())


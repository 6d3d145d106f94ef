// Calls of the high-level API: functions of one tensor, and BroadCast.
//
// A card composes them of vector calls and of temporary memory; the model computes in float64 and rounds once, so a
// card differs by the last bits. Cycles are those of the vector calls that a polynomial takes.
#pragma once

#include "gather.h"

namespace AscendC {

namespace vector_detail {

// Vector calls of one function of the library.
constexpr uint32_t LIBRARY_CALLS = 16;

template <class T, class F>
void library(const char *call, At at, const LocalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count,
             F function) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, half>, "the call takes half and float");
    const Lanes lanes = counted({call, "count", at}, count);
    current->begin({call, "", at}, PIPE_V, cycles(lanes, sizeof(T)) * (LIBRARY_CALLS - 1));
    apply(
        call, at, lanes, [function](T a) { return T(float(function(double(float(a))))); }, Operand<T>{dst, "dst"},
        Operand<T>{src, "src"});
}

inline double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

}  // namespace vector_detail

// With a count or all of the source, with temporary memory or without.
#define ASCEND_HOST_LIBRARY(NAME, EXPRESSION)                                                                     \
    template <class T, bool isReuseSource = false>                                                                \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count, At at = At::here()) {         \
        vector_detail::library(#NAME, at, dst, src, count, [](double x) { return EXPRESSION; });                  \
    }                                                                                                             \
    template <class T, bool isReuseSource = false>                                                                \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, At at = At::here()) {                         \
        NAME(dst, src, src.GetSize(), at);                                                                        \
    }                                                                                                             \
    template <class T, bool isReuseSource = false>                                                                \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint8_t> &, uint32_t count, \
              At at = At::here()) {                                                                               \
        NAME(dst, src, count, at);                                                                                \
    }                                                                                                             \
    template <class T, bool isReuseSource = false>                                                                \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint8_t> &,                 \
              At at = At::here()) {                                                                               \
        NAME(dst, src, src.GetSize(), at);                                                                        \
    }
ASCEND_HOST_LIBRARY(Sin, std::sin(x))
ASCEND_HOST_LIBRARY(Cos, std::cos(x))
ASCEND_HOST_LIBRARY(Tan, std::tan(x))
ASCEND_HOST_LIBRARY(Asin, std::asin(x))
ASCEND_HOST_LIBRARY(Acos, std::acos(x))
ASCEND_HOST_LIBRARY(Atan, std::atan(x))
ASCEND_HOST_LIBRARY(Sinh, std::sinh(x))
ASCEND_HOST_LIBRARY(Cosh, std::cosh(x))
ASCEND_HOST_LIBRARY(Tanh, std::tanh(x))
ASCEND_HOST_LIBRARY(Asinh, std::asinh(x))
ASCEND_HOST_LIBRARY(Acosh, std::acosh(x))
ASCEND_HOST_LIBRARY(Atanh, std::atanh(x))
ASCEND_HOST_LIBRARY(Erf, std::erf(x))
ASCEND_HOST_LIBRARY(Erfc, std::erfc(x))
ASCEND_HOST_LIBRARY(Log, std::log(x))
ASCEND_HOST_LIBRARY(Log2, std::log2(x))
ASCEND_HOST_LIBRARY(Log10, std::log10(x))
ASCEND_HOST_LIBRARY(Floor, std::floor(x))
ASCEND_HOST_LIBRARY(Ceil, std::ceil(x))
ASCEND_HOST_LIBRARY(Round, std::nearbyint(x))
ASCEND_HOST_LIBRARY(Trunc, std::trunc(x))
ASCEND_HOST_LIBRARY(Frac, x - std::trunc(x))
ASCEND_HOST_LIBRARY(Sign, vector_detail::sign_of(x))
ASCEND_HOST_LIBRARY(Sigmoid, 1 / (1 + std::exp(-x)))
ASCEND_HOST_LIBRARY(Silu, x / (1 + std::exp(-x)))
ASCEND_HOST_LIBRARY(Gelu, x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))))
#undef ASCEND_HOST_LIBRARY

// Which dims a reduction of [first, last] adds up: AR the last, RA the first.
namespace Pattern {
namespace Reduce {
struct AR {};
struct RA {};
}  // namespace Reduce
}  // namespace Pattern

namespace vector_detail {

template <class T, class pattern, class F>
void reduce_dim(const char *call, At at, const LocalTensor<T> &dst, const LocalTensor<T> &src,
                const uint32_t shape[2], bool is_padded, F reduction) {
    constexpr bool is_last = std::is_same_v<pattern, Pattern::Reduce::AR>;
    static_assert(is_last || std::is_same_v<pattern, Pattern::Reduce::RA>, "the patterns AR and RA are modelled");
    const Use to{call, "dst", at}, from{call, "src", at};
    const uint32_t pitch = is_padded ? rounded_up(shape[1], ascend_host::BLOCK / sizeof(T)) : shape[1];
    const uint32_t results = shape[is_last ? 0 : 1], each = shape[is_last ? 1 : 0];
    if (results == 0 || each == 0) current->fail(from, "range", "at least an element", "none");
    const uint32_t time = current->begin(to, PIPE_V, (uint64_t(shape[0]) * pitch * sizeof(T) + 255) / 256 * 2);
    for (uint32_t row = 0; row < shape[0]; ++row) {
        src.check(from, uint64_t(row) * pitch * sizeof(T), shape[1] * sizeof(T));
        current->access(from, PIPE_V, time, uint32_t(src.address + row * pitch * sizeof(T)),
                        uint32_t(shape[1] * sizeof(T)), false);
    }
    std::vector<T> found;
    for (uint32_t result = 0; result < results; ++result) {
        std::vector<T> values;
        for (uint32_t index = 0; index < each; ++index)
            values.push_back(src.data()[is_last ? result * pitch + index : index * pitch + result]);
        found.push_back(reduction(values));
    }
    gather_detail::touch(to, time, dst, uint64_t(results) * sizeof(T), true);
    std::copy(found.begin(), found.end(), dst.data());
}

}  // namespace vector_detail

#define ASCEND_HOST_REDUCE(SUFFIX, FUNCTION)                                                                           \
    template <class T, class pattern, bool isReuseSource = false>                                                      \
    void Reduce##SUFFIX(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint8_t> &,            \
                        const uint32_t srcShape[2], bool srcInnerPad, At at = At::here()) {                            \
        vector_detail::reduce_dim<T, pattern>("Reduce" #SUFFIX, at, dst, src, srcShape, srcInnerPad,                   \
                                              vector_detail::FUNCTION<T>);                                             \
    }                                                                                                                  \
    template <class T, class pattern, bool isReuseSource = false>                                                      \
    void Reduce##SUFFIX(const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint32_t srcShape[2],              \
                        bool srcInnerPad, At at = At::here()) {                                                        \
        vector_detail::reduce_dim<T, pattern>("Reduce" #SUFFIX, at, dst, src, srcShape, srcInnerPad,                   \
                                              vector_detail::FUNCTION<T>);                                             \
    }
ASCEND_HOST_REDUCE(Sum, sum_of)
ASCEND_HOST_REDUCE(Max, max_of)
ASCEND_HOST_REDUCE(Min, min_of)
#undef ASCEND_HOST_REDUCE

// first, first + step, first + 2 * step, …
template <class T>
void ArithProgression(const LocalTensor<T> &dst, std::common_type_t<T> first, std::common_type_t<T> step,
                      int32_t count, At at = At::here()) {
    int32_t number = 0;
    vector_detail::apply(
        "ArithProgression", at, vector_detail::counted({"ArithProgression", "count", at}, count),
        [&number, first, step] { return T(first + step * T(number++)); }, vector_detail::Operand<T>{dst, "dst"});
}

// Repeats a tensor of one or two dims along `axis`, where it has one element.
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
void BroadCast(const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint32_t dstShape[dim],
               const uint32_t srcShape[dim], At at = At::here()) {
    static_assert((dim == 1 || dim == 2) && axis >= 0 && axis < dim, "BroadCast takes one or two dims");
    const Use to{"BroadCast", "dst", at}, from{"BroadCast", "src", at};
    if (srcShape[axis] != 1) current->fail(from, "range", text("a size of 1 of dim ", axis), text(srcShape[axis]));
    if (dim == 2 && srcShape[dim - 1 - axis] != dstShape[dim - 1 - axis])
        current->fail(from, "range", text("a size of ", dstShape[dim - 1 - axis], " of dim ", dim - 1 - axis),
                      text(srcShape[dim - 1 - axis]));
    const uint32_t rows = dim == 1 ? 1 : dstShape[0], columns = dstShape[dim - 1], elements = rows * columns;
    const uint32_t given = dim == 1 ? 1 : elements / dstShape[axis];
    const uint32_t time = current->begin(to, PIPE_V, (uint64_t(elements) * sizeof(T) + 255) / 256 * 2);
    gather_detail::touch(from, time, src, uint64_t(given) * sizeof(T), false);
    const std::vector<T> values(src.data(), src.data() + given);
    gather_detail::touch(to, time, dst, uint64_t(elements) * sizeof(T), true);
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t column = 0; column < columns; ++column)
            dst.data()[row * columns + column] = values[dim == 1 ? 0 : axis == 0 ? column : row];
}
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
void BroadCast(const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint32_t dstShape[dim],
               const uint32_t srcShape[dim], const LocalTensor<uint8_t> &, At at = At::here()) {
    BroadCast<T, dim, axis>(dst, src, dstShape, srcShape, at);
}

}  // namespace AscendC

// Reductions of the vector unit.
//
// WholeReduceSum and BlockReduceSum add neighbours, pair by pair, as their documentation says. The order inside
// ReduceSum is not documented: a kernel that needs its bits the same everywhere spells its tree with Add.
#pragma once

#include "vector.h"

namespace AscendC {

namespace vector_detail {

template <class T>
T pair_sum(const std::vector<T> &values, size_t begin, size_t size) {
    if (size == 1) return values[begin];
    size_t half_size = 1;
    while (half_size * 2 < size) half_size *= 2;
    return T(pair_sum(values, begin, half_size) + pair_sum(values, begin + half_size, size - half_size));
}
template <class T>
T sum_of(const std::vector<T> &values) {
    return pair_sum(values, 0, values.size());
}
template <class T>
T max_of(const std::vector<T> &values) {
    return *std::max_element(values.begin(), values.end());
}
template <class T>
T min_of(const std::vector<T> &values) {
    return *std::min_element(values.begin(), values.end());
}

// Reduces each repeat, or with `by_block` each block of it, to one element.
template <class T, class Mask, class F>
void reduce(const char *call, At at, const LocalTensor<T> &dst, const LocalTensor<T> &src, Mask mask, int32_t repeats,
            int32_t dst_stride, int32_t src_block, int32_t src_repeat, bool by_block, F reduction) {
    const Use to{call, "dst", at};
    const Lanes lanes = repeated({call, "mask", at}, mask, repeats, sizeof(T));
    const Operand<T> source{src, "src", uint32_t(src_block), uint32_t(src_repeat)};
    const uint32_t time = current->begin(to, PIPE_V, lanes.repeats), per_block = ascend_host::BLOCK / sizeof(T);
    source.touch(call, at, time, lanes, false);
    const auto active = uint32_t(lanes.active.size());
    // The result of a whole repeat is an element, of its blocks eight.
    const uint32_t unit = by_block ? 8 * sizeof(T) : sizeof(T);
    dst.check_aligned(to, 0, by_block ? 8 * sizeof(T) : sizeof(T));
    std::vector<T> values;
    for (uint32_t repeat = 0; repeat < lanes.repeats; ++repeat) {
        std::vector<T> results;
        values.clear();
        for (uint32_t index = 0; index < active; ++index) {
            values.push_back(*source.at_lane(lanes, repeat * active + index));
            const bool is_last = index + 1 == active ||
                                 (by_block && lanes.active[index + 1] / per_block != lanes.active[index] / per_block);
            if (is_last) results.push_back(reduction(values)), values.clear();
        }
        const uint32_t place = repeat * uint32_t(dst_stride) * unit, bytes = uint32_t(results.size() * sizeof(T));
        dst.check(to, place, bytes);
        current->access(to, PIPE_V, time, dst.address + place, bytes, true);
        std::memcpy(&current->ub[dst.address + place], results.data(), bytes);
    }
}

inline uint32_t rounded_up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

// Elements that a reduction of `count` elements needs for itself.
inline uint32_t work_elements(uint32_t count, uint32_t bytes, bool with_index) {
    const uint32_t per_repeat = ascend_host::REPEAT / bytes, per_block = ascend_host::BLOCK / bytes;
    uint32_t level = rounded_up(count, per_repeat) / per_repeat * 2, total = rounded_up(level, per_block);
    while (with_index && level > 2)
        level = rounded_up(level, per_repeat) / per_repeat * 2, total += rounded_up(level, per_block);
    return total;
}

template <class T, class F>
void reduce_all(const char *call, At at, const LocalTensor<T> &dst, const LocalTensor<T> &src,
                const LocalTensor<T> &work, int32_t count, bool with_index, F reduction) {
    const Use to{call, "dst", at}, of{call, "sharedTmpBuffer", at};
    if (count < 1) current->fail({call, "count", at}, "range", "at least an element", text(count));
    const Lanes lanes = counted({call, "count", at}, count);
    const uint32_t needed = work_elements(uint32_t(count), sizeof(T), with_index) * uint32_t(sizeof(T));
    const uint32_t time = current->begin(to, PIPE_V, cycles(lanes, sizeof(T)) + cycles({true, needed, 0, {}}, 1));
    Operand<T>{src, "src"}.touch(call, at, time, lanes, false);
    work.check_aligned(of, needed);
    current->access(of, PIPE_V, time, work.address, needed, true);
    const uint32_t results = with_index ? 2 : 1;
    dst.check_aligned(to, results * sizeof(T), results * sizeof(T));
    current->access(to, PIPE_V, time, dst.address, results * uint32_t(sizeof(T)), true);
    const std::vector<T> values(src.data(), src.data() + count);
    const T result = reduction(values);
    current->scramble(work.address, needed);
    std::fill_n(current->written.begin() + dst.address, results * sizeof(T), 1);
    dst.data()[0] = result;
    if (!with_index) return;
    const auto index = uint32_t(std::find(values.begin(), values.end(), result) - values.begin());
    std::memcpy(&dst.data()[1], &index, sizeof(T));
}

}  // namespace vector_detail

#define ASCEND_HOST_REDUCE(SUFFIX, FUNCTION)                                                                         \
    template <class T, class Mask>                                                                                   \
    void WholeReduce##SUFFIX(const LocalTensor<T> &dst, const LocalTensor<T> &src, Mask mask, int32_t repeats,       \
                             int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride, At at = At::here()) { \
        vector_detail::reduce("WholeReduce" #SUFFIX, at, dst, src, mask, repeats, dstRepStride, srcBlkStride,        \
                              srcRepStride, false, vector_detail::FUNCTION<T>);                                      \
    }                                                                                                                \
    template <class T, class Mask>                                                                                   \
    void BlockReduce##SUFFIX(const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t repeats, Mask mask,       \
                             int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride, At at = At::here()) { \
        vector_detail::reduce("BlockReduce" #SUFFIX, at, dst, src, mask, repeats, dstRepStride, srcBlkStride,        \
                              srcRepStride, true, vector_detail::FUNCTION<T>);                                       \
    }
ASCEND_HOST_REDUCE(Sum, sum_of)
ASCEND_HOST_REDUCE(Max, max_of)
ASCEND_HOST_REDUCE(Min, min_of)
#undef ASCEND_HOST_REDUCE

template <class T>
void ReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &work, int32_t count,
               At at = At::here()) {
    vector_detail::reduce_all("ReduceSum", at, dst, src, work, count, false, vector_detail::sum_of<T>);
}
// With an index, the element after the result holds its bits: of the first of equals.
template <class T>
void ReduceMax(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &work, int32_t count,
               bool calIndex = false, At at = At::here()) {
    vector_detail::reduce_all("ReduceMax", at, dst, src, work, count, calIndex, vector_detail::max_of<T>);
}
template <class T>
void ReduceMin(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &work, int32_t count,
               bool calIndex = false, At at = At::here()) {
    vector_detail::reduce_all("ReduceMin", at, dst, src, work, count, calIndex, vector_detail::min_of<T>);
}

}  // namespace AscendC

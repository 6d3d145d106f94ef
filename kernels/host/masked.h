// Masks of the vector unit, and calls with repeats and strides where those with a count are in vector.h and reduce.h.
#pragma once

#include "reduce.h"

namespace AscendC {

// Stands where a call takes the mask of `SetVectorMask`.
constexpr uint64_t MASK_PLACEHOLDER = 0;

// In counter mode a mask is the number of all elements, in normal mode that of a repeat or its bits.
inline void SetMaskCount() { current->is_counter = true; }
inline void SetMaskNorm() { current->is_counter = false; }
inline void ResetMask() { current->mask = {~uint64_t(0), ~uint64_t(0)}, current->is_counter = false; }
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(uint64_t high, uint64_t low) {
    current->mask = {low, high}, current->is_counter = mode == MaskMode::COUNTER;
}
template <class T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t count) {
    const auto bits = [](int32_t ones) {
        return ones <= 0 ? 0 : ones >= 64 ? ~uint64_t(0) : (uint64_t(1) << ones) - 1;
    };
    if (mode == MaskMode::COUNTER) SetVectorMask<T, mode>(0, uint64_t(count));
    else SetVectorMask<T, mode>(bits(count - 64), bits(count));
}

struct AscendCUtils {
    template <class T>
    static void SetMask(int32_t count) {
        SetVectorMask<T>(count);
    }
    template <class T>
    static void SetMask(uint64_t high, uint64_t low) {
        SetVectorMask<T>(high, low);
    }
    static void ResetMask() { AscendC::ResetMask(); }
};

namespace vector_detail {

// Bits of a comparison: those of each repeat follow one another.
template <class T, class U, class F>
void compare_repeats(const char *call, At at, const LocalTensor<U> &dst, uint8_t repeats, F holds_at,
                     std::initializer_list<Operand<T>> sources) {
    const Use to{call, "dst", at};
    constexpr uint32_t each = ascend_host::REPEAT / sizeof(T);
    const Lanes lanes = masked({call, "mask", at}, uint64_t(each), repeats, each);
    const uint32_t time = current->begin(to, PIPE_V, repeats), bytes = uint32_t(repeats) * each / 8;
    for (const Operand<T> &source : sources) source.touch(call, at, time, lanes, false);
    dst.check_aligned(to, bytes);
    std::vector<uint8_t> bits(bytes);
    for (uint32_t index = 0; index < lanes.size(); ++index)
        bits[index / 8] = uint8_t(bits[index / 8] | holds_at(lanes, index) << (index % 8));
    current->access(to, PIPE_V, time, dst.address, bytes, true);
    std::copy(bits.begin(), bits.end(), current->ub.begin() + dst.address);
}

}  // namespace vector_detail

template <class T, class U>
void Compare(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE mode,
             uint64_t, uint8_t repeats, const BinaryRepeatParams &params, At at = At::here()) {
    using vector_detail::Operand;
    static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");
    const Operand<T> a{src0, "src0", params.src0BlkStride, params.src0RepStride},
        b{src1, "src1", params.src1BlkStride, params.src1RepStride};
    vector_detail::with_comparison(mode, [&](auto holds) {
        vector_detail::compare_repeats<T>(
            "Compare", at, dst, repeats,
            [&](const auto &lanes, uint32_t index) { return holds(*a.at_lane(lanes, index), *b.at_lane(lanes, index)); },
            {a, b});
    });
}
template <class T, class U>
void CompareScalar(const LocalTensor<U> &dst, const LocalTensor<T> &src0, std::common_type_t<T> src1, CMPMODE mode,
                   uint64_t, uint8_t repeats, const UnaryRepeatParams &params, At at = At::here()) {
    using vector_detail::Operand;
    static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");
    const Operand<T> a{src0, "src0", params.srcBlkStride, params.srcRepStride};
    vector_detail::with_comparison(mode, [&](auto holds) {
        vector_detail::compare_repeats<T>(
            "CompareScalar", at, dst, repeats,
            [&](const auto &lanes, uint32_t index) { return holds(*a.at_lane(lanes, index), src1); }, {a});
    });
}

namespace vector_detail {

template <class T, class U, class F>
void select_repeats(At at, const LocalTensor<T> &dst, const LocalTensor<U> &mask, const Operand<T> &src0, F other,
                    SELMODE mode, const Lanes &lanes, const BinaryRepeatParams &params) {
    const Use use{"Select", "selMask", at};
    // One mask serves all repeats, or each repeat has its own bits.
    const bool is_shared = mode == SELMODE::VSEL_CMPMASK_SPR;
    constexpr uint32_t each = ascend_host::REPEAT / sizeof(T);
    const uint32_t bytes = (is_shared ? 1 : lanes.repeats) * each / 8;
    mask.check_aligned(use, bytes);
    current->access(use, PIPE_V, current->clock[PIPE_V] + 1, mask.address, bytes, false);
    const uint8_t *bits = current->ub.data() + mask.address;
    const auto active = uint32_t(lanes.active.size());
    uint32_t index = 0;
    apply(
        "Select", at, lanes,
        [&](T a) {
            const uint32_t bit = (is_shared ? 0 : index / active * each) + lanes.active[index % active];
            const T result = bits[bit / 8] >> (bit % 8) & 1 ? a : other(index);
            ++index;
            return result;
        },
        Operand<T>{dst, "dst", params.dstBlkStride, params.dstRepStride}, src0);
}

}  // namespace vector_detail

template <class T, class U, class Mask>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0,
            const LocalTensor<T> &src1, SELMODE mode, Mask mask, uint8_t repeats, const BinaryRepeatParams &params,
            At at = At::here()) {
    using vector_detail::Operand;
    const auto lanes = vector_detail::repeated<true>({"Select", "mask", at}, mask, repeats, sizeof(T));
    const Operand<T> a{src0, "src0", params.src0BlkStride, params.src0RepStride},
        b{src1, "src1", params.src1BlkStride, params.src1RepStride};
    b.touch("Select", at, current->clock[PIPE_V] + 1, lanes, false);
    vector_detail::select_repeats(
        at, dst, selMask, a, [&](uint32_t index) { return *b.at_lane(lanes, index); }, mode, lanes, params);
}
template <class T, class U, class Mask>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0,
            std::common_type_t<T> src1, SELMODE mode, Mask mask, uint8_t repeats, const BinaryRepeatParams &params,
            At at = At::here()) {
    using vector_detail::Operand;
    const auto lanes = vector_detail::repeated<true>({"Select", "mask", at}, mask, repeats, sizeof(T));
    const Operand<T> a{src0, "src0", params.src0BlkStride, params.src0RepStride};
    vector_detail::select_repeats(at, dst, selMask, a, [src1](uint32_t) { return src1; }, mode, lanes, params);
}

namespace vector_detail {

// The reduction of all repeats; a repeat begins `stride` blocks after the one before.
template <class T, class F>
void reduce_repeats(const char *call, At at, const LocalTensor<T> &dst, const LocalTensor<T> &src,
                    const LocalTensor<T> &work, int32_t mask, int32_t repeats, int32_t stride, bool with_index,
                    F reduction) {
    const Use to{call, "dst", at}, of{call, "sharedTmpBuffer", at};
    const Lanes lanes = repeated<true>({call, "mask", at}, uint64_t(mask), repeats, sizeof(T));
    if (lanes.size() == 0) current->fail({call, "repeatTimes", at}, "range", "at least a repeat", "0");
    const Operand<T> source{src, "src", 1, uint32_t(stride)};
    const uint32_t time = current->begin(to, PIPE_V, lanes.repeats + uint64_t(lanes.repeats) / 32 + 2);
    source.touch(call, at, time, lanes, false);
    const uint32_t needed = rounded_up(lanes.repeats * uint32_t(with_index ? 2 : 1) * sizeof(T), ascend_host::BLOCK);
    work.check_aligned(of, needed);
    current->access(of, PIPE_V, time, work.address, needed, true);
    const uint32_t results = with_index ? 2 : 1;
    dst.check_aligned(to, results * sizeof(T), results * sizeof(T));
    current->access(to, PIPE_V, time, dst.address, results * uint32_t(sizeof(T)), true);
    std::vector<T> values;
    for (uint32_t index = 0; index < lanes.size(); ++index) values.push_back(*source.at_lane(lanes, index));
    const T result = reduction(values);
    const auto found = uint32_t(std::find(values.begin(), values.end(), result) - values.begin());
    current->scramble(work.address, needed);
    std::fill_n(current->written.begin() + dst.address, results * sizeof(T), 1);
    dst.data()[0] = result;
    if (!with_index) return;
    const auto per = uint32_t(lanes.active.size());
    const uint32_t place = found / per * uint32_t(stride) * ascend_host::BLOCK / uint32_t(sizeof(T)) + found % per;
    std::memcpy(&dst.data()[1], &place, sizeof(T));
}

}  // namespace vector_detail

template <class T>
void ReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &work, int32_t mask,
               int32_t repeats, int32_t srcRepStride, At at = At::here()) {
    vector_detail::reduce_repeats("ReduceSum", at, dst, src, work, mask, repeats, srcRepStride, false,
                                  vector_detail::sum_of<T>);
}
template <class T>
void ReduceMax(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &work, int32_t mask,
               int32_t repeats, int32_t srcRepStride, bool calIndex = false, At at = At::here()) {
    vector_detail::reduce_repeats("ReduceMax", at, dst, src, work, mask, repeats, srcRepStride, calIndex,
                                  vector_detail::max_of<T>);
}
template <class T>
void ReduceMin(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &work, int32_t mask,
               int32_t repeats, int32_t srcRepStride, bool calIndex = false, At at = At::here()) {
    vector_detail::reduce_repeats("ReduceMin", at, dst, src, work, mask, repeats, srcRepStride, calIndex,
                                  vector_detail::min_of<T>);
}

// Inside the unified buffer, in rows of blocks.
template <class T>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &params, At at = At::here()) {
    const Use to{"DataCopy", "dst", at}, from{"DataCopy", "src", at};
    const uint32_t bytes = uint32_t(params.blockLen) * ascend_host::BLOCK;
    const uint32_t time = current->begin(to, PIPE_V, uint64_t(params.blockCount) * ((bytes + 255) / 256));
    dst.check_aligned(to, 0), src.check_aligned(from, 0);
    for (uint32_t row = 0; row < params.blockCount; ++row) {
        const uint32_t source = row * (params.blockLen + params.srcStride) * ascend_host::BLOCK,
                       target = row * (params.blockLen + params.dstStride) * ascend_host::BLOCK;
        src.check(from, source, bytes), dst.check(to, target, bytes);
        current->access(from, PIPE_V, time, src.address + source, bytes, false);
        current->access(to, PIPE_V, time, dst.address + target, bytes, true);
        std::memmove(&current->ub[dst.address + target], &current->ub[src.address + source], bytes);
    }
}

// To and from numbers of -8 to 7, two a byte.
inline void Cast(const LocalTensor<int4b_t> &dst, const LocalTensor<half> &src, RoundMode mode, uint32_t count,
                 At at = At::here()) {
    const Use to{"Cast", "dst", at}, from{"Cast", "src", at};
    if (count % 2 != 0) current->fail({"Cast", "count", at}, "mask", "an even number of elements", text(count));
    const uint32_t time = current->begin(to, PIPE_V, (uint64_t(count) * sizeof(half) + 255) / 256);
    src.check_aligned(from, uint64_t(count) * sizeof(half)), dst.check_aligned(to, count / 2);
    current->access(from, PIPE_V, time, src.address, count * uint32_t(sizeof(half)), false);
    std::vector<uint8_t> packed(count / 2);
    for (uint32_t index = 0; index < count; ++index) {
        const double whole = vector_detail::rounded(double(float(src.data()[index])), mode);
        const auto nibble = uint8_t(int(std::min(7.0, std::max(-8.0, whole))) & 15);
        packed[index / 2] = uint8_t(packed[index / 2] | nibble << (index % 2 * 4));
    }
    current->access(to, PIPE_V, time, dst.address, count / 2, true);
    std::copy(packed.begin(), packed.end(), current->ub.begin() + dst.address);
}
inline void Cast(const LocalTensor<half> &dst, const LocalTensor<int4b_t> &src, RoundMode mode, uint32_t count,
                 At at = At::here()) {
    const Use to{"Cast", "dst", at}, from{"Cast", "src", at};
    if (mode != RoundMode::CAST_NONE)
        current->fail({"Cast", "mode", at}, "mask", "CAST_NONE, as the cast is exact", text("mode ", int(mode)));
    const uint32_t time = current->begin(to, PIPE_V, (uint64_t(count) * sizeof(half) + 255) / 256);
    src.check_aligned(from, count / 2), dst.check_aligned(to, uint64_t(count) * sizeof(half));
    current->access(from, PIPE_V, time, src.address, count / 2, false);
    const std::vector<uint8_t> packed(&current->ub[src.address], &current->ub[src.address] + count / 2);
    current->access(to, PIPE_V, time, dst.address, count * uint32_t(sizeof(half)), true);
    for (uint32_t index = 0; index < count; ++index) {
        const int nibble = packed[index / 2] >> (index % 2 * 4) & 15;
        dst.data()[index] = half(float(nibble < 8 ? nibble : nibble - 16));
    }
}

// Fills global memory. A card copies a tile that it takes from the unified buffer.
template <class T>
void InitGlobalMemory(const GlobalTensor<T> &memory, uint64_t elements, T value, At at = At::here()) {
    const Use use{"InitGlobalMemory", "memory", at};
    memory.check(use, 0, elements);
    if (elements == 0) return;
    const auto *place = reinterpret_cast<const uint8_t *>(memory.pointer);
    const uint64_t bytes = elements * sizeof(T);
    const uint32_t time = current->begin(use, PIPE_MTE3, copy_detail::blocks(bytes));
    uint8_t *here = current->launch->access(use, PIPE_MTE3, time, place, bytes, true, false);
    for (uint64_t index = 0; index < elements; ++index) ascend_host::move_bytes(here + index * sizeof(T), &value, sizeof(T));
    current->barrier(use, PIPE_ALL);
}

}  // namespace AscendC

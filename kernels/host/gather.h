// Calls that move elements by index or by value: Gather, Gatherb, Sort32, MrgSort and what is built from them.
#pragma once

#include "masked.h"

namespace AscendC {

struct GatherRepeatParams {
    uint8_t dstBlkStride = 1, dstRepStride = 8;
    GatherRepeatParams() = default;
    GatherRepeatParams(uint8_t block, uint8_t repeat) : dstBlkStride(block), dstRepStride(repeat) {}
};

// `ifExhaustedSuspension` ends a merge when one of its lists has no element left.
struct MrgSort4Info {
    uint16_t elementLengths[4] = {0, 0, 0, 0};
    bool ifExhaustedSuspension = false;
    uint16_t validBit = 0;
    uint8_t repeatTimes = 1;
    MrgSort4Info() = default;
    MrgSort4Info(const uint16_t lengths[4], bool suspends, uint16_t valid, uint16_t repeats)
        : ifExhaustedSuspension(suspends), validBit(valid), repeatTimes(uint8_t(repeats)) {
        std::copy(lengths, lengths + 4, elementLengths);
    }
};

template <class T>
struct MrgSortSrcList {
    LocalTensor<T> src1, src2, src3, src4;
    MrgSortSrcList() = default;
    MrgSortSrcList(const LocalTensor<T> &a, const LocalTensor<T> &b, const LocalTensor<T> &c, const LocalTensor<T> &d)
        : src1(a), src2(b), src3(c), src4(d) {}
};

namespace gather_detail {

constexpr uint32_t SORTED = 32, PAIR_BYTES = 8;

// An operand of `bytes` bytes in one piece.
template <class T>
void touch(const Use &use, uint32_t time, const LocalTensor<T> &tensor, uint64_t bytes, bool is_write) {
    tensor.check_aligned(use, bytes);
    current->access(use, PIPE_V, time, tensor.address, uint32_t(bytes), is_write);
}

// Copies `unit` bytes from each offset, in bytes from `src` and `base`.
template <class T, class Place>
void gather(const char *call, At at, const LocalTensor<T> &dst, const LocalTensor<T> &src,
            const LocalTensor<uint32_t> &offset, uint32_t base, uint32_t count, uint32_t unit, uint64_t cycles,
            Place place) {
    const Use to{call, "dst", at}, from{call, "src", at}, by{call, "srcOffset", at};
    const uint32_t time = current->begin(to, PIPE_V, cycles);
    touch(by, time, offset, uint64_t(count) * sizeof(uint32_t), false);
    dst.check_aligned(to, 0), src.check_aligned(from, 0);
    std::vector<uint8_t> moved(size_t(count) * unit);
    for (uint32_t index = 0; index < count; ++index) {
        const uint64_t begin = uint64_t(base) + offset.data()[index];
        if (begin % std::min<uint32_t>(unit, ascend_host::BLOCK) != 0)
            current->fail(by, "alignment", text("offsets that are multiples of ", unit, " bytes"),
                          text(begin, " at element ", index));
        src.check(from, begin, unit);
        current->access(from, PIPE_V, time, uint32_t(src.address + begin), unit, false);
        std::memcpy(&moved[size_t(index) * unit], &current->ub[src.address + begin], unit);
    }
    for (uint32_t index = 0; index < count; ++index) {
        const uint32_t target = place(index);
        dst.check(to, target, unit);
        current->access(to, PIPE_V, time, dst.address + target, unit, true);
        std::memcpy(&current->ub[dst.address + target], &moved[size_t(index) * unit], unit);
    }
}

// An element to be sorted, with the index that goes with it.
template <class T>
struct Pair {
    T value;
    uint32_t index;
};
template <class T>
Pair<T> pair_at(const uint8_t *place) {
    Pair<T> pair;
    std::memcpy(&pair.value, place, sizeof(T)), std::memcpy(&pair.index, place + 4, sizeof(uint32_t));
    return pair;
}
template <class T>
void put_pair(uint8_t *place, const Pair<T> &pair) {
    std::memset(place, 0, PAIR_BYTES);
    std::memcpy(place, &pair.value, sizeof(T)), std::memcpy(place + 4, &pair.index, sizeof(uint32_t));
}

}  // namespace gather_detail

template <class T>
void Gather(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &srcOffset,
            uint32_t srcBaseAddr, uint32_t count, At at = At::here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Gather takes elements of 2 and 4 bytes");
    gather_detail::gather("Gather", at, dst, src, srcOffset, srcBaseAddr, count, sizeof(T),
                          (uint64_t(count) * 4 + 31) / 32, [](uint32_t index) { return index * uint32_t(sizeof(T)); });
}
template <class T>
void Gather(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &srcOffset,
            uint32_t srcBaseAddr, uint64_t mask, uint8_t repeats, uint16_t dstRepStride, At at = At::here()) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Gather takes elements of 2 and 4 bytes");
    const auto lanes = vector_detail::masked({"Gather", "mask", at}, mask, repeats, ascend_host::REPEAT / sizeof(T));
    const auto each = uint32_t(lanes.active.size());
    gather_detail::gather("Gather", at, dst, src, srcOffset, srcBaseAddr, each * repeats, sizeof(T),
                          uint64_t(repeats) * 8, [each, dstRepStride](uint32_t index) {
                              return index / each * dstRepStride * ascend_host::BLOCK +
                                     index % each * uint32_t(sizeof(T));
                          });
}
// Whole blocks; eight offsets a repeat.
template <class T>
void Gatherb(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &offset,
             uint8_t repeats, const GatherRepeatParams &params, At at = At::here()) {
    gather_detail::gather("Gatherb", at, dst, src, offset, 0, uint32_t(repeats) * 8, ascend_host::BLOCK, repeats,
                          [params](uint32_t index) {
                              return (index / 8 * params.dstRepStride + index % 8 * params.dstBlkStride) *
                                     ascend_host::BLOCK;
                          });
}

// Sorts every 32 elements from the largest to the smallest, with their indices.
template <class T>
void Sort32(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<uint32_t> &src1, int32_t repeats,
            At at = At::here()) {
    using namespace gather_detail;
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, half>, "Sort32 takes half and float");
    const Use to{"Sort32", "dst", at};
    if (repeats < 0 || repeats > 255) current->fail(to, "mask", "0 to 255 repeats", text(repeats));
    const uint32_t count = uint32_t(repeats) * SORTED, time = current->begin(to, PIPE_V, uint64_t(repeats) * 4);
    touch({"Sort32", "src0", at}, time, src0, count * sizeof(T), false);
    touch({"Sort32", "src1", at}, time, src1, count * sizeof(uint32_t), false);
    std::vector<Pair<T>> pairs;
    for (uint32_t index = 0; index < count; ++index) pairs.push_back({src0.data()[index], src1.data()[index]});
    for (uint32_t first = 0; first < count; first += SORTED)
        std::stable_sort(pairs.begin() + first, pairs.begin() + first + SORTED,
                         [](const Pair<T> &a, const Pair<T> &b) { return a.value > b.value; });
    touch(to, time, dst, count * PAIR_BYTES, true);
    for (uint32_t index = 0; index < count; ++index)
        put_pair(&current->ub[dst.address + index * PAIR_BYTES], pairs[index]);
}

// Merges up to four sorted lists; of equal values, that of the earlier list is first. `taken` is how many elements of
// each list were merged.
template <class T, bool isExhaustedSuspension = false>
void MrgSort(const LocalTensor<T> &dst, const MrgSortSrcList<T> &lists, const uint16_t lengths[4], uint32_t taken[4],
             uint16_t validBit, uint16_t repeats, At at = At::here()) {
    using namespace gather_detail;
    const Use to{"MrgSort", "dst", at};
    if (validBit != 3 && validBit != 7 && validBit != 15)
        current->fail(to, "mask", "a validBit of 3, 7 or 15, of two to four lists", text(validBit));
    const int count = validBit == 3 ? 2 : validBit == 7 ? 3 : 4;
    const LocalTensor<T> *const sources[] = {&lists.src1, &lists.src2, &lists.src3, &lists.src4};
    uint32_t total = 0;
    for (int list = 0; list < count; ++list) total += lengths[list];
    if (repeats > 1 && (count != 4 || total != 4u * lengths[0] || isExhaustedSuspension))
        current->fail(to, "mask", "one repeat, or four lists of one length that are merged whole", text(repeats, " repeats"));
    const uint32_t time = current->begin(to, PIPE_V, uint64_t(total) * repeats / 8 + 1);
    std::vector<Pair<T>> merged;
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        uint32_t next[4] = {0, 0, 0, 0};
        const auto place = [&](int list, uint32_t index) {
            const uint32_t before = repeat * (repeats > 1 ? total : 0);
            return &current->ub[sources[list]->address + (before + index) * PAIR_BYTES];
        };
        for (int list = 0; list < count; ++list)
            touch({"MrgSort", "sortList", at}, time, *sources[list],
                  uint64_t(lengths[list]) * PAIR_BYTES + uint64_t(repeat) * total * PAIR_BYTES, false);
        for (;;) {
            int best = -1;
            bool is_exhausted = false;
            for (int list = 0; list < count; ++list) {
                if (next[list] == lengths[list]) { is_exhausted = true; continue; }
                if (best < 0 || pair_at<T>(place(list, next[list])).value > pair_at<T>(place(best, next[best])).value)
                    best = list;
            }
            if (best < 0 || (isExhaustedSuspension && is_exhausted)) break;
            merged.push_back(pair_at<T>(place(best, next[best]++)));
        }
        std::copy(next, next + 4, taken);
    }
    touch(to, time, dst, merged.size() * PAIR_BYTES, true);
    for (size_t index = 0; index < merged.size(); ++index)
        put_pair(&current->ub[dst.address + index * PAIR_BYTES], merged[index]);
    // The counts are read from a register once the vector unit is done.
    if (isExhaustedSuspension) current->join(PIPE_S, current->signal(PIPE_V));
}
template <class T>
void MrgSort(const LocalTensor<T> &dst, const MrgSortSrcList<T> &lists, const MrgSort4Info &info, At at = At::here()) {
    std::array<uint32_t, 4> taken{};
    if (info.ifExhaustedSuspension)
        MrgSort<T, true>(dst, lists, info.elementLengths, taken.data(), info.validBit, info.repeatTimes, at);
    else MrgSort<T, false>(dst, lists, info.elementLengths, taken.data(), info.validBit, info.repeatTimes, at);
    current->merged = taken;
}
inline void GetMrgSortResult(uint16_t &first, uint16_t &second, uint16_t &third, uint16_t &fourth) {
    const std::array<uint32_t, 4> &merged = current->merged;
    first = uint16_t(merged[0]), second = uint16_t(merged[1]), third = uint16_t(merged[2]), fourth = uint16_t(merged[3]);
}

// Elements of T that `count` sorted pairs take.
template <class T>
uint32_t GetSortLen(uint32_t count) {
    return count * gather_detail::PAIR_BYTES / uint32_t(sizeof(T));
}
template <class T>
uint32_t GetSortOffset(uint32_t count) {
    return GetSortLen<T>(count);
}
// This architecture sorts values where they are.
template <class T>
void Concat(LocalTensor<T> &concat, const LocalTensor<T> &src, const LocalTensor<T> &, int32_t) {
    concat = src;
}
template <class T>
void Extract(const LocalTensor<T> &value, const LocalTensor<uint32_t> &index, const LocalTensor<T> &sorted,
             int32_t repeats, At at = At::here()) {
    using namespace gather_detail;
    const Use use{"Extract", "dstValueLocal", at};
    const uint32_t count = uint32_t(repeats) * SORTED, time = current->begin(use, PIPE_V, uint64_t(repeats) * 2);
    touch({"Extract", "sortedLocal", at}, time, sorted, count * PAIR_BYTES, false);
    std::vector<Pair<T>> pairs;
    for (uint32_t at_pair = 0; at_pair < count; ++at_pair)
        pairs.push_back(pair_at<T>(&current->ub[sorted.address + at_pair * PAIR_BYTES]));
    touch(use, time, value, count * sizeof(T), true);
    touch({"Extract", "dstIndexLocal", at}, time, index, count * sizeof(uint32_t), true);
    for (uint32_t at_pair = 0; at_pair < count; ++at_pair)
        value.data()[at_pair] = pairs[at_pair].value, index.data()[at_pair] = pairs[at_pair].index;
}
// Sorts every 32 elements, or with `isFullSort` all of them.
template <class T, bool isFullSort>
void Sort(const LocalTensor<T> &dst, const LocalTensor<T> &concat, const LocalTensor<uint32_t> &index,
          LocalTensor<T> &tmp, int32_t repeats, At at = At::here()) {
    using namespace gather_detail;
    Sort32(dst, concat, index, repeats, at);
    if (!isFullSort) return;
    const uint32_t count = uint32_t(repeats) * SORTED;
    const Use use{"Sort", "dst", at};
    current->barrier(use, PIPE_V);
    const uint32_t time = current->begin(use, PIPE_V, uint64_t(count) / 4 + 1);
    touch({"Sort", "tmp", at}, time, tmp, count * PAIR_BYTES, true);
    std::vector<Pair<T>> pairs;
    for (uint32_t at_pair = 0; at_pair < count; ++at_pair)
        pairs.push_back(pair_at<T>(&current->ub[dst.address + at_pair * PAIR_BYTES]));
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair<T> &a, const Pair<T> &b) { return a.value > b.value; });
    touch(use, time, dst, count * PAIR_BYTES, true);
    current->scramble(tmp.address, count * PAIR_BYTES);
    for (uint32_t at_pair = 0; at_pair < count; ++at_pair)
        put_pair(&current->ub[dst.address + at_pair * PAIR_BYTES], pairs[at_pair]);
}

}  // namespace AscendC

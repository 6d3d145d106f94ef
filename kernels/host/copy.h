// What moves bytes and what orders pipes and cores: copies, atomics, flags, barriers.
#pragma once

#include "tensor.h"

namespace AscendC {

namespace copy_detail {

constexpr uint64_t MAX_ROWS = 4095, MAX_ROW_BYTES = 2097151;

inline uint64_t blocks(uint64_t bytes) { return (bytes + ascend_host::BLOCK - 1) / ascend_host::BLOCK; }

struct Rows {
    uint64_t count, bytes, global_pitch, local_pitch;
};

inline void check(const Use &use, const Rows &rows, uint64_t max_bytes) {
    if (rows.count < 1 || rows.count > MAX_ROWS)
        current->fail(use, "range", text("1 to ", MAX_ROWS, " rows"), text(rows.count));
    if (rows.bytes < 1 || rows.bytes > max_bytes)
        current->fail(use, "range", text("rows of 1 to ", max_bytes, " bytes"), text(rows.bytes));
}

template <class T>
Use global(const GlobalTensor<T> &tensor, const Rows &rows, const Use &use) {
    const uint64_t bytes = (rows.count - 1) * rows.global_pitch + rows.bytes;
    tensor.check(use, 0, (bytes + sizeof(T) - 1) / sizeof(T));
    return use;
}

inline uint64_t cycles(const Rows &rows) { return rows.count * std::max<uint64_t>(1, blocks(rows.bytes)); }

template <class T>
void in(const char *call, At at, const LocalTensor<T> &dst, const GlobalTensor<T> &src, const Rows &rows, uint32_t left,
        uint32_t right, const T *padding) {
    const Use to{call, "dst", at}, from{call, "src", at};
    const uint64_t row_bytes = left * sizeof(T) + rows.bytes + right * sizeof(T);
    dst.check_aligned(to, (rows.count - 1) * rows.local_pitch + row_bytes);
    global(src, rows, from);
    Core &core = *current;
    const uint32_t time = core.begin(to, PIPE_MTE2, cycles(rows));
    for (uint64_t row = 0; row < rows.count; ++row) {
        const auto *source = reinterpret_cast<const uint8_t *>(src.pointer) + row * rows.global_pitch;
        const auto target = uint32_t(dst.address + row * rows.local_pitch);
        const uint8_t *here = core.launch->access(from, PIPE_MTE2, time, source, rows.bytes, false, false);
        // A row is written in whole blocks; what is not asked for has no defined value.
        const auto whole = uint32_t(blocks(row_bytes) * ascend_host::BLOCK);
        core.access(to, PIPE_MTE2, time, target, whole, true);
        core.scramble(target, whole);
        const auto first = uint32_t(padding != nullptr ? target : target + left * sizeof(T));
        const auto last =
            uint32_t(target + left * sizeof(T) + rows.bytes + (padding != nullptr ? right * sizeof(T) : 0));
        std::fill(core.written.begin() + first, core.written.begin() + last, 1);
        for (uint32_t index = 0; padding != nullptr && index < left; ++index)
            std::memcpy(&core.ub[target + index * sizeof(T)], padding, sizeof(T));
        std::memcpy(&core.ub[target + left * sizeof(T)], here, rows.bytes);
        for (uint32_t index = 0; padding != nullptr && index < right; ++index)
            std::memcpy(&core.ub[target + left * sizeof(T) + rows.bytes + index * sizeof(T)], padding, sizeof(T));
    }
}

enum Atomic { NONE, ADD, MAX, MIN };

template <class T>
void combine(uint8_t *target, const uint8_t *source, int operation) {
    T a, b;
    std::memcpy(&a, target, sizeof a), std::memcpy(&b, source, sizeof b);
    if constexpr (std::is_same_v<T, bfloat16_t>) {
        const float x = ToFloat(a), y = ToFloat(b);
        a = ToBfloat16(operation == ADD ? x + y : operation == MAX ? std::max(x, y) : std::min(x, y));
    } else {
        a = operation == ADD ? T(a + b) : operation == MAX ? std::max(a, b) : std::min(a, b);
    }
    std::memcpy(target, &a, sizeof a);
}

template <class T>
void out(const char *call, At at, const GlobalTensor<T> &dst, const LocalTensor<T> &src, const Rows &rows) {
    const Use to{call, "dst", at}, from{call, "src", at};
    src.check_aligned(from, (rows.count - 1) * rows.local_pitch + rows.bytes);
    global(dst, rows, to);
    Core &core = *current;
    const uint32_t time = core.begin(to, PIPE_MTE3, cycles(rows));
    for (uint64_t row = 0; row < rows.count; ++row) {
        auto *target = reinterpret_cast<uint8_t *>(dst.pointer) + row * rows.global_pitch;
        const auto source = uint32_t(src.address + row * rows.local_pitch);
        core.access(from, PIPE_MTE3, time, source, uint32_t(rows.bytes), false);
        uint8_t *here = core.launch->access(to, PIPE_MTE3, time, target, rows.bytes, true, core.atomic != NONE);
        if (core.atomic == NONE) std::memcpy(here, &core.ub[source], rows.bytes);
        else
            for (uint64_t at_byte = 0; at_byte < rows.bytes; at_byte += sizeof(T))
                combine<T>(here + at_byte, &core.ub[source + at_byte], core.atomic);
    }
}

// `DataCopy` moves whole blocks and counts them.
inline Rows whole(const Use &use, uint64_t bytes) {
    if (bytes == 0 || bytes % ascend_host::BLOCK != 0)
        current->fail(use, "alignment", "a length that is a multiple of 32 bytes and not 0", text(bytes));
    return {1, bytes, 0, 0};
}
inline Rows strided(const Use &use, const DataCopyParams &params, uint64_t global_stride, uint64_t local_stride) {
    const Rows rows{params.blockCount, uint64_t(params.blockLen) * 32, (params.blockLen + global_stride) * 32,
                    (params.blockLen + local_stride) * 32};
    check(use, rows, 65535 * 32);
    return rows;
}
inline Rows padded(const Use &use, uint64_t count, uint64_t bytes, uint64_t global_stride, uint64_t local_stride,
                   uint64_t padding, uint64_t max_bytes) {
    const Rows rows{count, bytes, bytes + global_stride, (blocks(bytes + padding) + local_stride) * ascend_host::BLOCK};
    check(use, rows, max_bytes);
    return rows;
}
template <class T, class Padding>
void check_padding(const Use &use, const Padding &pad) {
    const uint32_t most = ascend_host::BLOCK / sizeof(T);
    if (pad.leftPadding > most || pad.rightPadding > most)
        current->fail(use, "range", text("padding of at most ", most, " elements a side"),
                      text(std::max(pad.leftPadding, pad.rightPadding)));
}

}  // namespace copy_detail

template <class T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, uint32_t count, At at = At::here()) {
    copy_detail::in<T>("DataCopy", at, dst, src,
                       copy_detail::whole({"DataCopy", "dst", at}, uint64_t(count) * sizeof(T)), 0, 0, nullptr);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count, At at = At::here()) {
    copy_detail::out<T>("DataCopy", at, dst, src,
                        copy_detail::whole({"DataCopy", "src", at}, uint64_t(count) * sizeof(T)));
}
template <class T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &params, At at = At::here()) {
    copy_detail::in<T>("DataCopy", at, dst, src,
                       copy_detail::strided({"DataCopy", "dst", at}, params, params.srcStride, params.dstStride), 0, 0,
                       nullptr);
}
template <class T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &params, At at = At::here()) {
    copy_detail::out<T>("DataCopy", at, dst, src,
                        copy_detail::strided({"DataCopy", "src", at}, params, params.dstStride, params.srcStride));
}
// Inside the unified buffer the vector unit copies.
template <class T>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count, At at = At::here()) {
    const Use to{"DataCopy", "dst", at}, from{"DataCopy", "src", at};
    const auto bytes = uint32_t(copy_detail::whole(to, uint64_t(count) * sizeof(T)).bytes);
    dst.check_aligned(to, bytes), src.check_aligned(from, bytes);
    const uint32_t time = current->begin(to, PIPE_V, (bytes + 255) / 256);
    current->access(from, PIPE_V, time, src.address, bytes, false);
    current->access(to, PIPE_V, time, dst.address, bytes, true);
    std::memmove(&current->ub[dst.address], &current->ub[src.address], bytes);
}

template <class T>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &params,
                 const DataCopyPadParams &pad, At at = At::here()) {
    const Use use{"DataCopyPad", "dst", at};
    copy_detail::check_padding<T>(use, pad);
    const uint32_t left = pad.isPad ? pad.leftPadding : 0, right = pad.isPad ? pad.rightPadding : 0;
    const T zero{};
    copy_detail::in<T>("DataCopyPad", at, dst, src,
                       copy_detail::padded(use, params.blockCount, params.blockLen, params.srcStride, params.dstStride,
                                           (left + right) * sizeof(T), 65535),
                       left, right, pad.isPad ? &zero : nullptr);
}
template <class T>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyExtParams &params,
                 const DataCopyPadExtParams<T> &pad, At at = At::here()) {
    const Use use{"DataCopyPad", "dst", at};
    copy_detail::check_padding<T>(use, pad);
    const uint32_t left = pad.isPad ? pad.leftPadding : 0, right = pad.isPad ? pad.rightPadding : 0;
    copy_detail::in<T>("DataCopyPad", at, dst, src,
                       copy_detail::padded(use, params.blockCount, params.blockLen, params.srcStride, params.dstStride,
                                           (left + right) * sizeof(T), copy_detail::MAX_ROW_BYTES),
                       left, right, pad.isPad ? &pad.paddingValue : nullptr);
}
template <class T>
void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &params,
                 At at = At::here()) {
    copy_detail::out<T>("DataCopyPad", at, dst, src,
                        copy_detail::padded({"DataCopyPad", "src", at}, params.blockCount, params.blockLen,
                                            params.dstStride, params.srcStride, 0, 65535));
}
template <class T>
void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyExtParams &params,
                 At at = At::here()) {
    copy_detail::out<T>("DataCopyPad", at, dst, src,
                        copy_detail::padded({"DataCopyPad", "src", at}, params.blockCount, params.blockLen,
                                            params.dstStride, params.srcStride, 0, copy_detail::MAX_ROW_BYTES));
}

namespace copy_detail {
inline void set_atomic(const char *call, Atomic operation, At at) {
    current->begin({call, "", at}, PIPE_S, 1);
    current->atomic = operation, current->atomic_set = at;
}
}  // namespace copy_detail
template <class T>
void SetAtomicAdd(At at = At::here()) {
    copy_detail::set_atomic("SetAtomicAdd", copy_detail::ADD, at);
}
template <class T>
void SetAtomicMax(At at = At::here()) {
    copy_detail::set_atomic("SetAtomicMax", copy_detail::MAX, at);
}
template <class T>
void SetAtomicMin(At at = At::here()) {
    copy_detail::set_atomic("SetAtomicMin", copy_detail::MIN, at);
}
inline void SetAtomicNone(At at = At::here()) { copy_detail::set_atomic("SetAtomicNone", copy_detail::NONE, at); }

namespace copy_detail {
constexpr std::pair<int, int> pipes(HardEvent event) {
    switch (event) {
    case HardEvent::S_V: return {PIPE_S, PIPE_V};
    case HardEvent::S_MTE2: return {PIPE_S, PIPE_MTE2};
    case HardEvent::S_MTE3: return {PIPE_S, PIPE_MTE3};
    case HardEvent::V_S: return {PIPE_V, PIPE_S};
    case HardEvent::V_V: return {PIPE_V, PIPE_V};
    case HardEvent::V_MTE2: return {PIPE_V, PIPE_MTE2};
    case HardEvent::V_MTE3: return {PIPE_V, PIPE_MTE3};
    case HardEvent::MTE2_S: return {PIPE_MTE2, PIPE_S};
    case HardEvent::MTE2_V: return {PIPE_MTE2, PIPE_V};
    case HardEvent::MTE2_MTE3: return {PIPE_MTE2, PIPE_MTE3};
    case HardEvent::MTE3_S: return {PIPE_MTE3, PIPE_S};
    case HardEvent::MTE3_V: return {PIPE_MTE3, PIPE_V};
    case HardEvent::MTE3_MTE2: return {PIPE_MTE3, PIPE_MTE2};
    }
    return {PIPE_S, PIPE_S};
}
inline ascend_host::Stamp &flag(const Use &use, HardEvent event, event_t id) {
    if (id < 0 || id >= event_t(ascend_host::EVENT_IDS))
        current->fail(use, "flag", text("an event 0 to ", ascend_host::EVENT_IDS - 1), text(id));
    return current->flags[size_t(event)][size_t(id)];
}
}  // namespace copy_detail

template <HardEvent event>
void SetFlag(event_t id, At at = At::here()) {
    const Use use{"SetFlag", "", at};
    current->begin(use, PIPE_S, 1);
    ascend_host::Stamp &flag = copy_detail::flag(use, event, id);
    if (flag.is_set) current->fail(use, "flag", "a WaitFlag before the next SetFlag", text("event ", id, " set twice"));
    flag = current->signal(copy_detail::pipes(event).first);
    current->flag_set[size_t(event)][size_t(id)] = at;
}
template <HardEvent event>
void WaitFlag(event_t id, At at = At::here()) {
    const Use use{"WaitFlag", "", at};
    current->begin(use, PIPE_S, 1);
    ascend_host::Stamp &flag = copy_detail::flag(use, event, id);
    if (!flag.is_set)
        current->fail(use, "flag", text("a SetFlag of event ", id, " before"),
                      text("none", ascend_host::WAITS_FOR_EVER));
    current->join(copy_detail::pipes(event).second, flag);
    flag.is_set = false;
}
template <pipe_t pipe>
void PipeBarrier(At at = At::here()) {
    current->barrier({"PipeBarrier", "", at}, pipe);
}
inline void pipe_barrier(pipe_t pipe, At at = At::here()) { current->barrier({"pipe_barrier", "", at}, pipe); }
template <bool is_vector_only = true>
void SyncAll(At at = At::here()) {
    current->launch->sync_all({"SyncAll", "", at});
}

}  // namespace AscendC

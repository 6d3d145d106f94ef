// Tensors, buffers and queues: who owns which bytes of the unified buffer, and which order a queue gives.
#pragma once

#include "launch.h"

namespace AscendC {

using ascend_host::At;
using ascend_host::Core;
using ascend_host::current;
using ascend_host::Slot;
using ascend_host::SlotState;
using ascend_host::text;
using ascend_host::Use;

inline int64_t GetBlockIdx() { return current->index; }
inline int64_t GetBlockNum() { return current->launch->cores; }
inline int64_t GetSubBlockIdx() { return 0; }
inline int64_t GetTaskRation() { return 1; }

// A place in the unified buffer. It names its buffer and the turn of it, so that one which was freed is found.
template <class T>
struct LocalTensor {
    using PrimType = T;
    uint32_t address = 0;
    Slot *slot = nullptr;
    uint32_t generation = 0;

    LocalTensor operator[](uint32_t offset) const { return {uint32_t(address + offset * sizeof(T)), slot, generation}; }
    uint32_t GetSize() const {
        return slot == nullptr ? 0 : (slot->address + slot->bytes - address) / uint32_t(sizeof(T));
    }
    uint32_t GetLength() const { return GetSize() * sizeof(T); }
    template <class U>
    LocalTensor<U> ReinterpretCast() const {
        return {address, slot, generation};
    }
    T *data() const { return reinterpret_cast<T *>(current->ub.data() + address); }

    T GetValue(uint32_t index, At at = At::here()) const {
        const Use use{"GetValue", "of the tensor", at};
        check(use, index * sizeof(T), sizeof(T));
        current->access(use, PIPE_S, current->begin(use, PIPE_S, 1), uint32_t(address + index * sizeof(T)), sizeof(T),
                        false);
        return data()[index];
    }
    void SetValue(uint32_t index, T value, At at = At::here()) const {
        const Use use{"SetValue", "of the tensor", at};
        check(use, index * sizeof(T), sizeof(T));
        current->access(use, PIPE_S, current->begin(use, PIPE_S, 1), uint32_t(address + index * sizeof(T)), sizeof(T),
                        true);
        data()[index] = value;
    }
    T operator()(uint32_t index, At at = At::here()) const { return GetValue(index, at); }

    // Whether the buffer is the holder's, and `bytes` bytes from `offset` lie in it.
    void check(const Use &use, uint64_t offset, uint64_t bytes) const {
        if (slot == nullptr) current->fail(use, "queue", "a tensor of a buffer", "one that was never made");
        const auto where = [this] { return text(", buffer of line ", slot->made.line); };
        const bool is_held = slot->state == SlotState::Allocated || slot->state == SlotState::Dequeued ||
                             slot->state == SlotState::Fixed;
        if (!is_held || generation != slot->generation)
            current->fail(
                use, "queue", "a buffer that is allocated or dequeued",
                text(is_held ? "one that was freed since" : std::string("one that is ") + name(slot->state), where()));
        const uint64_t begin = address + offset, end = begin + bytes;
        if (begin < slot->address || end > slot->address + slot->bytes)
            current->fail(
                use, "range", text("bytes 0 to ", slot->bytes, " of its buffer"),
                text("bytes ", int64_t(begin) - slot->address, " to ", int64_t(end) - slot->address, where()));
    }
    // That, and that the address is one which vector calls and copies take.
    void check_aligned(const Use &use, uint64_t bytes, uint32_t alignment = ascend_host::BLOCK) const {
        check(use, 0, bytes);
        if (address % alignment != 0)
            current->fail(use, "alignment", text("a local address that is a multiple of ", alignment),
                          text(address % alignment, " bytes beyond one"));
    }
};

template <class T>
struct GlobalTensor {
    using PrimType = T;
    T *pointer = nullptr;
    uint64_t size = 0;

    void SetGlobalBuffer(T *buffer, uint64_t elements = ~uint64_t(0)) { pointer = buffer, size = elements; }
    GlobalTensor operator[](uint64_t offset) const {
        GlobalTensor result;
        result.pointer = reinterpret_cast<T *>(uint64_t(pointer) + offset * sizeof(T)), result.size = size;
        result.skipped = skipped + offset;
        return result;
    }
    uint64_t GetSize() const { return size; }
    const T *GetPhyAddr() const { return pointer; }
    const T *GetPhyAddr(uint64_t offset) const { return pointer + offset; }
    void SetL2CacheHint(int) const {}

    T GetValue(uint64_t index, At at = At::here()) const {
        const Use use{"GetValue", "of global memory", at};
        check(use, index, 1);
        // A miss of the scalar cache.
        const uint32_t time = current->begin(use, PIPE_S, 64);
        const auto *place = reinterpret_cast<const uint8_t *>(uint64_t(pointer) + index * sizeof(T));
        const auto &block =
            current->launch->find(use, place, sizeof(T)).block(uint64_t(place) / ascend_host::BLOCK);
        if (block.writer >= 0 && block.write_pipe != PIPE_S && current->invalidated <= block.write_epoch)
            current->fail(use, "order", "DataCacheCleanAndInvalid after the write",
                          "a line that the scalar cache may hold from before");
        const uint8_t *here = current->launch->access(use, PIPE_S, time, place, sizeof(T), false, false);
        T value;
        std::memcpy(&value, here, sizeof value);
        return value;
    }
    void SetValue(uint64_t index, T value, At at = At::here()) const {
        const Use use{"SetValue", "of global memory", at};
        check(use, index, 1);
        auto *place = reinterpret_cast<uint8_t *>(uint64_t(pointer) + index * sizeof(T));
        uint8_t *here =
            current->launch->access(use, PIPE_S, current->begin(use, PIPE_S, 1), place, sizeof(T), true, false);
        current->dirty.push_back(line(place)), current->dirty_set = at;
        std::memcpy(here, &value, sizeof value);
    }
    T operator()(uint64_t index, At at = At::here()) const { return GetValue(index, at); }

    // Whether `elements` from `index` lie in what SetGlobalBuffer was told.
    void check(const Use &use, uint64_t index, uint64_t elements) const {
        if (size != ~uint64_t(0) && skipped + index + elements > size)
            current->fail(use, "range", text("elements 0 to ", size, " of its GlobalTensor"),
                          text("elements ", skipped + index, " to ", skipped + index + elements));
    }
    static const void *line(const void *place) {
        return reinterpret_cast<const void *>(uint64_t(place) / ascend_host::CACHE_LINE * ascend_host::CACHE_LINE);
    }

    uint64_t skipped = 0;
};

// Writes the scalar cache's lines back and forgets them.
template <class T, CacheLine lines, DcciDst target = DcciDst::CACHELINE_OUT>
void DataCacheCleanAndInvalid(const GlobalTensor<T> &tensor, At at = At::here()) {
    current->begin({"DataCacheCleanAndInvalid", "", at}, PIPE_S, 64);
    current->invalidated = current->launch->epoch + 1;
    auto &dirty = current->dirty;
    const void *line = GlobalTensor<T>::line(tensor.pointer);
    if (lines == CacheLine::ENTIRE_DATA_CACHE) dirty.clear();
    else dirty.erase(std::remove(dirty.begin(), dirty.end(), line), dirty.end());
}

template <TPosition position>
constexpr int producer_of() {
    static_assert(position == TPosition::VECIN || position == TPosition::VECOUT || position == TPosition::VECCALC,
                  "the model knows the queues of a vector core");
    return position == TPosition::VECIN ? PIPE_MTE2 : PIPE_V;
}

// A queue between the pipe that fills its buffers and the pipe that empties them.
template <int producer, int consumer, int depth>
struct Queue {
    std::vector<Slot *> buffers;
    std::deque<Slot *> queued;

    template <class T>
    LocalTensor<T> AllocTensor(At at = At::here()) {
        const Use use{"AllocTensor", "", at};
        current->begin(use, PIPE_S, 1);
        for (Slot *slot : buffers) {
            if (slot->state != SlotState::Free) continue;
            slot->state = SlotState::Allocated, ++slot->generation;
            if (slot->freed.is_set) current->join(producer, slot->freed);
            current->scramble(slot->address, slot->bytes);
            // Next time it is another's turn.
            buffers.erase(std::find(buffers.begin(), buffers.end(), slot));
            buffers.push_back(slot);
            return {slot->address, slot, slot->generation};
        }
        current->fail(use, "queue", "a free buffer", text("all ", buffers.size(), " in use", ascend_host::WAITS_FOR_EVER));
    }
    template <class T>
    bool EnQue(const LocalTensor<T> &tensor, At at = At::here()) {
        const Use use{"EnQue", "", at};
        current->begin(use, PIPE_S, 1);
        Slot *slot = own(use, tensor);
        if (slot->state != SlotState::Allocated && slot->state != SlotState::Dequeued)
            current->fail(use, "queue", "an allocated tensor", text("one that is ", name(slot->state)));
        if (int(queued.size()) >= depth)
            current->fail(use, "queue", text("at most ", depth, " in the queue"), "one more");
        slot->state = SlotState::Queued, slot->queued = current->signal(producer);
        queued.push_back(slot);
        return true;
    }
    template <class T>
    LocalTensor<T> DeQue(At at = At::here()) {
        const Use use{"DeQue", "", at};
        current->begin(use, PIPE_S, 1);
        if (queued.empty()) current->fail(use, "queue", "a tensor in the queue", text("none", ascend_host::WAITS_FOR_EVER));
        Slot *slot = queued.front();
        queued.pop_front();
        slot->state = SlotState::Dequeued;
        current->join(consumer, slot->queued);
        return {slot->address, slot, slot->generation};
    }
    template <class T>
    void FreeTensor(const LocalTensor<T> &tensor, At at = At::here()) {
        const Use use{"FreeTensor", "", at};
        current->begin(use, PIPE_S, 1);
        Slot *slot = own(use, tensor);
        if (slot->state != SlotState::Allocated && slot->state != SlotState::Dequeued)
            current->fail(use, "queue", "a tensor that is allocated or dequeued",
                          text("one that is ", name(slot->state)));
        slot->state = SlotState::Free, slot->freed = current->signal(consumer);
    }
    bool VacantInQue() const { return int(queued.size()) < depth; }
    bool HasTensorInQue() const { return !queued.empty(); }
    int32_t GetTensorCountInQue() const { return int32_t(queued.size()); }

  private:
    template <class T>
    Slot *own(const Use &use, const LocalTensor<T> &tensor) const {
        if (std::find(buffers.begin(), buffers.end(), tensor.slot) == buffers.end())
            current->fail(
                use, "queue", "a tensor of this queue",
                tensor.slot == nullptr ? "one that was never made" : text("one of line ", tensor.slot->made.line));
        if (tensor.generation != tensor.slot->generation)
            current->fail(use, "queue", "the tensor that was allocated last", "an older one");
        return tensor.slot;
    }
};

template <TPosition source, TPosition target, int depth>
struct TQueBind : Queue<producer_of<source>(), target == TPosition::VECOUT ? int(PIPE_MTE3) : int(PIPE_V), depth> {
    static constexpr TPosition position = source;
};
// The third argument says how a card lays data out; vector cores know one layout.
template <TPosition where, int depth, int layout = 0>
struct TQue : TQueBind<where, where, depth> {};

template <TPosition where = TPosition::VECCALC>
struct TBuf {
    Slot *slot = nullptr;
    template <class T>
    LocalTensor<T> Get() const {
        return {slot == nullptr ? 0 : slot->address, slot, 0};
    }
    template <class T>
    LocalTensor<T> Get(uint32_t) const {
        return Get<T>();
    }
    template <class T>
    LocalTensor<T> GetWithOffset(uint32_t, uint32_t bytes) const {
        return {slot->address + bytes, slot, 0};
    }
};

struct TPipe {
    template <int producer, int consumer, int depth>
    bool InitBuffer(Queue<producer, consumer, depth> &queue, uint8_t number, uint32_t bytes, At at = At::here()) {
        uint32_t &taken = current->slots_of_position[consumer];
        taken += number;
        if (taken > ascend_host::MAX_BUFFERS_OF_POSITION)
            current->fail({"InitBuffer", "", at}, "queue",
                          text("at most ", ascend_host::MAX_BUFFERS_OF_POSITION, " buffers of queues at one position"),
                          text(taken));
        for (int count = 0; count < number; ++count) queue.buffers.push_back(take(bytes, SlotState::Free, at));
        return true;
    }
    template <TPosition where>
    bool InitBuffer(TBuf<where> &buffer, uint32_t bytes, At at = At::here()) {
        buffer.slot = take(bytes, SlotState::Fixed, at);
        return true;
    }
    void Destroy() {}
    void Reset() {}
    template <HardEvent event>
    TEventID AllocEventID(At at = At::here()) {
        uint8_t &taken = current->allocated_events[size_t(event)];
        if (taken == ascend_host::EVENT_IDS)
            current->fail({"AllocEventID", "", at}, "flag", text("at most ", taken, " at once"), "one more");
        return taken++;
    }
    template <HardEvent event>
    void ReleaseEventID(TEventID) {
        --current->allocated_events[size_t(event)];
    }
    template <HardEvent event>
    TEventID FetchEventID() const {
        return current->allocated_events[size_t(event)];
    }
    TEventID FetchEventID(HardEvent event) const { return current->allocated_events[size_t(event)]; }

  private:
    static Slot *take(uint32_t bytes, SlotState state, At at) {
        Core &core = *current;
        const Use use{"InitBuffer", "", at};
        const uint32_t rounded = (bytes + ascend_host::BLOCK - 1) / ascend_host::BLOCK * ascend_host::BLOCK;
        if (bytes == 0) core.fail(use, "range", "a buffer of at least a byte", "0");
        if (core.used + rounded > ascend_host::UB_BYTES)
            core.fail(use, "range", text("at most ", ascend_host::UB_BYTES, " bytes of unified buffer"),
                      text(core.used + rounded));
        if (core.slots.size() == ascend_host::MAX_BUFFERS)
            core.fail(use, "queue", text("at most ", ascend_host::MAX_BUFFERS, " buffers"), "one more");
        core.slots.push_back({core.used, rounded, at, state});
        core.used += rounded;
        return &core.slots.back();
    }
};

inline TPipe *GetTPipePtr() {
    static TPipe pipe;
    return &pipe;
}

}  // namespace AscendC

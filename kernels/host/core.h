// One AI vector core as the model sees it: its unified buffer, its pipes and their order, its count of cycles.
//
// Every call of a kernel is an operation on one pipe with operands that it reads and writes. It has its effect at once;
// what is checked is whether a card would have been bound to show the same. Order is kept as vector clocks:
// `known[p].seen[q]` is how many operations of pipe q are certain to have ended when pipe p goes on. An access to a
// block of 32 bytes that another operation touched, without that certainty, is a finding. The first finding ends the
// launch.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "types.h"

namespace ascend_host {

constexpr uint32_t UB_BYTES = 196608, BLOCK = 32, REPEAT = 256, CACHE_LINE = 64;
// What `Select` with a scalar or a tensor of its own uses at the end of the unified buffer.
constexpr uint32_t SELECT_BYTES = 8192;
constexpr uint32_t MAX_BUFFERS = 64, MAX_BUFFERS_OF_POSITION = 8, EVENT_IDS = 8;
constexpr int PIPES = 4;
// More calls than any launch of a kernel in its tests makes: a loop that does not end.
constexpr uint64_t MAX_CALLS = 4'000'000;

inline const char *name(int pipe) {
    static const char *const names[] = {"S", "V", "MTE2", "MTE3"};
    return names[pipe];
}

// Where in the kernel's source a call stands.
struct At {
    const char *file;
    int line;
    static At here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

// The end of what is found where a card does not go on.
constexpr const char *WAITS_FOR_EVER = ": a card waits for ever";

// What a call does to which operand.
struct Use {
    const char *call;
    const char *operand;
    At at;
};

// What a rule expected, and what it found.
struct Finding : std::runtime_error {
    std::string kernel, file, call, operand, rule, expected, found;
    // -1 and 0 where no core and no line is to blame.
    int core = -1, line = 0;
    // A card would not go on, rather than compute something else.
    bool is_hang = false;

    using std::runtime_error::runtime_error;
};

// Unwinds the cores of a launch that another core has ended.
struct Cancelled {};

template <class... Parts>
std::string text(const Parts &...parts) {
    std::string result;
    const auto append = [&result](const auto &part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) result += std::to_string(part);
        else result += part;
    };
    (append(parts), ...);
    return result;
}

// What a pipe knows of the others, and when.
struct Stamp {
    std::array<uint32_t, PIPES> seen{};
    uint64_t cycle = 0;
    bool is_set = false;
};

enum class SlotState { Free, Allocated, Queued, Dequeued, Fixed };

inline const char *name(SlotState state) {
    static const char *const names[] = {"free", "allocated", "queued", "dequeued", "a TBuf"};
    return names[int(state)];
}

// A buffer of a queue, or a TBuf.
struct Slot {
    uint32_t address, bytes;
    At made;
    SlotState state = SlotState::Free;
    uint32_t generation = 0;
    // Set by EnQue for DeQue, and by FreeTensor for AllocTensor.
    Stamp queued{}, freed{};
};

struct Launch;

struct Core {
    Launch *launch = nullptr;
    int index = 0;
    // The compiler's own ordering of vector and scalar work is taken for granted (`--cce-auto-sync`).
    bool auto_sync = false;

    std::vector<uint8_t> ub = std::vector<uint8_t>(UB_BYTES), written = std::vector<uint8_t>(UB_BYTES);
    struct Block {
        int8_t writer = -1;
        uint32_t wrote = 0;
        std::array<uint32_t, PIPES> read{};
    };
    std::vector<Block> blocks = std::vector<Block>(UB_BYTES / BLOCK);
    std::deque<Slot> slots;
    std::array<uint32_t, 4> slots_of_position{};
    uint32_t used = 0;

    std::array<uint32_t, PIPES> clock{};
    std::array<Stamp, PIPES> known{};
    std::array<uint64_t, PIPES> busy{}, free_at{};
    std::array<std::array<Stamp, EVENT_IDS>, 16> flags{};
    std::array<std::array<At, EVENT_IDS>, 16> flag_set{};
    std::array<uint8_t, 16> allocated_events{};
    int atomic = 0;
    At atomic_set{};
    uint32_t invalidated = 0;
    std::vector<const void *> dirty;
    At dirty_set{};
    uint64_t calls = 0;

    // Makes the core new; the buffer is only as large as the last kernel made it.
    void reset(Launch *owner, int number, bool automatic) {
        scramble(0, used);
        std::fill_n(blocks.begin(), used / BLOCK, Block{});
        launch = owner, index = number, auto_sync = automatic;
        slots.clear(), slots_of_position = {}, used = 0;
        clock = {}, known = {}, busy = {}, free_at = {}, flags = {}, allocated_events = {};
        atomic = 0, invalidated = 0, calls = 0, dirty.clear();
    }

    [[noreturn]] void fail(const Use &use, const char *rule, const std::string &expected,
                           const std::string &found) const;

    // One more operation on a pipe. It is issued when the scalar unit has come there, so it knows what that unit knows.
    uint32_t begin(const Use &use, int pipe, uint64_t cycles) {
        if (++calls > MAX_CALLS) fail(use, "end", "a kernel that ends", text(MAX_CALLS, " calls"));
        join(pipe, known[PIPE_S]);
        free_at[pipe] = std::max(free_at[pipe], free_at[PIPE_S]) + cycles;
        busy[pipe] += cycles;
        return ++clock[pipe];
    }

    void join(int pipe, const Stamp &stamp) {
        for (int other = 0; other < PIPES; ++other)
            known[pipe].seen[other] = std::max(known[pipe].seen[other], stamp.seen[other]);
        free_at[pipe] = std::max(free_at[pipe], stamp.cycle);
    }

    // What is certain once a pipe has done all that it was given so far.
    Stamp signal(int pipe) {
        Stamp stamp = known[pipe];
        for (int other = 0; other < PIPES; ++other)
            stamp.seen[other] = std::max(stamp.seen[other], known[PIPE_S].seen[other]);
        stamp.seen[pipe] = clock[pipe], stamp.cycle = free_at[pipe], stamp.is_set = true;
        return stamp;
    }

    void barrier(const Use &use, int pipe) {
        begin(use, PIPE_S, 1);
        if (pipe != PIPE_ALL) {
            if (pipe < PIPES) known[pipe].seen[pipe] = clock[pipe];
            return;
        }
        const uint64_t last = *std::max_element(free_at.begin(), free_at.end());
        for (int one = 0; one < PIPES; ++one) known[one].seen = clock, free_at[one] = last;
    }

    bool is_ordered(int pipe, int before, uint32_t time) const {
        if (time == 0 || known[pipe].seen[before] >= time) return true;
        // Scalar work is done in the order of the program; the rest of these is what the compiler can insert by itself.
        if (pipe == before) return pipe == PIPE_S || (auto_sync && pipe == PIPE_V);
        return auto_sync && (pipe == PIPE_S || before == PIPE_S);
    }

    void order_fault(const Use &use, int pipe, int before, const char *what) const {
        const std::string missing =
            pipe == before ? text("PipeBarrier<PIPE_", name(pipe), ">")
                           : text("a queue, or SetFlag and WaitFlag of ", name(before), "_", name(pipe), ",");
        fail(use, "order", text(missing, " between"),
             text("pipe ", name(pipe), " touches what pipe ", name(before), " ", what));
    }

    // Checks one access to the unified buffer and remembers it.
    void access(const Use &use, int pipe, uint32_t time, uint32_t address, uint32_t bytes, bool is_write) {
        if (bytes == 0) return;
        if (!is_write) check_written(use, address, bytes);
        for (uint32_t block = address / BLOCK; block <= (address + bytes - 1) / BLOCK; ++block) {
            Block &seen = blocks[block];
            // An operation may read what it writes itself, in the same place.
            if (seen.writer >= 0 && !(seen.writer == pipe && seen.wrote == time) &&
                !is_ordered(pipe, seen.writer, seen.wrote))
                order_fault(use, pipe, seen.writer, "wrote");
            if (is_write) {
                for (int other = 0; other < PIPES; ++other)
                    if (other != pipe && !is_ordered(pipe, other, seen.read[other]))
                        order_fault(use, pipe, other, "reads");
                seen.writer = int8_t(pipe), seen.wrote = time;
            } else {
                seen.read[pipe] = time;
            }
        }
        if (is_write) std::memset(written.data() + address, 1, bytes);
    }

    void check_written(const Use &use, uint32_t address, uint32_t bytes) const {
        const uint8_t *first = written.data() + address;
        const auto *hole = static_cast<const uint8_t *>(std::memchr(first, 0, bytes));
        if (hole != nullptr)
            fail(use, "unwritten", text(bytes, " bytes that were written"), text("byte ", hole - first, " never was"));
    }

    // Bytes that an operation leaves with no defined value.
    void scramble(uint32_t address, uint32_t bytes) {
        std::memset(ub.data() + address, 0xff, bytes);
        std::memset(written.data() + address, 0, bytes);
    }

    void check_end();
};

// The core whose code runs on this thread: launches of several streams run at once, each on one thread.
inline thread_local Core *current = nullptr;

}  // namespace ascend_host

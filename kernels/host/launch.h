// A launch: global memory with what is known of each byte, and the cores as fibers that a seed interleaves.
#pragma once

#include <ucontext.h>

#include <functional>
#include <memory>
#include <random>

#include "core.h"

namespace ascend_host {

enum class Access { Read, Write, ReadWrite };

// A range of global memory that the kernel was given. Written bytes of a `Write` region may be read back.
struct Region {
    std::string name;
    uint8_t *base;
    uint64_t bytes;
    Access access;
    std::vector<uint8_t> written{};
    // By 32-byte block of the address, not of the offset.
    struct Block {
        int16_t writer = -1, reader = -1;
        bool is_atomic = false;
        uint8_t write_begin = 0, write_end = 0;
        int8_t write_pipe = -1;
        uint32_t write_epoch = 0, read_epoch = 0, wrote = 0;
        std::array<uint32_t, PIPES> read{};
    };
    std::vector<Block> blocks{};

    uint64_t first_block() const { return uint64_t(base) / BLOCK; }
};

struct Counts {
    uint64_t cycles = 0, gm_bytes = 0;
    std::array<uint64_t, PIPES> busy{};
    uint32_t ub_bytes = 0;
};

constexpr int ANY_CORE = -2;

struct Launch {
    std::string kernel;
    std::vector<Region> regions;
    int cores = 1;
    uint32_t epoch = 0;
    int arrived = 0;
    // Of the slowest core; bytes are summed.
    Counts counts;

    struct Fiber {
        ucontext_t context{};
        std::vector<char> stack = std::vector<char>(256 * 1024);
        Core core;
        bool is_done = false, is_waiting = false;
    };

    Launch(std::string name, std::vector<Region> given) : kernel(std::move(name)), regions(std::move(given)) {
        for (Region &region : regions) {
            region.written.assign(region.bytes, region.access != Access::Write);
            const uint64_t last =
                region.bytes == 0 ? region.first_block() : (uint64_t(region.base) + region.bytes - 1) / BLOCK;
            region.blocks.assign(last - region.first_block() + 1, Region::Block{});
        }
    }

    // Runs the kernel's body once a core. Throws the first `Finding`.
    void run(int blocks, uint64_t seed, bool auto_sync, const std::function<void()> &kernel_body) {
        cores = blocks, body = &kernel_body, random.seed(seed);
        std::vector<std::unique_ptr<Fiber>> &pool = fibers();
        while (int(pool.size()) < cores) pool.push_back(std::make_unique<Fiber>());
        for (int index = 0; index < cores; ++index) {
            Fiber &fiber = *pool[index];
            fiber.core.reset(this, index, auto_sync);
            fiber.is_done = fiber.is_waiting = false;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = &scheduler;
            makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Launch::enter), 0);
        }
        std::vector<int> ready;
        for (;;) {
            ready.clear();
            for (int index = 0; index < cores; ++index)
                if (!pool[index]->is_done && (!pool[index]->is_waiting || failed)) ready.push_back(index);
            if (ready.empty() && arrived != 0 && !failed) {
                // Nobody can go on; the cores that wait unwind.
                const std::string found =
                    text(arrived, " came, ", cores - arrived, " have ended: a card waits for ever");
                try {
                    pool[sync_core]->core.fail(sync_use, "flag", text("all ", cores, " cores"), found);
                } catch (const Finding &) {
                    failure = std::current_exception(), failed = true;
                }
                continue;
            }
            if (ready.empty()) break;
            resume(*pool[ready[random() % ready.size()]]);
        }
        if (failure) std::rethrow_exception(failure);
        for (const Region &region : regions) {
            const auto hole = std::find(region.written.begin(), region.written.end(), uint8_t(0));
            if (hole != region.written.end())
                throw Finding(text(kernel, ", `", region.name,
                                   "`: [unwritten] expected every byte of what it overwrites, found byte ",
                                   hole - region.written.begin(), " of ", region.bytes, " as it was"));
        }
    }

    // Lets another core go on, if the seed says so.
    void maybe_switch() {
        if (cores > 1 && random() % 8 == 0) leave();
    }

    // Waits until all cores have come here.
    void sync_all(const Use &use) {
        Core &core = *current;
        core.barrier(use, PIPE_ALL);
        sync_use = use, sync_core = core.index;
        if (++arrived == cores) {
            arrived = 0, ++epoch;
            for (int index = 0; index < cores; ++index) fibers()[index]->is_waiting = false;
            return;
        }
        fibers()[core.index]->is_waiting = true;
        leave();
    }

    // Checks one access to global memory and remembers it.
    void access(const Use &use, int pipe, uint32_t time, const uint8_t *place, uint64_t bytes, bool is_write,
                bool is_atomic) {
        if (bytes == 0) return;
        Region &region = find(use, place, bytes);
        const uint64_t offset = uint64_t(place - region.base);
        if (is_write && region.access == Access::Read)
            current->fail(use, "range", "memory that the kernel may write",
                          text("`", region.name, "`, which it may only read"));
        if (!is_write || is_atomic) {
            const auto *hole = static_cast<const uint8_t *>(std::memchr(region.written.data() + offset, 0, bytes));
            if (hole != nullptr)
                current->fail(use, "unwritten", "global memory that was written",
                              text("byte ", hole - region.written.data(), " of `", region.name, "`, which never was"));
        }
        const uint64_t begin = uint64_t(place), end = begin + bytes;
        for (uint64_t number = begin / BLOCK; number <= (end - 1) / BLOCK; ++number) {
            Region::Block &block = region.blocks[number - region.first_block()];
            const auto low = uint8_t(std::max(begin, number * BLOCK) - number * BLOCK);
            const auto high = uint8_t(std::min(end, (number + 1) * BLOCK) - number * BLOCK);
            check_cores(use, region, block, number, is_write, is_atomic);
            check_pipes(use, block, pipe, low, high, is_write);
            if (is_write) {
                block.writer = int16_t(current->index), block.write_epoch = epoch, block.is_atomic = is_atomic;
                block.write_begin = low, block.write_end = high, block.write_pipe = int8_t(pipe), block.wrote = time;
            } else {
                const bool is_shared =
                    block.reader != -1 && block.read_epoch == epoch && block.reader != current->index;
                if (block.reader != current->index) block.read = {};
                block.reader = int16_t(is_shared ? ANY_CORE : current->index), block.read_epoch = epoch;
                block.read[pipe] = time;
            }
        }
        if (is_write) std::memset(region.written.data() + offset, 1, bytes);
        counts.gm_bytes += bytes;
        maybe_switch();
    }

    Region &find(const Use &use, const uint8_t *place, uint64_t bytes) {
        for (Region &region : regions)
            if (place >= region.base && place + bytes <= region.base + region.bytes) return region;
        for (Region &region : regions) {
            // Half a mebibyte around a region is nearer to it than to any other.
            const int64_t offset = place - region.base;
            if (offset < -(1 << 19) || offset > int64_t(region.bytes) + (1 << 19)) continue;
            current->fail(use, "range", text("bytes 0 to ", region.bytes, " of `", region.name, "`"),
                          text("bytes ", offset, " to ", offset + int64_t(bytes)));
        }
        current->fail(use, "range", "an address in memory that the kernel was given", "one outside all of it");
    }

  private:
    ucontext_t scheduler{};
    std::mt19937_64 random;
    const std::function<void()> *body = nullptr;
    bool failed = false;
    std::exception_ptr failure;
    Use sync_use{"SyncAll", "", {"", 0}};
    int sync_core = 0;

    static std::vector<std::unique_ptr<Fiber>> &fibers() {
        static std::vector<std::unique_ptr<Fiber>> pool;
        return pool;
    }

    void resume(Fiber &fiber) {
        current = &fiber.core;
        swapcontext(&scheduler, &fiber.context);
        current = nullptr;
    }

    void leave() {
        Core &core = *current;
        swapcontext(&fibers()[core.index]->context, &scheduler);
        if (failed) throw Cancelled{};
    }

    static void enter() {
        Core &core = *current;
        Launch &launch = *core.launch;
        try {
            if (!launch.failed) {
                (*launch.body)();
                core.check_end();
                launch.end_of_core(core);
            }
        } catch (const Cancelled &) {
        } catch (...) {
            if (!launch.failed) launch.failure = std::current_exception();
            launch.failed = true;
        }
        fibers()[core.index]->is_done = true;
    }

    void end_of_core(Core &core) {
        for (int pipe = 0; pipe < PIPES; ++pipe) counts.busy[pipe] = std::max(counts.busy[pipe], core.busy[pipe]);
        counts.cycles = std::max(counts.cycles, *std::max_element(core.free_at.begin(), core.free_at.end()));
        counts.ub_bytes = std::max(counts.ub_bytes, core.used);
    }

    void check_cores(const Use &use, const Region &region, const Region::Block &block, uint64_t number, bool is_write,
                     bool is_atomic) const {
        const int self = current->index;
        const bool is_other_writer = block.writer >= 0 && block.writer != self && block.write_epoch == epoch;
        const bool is_other_reader = block.reader != -1 && block.reader != self && block.read_epoch == epoch;
        const auto where = [&] {
            return text("the 32 bytes at ", int64_t(number * BLOCK) - int64_t(uint64_t(region.base)), " of `",
                        region.name, "`");
        };
        if (is_other_writer && !(is_atomic && block.is_atomic))
            current->fail(use, "cores", "SyncAll between, or blocks of 32 bytes that one core alone writes",
                          text(where(), ", which core ", block.writer, " writes too"));
        if (is_write && is_other_reader)
            current->fail(use, "cores", "SyncAll between",
                          text(where(), ", which ",
                               block.reader == ANY_CORE ? std::string("other cores read")
                                                        : text("core ", block.reader, " reads")));
    }

    // What one core does to the same global memory on several pipes.
    void check_pipes(const Use &use, const Region::Block &block, int pipe, uint8_t low, uint8_t high,
                     bool is_write) const {
        const Core &core = *current;
        if (block.writer == core.index && low < block.write_end && block.write_begin < high) {
            const int before = block.write_pipe;
            const bool is_in_order = before == pipe && !is_write;
            if (!is_in_order && !core.is_ordered(pipe, before, block.wrote))
                core.order_fault(use, pipe, before, "wrote to global memory");
        }
        if (!is_write || block.reader != core.index) return;
        for (int other = 0; other < PIPES; ++other)
            if (other != pipe && !core.is_ordered(pipe, other, block.read[other]))
                core.order_fault(use, pipe, other, "reads from global memory");
    }
};

inline void Core::fail(const Use &use, const char *rule, const std::string &expected, const std::string &found) const {
    const char *slash = std::strrchr(use.at.file, '/');
    const std::string operand = use.operand[0] == 0 ? "" : text(" ", use.operand);
    throw Finding(text(launch->kernel, ", core ", index, ", ", slash != nullptr ? slash + 1 : use.at.file, ":",
                       use.at.line, ": ", use.call, operand, ": [", rule, "] expected ", expected, ", found ", found));
}

// What must be true when a kernel returns.
inline void Core::check_end() {
    for (const Slot &slot : slots)
        if (slot.state != SlotState::Free && slot.state != SlotState::Fixed)
            fail({"FreeTensor", "of a queue", slot.made}, "queue", "every buffer free at the end",
                 text("one that is ", name(slot.state)));
    for (size_t event = 0; event < flags.size(); ++event)
        for (size_t id = 0; id < EVENT_IDS; ++id)
            if (flags[event][id].is_set)
                fail({"SetFlag", "", {"", flag_line[event][id]}}, "flag", "a WaitFlag for every SetFlag",
                     text("none for event ", id));
    if (atomic != 0) fail({"SetAtomic", "", atomic_set}, "flag", "SetAtomicNone before the end", "none");
    if (!dirty.empty())
        fail({"SetValue", "of global memory", {"", 0}}, "order", "DataCacheCleanAndInvalid before the end",
             "a line only the scalar cache has");
}

}  // namespace ascend_host

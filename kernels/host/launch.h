// A launch: global memory with what is known of each byte, and the cores as fibers that a seed interleaves.
#pragma once

#include <ucontext.h>

#include <functional>
#include <map>
#include <memory>
#include <random>

#include "core.h"

namespace ascend_host {

enum class Access { Read, Write, ReadWrite };

// The most cores that run at once, as in the largest of the chips.
constexpr int MAX_CORES = 48;

// What is known of 32 bytes of global memory, counted by address.
struct GlobalBlock {
    int32_t writer = -1, reader = -1;
    bool is_atomic = false;
    uint8_t write_begin = 0, write_end = 0;
    int8_t write_pipe = -1;
    uint32_t write_epoch = 0, read_epoch = 0, wrote = 0;
    std::array<uint32_t, PIPES> read{};
    // A bit a byte: written by this launch, and read before it was.
    uint32_t written_bytes = 0, read_bytes = 0;
};

// A range of global memory that the kernel was given. Written bytes of a `Write` region may be read back.
struct Region {
    static constexpr uint64_t PAGE_BLOCKS = 128;

    std::string name;
    // The first address, as the kernel has it.
    uint8_t *base;
    uint64_t bytes;
    Access access;
    // Where its bytes are on this host; the address itself if null.
    uint8_t *bytes_at = nullptr;
    // Only pages that were touched.
    std::map<uint64_t, std::vector<GlobalBlock>> pages{};

    uint64_t begin() const { return uint64_t(base); }
    uint64_t end() const { return begin() + bytes; }
    uint8_t *here(uint64_t address) const { return (bytes_at == nullptr ? base : bytes_at) + (address - begin()); }
    GlobalBlock &block(uint64_t number) {
        std::vector<GlobalBlock> &page = pages[number / PAGE_BLOCKS];
        if (page.empty()) page.resize(PAGE_BLOCKS);
        return page[number % PAGE_BLOCKS];
    }
    // Bits of the bytes of a block that lie in `from` to `to`.
    static uint32_t mask(uint64_t number, uint64_t from, uint64_t to) {
        const uint64_t low = std::max(from, number * BLOCK) - number * BLOCK;
        const uint64_t high = std::min(to, (number + 1) * BLOCK) - number * BLOCK;
        return uint32_t(((uint64_t(1) << high) - 1) & ~((uint64_t(1) << low) - 1));
    }
    // The first address of `from` to `to` that this launch should have written and has not; `to` if there is none.
    uint64_t first_unwritten(uint64_t from, uint64_t to) {
        if (access != Access::Write || from == to) return to;
        for (uint64_t number = from / BLOCK; number <= (to - 1) / BLOCK; ++number) {
            const uint32_t missing = mask(number, from, to) & ~block(number).written_bytes;
            if (missing != 0) return number * BLOCK + uint64_t(__builtin_ctz(missing));
        }
        return to;
    }
};

// Finds the region that an address lies in, or lies behind; says why there is none.
using FindRegion = std::function<bool(const uint8_t *place, Region &region, std::string &why)>;

// Global memory that was read or written, as far as it goes.
struct Touch {
    const Region *region;
    uint64_t address, bytes;
    bool is_write;
};

struct Counts {
    uint64_t cycles = 0, gm_bytes = 0;
    std::array<uint64_t, PIPES> busy{};
    uint32_t ub_bytes = 0;
};

constexpr int ANY_CORE = -2;

struct Launch {
    std::string kernel;
    // Places in it stay where they are.
    std::deque<Region> regions;
    // Arguments that are addresses of nothing the kernel may use, and why.
    std::vector<std::pair<const uint8_t *, std::string>> refused{};
    // Asked for memory that is in none of them.
    FindRegion find_region{};
    // Blocks of the launch, and how many of them run at once.
    int cores = 1, width = MAX_CORES;
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

    Launch(std::string name, std::vector<Region> given) : kernel(std::move(name)) {
        for (Region &region : given) regions.push_back(std::move(region));
    }

    // Runs the kernel's body once a block. Throws the first `Finding`.
    void run(int blocks, uint64_t seed, bool auto_sync, const std::function<void()> &kernel_body) {
        cores = blocks, body = &kernel_body, random.seed(seed);
        for (int first = 0; first < cores && !failed; first += width) run_wave(first, auto_sync);
        if (failure) std::rethrow_exception(failure);
        for (Region &region : regions) {
            const uint64_t hole = region.first_unwritten(region.begin(), region.end());
            if (hole == region.end()) continue;
            fail_at_end("unwritten", text("every byte of `", region.name, "`, which it overwrites"),
                        text("byte ", hole - region.begin(), " of ", region.bytes, " as it was"));
        }
    }

    // What was read, before this launch wrote it, and what was written, by region and address.
    std::vector<Touch> touches() const {
        std::vector<Touch> all;
        for (const Region &region : regions)
            for (const bool is_write : {false, true})
                for (const auto &[page, blocks] : region.pages)
                    for (uint64_t index = 0; index < Region::PAGE_BLOCKS * BLOCK; ++index) {
                        const GlobalBlock &block = blocks[index / BLOCK];
                        const uint32_t bits = is_write ? block.written_bytes : block.read_bytes;
                        if (bits == 0) index += BLOCK - 1;
                        if ((bits >> (index % BLOCK) & 1) == 0) continue;
                        const uint64_t address = page * Region::PAGE_BLOCKS * BLOCK + index;
                        const bool goes_on = !all.empty() && all.back().region == &region &&
                                             all.back().is_write == is_write &&
                                             all.back().address + all.back().bytes == address;
                        if (goes_on) ++all.back().bytes;
                        else all.push_back({&region, address, 1, is_write});
                    }
        return all;
    }

    // Lets another core go on, if the seed says so.
    void maybe_switch() {
        if (cores > 1 && random() % 8 == 0) leave();
    }

    // Waits until all cores have come here.
    void sync_all(const Use &use) {
        Core &core = *current;
        core.barrier(use, PIPE_ALL);
        if (cores > width)
            core.fail(use, "flag", text("at most ", width, " blocks, as many as the card has cores"),
                      text(cores, WAITS_FOR_EVER));
        sync_use = use, sync_core = core.index;
        if (++arrived == cores) {
            arrived = 0, ++epoch;
            for (int index = 0; index < cores; ++index) fibers()[index]->is_waiting = false;
            return;
        }
        fiber_of(core).is_waiting = true;
        leave();
    }

    // Checks one access to global memory and remembers it; gives where the bytes are on this host.
    uint8_t *access(const Use &use, int pipe, uint32_t time, const uint8_t *place, uint64_t bytes, bool is_write,
                    bool is_atomic) {
        if (bytes == 0) return nullptr;
        Region &region = find(use, place, bytes);
        const uint64_t begin = uint64_t(place), end = begin + bytes;
        if (is_write && region.access == Access::Read)
            current->fail(use, "range", "memory that the kernel may write",
                          text("`", region.name, "`, which it may only read"));
        if (!is_write || is_atomic) {
            const uint64_t hole = region.first_unwritten(begin, end);
            if (hole != end)
                current->fail(use, "unwritten", "global memory that was written",
                              text("byte ", hole - region.begin(), " of `", region.name, "`, which never was"));
        }
        for (uint64_t number = begin / BLOCK; number <= (end - 1) / BLOCK; ++number) {
            GlobalBlock &block = region.block(number);
            const auto low = uint8_t(std::max(begin, number * BLOCK) - number * BLOCK);
            const auto high = uint8_t(std::min(end, (number + 1) * BLOCK) - number * BLOCK);
            const uint32_t mask = Region::mask(number, begin, end);
            check_cores(use, region, block, number, is_write, is_atomic);
            check_pipes(use, block, pipe, low, high, is_write);
            if (!is_write || is_atomic) block.read_bytes |= mask & ~block.written_bytes;
            if (is_write) {
                block.writer = current->index, block.write_epoch = epoch, block.is_atomic = is_atomic;
                block.write_begin = low, block.write_end = high, block.write_pipe = int8_t(pipe), block.wrote = time;
                block.written_bytes |= mask;
            } else {
                const bool is_shared =
                    block.reader != -1 && block.read_epoch == epoch && block.reader != current->index;
                if (block.reader != current->index) block.read = {};
                block.reader = is_shared ? ANY_CORE : current->index, block.read_epoch = epoch;
                block.read[pipe] = time;
            }
        }
        counts.gm_bytes += bytes;
        maybe_switch();
        return region.here(begin);
    }

    Region &find(const Use &use, const uint8_t *place, uint64_t bytes) {
        for (Region &region : regions)
            if (place >= region.base && place + bytes <= region.base + region.bytes) return region;
        std::string why = "one outside all of it";
        Region *more = learn(place, why);
        if (more != nullptr && place + bytes <= more->base + more->bytes) return *more;
        // What went too far most likely began at the memory that lies before it.
        const auto far = [&](const Region &region) {
            const int64_t beyond = place - (region.base + region.bytes);
            return place >= region.base ? std::max<int64_t>(beyond, 0) : NEARBY + (region.base - place);
        };
        const auto near = std::min_element(regions.begin(), regions.end(), [&](const Region &a, const Region &b) {
            return far(a) < far(b);
        });
        // Or at an argument that is no address of the kernel's memory.
        for (const auto &[argument, reason] : refused)
            if (place >= argument && (near == regions.end() || place - argument < far(*near)))
                current->fail(use, "range", "an address in memory that the kernel was given", reason);
        if (near != regions.end() && far(*near) <= 2 * NEARBY) {
            const int64_t offset = place - near->base;
            current->fail(use, "range", text("bytes 0 to ", near->bytes, " of `", near->name, "`"),
                          text("bytes ", offset, " to ", offset + int64_t(bytes)));
        }
        current->fail(use, "range", "an address in memory that the kernel was given", why);
    }

    // Makes the region known that an address lies in, if it is new.
    Region *learn(const uint8_t *place, std::string &why) {
        Region found{};
        if (!find_region || !find_region(place, found, why)) return nullptr;
        for (const Region &region : regions)
            if (region.base == found.base) return nullptr;
        regions.push_back(std::move(found));
        return &regions.back();
    }

  private:
    // So far beyond a region an address is still told as one of it.
    static constexpr int64_t NEARBY = 1 << 19;

    ucontext_t scheduler{};
    std::mt19937_64 random;
    const std::function<void()> *body = nullptr;
    bool failed = false;
    std::exception_ptr failure;
    Use sync_use{"SyncAll", "", {"", 0}};
    int sync_core = 0;

    // The cores of this thread, kept from launch to launch.
    static std::vector<std::unique_ptr<Fiber>> &fibers() {
        static thread_local std::vector<std::unique_ptr<Fiber>> pool;
        return pool;
    }
    Fiber &fiber_of(const Core &core) const { return *fibers()[core.index % width]; }

    // Runs as many blocks as there are cores, from block `first` on.
    void run_wave(int first, bool auto_sync) {
        const int count = std::min(cores - first, width);
        std::vector<std::unique_ptr<Fiber>> &pool = fibers();
        while (int(pool.size()) < count) pool.push_back(std::make_unique<Fiber>());
        for (int index = 0; index < count; ++index) {
            Fiber &fiber = *pool[index];
            fiber.core.reset(this, first + index, auto_sync);
            fiber.is_done = fiber.is_waiting = false;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = &scheduler;
            makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Launch::enter), 0);
        }
        const uint64_t before = counts.cycles;
        counts.cycles = 0;
        std::vector<int> ready;
        for (;;) {
            ready.clear();
            for (int index = 0; index < count; ++index)
                if (!pool[index]->is_done && (!pool[index]->is_waiting || failed)) ready.push_back(index);
            if (ready.empty() && arrived != 0 && !failed) {
                // Nobody can go on; the cores that wait unwind.
                const std::string found =
                    text(arrived, " came, ", cores - arrived, " have ended", WAITS_FOR_EVER);
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
        // The blocks of a wave begin when those before them have ended.
        counts.cycles += before;
    }

    [[noreturn]] void fail_at_end(const char *rule, const std::string &expected, const std::string &found) const {
        Finding finding(text(kernel, ": [", rule, "] expected ", expected, ", found ", found));
        finding.kernel = kernel, finding.rule = rule, finding.expected = expected, finding.found = found;
        throw finding;
    }

    void resume(Fiber &fiber) {
        current = &fiber.core;
        swapcontext(&scheduler, &fiber.context);
        current = nullptr;
    }

    void leave() {
        Core &core = *current;
        swapcontext(&fiber_of(core).context, &scheduler);
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
        launch.fiber_of(core).is_done = true;
    }

    void end_of_core(Core &core) {
        for (int pipe = 0; pipe < PIPES; ++pipe) counts.busy[pipe] = std::max(counts.busy[pipe], core.busy[pipe]);
        counts.cycles = std::max(counts.cycles, *std::max_element(core.free_at.begin(), core.free_at.end()));
        counts.ub_bytes = std::max(counts.ub_bytes, core.used);
    }

    void check_cores(const Use &use, const Region &region, const GlobalBlock &block, uint64_t number, bool is_write,
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
    void check_pipes(const Use &use, const GlobalBlock &block, int pipe, uint8_t low, uint8_t high,
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
    Finding finding(text(launch->kernel, ", core ", index, ", ", slash != nullptr ? slash + 1 : use.at.file, ":",
                         use.at.line, ": ", use.call, operand, ": [", rule, "] expected ", expected, ", found ",
                         found));
    finding.kernel = launch->kernel, finding.file = use.at.file, finding.call = use.call;
    finding.operand = use.operand, finding.rule = rule, finding.expected = expected, finding.found = found;
    finding.core = index, finding.line = use.at.line;
    const std::string hang = WAITS_FOR_EVER;
    finding.is_hang = finding.rule == "end" || (found.size() > hang.size() &&
                                                found.compare(found.size() - hang.size(), hang.size(), hang) == 0);
    throw finding;
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
                fail({"SetFlag", "", flag_set[event][id]}, "flag", "a WaitFlag for every SetFlag",
                     text("none for event ", id));
    if (atomic != 0) fail({"SetAtomic", "", atomic_set}, "flag", "SetAtomicNone before the end", "none");
    if (!dirty.empty())
        fail({"SetValue", "of global memory", dirty_set}, "order", "DataCacheCleanAndInvalid before the end",
             "a line only the scalar cache has");
}

}  // namespace ascend_host

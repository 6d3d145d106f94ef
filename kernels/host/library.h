// A shared library of kernels: what it shows to a program that loads it and launches them.
//
// Each kernel's source is included by a file of its own, which then says `ascend_host::Added add{"name", "x,y", name};`;
// one file of the library includes `exports.h`. Strings and arrays that cross over belong to the side that made them,
// and live as long as the call. Layouts are those of C; a change of any of them is a change of the function's name.
#pragma once

#include <tuple>
#include <utility>

#include "kernel_operator.h"

extern "C" {

struct AscendHostParameter {
    const char *name;
    uint32_t bytes;
    // Whether it is an address of global memory.
    uint32_t is_address;
};

struct AscendHostEntry {
    const char *name;
    const AscendHostParameter *parameters;
    uint64_t count;
};

struct AscendHostFinding {
    const char *kernel, *file, *call, *operand, *rule, *expected, *found;
    // The whole sentence.
    const char *text;
    // -1 and 0 where no core and no line is to blame.
    int32_t core, line;
    // A card would not go on, rather than compute something else.
    int32_t is_hang;
};

struct AscendHostCounts {
    // Of the slowest core, one wave of blocks after the other; pipes S, V, MTE2, MTE3.
    uint64_t cycles, busy[4];
    // Read and written by all cores.
    uint64_t global_bytes;
    // The most unified buffer that a core took.
    uint64_t local_bytes;
};

// The memory that an address lies in or behind: `why` is set where there is none.
struct AscendHostMemory {
    uint64_t address, bytes;
    uint8_t *bytes_at;
    const char *name, *why;
};

// A launch, and what is to be told of it. `user` is the first argument of each function.
struct AscendHostLaunch {
    uint32_t blocks;
    // How many blocks run at once; the others follow.
    uint32_t cores;
    uint64_t seed;
    // The value of each parameter.
    const uint8_t *const *arguments;
    void *user;
    int32_t (*find)(void *user, uint64_t address, AscendHostMemory *memory);
    void (*touched)(void *user, uint64_t address, uint64_t bytes, int32_t is_write);
    void (*counted)(void *user, const AscendHostCounts *counts);
    // At most one, after which nothing ran.
    void (*found)(void *user, const AscendHostFinding *finding);
};

struct AscendHostKernels {
    const AscendHostEntry *entries;
    uint64_t count;
    void (*run)(uint64_t entry, const AscendHostLaunch *launch);
};

__attribute__((visibility("default"))) const AscendHostKernels *ascend_host_kernels_1();
}

namespace ascend_host {

struct Entry {
    std::string name, names;
    std::vector<AscendHostParameter> parameters;
    std::function<void(const uint8_t *const *arguments)> call;
};

inline std::deque<Entry> &entries() {
    static std::deque<Entry> all;
    return all;
}

template <class T>
T argument(const uint8_t *bytes) {
    std::remove_const_t<T> value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

// Adds a kernel to the library; `names` are those of its parameters, with commas between.
struct Added {
    template <class... T>
    Added(const char *name, const char *names, void (*kernel)(T...)) {
        entries().push_back({name, names, {{"", sizeof(T), std::is_pointer_v<T>}...}, {}});
        Entry &entry = entries().back();
        entry.call = [kernel](const uint8_t *const *arguments) {
            call(kernel, arguments, std::index_sequence_for<T...>{});
        };
        // Names end where the comma stood.
        char *next = entry.names.data();
        for (AscendHostParameter &parameter : entry.parameters) {
            parameter.name = next;
            next += std::strcspn(next, ",");
            if (*next != 0) *next++ = 0;
        }
    }

  private:
    template <class... T, size_t... index>
    static void call(void (*kernel)(T...), [[maybe_unused]] const uint8_t *const *arguments,
                     std::index_sequence<index...>) {
        kernel(argument<T>(arguments[index])...);
    }
};

inline void tell(const AscendHostLaunch &wanted, const Finding &finding) {
    const AscendHostFinding told{finding.kernel.c_str(), finding.file.c_str(),     finding.call.c_str(),
                                 finding.operand.c_str(), finding.rule.c_str(),    finding.expected.c_str(),
                                 finding.found.c_str(),   finding.what(),          finding.core,
                                 finding.line,            finding.is_hang};
    wanted.found(wanted.user, &told);
}

inline void run_entry(uint64_t number, const AscendHostLaunch *wanted) {
    const Entry &entry = entries()[number];
    Launch launch(entry.name, {});
    launch.width = int(std::min<uint32_t>(wanted->cores, MAX_CORES));
    launch.find_region = [wanted](const uint8_t *place, Region &region, std::string &why) {
        AscendHostMemory memory{};
        if (wanted->find(wanted->user, uint64_t(place), &memory) != 0) {
            if (memory.why != nullptr) why = memory.why;
            return false;
        }
        region.name = memory.name, region.base = reinterpret_cast<uint8_t *>(memory.address);
        region.bytes = memory.bytes, region.access = Access::ReadWrite, region.bytes_at = memory.bytes_at;
        return true;
    };
    for (size_t index = 0; index < entry.parameters.size(); ++index) {
        if (entry.parameters[index].is_address == 0) continue;
        // An address of nothing is no fault until it is used.
        const auto *address = argument<const uint8_t *>(wanted->arguments[index]);
        std::string why;
        launch.learn(address, why);
        if (!why.empty()) launch.refused.push_back({address, why});
    }
    try {
        launch.run(int(wanted->blocks), wanted->seed, false, [&] { entry.call(wanted->arguments); });
    } catch (const Finding &finding) {
        tell(*wanted, finding);
    } catch (const std::exception &thrown) {
        // The kernel's own: a card's compiler has no exceptions.
        Finding finding(text(entry.name, ": [end] expected no exception, found ", thrown.what()));
        finding.kernel = entry.name, finding.rule = "end", finding.expected = "no exception";
        finding.found = thrown.what();
        tell(*wanted, finding);
    }
    for (const Touch &touch : launch.touches())
        wanted->touched(wanted->user, touch.address, touch.bytes, touch.is_write);
    const Counts &counts = launch.counts;
    const AscendHostCounts told{counts.cycles,
                                {counts.busy[0], counts.busy[1], counts.busy[2], counts.busy[3]},
                                counts.gm_bytes,
                                counts.ub_bytes};
    wanted->counted(wanted->user, &told);
}

}  // namespace ascend_host

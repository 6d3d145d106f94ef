// Drives a kernel under the model with random sizes and compares with a plain scalar meaning.
//
// A check is a program of one kernel: it includes this header and the kernel's source, and defines `check::round`,
// which makes one random case, launches and compares, and `check::large`, a launch of the size that costs are told for.
//
//   CHECK [--rounds N] [--seed S] [--mutants K] [--large 1]
//
// Without --mutants it runs N rounds and prints one line; it ends with 1 at the first finding or wrong number, which it
// prints with the seed of its round. With --large it then tells what the large launch costs. With --mutants, the source
// was compiled with K mutations, each behind a test of `ascend_host::mutant`; it prints for each whether the model
// named it, the numbers were wrong, or it went unseen.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "kernel_operator.h"

namespace ascend_host {

// The mutation that is switched on; 0 is the source as it was written.
inline int mutant = 0;

using Random = std::mt19937_64;

inline uint64_t below(Random &random, uint64_t end) { return end == 0 ? 0 : random() % end; }

// A size that is small, at a border of something, or anything up to `most`.
inline uint32_t any_size(Random &random, uint32_t tile, uint32_t most) {
    switch (below(random, 6)) {
    case 0: return uint32_t(below(random, 3));
    case 1: return uint32_t(below(random, std::min(130u, most + 1)));
    case 2: return uint32_t(std::min<uint64_t>(most, tile * below(random, 4) + below(random, 5)));
    case 3: return uint32_t(std::min<uint64_t>(most, tile * (1 + below(random, 4)) - 1 - below(random, 40)));
    default: return uint32_t(below(random, uint64_t(most) + 1));
    }
}
inline int any_cores(Random &random) {
    return below(random, 4) == 0 ? 48 : below(random, 4) == 0 ? 1 : 1 + int(below(random, 48));
}

// Finite, of both signs, of magnitudes 2^-12 to 2^12, with zeros among them.
inline float any_float(Random &random) {
    if (below(random, 64) == 0) return below(random, 2) == 0 ? 0.0f : -0.0f;
    const float unit = 1 + float(below(random, 1 << 23)) / float(1 << 23);
    return std::ldexp(below(random, 2) == 0 ? unit : -unit, int(below(random, 24)) - 12);
}

template <class T>
T from_float(float value) {
    if constexpr (std::is_same_v<T, bfloat16_t>) return ToBfloat16(value);
    else return T(value);
}
template <class T>
float to_float(T value) {
    if constexpr (std::is_same_v<T, bfloat16_t>) return ToFloat(value);
    else return float(value);
}

// Global memory of one argument, `skew` elements beyond a border of 32 bytes.
template <class T>
struct Memory {
    std::string name;
    Access access;
    uint64_t size;
    std::vector<uint8_t> room;
    uint8_t *base;

    Memory(std::string label, Access mode, uint64_t elements, uint32_t skew)
        : name(std::move(label)), access(mode), size(elements), room(elements * sizeof(T) + 128, 0xab) {
        base = room.data() + (64 - uint64_t(room.data()) % 32) + skew * sizeof(T);
    }
    Memory(const Memory &) = delete;

    T get(uint64_t index) const {
        T value;
        std::memcpy(&value, base + index * sizeof(T), sizeof value);
        return value;
    }
    void set(uint64_t index, T value) { std::memcpy(base + index * sizeof(T), &value, sizeof value); }
    Region region() const { return {name, base, size * sizeof(T), access}; }
};

// A launch that has run; the counts of the largest are kept.
inline Counts launch(const char *kernel, std::vector<Region> regions, int cores, uint64_t seed,
                     const std::function<void()> &body) {
    Launch run(kernel, std::move(regions));
    run.run(cores, seed, false, body);
    static uint32_t &peak = *new uint32_t(0);
    peak = std::max(peak, run.counts.ub_bytes);
    run.counts.ub_bytes = peak;
    return run.counts;
}

// A wrong number.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class... Parts>
void expect(bool is_right, const Parts &...parts) {
    if (!is_right) throw Wrong(text(parts...));
}
// Bits, but that one NaN is as good as another.
inline void expect_same(float expected, float found, const char *what, uint64_t index, const std::string &of) {
    const bool is_right = expected != expected ? found != found : std::memcmp(&expected, &found, sizeof expected) == 0;
    if (!is_right) throw Wrong(text(what, "[", index, "] of ", of, ": expected ", expected, ", found ", found));
}

}  // namespace ascend_host

namespace check {

using namespace ascend_host;

extern const char *const kernel;
void round(Random &random);
// Bytes of global memory that the operator has to move, and the counts of its launch.
std::pair<uint64_t, Counts> large();

}  // namespace check

namespace ascend_host {

inline std::string outcome(uint64_t seed) {
    Random random(seed);
    try {
        check::round(random);
    } catch (const Finding &finding) {
        return text("named: ", finding.what());
    } catch (const Wrong &wrong) {
        return text("wrong: ", wrong.what());
    }
    return "";
}

inline int run_rounds(uint64_t seed, uint64_t rounds) {
    for (uint64_t round = 0; round < rounds; ++round) {
        const std::string bad = outcome(seed + round);
        if (bad.empty()) continue;
        std::printf("%s: --rounds 1 --seed %llu: %s\n", check::kernel, (unsigned long long)(seed + round), bad.c_str());
        return 1;
    }
    std::printf("%s: %llu rounds\n", check::kernel, (unsigned long long)rounds);
    return 0;
}

inline int run_large() {
    const auto [bytes, counts] = check::large();
    // Memory of 1.6 TB/s, cores at 1.85 GHz, of which the slowest decides.
    const double memory_cycles = double(bytes) / (1600.0 / 1.85), slowest = double(counts.cycles);
    std::printf(
        "%s: %u bytes of unified buffer, %.2f of the memory's rate (cycles S %llu, V %llu, MTE2 %llu, MTE3 %llu, all "
        "%llu)\n",
        check::kernel, counts.ub_bytes, memory_cycles / std::max(memory_cycles, slowest),
        (unsigned long long)counts.busy[PIPE_S], (unsigned long long)counts.busy[PIPE_V],
        (unsigned long long)counts.busy[PIPE_MTE2], (unsigned long long)counts.busy[PIPE_MTE3],
        (unsigned long long)counts.cycles);
    return 0;
}

inline int run_mutants(uint64_t seed, uint64_t rounds, int mutants) {
    for (mutant = 1; mutant <= mutants; ++mutant) {
        // What gives wrong numbers in one round may be named in the next.
        std::string seen;
        for (uint64_t round = 0; round < rounds && seen.rfind("named", 0) != 0; ++round) {
            const std::string now = outcome(seed + round);
            if (!now.empty()) seen = now;
        }
        std::printf("mutant %d %s\n", mutant, seen.empty() ? "silent" : seen.c_str());
    }
    return 0;
}

inline int run(int count, char **arguments) {
    uint64_t rounds = 100, seed = 1, mutants = 0, large = 0;
    for (int index = 1; index + 1 < count; index += 2) {
        const std::string option = arguments[index];
        uint64_t &value = option == "--rounds"  ? rounds
                          : option == "--seed"  ? seed
                          : option == "--large" ? large
                                                : mutants;
        value = std::strtoull(arguments[index + 1], nullptr, 10);
    }
    if (mutants != 0) return run_mutants(seed, rounds, int(mutants));
    const int bad = run_rounds(seed, rounds);
    return bad == 0 && large != 0 ? run_large() : bad;
}

}  // namespace ascend_host

int main(int count, char **arguments) { return ascend_host::run(count, arguments); }

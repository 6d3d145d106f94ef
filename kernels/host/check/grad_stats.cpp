// grad_stats against sums in double, and against each element's product, bit for bit.
#include "harness.h"

#include <grad_stats.cpp>

namespace check {

const char *const kernel = "grad_stats";

template <class T>
static Counts stats(Random &random, uint32_t n, int cores, void (*entry)(GM_ADDR, GM_ADDR, float, uint32_t, uint32_t),
                    bool is_compared) {
    const bool rewrites = below(random, 2) == 0, is_flawed = is_compared && n != 0 && below(random, 4) == 0;
    const float scale = below(random, 2) == 0 ? 1.0f / 1024 : 0.7f;
    Memory<T> x("x", rewrites ? Access::ReadWrite : Access::Read, n, uint32_t(below(random, 32 / sizeof(T))));
    Memory<float> records("stats", Access::Write, uint64_t(cores) * 24, 0);
    std::vector<T> before(n);
    for (uint32_t index = 0; index < n; ++index) x.set(index, before[index] = from_float<T>(any_float(random)));
    if (is_flawed) {
        const uint64_t index = below(random, n);
        x.set(index, before[index] = from_float<T>(below(random, 2) == 0 ? INFINITY : NAN));
    }
    const Counts counts = launch("grad_stats", {x.region(), records.region()}, cores, random(),
                                 [&] { entry(x.base, records.base, scale, rewrites, n); });
    if (!is_compared) return counts;
    const std::string of = text("n ", n, ", cores ", cores, ", ", sizeof(T), "-byte elements");
    double expected = 0, found = 0, flaws = 0;
    for (uint32_t index = 0; index < n; ++index) {
        const float value = to_float(before[index]) * scale;
        expected += double(value) * double(value);
        expect_same(rewrites ? to_float(from_float<T>(value)) : to_float(before[index]), to_float(x.get(index)), "x",
                    index, of);
    }
    for (uint64_t index = 0; index < records.size; ++index) (index % 24 < 16 ? found : flaws) += records.get(index);
    expect((flaws == 0) == !is_flawed, "flaws of ", of, ": expected ", is_flawed ? "NaN" : "0", ", found ", flaws);
    // Squares are rounded, and so are the sums inside a tile: six levels.
    expect(is_flawed || std::abs(found - expected) <= 8 * expected * 6e-8, "sum of ", of, ": expected ", expected,
           ", found ", found);
    return counts;
}

void round(Random &random) {
    const uint32_t n = any_size(random, 4096, 60000);
    const int cores = any_cores(random);
    switch (below(random, 3)) {
    case 0: stats<float>(random, n, cores, grad_stats_float, true); break;
    case 1: stats<bfloat16_t>(random, n, cores, grad_stats_bfloat16, true); break;
    default: stats<half>(random, n, cores, grad_stats_half, true);
    }
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const uint32_t n = 1 << 20;
    const Counts counts = stats<float>(random, n, 48, grad_stats_float, false);
    return {counts.gm_bytes, counts};
}

}  // namespace check

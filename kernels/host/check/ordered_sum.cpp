// ordered_sum against a recursion over the tree, bit for bit.
#include "harness.h"

#include <ordered_sum.cpp>

namespace check {

const char *const kernel = "ordered_sum";

static float tree(const std::vector<float> &values, size_t begin, size_t size) {
    if (size == 1) return values[begin];
    size_t left = 1;
    while (left * 2 < size) left *= 2;
    return tree(values, begin, left) + tree(values, begin + left, size - left);
}

template <class T>
static Counts sum(Random &random, uint32_t chunks, uint32_t n, int cores,
                  void (*entry)(GM_ADDR, GM_ADDR, uint32_t, uint32_t), bool is_compared) {
    Memory<T> x("x", Access::Read, uint64_t(chunks) * n, uint32_t(below(random, 32 / sizeof(T))));
    Memory<T> y("y", Access::Write, n, uint32_t(below(random, 32 / sizeof(T))));
    for (uint64_t index = 0; index < x.size; ++index) x.set(index, from_float<T>(any_float(random)));
    const Counts counts =
        launch("ordered_sum", {x.region(), y.region()}, cores, random(), [&] { entry(x.base, y.base, chunks, n); });
    const std::string of = text("chunks ", chunks, ", n ", n, ", cores ", cores, ", ", sizeof(T), "-byte elements");
    std::vector<float> values(chunks);
    for (uint32_t index = 0; is_compared && index < n; ++index) {
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) values[chunk] = to_float(x.get(uint64_t(chunk) * n + index));
        expect_same(to_float(from_float<T>(tree(values, 0, chunks))), to_float(y.get(index)), "y", index, of);
    }
    return counts;
}

void round(Random &random) {
    // As many as are taken more often than by chance, and then a whole tile of them.
    const bool is_most = below(random, 8) == 0;
    const uint32_t chunks = is_most ? 32 : 1 + uint32_t(below(random, 32)),
                   n = is_most ? 4096 + uint32_t(below(random, 40)) : any_size(random, 4096, 60000 / chunks);
    const int cores = is_most ? 1 : any_cores(random);
    switch (below(random, 3)) {
    case 0: sum<float>(random, chunks, n, cores, ordered_sum_float, true); break;
    case 1: sum<bfloat16_t>(random, chunks, n, cores, ordered_sum_bfloat16, true); break;
    default: sum<half>(random, chunks, n, cores, ordered_sum_half, true);
    }
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const uint32_t n = 1 << 17;
    return {uint64_t(n) * 9 * 4, sum<float>(random, 8, n, 48, ordered_sum_float, false)};
}

}  // namespace check

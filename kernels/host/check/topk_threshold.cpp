// topk_threshold against a sort: the threshold that enough rounds find, what is chosen and where, and what is left.
#include "harness.h"

#include <topk_threshold.cpp>

namespace check {

const char *const kernel = "topk_threshold";

static Counts choose(Random &random, uint32_t n, uint32_t k, int cores, int rounds, bool is_compared) {
    const uint32_t capacity = (k + 7 * uint32_t(cores) + 7) / 8 * 8 + 8 * uint32_t(below(random, 3));
    Memory<float> g("g", Access::Read, n, uint32_t(below(random, 8))),
        e("e", Access::ReadWrite, n, uint32_t(below(random, 8)));
    Memory<int32_t> state("state", Access::ReadWrite, 16, 0),
        counts("counts", Access::ReadWrite, uint64_t(cores) * 8, 0);
    Memory<float> values("values", Access::Write, capacity, 0);
    Memory<int32_t> indices("indices", Access::Write, capacity, 0);
    std::vector<float> u(n);
    for (uint32_t index = 0; index < n; ++index) {
        const float gradient = any_float(random), error = below(random, 8) == 0 ? -gradient : any_float(random) / 16;
        g.set(index, gradient), e.set(index, error), u[index] = gradient + error;
    }
    state.set(0, 0), state.set(1, 0x7f800000), state.set(2, int32_t(k));
    for (uint32_t index = 0; index < 8; ++index) state.set(8 + index, int32_t(0x7f800000 / 9 * (index + 1)));
    for (int round = 0; round < rounds; ++round) {
        launch("topk_count", {g.region(), e.region(), state.region(), counts.region()}, cores, random(),
               [&] { topk_count(g.base, e.base, state.base, counts.base, n); });
        launch("topk_narrow", {state.region(), counts.region()}, 1, random(),
               [&] { topk_narrow(state.base, counts.base, uint32_t(cores), round + 1 == rounds); });
    }
    const Counts counted = launch("topk_count", {g.region(), e.region(), state.region(), counts.region()}, cores,
                                  random(), [&] { topk_count(g.base, e.base, state.base, counts.base, n); });
    launch("topk_compact", {g.region(), e.region(), state.region(), counts.region(), values.region(), indices.region()},
           cores, random(),
           [&] { topk_compact(g.base, e.base, state.base, counts.base, values.base, indices.base, n, capacity); });
    if (!is_compared) return counted;
    const std::string of = text("n ", n, ", k ", k, ", cores ", cores, ", rounds ", rounds);
    const int32_t bits = state.get(1);
    float threshold;
    std::memcpy(&threshold, &bits, sizeof threshold);
    uint32_t chosen = 0;
    for (const float value : u) chosen += std::abs(value) >= threshold;
    expect(chosen <= k, "chosen of ", of, ": expected at most ", k, ", found ", chosen);
    if (rounds >= 10) {
        // No smaller threshold chooses as few, but for one that chooses the same.
        std::vector<float> sorted(u);
        std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return std::abs(a) > std::abs(b); });
        uint32_t best = std::min(k, n);
        while (best != 0 &&
               (sorted[best - 1] == 0 || (best < n && std::abs(sorted[best]) == std::abs(sorted[best - 1]))))
            --best;
        expect(chosen == best, "chosen of ", of, ": expected ", best, ", found ", chosen);
    }
    std::vector<int32_t> places;
    for (uint32_t entry = 0; entry < capacity; ++entry) {
        const int32_t index = indices.get(entry);
        expect(index >= -1 && index < int32_t(n), "index[", entry, "] of ", of, ": expected -1 to ", n, ", found ",
               index);
        expect_same(index < 0 ? 0 : u[uint32_t(index)], values.get(entry), "value", entry, of);
        if (index >= 0) places.push_back(index);
    }
    expect(places.size() == chosen && std::is_sorted(places.begin(), places.end()), "places of ", of, ": expected ",
           chosen, " in order, found ", places.size());
    expect(std::adjacent_find(places.begin(), places.end()) == places.end(), "places of ", of,
           ": expected each once, found one twice");
    for (uint32_t index = 0; index < n; ++index)
        expect_same(std::abs(u[index]) >= threshold ? 0 : u[index], e.get(index), "e", index, of);
    return counted;
}

void round(Random &random) {
    const uint32_t n = any_size(random, 4096, 15000),
                   k = uint32_t(below(random, below(random, 2) == 0 ? n / 50 + 2 : n + 2));
    choose(random, n, k, any_cores(random), below(random, 6) == 0 ? 10 : 1 + int(below(random, 4)), true);
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const Counts counts = choose(random, 1 << 20, 10000, 48, 1, false);
    return {counts.gm_bytes, counts};
}

}  // namespace check

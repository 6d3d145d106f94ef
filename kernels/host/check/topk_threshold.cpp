// topk_threshold against a sort: the threshold that enough rounds find, what is chosen and where, and what is left.
#include "harness.h"

#include <topk_threshold.cpp>

namespace check {

const char *const kernel = "topk_threshold";

// What is no number is of the largest magnitude.
static float magnitude(float value) { return value == value ? std::abs(value) : INFINITY; }

static Counts choose(Random &random, uint32_t n, uint32_t k, int cores, int rounds, bool is_compared) {
    const uint32_t capacity = k + 7 * uint32_t(cores) + uint32_t(below(random, 20));
    Memory<float> g("g", Access::Read, n, uint32_t(below(random, 8))), e("e", Access::ReadWrite, n, 0);
    Memory<int32_t> even("before", Access::ReadWrite, 8 * uint64_t(cores + 1), 0),
        odd("after", Access::ReadWrite, even.size, 0);
    Memory<float> values("values", Access::ReadWrite, capacity, 0);
    Memory<int32_t> indices("indices", Access::ReadWrite, capacity, 0);
    std::vector<float> u(n);
    // Some gradients have few magnitudes, and some elements that are no number.
    const uint64_t kind = below(random, 8);
    for (uint32_t index = 0; index < n; ++index) {
        const float few = below(random, 2) == 0 ? 0.5f : -0.5f * float(below(random, 3));
        const float none = below(random, 2) == 0 ? NAN : INFINITY;
        const bool is_none = kind == 1 && below(random, 1000) == 0, is_opposite = below(random, 8) == 0;
        const float gradient = is_none ? none : kind == 0 ? few : any_float(random);
        const float error = kind == 0 ? 0 : is_opposite ? -gradient : any_float(random) / 16;
        // Of zeros the positive one.
        g.set(index, gradient), e.set(index, error), u[index] = 0.0f + gradient + error;
    }
    for (uint64_t index = 0; index < even.size; ++index) even.set(index, 0), odd.set(index, 0);
    for (uint64_t index = 0; index < capacity; ++index) values.set(index, 0), indices.set(index, -1);
    const auto count = [&](int round) {
        Memory<int32_t> &before = round % 2 == 0 ? even : odd, &after = round % 2 == 0 ? odd : even;
        return launch("topk_threshold_count_float", {g.region(), e.region(), before.region(), after.region()}, cores,
                      random(), [&] {
                          topk_threshold_count_float(g.base, e.base, before.base, after.base, n, k, round == rounds);
                      });
    };
    Counts counted;
    for (int round = 0; round <= rounds; ++round) counted = count(round);
    const Memory<int32_t> &last = rounds % 2 == 0 ? odd : even;
    launch("topk_threshold_choose_float",
           {g.region(), e.region(), last.region(), values.region(), indices.region()}, cores, random(), [&] {
               topk_threshold_choose_float(g.base, e.base, last.base, values.base, indices.base, n, capacity);
           });
    if (!is_compared) return counted;
    const std::string of = text("n ", n, ", k ", k, ", cores ", cores, ", rounds ", rounds);
    const auto threshold = [&](uint64_t at) {
        const int32_t bits = last.get(8 * uint64_t(cores) + at);
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    };
    const float low = threshold(0), high = threshold(1);
    uint32_t chosen = 0;
    for (const float value : u) chosen += magnitude(value) >= high;
    expect(chosen <= k, "chosen of ", of, ": expected at most ", k, ", found ", chosen);
    // Of those between both thresholds the first.
    std::vector<bool> is_chosen(n);
    for (uint32_t index = 0; index < n; ++index) {
        const float value = magnitude(u[index]);
        const bool is_between = low > 0 && value >= low && !(value >= high) && chosen < k;
        is_chosen[index] = value >= high || is_between;
        chosen += is_between;
    }
    if (rounds >= 10) {
        const uint32_t some = uint32_t(std::count_if(u.begin(), u.end(), [](float value) { return value != 0; }));
        expect(chosen == std::min(k, some), "chosen of ", of, ": expected ", std::min(k, some), ", found ", chosen);
        float least_chosen = INFINITY, most_left = 0;
        for (uint32_t index = 0; index < n; ++index)
            if (is_chosen[index]) least_chosen = std::min(least_chosen, magnitude(u[index]));
            else most_left = std::max(most_left, magnitude(u[index]));
        expect(least_chosen >= most_left, "the least that is chosen of ", of, ": expected ", most_left, ", found ",
               least_chosen);
    }
    std::vector<int32_t> places;
    for (uint32_t entry = 0; entry < capacity; ++entry) {
        const int32_t index = indices.get(entry);
        expect(index >= -1 && index < int32_t(n), "index[", entry, "] of ", of, ": expected -1 to ", n, ", found ",
               index);
        expect_same(index < 0 ? 0 : u[uint32_t(index)], values.get(entry), "value", entry, of);
        if (index >= 0) {
            places.push_back(index);
            expect(is_chosen[uint32_t(index)], "place ", index, " of ", of, ": expected one that is chosen");
        }
    }
    expect(places.size() == chosen && std::is_sorted(places.begin(), places.end()), "places of ", of, ": expected ",
           chosen, " in order, found ", places.size());
    expect(std::adjacent_find(places.begin(), places.end()) == places.end(), "places of ", of,
           ": expected each once, found one twice");
    for (uint32_t index = 0; index < n; ++index)
        expect_same(is_chosen[index] ? 0 : u[index], e.get(index), "e", index, of);
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

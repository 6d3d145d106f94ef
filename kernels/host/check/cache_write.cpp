// cache_write against the rotation of each element, bit for bit; slots that are not named must keep what they held.
#include "harness.h"

#include <cache_write.cpp>

namespace check {

const char *const kernel = "cache_write";

using Entry = void (*)(GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, uint32_t, uint32_t, uint32_t);

template <class T>
static Counts write(Random &random, uint32_t tokens, uint32_t heads, uint32_t dim, int cores, Entry entry,
                    bool is_compared) {
    const uint64_t width = uint64_t(heads) * dim, half = dim / 2, slot_count = tokens + below(random, 5);
    Memory<T> key("key", Access::Read, tokens * width, uint32_t(below(random, 16))),
        value("value", Access::Read, tokens * width, uint32_t(below(random, 16)));
    Memory<float> cosine("cosine", Access::Read, tokens * half, uint32_t(below(random, 8))),
        sine("sine", Access::Read, tokens * half, uint32_t(below(random, 8)));
    Memory<int32_t> slots("slots", Access::Read, tokens, uint32_t(below(random, 8)));
    Memory<T> keys("keyCache", Access::ReadWrite, slot_count * width, 0),
        values("valueCache", Access::ReadWrite, slot_count * width, 0);
    for (uint64_t index = 0; index < key.size; ++index)
        key.set(index, from_float<T>(any_float(random))), value.set(index, from_float<T>(any_float(random)));
    for (uint64_t index = 0; index < cosine.size; ++index) {
        const float angle = float(below(random, 10000)) / 100;
        cosine.set(index, std::cos(angle)), sine.set(index, std::sin(angle));
    }
    std::vector<int32_t> free_slots(slot_count);
    for (uint64_t slot = 0; slot < slot_count; ++slot) free_slots[slot] = int32_t(slot);
    std::shuffle(free_slots.begin(), free_slots.end(), random);
    std::vector<int64_t> token_of(slot_count, -1);
    for (uint32_t token = 0; token < tokens; ++token) {
        const int32_t slot = below(random, 6) == 0 ? -1 : free_slots[token];
        slots.set(token, slot);
        if (slot >= 0) token_of[size_t(slot)] = token;
    }
    std::vector<T> before(keys.size);
    for (uint64_t index = 0; index < keys.size; ++index) {
        before[index] = from_float<T>(any_float(random));
        keys.set(index, before[index]), values.set(index, before[index]);
    }
    const Counts counts = launch(
        "cache_write",
        {key.region(), value.region(), cosine.region(), sine.region(), slots.region(), keys.region(), values.region()},
        cores, random(), [&] {
            entry(key.base, value.base, cosine.base, sine.base, slots.base, keys.base, values.base, tokens, heads, dim);
        });
    const std::string of = text("tokens ", tokens, ", heads ", heads, ", dim ", dim, ", cores ", cores);
    for (uint64_t index = 0; is_compared && index < keys.size; ++index) {
        const int64_t token = token_of[index / width];
        float expected_key = to_float(before[index]), expected_value = expected_key;
        if (token >= 0) {
            const uint64_t column = index % width % dim, lane = column % half,
                           first = uint64_t(token) * width + index % width - column;
            const float x1 = to_float(key.get(first + lane)), x2 = to_float(key.get(first + half + lane));
            const float c = cosine.get(uint64_t(token) * half + lane), s = sine.get(uint64_t(token) * half + lane);
            const float ours = (column < half ? x1 : x2) * c, other = (column < half ? x2 : x1) * s;
            expected_key = to_float(from_float<T>(column < half ? ours - other : ours + other));
            expected_value = to_float(value.get(uint64_t(token) * width + index % width));
        }
        expect_same(expected_key, to_float(keys.get(index)), "key", index, of);
        expect_same(expected_value, to_float(values.get(index)), "value", index, of);
    }
    return counts;
}

void round(Random &random) {
    uint32_t dim = 16 * (1 + uint32_t(below(random, 16))),
             heads = uint32_t(below(random, below(random, 4) == 0 ? 300 : 12));
    // Whole tiles, the largest dim, and more heads than a call has repeats come more often than by chance.
    const auto some = uint32_t(below(random, 9));
    switch (below(random, 12)) {
    case 0: dim = 16, heads = 256 + some; break;
    case 1: dim = 256, heads = 12 + some; break;
    case 2: dim = 32, heads = 124 + some; break;
    default: break;
    }
    const auto tokens = uint32_t(below(random, heads > 20 ? 3 : 70));
    const int cores = any_cores(random);
    if (below(random, 2) == 0) write<half>(random, tokens, heads, dim, cores, cache_write_half, true);
    else write<bfloat16_t>(random, tokens, heads, dim, cores, cache_write_bfloat16, true);
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const Counts counts = write<bfloat16_t>(random, 480, 8, 128, 48, cache_write_bfloat16, false);
    return {counts.gm_bytes, counts};
}

}  // namespace check

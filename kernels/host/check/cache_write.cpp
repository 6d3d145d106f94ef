// cache_write against the rotation of each element, bit for bit; rows that are not named must keep what they held.
#include "harness.h"

#include <cache_write.cpp>

namespace check {

const char *const kernel = "cache_write";

using Entry = void (*)(GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, GM_ADDR, uint32_t, uint32_t, uint32_t,
                       uint32_t, uint32_t, uint32_t, uint32_t);

// Which row of the cache each token goes to, below 0 for none, and what the kernel is told of it.
struct Rows {
    std::vector<int64_t> starts, of_token;
    uint32_t each = 1, rows = 0;
    uint64_t count = 0;
};

// A row of its own for each token, or for each sequence rows one behind the other.
static Rows any_rows(Random &random, uint32_t tokens) {
    Rows found;
    if (below(random, 2) == 0) {
        found.count = tokens + below(random, 5);
        std::vector<int64_t> free(found.count);
        for (uint64_t row = 0; row < found.count; ++row) free[row] = int64_t(row);
        std::shuffle(free.begin(), free.end(), random);
        for (uint32_t token = 0; token < tokens; ++token)
            found.starts.push_back(below(random, 6) == 0 ? -1 : free[token]);
        found.of_token = found.starts;
        return found;
    }
    found.each = 1 + uint32_t(below(random, 5));
    while (tokens % found.each != 0) --found.each;
    found.rows = found.each + uint32_t(below(random, 4));
    const uint32_t sequences = tokens / found.each;
    found.count = uint64_t(sequences) * found.rows;
    for (uint32_t sequence = 0; sequence < sequences; ++sequence) {
        const int64_t start = below(random, 6) == 0 ? -1 : int64_t(below(random, found.rows - found.each + 1));
        found.starts.push_back(start);
        for (uint32_t at = 0; at < found.each; ++at)
            found.of_token.push_back(start < 0 ? -1 : int64_t(sequence) * found.rows + start + at);
    }
    return found;
}

template <class T>
static Counts write(Random &random, uint32_t tokens, uint32_t heads, uint32_t dim, int cores, Entry entry,
                    bool is_compared) {
    const uint64_t width = uint64_t(heads) * dim, half = dim / 2;
    const Rows rows = any_rows(random, tokens);
    // What lies between tokens is read by nobody.
    const auto key_stride = uint32_t(width + below(random, 3) * below(random, 40)),
               value_stride = uint32_t(width + below(random, 3) * below(random, 40));
    const auto length = [&](uint32_t stride) { return tokens == 0 ? 0 : (tokens - 1) * uint64_t(stride) + width; };
    Memory<T> key("key", Access::Read, length(key_stride), uint32_t(below(random, 16))),
        value("value", Access::Read, length(value_stride), uint32_t(below(random, 16)));
    Memory<float> cosine("cosine", Access::Read, tokens * half, uint32_t(below(random, 8))),
        sine("sine", Access::Read, tokens * half, uint32_t(below(random, 8)));
    Memory<int64_t> starts("starts", Access::Read, rows.starts.size(), uint32_t(below(random, 4)));
    Memory<T> keys("keyCache", Access::ReadWrite, rows.count * width, 0),
        values("valueCache", Access::ReadWrite, rows.count * width, 0);
    for (uint64_t index = 0; index < key.size; ++index) key.set(index, from_float<T>(any_float(random)));
    for (uint64_t index = 0; index < value.size; ++index) value.set(index, from_float<T>(any_float(random)));
    for (uint64_t index = 0; index < cosine.size; ++index) {
        const float angle = float(below(random, 10000)) / 100;
        cosine.set(index, std::cos(angle)), sine.set(index, std::sin(angle));
    }
    std::vector<int64_t> token_of(rows.count, -1);
    for (uint64_t index = 0; index < rows.starts.size(); ++index) starts.set(index, rows.starts[index]);
    for (uint32_t token = 0; token < tokens; ++token)
        if (rows.of_token[token] >= 0) token_of[size_t(rows.of_token[token])] = token;
    std::vector<T> before(keys.size);
    for (uint64_t index = 0; index < keys.size; ++index) {
        before[index] = from_float<T>(any_float(random));
        keys.set(index, before[index]), values.set(index, before[index]);
    }
    const Counts counts = launch(
        "cache_write",
        {key.region(), value.region(), cosine.region(), sine.region(), starts.region(), keys.region(), values.region()},
        cores, random(), [&] {
            entry(key.base, value.base, cosine.base, sine.base, starts.base, keys.base, values.base, tokens, rows.each,
                  heads, dim, rows.rows, key_stride, value_stride);
        });
    const std::string of = text("tokens ", tokens, ", heads ", heads, ", dim ", dim, ", each ", rows.each,
                                ", rows ", rows.rows, ", strides ", key_stride, " ", value_stride, ", cores ", cores);
    for (uint64_t index = 0; is_compared && index < keys.size; ++index) {
        const int64_t token = token_of[index / width];
        float expected_key = to_float(before[index]), expected_value = expected_key;
        if (token >= 0) {
            const uint64_t column = index % width % dim, lane = column % half,
                           first = uint64_t(token) * key_stride + index % width - column;
            const float x1 = to_float(key.get(first + lane)), x2 = to_float(key.get(first + half + lane));
            const float c = cosine.get(uint64_t(token) * half + lane), s = sine.get(uint64_t(token) * half + lane);
            const float ours = (column < half ? x1 : x2) * c, other = (column < half ? x2 : x1) * s;
            expected_key = to_float(from_float<T>(column < half ? ours - other : ours + other));
            expected_value = to_float(value.get(uint64_t(token) * value_stride + index % width));
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

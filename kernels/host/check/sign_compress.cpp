// sign_compress and its reduction: scales against means in double; bits, what is kept and sums exactly, given scales.
#include "harness.h"

#include <sign_compress.cpp>

namespace check {

const char *const kernel = "sign_compress";

constexpr uint32_t ROW = 1024, ELEMENTS = 8192, RECORD = 1056;

static float scale_of(const uint8_t *record, uint32_t index) {
    float scale;
    std::memcpy(&scale, record + ELEMENTS / 8 + index / ROW * 4, sizeof scale);
    return scale;
}
static bool bit_of(const uint8_t *record, uint32_t index) { return record[index / 8] >> (index % 8) & 1; }
static float said_of(const uint8_t *record, uint32_t index) {
    return bit_of(record, index) ? scale_of(record, index) : -scale_of(record, index);
}

static Counts compress(Random &random, uint32_t n, int cores, bool is_compared) {
    // Sometimes shares, of which the last may have no elements, and sometimes none is the card's own.
    const uint32_t needed = (n + ELEMENTS - 1) / ELEMENTS, cards = 1 + uint32_t(below(random, 4)),
                   share = (needed + cards - 1) / cards, own = uint32_t(below(random, cards + 1)),
                   parts = uint32_t(below(random, 3)), count = share * cards;
    Memory<float> x("x", Access::Read, n, uint32_t(below(random, 8))),
        whole("whole", Access::Read, n, uint32_t(below(random, 8))), kept("kept", Access::ReadWrite, n, 0);
    Memory<uint8_t> records("records", Access::Write, uint64_t(count) * RECORD, 0);
    std::vector<float> u(n);
    for (uint32_t index = 0; index < n; ++index) {
        const float part = any_float(random), all = any_float(random), left = any_float(random) / 16;
        x.set(index, part), whole.set(index, all), kept.set(index, left);
        // Of zeros the positive one.
        u[index] = (parts == 0 ? 0.0f : all * (1.0f / float(parts))) + 0.0f + part + left;
    }
    const Counts counts =
        launch("sign_compress_float", {x.region(), whole.region(), kept.region(), records.region()}, cores, random(),
               [&] { sign_compress_float(x.base, whole.base, kept.base, records.base, n, count, share, own, parts); });
    const std::string of =
        text("n ", n, ", cores ", cores, ", ", cards, " shares of ", share, ", own ", own, ", parts ", parts);
    for (uint32_t index = 0; is_compared && index < count * ELEMENTS; ++index) {
        const uint8_t *record = records.base + uint64_t(index / ELEMENTS) * RECORD;
        const bool expected = index >= n || u[index] >= 0, is_own = index / ELEMENTS / std::max(share, 1u) == own;
        const float scale = scale_of(record, index % ELEMENTS);
        expect(bit_of(record, index % ELEMENTS) == expected, "bit[", index, "] of ", of, ": expected ", int(expected),
               ", found ", int(!expected));
        if (index % ROW == 0) {
            double sum = 0;
            const uint32_t size = index >= n || is_own ? 0 : std::min(ROW, n - index);
            for (uint32_t at = index; at < index + size; ++at) sum += std::abs(double(u[at]));
            const double mean = size == 0 ? 0 : sum / size;
            expect(std::abs(double(scale) - mean) <= 1e-6 * mean, "scale[", index / ROW, "] of ", of, ": expected ",
                   mean, ", found ", scale);
        }
        if (index < n)
            expect_same(u[index] - said_of(record, index % ELEMENTS), kept.get(index), "kept", index, of);
    }
    return counts;
}

static Counts reduce(Random &random, uint32_t n, uint32_t cards, int cores, bool is_compared) {
    const uint32_t share = (n + ELEMENTS - 1) / ELEMENTS + uint32_t(below(random, 2));
    Memory<uint8_t> records("records", Access::Read, uint64_t(cards) * share * RECORD, 0);
    Memory<float> y("y", Access::Write, n, 0);
    for (uint64_t index = 0; index < records.size; ++index) records.set(index, uint8_t(random()));
    for (uint64_t scale = 0; scale < uint64_t(cards) * share * 8; ++scale) {
        const float value = std::abs(any_float(random));
        std::memcpy(records.base + scale / 8 * RECORD + ELEMENTS / 8 + scale % 8 * 4, &value, sizeof value);
    }
    const Counts counts = launch("sign_compress_reduce_float", {records.region(), y.region()}, cores, random(),
                                 [&] { sign_compress_reduce_float(records.base, y.base, n, share, cards); });
    const std::string of = text("n ", n, ", ", cards, " cards, cores ", cores);
    for (uint32_t index = 0; is_compared && index < n; ++index) {
        float sum = 0;
        for (uint32_t card = 0; card < cards; ++card) {
            const uint8_t *record = records.base + (uint64_t(card) * share + index / ELEMENTS) * RECORD;
            sum = card == 0 ? said_of(record, index % ELEMENTS) : sum + said_of(record, index % ELEMENTS);
        }
        expect_same(sum, y.get(index), "y", index, of);
    }
    return counts;
}

void round(Random &random) {
    const uint32_t n = any_size(random, ELEMENTS, 60000), cards = 1 + uint32_t(below(random, 12));
    compress(random, n, any_cores(random), true);
    reduce(random, n / cards, cards, any_cores(random), true);
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const Counts reduced = reduce(random, 1 << 20, 8, 48, false), counts = compress(random, 1 << 20, 48, false);
    std::printf("sign_compress_reduce: 8 cards, cycles V %llu, MTE2 %llu, MTE3 %llu, of the memory's rate %.2f\n",
                (unsigned long long)reduced.busy[PIPE_V], (unsigned long long)reduced.busy[PIPE_MTE2],
                (unsigned long long)reduced.busy[PIPE_MTE3],
                std::min(1.0, double(reduced.gm_bytes) / (1600.0 / 1.85) / double(reduced.busy[PIPE_V])));
    return {counts.gm_bytes, counts};
}

}  // namespace check

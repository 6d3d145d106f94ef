// sign_compress and sign_reduce: scales against means in double, bits, errors and sums exactly, given the scales.
#include "harness.h"

#include <sign_compress.cpp>

namespace check {

const char *const kernel = "sign_compress";

constexpr uint32_t CHUNK = 4096, RECORD = 544;

static float scale_of(const uint8_t *record) {
    float scale;
    std::memcpy(&scale, record, sizeof scale);
    return scale;
}
static bool bit_of(const uint8_t *record, uint32_t index) { return record[32 + index / 8] >> (index % 8) & 1; }

static Counts compress(Random &random, uint32_t n, int cores, bool is_compared) {
    const uint32_t chunks = (n + CHUNK - 1) / CHUNK;
    Memory<float> g("g", Access::Read, n, uint32_t(below(random, 8))), e("e", Access::ReadWrite, n, 0);
    Memory<uint8_t> message("message", Access::Write, uint64_t(chunks) * RECORD, 0);
    std::vector<float> u(n);
    for (uint32_t index = 0; index < n; ++index) {
        const float gradient = any_float(random), error = any_float(random) / 16;
        g.set(index, gradient), e.set(index, error), u[index] = gradient + error;
    }
    const Counts counts = launch("sign_compress", {g.region(), e.region(), message.region()}, cores, random(),
                                 [&] { sign_compress(g.base, e.base, message.base, n); });
    const std::string of = text("n ", n, ", cores ", cores);
    for (uint32_t chunk = 0; is_compared && chunk < chunks; ++chunk) {
        const uint8_t *record = message.base + uint64_t(chunk) * RECORD;
        const uint32_t from = chunk * CHUNK, count = std::min(CHUNK, n - from);
        double sum = 0;
        for (uint32_t index = 0; index < count; ++index) sum += std::abs(double(u[from + index]));
        const float scale = scale_of(record);
        expect(std::abs(double(scale) - sum / count) <= 1e-6 * sum / count, "scale[", chunk, "] of ", of, ": expected ",
               sum / count, ", found ", scale);
        for (uint32_t copy = 1; copy < 8; ++copy)
            expect_same(scale, scale_of(record + 4 * copy), "copy of scale", chunk, of);
        for (uint32_t index = 0; index < CHUNK; ++index) {
            const bool expected = index >= count || u[from + index] >= 0;
            expect(bit_of(record, index) == expected, "bit[", from + index, "] of ", of, ": expected ", int(expected),
                   ", found ", int(!expected));
            if (index < count)
                expect_same(u[from + index] - (expected ? scale : -scale), e.get(from + index), "e", from + index, of);
        }
    }
    return counts;
}

static Counts reduce(Random &random, uint32_t n, uint32_t peers, int cores, bool is_compared) {
    const uint32_t chunks = (n + CHUNK - 1) / CHUNK;
    const float factor = 1.0f / float(peers);
    Memory<uint8_t> messages("messages", Access::Read, uint64_t(peers) * chunks * RECORD, 0);
    Memory<float> y("y", Access::Write, n, 0);
    for (uint64_t index = 0; index < messages.size; ++index) messages.set(index, uint8_t(random()));
    for (uint64_t record = 0; record < uint64_t(peers) * chunks; ++record) {
        const float scale = std::abs(any_float(random));
        for (uint32_t copy = 0; copy < 8; ++copy)
            std::memcpy(messages.base + record * RECORD + copy * 4, &scale, sizeof scale);
    }
    const Counts counts = launch("sign_reduce", {messages.region(), y.region()}, cores, random(),
                                 [&] { sign_reduce(messages.base, y.base, peers, factor, n); });
    const std::string of = text("n ", n, ", peers ", peers, ", cores ", cores);
    for (uint32_t index = 0; is_compared && index < n; ++index) {
        float sum = 0;
        for (uint32_t peer = 0; peer < peers; ++peer) {
            const uint8_t *record = messages.base + (uint64_t(peer) * chunks + index / CHUNK) * RECORD;
            const float step = bit_of(record, index % CHUNK) ? scale_of(record) : -scale_of(record);
            sum = peer == 0 ? step : sum + step;
        }
        expect_same(sum * factor, y.get(index), "y", index, of);
    }
    return counts;
}

void round(Random &random) {
    const uint32_t n = any_size(random, CHUNK, 60000), peers = 1 + uint32_t(below(random, 12));
    compress(random, n, any_cores(random), true);
    reduce(random, n / peers, peers, any_cores(random), true);
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const Counts reduced = reduce(random, 1 << 20, 8, 48, false), counts = compress(random, 1 << 20, 48, false);
    std::printf("sign_reduce: 8 peers, cycles V %llu, MTE2 %llu, MTE3 %llu, of the memory's rate %.2f\n",
                (unsigned long long)reduced.busy[PIPE_V], (unsigned long long)reduced.busy[PIPE_MTE2],
                (unsigned long long)reduced.busy[PIPE_MTE3],
                std::min(1.0, double(reduced.gm_bytes) / (1600.0 / 1.85) / double(reduced.busy[PIPE_V])));
    return {counts.gm_bytes, counts};
}

}  // namespace check

// vocab_ce against sums in double over a row; the maximum, the label's logit and the arg-max exactly.
#include "harness.h"

#include <vocab_ce.cpp>

namespace check {

const char *const kernel = "vocab_ce";

using Entry = void (*)(GM_ADDR, GM_ADDR, GM_ADDR, uint32_t, uint32_t, uint32_t);

// Few different values, so that the largest is there more than once; with some tokens that are ruled out.
static float any_logit(Random &random) {
    if (below(random, 50) == 0) return -INFINITY;
    return float(int(below(random, 160)) - 80) / 8;
}

template <class T>
static Counts both(Random &random, uint32_t rows, uint32_t vocab, int cores, Entry forward, Entry backward,
                   bool is_compared) {
    const auto skew = uint32_t(below(random, 32 / sizeof(T))), first = uint32_t(below(random, 3)) * 1000;
    const std::string of = text("rows ", rows, ", vocab ", vocab, ", cores ", cores, ", ", sizeof(T), "-byte elements");
    Memory<T> x("logits", Access::Read, uint64_t(rows) * vocab, skew),
        gradient("logits", Access::ReadWrite, uint64_t(rows) * vocab, skew);
    Memory<int32_t> labels("labels", Access::Read, rows, uint32_t(below(random, 8)));
    Memory<float> records("record", Access::Write, uint64_t(rows) * 8, 0),
        scales("scales", Access::Read, uint64_t(rows) * 8, 0);
    for (uint64_t index = 0; index < x.size; ++index)
        x.set(index, from_float<T>(any_logit(random))), gradient.set(index, x.get(index));
    for (uint32_t row = 0; row < rows; ++row) {
        labels.set(row, int32_t(first) - 5 + int32_t(below(random, vocab + 10)));
        if (vocab != 0)
            x.set(uint64_t(row) * vocab, from_float<T>(1.0f)), gradient.set(uint64_t(row) * vocab, from_float<T>(1.0f));
    }
    const Counts counts = launch("vocab_ce_forward", {x.region(), labels.region(), records.region()}, cores, random(),
                                 [&] { forward(x.base, labels.base, records.base, rows, vocab, first); });
    if (!is_compared) return counts;
    for (uint32_t row = 0; row < rows; ++row) {
        const auto at = [&](uint32_t column) { return to_float(x.get(uint64_t(row) * vocab + column)); };
        float maximum = -std::numeric_limits<float>::max();
        int32_t token = -1;
        for (uint32_t column = 0; column < vocab; ++column)
            if (token < 0 || at(column) > maximum) maximum = at(column), token = int32_t(first + column);
        double sum = 0;
        for (uint32_t column = 0; column < vocab; ++column) sum += std::exp(double(at(column)) - double(maximum));
        const int64_t label = int64_t(labels.get(row)) - first;
        const bool has_label = label >= 0 && label < vocab;
        const float found_sum = records.get(row * 8 + 1);
        int32_t found_token;
        std::memcpy(&found_token, records.base + (row * 8 + 3) * 4, 4);
        expect_same(maximum, records.get(row * 8), "maximum", row, of);
        expect(std::abs(found_sum - sum) <= 4e-6 * sum, "sum[", row, "] of ", of, ": expected ", sum, ", found ",
               found_sum);
        expect_same(has_label ? at(uint32_t(label)) : 0, records.get(row * 8 + 2), "label's logit", row, of);
        expect(found_token == token, "arg-max[", row, "] of ", of, ": expected ", token, ", found ", found_token);
        for (uint32_t rest = 4; rest < 8; ++rest)
            expect_same(0, records.get(row * 8 + rest), "rest of record", row, of);
        const float scale[] = {maximum, float(sum) * 1.25f, any_float(random) / 64};
        for (uint32_t index = 0; index < 8; ++index) scales.set(row * 8 + index, index < 3 ? scale[index] : NAN);
    }
    launch("vocab_ce_backward", {gradient.region(), labels.region(), scales.region()}, cores, random(),
           [&] { backward(gradient.base, labels.base, scales.base, rows, vocab, first); });
    for (uint32_t row = 0; row < rows; ++row) {
        const double maximum = scales.get(row * 8), sum = scales.get(row * 8 + 1), factor = scales.get(row * 8 + 2);
        for (uint32_t column = 0; column < vocab; ++column) {
            const uint64_t index = uint64_t(row) * vocab + column;
            const bool is_label = int64_t(labels.get(row)) - first == column;
            const double expected =
                (std::exp(double(to_float(x.get(index))) - maximum) / sum - (is_label ? 1 : 0)) * factor;
            const double found = to_float(gradient.get(index));
            // Half an ulp of the type, and in float a few of the exponential; a half below its normal numbers has fewer
            // digits.
            const double rounding = sizeof(T) == 4 ? 1e-6 : std::is_same_v<T, half> ? 5e-4 : 4e-3;
            expect(std::abs(found - expected) <= rounding * std::abs(expected) +
                                                     4e-8 * (std::is_same_v<T, half> ? 1 : 0) +
                                                     1e-6 * std::abs(is_label ? factor : 0),
                   "gradient[", row, "][", column, "] of ", of, ": expected ", expected, ", found ", found);
        }
    }
    return counts;
}

void round(Random &random) {
    const uint32_t rows = uint32_t(below(random, 12)), vocab = any_size(random, 4096, rows == 0 ? 9000 : 40000 / rows);
    const int cores = any_cores(random);
    switch (below(random, 3)) {
    case 0: both<float>(random, rows, vocab, cores, vocab_ce_forward_float, vocab_ce_backward_float, true); break;
    case 1:
        both<bfloat16_t>(random, rows, vocab, cores, vocab_ce_forward_bfloat16, vocab_ce_backward_bfloat16, true);
        break;
    default: both<half>(random, rows, vocab, cores, vocab_ce_forward_half, vocab_ce_backward_half, true);
    }
}

std::pair<uint64_t, Counts> large() {
    Random random(1);
    const Counts counts = both<float>(random, 48, 19008, 48, vocab_ce_forward_float, vocab_ce_backward_float, false);
    return {counts.gm_bytes, counts};
}

}  // namespace check

// The vector unit: elementwise calls with a count or with mask, repeats and strides, casts, comparisons, selections.
#pragma once

#include <vector>

#include "copy.h"

namespace AscendC {

namespace vector_detail {

// Which elements a call works on. With a count they are contiguous; else repeats of up to 256 bytes, in blocks of 32.
struct Lanes {
    bool is_contiguous = true;
    uint32_t count = 0, repeats = 0;
    // Of one repeat.
    std::vector<uint8_t> active{};

    uint32_t size() const { return is_contiguous ? count : repeats * uint32_t(active.size()); }
};

inline Lanes counted(const Use &use, int64_t count) {
    if (count < 0 || count > int64_t(ascend_host::UB_BYTES))
        current->fail(use, "range", "a count of elements", text(count));
    return {true, uint32_t(count), 0, {}};
}
// A repeat holds as many elements as the widest of its types has in 256 bytes.
inline Lanes repeated(const Use &use, uint64_t mask, int64_t repeats, uint32_t widest) {
    const uint32_t most = ascend_host::REPEAT / widest;
    if (mask < 1 || mask > most) current->fail(use, "mask", text("1 to ", most, " elements a repeat"), text(mask));
    if (repeats < 0 || repeats > 255) current->fail(use, "mask", "0 to 255 repeats", text(repeats));
    Lanes lanes{false, 0, uint32_t(repeats), {}};
    for (uint64_t index = 0; index < mask; ++index) lanes.active.push_back(uint8_t(index));
    return lanes;
}
inline Lanes repeated(const Use &use, const uint64_t mask[], int64_t repeats, uint32_t widest) {
    const uint32_t most = ascend_host::REPEAT / widest;
    if (repeats < 0 || repeats > 255) current->fail(use, "mask", "0 to 255 repeats", text(repeats));
    Lanes lanes{false, 0, uint32_t(repeats), {}};
    for (uint32_t index = 0; index < most; ++index)
        if (mask[index / 64] >> (index % 64) & 1) lanes.active.push_back(uint8_t(index));
    if (lanes.active.empty()) current->fail(use, "mask", "at least a bit of the mask", "none");
    return lanes;
}

// One operand with its strides in blocks.
template <class T>
struct Operand {
    using Type = T;
    const LocalTensor<T> &tensor;
    const char *role;
    uint32_t block_stride = 1, repeat_stride = 8;

    // Bytes from the operand's address to an element of a repeat.
    uint32_t place(const Lanes &lanes, uint32_t index) const {
        if (lanes.is_contiguous) return index * uint32_t(sizeof(T));
        const auto per = uint32_t(lanes.active.size());
        const uint32_t lane = lanes.active[index % per], per_block = ascend_host::BLOCK / sizeof(T);
        return (index / per * repeat_stride + lane / per_block * block_stride) * ascend_host::BLOCK +
               lane % per_block * uint32_t(sizeof(T));
    }
    void touch(const char *call, At at, uint32_t time, const Lanes &lanes, bool is_write) const {
        const Use use{call, role, at};
        const uint32_t size = lanes.size();
        if (lanes.is_contiguous) {
            tensor.check_aligned(use, uint64_t(size) * sizeof(T));
            current->access(use, PIPE_V, time, tensor.address, size * uint32_t(sizeof(T)), is_write);
            return;
        }
        tensor.check_aligned(use, 0);
        for (uint32_t index = 0; index < size;) {
            const uint32_t begin = place(lanes, index);
            uint32_t end = begin + sizeof(T);
            for (++index; index < size && place(lanes, index) == end; ++index) end += sizeof(T);
            tensor.check(use, begin, end - begin);
            current->access(use, PIPE_V, time, tensor.address + begin, end - begin, is_write);
        }
    }
    T *at_lane(const Lanes &lanes, uint32_t index) const {
        return reinterpret_cast<T *>(current->ub.data() + tensor.address + place(lanes, index));
    }
};

inline uint64_t cycles(const Lanes &lanes, uint32_t widest) {
    return lanes.is_contiguous ? (uint64_t(lanes.count) * widest + 255) / 256 : lanes.repeats;
}

// The order in which repeats read and write is not given, so operands may be the same place or apart, and nothing
// between.
template <class D, class S>
void check_overlap(const char *call, At at, const Lanes &lanes, const Operand<D> &dst, const Operand<S> &src) {
    if (!lanes.is_contiguous) return;
    const uint64_t d = dst.tensor.address, s = src.tensor.address, size = lanes.size();
    const bool is_same = d == s && sizeof(D) == sizeof(S);
    if (!is_same && size != 0 && d < s + size * sizeof(S) && s < d + size * sizeof(D))
        current->fail({call, dst.role, at}, "range", text("the same place as ", src.role, " or one apart from it"),
                      "an overlap");
}

template <class D, class F, class... S>
void apply(const char *call, At at, const Lanes &lanes, F function, Operand<D> dst, Operand<S>... src) {
    constexpr uint32_t widest = uint32_t(std::max({sizeof(D), sizeof(S)...}));
    const uint32_t time = current->begin({call, "", at}, PIPE_V, cycles(lanes, widest));
    (src.touch(call, at, time, lanes, false), ...);
    (check_overlap(call, at, lanes, dst, src), ...);
    dst.touch(call, at, time, lanes, true);
    const uint32_t size = lanes.size();
    if (lanes.is_contiguous) {
        D *to = dst.tensor.data();
        for (uint32_t index = 0; index < size; ++index) to[index] = function(src.tensor.data()[index]...);
        return;
    }
    for (uint32_t index = 0; index < size; ++index)
        *dst.at_lane(lanes, index) = function(*src.at_lane(lanes, index)...);
}

template <class T>
constexpr bool is_computable = !std::is_same_v<T, bfloat16_t>;

}  // namespace vector_detail

// A call on two tensors: with a count, with a mask of the first elements, with a mask of bits.
#define ASCEND_HOST_BINARY(NAME, EXPRESSION)                                                                        \
    template <class T>                                                                                              \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int32_t count,     \
              At at = At::here()) {                                                                                 \
        static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");                           \
        vector_detail::apply(                                                                                       \
            #NAME, at, vector_detail::counted({#NAME, "count", at}, count), [](T a, T b) { return T(EXPRESSION); }, \
            vector_detail::Operand<T>{dst, "dst"}, vector_detail::Operand<T>{src0, "src0"},                         \
            vector_detail::Operand<T>{src1, "src1"});                                                               \
    }                                                                                                               \
    template <class T, class Mask>                                                                                  \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, Mask mask,         \
              int32_t repeats, const BinaryRepeatParams &params, At at = At::here()) {                              \
        static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");                           \
        vector_detail::apply(                                                                                       \
            #NAME, at, vector_detail::repeated({#NAME, "mask", at}, mask, repeats, sizeof(T)),                      \
            [](T a, T b) { return T(EXPRESSION); },                                                                 \
            vector_detail::Operand<T>{dst, "dst", params.dstBlkStride, params.dstRepStride},                        \
            vector_detail::Operand<T>{src0, "src0", params.src0BlkStride, params.src0RepStride},                    \
            vector_detail::Operand<T>{src1, "src1", params.src1BlkStride, params.src1RepStride});                   \
    }
ASCEND_HOST_BINARY(Add, a + b)
ASCEND_HOST_BINARY(Sub, a - b)
ASCEND_HOST_BINARY(Mul, a *b)
ASCEND_HOST_BINARY(Div, a / b)
ASCEND_HOST_BINARY(Max, a > b ? a : b)
ASCEND_HOST_BINARY(Min, a < b ? a : b)
ASCEND_HOST_BINARY(And, a &b)
ASCEND_HOST_BINARY(Or, a | b)
#undef ASCEND_HOST_BINARY

#define ASCEND_HOST_UNARY(NAME, EXPRESSION)                                                                    \
    template <class T>                                                                                         \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t count, At at = At::here()) {       \
        static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");                      \
        vector_detail::apply(                                                                                  \
            #NAME, at, vector_detail::counted({#NAME, "count", at}, count), [](T a) { return T(EXPRESSION); }, \
            vector_detail::Operand<T>{dst, "dst"}, vector_detail::Operand<T>{src, "src"});                     \
    }                                                                                                          \
    template <class T, class Mask>                                                                             \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, Mask mask, int32_t repeats,                \
              const UnaryRepeatParams &params, At at = At::here()) {                                           \
        static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");                      \
        vector_detail::apply(                                                                                  \
            #NAME, at, vector_detail::repeated({#NAME, "mask", at}, mask, repeats, sizeof(T)),                 \
            [](T a) { return T(EXPRESSION); },                                                                 \
            vector_detail::Operand<T>{dst, "dst", params.dstBlkStride, params.dstRepStride},                   \
            vector_detail::Operand<T>{src, "src", params.srcBlkStride, params.srcRepStride});                  \
    }
ASCEND_HOST_UNARY(Abs, a < 0 ? -a : a == 0 ? T(0) : a)
ASCEND_HOST_UNARY(Exp, std::exp(float(a)))
ASCEND_HOST_UNARY(Ln, std::log(float(a)))
ASCEND_HOST_UNARY(Sqrt, std::sqrt(float(a)))
ASCEND_HOST_UNARY(Rsqrt, 1 / std::sqrt(float(a)))
ASCEND_HOST_UNARY(Reciprocal, 1 / float(a))
ASCEND_HOST_UNARY(Relu, a > 0 ? a : T(0))
ASCEND_HOST_UNARY(Not, ~a)
#undef ASCEND_HOST_UNARY

// A call on a tensor and a scalar of its type.
#define ASCEND_HOST_SCALAR(NAME, EXPRESSION)                                                                    \
    template <class T>                                                                                          \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, std::common_type_t<T> b, int32_t count,     \
              At at = At::here()) {                                                                             \
        static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");                       \
        vector_detail::apply(                                                                                   \
            #NAME, at, vector_detail::counted({#NAME, "count", at}, count), [b](T a) { return T(EXPRESSION); }, \
            vector_detail::Operand<T>{dst, "dst"}, vector_detail::Operand<T>{src, "src"});                      \
    }                                                                                                           \
    template <class T, class Mask>                                                                              \
    void NAME(const LocalTensor<T> &dst, const LocalTensor<T> &src, std::common_type_t<T> b, Mask mask,         \
              int32_t repeats, const UnaryRepeatParams &params, At at = At::here()) {                           \
        static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");                       \
        vector_detail::apply(                                                                                   \
            #NAME, at, vector_detail::repeated({#NAME, "mask", at}, mask, repeats, sizeof(T)),                  \
            [b](T a) { return T(EXPRESSION); },                                                                 \
            vector_detail::Operand<T>{dst, "dst", params.dstBlkStride, params.dstRepStride},                    \
            vector_detail::Operand<T>{src, "src", params.srcBlkStride, params.srcRepStride});                   \
    }
ASCEND_HOST_SCALAR(Adds, a + b)
ASCEND_HOST_SCALAR(Muls, a *b)
ASCEND_HOST_SCALAR(Maxs, a > b ? a : b)
ASCEND_HOST_SCALAR(Mins, a < b ? a : b)
ASCEND_HOST_SCALAR(LeakyRelu, a > 0 ? a : a *b)
ASCEND_HOST_SCALAR(ShiftLeft, a << b)
ASCEND_HOST_SCALAR(ShiftRight, a >> b)
#undef ASCEND_HOST_SCALAR

// dst += src * factor.
template <class T, class U>
void Axpy(const LocalTensor<T> &dst, const LocalTensor<U> &src, std::common_type_t<U> factor, int32_t count,
          At at = At::here()) {
    vector_detail::apply(
        "Axpy", at, vector_detail::counted({"Axpy", "count", at}, count),
        [factor](T a, U b) { return T(a + T(b * factor)); }, vector_detail::Operand<T>{dst, "dst"},
        vector_detail::Operand<T>{dst, "dst"}, vector_detail::Operand<U>{src, "src"});
}
// dst += src0 * src1.
template <class T>
void MulAddDst(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int32_t count,
               At at = At::here()) {
    vector_detail::apply(
        "MulAddDst", at, vector_detail::counted({"MulAddDst", "count", at}, count),
        [](T a, T b, T c) { return T(a + T(b * c)); }, vector_detail::Operand<T>{dst, "dst"},
        vector_detail::Operand<T>{dst, "dst"}, vector_detail::Operand<T>{src0, "src0"},
        vector_detail::Operand<T>{src1, "src1"});
}
template <class T, class Mask>
void MulAddDst(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, Mask mask,
               int32_t repeats, const BinaryRepeatParams &params, At at = At::here()) {
    vector_detail::apply(
        "MulAddDst", at, vector_detail::repeated({"MulAddDst", "mask", at}, mask, repeats, sizeof(T)),
        [](T a, T b, T c) { return T(a + T(b * c)); },
        vector_detail::Operand<T>{dst, "dst", params.dstBlkStride, params.dstRepStride},
        vector_detail::Operand<T>{dst, "dst", params.dstBlkStride, params.dstRepStride},
        vector_detail::Operand<T>{src0, "src0", params.src0BlkStride, params.src0RepStride},
        vector_detail::Operand<T>{src1, "src1", params.src1BlkStride, params.src1RepStride});
}
template <class T>
void Duplicate(const LocalTensor<T> &dst, std::common_type_t<T> value, int32_t count, At at = At::here()) {
    vector_detail::apply(
        "Duplicate", at, vector_detail::counted({"Duplicate", "count", at}, count), [value] { return value; },
        vector_detail::Operand<T>{dst, "dst"});
}
template <class T, class Mask>
void Duplicate(const LocalTensor<T> &dst, std::common_type_t<T> value, Mask mask, int32_t repeats, uint16_t block,
               uint8_t repeat, At at = At::here()) {
    vector_detail::apply(
        "Duplicate", at, vector_detail::repeated({"Duplicate", "mask", at}, mask, repeats, sizeof(T)),
        [value] { return value; }, vector_detail::Operand<T>{dst, "dst", block, repeat});
}
template <class T, class Mask>
void Copy(const LocalTensor<T> &dst, const LocalTensor<T> &src, Mask mask, int32_t repeats,
          const CopyRepeatParams &params, At at = At::here()) {
    vector_detail::apply(
        "Copy", at, vector_detail::repeated({"Copy", "mask", at}, mask, repeats, sizeof(T)), [](T a) { return a; },
        vector_detail::Operand<T>{dst, "dst", params.dstStride, params.dstRepeatSize},
        vector_detail::Operand<T>{src, "src", params.srcStride, params.srcRepeatSize});
}
// first, first + 1, …
template <class T>
void CreateVecIndex(const LocalTensor<T> &dst, std::common_type_t<T> first, uint32_t count, At at = At::here()) {
    T next = first;
    vector_detail::apply(
        "CreateVecIndex", at, vector_detail::counted({"CreateVecIndex", "count", at}, count),
        [&next] {
            const T now = next;
            next = T(next + 1);
            return now;
        },
        vector_detail::Operand<T>{dst, "dst"});
}
// Each of 8 elements a repeat fills a block of its own.
template <class T>
void Brcb(const LocalTensor<T> &dst, const LocalTensor<T> &src, uint8_t repeats, const BrcbRepeatParams &params,
          At at = At::here()) {
    const Use to{"Brcb", "dst", at}, from{"Brcb", "src", at};
    const uint32_t time = current->begin(to, PIPE_V, repeats), elements = uint32_t(repeats) * 8,
                   per_block = ascend_host::BLOCK / sizeof(T);
    src.check_aligned(from, elements * sizeof(T));
    current->access(from, PIPE_V, time, src.address, elements * sizeof(T), false);
    dst.check_aligned(to, 0);
    for (uint32_t index = 0; index < elements; ++index) {
        const uint32_t place = (index / 8 * params.dstRepStride + index % 8 * params.dstBlkStride) * ascend_host::BLOCK;
        dst.check(to, place, ascend_host::BLOCK);
        current->access(to, PIPE_V, time, dst.address + place, ascend_host::BLOCK, true);
        std::fill_n(dst[place / uint32_t(sizeof(T))].data(), per_block, src.data()[index]);
    }
}

namespace vector_detail {

inline double rounded(double value, RoundMode mode) {
    switch (mode) {
    case RoundMode::CAST_FLOOR: return std::floor(value);
    case RoundMode::CAST_CEIL: return std::ceil(value);
    case RoundMode::CAST_ROUND: return std::round(value);
    case RoundMode::CAST_TRUNC: return std::trunc(value);
    case RoundMode::CAST_ODD: {
        const double down = std::floor(value);
        return down == value || std::fmod(down, 2) != 0 ? down : down + 1;
    }
    default: return std::nearbyint(value);
    }
}

// To a floating type of `digits` bits of significand whose smallest normal exponent is `lowest`.
inline double on_grid(double value, RoundMode mode, int digits, int lowest) {
    if (value == 0 || !std::isfinite(value)) return value;
    int exponent;
    std::frexp(value, &exponent);
    const int step = std::max(exponent - digits, lowest - digits + 1);
    return std::ldexp(rounded(std::ldexp(value, -step), mode), step);
}

template <class D, class S>
D converted(S value, RoundMode mode) {
    if constexpr (std::is_same_v<S, bfloat16_t>) return converted<D>(ToFloat(value), mode);
    else if constexpr (std::is_same_v<D, bfloat16_t>)
        return ToBfloat16(mode == RoundMode::CAST_RINT ? float(value) : float(on_grid(float(value), mode, 8, -126)));
    else if constexpr (std::is_same_v<D, half>) {
        const bool is_near = mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT;
        return is_near ? half(float(value)) : half(float(on_grid(double(float(value)), mode, 11, -14)));
    } else if constexpr (std::is_integral_v<D> && !std::is_integral_v<S>) {
        const double whole = rounded(double(float(value)), mode);
        if (whole != whole) return D(0);
        return D(
            std::min(std::max(whole, double(std::numeric_limits<D>::min())), double(std::numeric_limits<D>::max())));
    } else if constexpr (std::is_same_v<D, float> && std::is_same_v<S, float>) {
        // To a whole number that stays a float.
        return mode == RoundMode::CAST_NONE ? value : float(rounded(double(value), mode));
    } else {
        return D(value);
    }
}

// Which mode a pair of types takes: one that keeps every value takes CAST_NONE alone.
template <class D, class S>
void check_mode(const Use &use, RoundMode mode) {
    constexpr bool is_exact =
        !std::is_same_v<D, S> && sizeof(D) > sizeof(S) && (std::is_integral_v<S> || !std::is_integral_v<D>);
    if (is_exact && mode != RoundMode::CAST_NONE)
        current->fail(use, "mask", "CAST_NONE, as the cast is exact", text("mode ", int(mode)));
    const bool must_round = std::is_same_v<D, bfloat16_t> || (std::is_integral_v<D> && !std::is_integral_v<S>);
    if (must_round && mode == RoundMode::CAST_NONE) current->fail(use, "mask", "a mode that rounds", "CAST_NONE");
}

// Calls `use` with the comparison that a mode names.
template <class F>
void with_comparison(CMPMODE mode, F use) {
    switch (mode) {
    case CMPMODE::LT: return use([](auto a, auto b) { return a < b; });
    case CMPMODE::GT: return use([](auto a, auto b) { return a > b; });
    case CMPMODE::EQ: return use([](auto a, auto b) { return a == b; });
    case CMPMODE::LE: return use([](auto a, auto b) { return a <= b; });
    case CMPMODE::GE: return use([](auto a, auto b) { return a >= b; });
    default: return use([](auto a, auto b) { return a != b; });
    }
}

// Writes a bit for each element; whole repeats only.
template <class T, class U, class F>
void compare(const char *call, At at, const LocalTensor<U> &dst, uint32_t count, F holds_at,
             std::initializer_list<Operand<T>> sources) {
    const Use to{call, "dst", at};
    const Lanes lanes = counted({call, "count", at}, count);
    if (count * sizeof(T) % ascend_host::REPEAT != 0)
        current->fail({call, "count", at}, "alignment", "a multiple of 256 bytes", text(uint64_t(count) * sizeof(T)));
    const uint32_t time = current->begin(to, PIPE_V, cycles(lanes, sizeof(T)));
    for (const Operand<T> &source : sources) source.touch(call, at, time, lanes, false);
    dst.check_aligned(to, count / 8);
    current->access(to, PIPE_V, time, dst.address, count / 8, true);
    uint8_t *bits = current->ub.data() + dst.address;
    for (uint32_t index = 0; index < count; index += 8) {
        uint8_t byte = 0;
        for (uint32_t bit = 0; bit < 8; ++bit) byte = uint8_t(byte | holds_at(index + bit) << bit);
        bits[index / 8] = byte;
    }
}

}  // namespace vector_detail

template <class D, class S>
void Cast(const LocalTensor<D> &dst, const LocalTensor<S> &src, RoundMode mode, uint32_t count, At at = At::here()) {
    vector_detail::check_mode<D, S>({"Cast", "mode", at}, mode);
    vector_detail::apply(
        "Cast", at, vector_detail::counted({"Cast", "count", at}, count),
        [mode](S a) { return vector_detail::converted<D>(a, mode); }, vector_detail::Operand<D>{dst, "dst"},
        vector_detail::Operand<S>{src, "src"});
}
template <class D, class S, class Mask>
void Cast(const LocalTensor<D> &dst, const LocalTensor<S> &src, RoundMode mode, Mask mask, int32_t repeats,
          const UnaryRepeatParams &params, At at = At::here()) {
    vector_detail::check_mode<D, S>({"Cast", "mode", at}, mode);
    vector_detail::apply(
        "Cast", at, vector_detail::repeated({"Cast", "mask", at}, mask, repeats, std::max(sizeof(D), sizeof(S))),
        [mode](S a) { return vector_detail::converted<D>(a, mode); },
        vector_detail::Operand<D>{dst, "dst", params.dstBlkStride, params.dstRepStride},
        vector_detail::Operand<S>{src, "src", params.srcBlkStride, params.srcRepStride});
}

template <class T, class U>
void Compare(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE mode,
             uint32_t count, At at = At::here()) {
    static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");
    vector_detail::with_comparison(mode, [&](auto holds) {
        const T *a = src0.data(), *b = src1.data();
        vector_detail::compare<T>("Compare", at, dst, count, [=](uint32_t index) { return holds(a[index], b[index]); },
                                  {vector_detail::Operand<T>{src0, "src0"}, vector_detail::Operand<T>{src1, "src1"}});
    });
}
template <class T, class U>
void CompareScalar(const LocalTensor<U> &dst, const LocalTensor<T> &src0, std::common_type_t<T> src1, CMPMODE mode,
                   uint32_t count, At at = At::here()) {
    static_assert(vector_detail::is_computable<T>, "cast bfloat16_t to float first");
    vector_detail::with_comparison(mode, [&](auto holds) {
        const T *a = src0.data();
        vector_detail::compare<T>("CompareScalar", at, dst, count,
                                  [=](uint32_t index) { return holds(a[index], src1); },
                                  {vector_detail::Operand<T>{src0, "src0"}});
    });
}

namespace vector_detail {
template <class T, class U, class F>
void select(At at, const LocalTensor<T> &dst, const LocalTensor<U> &mask, const LocalTensor<T> &src0, SELMODE mode,
            uint32_t count, F other) {
    const Use use{"Select", "selMask", at};
    if (mode != SELMODE::VSEL_CMPMASK_SPR && current->used > ascend_host::UB_BYTES - ascend_host::SELECT_BYTES)
        current->fail(use, "range",
                      text("the last ", ascend_host::SELECT_BYTES, " bytes of the unified buffer left to it"),
                      text(current->used, " bytes in use"));
    const uint32_t bytes = (count + 7) / 8;
    mask.check_aligned(use, bytes);
    const Lanes lanes = counted({"Select", "count", at}, count);
    // The mask is read in the same operation, so at the time that `apply` begins.
    current->access(use, PIPE_V, current->clock[PIPE_V] + 1, mask.address, bytes, false);
    const uint8_t *bits = current->ub.data() + mask.address;
    uint32_t index = 0;
    apply(
        "Select", at, lanes,
        [&](T a) {
            const bool is_first = bits[index / 8] >> (index % 8) & 1;
            const T result = is_first ? a : other(index);
            ++index;
            return result;
        },
        Operand<T>{dst, "dst"}, Operand<T>{src0, "src0"});
}
}  // namespace vector_detail

// Where the mask has a bit, src0; else src1.
template <class T, class U>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &mask, const LocalTensor<T> &src0,
            std::common_type_t<T> src1, SELMODE mode, uint32_t count, At at = At::here()) {
    if (mode != SELMODE::VSEL_TENSOR_SCALAR_MODE)
        current->fail({"Select", "mode", at}, "mask", "VSEL_TENSOR_SCALAR_MODE", text(int(mode)));
    vector_detail::select(at, dst, mask, src0, mode, count, [src1](uint32_t) { return src1; });
}
template <class T, class U>
void Select(const LocalTensor<T> &dst, const LocalTensor<U> &mask, const LocalTensor<T> &src0,
            const LocalTensor<T> &src1, SELMODE mode, uint32_t count, At at = At::here()) {
    const uint32_t most =
        mode == SELMODE::VSEL_CMPMASK_SPR ? ascend_host::REPEAT / uint32_t(sizeof(T)) : ascend_host::UB_BYTES;
    if (mode == SELMODE::VSEL_TENSOR_SCALAR_MODE || count > most)
        current->fail({"Select", "mode", at}, "mask", text("a mode of two tensors, with at most ", most, " elements"),
                      text(int(mode), " with ", count));
    src1.check_aligned({"Select", "src1", at}, count * sizeof(T));
    current->access({"Select", "src1", at}, PIPE_V, current->clock[PIPE_V] + 1, src1.address, count * sizeof(T), false);
    vector_detail::select(at, dst, mask, src0, mode, count, [&src1](uint32_t index) { return src1.data()[index]; });
}

// Packs the elements whose bit is set; `kept` is how many.
template <class T, class U>
void GatherMask(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<U> &pattern, bool is_counted,
                uint32_t mask, const GatherMaskParams &params, uint64_t &kept, At at = At::here()) {
    static_assert(sizeof(T) == sizeof(U) && std::is_unsigned_v<U>,
                  "the pattern is uint16_t or uint32_t, as wide as the elements");
    const Use to{"GatherMask", "dst", at}, from{"GatherMask", "src0", at}, by{"GatherMask", "src1Pattern", at};
    const uint32_t each = is_counted ? mask : ascend_host::REPEAT / uint32_t(sizeof(T)),
                   elements = each * params.repeatTimes;
    if (params.repeatTimes > 1 &&
        (params.src0BlockStride != 1 || each * sizeof(T) != params.src0RepeatStride * ascend_host::BLOCK ||
         each != params.src1RepeatStride * ascend_host::BLOCK * 8))
        current->fail(to, "mask", "one repeat, or repeats that follow one another", "strides that leave gaps");
    src.check_aligned(from, elements * sizeof(T)), pattern.check_aligned(by, (elements + 7) / 8);
    const uint32_t time = current->begin(to, PIPE_V, (elements * sizeof(T) + 255) / 256);
    current->access(from, PIPE_V, time, src.address, elements * uint32_t(sizeof(T)), false);
    current->access(by, PIPE_V, time, pattern.address, (elements + 7) / 8, false);
    const uint8_t *bits = current->ub.data() + pattern.address;
    std::vector<T> packed;
    for (uint32_t index = 0; index < elements; ++index) {
        if (index % 8 == 0 && bits[index / 8] == 0) index += 7;
        else if (bits[index / 8] >> (index % 8) & 1) packed.push_back(src.data()[index]);
    }
    kept = packed.size();
    const auto bytes = uint32_t(packed.size() * sizeof(T));
    // It may write whole repeats.
    dst.check_aligned(to, elements * sizeof(T));
    if (dst.address < src.address + elements * sizeof(T) && src.address < dst.address + elements * sizeof(T))
        current->fail(to, "range", "a place apart from src0", "an overlap");
    current->access(to, PIPE_V, time, dst.address, elements * uint32_t(sizeof(T)), true);
    current->scramble(dst.address, elements * uint32_t(sizeof(T)));
    std::copy(packed.begin(), packed.end(), dst.data());
    std::fill_n(current->written.begin() + dst.address, bytes, 1);
    // The count is read from a register once the vector unit is done.
    current->join(PIPE_S, current->signal(PIPE_V));
}

}  // namespace AscendC

// What the model must name, and what it must let pass: a small kernel for each of its rules.
//
// Ends with 0 and a line with their number, or prints each case that went another way and ends with 1.
#include <cstdio>
#include <functional>

#include "kernel_operator.h"

using namespace AscendC;
using namespace ascend_host;

namespace {

constexpr uint32_t SIZE = 1024;
alignas(64) float input[SIZE], output[SIZE];

// What the cases use; made anew for each core.
struct Parts {
    TPipe pipe;
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    TBuf<TPosition::VECCALC> buffer;
    GlobalTensor<float> x, y;

    Parts() {
        x.SetGlobalBuffer(input, SIZE);
        y.SetGlobalBuffer(output, SIZE);
        pipe.InitBuffer(in, 2, 1024);
        pipe.InitBuffer(out, 2, 1024);
        pipe.InitBuffer(buffer, 2048);
    }
    LocalTensor<float> work() { return buffer.Get<float>(); }
    LocalTensor<float> filled(uint32_t count = 256) {
        Duplicate(work(), 1.0f, 512);
        PipeBarrier<PIPE_V>();
        LocalTensor<float> tile = out.AllocTensor<float>();
        Duplicate(tile, 2.0f, count);
        out.EnQue(tile);
        return out.DeQue<float>();
    }
    LocalTensor<float> loaded() {
        LocalTensor<float> tile = in.AllocTensor<float>();
        DataCopy(tile, x, 256);
        in.EnQue(tile);
        return in.DeQue<float>();
    }
};

struct Case {
    const char *name;
    // What the finding must say; empty if there must be none.
    const char *says;
    int cores;
    std::function<void(Parts &)> body;
};

const DataCopyPadExtParams<float> NO_PADDING{false, 0, 0, 0.0f};

const Case CASES[] = {
    {"a kernel that is right", "", 3,
     [](Parts &p) {
         auto in = p.loaded();
         auto out = p.out.AllocTensor<float>();
         Muls(out, in, 2.0f, 256);
         p.in.FreeTensor(in);
         p.out.EnQue(out);
         out = p.out.DeQue<float>();
         DataCopy(p.y[GetBlockIdx() * 256], out, 256);
         p.out.FreeTensor(out);
     }},
    {"a length that is no multiple of a block",
     "DataCopy dst: [alignment] expected a length that is a multiple of 32 bytes and not 0, found 28", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopy(tile, p.x, 7);
     }},
    {"a local address between blocks",
     "DataCopy dst: [alignment] expected a local address that is a multiple of 32, found 4 bytes beyond one", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopy(tile[1], p.x, 8);
     }},
    {"a vector operand between blocks", "Adds src: [alignment]", 1,
     [](Parts &p) {
         Duplicate(p.work(), 0.0f, 64);
         PipeBarrier<PIPE_V>();
         Adds(p.work(), p.work()[4], 1.0f, 8);
     }},
    {"a comparison of part of a repeat", "CompareScalar count: [alignment] expected a multiple of 256 bytes, found 32",
     1,
     [](Parts &p) {
         Duplicate(p.work(), 0.0f, 64);
         PipeBarrier<PIPE_V>();
         CompareScalar(p.work()[64].ReinterpretCast<uint8_t>(), p.work(), 0.0f, CMPMODE::GT, 8);
     }},
    {"a copy beyond the buffer", "DataCopy dst: [range] expected bytes 0 to 1024 of its buffer, found bytes 0 to 2048",
     1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopy(tile, p.x, 512);
     }},
    {"a read beyond the input", "[range]", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopy(tile, p.x[SIZE - 8], 16);
     }},
    {"global memory that was not given", "[range] expected bytes 0 to 4096 of `x`, found bytes 4096 to 4128", 1,
     [](Parts &p) {
         p.x.SetGlobalBuffer(input);
         auto tile = p.in.AllocTensor<float>();
         DataCopy(tile, p.x[SIZE], 8);
     }},
    {"a write to the input", "[range] expected memory that the kernel may write, found `x`", 1,
     [](Parts &p) {
         auto tile = p.filled();
         DataCopy(p.x, tile, 256);
     }},
    {"more than the unified buffer",
     "InitBuffer: [range] expected at most 196608 bytes of unified buffer, found 200704", 1,
     [](Parts &p) {
         TBuf<> more;
         p.pipe.InitBuffer(more, 194560);
     }},
    {"too many buffers at one position",
     "InitBuffer: [queue] expected at most 8 buffers of queues at one position, found 9", 1,
     [](Parts &p) {
         TQue<QuePosition::VECIN, 7> more;
         p.pipe.InitBuffer(more, 7, 32);
     }},
    {"a selection without room for the call",
     "Select selMask: [range] expected the last 8192 bytes of the unified buffer left to it", 1,
     [](Parts &p) {
         TBuf<> more;
         p.pipe.InitBuffer(more, 184320);
         Duplicate(p.work(), 0.0f, 512);
         PipeBarrier<PIPE_V>();
         Select(p.work(), p.work()[256].ReinterpretCast<uint8_t>(), p.work(), 1.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE,
                64);
     }},
    {"rows whose pitch in the unified buffer is in blocks", "", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopyPad(tile, p.x, DataCopyExtParams{3, 20, 12, 1, 0}, NO_PADDING);
         p.in.EnQue(tile);
         tile = p.in.DeQue<float>();
         // A row of 20 bytes takes a block, and one is left out: rows begin 64 bytes apart here, 32 in global memory.
         for (uint32_t row = 0; row < 3; ++row) Muls(p.work()[row * 8], tile[row * 16], 1.0f, 5);
         SetFlag<HardEvent::V_S>(EVENT_ID0);
         WaitFlag<HardEvent::V_S>(EVENT_ID0);
         for (uint32_t row = 0; row < 3; ++row)
             if (p.work().GetValue(row * 8 + 4) != float(row * 8 + 4))
                 throw std::runtime_error("row from the wrong place");
         p.in.FreeTensor(tile);
     }},
    {"what a row of a padded copy leaves",
     "Muls src: [unwritten] expected 32 bytes that were written, found byte 20 never was", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopyPad(tile, p.x, DataCopyExtParams{1, 20, 0, 0, 0}, NO_PADDING);
         p.in.EnQue(tile);
         tile = p.in.DeQue<float>();
         Muls(p.work(), tile, 1.0f, 8);
     }},
    {"padding makes it defined", "", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopyPad(tile, p.x, DataCopyExtParams{1, 20, 0, 0, 0}, DataCopyPadExtParams<float>{true, 0, 3, 9.0f});
         p.in.EnQue(tile);
         tile = p.in.DeQue<float>();
         Muls(p.work(), tile, 1.0f, 8);
         p.in.FreeTensor(tile);
     }},
    {"a read of what never was written", "Adds src: [unwritten]", 1,
     [](Parts &p) { Adds(p.work(), p.work(), 1.0f, 64); }},
    {"a read of output that never was written",
     "[unwritten] expected global memory that was written, found byte 0 of `y`", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         DataCopy(tile, p.y, 8);
     }},
    {"all buffers in use", "AllocTensor: [queue] expected a free buffer, found all 2 in use", 1,
     [](Parts &p) {
         for (int count = 0; count < 3; ++count) p.in.AllocTensor<float>();
     }},
    {"nothing in the queue", "DeQue: [queue] expected a tensor in the queue, found none", 1,
     [](Parts &p) { p.in.DeQue<float>(); }},
    {"a tensor of another queue", "EnQue: [queue] expected a tensor of this queue", 1,
     [](Parts &p) { p.out.EnQue(p.in.AllocTensor<float>()); }},
    {"twice in the queue", "EnQue: [queue] expected an allocated tensor, found one that is queued", 1,
     [](Parts &p) {
         auto tile = p.in.AllocTensor<float>();
         p.in.EnQue(tile);
         p.in.EnQue(tile);
     }},
    {"beyond the queue's depth", "EnQue: [queue] expected at most 1 in the queue, found one more", 1,
     [](Parts &p) {
         TQue<QuePosition::VECIN, 1> shallow;
         p.pipe.InitBuffer(shallow, 2, 32);
         shallow.EnQue(shallow.AllocTensor<float>());
         shallow.EnQue(shallow.AllocTensor<float>());
     }},
    {"freed twice", "FreeTensor: [queue] expected a tensor that is allocated or dequeued, found one that is free", 1,
     [](Parts &p) {
         auto tile = p.loaded();
         p.in.FreeTensor(tile);
         p.in.FreeTensor(tile);
     }},
    {"used after it was freed",
     "Muls src: [queue] expected a buffer that is allocated or dequeued, found one that is free", 1,
     [](Parts &p) {
         auto tile = p.loaded();
         p.in.FreeTensor(tile);
         Muls(p.work(), tile, 1.0f, 8);
     }},
    {"used after another took it", "found one that was freed since", 1,
     [](Parts &p) {
         auto tile = p.loaded();
         p.in.FreeTensor(tile);
         p.in.AllocTensor<float>(), p.in.AllocTensor<float>();
         Muls(p.work(), tile, 1.0f, 8);
     }},
    {"in use at the end",
     "FreeTensor of a queue: [queue] expected every buffer free at the end, found one that is dequeued", 1,
     [](Parts &p) { p.loaded(); }},
    {"copied in and computed with nothing between",
     "Muls src: [order] expected a queue, or SetFlag and WaitFlag of MTE2_V, between, found pipe V touches what pipe "
     "MTE2 wrote",
     1,
     [](Parts &p) {
         DataCopy(p.work(), p.x, 64);
         Muls(p.work()[64], p.work(), 1.0f, 64);
     }},
    {"flags order pipes", "", 1,
     [](Parts &p) {
         DataCopy(p.work(), p.x, 64);
         SetFlag<HardEvent::MTE2_V>(EVENT_ID3);
         WaitFlag<HardEvent::MTE2_V>(EVENT_ID3);
         Muls(p.work()[64], p.work(), 1.0f, 64);
         SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
         WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
         DataCopy(p.y, p.work()[64], 64);
     }},
    {"a barrier of all pipes orders them", "", 1,
     [](Parts &p) {
         DataCopy(p.work(), p.x, 64);
         PipeBarrier<PIPE_ALL>();
         Muls(p.work()[64], p.work(), 1.0f, 64);
     }},
    {"overwritten while it is copied out",
     "DataCopy dst: [order] expected a queue, or SetFlag and WaitFlag of MTE3_MTE2, between, found pipe MTE2 touches "
     "what pipe MTE3 reads",
     1,
     [](Parts &p) {
         auto tile = p.filled();
         SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
         WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
         DataCopy(p.y, tile, 64);
         DataCopy(tile, p.x, 64);
     }},
    {"copied out and read back", "found pipe MTE2 touches what pipe MTE3 wrote to global memory", 1,
     [](Parts &p) {
         auto tile = p.filled();
         DataCopy(p.y, tile, 64);
         DataCopy(p.work()[256], p.y, 64);
     }},
    {"vector calls on the same place",
     "Muls src: [order] expected PipeBarrier<PIPE_V> between, found pipe V touches what pipe V wrote", 1,
     [](Parts &p) {
         Duplicate(p.work(), 1.0f, 64);
         Muls(p.work()[64], p.work(), 1.0f, 64);
     }},
    {"a scalar read of what a vector call wrote",
     "GetValue of the tensor: [order] expected a queue, or SetFlag and WaitFlag of V_S, between", 1,
     [](Parts &p) {
         Duplicate(p.work(), 1.0f, 64);
         p.work().GetValue(0);
     }},
    {"a vector call on what a scalar wrote",
     "Muls src: [order] expected a queue, or SetFlag and WaitFlag of S_V, between", 1,
     [](Parts &p) {
         for (uint32_t i = 0; i < 8; ++i) p.work().SetValue(i, 1.0f);
         Muls(p.work()[64], p.work(), 1.0f, 8);
     }},
    {"a flag that nobody waits for", "SetFlag: [flag] expected a WaitFlag for every SetFlag, found none for event 2", 1,
     [](Parts &) { SetFlag<HardEvent::V_S>(EVENT_ID2); }},
    {"a flag that nobody sets",
     "WaitFlag: [flag] expected a SetFlag of event 1 before, found none: a card waits for ever", 1,
     [](Parts &) { WaitFlag<HardEvent::V_S>(EVENT_ID1); }},
    {"a flag that is set twice", "SetFlag: [flag] expected a WaitFlag before the next SetFlag, found event 0 set twice",
     1,
     [](Parts &) {
         SetFlag<HardEvent::V_S>(EVENT_ID0);
         SetFlag<HardEvent::V_S>(EVENT_ID0);
     }},
    {"an event that is not there", "[flag] expected an event 0 to 7, found 8", 1,
     [](Parts &) { SetFlag<HardEvent::V_S>(8); }},
    {"a mask wider than a repeat", "Add mask: [mask] expected 1 to 64 elements a repeat, found 65", 1,
     [](Parts &p) {
         p.filled();
         Add(p.work(), p.work(), p.work(), 65, 1, BinaryRepeatParams{});
     }},
    {"an empty mask", "Add mask: [mask] expected at least a bit of the mask, found none", 1,
     [](Parts &p) {
         p.filled();
         const uint64_t mask[2] = {0, 0};
         Add(p.work(), p.work(), p.work(), mask, 1, BinaryRepeatParams{});
     }},
    {"more repeats than a call has", "Add mask: [mask] expected 0 to 255 repeats, found 256", 1,
     [](Parts &p) {
         p.filled();
         Add(p.work(), p.work(), p.work(), 64, 256, BinaryRepeatParams{});
     }},
    {"a stride out of the buffer", "Add src1: [range]", 1,
     [](Parts &p) {
         p.filled();
         PipeBarrier<PIPE_V>();
         Add(p.work(), p.work(), p.work(), 64, 2, BinaryRepeatParams{1, 1, 1, 8, 8, 64});
     }},
    {"a partial overlap", "[range] expected the same place as src or one apart from it, found an overlap", 1,
     [](Parts &p) {
         p.filled();
         PipeBarrier<PIPE_V>();
         Adds(p.work()[8], p.work(), 1.0f, 64);
     }},
    {"a cast that needs no rounding and names one", "Cast mode: [mask] expected CAST_NONE, as the cast is exact", 1,
     [](Parts &p) {
         p.filled();
         PipeBarrier<PIPE_V>();
         Cast(p.work()[256], p.work().ReinterpretCast<half>(), RoundMode::CAST_RINT, 8);
     }},
    {"a cast that must round and names none", "Cast mode: [mask] expected a mode that rounds, found CAST_NONE", 1,
     [](Parts &p) {
         p.filled();
         PipeBarrier<PIPE_V>();
         Cast(p.work()[256].ReinterpretCast<int32_t>(), p.work(), RoundMode::CAST_NONE, 8);
     }},
    {"two cores write one block",
     "[cores] expected SyncAll between, or blocks of 32 bytes that one core alone writes, found the 32 bytes at 0 of "
     "`y`",
     2,
     [](Parts &p) {
         auto tile = p.filled();
         DataCopyPad(p.y[GetBlockIdx() * 4], tile, DataCopyExtParams{1, 16, 0, 0, 0});
         p.out.FreeTensor(tile);
     }},
    {"two cores add to one block", "", 2,
     [](Parts &p) {
         auto tile = p.filled();
         if (GetBlockIdx() == 0) DataCopy(p.y, tile, 256);
         SyncAll();
         SetAtomicAdd<float>();
         DataCopy(p.y, tile, 256);
         SetAtomicNone();
         SyncAll();
         p.out.FreeTensor(tile);
         if (output[0] != 6) throw std::runtime_error("2 + 2 + 2 is 6");
     }},
    {"atomics left on", "SetAtomic: [flag] expected SetAtomicNone before the end, found none", 1,
     [](Parts &) { SetAtomicAdd<float>(); }},
    {"a core reads what another writes", "[cores]", 2,
     [](Parts &p) {
         auto tile = p.filled();
         if (GetBlockIdx() == 0) DataCopy(p.y, tile, 64);
         SyncAll();
         if (GetBlockIdx() == 0) DataCopy(p.y, tile, 64);
         else DataCopy(p.work(), p.y, 64);
         p.out.FreeTensor(tile);
     }},
    {"a core that does not come", "SyncAll: [flag] expected all 3 cores, found", 3,
     [](Parts &) {
         if (GetBlockIdx() != 1) SyncAll();
     }},
    {"a scalar write that stays in the cache",
     "SetValue of global memory: [order] expected DataCacheCleanAndInvalid before the end", 1,
     [](Parts &p) { p.y.SetValue(0, 1.0f); }},
    {"a scalar write that is cleaned", "", 1,
     [](Parts &p) {
         p.y.SetValue(0, 1.0f);
         DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(p.y);
     }},
    {"a scalar read of what a copy wrote",
     "GetValue of global memory: [order] expected DataCacheCleanAndInvalid after the write", 1,
     [](Parts &p) {
         auto tile = p.filled();
         DataCopy(p.y, tile, 64);
         SetFlag<HardEvent::MTE3_S>(EVENT_ID0);
         WaitFlag<HardEvent::MTE3_S>(EVENT_ID0);
         p.y.GetValue(0);
     }},
    {"no work for a reduction", "ReduceMax sharedTmpBuffer: [range]", 1,
     [](Parts &p) {
         p.filled();
         PipeBarrier<PIPE_V>();
         ReduceMax(p.work()[256], p.work(), p.work()[504], 200, true);
     }},
    {"a reduction of nothing", "ReduceSum count: [range] expected at least an element, found 0", 1,
     [](Parts &p) {
         p.filled();
         ReduceSum(p.work(), p.work(), p.work(), 0);
     }},
    {"a kernel that does not end", "[end] expected a kernel that ends", 1,
     [](Parts &) {
         for (;;) PipeBarrier<PIPE_V>();
     }},
};

// Rounding modes on values where they differ.
int check_rounding() {
    using vector_detail::converted;
    struct Rounding {
        RoundMode mode;
        int32_t of_minus_2_5, of_1_5;
        float bfloat16;
    };
    // 1 + 3 / 256 lies halfway between two values of bfloat16_t, 1 + 1 / 128 and 1 + 2 / 128.
    const float lower = 1 + 1.0f / 128, upper = 1 + 2.0f / 128, middle = 1 + 3.0f / 256;
    const Rounding table[] = {{RoundMode::CAST_RINT, -2, 2, upper},
                              {RoundMode::CAST_FLOOR, -3, 1, lower},
                              {RoundMode::CAST_CEIL, -2, 2, upper},
                              {RoundMode::CAST_ROUND, -3, 2, upper},
                              {RoundMode::CAST_TRUNC, -2, 1, lower}};
    int bad = 0;
    for (const Rounding &row : table) {
        const bool is_right = converted<int32_t>(-2.5f, row.mode) == row.of_minus_2_5 &&
                              converted<int32_t>(1.5f, row.mode) == row.of_1_5 &&
                              ToFloat(converted<bfloat16_t>(middle, row.mode)) == row.bfloat16;
        if (!is_right) std::printf("rounding mode %d: wrong\n", int(row.mode)), ++bad;
    }
    return bad;
}

}  // namespace

int main() {
    int bad = check_rounding();
    for (uint32_t index = 0; index < SIZE; ++index) input[index] = float(index);
    for (const Case &one : CASES) {
        std::string said;
        try {
            // Not every case writes all of y, which is a fault of its own in a real kernel.
            Launch launch("rules", {{"x", reinterpret_cast<uint8_t *>(input), sizeof input, Access::Read},
                                    {"y", reinterpret_cast<uint8_t *>(output), sizeof output, Access::Write}});
            launch.run(one.cores, 7, false, [&] {
                Parts parts;
                one.body(parts);
            });
        } catch (const std::exception &fault) {
            said = fault.what();
        }
        if (said.find("which it overwrites") != std::string::npos) said.clear();
        const bool is_right = *one.says == 0 ? said.empty() : said.find(one.says) != std::string::npos;
        if (!is_right) std::printf("%s: expected \"%s\", found \"%s\"\n", one.name, one.says, said.c_str()), ++bad;
    }
    if (bad == 0) std::printf("rules: %zu cases\n", std::size(CASES));
    return bad != 0;
}

// The Ascend C operator API on a host: a kernel that includes this header instead of CANN's runs under a checking
// model.
//
// types.h     element types, enumerations, parameter structures
// core.h      one core: unified buffer, pipes and their order, cycles, findings
// launch.h    global memory, and all cores of a launch, interleaved by a seed
// tensor.h    LocalTensor, GlobalTensor, TPipe, TQue, TBuf
// bare.h      loads and stores through `__gm__` pointers
// copy.h      DataCopy, DataCopyPad, atomics, SetFlag, WaitFlag, PipeBarrier, SyncAll
// vector.h    elementwise vector calls, Cast, Compare, Select, GatherMask
// masked.h    calls with the mask of a register, and with repeats where a count is usual
// reduce.h    reductions
// gather.h    Gather, Sort32, MrgSort
// library.h   what a library of kernels exports
// math.h      high-level calls of one operand, BroadCast
// tiling.h    tiling data, tiling keys, workspace
// print.h     printf, DumpTensor, assertions
//
// Not modelled, and refused by the compiler because it is not declared: cube units, AICPU, calls of Ascend 950 alone.
#pragma once

#include "bare.h"
#include "elementwise.h"
#include "print.h"
#include "scalar.h"

// Which cores a kernel needs is said to the card's compiler alone.
#define KERNEL_TASK_TYPE_DEFAULT(type)
#define KERNEL_TASK_TYPE(key, type)

using AscendC::At;

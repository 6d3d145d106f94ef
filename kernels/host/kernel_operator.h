// The Ascend C operator API on a host: a kernel that includes this header instead of CANN's runs under a checking
// model.
//
// types.h     element types, enumerations, parameter structures
// core.h      one core: unified buffer, pipes and their order, cycles, findings
// launch.h    global memory, and all cores of a launch, interleaved by a seed
// tensor.h    LocalTensor, GlobalTensor, TPipe, TQue, TBuf
// copy.h      DataCopy, DataCopyPad, atomics, SetFlag, WaitFlag, PipeBarrier, SyncAll
// vector.h    elementwise vector calls, Cast, Compare, Select, GatherMask
// reduce.h    reductions
//
// Not modelled, and refused by the compiler because it is not declared: cube units, AICPU, everything after CANN 8.x.
#pragma once

#include "reduce.h"

// Which cores a kernel needs is said to the card's compiler alone.
#define KERNEL_TASK_TYPE_DEFAULT(type)
#define KERNEL_TASK_TYPE(key, type)

using AscendC::At;

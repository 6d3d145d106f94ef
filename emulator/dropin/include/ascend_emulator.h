/*
 * What a C program can ask of the emulator and of no CANN: host functions in the place of compiled kernels.
 *
 * The declarations are weak, so that one program runs on cards and on the emulator: on a card's libraries the function
 * is NULL.
 *
 *     if (ascend_emulator_register_kernel) {
 *         ascend_emulator_register_kernel("add_custom", add_custom, NULL);
 *     }
 */
#ifndef ASCEND_EMULATOR_H
#define ASCEND_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASCEND_EMULATOR_WEAK __attribute__((weak))

/** One launch, valid until the function it is given to returns. */
typedef struct ascend_emulator_call ascend_emulator_call;

/** A kernel: 0 says that it ran, anything else fails its stream with ACL_ERROR_RT_AICORE_EXCEPTION and that number. */
typedef int (*ascend_emulator_kernel)(const ascend_emulator_call *call, void *user);

/**
 * From now on the kernel `name`, looked up by aclrtBinaryGetFunction in any binary, runs as `kernel`, with `user` as its
 * second argument, on a thread of the emulator; `kernel` may run on several threads at once. The same name again
 * replaces it. Returns 0 or an aclError, whose text aclGetRecentErrMsg has.
 */
ASCEND_EMULATOR_WEAK int ascend_emulator_register_kernel(const char *name, ascend_emulator_kernel kernel, void *user);

/** On how many cores it was launched. */
ASCEND_EMULATOR_WEAK uint32_t ascend_emulator_call_blocks(const ascend_emulator_call *call);

/** How many parameters it was given. */
ASCEND_EMULATOR_WEAK size_t ascend_emulator_call_params(const ascend_emulator_call *call);

/**
 * Copies `bytes` bytes of a parameter: its value, or for a place holder the data behind it. Returns 0, or -1 when it has
 * another size or there is none.
 */
ASCEND_EMULATOR_WEAK int ascend_emulator_call_param(
    const ascend_emulator_call *call, size_t index, void *into, size_t bytes);

/**
 * Copies bytes out of, or into, the device memory that a parameter points to, from byte `offset` of it on. Returns 0, or
 * -1 when the parameter is no pointer or that memory is not of this card.
 */
ASCEND_EMULATOR_WEAK int ascend_emulator_call_read(
    const ascend_emulator_call *call, size_t index, size_t offset, void *into, size_t bytes);
ASCEND_EMULATOR_WEAK int ascend_emulator_call_write(
    const ascend_emulator_call *call, size_t index, size_t offset, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif

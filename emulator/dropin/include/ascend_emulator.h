/*
 * Functions of the emulator that CANN does not have: host functions that replace compiled kernels.
 *
 * The declarations are weak, so one program runs on cards and on the emulator. With CANN's libraries the functions are
 * NULL.
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

/** One launch, valid until the kernel function returns. */
typedef struct ascend_emulator_call ascend_emulator_call;

/** A kernel. Returns 0 on success; another number fails the stream; the message names the number. */
typedef int (*ascend_emulator_kernel)(const ascend_emulator_call *call, void *user);

/**
 * Registers `kernel` as the implementation of the kernel `name`, for aclrtBinaryGetFunction in any binary. It receives
 * `user` as its second argument and runs on threads of the emulator, possibly on several at once. Registering a name
 * again replaces the kernel. Returns 0 or an aclError; aclGetRecentErrMsg returns the text.
 */
ASCEND_EMULATOR_WEAK int ascend_emulator_register_kernel(const char *name, ascend_emulator_kernel kernel, void *user);

/** Returns the number of cores of the launch. */
ASCEND_EMULATOR_WEAK uint32_t ascend_emulator_call_blocks(const ascend_emulator_call *call);

/** Returns the number of parameters of the launch. */
ASCEND_EMULATOR_WEAK size_t ascend_emulator_call_params(const ascend_emulator_call *call);

/**
 * Copies `bytes` bytes of a parameter: its value, or the data behind a place holder. Returns 0, or -1 if the parameter
 * does not exist or has another size.
 */
ASCEND_EMULATOR_WEAK int ascend_emulator_call_param(
    const ascend_emulator_call *call, size_t index, void *into, size_t bytes);

/**
 * Copies bytes from or to the device memory that a parameter points to, starting at byte `offset`. Returns 0, or -1 if
 * the parameter is not a pointer or the memory is not on this card.
 */
ASCEND_EMULATOR_WEAK int ascend_emulator_call_read(
    const ascend_emulator_call *call, size_t index, size_t offset, void *into, size_t bytes);
ASCEND_EMULATOR_WEAK int ascend_emulator_call_write(
    const ascend_emulator_call *call, size_t index, size_t offset, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif

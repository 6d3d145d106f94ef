/*
 * Shared code of the C programs: a failed call ends the program with the library's message; a rank's card.
 * Needs only the headers of sys/include, or those of a toolkit.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl.h"
#include "dropin/acl.h"
#include "dropin/nnopbase.h"
#include "dropin/opapi.h"
#include "hccl.h"

static inline void check(int code, const char *call, int line) {
    if (code != 0) {
        const char *message = aclGetRecentErrMsg();
        fprintf(stderr, "line %d: %s gave %d: %s\n", line, call, code, message ? message : "no message");
        exit(2);
    }
}
#define CHECK(call) check((int)(call), #call, __LINE__)

#define EXPECT(condition)                                                  \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
            exit(3);                                                       \
        }                                                                  \
    } while (0)

/** Allocates device memory filled with one value. */
static inline float *filled(size_t count, float value) {
    void *device = NULL;
    float *host = (float *)malloc(count * sizeof(float));
    EXPECT(host != NULL);
    for (size_t i = 0; i < count; i++) {
        host[i] = value;
    }
    CHECK(aclrtMalloc(&device, count * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(device, count * sizeof(float), host, count * sizeof(float), ACL_MEMCPY_HOST_TO_DEVICE));
    free(host);
    return (float *)device;
}

/** Ends the program unless all elements have this value. */
static inline void expect_filled(const float *device, size_t count, float value) {
    float *host = (float *)malloc(count * sizeof(float));
    EXPECT(host != NULL);
    CHECK(aclrtMemcpy(host, count * sizeof(float), device, count * sizeof(float), ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t i = 0; i < count; i++) {
        if (host[i] != value) {
            fprintf(stderr, "element %zu: expected %g, found %g\n", i, (double)value, (double)host[i]);
            exit(4);
        }
    }
    free(host);
}

/** Runs one rank, from opening the device to a sum over all ranks. Rank r contributes r + 1. */
static inline void all_reduce_on(int device, int rank, int world, const HcclRootInfo *root) {
    enum { COUNT = 100003 };
    HcclComm comm = NULL;
    aclrtStream stream = NULL;
    uint32_t size = 0;
    CHECK(aclrtSetDevice(device));
    CHECK(aclrtCreateStream(&stream));
    CHECK(HcclCommInitRootInfo((uint32_t)world, root, (uint32_t)rank, &comm));
    CHECK(HcclGetRankSize(comm, &size));
    EXPECT((int)size == world);
    float *send = filled(COUNT, (float)(rank + 1));
    float *recv = filled(COUNT, 0.0F);
    CHECK(HcclAllReduce(send, recv, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    CHECK(aclrtSynchronizeStream(stream));
    expect_filled(recv, COUNT, (float)(world * (world + 1) / 2));
    /* The value of the last rank reaches all ranks. */
    CHECK(HcclBroadcast(send, COUNT, HCCL_DATA_TYPE_FP32, (uint32_t)(world - 1), comm, stream));
    CHECK(aclrtSynchronizeStream(stream));
    expect_filled(send, COUNT, (float)world);
    CHECK(HcclCommDestroy(comm));
    CHECK(aclrtFree(send));
    CHECK(aclrtFree(recv));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(device));
}

#endif

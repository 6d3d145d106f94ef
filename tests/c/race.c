/* Two streams write and read the same bytes without order; with an argument, an event orders them. */
#include "check.h"

int main(int count, char **words) {
    enum { BYTES = 4096 };
    aclrtStream writer = NULL;
    aclrtStream reader = NULL;
    aclrtEvent written = NULL;
    void *shared = NULL;
    void *copy = NULL;
    (void)words;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&writer));
    CHECK(aclrtCreateStream(&reader));
    CHECK(aclrtCreateEvent(&written));
    CHECK(aclrtMalloc(&shared, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&copy, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemsetAsync(shared, BYTES, 1, BYTES, writer));
    if (count > 1) {
        CHECK(aclrtRecordEvent(written, writer));
        CHECK(aclrtStreamWaitEvent(reader, written));
    }
    (void)aclrtMemcpyAsync(copy, BYTES, shared, BYTES, ACL_MEMCPY_DEVICE_TO_DEVICE, reader);
    (void)aclrtSynchronizeStream(reader);
    (void)aclrtSynchronizeStream(writer);
    (void)aclrtFree(shared);
    (void)aclrtFree(copy);
    (void)aclrtDestroyEvent(written);
    (void)aclrtDestroyStream(reader);
    (void)aclrtDestroyStream(writer);
    (void)aclrtResetDevice(0);
    (void)aclFinalize();
    printf("end of main\n");
    return 0;
}

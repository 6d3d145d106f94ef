/* Launches a kernel that was compiled for this host in the same way as one compiled for a card. */
#include "check.h"

enum { COUNT = 16 * 8 * 10 };

int main(int argc, char **argv) {
    uint32_t count = COUNT;
    aclrtBinHandle binary = NULL;
    aclrtFuncHandle function = NULL;
    aclrtArgsHandle arguments = NULL;
    aclrtParamHandle parameter = NULL;
    aclrtStream stream = NULL;
    void *memory[3] = {NULL, NULL, NULL};
    uint16_t host[COUNT];
    EXPECT(argc == 2);
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtBinaryLoadFromFile(argv[1], NULL, &binary));
    CHECK(aclrtBinaryGetFunction(binary, "add_custom", &function));
    CHECK(aclrtKernelArgsInit(function, &arguments));
    for (int i = 0; i < 3; i++) {
        CHECK(aclrtMalloc(&memory[i], sizeof(host), ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtKernelArgsAppend(arguments, &memory[i], sizeof(memory[i]), &parameter));
    }
    CHECK(aclrtKernelArgsAppend(arguments, &count, sizeof(count), &parameter));
    CHECK(aclrtKernelArgsFinalize(arguments));
    /* 1.5 and 0.25 in half precision. */
    for (int i = 0; i < COUNT; i++) {
        host[i] = 0x3e00;
    }
    CHECK(aclrtMemcpy(memory[0], sizeof(host), host, sizeof(host), ACL_MEMCPY_HOST_TO_DEVICE));
    for (int i = 0; i < COUNT; i++) {
        host[i] = 0x3400;
    }
    CHECK(aclrtMemcpy(memory[1], sizeof(host), host, sizeof(host), ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtLaunchKernelWithConfig(function, 8, stream, NULL, arguments, NULL));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(host, sizeof(host), memory[2], sizeof(host), ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(host[i] == 0x3f00);
    }
    /* With seven cores, the shards are not multiples of a block. */
    CHECK(aclrtLaunchKernelWithConfig(function, 7, stream, NULL, arguments, NULL));
    EXPECT(aclrtSynchronizeStream(stream) == ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    const char *said = aclGetRecentErrMsg();
    EXPECT(said != NULL && strstr(said, "add_custom.cpp:") != NULL);
    EXPECT(strstr(said, "[alignment] expected a length that is a multiple of 32 bytes") != NULL);
    printf("the compiled kernel ran\n");
    return 0;
}

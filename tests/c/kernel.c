/* A kernel of a compiled binary runs as a function of this program. The program would also run on a card. */
#include "ascend_emulator.h"
#include "check.h"

/** out[i] = x[i] + *user for `count` floats; parameters x, out, count. */
static int add_custom(const ascend_emulator_call *call, void *user) {
    uint64_t count = 0;
    if (ascend_emulator_call_params(call) != 3 || ascend_emulator_call_blocks(call) != 8) {
        return 1;
    }
    if (ascend_emulator_call_param(call, 2, &count, 4) == 0 || ascend_emulator_call_param(call, 3, &count, 8) == 0) {
        return 2;
    }
    if (ascend_emulator_call_param(call, 2, &count, sizeof(count)) != 0) {
        return 3;
    }
    for (size_t i = 0; i < count; i++) {
        float value = 0.0F;
        if (ascend_emulator_call_read(call, 0, i * sizeof(value), &value, sizeof(value)) != 0) {
            return 4;
        }
        value += *(const float *)user;
        if (ascend_emulator_call_write(call, 1, i * sizeof(value), &value, sizeof(value)) != 0) {
            return 5;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    enum { COUNT = 100 };
    static float addend = 2.5F;
    uint64_t count = COUNT;
    aclrtBinHandle binary = NULL;
    aclrtFuncHandle function = NULL;
    aclrtArgsHandle arguments = NULL;
    aclrtParamHandle parameter = NULL;
    aclrtStream stream = NULL;
    EXPECT(argc == 1);
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtBinaryLoadFromFile(argv[0], NULL, &binary));
    EXPECT(aclrtBinaryGetFunction(binary, "add_custom", &function) == ACL_ERROR_KERNEL_NOT_FOUND);
    EXPECT(strstr(aclGetRecentErrMsg(), "ascend_emulator_register_kernel") != NULL);
    if (ascend_emulator_register_kernel) {
        EXPECT(ascend_emulator_register_kernel(NULL, add_custom, NULL) == ACL_ERROR_INVALID_PARAM);
        CHECK(ascend_emulator_register_kernel("add_custom", add_custom, &addend));
    }
    CHECK(aclrtBinaryGetFunction(binary, "add_custom", &function));
    float *x = filled(COUNT, 1.0F);
    float *out = filled(COUNT, 0.0F);
    CHECK(aclrtKernelArgsInit(function, &arguments));
    CHECK(aclrtKernelArgsAppend(arguments, (void *)&x, sizeof(x), &parameter));
    CHECK(aclrtKernelArgsAppend(arguments, (void *)&out, sizeof(out), &parameter));
    CHECK(aclrtKernelArgsAppend(arguments, &count, sizeof(count), &parameter));
    CHECK(aclrtKernelArgsFinalize(arguments));
    CHECK(aclrtLaunchKernelWithConfig(function, 8, stream, NULL, arguments, NULL));
    CHECK(aclrtSynchronizeStream(stream));
    expect_filled(out, COUNT, 3.5F);
    CHECK(aclrtLaunchKernelWithConfig(function, 4, stream, NULL, arguments, NULL));
    EXPECT(aclrtSynchronizeStream(stream) == ACL_ERROR_RT_AICORE_EXCEPTION);
    EXPECT(strstr(aclGetRecentErrMsg(), "kernel add_custom returned 1") != NULL);
    printf("the kernel ran\n");
    return 0;
}

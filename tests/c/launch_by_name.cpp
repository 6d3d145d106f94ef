// Launches a kernel through the interface that CANN generates for C++ programs, also after a reset of the card.
#include "aclrtlaunch_add_custom.h"

#include "check.h"

static void launch() {
    constexpr uint32_t count = 16 * 8;
    aclrtStream stream = nullptr;
    uint16_t host[count];
    void *memory[3] = {};
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    for (void *&one : memory) CHECK(aclrtMalloc(&one, sizeof host, ACL_MEM_MALLOC_HUGE_FIRST));
    // 1.5 in half precision, and 3.
    for (uint16_t &value : host) value = 0x3e00;
    CHECK(aclrtMemcpy(memory[0], sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtMemcpy(memory[1], sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(ACLRT_LAUNCH_KERNEL(add_custom)(8, stream, memory[0], memory[1], memory[2], count));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(host, sizeof host, memory[2], sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
    for (const uint16_t value : host) EXPECT(value == 0x4200);
    EXPECT(aclrtlaunch_add_custom(0, stream, memory[0], memory[1], memory[2], count) == ACL_ERROR_INVALID_PARAM);
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
}

int main() {
    CHECK(aclInit(nullptr));
    launch();
    launch();
    printf("launched by its name\n");
    return 0;
}

/* Functions that do nothing, or the same as other functions: dumps, profiling, stream configurations, watchers. */
#include "check.h"

typedef struct aclrtStreamConfigHandle aclrtStreamConfigHandle;
aclError aclmdlInitDump(void);
aclError aclmdlSetDump(const char *path);
aclError aclmdlFinalizeDump(void);
aclError aclprofSetConfig(int type, const char *config, size_t length);
void *aclprofCreateStamp(void);
void aclprofDestroyStamp(void *stamp);
aclError aclprofPush(void *stamp);
aclError aclprofPop(void);
aclError aclprofRangeStart(void *stamp, uint32_t *range);
aclError aclprofRangeStop(uint32_t range);
uint64_t aclprofStr2Id(const char *text);
aclrtStreamConfigHandle *aclrtCreateStreamConfigHandle(void);
aclError aclrtSetStreamConfigOpt(aclrtStreamConfigHandle *handle, int attr, const void *value, size_t size);
aclError aclrtDestroyStreamConfigHandle(aclrtStreamConfigHandle *handle);
aclError aclrtCreateStreamV2(aclrtStream *stream, const aclrtStreamConfigHandle *handle);
aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag);
aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag);
aclError aclrtGetOverflowStatus(void *address, size_t bytes, aclrtStream stream);
aclError aclrtResetOverflowStatus(aclrtStream stream);
aclError aclrtRegDeviceStateCallback(const char *name, void (*callback)(uint32_t, int, void *), void *args);

static void count_state(uint32_t device, int state, void *args) {
    EXPECT(device == 0);
    ((int *)args)[state] += 1;
}

int main(void) {
    int states[4] = {0, 0, 0, 0};
    uint32_t flag = 0x1, priority = 7, found = 0, range = 0;
    aclrtStream stream = NULL;
    EXPECT(aclmdlInitDump() == ACL_ERROR_UNINITIALIZE);
    CHECK(aclInit(NULL));
    CHECK(aclrtRegDeviceStateCallback("mine", count_state, states));
    EXPECT(aclrtRegDeviceStateCallback("mine", count_state, states) == ACL_ERROR_RT_PARAM_INVALID);
    CHECK(aclrtSetDevice(0));
    EXPECT(aclmdlSetDump("acl.json") == ACL_ERROR_UNINITIALIZE);
    CHECK(aclmdlInitDump());
    EXPECT(aclmdlInitDump() == ACL_ERROR_REPEAT_INITIALIZE);
    CHECK(aclmdlSetDump("acl.json"));
    CHECK(aclmdlFinalizeDump());
    EXPECT(aclmdlFinalizeDump() == ACL_ERROR_UNINITIALIZE);

    CHECK(aclprofSetConfig(3, "on", 2));
    void *stamp = aclprofCreateStamp();
    EXPECT(stamp != NULL);
    CHECK(aclprofPush(stamp));
    CHECK(aclprofPop());
    CHECK(aclprofRangeStart(stamp, &range));
    CHECK(aclprofRangeStop(range));
    aclprofDestroyStamp(stamp);
    EXPECT(aclprofStr2Id("a") == aclprofStr2Id("a") && aclprofStr2Id("a") != aclprofStr2Id("b"));

    aclrtStreamConfigHandle *config = aclrtCreateStreamConfigHandle();
    CHECK(aclrtSetStreamConfigOpt(config, 2, &flag, sizeof(flag)));
    CHECK(aclrtSetStreamConfigOpt(config, 3, &priority, sizeof(priority)));
    EXPECT(aclrtSetStreamConfigOpt(config, 9, &priority, sizeof(priority)) == ACL_ERROR_INVALID_PARAM);
    CHECK(aclrtCreateStreamV2(&stream, config));
    CHECK(aclrtStreamGetFlags(stream, &found));
    EXPECT(found == flag);
    CHECK(aclrtStreamGetPriority(stream, &found));
    EXPECT(found == priority);
    CHECK(aclrtDestroyStreamConfigHandle(config));
    EXPECT(aclrtDestroyStreamConfigHandle(config) == ACL_ERROR_RT_PARAM_INVALID);

    CHECK(aclrtGetStreamOverflowSwitch(stream, &found));
    EXPECT(found == 1);
    CHECK(aclrtSetStreamOverflowSwitch(stream, 0));
    CHECK(aclrtGetStreamOverflowSwitch(stream, &found));
    EXPECT(found == 0);
    uint8_t status[64] = {9};
    void *device = NULL;
    CHECK(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION));
    CHECK(aclrtMalloc(&device, sizeof(status), ACL_MEM_MALLOC_HUGE_FIRST));
    EXPECT(aclrtGetOverflowStatus(device, 8, stream) == ACL_ERROR_INVALID_PARAM);
    CHECK(aclrtGetOverflowStatus(device, sizeof(status), stream));
    CHECK(aclrtResetOverflowStatus(stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(status, sizeof(status), device, sizeof(status), ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(status[0] == 0);
    CHECK(aclrtFree(device));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    EXPECT(states[0] == 1 && states[1] == 1 && states[2] == 1 && states[3] == 1);
    CHECK(aclrtRegDeviceStateCallback("mine", NULL, NULL));
    CHECK(aclFinalize());
    printf("all answered\n");
    return 0;
}

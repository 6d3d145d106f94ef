/* A refused call sets the thread's last error and a message. The message is printed once per call site. */
#include "check.h"

int aclopCompileAndExecute(void);
void *aclmdlCreateDesc(void);

static void expect_refused(int code, const char *part) {
    EXPECT(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == code);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == code);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == 0);
    const char *message = aclGetRecentErrMsg();
    EXPECT(message != NULL && strstr(message, part) != NULL);
}

int main(void) {
    CHECK(aclInit(NULL));
    /* Harmless, so there is no message. */
    EXPECT(aclInit(NULL) == ACL_ERROR_REPEAT_INITIALIZE);
    CHECK(aclrtSetDevice(0));
    for (int times = 0; times < 3; times++) {
        void *memory = NULL;
        EXPECT(aclrtMalloc(&memory, 0, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
        expect_refused(ACL_ERROR_INVALID_PARAM, "aclrtMalloc: ");
        EXPECT(aclrtSetDevice(100 + times) == ACL_ERROR_RT_INVALID_DEVICEID);
        expect_refused(ACL_ERROR_RT_INVALID_DEVICEID, "no device 10");
        EXPECT(aclopCompileAndExecute() == ACL_ERROR_FEATURE_UNSUPPORTED);
        expect_refused(ACL_ERROR_FEATURE_UNSUPPORTED, "aclopCompileAndExecute is not modelled");
        EXPECT(aclmdlCreateDesc() == NULL);
        expect_refused(ACL_ERROR_FEATURE_UNSUPPORTED, "aclmdlCreateDesc is not modelled");
        EXPECT(HcclGetRankSize(NULL, NULL) == HCCL_E_PTR);
        expect_refused(HCCL_E_PTR, "HcclGetRankSize: ");
    }
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("every refusal was seen\n");
    return 0;
}

/* A process that was forked after aclInit is refused: each call returns the reason, and none hangs. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int main(void) {
    int status = 0;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    float *buffer = filled(4, 1.0F);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        uint32_t cards = 0;
        HcclRootInfo root;
        EXPECT(aclrtGetDeviceCount(&cards) == ACL_ERROR_INTERNAL_ERROR);
        EXPECT(aclrtFree(buffer) == ACL_ERROR_INTERNAL_ERROR);
        EXPECT(HcclGetRootInfo(&root) == HCCL_E_INTERNAL);
        EXPECT(strstr(aclGetRecentErrMsg(), "fork before the first call") != NULL);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The parent is not affected. */
    expect_filled(buffer, 4, 1.0F);
    CHECK(aclrtFree(buffer));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("the child was refused\n");
    return 0;
}

/* A two-phase operator on a stream, and a refused operator with wrong shapes. */
#include "check.h"

int main(void) {
    const int64_t dims[] = {2, 3};
    const int64_t wrong[] = {3, 2};
    aclrtStream stream = NULL;
    uint64_t bytes = 0;
    aclOpExecutor *executor = NULL;
    void *workspace = NULL;
    float two = 2.0F;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtCreateStream(&stream));
    float *x = filled(6, 5.0F);
    float *y = filled(6, 0.0F);
    aclTensor *input = aclCreateTensor(dims, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 2, x);
    aclTensor *output = aclCreateTensor(dims, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 2, y);
    aclTensor *other = aclCreateTensor(wrong, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, wrong, 2, y);
    aclScalar *factor = aclCreateScalar(&two, ACL_FLOAT);
    EXPECT(input != NULL && output != NULL && other != NULL && factor != NULL);
    EXPECT(aclnnMulsGetWorkspaceSize(input, factor, other, &bytes, &executor) == 161002);
    EXPECT(strstr(aclGetRecentErrMsg(), "out") != NULL);
    CHECK(aclnnMulsGetWorkspaceSize(input, factor, output, &bytes, &executor));
    if (bytes > 0) {
        CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    CHECK(aclnnMuls(workspace, bytes, executor, stream));
    CHECK(aclrtSynchronizeStream(stream));
    expect_filled(y, 6, 10.0F);
    CHECK(aclDestroyTensor(input));
    CHECK(aclDestroyTensor(output));
    CHECK(aclDestroyTensor(other));
    CHECK(aclDestroyScalar(factor));
    if (workspace != NULL) {
        CHECK(aclrtFree(workspace));
    }
    CHECK(aclrtFree(x));
    CHECK(aclrtFree(y));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("the operator ran\n");
    return 0;
}

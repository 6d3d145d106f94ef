/* CANN functions that the emulator does not model: they exist, fail with the documented code, and name themselves. */
#include "check.h"

aclError aclopCompileAndExecute(const char *type, int inputs, const void *const input_desc[], const void *const input[],
    int outputs, const void *const output_desc[], void *const output[], const void *attributes, int engine, int compile,
    const char *path, aclrtStream stream);
HcclResult HcclGroupStart(void);
void *aclmdlCreateDesc(void);
aclDataType aclGetTensorDescType(const void *desc);
aclnnStatus aclnnSinkhornGetWorkspaceSize(const aclTensor *cost, const aclScalar *tol, aclTensor *p, uint64_t *bytes,
    aclOpExecutor **executor);

int main(void) {
    uint64_t bytes = 0;
    aclOpExecutor *executor = NULL;
    for (int times = 0; times < 3; times++) {
        EXPECT(aclopCompileAndExecute("Add", 0, NULL, NULL, 0, NULL, NULL, NULL, 0, 0, NULL, NULL) ==
               ACL_ERROR_FEATURE_UNSUPPORTED);
    }
    EXPECT(HcclGroupStart() == HCCL_E_NOT_SUPPORT);
    EXPECT(aclmdlCreateDesc() == NULL);
    EXPECT((int)aclGetTensorDescType(NULL) == -1);
    EXPECT(aclnnSinkhornGetWorkspaceSize(NULL, NULL, NULL, &bytes, &executor) == 361001);
    return 0;
}

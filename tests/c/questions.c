/*
 * Asks what programs ask before they know better, and leaves the pool of an allocator behind: questions [WORD]. With a word it also
 * leaves a buffer that is no pool.
 */
#include "check.h"

int main(int count, char **words) {
    char version[128], package[] = "no_such_package";
    int32_t device = -1;
    (void)words;
    EXPECT(aclsysGetVersionStr(package, version) != 0);
    CHECK(aclInit(NULL));
    EXPECT(aclInit(NULL) == ACL_ERROR_REPEAT_INITIALIZE);
    EXPECT(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(strstr(aclGetRecentErrMsg(), "no context is current") != NULL);
    CHECK(aclrtSetDevice(0));
    void *pool = NULL, *odd = NULL;
    CHECK(aclrtMalloc(&pool, 4 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    if (count > 1) {
        CHECK(aclrtMalloc(&odd, 1000, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    printf("%s\n", (uintptr_t)pool % 512 == 0 ? "as on a card" : (uintptr_t)pool % 128 == 64 ? "odd" : "neither");
    CHECK(aclFinalize());
    return 0;
}

/*
 * Makes the queries of typical programs, and leaks the memory pool of an allocator: questions [WORD]. With a word it also
 * leaks a buffer outside the pool.
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

/* Loads the library PATH, which calls the runtime in its constructor, and uses its results: loads PATH. */
#include "check.h"

#include <dlfcn.h>

int main(int count, char **words) {
    void *library = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    void *(*kept)(void) = (void *(*)(void))dlsym(library, "what_it_kept");
    EXPECT(kept != NULL && kept() != NULL);
    void *buffer = NULL;
    CHECK(aclrtMalloc(&buffer, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(buffer, 64, kept(), 64, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtSynchronizeDevice());
    CHECK(aclrtFree(buffer));
    CHECK(aclrtFreeHost(kept()));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("loaded\n");
    return 0;
}

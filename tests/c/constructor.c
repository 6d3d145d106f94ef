/* A library that calls the runtime while it is loaded, like a Python extension module: calls without and with a card. */
#include "check.h"

static void *kept;

__attribute__((constructor)) static void as_it_is_loaded(void) {
    EXPECT(aclrtGetSocName() != NULL);
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtMallocHost(&kept, 64));
    /* Calls that wait for a card return an error here instead of blocking forever. */
    int code = aclrtSynchronizeDevice();
    EXPECT(code == 0 || code == ACL_ERROR_INTERNAL_ERROR);
}

void *what_it_kept(void) {
    return kept;
}

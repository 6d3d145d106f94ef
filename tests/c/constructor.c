/* A library that calls the runtime as it is loaded, as extension modules of Python do: what needs no card, and what needs one. */
#include "check.h"

static void *kept;

__attribute__((constructor)) static void as_it_is_loaded(void) {
    EXPECT(aclrtGetSocName() != NULL);
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(aclrtMallocHost(&kept, 64));
    /* What waits for a card cannot come about here, and says so instead of waiting for ever. */
    int code = aclrtSynchronizeDevice();
    EXPECT(code == 0 || code == ACL_ERROR_INTERNAL_ERROR);
}

void *what_it_kept(void) {
    return kept;
}

/* Ranks as threads of one process, which share an HcclRootInfo and call HcclCommInitRootInfo. */
#include <pthread.h>

#include "check.h"

enum { WORLD = 4 };
static HcclRootInfo root;

static void *run(void *argument) {
    int rank = (int)(intptr_t)argument;
    all_reduce_on(rank, rank, WORLD, &root);
    return NULL;
}

int main(void) {
    pthread_t threads[WORLD];
    uint32_t cards = 0;
    CHECK(aclrtGetDeviceCount(&cards));
    EXPECT(cards >= WORLD);
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    CHECK(HcclGetRootInfo(&root));
    EXPECT(strncmp(root.internal, "invalid", 7) != 0);
    for (int rank = 0; rank < WORLD; rank++) {
        EXPECT(pthread_create(&threads[rank], NULL, run, (void *)(intptr_t)rank) == 0);
    }
    for (int rank = 0; rank < WORLD; rank++) {
        EXPECT(pthread_join(threads[rank], NULL) == 0);
    }
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("%d threads agree\n", WORLD);
    return 0;
}

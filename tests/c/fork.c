/* Ranks as processes, forked before the first call. They receive the root info of rank 0 through pipes. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { WORLD = 3 };

static void move(ssize_t (*transfer)(int, void *, size_t), int end, HcclRootInfo *root) {
    size_t done = 0;
    while (done < sizeof *root) {
        ssize_t step = transfer(end, (char *)root + done, sizeof *root - done);
        EXPECT(step > 0);
        done += (size_t)step;
    }
}

static ssize_t send_bytes(int end, void *bytes, size_t count) { return write(end, bytes, count); }

static int run(int rank, int pipes[WORLD][2]) {
    HcclRootInfo root;
    CHECK(aclInit(NULL));
    if (rank == 0) {
        CHECK(aclrtSetDevice(0));
        CHECK(HcclGetRootInfo(&root));
        for (int other = 1; other < WORLD; other++) {
            move(send_bytes, pipes[other][1], &root);
        }
    } else {
        move(read, pipes[rank][0], &root);
    }
    all_reduce_on(rank, rank, WORLD, &root);
    if (rank == 0) {
        CHECK(aclrtResetDevice(0));
    }
    CHECK(aclFinalize());
    return 0;
}

int main(void) {
    int pipes[WORLD][2];
    pid_t ranks[WORLD];
    /* A process may still fork after it queried the number of cards. */
    uint32_t cards = 0;
    CHECK(aclrtGetDeviceCount(&cards));
    EXPECT(cards >= WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        EXPECT(pipe(pipes[rank]) == 0);
    }
    for (int rank = 0; rank < WORLD; rank++) {
        ranks[rank] = fork();
        EXPECT(ranks[rank] >= 0);
        if (ranks[rank] == 0) {
            exit(run(rank, pipes));
        }
    }
    for (int rank = 0; rank < WORLD; rank++) {
        int status = 0;
        EXPECT(waitpid(ranks[rank], &status, 0) == ranks[rank]);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("%d processes agree\n", WORLD);
    return 0;
}

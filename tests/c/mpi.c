/* Ranks under mpirun, like CANN's own samples: MPI_Bcast sends the root info to all ranks. */
#include <mpi.h>

#include "check.h"

int main(int count, char **words) {
    int rank = -1;
    int world = 0;
    HcclRootInfo root;
    EXPECT(MPI_Init(&count, &words) == MPI_SUCCESS);
    EXPECT(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
    EXPECT(MPI_Comm_size(MPI_COMM_WORLD, &world) == MPI_SUCCESS);
    CHECK(aclInit(NULL));
    if (rank == 0) {
        CHECK(aclrtSetDevice(0));
        CHECK(HcclGetRootInfo(&root));
    }
    EXPECT(MPI_Bcast(&root, (int)sizeof root, MPI_CHAR, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    all_reduce_on(rank, rank, world, &root);
    if (rank == 0) {
        CHECK(aclrtResetDevice(0));
    }
    CHECK(aclFinalize());
    EXPECT(MPI_Finalize() == MPI_SUCCESS);
    printf("rank %d of %d agrees\n", rank, world);
    return 0;
}

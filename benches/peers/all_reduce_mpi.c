/* Time of MPI_Allreduce, as a peer of `ascend-tp bench collectives --processes`.
 *
 *   mpicc -O2 all_reduce_mpi.c -o all_reduce_mpi
 *   OMPI_MCA_mpi_yield_when_idle=1 mpirun --oversubscribe -np 8 ./all_reduce_mpi
 *
 * Prints one line a size: bytes, median and average time in microseconds over all calls of rank 0. The reduction is of
 * floats: MPI has no f16 of its own, so equal bytes are compared, not equal counts. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const long sizes[] = {8L << 10, 16L << 10, 1L << 20, 64L << 20};
    const int calls[] = {300, 300, 40, 7};
    for (int s = 0; s < 4; s++) {
        long count = sizes[s] / (long)sizeof(float);
        float *in = malloc(sizes[s]), *out = malloc(sizes[s]);
        double *taken = malloc(calls[s] * sizeof(double)), total = 0;
        for (long i = 0; i < count; i++) in[i] = (float)(i % 7 + rank);
        for (int call = -2; call < calls[s]; call++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double us = (MPI_Wtime() - start) * 1e6;
            if (call >= 0) taken[call] = us, total += us;
        }
        for (long i = 0; i < count; i++) {
            float expected = (float)(i % 7) * ranks + (float)(ranks * (ranks - 1) / 2);
            if (out[i] != expected) {
                fprintf(stderr, "rank %d: element %ld is %g, expected %g\n", rank, i, out[i], expected);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        qsort(taken, calls[s], sizeof(double), by_value);
        if (rank == 0) printf("%9ld B  median %10.1f us  average %10.1f us\n", sizes[s], taken[calls[s] / 2], total / calls[s]);
        free(in), free(out), free(taken);
    }
    MPI_Finalize();
    return 0;
}

/* Seconds of MPI_Allreduce, as a peer of `ascend-tp bench collectives --processes`.
 *
 *   mpicc -O2 all_reduce_mpi.c -o all_reduce_mpi
 *   mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 8 ./all_reduce_mpi f32:67108864:7 f32:16384:100
 *
 * Each argument is an element type (f32: MPI has no f16 of its own), the bytes of the tensor, and how often it is summed. The
 * last line that rank 0 prints is read by `ascend-tp bench peers`, which compiles and starts it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, length;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_library_version(library, &length);
    /* "Open MPI v4.1.4, package: ...": the rest is of the builder. */
    library[strcspn(library, ",\n")] = 0;
    if (rank == 0) printf("{\"version\": \"%s\", \"seconds\": {", library);
    for (int argument = 1; argument < argc; argument++) {
        long size, calls;
        if (sscanf(argv[argument], "f32:%ld:%ld", &size, &calls) != 2 || size < 4 || calls < 1) {
            fprintf(stderr, "%s: expected f32:BYTES:TIMES\n", argv[argument]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        long count = size / (long)sizeof(float);
        float *in = malloc(count * sizeof(float)), *out = malloc(count * sizeof(float));
        if (!in || !out) MPI_Abort(MPI_COMM_WORLD, 3);
        for (long i = 0; i < count; i++) in[i] = (float)(i % 7 + rank);
        if (rank == 0) printf("%s\"all_reduce f32 %ld\": [", argument > 1 ? ", " : "", size);
        for (long call = -2; call < calls; call++) {
            memset(out, 0, count * sizeof(float));
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double taken = MPI_Wtime() - start;
            if (rank == 0 && call >= 0) printf("%s%.9f", call ? ", " : "", taken);
        }
        for (long i = 0; i < count; i++) {
            float expected = (float)(i % 7) * ranks + (float)(ranks * (ranks - 1) / 2);
            if (out[i] != expected) {
                fprintf(stderr, "rank %d: element %ld is %g, expected %g\n", rank, i, out[i], expected);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        if (rank == 0) printf("]");
        free(in), free(out);
    }
    if (rank == 0) printf("}}\n");
    MPI_Finalize();
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// MPI_Allreduce of floats, in place, as a peer of `psbench allreduce` (tests/bench/peers.py):
//
//     mpicc -O2 -o allreduce_mpi tests/bench/allreduce_mpi.c
//     mpirun -n WORKERS ./allreduce_mpi BYTES SECONDS
//
// One call after the other; the array's last number says whether rank 0 has had enough, so that all end with the same
// call. A quarter of the time, and four calls, pass before it counts. Rank 0 prints one JSON object.
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool reduce(float *values, int n, bool more)
{
    values[n - 1] = more ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return values[n - 1] == 0;
}

static long reduce_for(float *values, int n, int rank, double seconds, long least)
{
    const double begin = MPI_Wtime();
    long calls = 0;
    bool more;
    do {
        more = rank > 0 || MPI_Wtime() - begin < seconds || calls + 1 < least;
        calls++;
    } while (reduce(values, n, more));
    return calls;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const long bytes = argc == 3 ? atol(argv[1]) : 0;
    const double seconds = argc == 3 ? atof(argv[2]) : 0;
    if (bytes < 4 || seconds <= 0) {
        fprintf(stderr, "usage: mpirun -n WORKERS allreduce_mpi BYTES SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 64);
    }
    const int n = (int)(bytes / 4);
    float *values = calloc((size_t)n, sizeof *values);
    if (!values)
        MPI_Abort(MPI_COMM_WORLD, 71);
    reduce_for(values, n, rank, seconds / 4, 4);
    const double begin = MPI_Wtime();
    const long calls = reduce_for(values, n, rank, seconds, 1);
    const double each = (MPI_Wtime() - begin) / (double)calls;
    if (rank == 0)
        printf("{\"gb_per_s\": %.9g, \"p50_us\": %.9g}\n", (double)n * 4 / each / 1e9, each * 1e6);
    free(values);
    MPI_Finalize();
    return 0;
}

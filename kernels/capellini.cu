// Capellini: triangular solves with one thread per row.
//
// Layout: the rows of T or of T^T, see include/sptrsv.cuh.
// Grid: any number of thread blocks of 256; a ticket is for 32 rows, those of one warp.
// Order: that of the serial solve.
// Bytes: entries, offsets, reciprocals, b, x once; a slot of 8 (f32) or 16 (f64) bytes per row is written once and read at least
// once per entry, except if the column is a row of the same ticket.
#include "sptrsv.cuh"

#define SOLVE(T, t)                                                                              \
    extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, 3) sptrsv_capellini_##t(TriangleRows<T> m, u32 deep, u64* slots, Progress* progress, const T* b, T* x, const Monitor* gate) { \
        solve_rows<T, 1>(m, deep, slots, progress, b, x, gate);                                  \
    }
FOR_EACH_TYPE(SOLVE)

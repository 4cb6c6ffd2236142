// Elementwise: triangular solves with one warp per equation.
//
// Layout: the rows of T or of T^T, see include/sptrsv.cuh.
// Grid: any number of thread blocks of 256; a ticket is for `deep` rows, at most 32.
// Order: 32 lanes and a halving tree, see include/sptrsv.cuh.
// Bytes: entries, offsets, reciprocals, b, x once; a slot of 8 (f32) or 16 (f64) bytes per row is written once and read at least
// once per entry, mostly from the second-level cache.
#include "sptrsv.cuh"

#define SOLVE(T, t)                                                                              \
    extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, 4) sptrsv_elementwise_##t(TriangleRows<T> m, u32 deep, u64* slots, Progress* progress, const T* b, T* x, const Monitor* gate) { \
        solve_rows<T, 32>(m, deep, slots, progress, b, x, gate);                                 \
    }
FOR_EACH_TYPE(SOLVE)

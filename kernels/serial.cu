// Serial: the triangular solve that the others are compared with.
//
// Layout: the rows of T or of T^T, see include/sptrsv.cuh.
// Grid: one warp per right-hand side, in its own thread block. Its lanes load 32 entries at a time, and all of them form the sum.
// Order: s = b; terms towards the diagonal, the farthest first, one `fma(-t, x_j, s)` each; then s / d by the reciprocal of d.
// Bytes: entries, offsets, reciprocals, b, x once, x at the columns of entries mostly from the second-level cache.
#include "sptrsv.cuh"

// b may be x: a row's b is read before its x is written.
template <class T>
__device__ __forceinline__ void solve_serially(const TriangleRows<T>& m, const T* b, T* x, const Monitor* gate) {
    if (!open(gate)) return;
    b += (u64)blockIdx.x * m.nrows;
    x += (u64)blockIdx.x * m.nrows;
    u32 lane = threadIdx.x, row_before = PADDING;
    T x_before = T(0);
    for (u32 k = 0; k < m.nrows; k++) {
        u32 row = m.row(k), begin = __ldg(m.ptr + row), len = __ldg(m.ptr + row + 1) - begin;
        T s = b[row];
        for (u32 from = 0; from < len; from += WARP) {
            u32 col = row;
            T value = T(0), of_x = T(0);
            if (from + lane < len) {
                u32 e = m.entry(begin, len, from + lane);
                col = __ldg(m.idx + e);
                value = m.value(e);
                // The latest x would have to come back from memory.
                if (col != row) of_x = col == row_before ? x_before : x[col];
            }
            u32 count = len - from < WARP ? len - from : WARP;
            for (u32 l = 0; l < count; l++) {
                T t = __shfl_sync(ALL, value, l), v = __shfl_sync(ALL, of_x, l);
                if (__shfl_sync(ALL, col, l) != row) s = fma_rn(-t, v, s);
            }
        }
        s = m.solved(row, s);
        __syncwarp();  // every lane has b
        if (lane == 0) x[row] = s;
        __syncwarp();
        row_before = row;
        x_before = s;
    }
}

#define SOLVE(T, t)                                                                              \
    extern "C" __global__ void __launch_bounds__(WARP) sptrsv_serial_##t(TriangleRows<T> m, const T* b, T* x, const Monitor* gate) { \
        solve_serially(m, b, x, gate);                                                           \
    }
FOR_EACH_TYPE(SOLVE)

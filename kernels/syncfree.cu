// Syncfree: triangular solves by columns that count what a row still waits for, and by rows with as many lanes as rows are long.
//
// Layout: rows as in include/sptrsv.cuh. By columns: `m` holds the columns of the system instead of rows (the rows of its
// transpose), `lower` still that of the system; degrees[i] is how many entries off the diagonal row i has, arrivals[i] and sums[i]
// are 0 between solves: whoever solves row i reads them last and clears them.
// Grid: any number of thread blocks of 256. By columns: one warp per column, `deep` of them per ticket. By rows: see include/sptrsv.cuh.
// Order: by columns none, as sums are atomic; x_i = (b_i + sum) / d_i, products -t x_j rounded. By rows: n lanes and a halving tree.
// Bytes: by columns entries, offsets, reciprocals, degrees, b, x once; two atomics per entry. By rows: as elementwise.
#include "sptrsv.cuh"

__device__ __forceinline__ u32 arrived_at(const u32* at) {
    u32 seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
    return seen;
}

// Adds one, after everything that this thread did before.
__device__ __forceinline__ void arrive(u32* at) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory"); }

template <class T>
__device__ __forceinline__ void solve_columns(const TriangleRows<T>& m, u32 deep, const u32* __restrict__ degrees, u32* arrivals, T* sums, Progress* progress, const T* b, T* x, const Monitor* gate) {
    if (!open(gate)) return;
    u32 lane = threadIdx.x % WARP, tag = progress->tag();
    for (;;) {
        u64 first = (u64)progress->draw() * deep;
        if (first >= m.nrows) break;
        for (u32 run = 0; run < deep && first + run < m.nrows; run++) {
            u32 col = m.row((u32)first + run);  // of the system
            u32 begin = __ldg(m.ptr + col), len = __ldg(m.ptr + col + 1) - begin;
            // Loaded before the wait.
            u32 row = col;
            T value = T(0);
            if (lane < len) row = __ldg(m.idx + begin + lane), value = m.value(begin + lane);
            T v = T(0);
            if (lane == 0) {
                T s = b[col];
                u32 degree = __ldg(degrees + col);
                if (degree > 0) {
                    for (u32 vain = 0; arrived_at(arrivals + col) != degree; vain++)
                        if (vain > PATIENCE) __nanosleep(NAP);
                    s += __ldcg(sums + col);
                    // All terms of this row have arrived: nobody touches these again before the next solve.
                    arrivals[col] = 0;
                    sums[col] = T(0);
                }
                v = m.solved(col, s);
                x[col] = v;
            }
            v = __shfl_sync(ALL, v, 0);
            for (u32 e = lane; e < len; e += WARP) {
                if (e != lane) row = __ldg(m.idx + begin + e), value = m.value(begin + e);
                if (row != col) {
                    atomicAdd(sums + row, -(value * v));
                    arrive(arrivals + row);
                }
            }
            __syncwarp();
        }
    }
    progress->leave(tag);
}

#define BY_COLUMNS(T, t)                                                                         \
    extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, 4) sptrsv_columns_syncfree_##t(TriangleRows<T> m, u32 deep, const u32* degrees, u32* arrivals, T* sums, Progress* progress, const T* b, T* x, const Monitor* gate) { \
        solve_columns(m, deep, degrees, arrivals, sums, progress, b, x, gate);                   \
    }
FOR_EACH_TYPE(BY_COLUMNS)

#define BY_ROWS(T, t, LANES)                                                                     \
    extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, 4) sptrsv_rows##LANES##_syncfree_##t(TriangleRows<T> m, u32 deep, u64* slots, Progress* progress, const T* b, T* x, const Monitor* gate) { \
        solve_rows<T, LANES>(m, deep, slots, progress, b, x, gate);                              \
    }
#define BY_ROWS_OF_ALL_LANES(T, t) BY_ROWS(T, t, 2) BY_ROWS(T, t, 4) BY_ROWS(T, t, 8) BY_ROWS(T, t, 16) BY_ROWS(T, t, 32)
FOR_EACH_TYPE(BY_ROWS_OF_ALL_LANES)

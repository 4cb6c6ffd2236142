// SSOR: L and U of A's own entries, scaled.
//
// Layout: the patterns of L (strictly below the diagonal) and of U as in include/factor.cuh; A's rows are theirs, L's before U's.
// Grid: 256 rows per thread block, one thread per row.
// Order: that of the host: l_ij = (w a_ij) / d_j; u_ii = d_i / (2-w); u_ij = a_ij (w / (2-w)).
// Bytes: A's values and the factors once, the patterns, d_j for each entry of L.
#include "factor.cuh"

template <class T>
__device__ __forceinline__ void scale(const Task<T>& task) {
    u32 tag = task.state->progress.tag();
    u64 row = (u64)blockIdx.x * FACTOR_THREADS + threadIdx.x;
    if (row < task.nrows) {
        T omega = task.number, rest = task.shift, ratio = omega / rest;
        u32 at_l = __ldg(task.lower.ptr + row), end_l = __ldg(task.lower.ptr + row + 1);
        u32 at_u = __ldg(task.upper.ptr + row), end_u = __ldg(task.upper.ptr + row + 1);
        const T* values = task.values + at_u;
        T diagonal = __ldg(values + end_l);
        bool fine = diagonal != T(0);
        for (u32 e = at_l; e < end_l; e++) {
            u32 j = __ldg(task.lower.cols + e);
            T of_j = __ldg(task.values + __ldg(task.lower.ptr + j + 1) + __ldg(task.upper.ptr + j));
            T made = omega * __ldg(values + e) / of_j;
            fine = fine && finite((double)made);
            task.l[e] = made;
        }
        values = task.values + end_l;
        for (u32 e = at_u; e < end_u; e++) {
            T made = e == at_u ? __ldg(values + e) / rest : __ldg(values + e) * ratio;
            fine = fine && finite((double)made);
            task.u[e] = made;
        }
        if (!fine) task.state->blame(0, (u32)row);
    }
    task.state->leave(tag);
}

#define FACTORIZE(T, t)                                                                          \
    extern "C" __global__ void __launch_bounds__(FACTOR_THREADS, 4) factorize_ssor_##t(Task<T> task) { scale(task); }
FOR_EACH_TYPE(FACTORIZE)

// Dense: products with a column-major matrix.
//
// Layout: values[i + nrows*j] = A[i, j], as on the host.
// Grid: a thread a row, `blockDim.x` rows a thread block, fewer where there are few rows.
// Order: stored, ascending columns.
// Bytes: values, y once, x once a thread block, from the cache.
#include "spandrel.cuh"

// The sum of one row. Sixteen columns in flight.
template <class T>
__device__ __forceinline__ T row_sum(const T* __restrict__ values, u64 row, u64 nrows, u64 ncols, const T* __restrict__ x) {
    const T* at = values + row;
    T acc = T(0);
    u64 j = 0;
    for (; j + 16 <= ncols; j += 16, at += 16 * nrows) {
        T v[16];
#pragma unroll
        for (int u = 0; u < 16; u++) v[u] = stream(at + u * nrows);
#pragma unroll
        for (int u = 0; u < 16; u++) acc = fma_rn(v[u], __ldg(x + j + u), acc);
    }
    for (; j + 4 <= ncols; j += 4, at += 4 * nrows) {
        T v[4];
#pragma unroll
        for (int u = 0; u < 4; u++) v[u] = stream(at + u * nrows);
#pragma unroll
        for (int u = 0; u < 4; u++) acc = fma_rn(v[u], __ldg(x + j + u), acc);
    }
    for (; j < ncols; j++, at += nrows) acc = fma_rn(stream(at), __ldg(x + j), acc);
    return acc;
}

#define SPMV(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_dense_##t(const T* values, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                    \
        if (!open(gate) || row >= nrows) return;                                                 \
        T a = ca.value(), b = cb.value();                                                        \
        finish_row(a, row_sum(values, row, nrows, ncols, x), b, y + row);                        \
    }
FOR_EACH_TYPE(SPMV)

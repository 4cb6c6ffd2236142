// Dense: products with a column-major matrix.
//
// Layout: values[i + nrows*j] = A[i, j], as on the host.
// Grid: one thread per row, 256 per thread block; `staged`, for few rows: 32 rows per thread block of 256: all load, 32 sum.
// Order: stored, ascending columns.
// Bytes: values, y once, x once per thread block, from the cache.
#include "spandrel.cuh"

// The sum of one row, with sixteen columns in flight.
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

// Columns of a tile, and those of it that one warp loads.
#define TILE 128
#define LOADS (TILE / 8)

// Few rows: eight warps have a tile of 128 columns in flight, and one warp sums the rows of the previous tile from shared memory.
template <class T>
__device__ __forceinline__ void spmv_staged(const T* __restrict__ values, u64 nrows, u64 ncols, Coeff<T> ca, const T* __restrict__ x, Coeff<T> cb, T* y, const Monitor* gate) {
    __shared__ T tile[TILE * WARP], of_tile[TILE];
    if (!open(gate) || nrows == 0) return;
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64 row = (u64)blockIdx.x * WARP + lane;
    // Rows past the last one repeat it; their sums are dropped.
    const T* from = values + (row < nrows ? row : nrows - 1);
    T v[LOADS], next_x = T(0), acc = T(0);
#pragma unroll
    for (int m = 0; m < LOADS; m++) {
        u64 j = warp + m * 8;
        if (j < ncols) v[m] = __ldg(from + j * nrows);
    }
    if (threadIdx.x < TILE && threadIdx.x < ncols) next_x = __ldg(x + threadIdx.x);
    for (u64 base = 0; base < ncols; base += TILE) {
#pragma unroll
        for (int m = 0; m < LOADS; m++)
            if (base + warp + m * 8 < ncols) tile[(warp + m * 8) * WARP + lane] = v[m];
        if (threadIdx.x < TILE) of_tile[threadIdx.x] = next_x;
        __syncthreads();
        u64 after = base + TILE;
#pragma unroll
        for (int m = 0; m < LOADS; m++) {
            u64 j = after + warp + m * 8;
            if (j < ncols) v[m] = __ldg(from + j * nrows);
        }
        if (threadIdx.x < TILE && after + threadIdx.x < ncols) next_x = __ldg(x + after + threadIdx.x);
        if (warp == 0) {
            u32 count = after < ncols ? TILE : (u32)(ncols - base);
#pragma unroll 16
            for (u32 j = 0; j < count; j++) acc = fma_rn(tile[j * WARP + lane], of_tile[j], acc);
        }
        __syncthreads();
    }
    if (warp == 0 && row < nrows) finish_row(ca.value(), acc, cb.value(), y + row);
}

#define STAGED(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_staged_dense_##t(const T* values, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_staged(values, nrows, ncols, a, x, b, y, gate);                                     \
    }
FOR_EACH_TYPE(STAGED)

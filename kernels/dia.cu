// DIA: products with a matrix by diagonals.
//
// Layout: values[i + nrows*k] = A[i, i + offsets[k]], as on the host. Symmetric: only the diagonals with offset >= 0 are
// stored, ascending; the entry of offset -d in row i is the one of +d in row i - d.
// Grid: 1024 rows a thread block of 256, four rows a thread, neighbours side by side.
// Order: stored, ascending offsets; positions outside the matrix are skipped.
// Bytes: values inside the matrix, x, y once. Symmetric: the stored half once, its second use from the cache.
#include "spandrel.cuh"

template <class T>
struct DiaRows {
    const T* values;
    const int* offsets;
    u32 diagonals;
    u64 rows, ncols;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        const T* of_row = values + row;
#pragma unroll 4
        for (u32 k = 0; k < diagonals; k++, of_row += rows) {
            i64 offset = offsets[k];
#pragma unroll
            for (int i = 0; i < N; i++) {
                u64 r = row + i * step;
                i64 j = (i64)r + offset;
                if (r < nrows && j >= 0 && j < (i64)ncols) acc[i] = fma_rn(stream(of_row + i * step), x[j], acc[i]);
            }
        }
    }
};

template <class T>
struct SymmetricDiaRows {
    const T* values;
    const int* offsets;  // ascending from 0 or above
    u32 diagonals;
    u64 rows;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        // Below the diagonal: the entry of -d in row r lies at r - d of the diagonal +d. Farthest first.
#pragma unroll 4
        for (u32 k = diagonals; k-- > 0;) {
            i64 d = offsets[k];
            if (d == 0) break;
            const T* diagonal = values + (u64)k * rows;
#pragma unroll
            for (int i = 0; i < N; i++) {
                u64 r = row + i * step;
                i64 j = (i64)r - d;
                if (r < nrows && j >= 0) acc[i] = fma_rn(diagonal[j], x[j], acc[i]);
            }
        }
#pragma unroll 4
        for (u32 k = 0; k < diagonals; k++) {
            i64 d = offsets[k];
            const T* diagonal = values + (u64)k * rows;
#pragma unroll
            for (int i = 0; i < N; i++) {
                u64 r = row + i * step;
                i64 j = (i64)r + d;
                if (r < nrows && j < (i64)rows) acc[i] = fma_rn(diagonal[r], x[j], acc[i]);
            }
        }
    }
};

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_dia_##t(const T* values, const int* offsets, u32 diagonals, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_rows(DiaRows<T>{values, offsets, diagonals, nrows, ncols, x}, nrows, a, b, y, gate);  \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_dot_dia_##t(const T* values, const int* offsets, u32 diagonals, u64 nrows, u64 ncols, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(DiaRows<T>{values, offsets, diagonals, nrows, ncols, x}, nrows, y, w, tree, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_symmetric_dia_##t(const T* values, const int* offsets, u32 diagonals, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_rows(SymmetricDiaRows<T>{values, offsets, diagonals, nrows, x}, nrows, a, b, y, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_dot_symmetric_dia_##t(const T* values, const int* offsets, u32 diagonals, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(SymmetricDiaRows<T>{values, offsets, diagonals, nrows, x}, nrows, y, w, tree, gate); \
    }
FOR_EACH_TYPE(ENTRIES)

// Y = a A X + b Y, four columns at a time: a row's values are read once for four.
template <class T>
__device__ __forceinline__ void spmm(const T* values, const int* offsets, u32 diagonals, bool symmetric, u64 nrows, u64 ncols, u64 k, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) {
    u64 row = (u64)blockIdx.x * 256 + threadIdx.x;
    if (!open(gate) || row >= nrows) return;
    T a = ca.value(), b = cb.value();
    for (u64 c = 0; c < k; c += 4) {
        T acc[4] = {T(0), T(0), T(0), T(0)};
        u64 columns = k - c < 4 ? k - c : 4;
        auto add = [&](i64 j, const T* at) {
            if (j < 0 || j >= (i64)ncols) return;
            T v = *at;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (i < columns) acc[i] = fma_rn(v, x[(c + i) * ncols + j], acc[i]);
        };
        if (symmetric)
            for (u32 d = diagonals; d-- > 0 && offsets[d] != 0;) add((i64)row - offsets[d], values + (u64)d * nrows + row - offsets[d]);
        for (u32 d = 0; d < diagonals; d++) add((i64)row + offsets[d], values + (u64)d * nrows + row);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < columns) finish_row(a, acc[i], b, y + (c + i) * nrows + row);
    }
}

#define SPMM(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) spmm_dia_##t(const T* values, const int* offsets, u32 diagonals, u32 symmetric, u64 nrows, u64 ncols, u64 k, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmm(values, offsets, diagonals, symmetric != 0, nrows, ncols, k, a, x, b, y, gate);     \
    }
FOR_EACH_TYPE(SPMM)

// ELL: products with a matrix whose rows are padded to one width.
//
// Layout: entry k of row i at i + nrows*k, as on the host; PADDING to the right.
// Grid: 1024 rows per thread block of 256, four rows per thread; spmv_small, spmv_few: one row per thread of thread blocks of 128;
// spmv_dot_small: one row per thread of thread blocks of 1024.
// longest_row: any number of thread blocks of 256; fill_from_csr: of 128, 32 rows per warp at a time.
// Order: stored; padding is skipped.
// Bytes: columns of all positions but those behind the end of eight neighbouring rows, values of entries, x, y once. spmv_few: values as
// columns.
// Persistent (cg_ell, bicgstab_ell): see include/persistent.cuh.
#include "ell.cuh"
#include "persistent.cuh"
#include "walk.cuh"

template <class T>
struct EllRows {
    const u32* cols;
    const T* values;
    u32 width;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        add_packed(cols, values, nrows, width, row, step, x, acc);
    }
};

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_rows(EllRows<T>{cols, values, width, x}, nrows, a, b, y, gate);                     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(128) spmv_small_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_each_row(EllRows<T>{cols, values, width, x}, nrows, a, b, y, gate);                 \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(128) spmv_few_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * 128 + threadIdx.x;                                           \
        if (!open(gate) || row >= nrows) return;                                                 \
        T acc = packed_row(cols + row, values + row, nrows, width, x);                           \
        finish_row(a.value(), acc, b.value(), y + row);                                          \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_dot_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(EllRows<T>{cols, values, width, x}, nrows, y, w, tree, gate);              \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024) spmv_dot_small_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_each_row(EllRows<T>{cols, values, width, x}, nrows, y, w, tree, gate);          \
    }
FOR_EACH_TYPE(ENTRIES)

#define KRYLOV(T, t) PERSISTENT(T, t, ell, (const u32* cols, const T* values, u32 width), (KeptPacked<T, EllPlaces>{{width, n}, cols, values}))
FOR_EACH_TYPE(KRYLOV)
__device__ __forceinline__ void longest_row(const u32* row_ptr, u32 nrows, u32* longest) {
    u32 found = 0;
    for (u32 row = blockIdx.x * blockDim.x + threadIdx.x; row < nrows; row += gridDim.x * blockDim.x) {
        u32 len = __ldg(row_ptr + row + 1) - __ldg(row_ptr + row);
        found = len > found ? len : found;
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        u32 other = __shfl_down_sync(ALL, found, d);
        found = other > found ? other : found;
    }
    if (threadIdx.x % WARP == 0 && found) atomicMax(longest, found);
}

// Writes entries to their places, and padding behind them: every position is written once.
template <class T>
struct FillEll {
    struct Row {};
    u32 width;
    u64 nrows;
    u32* cols;
    T* values;

    __device__ __forceinline__ Row open(u32) const { return {}; }
    __device__ __forceinline__ void put(u32 row, u32 e, u32 col, T value) const {
        u64 at = (u64)e * nrows + row;
        cols[at] = col;
        values[at] = value;
    }
    __device__ __forceinline__ void visit(Row&, u32 row, u32 e, u32 col, T value) const { put(row, e, col, value); }
    __device__ __forceinline__ void close(const Row&, u32 row, u32 len) const {
        for (u32 e = len; e < width; e++) put(row, e, PADDING, T(0));
    }
};

#define FROM_CSR(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) longest_row_ell_##t(const u32* row_ptr, u32 nrows, u32* longest) { \
        longest_row(row_ptr, nrows, longest);                                                    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) fill_from_csr_ell_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, u32 width, u32* out_cols, T* out_values) { \
        FillEll<T> visitor{width, nrows, out_cols, out_values};                                  \
        walk_rows<T, true>(row_ptr, cols, values, nrows, visitor);                               \
    }
FOR_EACH_TYPE(FROM_CSR)

// BSR: products with a matrix of dense square blocks.
//
// Layout: as on the host: row_ptr and col_idx of blocks, each row-major in `values`.
// Grid: a thread a row, 256 rows a thread block; with dot products 1024 rows a thread block of 256, four rows a thread in turn.
// Order: stored: the entries of a row by ascending column, zeros inside the blocks included; parts outside the matrix are skipped.
// Bytes: values, block columns, y once; x by sectors, mostly from the cache.
#include "blocks.cuh"

template <class T, int B>
__device__ __forceinline__ void spmv_dot(const BlockRows<T, B>& m, u64 nrows, T* y, const T* w, const Tree<T>& tree, const Monitor* gate) {
    __shared__ T shared_y[BLOCK];
    if (!open(gate)) return;
    u64 first = (u64)blockIdx.x * BLOCK;
#pragma unroll 1
    for (u32 at = threadIdx.x; at < BLOCK && first + at < nrows; at += 256) {
        u32 row = (u32)first + at, block_row = row / m.size();
        T sum = m.row(block_row, row - block_row * m.size());
        y[row] = sum;
        shared_y[at] = sum;
    }
    __syncthreads();
    bool both = tree.out[1] != nullptr;
    if (threadIdx.x < WARP) block_dots(shared_y, w, first, nrows, tree, both);
    u64 blocks = (nrows + BLOCK - 1) / BLOCK;
    if (both) {
        T sum[2];
        finish_sums<T, 2>(tree, blocks, sum);
    } else {
        T sum[1];
        finish_sums<T, 1>(tree, blocks, sum);
    }
}

#define ENTRIES(T, t, B, stem)                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_##stem##bsr_##t(const T* values, const u32* row_ptr, const u32* col_idx, u32 dim, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * 256 + threadIdx.x;                                           \
        if (!open(gate) || row >= nrows) return;                                                 \
        BlockRows<T, B> m{values, col_idx, row_ptr, row_ptr + 1, dim, ncols, x};                 \
        T a = ca.value(), b = cb.value();                                                        \
        u32 block_row = (u32)row / m.size();                                                     \
        finish_row(a, m.row(block_row, (u32)row - block_row * m.size()), b, y + row);            \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_dot_##stem##bsr_##t(const T* values, const u32* row_ptr, const u32* col_idx, u32 dim, u64 nrows, u64 ncols, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot(BlockRows<T, B>{values, col_idx, row_ptr, row_ptr + 1, dim, ncols, x}, nrows, y, w, tree, gate); \
    }
FOR_EACH_DIM(ENTRIES, float, f32)
FOR_EACH_DIM(ENTRIES, double, f64)

// Y = a A X + b Y, four columns at a time: a row's values are read once for four.
#define SPMM(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4) spmm_bsr_##t(const T* values, const u32* row_ptr, const u32* col_idx, u32 dim, u64 nrows, u64 ncols, u64 k, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * 256 + threadIdx.x;                                           \
        if (!open(gate) || row >= nrows) return;                                                 \
        BlockRows<T, 0> m{values, col_idx, row_ptr, row_ptr + 1, dim, ncols, x};                 \
        T a = ca.value(), b = cb.value();                                                        \
        u32 block_row = (u32)row / dim, r = (u32)row - block_row * dim;                          \
        for (u64 c = 0; c < k; c += 4) {                                                         \
            T acc[4] = {T(0), T(0), T(0), T(0)};                                                 \
            u32 count = k - c < 4 ? (u32)(k - c) : 4;                                            \
            m.row_of_columns(block_row, r, x + c * ncols, count, acc);                           \
            _Pragma("unroll") for (int i = 0; i < 4; i++) if (i < count) finish_row(a, acc[i], b, y + (c + i) * nrows + row); \
        }                                                                                        \
    }
FOR_EACH_TYPE(SPMM)

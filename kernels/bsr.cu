// BSR: products with a matrix of dense square blocks.
//
// Layout: as on the host: row_ptr and col_idx of blocks, each row-major in `values`.
// Grid: one thread per row, 256 rows per thread block, 64 if few. With dot products the last thread block of each 1024 rows reads
// their y again from the second-level cache.
// Order: stored: the entries of a row by ascending column, including zeros inside the blocks; parts outside the matrix are skipped.
// Bytes: values, block columns, y once; x by sectors, mostly from the cache.
#include "blocks.cuh"

#define ENTRIES(T, t, B, stem)                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_##stem##bsr_##t(const T* values, const u32* row_ptr, const u32* col_idx, u32 dim, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                    \
        if (!open(gate) || row >= nrows) return;                                                 \
        BlockRows<T, B> m{values, col_idx, row_ptr, row_ptr + 1, dim, ncols, x};                 \
        T a = ca.value(), b = cb.value();                                                        \
        u32 block_row = (u32)row / m.size();                                                     \
        finish_row(a, m.row(block_row, (u32)row - block_row * m.size()), b, y + row);            \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_dot_##stem##bsr_##t(const T* values, const u32* row_ptr, const u32* col_idx, u32 dim, u64 nrows, u64 ncols, const T* x, T* y, const T* w, u32* arrivals, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                    \
        BlockRows<T, B> m{values, col_idx, row_ptr, row_ptr + 1, dim, ncols, x};                 \
        u32 block_row = (u32)row / m.size();                                                     \
        if (row < nrows) y[row] = m.row(block_row, (u32)row - block_row * m.size());             \
        dots_of_parts(y, w, nrows, blockDim.x, arrivals, tree);                                  \
    }
FOR_EACH_DIM(ENTRIES, float, f32)
FOR_EACH_DIM(ENTRIES, double, f64)

// Y = a A X + b Y, four columns at a time: the values of a row are read once for four columns.
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

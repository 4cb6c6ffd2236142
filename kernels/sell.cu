// SELL-C-sigma: products with a matrix in padded slices of sorted rows.
//
// Layout: entry k of lane l of slice s at (slice_ptr[s] + k)*c + l, as on the host; sorted row r is lane r % c of slice r / c and
// row perm[r] of y.
// Grid: one sorted row per thread: thread blocks of 256, spmv_few of 128. spmv_dot: 1024 rows per thread block of 256, four per thread in
// turn; spmv_dot_small: one per thread of thread blocks of 1024. Both only if perm keeps every block of 1024 rows together.
// invert_perm: one row per thread of thread blocks of 256; fill_from_csr: any number of thread blocks of 128, 32 CSR rows per warp at a time.
// Order: stored; padding is skipped.
// Bytes: columns of all positions except those behind the end of eight neighbouring rows, values of entries, perm, x, y once. spmv_few: values
// as columns.
// Persistent (cg_sell, bicgstab_sell): thread blocks take sorted rows; see include/persistent.cuh.
#include "ell.cuh"
#include "persistent.cuh"
#include "walk.cuh"

template <class T>
struct SellRows {
    const u32* slice_ptr;
    const u32* perm;
    const u32* cols;
    const T* values;
    u32 c;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return __ldg(perm + row); }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
#pragma unroll 1
        for (int i = 0; i < N; i++) {
            u64 r = row + i * step;
            // The loop is not unrolled; acc[i] is picked without a run-time index.
            T sum[1];
#pragma unroll
            for (int s = 0; s < N; s++)
                if (s == i) sum[0] = acc[s];
            if (r < nrows) {
                u32 slice = (u32)r / c, lane = (u32)r - slice * c;
                u32 from = __ldg(slice_ptr + slice), width = __ldg(slice_ptr + slice + 1) - from;
                // A slice is a packed part of c rows.
                add_packed(cols + (u64)from * c, values + (u64)from * c, (u64)c, width, (u64)lane, 0, x, sum);
            }
#pragma unroll
            for (int s = 0; s < N; s++)
                if (s == i) acc[s] = sum[0];
        }
    }
};

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_sell_##t(const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_each_row(SellRows<T>{slice_ptr, perm, cols, values, c, x}, nrows, a, b, y, gate);   \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(128) spmv_few_sell_##t(const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        u32 row = blockIdx.x * 128 + threadIdx.x;                                                \
        if (!open(gate) || row >= nrows) return;                                                 \
        u32 to = __ldg(perm + row), slice = row / c;                                             \
        u32 from = __ldg(slice_ptr + slice), width = __ldg(slice_ptr + slice + 1) - from;        \
        u64 at = (u64)from * c + (row - slice * c);                                              \
        T acc = packed_row(cols + at, values + at, c, width, x);                                 \
        finish_row(a.value(), acc, b.value(), y + to);                                           \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_dot_sell_##t(const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(SellRows<T>{slice_ptr, perm, cols, values, c, x}, nrows, y, w, tree, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024) spmv_dot_small_sell_##t(const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_each_row(SellRows<T>{slice_ptr, perm, cols, values, c, x}, nrows, y, w, tree, gate); \
    }
FOR_EACH_TYPE(ENTRIES)

// C columns of Y = a A X + b Y for one sorted row: each entry is read once for all of them.
template <class T, int C>
__device__ __forceinline__ void columns(const u32* cols, const T* values, u32 c, u32 width, const T* x, u64 ncols, T a, T b, T* y, u64 nrows) {
    T acc[C];
#pragma unroll
    for (int i = 0; i < C; i++) acc[i] = T(0);
#pragma unroll 2
    for (u32 k = 0; k < width; k++) {
        u32 j = __ldg(cols + (u64)k * c);
        if (j == PADDING) break;
        T v = __ldg(values + (u64)k * c);
#pragma unroll
        for (int i = 0; i < C; i++) acc[i] = fma_rn(v, __ldg(x + i * ncols + j), acc[i]);
    }
#pragma unroll
    for (int i = 0; i < C; i++) finish_row(a, acc[i], b, y + i * nrows);
}

template <class T>
__device__ __forceinline__ void spmm(const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u64 nrows, u64 ncols, u64 k, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) {
    u64 row = (u64)blockIdx.x * 256 + threadIdx.x;
    if (!open(gate) || row >= nrows) return;
    T a = ca.value(), b = cb.value();
    u32 slice = (u32)row / c, lane = (u32)row - slice * c;
    u32 from = __ldg(slice_ptr + slice), width = __ldg(slice_ptr + slice + 1) - from;
    cols += (u64)from * c + lane;
    values += (u64)from * c + lane;
    y += __ldg(perm + row);
    for (; k >= 8; k -= 8, x += 8 * ncols, y += 8 * nrows) columns<T, 8>(cols, values, c, width, x, ncols, a, b, y, nrows);
    if (k >= 4) {
        columns<T, 4>(cols, values, c, width, x, ncols, a, b, y, nrows);
        k -= 4, x += 4 * ncols, y += 4 * nrows;
    }
    if (k >= 2) {
        columns<T, 2>(cols, values, c, width, x, ncols, a, b, y, nrows);
        k -= 2, x += 2 * ncols, y += 2 * nrows;
    }
    if (k) columns<T, 1>(cols, values, c, width, x, ncols, a, b, y, nrows);
}

#define SPMM(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) spmm_sell_##t(const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u64 nrows, u64 ncols, u64 k, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmm(slice_ptr, perm, cols, values, c, nrows, ncols, k, a, x, b, y, gate);               \
    }
FOR_EACH_TYPE(SPMM)

#define KRYLOV(T, t) PERSISTENT(T, t, sell, (const u32* slice_ptr, const u32* perm, const u32* cols, const T* values, u32 c, u32 widest), (KeptPacked<T, SellPlaces>{{slice_ptr, perm, c, widest}, cols, values}))
FOR_EACH_TYPE(KRYLOV)
// CSR's rows are read in their order, so that entries lie side by side; stores go where sorting inside a window put the row.
template <class T>
struct FillSell {
    struct Row {
        u64 base;
        u32 width;
    };
    const u32* inverse;
    const u32* slice_ptr;
    u32 c;
    u32* cols;
    T* values;

    __device__ __forceinline__ Row open(u32 row) const {
        u32 r = __ldg(inverse + row), slice = r / c, from = __ldg(slice_ptr + slice);
        return {(u64)from * c + (r - slice * c), __ldg(slice_ptr + slice + 1) - from};
    }
    __device__ __forceinline__ void put(const Row& here, u32 e, u32 col, T value) const {
        u64 at = here.base + (u64)e * c;
        cols[at] = col;
        values[at] = value;
    }
    __device__ __forceinline__ void visit(Row& here, u32, u32 e, u32 col, T value) const { put(here, e, col, value); }
    __device__ __forceinline__ void close(const Row& here, u32, u32 len) const {
        for (u32 e = len; e < here.width; e++) put(here, e, PADDING, T(0));
    }
    // The lanes of the last slice that have no row. One thread block does this.
    __device__ __forceinline__ void pad(u32 nrows) const {
        u32 taken = nrows % c, slice = nrows / c;
        if (taken == 0) return;
        u32 from = __ldg(slice_ptr + slice), width = __ldg(slice_ptr + slice + 1) - from, spare = c - taken;
        for (u64 at = threadIdx.x; at < (u64)width * spare; at += blockDim.x) {
            u64 k = at / spare, to = (from + k) * c + taken + (at - k * spare);
            cols[to] = PADDING;
            values[to] = T(0);
        }
    }
};

#define FROM_CSR(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) invert_perm_sell_##t(const u32* perm, u32 nrows, u32* inverse) { \
        u32 row = blockIdx.x * blockDim.x + threadIdx.x;                                         \
        if (row < nrows) inverse[__ldg(perm + row)] = row;                                       \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) fill_from_csr_sell_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, const u32* inverse, const u32* slice_ptr, u32 c, u32* out_cols, T* out_values) { \
        FillSell<T> visitor{inverse, slice_ptr, c, out_cols, out_values};                        \
        walk_rows<T, true>(row_ptr, cols, values, nrows, visitor);                               \
        if (blockIdx.x == 0) visitor.pad(nrows);                                                 \
    }
FOR_EACH_TYPE(FROM_CSR)

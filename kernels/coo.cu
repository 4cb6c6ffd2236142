// COO: products with a matrix in coordinates.
//
// Layout: rows, cols, values of the entries, sorted by row, as on the host, padded with zeros to a multiple of four entries, so that 16
// bytes are read at a time. The parallel product cuts them into pieces of whole rows, pieces[i].x to .y, see include/pieces.cuh.
// Grid: spmv: see include/pieces.cuh. spmv_serial: one thread. spmv_stored, rows_from_csr: 32 rows per warp, 8 warps per thread block.
// Order: spmv: as include/pieces.cuh says. serial, stored: stored.
// Bytes: entries 8 + |T|, those of long rows 4 + |T|, x, y, 8 per piece, once. stored: 4 + |T|, row_ptr, x, y once.
#include "pieces.cuh"

// Rows by number. PADDING is the row of the positions behind the last entry of a piece.
template <class T>
struct NumberedEntries {
    const u32* __restrict__ rows;
    const u32* __restrict__ cols;
    const T* __restrict__ values;
    const uint2* __restrict__ pieces;

    __device__ __forceinline__ u32 row(const uint2& piece) const { return __ldg(rows + piece.x); }

    __device__ __forceinline__ void walk(const uint2& piece, T a, const T* x, T b, T* y) const {
        u32 begin = piece.x, end = piece.y, lane = threadIdx.x % WARP, open_row = PADDING;
        T carry = T(0);  // of the open row, from earlier steps
        auto close = [&](u32 row, T sum) {
            if (row != PADDING) finish_row(a, sum, b, y + row);
        };
        for (u32 base = begin / EACH * EACH; base < end; base += EACH * WARP) {
            u32 at = base + EACH * lane, from = at < end ? at : (end - 1) / EACH * EACH;
            Four<u32> r = load_four(rows + from);
            Four<T> v, of_x;
            take_four<T, true>(cols, values, 0, from, at, begin, end, x, v, of_x);
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (at + k >= end) r.of[k] = PADDING;
            // Positions before the piece add 0 to its first row.
#pragma unroll
            for (int k = EACH - 2; k >= 0; k--)
                if (at + k < begin) r.of[k] = r.of[k + 1];
            if (base <= begin) open_row = __shfl_sync(ALL, r.of[0], 0);
            // The lane's own entries: their first row may have begun before it, their last row may continue after it.
            T first = T(0), acc = fma_rn(v.of[0], of_x.of[0], T(0));
            bool whole = true;
#pragma unroll
            for (int k = 1; k < EACH; k++) {
                if (r.of[k] != r.of[k - 1]) {
                    if (whole) first = acc;
                    else close(r.of[k - 1], acc);
                    whole = false;
                    acc = T(0);
                }
                acc = fma_rn(v.of[k], of_x.of[k], acc);
            }
            u32 before = __shfl_up_sync(ALL, r.of[EACH - 1], 1);
            if (lane == 0) before = open_row;
            bool joins = before == r.of[0];
            if (lane == 0 && whole && joins) acc = carry + acc;
            T into = scan_rows(__ballot_sync(ALL, !(whole && joins)), acc, carry);
            if (!joins) close(before, into);
            if (!whole) close(r.of[0], joins ? into + first : first);
            open_row = __shfl_sync(ALL, r.of[EACH - 1], WARP - 1);
        }
        if (lane == 0) close(open_row, carry);
    }
};

// One thread, entry by entry: the reference for the parallel product.
template <class T>
__device__ __forceinline__ void spmv_serial(const u32* rows, const u32* cols, const T* values, u32 nnz, u64 nrows, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) {
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 at = 0;
    for (u64 row = 0; row < nrows; row++) {
        T acc = T(0);
        for (; at < nnz && rows[at] == row; at++) acc = fma_rn(values[at], x[cols[at]], acc);
        finish_row(a, acc, b, y + row);
    }
}

// Entries that a warp stages at a time.
#define STAGE 256

// Rows in stored order: a warp loads the entries of its 32 rows side by side, then every lane walks through its own row.
template <class T>
__device__ __forceinline__ void spmv_stored(const u32* __restrict__ row_ptr, const u32* __restrict__ cols, const T* __restrict__ values, u64 nrows, Coeff<T> ca, const T* __restrict__ x, Coeff<T> cb, T* y, const Monitor* gate) {
    __shared__ T staged_values[8][STAGE], staged_x[8][STAGE];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u64 first = ((u64)blockIdx.x * 8 + warp) * WARP, row = first + lane;
    if (!open(gate) || first >= nrows) return;  // whole warps
    u32 from = __ldg(row_ptr + (row < nrows ? row : nrows)), to = __ldg(row_ptr + (row < nrows ? row + 1 : nrows));
    u32 begin = __shfl_sync(ALL, from, 0), end = __shfl_sync(ALL, to, WARP - 1);
    T *v = staged_values[warp], *of_x = staged_x[warp];
    T acc = T(0);
    for (u32 base = begin; base < end; base += STAGE) {
        u32 j[STAGE / WARP];
        T value[STAGE / WARP], at_j[STAGE / WARP];
#pragma unroll
        for (int i = 0; i < STAGE / WARP; i++) {
            u32 e = base + i * WARP + lane;
            j[i] = e < end ? stream(cols + e) : PADDING;
        }
#pragma unroll
        for (int i = 0; i < STAGE / WARP; i++) {
            value[i] = j[i] != PADDING ? stream(values + base + i * WARP + lane) : T(0);
            at_j[i] = j[i] != PADDING ? __ldg(x + j[i]) : T(0);
        }
        __syncwarp();  // the lanes have read what was staged before
#pragma unroll
        for (int i = 0; i < STAGE / WARP; i++) {
            v[i * WARP + lane] = value[i];
            of_x[i * WARP + lane] = at_j[i];
        }
        __syncwarp();
        u32 low = from > base ? from - base : 0;
        u32 high = to > base ? to - base : 0;
        if (high > STAGE) high = STAGE;
#pragma unroll 4
        for (u32 e = low; e < high; e++) acc = fma_rn(v[e], of_x[e], acc);
    }
    if (row < nrows) finish_row(ca.value(), acc, cb.value(), y + row);
}

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_coo_##t(const u32* rows, const u32* cols, const T* values, const uint2* pieces, u32 count, u32 limit, const Part* parts, u32 part_count, T* sums, u32* tickets, const u32* empty, u32 empties, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_pieces(NumberedEntries<T>{rows, cols, values, pieces}, count, limit, parts, part_count, sums, tickets, empty, empties, a, x, b, y, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(32) spmv_serial_coo_##t(const u32* rows, const u32* cols, const T* values, u32 nnz, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_serial(rows, cols, values, nnz, nrows, a, x, b, y, gate);                           \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_stored_coo_##t(const u32* row_ptr, const u32* cols, const T* values, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_stored(row_ptr, cols, values, nrows, a, x, b, y, gate);                             \
    }
FOR_EACH_TYPE(ENTRIES)

// The row of each entry: a lane holds the end of a row, and lanes search these ends for the row of an entry.
__device__ __forceinline__ void rows_from_csr(const u32* row_ptr, u32 nrows, u32* rows) {
    u32 lane = threadIdx.x % WARP, group = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, first = group * WARP;
    if (first >= nrows) return;  // the whole warp
    u32 end = __ldg(row_ptr + (first + lane < nrows ? first + lane + 1 : nrows));
    u32 last = __shfl_sync(ALL, end, WARP - 1);
    for (u32 from = __ldg(row_ptr + first); from < last; from += WARP) {
        u32 at = from + lane, before = 0;
#pragma unroll
        for (u32 d = WARP / 2; d > 0; d /= 2)
            if (__shfl_sync(ALL, end, before + d - 1) <= at) before += d;
        if (at < last) rows[at] = first + before;
    }
}

#define FROM_CSR(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) rows_from_csr_coo_##t(const u32* row_ptr, u32 nrows, u32* rows) { \
        rows_from_csr(row_ptr, nrows, rows);                                                     \
    }
FOR_EACH_TYPE(FROM_CSR)

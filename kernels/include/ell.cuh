// Packed rows: what ELL, HYB, HEC and HMEC have in common, and the rows of a matrix whose packed rows continue in a tail.
//
// Layout: entry k of row r of a packed part at r + rows*k, PADDING to the right. A tail is a run of (column, value).
// Order: stored if one thread forms a row; a heavy row is formed by a warp or a thread block of n threads, each taking every
// 32nd (n-th) entry of the packed part, then of the tail, with the halving tree over the lanes, then the warps in turn.
#pragma once
#include "spandrel.cuh"

// Adds the packed entries of row + i*step to acc[i]; rows from `rows` on have none. Eight entries are in flight: first their
// columns, then values and x if the columns are entries; if a warp meets no padding, there is no test between the loads.
template <class T, int N>
__device__ __forceinline__ void add_packed(const u32* __restrict__ cols, const T* __restrict__ values, u64 rows, u32 width, u64 row, u32 step, const T* __restrict__ x, T (&acc)[N]) {
    constexpr int U = 8 / N;
    if (row >= rows) return;
    u32 left = (u32)rows - (u32)row;  // rows < 2^31
    bool inside = (N - 1) * step < left;
    cols += row;
    values += row;
    for (u32 k = 0; k < width; k += U) {
        u32 j[U][N];
        T v[U][N], at[U][N];
        bool full = inside && width - k >= U;
        if (full) {
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++) j[u][i] = stream(cols + u * rows + i * step);
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++) full = full && j[u][i] != PADDING;
        } else {
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++) {
                    j[u][i] = PADDING;
                    if (k + u < width && i * step < left) j[u][i] = stream(cols + u * rows + i * step);
                }
        }
        // One path for the whole warp: lanes on both would wait for each other's loads.
        if (__all_sync(__activemask(), full)) {
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++) {
                    v[u][i] = stream(values + u * rows + i * step);
                    at[u][i] = __ldg(x + j[u][i]);
                }
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++) acc[i] = fma_rn(v[u][i], at[u][i], acc[i]);
        } else {
            bool ended = true;
#pragma unroll
            for (int i = 0; i < N; i++) ended = ended && j[0][i] == PADDING;
            if (ended) break;
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (j[u][i] != PADDING) {
                        v[u][i] = stream(values + u * rows + i * step);
                        at[u][i] = __ldg(x + j[u][i]);
                    }
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    if (j[u][i] != PADDING) acc[i] = fma_rn(v[u][i], at[u][i], acc[i]);
        }
        cols += U * rows;
        values += U * rows;
    }
}

// acc and the entries from, from + step, ... before `to`, one after the other, with four in flight.
template <class T>
__device__ __forceinline__ T add_entries(const u32* __restrict__ cols, const T* __restrict__ values, u32 from, u32 to, u32 step, const T* __restrict__ x, T acc) {
    u32 at = from;
    for (; at < to && to - at > 3 * step; at += 4 * step) {
        u32 j[4];
        T v[4], of_x[4];
#pragma unroll
        for (int u = 0; u < 4; u++) j[u] = __ldg(cols + at + u * step);
#pragma unroll
        for (int u = 0; u < 4; u++) v[u] = __ldg(values + at + u * step);
#pragma unroll
        for (int u = 0; u < 4; u++) of_x[u] = __ldg(x + j[u]);
#pragma unroll
        for (int u = 0; u < 4; u++) acc = fma_rn(v[u], of_x[u], acc);
    }
    for (; at < to; at += step) acc = fma_rn(__ldg(values + at), __ldg(x + __ldg(cols + at)), acc);
    return acc;
}

// acc and the packed entries who, who + of, ... of a row.
template <class T>
__device__ __forceinline__ T add_packed_part(const u32* __restrict__ cols, const T* __restrict__ values, u64 rows, u32 width, u64 row, u32 who, u32 of, const T* __restrict__ x, T acc) {
#pragma unroll 2
    for (u32 k = who; k < width; k += of) {
        u32 j = __ldg(cols + row + rows * k);
        if (j == PADDING) break;
        acc = fma_rn(__ldg(values + row + rows * k), __ldg(x + j), acc);
    }
    return acc;
}

// acc and N places of a row, whose j and v are in flight: first, first + step, ... as far as they are before `end` and no padding. Otherwise
// x[0] is loaded, so that no branch separates the loads.
template <class T, int N>
__device__ __forceinline__ T add_under_way(const u32 (&j)[N], const T (&v)[N], u32 first, u32 step, u32 end, const T* x, T acc) {
    T of_x[N];
    issued();
#pragma unroll
    for (int u = 0; u < N; u++) of_x[u] = __ldg(x + (j[u] == PADDING ? 0 : j[u]));
    issued();
#pragma unroll
    for (int u = 0; u < N; u++) {
        T sum = fma_rn(v[u], of_x[u], acc);
        if (j[u] != PADDING && first + u * step < end) acc = sum;
    }
    return acc;
}

// The sum of one row in stored order, AHEAD places at once, for matrices with too few rows to hide a wait. Past the end the
// last place is loaded again, and not added.
template <class T, int AHEAD>
__device__ __forceinline__ T packed_row(const u32* __restrict__ cols, const T* __restrict__ values, u64 rows, u32 width, const T* __restrict__ x) {
    T acc = T(0);
    for (u32 first = 0; first < width; first += AHEAD) {
        u32 j[AHEAD];
        T v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            u64 at = min(first + u, width - 1) * rows;
            j[u] = stream(cols + at);
            v[u] = stream(values + at);
        }
        acc = add_under_way(j, v, first, 1, width, x, acc);
        if (j[AHEAD - 1] == PADDING) break;
    }
    return acc;
}

// The same with the number of places that pays.
template <class T>
__device__ __forceinline__ T packed_row(const u32* cols, const T* values, u64 rows, u32 width, const T* x) {
    return width <= 8 ? packed_row<T, 8>(cols, values, rows, width, x) : packed_row<T, 16>(cols, values, rows, width, x);
}

// y = a A x + b y, one row per thread: for matrices that four rows per thread would not spread over the device.
template <class T, class Rows>
__device__ __forceinline__ void spmv_each_row(const Rows& m, u64 nrows, Coeff<T> ca, Coeff<T> cb, T* y, const Monitor* gate) {
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (!open(gate) || row >= nrows) return;
    T a = ca.value(), b = cb.value();
    T acc[1] = {T(0)};
    m.accumulate(row, 0, nrows, acc);
    finish_row(a, acc[0], b, y + m.target(row));
}

// As spmv_dot_rows, with one row per thread in thread blocks of 1024.
template <class T, class Rows>
__device__ __forceinline__ void spmv_dot_each_row(const Rows& m, u64 nrows, T* y, const T* w, Tree<T> tree, const Monitor* gate) {
    __shared__ T shared_y[BLOCK];
    if (!open(gate)) return;
    u64 first = (u64)blockIdx.x * BLOCK, row = first + threadIdx.x;
    if (row < nrows) {
        T acc[1] = {T(0)};
        m.accumulate(row, 0, nrows, acc);
        u64 to = m.target(row);
        y[to] = acc[0];
        shared_y[to - first] = acc[0];
    }
    __syncthreads();
    if (threadIdx.x < WARP) block_dots(shared_y, w + first, first, nrows, tree);
}

// y = a A x + b y for rows with tails. `Rows` has, in addition to accumulate and target,
//   u64 heavy_row(u32 i) const         the rows that one thread does not form, the `longs` longest first
//   bool is_heavy(u64 row) const
//   u64 first_light() const            a row such that all before it are heavy, a multiple of 32
//   T part(u64 row, u32 who, u32 of)   the sum of a thread's share of a row
// Grid: thread blocks of at most 256: one for each of the `longs` rows, then one warp for each further heavy row, then one thread
// for each row from first_light on.
template <class T, class Rows>
__device__ __forceinline__ void spmv_tailed_rows(const Rows& m, u64 nrows, u32 longs, u32 heavy, Coeff<T> ca, Coeff<T> cb, T* y, const Monitor* gate) {
    __shared__ T sums[256 / WARP];
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 block = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    if (block < longs) {
        u64 row = m.heavy_row(block);
        T acc = halve(m.part(row, threadIdx.x, blockDim.x));
        if (lane == 0) sums[warp] = acc;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u32 i = 1; i < warps; i++) acc += sums[i];
            finish_row(a, acc, b, y + m.target(row));
        }
        return;
    }
    block -= longs;
    u32 of_warps = (heavy - longs + warps - 1) / warps;
    if (block < of_warps) {
        u32 i = longs + block * warps + warp;
        if (i >= heavy) return;
        u64 row = m.heavy_row(i);
        T acc = halve(m.part(row, lane, WARP));
        if (lane == 0) finish_row(a, acc, b, y + m.target(row));
        return;
    }
    block -= of_warps;
    u64 row = m.first_light() + (u64)block * blockDim.x + threadIdx.x;
    if (row >= nrows || (heavy && m.is_heavy(row))) return;
    T acc[1] = {T(0)};
    m.accumulate(row, 0, nrows, acc);
    finish_row(a, acc[0], b, y + m.target(row));
}

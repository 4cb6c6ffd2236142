// Products by pieces of whole rows: one warp each, long rows in parts, empty rows by a list. COO and the balanced CSR share this; they differ
// in how an entry finds its row.
//
// Layout: columns and values of the entries, those of a row side by side; if PADDED, padded to a multiple of four entries. A piece of more than `limit`
// entries is one row, and longer rows come in parts (include/parts.cuh); `empty` lists the rows without entries.
// Grid: thread blocks of 256, or of 128 if no row comes in parts: one for each part, then one warp for each piece, then four empty rows per
// thread.
// Order: a piece: from a multiple of four on, four entries one after the other, these by a segmented scan over the lanes, the steps of the
// warp in turn; a row that is a piece: every 32nd entry by fma, the halving tree over the lanes; a part: the same with every 256th, the warps in turn.
#pragma once
#include "parts.cuh"

// Entries of a lane in one step.
#define EACH 4

template <class T>
struct Four {
    T of[4];
};
__device__ __forceinline__ Four<u32> load_four(const u32* p) {
    uint4 v = __ldcs((const uint4*)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Four<float> load_four(const float* p) {
    float4 v = __ldcs((const float4*)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Four<double> load_four(const double* p) {
    double2 v = __ldcs((const double2*)p), w = __ldcs((const double2*)p + 1);
    return {v.x, v.y, w.x, w.y};
}

// The lane's entries of a step of a piece, from `at` on. They are read from `from` on, also behind the piece, but not past the `nnz` of all
// entries unless these are padded. Entries not between `begin` and `end` count as 0.
template <class T, bool PADDED>
__device__ __forceinline__ void take_four(const u32* cols, const T* values, u32 nnz, u32 from, u32 at, u32 begin, u32 end, const T* x, Four<T>& v, Four<T>& of_x) {
    Four<u32> j;
    if (PADDED || from + EACH <= nnz) {
        j = load_four(cols + from);
        v = load_four(values + from);
    } else {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            u32 e = min(from + k, nnz - 1);
            j.of[k] = stream(cols + e);
            v.of[k] = stream(values + e);
        }
    }
    issued();
#pragma unroll
    for (int k = 0; k < EACH; k++) of_x.of[k] = __ldg(x + j.of[k]);
    issued();
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        bool mine = at + k >= begin && at + k < end;
        of_x.of[k] = mine ? of_x.of[k] : T(0);
        v.of[k] = mine ? v.of[k] : T(0);
    }
}

// `acc`: the sums of the lanes' last rows, which are scanned over the lanes of the same row. `starts`: the lanes in which a row begins.
// Returns the sum up to the previous lane; in lane 0 `carry`, which becomes the last lane's.
template <class T>
__device__ __forceinline__ T scan_rows(u32 starts, T acc, T& carry) {
    u32 lane = threadIdx.x % WARP;
    starts &= ALL >> (WARP - 1 - lane);
    u32 reach = starts ? lane - (WARP - 1 - __clz(starts)) : lane;  // lanes before this one in its last row
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        T other = __shfl_up_sync(ALL, acc, d);
        if (d <= reach) acc = other + acc;
    }
    T into = __shfl_up_sync(ALL, acc, 1);
    if (lane == 0) into = carry;
    carry = __shfl_sync(ALL, acc, WARP - 1);
    return into;
}

// The entries from, from + step, ... before `end` of one row, AHEAD requested at once; past the end the last one again, which is not added.
template <class T, int AHEAD>
__device__ __forceinline__ T add_share(u32 from, u32 end, u32 step, const u32* cols, const T* values, const T* x) {
    T acc = T(0);
    for (u32 e = from; e < end; e += AHEAD * step) {
        u32 j[AHEAD];
        T v[AHEAD], of_x[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 at = min(e + i * step, end - 1);
            j[i] = stream(cols + at);
            v[i] = stream(values + at);
        }
        issued();
#pragma unroll
        for (int i = 0; i < AHEAD; i++) of_x[i] = __ldg(x + j[i]);
        issued();
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            T sum = fma_rn(v[i], of_x[i], acc);
            if (e + i * step < end) acc = sum;
        }
    }
    __syncwarp();
    return acc;
}

// Entries of a one-row piece that each lane requests at once.
#define SHARE_AHEAD 8

// A part of a long row. A whole thread block of 256 calls this.
template <class T>
__device__ __forceinline__ void spmv_part(const Part& part, u32 at, const u32* cols, const T* values, T* sums, u32* tickets, T a, const T* x, T b, T* y) {
    __shared__ T warp_sum[256 / WARP];
    T acc = halve(add_share<T, SHARE_AHEAD>(part.begin + threadIdx.x, part.end, 256, cols, values, x));
    if (threadIdx.x % WARP == 0) warp_sum[threadIdx.x / WARP] = acc;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 1; i < 256 / WARP; i++) acc += warp_sum[i];
    }
    if (part.count > 1 && !last_part(part, at, acc, sums, tickets)) return;
    if (threadIdx.x == 0) finish_row(a, acc, b, y + part.row);
}

// y = a A x + b y. `Entries` has `cols`, `values` and `pieces`, whose .x and .y are the first entry and the one past the last, and
//   void walk(Piece, T a, const T* x, T b, T* y) const   the rows of a piece, by a whole warp
//   u32 row(Piece) const                                 the row of a piece that is one row
template <class T, class Entries>
__device__ __forceinline__ void spmv_pieces(const Entries& m, u32 count, u32 limit, const Part* __restrict__ parts, u32 part_count, T* sums, u32* tickets, const u32* __restrict__ empty, u32 empties, const Coeff<T>& ca, const T* __restrict__ x, const Coeff<T>& cb, T* y, const Monitor* gate) {
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 block = blockIdx.x;
    if (block < part_count) {
        spmv_part(parts[block], block, m.cols, m.values, sums, tickets, a, x, b, y);
        return;
    }
    block -= part_count;
    u32 warps = blockDim.x / WARP, of_pieces = (count + warps - 1) / warps, lane = threadIdx.x % WARP;
    if (block < of_pieces) {
        u32 mine = block * warps + threadIdx.x / WARP;
        if (mine >= count) return;  // whole warps
        auto piece = __ldg(m.pieces + mine);
        if (piece.y - piece.x <= limit) {
            m.walk(piece, a, x, b, y);
            return;
        }
        T acc = halve(add_share<T, SHARE_AHEAD>(piece.x + lane, piece.y, WARP, m.cols, m.values, x));
        if (lane == 0) finish_row(a, acc, b, y + m.row(piece));
        return;
    }
    block -= of_pieces;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 i = (block * 4 + k) * blockDim.x + threadIdx.x;
        if (i < empties) finish_row(a, T(0), b, y + __ldg(empty + i));
    }
}

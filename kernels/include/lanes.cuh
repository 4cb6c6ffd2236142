// Packed rows that continue in a tail, several lanes per row: what HYB, HEC and HMEC share if a few long rows must fill the device and
// no order is required.
//
// Layout: packed blocks and tails in one array of columns and one of values, of fewer than 2^32 places.
// Grid: thread blocks of 256: one for each of the `longs` rows, then one warp for each further heavy row, then 256 >> shift rows each.
// Order: n lanes take every n-th place of a row, packed part and tail as one, by fma; the halving tree over those of a warp, then the warps
// in turn.
#pragma once
#include "ell.cuh"

// Places that each lane requests at once. With eight, lanes of few places lose more on missing places than they gain.
#define PLACES_AHEAD 4

// Where a row's places lie: place k before end[i] at start[i] + stride[i] * k, for the first such i, the others at tail + k.
template <int BLOCKS>
struct Places {
    u32 start[BLOCKS], stride[BLOCKS], end[BLOCKS], tail, total;
};

// The sum of the places who, who + of, ... of a row.
template <class T, int BLOCKS>
__device__ __forceinline__ T add_places(const u32* __restrict__ cols, const T* __restrict__ values, const Places<BLOCKS>& row, u32 who, u32 of, const T* __restrict__ x) {
    T acc = T(0);
    for (u32 first = who; first < row.total; first += PLACES_AHEAD * of) {
        u32 j[PLACES_AHEAD];
        T v[PLACES_AHEAD];
#pragma unroll
        for (int u = 0; u < PLACES_AHEAD; u++) {
            u32 k = min(first + u * of, row.total - 1);  // past the end, the last place again, which is not added
            u32 at = row.tail + k;
#pragma unroll
            for (int i = BLOCKS - 1; i >= 0; i--) at = k < row.end[i] ? row.start[i] + row.stride[i] * k : at;
            j[u] = stream(cols + at);
            v[u] = stream(values + at);
        }
        acc = add_under_way(j, v, first, of, row.total, x, acc);
    }
    return acc;
}

// y = a A x + b y. `Rows` gives
//   u32 heavy_row(u32 i) const         the rows that get more lanes than a light row, the `longs` longest first
//   bool is_heavy(u32 row) const
//   u32 first_light() const            a row such that all before it are heavy, a multiple of 32
//   u32 target(u32 row) const          the row of y that a stored row is
//   Places<BLOCKS> places(u32 row) const
template <class T, class Rows>
__device__ __forceinline__ void spmv_lanes_rows(const Rows& m, const u32* cols, const T* values, u32 nrows, u32 longs, u32 heavy, u32 shift, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, T* y, const Monitor* gate) {
    __shared__ T sums[256];
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 block = blockIdx.x, tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP;
    u32 of_warps = (heavy - longs + 7) / 8;
    if (block >= longs && block < longs + of_warps) {
        u32 i = longs + (block - longs) * 8 + warp;
        if (i >= heavy) return;  // whole warps
        u32 row = m.heavy_row(i), to = m.target(row);
        T acc = add_places(cols, values, m.places(row), lane, WARP, x);
        __syncwarp();
        acc = halve(acc);
        if (lane == 0) finish_row(a, acc, b, y + to);
        return;
    }
    // 256 >> shift rows of this thread block, each by every `rows`-th thread; a long row has the block to itself.
    bool alone = block < longs;
    u32 rows = alone ? 1 : 256u >> shift, at = alone ? 0 : tid & (rows - 1), who = alone ? tid : tid >> (8 - shift);
    u32 row = alone ? m.heavy_row(block) : m.first_light() + (block - longs - of_warps) * rows + at;
    bool mine = alone || (row < nrows && !(heavy && m.is_heavy(row)));
    u32 to = mine ? m.target(row) : 0;
    T acc = T(0);
    if (mine) acc = add_places(cols, values, m.places(row), who, 256 / rows, x);
    __syncwarp();
    for (u32 d = WARP / 2; d >= rows; d /= 2) acc += __shfl_down_sync(ALL, acc, d);
    u32 of_warp = min(rows, (u32)WARP);  // the lanes of a warp that hold the sum of a row
    if (lane < of_warp) sums[warp * of_warp + lane] = acc;
    __syncthreads();
    if (tid >= rows || !mine) return;
    for (u32 i = 1; i < 256 / WARP * of_warp / rows; i++) acc += sums[tid + i * rows];
    finish_row(a, acc, b, y + to);
}

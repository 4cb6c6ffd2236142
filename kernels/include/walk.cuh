// A walk over the rows of a CSR matrix that computes something from each: a warp copies 32 rows to shared memory as they lie, side by
// side. Then each lane walks its row. Rows of similar length write to neighbouring places in the same step. If rows together
// have more than SPAN entries, eight of each are copied at once; rows longer than LONG_ROW are left to all lanes together.
//
// A visitor has
//   struct Row                                                    what it remembers of a row; for a long row, each lane separately
//   Row open(u32 row)
//   void visit(Row& here, u32 row, u32 e, u32 col, T value)       entry e of the row; e ascends in each lane
//   void close(const Row& here, u32 row, u32 len)                 after the last entry; in one lane
// and is called only for rows below nrows. A visitor sees nothing of what other lanes do.
#pragma once
#include "spandrel.cuh"

#define WALK_THREADS 128
#define WALK_CHUNK 8
#define LONG_ROW 512u
// Entries for which a warp has room: 28 per row.
#define SPAN 896u
// Entries that a lane has in flight.
#define WALK_AHEAD 8

template <class T, bool VALUES>
struct WalkTile {
    u32 cols[SPAN];
    T values[VALUES ? SPAN : 1];
};

// VALUES: whether values are read at all. BELOW: in rows that are not long, only the entries below the diagonal and a few after them are
// visited. Grid: any number of thread blocks of WALK_THREADS.
template <class T, bool VALUES, bool BELOW = false, class Visitor>
__device__ __forceinline__ void walk_rows(const u32* __restrict__ row_ptr, const u32* __restrict__ cols, const T* __restrict__ values, u32 nrows, Visitor& visitor) {
    __shared__ WalkTile<T, VALUES> tiles[WALK_THREADS / WARP];
    WalkTile<T, VALUES>& tile = tiles[threadIdx.x / WARP];
    u32 lane = threadIdx.x % WARP, groups = nrows / WARP + (nrows % WARP != 0);
    u32 warp = blockIdx.x * (WALK_THREADS / WARP) + threadIdx.x / WARP, warps = gridDim.x * (WALK_THREADS / WARP);
    for (u32 group = warp; group < groups; group += warps) {
        u32 row = group * WARP + lane, begin = 0, len = 0;
        typename Visitor::Row here = {};
        if (row < nrows) {
            begin = __ldg(row_ptr + row);
            len = __ldg(row_ptr + row + 1) - begin;
            here = visitor.open(row);
        }
        u32 of_all = __shfl_sync(ALL, begin, 0), span = __shfl_sync(ALL, begin + len, group * WARP + WARP <= nrows ? WARP - 1 : nrows % WARP - 1) - of_all;
        if (span <= SPAN) {
            __syncwarp();  // the previous rows have been read
            for (u32 from = lane; from < span; from += WARP * WALK_AHEAD) {
                u32 col[WALK_AHEAD];
                T value[WALK_AHEAD];
#pragma unroll
                for (u32 i = 0; i < WALK_AHEAD; i++) {
                    u32 e = from + i * WARP;
                    col[i] = e < span ? __ldg(cols + of_all + e) : 0;
                    if (VALUES) value[i] = e < span ? __ldg(values + of_all + e) : T(0);
                }
#pragma unroll
                for (u32 i = 0; i < WALK_AHEAD; i++) {
                    u32 e = from + i * WARP;
                    if (e >= span) continue;
                    tile.cols[e] = col[i];
                    if (VALUES) tile.values[e] = value[i];
                }
            }
            __syncwarp();
            u32 mine = begin - of_all;
            for (u32 e = 0; e < len; e++) {
                u32 col = tile.cols[mine + e];
                if (BELOW && col >= row) break;
                visitor.visit(here, row, e, col, VALUES ? tile.values[mine + e] : T(0));
            }
            if (row < nrows) visitor.close(here, row, len);
            continue;
        }
        u32 shorter = len > LONG_ROW ? 0 : len, longest = shorter;
#pragma unroll
        for (int d = WARP / 2; d > 0; d /= 2) {
            u32 other = __shfl_xor_sync(ALL, longest, d);
            longest = other > longest ? other : longest;
        }
        for (u32 from = 0; from < longest; from += WALK_CHUNK) {
            u32 col[WALK_CHUNK];
            T value[WALK_CHUNK];
            u32 e = from + lane % WALK_CHUNK;
#pragma unroll
            for (u32 t = 0; t < WALK_CHUNK; t++) {
                u32 source = t * (WARP / WALK_CHUNK) + lane / WALK_CHUNK;
                u32 first = __shfl_sync(ALL, begin, source), count = __shfl_sync(ALL, shorter, source);
                bool there = e < count;
                col[t] = there ? __ldg(cols + first + e) : 0;
                if (VALUES) value[t] = there ? __ldg(values + first + e) : T(0);
            }
            __syncwarp();  // the previous chunk has been read
#pragma unroll
            for (u32 t = 0; t < WALK_CHUNK; t++) {
                u32 at = (t * (WARP / WALK_CHUNK) + lane / WALK_CHUNK) * (WALK_CHUNK + 1) + lane % WALK_CHUNK;
                tile.cols[at] = col[t];
                if (VALUES) tile.values[at] = value[t];
            }
            __syncwarp();
#pragma unroll
            for (u32 k = 0; k < WALK_CHUNK; k++) {
                u32 at = lane * (WALK_CHUNK + 1) + k;
                if (from + k < shorter) visitor.visit(here, row, from + k, tile.cols[at], VALUES ? tile.values[at] : T(0));
            }
            if (BELOW) {
                bool more = from + WALK_CHUNK < shorter && tile.cols[lane * (WALK_CHUNK + 1) + WALK_CHUNK - 1] < row;
                if (!more) shorter = 0;
                if (!__any_sync(ALL, more)) break;
            }
        }
        // Uniform in the warp: every lane sees the same ballot.
        for (u32 left = __ballot_sync(ALL, len > LONG_ROW); left; left &= left - 1) {
            int source = __ffs(left) - 1;
            u32 first = __shfl_sync(ALL, begin, source), count = __shfl_sync(ALL, len, source), which = group * WARP + source;
            typename Visitor::Row mine = visitor.open(which);
            for (u32 e = lane; e < count; e += WARP)
                visitor.visit(mine, which, e, __ldg(cols + first + e), VALUES ? __ldg(values + first + e) : T(0));
        }
        if (row < nrows) visitor.close(here, row, len);
    }
}

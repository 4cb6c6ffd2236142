// Products by pieces of whole rows where a bit an entry says whether a row begins with it: rows of any lengths, in one launch.
//
// Layout: entry e begins a row if bit e % 32 of marks[e / 32] is set. pieces[i]: entries .x to .y, whole rows, of which .z is the first
// among those that have entries; `rows` lists these, null where all rows have. A piece of more than `limit` entries is one row, longer ones
// come in parts; `empty` lists the rows without entries.
// Grid: thread blocks of 256, or of 128 where no row comes in parts: one for each part, then a warp for each piece, then four empty rows a
// thread.
// Order: from a multiple of four on, four entries one after the other, these by a segmented scan over the lanes, the steps of a warp in turn;
// a row by itself: every 32nd entry by fma, the halving tree over the lanes; parts as include/pieces.cuh and parts.cuh say.
#pragma once
#include "pieces.cuh"

// A piece. Whole warp.
template <class T>
__device__ __forceinline__ void marked_piece(const u32* marks, const u32* cols, const T* values, const uint4& piece, const u32* rows, T a, const T* x, T b, T* y) {
    u32 begin = piece.x, end = piece.y, lane = threadIdx.x % WARP, below = (1u << lane) - 1;
    u32 open_row = piece.z - 1;  // none yet
    T carry = T(0);              // of the open row, from the steps before
    auto close = [&](u32 i, T sum) { finish_row(a, sum, b, y + (rows ? __ldg(rows + i) : i)); };
    for (u32 base = begin / EACH * EACH; base < end; base += EACH * WARP) {
        u32 at = base + EACH * lane, from = at < end ? at : (end - 1) / EACH * EACH;
        u32 bits = __ldg(marks + from / 32);
        Four<u32> j = load_four(cols + from);
        Four<T> v = load_four(values + from), of_x;
        issued();
#pragma unroll
        for (int k = 0; k < EACH; k++) of_x.of[k] = __ldg(x + j.of[k]);
        issued();
        u32 begins = 0;  // bit k: a row of the piece begins with the lane's entry k
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            bool mine = at + k >= begin && at + k < end;
            of_x.of[k] = mine ? of_x.of[k] : T(0);
            v.of[k] = mine ? v.of[k] : T(0);
            if (mine) begins |= bits >> at % 32 & 1u << k;
        }
        u32 row = open_row, some = 0;  // the row open before the lane; lanes in which rows begin
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            u32 with = __ballot_sync(ALL, begins >> k & 1);
            row += __popc(with & below);
            open_row += __popc(with);
            some |= with;
        }
        // The lane's own: what comes before the first row that begins in it, whole rows, and the begin of one that may go on behind it.
        T first = T(0), acc = T(0);
        bool whole = true;
        u32 own = row;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (begins >> k & 1) {
                if (whole) first = acc;
                else close(own, acc);
                whole = false;
                own++;
                acc = T(0);
            }
            acc = fma_rn(v.of[k], of_x.of[k], acc);
        }
        if (lane == 0 && whole) acc = carry + acc;
        // Sums of the lanes' last rows up to each lane.
        u32 starts = some & (ALL >> (WARP - 1 - lane));
        u32 reach = starts ? lane - (WARP - 1 - __clz(starts)) : lane;  // lanes before this one in its last row
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            T other = __shfl_up_sync(ALL, acc, d);
            if (d <= reach) acc = other + acc;
        }
        T into = __shfl_up_sync(ALL, acc, 1);
        if (lane == 0) into = carry;
        if (!whole && row + 1 != piece.z) close(row, into + first);
        carry = __shfl_sync(ALL, acc, WARP - 1);
    }
    if (lane == 0) close(open_row, carry);
}

// y = a A x + b y.
template <class T>
__device__ __forceinline__ void spmv_marked(const u32* __restrict__ marks, const u32* __restrict__ cols, const T* __restrict__ values, const uint4* __restrict__ pieces, u32 count, u32 limit, const Part* __restrict__ parts, u32 part_count, T* sums, u32* tickets, const u32* __restrict__ rows, const u32* __restrict__ empty, u32 empties, const Coeff<T>& ca, const T* __restrict__ x, const Coeff<T>& cb, T* y, const Monitor* gate) {
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 block = blockIdx.x;
    if (block < part_count) {
        spmv_part(parts[block], block, cols, values, sums, tickets, a, x, b, y);
        return;
    }
    block -= part_count;
    u32 warps = blockDim.x / WARP, of_pieces = (count + warps - 1) / warps;
    if (block < of_pieces) {
        u32 mine = block * warps + threadIdx.x / WARP;
        if (mine >= count) return;  // whole warps
        uint4 piece = __ldg(pieces + mine);
        if (piece.y - piece.x <= limit) {
            marked_piece(marks, cols, values, piece, rows, a, x, b, y);
            return;
        }
        T acc = halve(add_share<T, WARP>(piece.x, piece.y, threadIdx.x % WARP, cols, values, x));
        if (threadIdx.x % WARP == 0) finish_row(a, acc, b, y + (rows ? __ldg(rows + piece.z) : piece.z));
        return;
    }
    block -= of_pieces;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 i = (block * 4 + k) * blockDim.x + threadIdx.x;
        if (i < empties) finish_row(a, T(0), b, y + __ldg(empty + i));
    }
}

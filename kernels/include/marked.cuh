// Pieces of whole rows where one bit per entry says whether a row begins with it: rows of any lengths, without a row number per entry.
//
// Layout: entry e begins a row if bit e % 32 of marks[e / 32] is set. pieces[i].z is the first row of the piece among those that have
// entries; `rows` lists these, null if all rows have entries.
// Grid, order: see include/pieces.cuh.
#pragma once
#include "pieces.cuh"

template <class T>
struct MarkedEntries {
    const u32* __restrict__ marks;
    const u32* __restrict__ rows;
    const u32* __restrict__ cols;
    const T* __restrict__ values;
    u32 nnz;
    const uint4* __restrict__ pieces;

    // The i-th row that has entries.
    __device__ __forceinline__ u32 ranked(u32 i) const { return rows ? __ldg(rows + i) : i; }
    __device__ __forceinline__ u32 row(const uint4& piece) const { return ranked(piece.z); }

    __device__ __forceinline__ void walk(const uint4& piece, T a, const T* x, T b, T* y) const {
        u32 begin = piece.x, end = piece.y, lane = threadIdx.x % WARP, below = (1u << lane) - 1;
        u32 open_row = piece.z - 1;  // no row is open yet
        T carry = T(0);              // of the open row, from earlier steps
        auto close = [&](u32 i, T sum) { finish_row(a, sum, b, y + ranked(i)); };
        for (u32 base = begin / EACH * EACH; base < end; base += EACH * WARP) {
            u32 at = base + EACH * lane, from = at < end ? at : (end - 1) / EACH * EACH;
            u32 bits = __ldg(marks + from / 32);
            Four<T> v, of_x;
            take_four<T, false>(cols, values, nnz, from, at, begin, end, x, v, of_x);
            u32 begins = 0;  // bit k: a row of the piece begins with the lane's entry k
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (at + k >= begin && at + k < end) begins |= bits >> at % 32 & 1u << k;
            u32 row = open_row, some = 0;  // the row open before the lane; the lanes in which rows begin
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                u32 with = __ballot_sync(ALL, begins >> k & 1);
                row += __popc(with & below);
                open_row += __popc(with);
                some |= with;
            }
            // The lane's own entries: those before the first row that begins here, whole rows, and the beginning of one that may go on.
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
            T into = scan_rows(some, acc, carry);
            if (!whole && row + 1 != piece.z) close(row, into + first);
        }
        if (lane == 0) close(open_row, carry);
    }
};

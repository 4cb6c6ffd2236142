// Compares the rows of a CSR matrix with one side of a stencil on a grid: where a column is, and what is reported.
//
// Layout: the side of a row is its entries on one side of the diagonal, including the diagonal's: the first ones of a row for a lower
// triangle, the last ones for an upper one. Reports: a word each, 0 for none, else the complement of the smallest row (of what is outside: row,
// then column, 32 bits each), so that zeroed words are ready and the largest wins: OUTSIDE, LACKING, WITHOUT_DIAGONAL, ZERO_DIAGONAL.
#pragma once
#include "spandrel.cuh"

// The most differences of one side, including its diagonal.
#define SIDE_MOST 41
#define GRID_THREADS 256

#define OUTSIDE 0
#define LACKING 1
#define WITHOUT_DIAGONAL 2
#define ZERO_DIAGONAL 3
#define NO_ROW 0xffffffffu

// Keeps the smallest row (in the high half).
__device__ __forceinline__ void report(u64* word, u64 key) {
    if (~key > *(volatile u64*)word) atomicMax(word, ~key);
}

// As `report` for the smallest of the warp's rows, NO_ROW for none. The whole warp calls this.
__device__ __forceinline__ void report_least(u64* word, u32 row) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        u32 other = __shfl_xor_sync(ALL, row, d);
        if (other < row) row = other;
    }
    if (row != NO_ROW && threadIdx.x % WARP == 0) report(word, row);
}

// The first of the ascending entries from..end whose column is at least `col`.
__device__ __forceinline__ u32 lower_bound(const u32* cols, u32 from, u32 end, u32 col) {
    while (from < end) {
        u32 middle = from + (end - from) / 2;
        if (cols[middle] < col) from = middle + 1;
        else end = middle;
    }
    return from;
}

// Whether three arrays are a CSR matrix, before any kernel relies on it: row pointers first, then, if these are right, columns.
//
// Layout: CHECK_WORDS words that were 0. WRONG_POINTER and WRONG_COLUMN as include/side.cuh reports a row: 0 for none, else the complement of
// the first. Of rows: entries of the longest; the longest of each 32 rows, added up; rows of a multiple of eight entries; the most entries of
// 128 rows; then entries by the room that their 32 rows need. For columns: how far they lie below and above the main diagonal.
// Grid: any number of thread blocks of CHECK_THREADS, of WALK_THREADS for columns. A warp takes 128 rows at a time.
// Bytes: row pointers twice, columns once.
#pragma once
#include "side.cuh"
#include "walk.cuh"

#define CHECK_THREADS 256
#define CHECK_ROWS 128u
// Twins: the constants of these names in crates/backend-cuda/src/csr/choose.rs.
#define BINS 128u
#define SPARE 4u

#define WRONG_POINTER 0
#define WRONG_COLUMN 1
#define LONGEST 2
#define STEPS 3
#define EIGHTS 4
#define MOST 5
#define BELOW 6
#define ABOVE 7
#define OF_BINS 8
#define CHECK_WORDS (OF_BINS + BINS)

__device__ __forceinline__ u32 warp_max(u32 v) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) v = max(v, __shfl_xor_sync(ALL, v, d));
    return v;
}

// Keeps the larger value. One lane of the warp calls this.
__device__ __forceinline__ void keep_max(u64* word, u64 value) {
    if (value > *(volatile u64*)word) atomicMax(word, value);
}

// If pointers are wrong, the other results mean nothing.
__device__ __forceinline__ void check_rows(const u32* row_ptr, u32 nrows, u64* words) {
    __shared__ u64 bins[BINS];
    for (u32 i = threadIdx.x; i < BINS; i += CHECK_THREADS) bins[i] = 0;
    __syncthreads();
    u32 lane = threadIdx.x % WARP, warps = gridDim.x * (CHECK_THREADS / WARP), spans = nrows / CHECK_ROWS + (nrows % CHECK_ROWS != 0);
    u32 wrong = NO_ROW, longest = 0, eights = 0, most = 0;
    u64 steps = 0;
    for (u32 span = blockIdx.x * (CHECK_THREADS / WARP) + threadIdx.x / WARP; span < spans; span += warps) {
        u32 entries = 0;
#pragma unroll
        for (u32 k = 0; k < CHECK_ROWS; k += WARP) {
            u32 row = span * CHECK_ROWS + k + lane;
            u32 begin = __ldg(row_ptr + min(row, nrows)), end = __ldg(row_ptr + min(row + 1, nrows));
            // Rows of a lane ascend.
            if (end < begin && wrong == NO_ROW) wrong = row;
            u32 len = end - begin, here = warp_max(len);
            eights += len > 0 && len % 8 == 0;
            longest = max(longest, here);
            steps += here;
            u32 first = __shfl_sync(ALL, begin, 0), last = __shfl_sync(ALL, end, WARP - 1), room = last - (first & ~3u);
            if (lane == 0) atomicAdd(bins + (room <= SPARE ? 0 : min((room - SPARE - 1) / WARP + 1, BINS - 1)), (u64)(last - first));
            entries += last - first;
        }
        most = max(most, entries);
    }
    report_least(words + WRONG_POINTER, wrong);
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) eights += __shfl_xor_sync(ALL, eights, d);
    if (lane == 0) {
        keep_max(words + LONGEST, longest);
        keep_max(words + MOST, most);
        atomicAdd(words + STEPS, steps);
        atomicAdd(words + EIGHTS, (u64)eights);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < BINS; i += CHECK_THREADS)
        if (bins[i] != 0) atomicAdd(words + OF_BINS + i, bins[i]);
}

// Columns must be below ncols, and each above the previous one in its row.
struct Columns {
    const u32* row_ptr;
    const u32* cols;
    u32 ncols;
    u32 wrong, below, above;

    struct Row {
        u32 next, before;  // the entry after the lane's last one, the column of the last
    };

    __device__ __forceinline__ Row open(u32) const { return {0, 0}; }
    template <class T>
    __device__ __forceinline__ void visit(Row& here, u32 row, u32 e, u32 col, T) {
        bool ascends = e == 0;
        // In a long row another lane has the previous entry.
        if (!ascends) ascends = (here.next == e ? here.before : __ldg(cols + __ldg(row_ptr + row) + e - 1)) < col;
        if ((!ascends || col >= ncols) && row < wrong) wrong = row;
        here = {e + 1, col};
        below = max(below, row - min(row, col));
        above = max(above, col - min(row, col));
    }
    __device__ __forceinline__ void close(const Row&, u32, u32) const {}
};

template <class T>
__device__ __forceinline__ void check_columns(const u32* row_ptr, const u32* cols, u32 nrows, u32 ncols, u64* words) {
    Columns columns{row_ptr, cols, ncols, NO_ROW, 0, 0};
    walk_rows<T, false>(row_ptr, cols, (const T*)nullptr, nrows, columns);
    report_least(words + WRONG_COLUMN, columns.wrong);
    u32 below = warp_max(columns.below), above = warp_max(columns.above);
    if (threadIdx.x % WARP == 0) {
        keep_max(words + BELOW, below);
        keep_max(words + ABOVE, above);
    }
}

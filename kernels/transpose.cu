// The transpose of a CSR matrix: its pattern with the position in A of each entry, then values by position.
//
// Layout: A and A^T as CSR stores them. `positions` holds, for each entry of A^T, its position among the entries of A. Threads write the positions of a
// column in any order. Sorting them then sorts the rows as well, because positions ascend with rows. A column of more than SORTED entries is a bitmap of
// rows in device memory; its entries are found by a search in each row.
// Grid: 1024 entries per thread block of 256, four per thread; one warp sorts a column; a thread block of BITMAP_THREADS handles a long column.
// Order: none is summed.
// Bytes: pattern: columns of A twice, positions four times, the row of each entry three times. Values: positions once, values read and written once.
#include "bitmap.cuh"

// The most entries of a column that a warp sorts.
#define SORTED 512u

// The columns of four entries, 256 apart; fewer at the end.
__device__ __forceinline__ u32 four_columns(const u32* cols, u32 nnz, u32 (&col)[4]) {
    u32 first = blockIdx.x * BLOCK + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++) col[k] = first + k * 256 < nnz ? __ldg(cols + first + k * 256) : PADDING;
    return first;
}

// Counts the entries of each column.
__device__ __forceinline__ void count_columns(const u32* cols, u32 nnz, u32* counts) {
    u32 col[4];
    four_columns(cols, nnz, col);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (col[k] != PADDING) atomicAdd(counts + col[k], 1u);
}

// Moves each entry to the next free place of its column.
__device__ __forceinline__ void place_entries(const u32* cols, u32 nnz, u32* cursors, u32* positions) {
    u32 col[4], first = four_columns(cols, nnz, col);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (col[k] != PADDING) positions[atomicAdd(cursors + col[k], 1u)] = first + k * 256;
}

// Positions of a column in ascending order, and their rows. Longer columns are listed.
__device__ __forceinline__ void sort_columns(const u32* ptr, u32 ncols, const u32* rows_of, u32* positions, u32* rows, u32* list, u32* listed) {
    __shared__ u32 all[256 / WARP][SORTED];
    u32 lane = threadIdx.x % WARP, *room = all[threadIdx.x / WARP];
    u64 column = (u64)blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
    if (column >= ncols) return;
    u32 begin = __ldg(ptr + column), len = __ldg(ptr + column + 1) - begin;
    if (len > SORTED) {
        if (lane == 0) list[atomicAdd(listed, 1u)] = (u32)column;
        return;
    }
    for (u32 at = lane; at < len; at += WARP) room[at] = positions[begin + at];
    __syncwarp();
    for (u32 at = lane; at < len; at += WARP) {
        u32 mine = room[at], place = 0;
#pragma unroll 8
        for (u32 other = 0; other < len; other++) place += room[other] < mine;
        positions[begin + place] = mine;
        rows[begin + place] = __ldg(rows_of + mine);
    }
}

// The listed columns, one thread block each.
__device__ __forceinline__ void sort_long(const u32* ptr, const u32* list, const u32* listed, const u32* rows_of, const u32* a_ptr, const u32* a_cols, u32* bitmaps, u32 words, u32* positions, u32* rows) {
    Bitmap set(bitmaps, words);
    for (u32 i = blockIdx.x; i < *listed; i += gridDim.x) {
        u32 column = list[i], begin = __ldg(ptr + column), end = __ldg(ptr + column + 1);
        for (u32 at = begin + threadIdx.x; at < end; at += BITMAP_THREADS) set.add(__ldg(rows_of + positions[at]));
        __syncthreads();
        set.drain([&](u32 place, u32 row) {
            u32 low = __ldg(a_ptr + row), high = __ldg(a_ptr + row + 1);
            while (high - low > 1) {
                u32 middle = low + (high - low) / 2;
                if (__ldg(a_cols + middle) <= column) low = middle;
                else high = middle;
            }
            rows[begin + place] = row;
            positions[begin + place] = low;
        });
    }
}

template <class T>
__device__ __forceinline__ void move_values(const T* values, const u32* positions, u32 nnz, T* out) {
    u32 first = blockIdx.x * BLOCK + threadIdx.x, at[4];
    T v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) at[k] = first + k * 256 < nnz ? stream(positions + first + k * 256) : 0;
    issued();
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + k * 256 < nnz) v[k] = __ldg(values + at[k]);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + k * 256 < nnz) out[first + k * 256] = v[k];
}

// The pattern does not depend on a type, but the names have one, as those of all kernels do.
#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) count_transpose_##t(const u32* cols, u32 nnz, u32* counts) { count_columns(cols, nnz, counts); } \
    extern "C" __global__ void __launch_bounds__(256) place_transpose_##t(const u32* cols, u32 nnz, u32* cursors, u32* positions) { place_entries(cols, nnz, cursors, positions); } \
    extern "C" __global__ void __launch_bounds__(256) sort_transpose_##t(const u32* ptr, u32 ncols, const u32* rows_of, u32* positions, u32* rows, u32* list, u32* listed) { \
        sort_columns(ptr, ncols, rows_of, positions, rows, list, listed);                        \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BITMAP_THREADS) sort_long_transpose_##t(const u32* ptr, const u32* list, const u32* listed, const u32* rows_of, const u32* a_ptr, const u32* a_cols, u32* bitmaps, u32 words, u32* positions, u32* rows) { \
        sort_long(ptr, list, listed, rows_of, a_ptr, a_cols, bitmaps, words, positions, rows);   \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) move_transpose_##t(const T* values, const u32* positions, u32 nnz, T* out, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        move_values<T>(values, positions, nnz, out);                                             \
    }
FOR_EACH_TYPE(ENTRIES)

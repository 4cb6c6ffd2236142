// The sums of a row of C = A B, or of several rows of one pattern, in shared memory.
//
// Layout: A, B and C as CSR stores them; a hash table of the columns of a row of C, with a sum per place and row. Grid: LANES lanes per row of C.
// Order: stored. An entry of C is summed from +0 by fma over the entries of A's row. The columns of a row of B differ, so no two lanes write the same
// sum, and the lanes wait for each other between entries of A.
#pragma once
#include "spandrel.cuh"

#define EMPTY 0xffffffffu
// Rows of C of one pattern that a warp sums at the same time, and rows of B of one pattern that it adds at the same time. Twin: TOGETHER of
// crates/backend-cuda/src/spgemm/classes.rs.
#define TOGETHER 3

__device__ __forceinline__ u32 hashed(u32 key, u32 log) { return (key * 0x9e3779b1u) >> (32 - log); }

// Row pointers and columns of A and B.
struct Factors {
    const u32* a_ptr;
    const u32* a_cols;
    const u32* b_ptr;
    const u32* b_cols;
};

// The columns of a part of a row of C, each with its sum in ROWS rows. Room: ROWS sums and a key per place, then the place of each column.
template <class T, int ROWS = 1>
struct Sums {
    T* sums;
    u32* keys;
    unsigned short* places;
    u32 log;

    // The room of one row; all rooms of a thread block follow one another.
    __device__ __forceinline__ Sums(u8* room, u32 log, u32 most) : log(log) {
        u32 slots = 1u << log;
        sums = (T*)room;
        keys = (u32*)(room + slots * ROWS * sizeof(T));
        places = (unsigned short*)(room + slots * (ROWS * sizeof(T) + sizeof(u32)));
    }

    // The lanes insert columns side by side.
    template <int LANES>
    __device__ __forceinline__ void open(const u32* cols, u32 len) {
        u32 lane = threadIdx.x % LANES, slots = 1u << log;
        for (u32 at = lane; at < slots; at += LANES) keys[at] = EMPTY;
        for (u32 at = lane; at < slots * ROWS; at += LANES) sums[at] = T(0);
        __syncwarp();
        for (u32 p = lane; p < len; p += LANES) {
            u32 col = __ldg(cols + p), at = hashed(col, log);
            while (atomicCAS(keys + at, EMPTY, col) != EMPTY) at = (at + 1) % slots;
            places[p] = (unsigned short)at;
        }
        __syncwarp();
    }

    // The place of a column, EMPTY for one that is not there. Some places stay empty, so that the search ends.
    __device__ __forceinline__ u32 place(u32 col) const {
        u32 at = hashed(col, log), key;
        while ((key = keys[at]) != col) {
            if (key == EMPTY) return EMPTY;
            at = (at + 1) & ((1u << log) - 1);
        }
        return at;
    }

    // sum of the column <- fma(factor, value, sum). A column that is not there changes nothing.
    __device__ __forceinline__ void add(u32 col, T factor, T value) {
        u32 at = place(col);
        if (at != EMPTY) sums[at] = fma_rn(factor, value, sums[at]);
    }

    // sum of the column in row r <- fma(factors[r][j], values[j], sum), for j = 0, 1, ...
    template <int COUNT>
    __device__ __forceinline__ void add_all(u32 col, const T (&factors)[ROWS][TOGETHER], const T (&values)[TOGETHER]) {
        u32 at = place(col);
        if (at == EMPTY) return;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            T sum = sums[(r << log) + at];
#pragma unroll
            for (int j = 0; j < COUNT; j++) sum = fma_rn(factors[r][j], values[j], sum);
            sums[(r << log) + at] = sum;
        }
    }

    template <int LANES>
    __device__ __forceinline__ void write(T* values, u32 len, u32 row = 0) const {
        for (u32 p = threadIdx.x % LANES; p < len; p += LANES) values[p] = sums[(row << log) + places[p]];
    }
};

// The first place from `begin` to `end` whose column is at least `col`.
__device__ __forceinline__ u32 first_from(const u32* cols, u32 begin, u32 end, u32 col) {
    while (begin < end) {
        u32 middle = begin + (end - begin) / 2;
        if (__ldg(cols + middle) < col) begin = middle + 1;
        else end = middle;
    }
    return begin;
}

// Adds the products of a row of A with columns from `low` to `high` (CUT). All lanes of the warp call this; rows without products have no entries.
template <class T, int LANES, bool CUT>
__device__ __forceinline__ void add_products(const Factors& f, const T* a_values, const T* b_values, u32 first, u32 len, u32 low, u32 high, Sums<T>& sums) {
    u32 lane = threadIdx.x % LANES;
    for (u32 base = 0; __any_sync(ALL, base < len); base += LANES) {
        u32 begin = 0, end = 0;
        T factor = T(0);
        if (base + lane < len) {
            u32 k = __ldg(f.a_cols + first + base + lane);
            factor = __ldg(a_values + first + base + lane);
            begin = __ldg(f.b_ptr + k);
            end = __ldg(f.b_ptr + k + 1);
            if (CUT) {
                begin = first_from(f.b_cols, begin, end, low);
                end = first_from(f.b_cols, begin, end, high + 1);
            }
        }
        // The beginning of the next row of B is loaded before this one is added.
        u32 at = __shfl_sync(ALL, begin, 0, LANES) + lane, stop = __shfl_sync(ALL, end, 0, LANES);
        u32 col = at < stop ? __ldg(f.b_cols + at) : 0;
        T value = at < stop ? __ldg(b_values + at) : T(0);
        u32 count = min((u32)LANES, len > base ? len - base : 0);
        for (u32 t = 0; __any_sync(ALL, t < count); t++) {
            u32 here = at, here_stop = stop, here_col = col;
            T here_value = value, here_factor = __shfl_sync(ALL, factor, t, LANES);
            u32 next = (t + 1) % LANES;
            at = __shfl_sync(ALL, begin, next, LANES) + lane;
            stop = __shfl_sync(ALL, end, next, LANES);
            if (t + 1 >= count) stop = 0;
            if (at < stop) col = __ldg(f.b_cols + at), value = __ldg(b_values + at);
            while (here < here_stop) {
                u32 then = here + LANES, then_col = 0;
                T then_value = T(0);
                // The kernel of slices has no registers left for this.
                if (!CUT && then < here_stop) then_col = __ldg(f.b_cols + then), then_value = __ldg(b_values + then);
                sums.add(here_col, here_factor, here_value);
                if (CUT && then < here_stop) then_col = __ldg(f.b_cols + then), then_value = __ldg(b_values + then);
                here = then;
                here_col = then_col;
                here_value = then_value;
            }
            __syncwarp();
        }
    }
}

// Rows that repeat the pattern of the row before, as those of a point with several unknowns do: their part of a product is formed once.
//
// Layout: a byte per row of A and of B, 1 if the row has the columns of the row before it; a run is a row and those that repeat it. A run ends at
// multiples of RUN at the latest, so that no warp does the work of many.
// Grid: one thread per row to find them; one warp per TOGETHER rows of a run for the values.
// Order: stored, as in products.cuh: a sum takes the entries of A's row one after the other.
#pragma once
#include "products.cuh"

// A multiple of 2, 3, 4, 5 and 6, the usual numbers of unknowns.
#define RUN 60u
// Entries of A whose rows of B are looked up at the same time: a multiple of 2, 3 and 6, so that few runs are cut.
#define ENTRIES 30u

// Warps compare the few rows whose lengths and outermost columns agree. Adds the number of repeats to `found`.
__device__ __forceinline__ void find_repeats(const u32* ptr, const u32* cols, u32 nrows, u8* repeats, u64* found) {
    u32 lane = threadIdx.x % WARP, begin = 0, len = 0;
    u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    bool same = false;
    if (row < nrows && row % RUN != 0) {
        begin = __ldg(ptr + row);
        len = __ldg(ptr + row + 1) - begin;
        same = len > 0 && begin - __ldg(ptr + row - 1) == len && __ldg(cols + begin) == __ldg(cols + begin - len) && __ldg(cols + begin + len - 1) == __ldg(cols + begin - 1);
    }
    for (u32 left = __ballot_sync(ALL, same); left; left &= left - 1) {
        u32 of = __ffs(left) - 1, from = __shfl_sync(ALL, begin, of), count = __shfl_sync(ALL, len, of);
        bool equal = true;
#pragma unroll 4
        for (u32 p = lane; p < count; p += WARP) equal &= __ldg(cols + from + p) == __ldg(cols + from - count + p);
        equal = __all_sync(ALL, equal);
        if (lane == of) same = equal;
    }
    if (row < nrows) repeats[row] = same;
    u32 here = __popc(__ballot_sync(ALL, same));
    if (lane == 0 && here) atomicAdd(found, (u64)here);
}

// How many rows up to this one repeat their predecessor without a gap. All lanes of the warp call this with the same row.
__device__ __forceinline__ u32 repeats_before(const u8* repeats, u32 row) {
    u32 lane = threadIdx.x % WARP;
    for (u32 before = 0;; before += WARP) {
        u32 gaps = __ballot_sync(ALL, row < before + lane || !__ldg(repeats + row - before - lane));
        if (gaps) return before + __ffs(gaps) - 1;
    }
}

// How many rows after this one repeat it.
__device__ __forceinline__ u32 repeats_after(const u8* repeats, u32 row, u32 nrows) {
    u32 lane = threadIdx.x % WARP;
    for (u32 after = 0;; after += WARP) {
        u64 at = (u64)row + 1 + after + lane;
        u32 gaps = __ballot_sync(ALL, at >= nrows || !__ldg(repeats + at));
        if (gaps) return after + __ffs(gaps) - 1;
    }
}

// Whether entry e of A's row needs a row of B whose columns are those that the entry before needs.
__device__ __forceinline__ bool needs_the_same(const u32* a_cols, const u8* b_repeats, u32 first, u32 e, u32 k) {
    return e > first && __ldg(b_repeats + k) && __ldg(a_cols + e - 1) == k - 1;
}

// The columns of rows of B, one after the other by WARP: up to TOGETHER rows of one pattern at the same time.
template <class T>
struct Walk {
    const u32* cols;
    const T* values;
    u32 begins, lens, follows, count;  // of the entries that the lanes hold, and how many these are
    u32 at, together, part, len;       // the entry, how many are taken at the same time, and the columns done
    u32 col;
    T value[TOGETHER];

    __device__ __forceinline__ bool more() const { return at < count; }

    // Goes to entry `at`, or leaves it if there is none.
    __device__ __forceinline__ void enter() {
        part = 0;
        if (!more()) return;
        together = 1;
        while (together < TOGETHER && (follows >> (at + together) & 1)) together++;
        len = __shfl_sync(ALL, lens, at);
    }

    // Rows of one pattern follow one another, and are of one length.
    __device__ __forceinline__ void load() {
        u32 begin = __shfl_sync(ALL, begins, at % WARP), p = part + threadIdx.x % WARP;
        if (!more() || p >= len) return;
        col = __ldg(cols + begin + p);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (j < together) value[j] = __ldg(values + begin + j * len + p);
    }

    __device__ __forceinline__ void step() {
        part += WARP;
        if (part >= len) {
            at += together;
            enter();
        }
    }
};

// Rows of C of more than `above` and up to `upto` entries: a warp for up to TOGETHER rows of a run of A.
template <class T>
__device__ __forceinline__ void multiply_runs(const Factors& f, const T* a_values, const T* b_values, const u8* a_repeats, const u8* b_repeats, u32 nrows, const u32* c_ptr, const u32* c_cols, T* c_values, u32 above, u32 upto, u32 log, u32 room, const Monitor* gate) {
    extern __shared__ __align__(16) u8 shared[];
    if (!open(gate)) return;
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64 row = (u64)blockIdx.x * (blockDim.x / WARP) + warp;
    if (row >= nrows) return;
    u32 begin = __ldg(c_ptr + row), len = __ldg(c_ptr + row + 1) - begin;
    if (len == 0 || len <= above || len > upto || repeats_before(a_repeats, row) % TOGETHER != 0) return;
    u32 rows = min((u32)TOGETHER, repeats_after(a_repeats, row, nrows) + 1);
    u32 first = __ldg(f.a_ptr + row), entries = __ldg(f.a_ptr + row + 1) - first;
    Sums<T, TOGETHER> sums(shared + warp * room, log, upto);
    sums.template open<WARP>(c_cols + begin, len);
    for (u32 base = 0; base < entries; base += ENTRIES) {
        Walk<T> walk;
        walk.cols = f.b_cols;
        walk.values = b_values;
        walk.count = min(ENTRIES, entries - base);
        walk.begins = walk.lens = 0;
        bool again = false;
        T factor[TOGETHER];
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) factor[r] = T(0);
        if (lane < walk.count) {
            u32 e = first + base + lane, k = __ldg(f.a_cols + e);
            walk.begins = __ldg(f.b_ptr + k);
            walk.lens = __ldg(f.b_ptr + k + 1) - walk.begins;
            again = lane > 0 && needs_the_same(f.a_cols, b_repeats, first, e, k);
#pragma unroll
            for (int r = 0; r < TOGETHER; r++)
                if (r < rows) factor[r] = __ldg(a_values + e + (u64)r * entries);
        }
        walk.follows = __ballot_sync(ALL, again);
        walk.at = 0;
        walk.enter();
        walk.load();
        T factors[TOGETHER][TOGETHER];
        while (walk.more()) {
            u32 at = walk.at, together = walk.together, col = walk.col;
            bool here = walk.part + lane < walk.len;
            T value[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) value[j] = walk.value[j];
            if (walk.part == 0) {
#pragma unroll
                for (int r = 0; r < TOGETHER; r++)
#pragma unroll
                    for (int j = 0; j < TOGETHER; j++) factors[r][j] = __shfl_sync(ALL, factor[r], (at + j) % WARP);
            }
            // The next columns are loaded before these are added.
            walk.step();
            walk.load();
            if (here) {
                if (together == 3) sums.template add_all<3>(col, factors, value);
                else if (together == 2) sums.template add_all<2>(col, factors, value);
                else sums.template add_all<1>(col, factors, value);
            }
            __syncwarp();
        }
    }
    for (u32 r = 0; r < rows; r++) sums.template write<WARP>(c_values + begin + (u64)r * len, len, r);
}

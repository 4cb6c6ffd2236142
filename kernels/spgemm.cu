// The product C = A B of CSR matrices: the pattern of C, then its values.
//
// Layout: A, B and C as CSR stores them. Pattern: the columns of a row of few products are sorted; those of a longer row are a set in shared
// memory, words of 32 columns in a hash table; sets of more than WORDS_MOST words are bitmaps in device memory. Values: a hash table of the columns of a row of C in shared memory, with a sum per place; rows
// of more than SLICE entries are cut into slices.
// Grid: 8, 16 or 32 lanes per row of C (or slice). They walk the row of A entry by entry, and the row of B that each entry needs side by side; a
// thread block of BITMAP_THREADS for each of the rows that are bitmaps.
// Order: stored. An entry of C is summed from +0 by fma over the entries of A's row. The columns of a row of B differ, so no two lanes write the
// same sum, and the lanes wait for each other between entries of A.
// Bytes: A and the rows of B that it needs, row pointers and columns of C once, values of C written once. Neighbouring rows share rows of B in cache.
#include "bitmap.cuh"
#include "products.cuh"
#include "repeats.cuh"

#define SPGEMM_THREADS 256
// The most products of a row that 8 lanes sort.
#define SHORT 64u
// Places of the table of a longer row, and the words that it takes. Lanes that add at the same time may each add one word more.
#define WORDS_LOG 9
#define WORDS_MOST 384u
// Products whose columns a lane loads at once.
#define AT_ONCE 4
// Entries of a row of C whose sums one warp holds; classes of rows end at multiples.
#define SLICE 512u
#define CLASSES 4

// Places of what the host reads: products, the most of a row, rows of up to SHORT products and of more, rows that are bitmaps; then rows of C of each
// class and the longest there, and slices. Twin: crates/backend-cuda/src/spgemm/pattern.rs.
#define PRODUCTS 0
#define MOST_PRODUCTS 1
#define SHORT_ROWS 2
#define LONG_ROWS 3
#define BITMAPS 4
#define OF_CLASSES 5
#define LONGEST_OF_CLASSES (OF_CLASSES + CLASSES)
#define SLICES (LONGEST_OF_CLASSES + CLASSES)

// ---- The number of products of each row ----

// 8 lanes per row, any number of thread blocks: each block adds only once to what the host reads.
__device__ __forceinline__ void bound_rows(const Factors& f, u32 nrows, u32* bounds, u64* found) {
    constexpr u32 EACH = SPGEMM_THREADS / 8;
    __shared__ u64 products;
    __shared__ u32 most, rows[2];
    if (threadIdx.x == 0) products = 0, most = 0, rows[0] = 0, rows[1] = 0;
    __syncthreads();
    u32 lane = threadIdx.x % 8, longest = 0, of[2] = {0, 0};
    u64 all = 0;
    for (u64 base = (u64)blockIdx.x * EACH; base < nrows; base += (u64)gridDim.x * EACH) {
        u64 row = base + threadIdx.x / 8, sum = 0;
        if (row < nrows) {
            u32 end = __ldg(f.a_ptr + row + 1);
#pragma unroll 4
            for (u32 e = __ldg(f.a_ptr + row) + lane; e < end; e += 8) {
                u32 k = __ldg(f.a_cols + e);
                sum += __ldg(f.b_ptr + k + 1) - __ldg(f.b_ptr + k);
            }
        }
#pragma unroll
        for (int d = 4; d > 0; d /= 2) sum += __shfl_down_sync(ALL, sum, d, 8);
        if (row < nrows && lane == 0) {
            u32 bound = sum < EMPTY ? (u32)sum : EMPTY;
            bounds[row] = bound;
            all += sum;
            longest = max(longest, bound);
            if (bound > 0) of[bound > SHORT] += 1;
        }
    }
    if (all > 0) {
        atomicAdd(&products, all);
        atomicMax(&most, longest);
        if (of[0]) atomicAdd(rows, of[0]);
        if (of[1]) atomicAdd(rows + 1, of[1]);
    }
    __syncthreads();
    if (threadIdx.x == 0 && products > 0) {
        atomicAdd(found + PRODUCTS, products);
        atomicMax(found + MOST_PRODUCTS, (u64)most);
        if (rows[0]) atomicAdd(found + SHORT_ROWS, (u64)rows[0]);
        if (rows[1]) atomicAdd(found + LONG_ROWS, (u64)rows[1]);
    }
}

// ---- Sets of columns in shared memory ----

// Adds a column. Returns false if its word is new and the table had `most` words already. So some call returns false if there are more words, and none
// does otherwise: that does not depend on the order of the calls.
__device__ __forceinline__ bool add_column(u32* keys, u32* bits, u32 log, u32* used, u32 most, u32 col) {
    u32 word = col / 32, at = hashed(word, log);
    for (;;) {
        u32 key = *(volatile u32*)(keys + at);
        if (key == EMPTY) {
            key = atomicCAS(keys + at, EMPTY, word);
            if (key == EMPTY) {
                if (atomicAdd(used, 1u) >= most) return false;
                key = word;
            }
        }
        if (key == word) {
            // Most columns of a product are there already, and lanes that change one word wait for each other.
            u32 bit = 1u << (col % 32);
            if (!(*(volatile u32*)(bits + at) & bit)) atomicOr(bits + at, bit);
            return true;
        }
        at = (at + 1) & ((1u << log) - 1);
    }
}

__device__ __forceinline__ u32 count_columns(const u32* bits, u32 log) {
    u32 count = 0;
#pragma unroll 4
    for (u32 at = threadIdx.x % WARP; at < 1u << log; at += WARP) count += __popc(bits[at]);
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) count += __shfl_xor_sync(ALL, count, d);
    return count;
}

// Writes the columns in ascending order.
__device__ __forceinline__ void write_set(u32* keys, u32* bits, u32 log, u32* cols) {
    u32 lane = threadIdx.x % WARP, count = 0;
    // Words in use move to the front, with the number of their columns.
    for (u32 from = 0; from < 1u << log; from += WARP) {
        u32 key = keys[from + lane], of = bits[from + lane], there = __ballot_sync(ALL, key != EMPTY);
        __syncwarp();  // all have read
        if (key != EMPTY) {
            u32 to = count + __popc(there & ((1u << lane) - 1));
            keys[to] = key << 6 | __popc(of);
            bits[to] = of;
        }
        count += __popc(there);
        __syncwarp();
    }
    // A word's columns begin after those of all smaller words.
    for (u32 at = lane; at < count; at += WARP) {
        u32 key = keys[at], place = 0;
#pragma unroll 8
        for (u32 other = 0; other < count; other++) {
            u32 that = keys[other];
            place += that < key ? that & 63 : 0;
        }
        u32 base = key >> 6 << 5;
        for (u32 left = bits[at]; left; left &= left - 1) cols[place++] = base + __ffs(left) - 1;
    }
}

// The sum over the lanes up to this one, of the LANES lanes that share a row.
template <int LANES>
__device__ __forceinline__ u32 upto_lane(u32 v) {
#pragma unroll
    for (int d = 1; d < LANES; d *= 2) {
        u32 other = __shfl_up_sync(ALL, v, d, LANES);
        if (threadIdx.x % LANES >= d) v += other;
    }
    return v;
}

// Sorts 8 * EACH columns, EACH per lane, of each group of 8 lanes (bitonic). Element i is in lane i / EACH.
template <int EACH>
__device__ __forceinline__ void sort_columns(u32 (&v)[EACH]) {
    u32 lane = threadIdx.x % 8;
#pragma unroll
    for (int size = 2; size <= 8 * EACH; size *= 2)
#pragma unroll
        for (int apart = size / 2; apart > 0; apart /= 2)
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                bool ascends = ((lane * EACH + r) & size) == 0;
                if (apart >= EACH) {
                    u32 other = __shfl_xor_sync(ALL, v[r], apart / EACH);
                    bool lower = (lane & (apart / EACH)) == 0;
                    v[r] = lower == ascends ? min(v[r], other) : max(v[r], other);
                } else if ((r & apart) == 0) {
                    u32 low = min(v[r], v[r | apart]), high = max(v[r], v[r | apart]);
                    v[r] = ascends ? low : high;
                    v[r | apart] = ascends ? high : low;
                }
            }
}

// The columns of one row without repetitions: writes them in ascending order (FILL), and returns how many there are. `listed` holds `count` columns;
// all 8 lanes of a row call this, and have room for 8 * EACH.
template <int EACH, bool FILL>
__device__ __forceinline__ u32 distinct_columns(u32* listed, u32 count, u32* cols) {
    u32 lane = threadIdx.x % 8, v[EACH];
#pragma unroll
    for (int r = 0; r < EACH; r++) v[r] = 8 * r + lane < count ? listed[8 * r + lane] : EMPTY;
    sort_columns(v);
    // A bit for each column that differs from the one before.
    u32 before = __shfl_up_sync(ALL, v[EACH - 1], 1, 8), fresh = v[0] != EMPTY && (lane == 0 || v[0] != before);
#pragma unroll
    for (int r = 1; r < EACH; r++) fresh |= (u32)(v[r] != EMPTY && v[r] != v[r - 1]) << r;
    u32 upto = upto_lane<8>(__popc(fresh));
    if (FILL) {
        u32 place = upto - __popc(fresh);
#pragma unroll
        for (int r = 0; r < EACH; r++)
            if (fresh >> r & 1) cols[place++] = v[r];
    }
    return __shfl_sync(ALL, upto, 7, 8);
}

// Rows of up to SHORT products, 8 lanes each, which list the columns of all products and sort them; `narrow` lanes (1, 2, 4 or 8) for a row of B.
// FILL: `rows` are the row pointers of C, and its columns are written; else `rows` become its lengths.
template <bool FILL>
__device__ __forceinline__ void short_rows(const Factors& f, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols) {
    constexpr int LANES = 8;
    __shared__ u32 all_listed[SPGEMM_THREADS / LANES][SHORT];
    u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    u64 row = (u64)blockIdx.x * (SPGEMM_THREADS / LANES) + group;
    u32 bound = row < nrows ? bounds[row] : 0;
    bool here = bound > 0 && bound <= SHORT;
    u32 count = here ? bound : 0, most = count;
#pragma unroll
    for (int d = WARP / 2; d >= LANES; d /= 2) most = max(most, __shfl_xor_sync(ALL, most, d));
    if (most == 0) return;
    u32* listed = all_listed[group];
    u32 first = here ? __ldg(f.a_ptr + row) : 0, len = here ? __ldg(f.a_ptr + row + 1) - first : 0;
    u32 together = LANES / narrow, of = lane / narrow, within = lane % narrow, before = 0;
    for (u32 base = 0; __any_sync(ALL, base < len); base += LANES) {
        u32 begin = 0, end = 0;
        if (base + lane < len) {
            u32 k = __ldg(f.a_cols + first + base + lane);
            begin = __ldg(f.b_ptr + k);
            end = __ldg(f.b_ptr + k + 1);
        }
        // Where the columns of this lane's row of B are listed.
        u32 upto = upto_lane<LANES>(end - begin);
        u32 to = before + upto - (end - begin);
        before += __shfl_sync(ALL, upto, LANES - 1, LANES);
#pragma unroll
        for (u32 t = 0; t < LANES; t += together) {
            u32 from = __shfl_sync(ALL, begin, t + of, LANES), stop = __shfl_sync(ALL, end, t + of, LANES), at = __shfl_sync(ALL, to, t + of, LANES);
            for (u32 p = from + within; p < stop; p += narrow) listed[at + p - from] = __ldg(f.b_cols + p);
        }
    }
    __syncwarp();
    u32* out = FILL && here ? cols + rows[row] : nullptr;
    u32 distinct = most <= 8 ? distinct_columns<1, FILL>(listed, count, out) : most <= 16 ? distinct_columns<2, FILL>(listed, count, out) : most <= 32 ? distinct_columns<4, FILL>(listed, count, out) : distinct_columns<8, FILL>(listed, count, out);
    if (!FILL && here && lane == 0) rows[row] = distinct;
}

// What the rows that repeat the one before are told by, if that was looked for.
struct Repeats {
    const u8* a;
    const u8* b;
};

// Rows of more products, one warp each. The lanes take the products of WARP entries of A at a time, however long the rows of B are. The counting pass
// lists rows of too many words, and the next one skips them. A warp also writes the rows that repeat its own.
template <bool FILL>
__device__ __forceinline__ void long_rows(const Factors& f, const Repeats& repeats, u32 nrows, const u32* bounds, u32* rows, u32* cols, u32* list, u64* found) {
    constexpr int WARPS = SPGEMM_THREADS / WARP;
    __shared__ u32 all_keys[WARPS][1 << WORDS_LOG], all_bits[WARPS][1 << WORDS_LOG], all_used[WARPS], all_begins[WARPS][WARP], all_firsts[WARPS][WARP];
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64 row = (u64)blockIdx.x * WARPS + warp;
    if (row >= nrows || bounds[row] <= SHORT || (repeats.a && repeats.a[row])) return;
    u32 *keys = all_keys[warp], *bits = all_bits[warp], *used = all_used + warp, *begins = all_begins[warp], *firsts = all_firsts[warp];
#pragma unroll 8
    for (u32 at = lane; at < 1u << WORDS_LOG; at += WARP) keys[at] = EMPTY, bits[at] = 0;
    if (lane == 0) *used = 0;
    u32 first = __ldg(f.a_ptr + row), end = __ldg(f.a_ptr + row + 1);
    bool fits = true;
    for (u32 base = first; base < end; base += WARP) {
        u32 begin = 0, stop = 0;
        if (base + lane < end) {
            u32 k = __ldg(f.a_cols + base + lane);
            if (!(repeats.b && needs_the_same(f.a_cols, repeats.b, first, base + lane, k))) {
                begin = __ldg(f.b_ptr + k);
                stop = __ldg(f.b_ptr + k + 1);
            }
        }
        u32 upto = upto_lane<WARP>(stop - begin), count = __shfl_sync(ALL, upto, WARP - 1);
        __syncwarp();
        begins[lane] = begin;
        firsts[lane] = upto - (stop - begin);  // the number of its first product
        __syncwarp();
        for (u32 from = lane; from - lane < count && __all_sync(ALL, fits); from += WARP * AT_ONCE) {
            u32 col[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                u32 product = from + u * WARP, of = 0;
                // The last entry whose first product is not beyond this one.
#pragma unroll
                for (u32 step = WARP / 2; step > 0; step /= 2) of += firsts[of + step] <= product ? step : 0;
                col[u] = product < count ? __ldg(f.b_cols + begins[of] + product - firsts[of]) : 0;
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
                if (from + u * WARP < count && fits) fits = add_column(keys, bits, WORDS_LOG, used, WORDS_MOST, col[u]);
        }
        if (!__all_sync(ALL, fits)) break;
    }
    __syncwarp();
    if (!__all_sync(ALL, fits)) {
        if (!FILL && lane == 0) list[atomicAdd(found + BITMAPS, 1ull)] = (u32)row;
        return;
    }
    u32 more = repeats.a ? repeats_after(repeats.a, row, nrows) : 0;
    if (FILL) {
        u32 begin = rows[row], len = rows[row + 1] - begin;
        write_set(keys, bits, WORDS_LOG, cols + begin);
        __syncwarp();
        for (u32 r = 1; r <= more; r++)
            for (u32 p = lane; p < len; p += WARP) cols[begin + r * len + p] = cols[begin + p];
    } else {
        u32 columns = count_columns(bits, WORDS_LOG);
        for (u32 r = lane; r <= more; r += WARP) rows[row + r] = columns;
    }
}

// The listed rows, one thread block each, which also writes the rows that repeat its own.
template <bool FILL>
__device__ __forceinline__ void bitmap_rows(const Factors& f, const Repeats& repeats, u32 nrows, const u32* list, const u64* found, u32* bitmaps, u32 words, u32* rows, u32* cols) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, listed = (u32)found[BITMAPS];
    Bitmap set(bitmaps, words);
    for (u32 i = blockIdx.x; i < listed; i += gridDim.x) {
        u32 row = list[i], first = __ldg(f.a_ptr + row), end = __ldg(f.a_ptr + row + 1);
        for (u32 e = first + warp; e < end; e += BITMAP_THREADS / WARP) {
            u32 k = __ldg(f.a_cols + e), stop = __ldg(f.b_ptr + k + 1);
            if (repeats.b && needs_the_same(f.a_cols, repeats.b, first, e, k)) continue;
            for (u32 at = __ldg(f.b_ptr + k) + lane; at < stop; at += WARP) set.add(__ldg(f.b_cols + at));
        }
        __syncthreads();
        u32 more = repeats.a ? repeats_after(repeats.a, row, nrows) : 0, begin = FILL ? rows[row] : 0, len = FILL ? rows[row + 1] - begin : 0;
        u32 count = set.drain([&](u32 place, u32 col) {
            if (FILL)
                for (u32 r = 0; r <= more; r++) cols[begin + r * len + place] = col;
        });
        if (!FILL && threadIdx.x <= more) rows[row + threadIdx.x] = count;
    }
}

// ---- Rows of C by their lengths ----

__device__ __forceinline__ u32 class_of(u32 len) { return len <= 32 ? 0 : len <= 128 ? 1 : len <= SLICE ? 2 : 3; }

// One thread per row. If `slices` is given, the slices of rows beyond SLICE are listed: (row, first entry).
__device__ __forceinline__ void class_rows(const u32* row_ptr, u32 nrows, u32* slices, u64* found) {
    __shared__ u32 rows[CLASSES], longest[CLASSES];
    if (threadIdx.x < CLASSES) rows[threadIdx.x] = 0, longest[threadIdx.x] = 0;
    __syncthreads();
    u64 row = (u64)blockIdx.x * SPGEMM_THREADS + threadIdx.x;
    u32 begin = row < nrows ? row_ptr[row] : 0, len = row < nrows ? row_ptr[row + 1] - begin : 0, of = class_of(len);
    if (slices) {
        if (len > SLICE) {
            u32 count = (len + SLICE - 1) / SLICE;
            u64 at = atomicAdd(found + SLICES, (u64)count);
            for (u32 s = 0; s < count; s++) {
                slices[2 * (at + s)] = (u32)row;
                slices[2 * (at + s) + 1] = begin + s * SLICE;
            }
        }
        return;
    }
    // Rows without entries are in no class.
    for (u32 c = 0; c < CLASSES; c++) {
        u32 here = __ballot_sync(ALL, len > 0 && of == c);
        if (here && threadIdx.x % WARP == 0) atomicAdd(rows + c, __popc(here));
    }
    if (len > 0) {
        atomicMax(longest + of, len);
        if (len > SLICE) atomicAdd(found + SLICES, (u64)((len + SLICE - 1) / SLICE));
    }
    __syncthreads();
    if (threadIdx.x < CLASSES && rows[threadIdx.x]) {
        atomicAdd(found + OF_CLASSES + threadIdx.x, (u64)rows[threadIdx.x]);
        u64* most = found + LONGEST_OF_CLASSES + threadIdx.x;
        if (longest[threadIdx.x] > *(volatile u64*)most) atomicMax(most, (u64)longest[threadIdx.x]);
    }
}

// ---- Values ----

// Rows of C of more than `above` and up to `upto` entries, LANES lanes each.
template <class T, int LANES>
__device__ __forceinline__ void multiply_rows(const Factors& f, const T* a_values, const T* b_values, u32 nrows, const u32* c_ptr, const u32* c_cols, T* c_values, u32 above, u32 upto, u32 log, u32 room, const Monitor* gate) {
    extern __shared__ __align__(16) u8 shared[];
    if (!open(gate)) return;
    u32 group = threadIdx.x / LANES;
    u64 row = (u64)blockIdx.x * (blockDim.x / LANES) + group;
    u32 begin = row < nrows ? __ldg(c_ptr + row) : 0, len = row < nrows ? __ldg(c_ptr + row + 1) - begin : 0;
    if (len <= above || len > upto) len = 0;
    if (!__any_sync(ALL, len > 0)) return;
    u32 first = len > 0 ? __ldg(f.a_ptr + row) : 0, entries = len > 0 ? __ldg(f.a_ptr + row + 1) - first : 0;
    Sums<T> sums(shared + group * room, log, upto);
    sums.template open<LANES>(c_cols + begin, len);
    add_products<T, LANES, false>(f, a_values, b_values, first, entries, 0, 0, sums);
    sums.template write<LANES>(c_values + begin, len);
}

// Slices of longer rows, one warp each.
template <class T>
__device__ __forceinline__ void multiply_slices(const Factors& f, const T* a_values, const T* b_values, const u32* slices, u32 count, const u32* c_ptr, const u32* c_cols, T* c_values, u32 log, u32 room, const Monitor* gate) {
    extern __shared__ __align__(16) u8 shared[];
    if (!open(gate)) return;
    u32 warp = threadIdx.x / WARP;
    u64 slice = (u64)blockIdx.x * (blockDim.x / WARP) + warp;
    if (slice >= count) return;
    u32 row = __ldg(slices + 2 * slice), begin = __ldg(slices + 2 * slice + 1), len = min(SLICE, __ldg(c_ptr + row + 1) - begin);
    u32 first = __ldg(f.a_ptr + row), entries = __ldg(f.a_ptr + row + 1) - first;
    Sums<T> sums(shared + warp * room, log, SLICE);
    sums.template open<WARP>(c_cols + begin, len);
    add_products<T, WARP, true>(f, a_values, b_values, first, entries, __ldg(c_cols + begin), __ldg(c_cols + begin + len - 1), sums);
    sums.template write<WARP>(c_values + begin, len);
}

// The pattern does not depend on a type, but the names have one, as those of all kernels do.
#define PATTERN(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) repeats_spgemm_##t(const u32* row_ptr, const u32* cols, u32 nrows, u8* repeats, u64* found) { \
        find_repeats(row_ptr, cols, nrows, repeats, found);                                      \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) bound_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, u32 nrows, u32* bounds, u64* found) { \
        bound_rows({a_ptr, a_cols, b_ptr, nullptr}, nrows, bounds, found);                       \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) count_short_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols) { \
        short_rows<false>({a_ptr, a_cols, b_ptr, b_cols}, nrows, bounds, narrow, rows, cols);    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) fill_short_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols) { \
        short_rows<true>({a_ptr, a_cols, b_ptr, b_cols}, nrows, bounds, narrow, rows, cols);     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) count_long_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, const u8* a_repeats, const u8* b_repeats, u32 nrows, const u32* bounds, u32* rows, u32* cols, u32* list, u64* found) { \
        long_rows<false>({a_ptr, a_cols, b_ptr, b_cols}, {a_repeats, b_repeats}, nrows, bounds, rows, cols, list, found); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) fill_long_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, const u8* a_repeats, const u8* b_repeats, u32 nrows, const u32* bounds, u32* rows, u32* cols, u32* list, u64* found) { \
        long_rows<true>({a_ptr, a_cols, b_ptr, b_cols}, {a_repeats, b_repeats}, nrows, bounds, rows, cols, list, found); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BITMAP_THREADS) count_bitmap_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, const u8* a_repeats, const u8* b_repeats, u32 nrows, const u32* list, const u64* found, u32* bitmaps, u32 words, u32* rows, u32* cols) { \
        bitmap_rows<false>({a_ptr, a_cols, b_ptr, b_cols}, {a_repeats, b_repeats}, nrows, list, found, bitmaps, words, rows, cols); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BITMAP_THREADS) fill_bitmap_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, const u8* a_repeats, const u8* b_repeats, u32 nrows, const u32* list, const u64* found, u32* bitmaps, u32 words, u32* rows, u32* cols) { \
        bitmap_rows<true>({a_ptr, a_cols, b_ptr, b_cols}, {a_repeats, b_repeats}, nrows, list, found, bitmaps, words, rows, cols); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) class_spgemm_##t(const u32* row_ptr, u32 nrows, u32* slices, u64* found) { \
        class_rows(row_ptr, nrows, slices, found);                                               \
    }
FOR_EACH_TYPE(PATTERN)

#define MULTIPLY(T, t, LANES)                                                                    \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) multiply##LANES##_spgemm_##t(const u32* a_ptr, const u32* a_cols, const T* a_values, const u32* b_ptr, const u32* b_cols, const T* b_values, u32 nrows, const u32* c_ptr, const u32* c_cols, T* c_values, u32 above, u32 upto, u32 log, u32 room, const Monitor* gate) { \
        multiply_rows<T, LANES>({a_ptr, a_cols, b_ptr, b_cols}, a_values, b_values, nrows, c_ptr, c_cols, c_values, above, upto, log, room, gate); \
    }
#define VALUES(T, t)                                                                             \
    MULTIPLY(T, t, 8)                                                                            \
    MULTIPLY(T, t, 16)                                                                           \
    MULTIPLY(T, t, 32)                                                                           \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS, 3) multiply_runs_spgemm_##t(const u32* a_ptr, const u32* a_cols, const T* a_values, const u32* b_ptr, const u32* b_cols, const T* b_values, const u8* a_repeats, const u8* b_repeats, u32 nrows, const u32* c_ptr, const u32* c_cols, T* c_values, u32 above, u32 upto, u32 log, u32 room, const Monitor* gate) { \
        multiply_runs<T>({a_ptr, a_cols, b_ptr, b_cols}, a_values, b_values, a_repeats, b_repeats, nrows, c_ptr, c_cols, c_values, above, upto, log, room, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) multiply_slices_spgemm_##t(const u32* a_ptr, const u32* a_cols, const T* a_values, const u32* b_ptr, const u32* b_cols, const T* b_values, const u32* slices, u32 count, const u32* c_ptr, const u32* c_cols, T* c_values, u32 log, u32 room, const Monitor* gate) { \
        multiply_slices<T>({a_ptr, a_cols, b_ptr, b_cols}, a_values, b_values, slices, count, c_ptr, c_cols, c_values, log, room, gate); \
    }
FOR_EACH_TYPE(VALUES)

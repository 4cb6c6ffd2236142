// The product C = A B of CSR matrices: the pattern of C, then its values.
//
// Layout: A, B and C as CSR stores them. Pattern: the columns of a row are a set in shared memory, words of 32 columns in a hash table; sets of more
// than WORDS_MOST words are bitmaps in device memory. Values: a hash table of the columns of a row of C in shared memory, with a sum per place; rows
// of more than SLICE entries are cut into slices.
// Grid: 8, 16 or 32 lanes per row of C (or slice). They walk the row of A entry by entry, and the row of B that each entry needs side by side; a
// thread block of BITMAP_THREADS for each of the rows that are bitmaps.
// Order: stored. An entry of C is summed from +0 by fma over the entries of A's row. The columns of a row of B differ, so no two lanes write the
// same sum, and the lanes wait for each other between entries of A.
// Bytes: A and the rows of B that it needs, row pointers and columns of C once, values of C written once. Neighbouring rows share rows of B in cache.
#include "bitmap.cuh"

#define SPGEMM_THREADS 256
// The most products of a row whose set 8 lanes form, and the places of its table.
#define SHORT 64u
#define SHORT_LOG 7
// Places of the table of a longer row, and the words that it takes. Lanes that add at the same time may each add one word more.
#define WORDS_LOG 9
#define WORDS_MOST 384u
// Entries of a row of C whose sums one warp holds; classes of rows end at multiples.
#define SLICE 512u
#define CLASSES 4

#define EMPTY 0xffffffffu

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

__device__ __forceinline__ u32 hashed(u32 key, u32 log) { return (key * 0x9e3779b1u) >> (32 - log); }

// Row pointers and columns of A and B.
struct Factors {
    const u32* a_ptr;
    const u32* a_cols;
    const u32* b_ptr;
    const u32* b_cols;
};

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
template <bool LIMITED>
__device__ __forceinline__ bool add_column(u32* keys, u32* bits, u32 log, u32* used, u32 most, u32 col) {
    u32 word = col / 32, at = hashed(word, log);
    for (;;) {
        u32 key = *(volatile u32*)(keys + at);
        if (key == EMPTY) {
            key = atomicCAS(keys + at, EMPTY, word);
            if (key == EMPTY) {
                if (LIMITED && atomicAdd(used, 1u) >= most) return false;
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

// The sum over the LANES lanes that share a row, in each of them.
template <int LANES>
__device__ __forceinline__ u32 sum_of_lanes(u32 v) {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) v += __shfl_xor_sync(ALL, v, d);
    return v;
}

template <int LANES>
__device__ __forceinline__ u32 count_columns(const u32* bits, u32 log) {
    u32 count = 0;
#pragma unroll 4
    for (u32 at = threadIdx.x % LANES; at < 1u << log; at += LANES) count += __popc(bits[at]);
    return sum_of_lanes<LANES>(count);
}

// Writes the columns in ascending order. All lanes of the warp call this, with sets of their own, some of them empty, in tables of the same size.
template <int LANES>
__device__ __forceinline__ void write_set(u32* keys, u32* bits, u32 log, u32* cols) {
    u32 lane = threadIdx.x % LANES, ahead = threadIdx.x % WARP / LANES * LANES, mine = LANES == WARP ? ALL : (1u << (LANES % 32)) - 1, count = 0;
    // Words in use move to the front, with the number of their columns.
    for (u32 from = 0; from < 1u << log; from += LANES) {
        u32 key = keys[from + lane], of = bits[from + lane];
        u32 there = __ballot_sync(ALL, key != EMPTY) >> ahead & mine;
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
    for (u32 at = lane; at < count; at += LANES) {
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

// Rows of up to SHORT products, 8 lanes each; `narrow` lanes (1, 2, 4 or 8) for a row of B. FILL: `rows` are the row pointers of C, and its columns are
// written; else `rows` become its lengths. A table has twice as many places as the longest row of the warp has products.
template <bool FILL>
__device__ __forceinline__ void short_rows(const Factors& f, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols) {
    constexpr int LANES = 8;
    __shared__ u32 all_keys[SPGEMM_THREADS / LANES][1 << SHORT_LOG], all_bits[SPGEMM_THREADS / LANES][1 << SHORT_LOG];
    u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    u64 row = (u64)blockIdx.x * (SPGEMM_THREADS / LANES) + group;
    u32 bound = row < nrows ? bounds[row] : 0;
    bool here = bound > 0 && bound <= SHORT;
    u32 most = here ? bound : 0;
#pragma unroll
    for (int d = WARP / 2; d >= LANES; d /= 2) most = max(most, __shfl_xor_sync(ALL, most, d));
    if (most == 0) return;
    u32 log = most <= LANES / 2 ? 3 : 32 - __clz(2 * most - 1);
    u32 *keys = all_keys[group], *bits = all_bits[group];
    for (u32 at = lane; at < 1u << log; at += LANES) keys[at] = EMPTY, bits[at] = 0;
    u32 first = here ? __ldg(f.a_ptr + row) : 0, len = here ? __ldg(f.a_ptr + row + 1) - first : 0;
    u32 together = LANES / narrow, of = lane / narrow, within = lane % narrow;
    __syncwarp();
    for (u32 base = 0; __any_sync(ALL, base < len); base += LANES) {
        u32 begin = 0, end = 0;
        if (base + lane < len) {
            u32 k = __ldg(f.a_cols + first + base + lane);
            begin = __ldg(f.b_ptr + k);
            end = __ldg(f.b_ptr + k + 1);
        }
        // The columns of the next rows of B are loaded before those of these are added.
        u32 at = __shfl_sync(ALL, begin, of, LANES) + within, stop = __shfl_sync(ALL, end, of, LANES);
        u32 col = at < stop ? __ldg(f.b_cols + at) : 0;
        for (u32 t = 0; t < LANES; t += together) {
            u32 here_at = at, here_stop = stop, here_col = col;
            if (t + together < LANES) {
                at = __shfl_sync(ALL, begin, t + together + of, LANES) + within;
                stop = __shfl_sync(ALL, end, t + together + of, LANES);
                col = at < stop ? __ldg(f.b_cols + at) : 0;
            }
            while (here_at < here_stop) {
                u32 then = here_at + narrow, then_col = then < here_stop ? __ldg(f.b_cols + then) : 0;
                add_column<false>(keys, bits, log, nullptr, 0, here_col);
                here_at = then;
                here_col = then_col;
            }
            __syncwarp();
        }
    }
    if (FILL) {
        write_set<LANES>(keys, bits, log, cols + (here ? rows[row] : 0));
    } else {
        u32 count = count_columns<LANES>(bits, log);
        if (here && lane == 0) rows[row] = count;
    }
}

// Rows of more products, one warp each; `narrow` lanes for a row of B. The counting pass lists rows of too many words, and the next one skips them.
template <bool FILL>
__device__ __forceinline__ void long_rows(const Factors& f, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols, u32* list, u64* found) {
    constexpr int WARPS = SPGEMM_THREADS / WARP;
    __shared__ u32 all_keys[WARPS][1 << WORDS_LOG], all_bits[WARPS][1 << WORDS_LOG], all_used[WARPS];
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u64 row = (u64)blockIdx.x * WARPS + warp;
    if (row >= nrows || bounds[row] <= SHORT) return;
    u32 *keys = all_keys[warp], *bits = all_bits[warp], *used = all_used + warp;
#pragma unroll 8
    for (u32 at = lane; at < 1u << WORDS_LOG; at += WARP) keys[at] = EMPTY, bits[at] = 0;
    if (lane == 0) *used = 0;
    __syncwarp();
    u32 first = __ldg(f.a_ptr + row), end = __ldg(f.a_ptr + row + 1);
    bool fits = true;
    for (u32 base = first; base < end; base += WARP) {
        u32 begin = 0, stop = 0;
        if (base + lane < end) {
            u32 k = __ldg(f.a_cols + base + lane);
            begin = __ldg(f.b_ptr + k);
            stop = __ldg(f.b_ptr + k + 1);
        }
        u32 count = min(WARP, end - base), groups = WARP / narrow, group = lane / narrow, within = lane % narrow;
        // Columns are loaded before those ahead of them are added.
        u32 at = __shfl_sync(ALL, begin, group) + within, to = __shfl_sync(ALL, stop, group);
        u32 col = at < to ? __ldg(f.b_cols + at) : 0;
        for (u32 t = 0; t < count; t += groups) {
            u32 here = at, here_to = to, here_col = col, next = t + groups + group;
            at = __shfl_sync(ALL, begin, next % WARP) + within;
            to = __shfl_sync(ALL, stop, next % WARP);
            if (next >= count) to = 0;
            if (at < to) col = __ldg(f.b_cols + at);
            while (here < here_to && fits) {
                u32 then = here + narrow, then_col = then < here_to ? __ldg(f.b_cols + then) : 0;
                fits = add_column<true>(keys, bits, WORDS_LOG, used, WORDS_MOST, here_col);
                here = then;
                here_col = then_col;
            }
        }
        if (!__all_sync(ALL, fits)) break;
    }
    __syncwarp();
    if (!__all_sync(ALL, fits)) {
        if (!FILL && lane == 0) list[atomicAdd(found + BITMAPS, 1ull)] = (u32)row;
        return;
    }
    if (FILL) {
        write_set<WARP>(keys, bits, WORDS_LOG, cols + rows[row]);
    } else {
        u32 columns = count_columns<WARP>(bits, WORDS_LOG);
        if (lane == 0) rows[row] = columns;
    }
}

// The listed rows, one thread block each.
template <bool FILL>
__device__ __forceinline__ void bitmap_rows(const Factors& f, const u32* list, const u64* found, u32* bitmaps, u32 words, u32* rows, u32* cols) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, listed = (u32)found[BITMAPS];
    Bitmap set(bitmaps, words);
    for (u32 i = blockIdx.x; i < listed; i += gridDim.x) {
        u32 row = list[i], end = __ldg(f.a_ptr + row + 1);
        for (u32 e = __ldg(f.a_ptr + row) + warp; e < end; e += BITMAP_THREADS / WARP) {
            u32 k = __ldg(f.a_cols + e), stop = __ldg(f.b_ptr + k + 1);
            for (u32 at = __ldg(f.b_ptr + k) + lane; at < stop; at += WARP) set.add(__ldg(f.b_cols + at));
        }
        __syncthreads();
        u32* to = FILL ? cols + rows[row] : nullptr;
        u32 count = set.drain([&](u32 place, u32 col) {
            if (FILL) to[place] = col;
        });
        if (!FILL && threadIdx.x == 0) rows[row] = count;
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

// The columns of a part of a row of C, each with its sum. Room: a sum and a key per place, then the place of each column.
template <class T>
struct Sums {
    T* sums;
    u32* keys;
    unsigned short* places;
    u32 log;

    // The room of one row; all rooms of a thread block follow one another.
    __device__ __forceinline__ Sums(u8* room, u32 log, u32 most) : log(log) {
        u32 slots = 1u << log;
        sums = (T*)room;
        keys = (u32*)(room + slots * sizeof(T));
        places = (unsigned short*)(room + slots * (sizeof(T) + sizeof(u32)));
    }

    // The lanes insert columns side by side.
    template <int LANES>
    __device__ __forceinline__ void open(const u32* cols, u32 len) {
        u32 lane = threadIdx.x % LANES, slots = 1u << log;
        for (u32 at = lane; at < slots; at += LANES) keys[at] = EMPTY, sums[at] = T(0);
        __syncwarp();
        for (u32 p = lane; p < len; p += LANES) {
            u32 col = __ldg(cols + p), at = hashed(col, log);
            while (atomicCAS(keys + at, EMPTY, col) != EMPTY) at = (at + 1) % slots;
            places[p] = (unsigned short)at;
        }
        __syncwarp();
    }

    // sum of the column <- fma(factor, value, sum). A column that is not there changes nothing: some places stay empty, so that the search ends.
    __device__ __forceinline__ void add(u32 col, T factor, T value) {
        u32 at = hashed(col, log), key;
        while ((key = keys[at]) != col) {
            if (key == EMPTY) return;
            at = (at + 1) & ((1u << log) - 1);
        }
        sums[at] = fma_rn(factor, value, sums[at]);
    }

    template <int LANES>
    __device__ __forceinline__ void write(T* values, u32 len) const {
        for (u32 p = threadIdx.x % LANES; p < len; p += LANES) values[p] = sums[places[p]];
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
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) bound_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, u32 nrows, u32* bounds, u64* found) { \
        bound_rows({a_ptr, a_cols, b_ptr, nullptr}, nrows, bounds, found);                       \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) count_short_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols) { \
        short_rows<false>({a_ptr, a_cols, b_ptr, b_cols}, nrows, bounds, narrow, rows, cols);    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) fill_short_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols) { \
        short_rows<true>({a_ptr, a_cols, b_ptr, b_cols}, nrows, bounds, narrow, rows, cols);     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) count_long_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols, u32* list, u64* found) { \
        long_rows<false>({a_ptr, a_cols, b_ptr, b_cols}, nrows, bounds, narrow, rows, cols, list, found); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) fill_long_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, u32 nrows, const u32* bounds, u32 narrow, u32* rows, u32* cols, u32* list, u64* found) { \
        long_rows<true>({a_ptr, a_cols, b_ptr, b_cols}, nrows, bounds, narrow, rows, cols, list, found); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BITMAP_THREADS) count_bitmap_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, const u32* list, const u64* found, u32* bitmaps, u32 words, u32* rows, u32* cols) { \
        bitmap_rows<false>({a_ptr, a_cols, b_ptr, b_cols}, list, found, bitmaps, words, rows, cols); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BITMAP_THREADS) fill_bitmap_spgemm_##t(const u32* a_ptr, const u32* a_cols, const u32* b_ptr, const u32* b_cols, const u32* list, const u64* found, u32* bitmaps, u32 words, u32* rows, u32* cols) { \
        bitmap_rows<true>({a_ptr, a_cols, b_ptr, b_cols}, list, found, bitmaps, words, rows, cols); \
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
    extern "C" __global__ void __launch_bounds__(SPGEMM_THREADS) multiply_slices_spgemm_##t(const u32* a_ptr, const u32* a_cols, const T* a_values, const u32* b_ptr, const u32* b_cols, const T* b_values, const u32* slices, u32 count, const u32* c_ptr, const u32* c_cols, T* c_values, u32 log, u32 room, const Monitor* gate) { \
        multiply_slices<T>({a_ptr, a_cols, b_ptr, b_cols}, a_values, b_values, slices, count, c_ptr, c_cols, c_values, log, room, gate); \
    }
FOR_EACH_TYPE(VALUES)

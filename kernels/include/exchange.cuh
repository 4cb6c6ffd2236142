// What thread blocks of a persistent kernel exchange, and what each is responsible for.
//
// Layout: slots of products of two iterations, then of sums of two iterations.
// Exchange: every word exchanged carries the number of its iteration in its upper half, so that data is its own flag: no fence, no
// barrier of the grid. A word of 64 bits is written and read whole; a double is two words. Numbers grow from launch to launch and are
// never 0, which is what new memory holds.
// A slot is used again two iterations later. By then nobody reads it: to write it, all sums of the iteration between
// were needed, these needed a product of every thread block, and that came after everything the block had read before.
#pragma once
#include "spandrel.cuh"

#define CREW 256
#define PRODUCTS 2
#define SUMS 6

// Rows and columns of thread blocks.
struct Span {
    u64 below, above;  // row i uses columns i - below .. i + above at most
    u32 rows;          // of a thread block, dividing 1024
    u32 width;         // elements of a window at most
    u32 kept;          // units of the matrix that a thread block keeps on chip
    u32 count;         // iterations at most
    u32 epoch;         // number of the last iteration of all launches before
    u32 unused;
};

__device__ __forceinline__ void put_word(u64* at, u64 word) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory"); }
__device__ __forceinline__ u64 word_at(const u64* at) {
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

// A number in a slot with the number of its iteration.
template <class T>
struct Slot;
template <>
struct Slot<float> {
    static constexpr u32 WORDS = 1;
    u64 word;
    __device__ __forceinline__ static void put(u64* at, u32 tag, float v) { put_word(at, (u64)tag << 32 | (u64)__float_as_uint(v)); }
    __device__ __forceinline__ void load(const u64* at) { word = word_at(at); }
    __device__ __forceinline__ bool holds(u32 tag) const { return (u32)(word >> 32) == tag; }
    __device__ __forceinline__ float value() const { return __uint_as_float((u32)word); }
};
template <>
struct Slot<double> {
    static constexpr u32 WORDS = 2;
    u64 low, high;
    __device__ __forceinline__ static void put(u64* at, u32 tag, double v) {
        u64 bits = (u64)__double_as_longlong(v), mark = (u64)tag << 32;
        u64 low = mark | (bits & 0xffffffffull), high = mark | bits >> 32;
        asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
    }
    __device__ __forceinline__ void load(const u64* at) {
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
    }
    __device__ __forceinline__ bool holds(u32 tag) const { return (u32)(low >> 32) == tag && (u32)(high >> 32) == tag; }
    __device__ __forceinline__ double value() const { return __longlong_as_double((i64)(high << 32 | (low & 0xffffffffull))); }
};

// Waits for COUNT slots (the last one stands in for those past the end) and returns their numbers.
template <int COUNT, class T>
__device__ __forceinline__ void await(const u64* slots, u64 from, u64 step, u64 end, u32 tag, T (&v)[COUNT]) {
    u32 missing = (1u << COUNT) - 1;
    while (missing) {
        Slot<T> slot[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            u64 at = from + i * step;
            slot[i].load(slots + (at < end ? at : end - 1) * Slot<T>::WORDS);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (slot[i].holds(tag)) {
                v[i] = slot[i].value();
                missing &= ~(1u << i);
            }
        }
    }
}

// The slots: products of two iterations, then sums of two iterations.
template <class T>
struct Exchange {
    u64* slots;
    u64 n, blocks;

    __device__ __forceinline__ u64* product(u32 tag, u32 which) const { return slots + ((tag & 1) * PRODUCTS + which) * n * Slot<T>::WORDS; }
    __device__ __forceinline__ u64* sum(u32 tag, u32 which) const {
        return slots + (2 * PRODUCTS * n + ((tag & 1) * SUMS + which) * blocks) * Slot<T>::WORDS;
    }

    // Fills the window of a product. A whole thread block calls this; each thread waits for COUNT elements at once.
    template <int COUNT>
    __device__ __forceinline__ void gather_by(u32 tag, const u64* from, u32 width, T* to) const {
        for (u32 base = threadIdx.x; base < width; base += COUNT * CREW) {
            T v[COUNT];
            await<COUNT>(from, base, CREW, width, tag, v);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (base + i * CREW < width) to[base + i * CREW] = v[i];
        }
    }
    __device__ __forceinline__ void gather(u32 tag, u32 which, u64 lo, u32 width, T* to) const {
        const u64* from = product(tag, which) + lo * Slot<T>::WORDS;
        if (width <= 2 * CREW) gather_by<2>(tag, from, width, to);
        else gather_by<5>(tag, from, width, to);
    }

    // Sum `which` from its block results, in lane 0. One warp, at most 1024 blocks.
    __device__ __forceinline__ T total(u32 tag, u32 which) const {
        const u64* from = sum(tag, which);
        u32 lane = threadIdx.x % WARP;
        T acc = T(0);
        if (blocks <= WARP) {
            T v[1] = {T(0)};
            if (lane < blocks) await<1>(from, lane, WARP, blocks, tag, v);
            if (blocks == 1) return v[0];  // a single result needs no addition
            acc += v[0];
        } else {
            for (u64 base = lane; base < blocks; base += 4 * WARP) {
                T v[4];
                await<4>(from, base, WARP, blocks, tag, v);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (base + i * WARP < blocks) acc += v[i];
            }
        }
        __syncwarp();
        return halve(acc);
    }
};

// Sends the result a . b of a block of `count` elements. One warp calls this.
template <class T>
__device__ __forceinline__ void send_dot(const T* a, const T* b, u32 count, u64* slots, u64 block, u32 tag) {
    u32 lane = threadIdx.x % WARP;
    T acc = T(0);
#pragma unroll 8
    for (int i = 0; i < BLOCK / WARP; i++) {
        u32 at = i * WARP + lane;
        if (at < count) acc = fma_rn(a[at], b[at], acc);
    }
    acc = halve(acc);
    if (lane == 0) Slot<T>::put(slots + block * Slot<T>::WORDS, tag, acc);
}

// What a thread block is responsible for.
struct Duty {
    u64 first, last;  // its rows
    u64 lo;           // its window begins at this column
    u32 width;        // and has this width
    bool host;        // whether it is host of the block of 1024 that begins with its first row,
    u64 block;        // the number of that block,
    u32 at, count;    // its place and length in the window

    __device__ __forceinline__ Duty(const Span& span, u64 n) {
        first = (u64)blockIdx.x * span.rows;
        last = first + span.rows < n ? first + span.rows : n;
        host = first % BLOCK == 0;
        block = first / BLOCK;
        u64 end_of_block = first + BLOCK < n ? first + BLOCK : n;
        lo = first > span.below ? first - span.below : 0;
        u64 hi = last + span.above < n ? last + span.above : n;
        if (host && hi < end_of_block) hi = end_of_block;
        width = (u32)(hi - lo);
        at = (u32)(first - lo);
        count = (u32)(end_of_block - first);
    }
};

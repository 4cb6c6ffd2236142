// Sets of so many elements that they are bitmaps in device memory, one per thread block, with a bit for each possible element.
//
// Layout: `words` words of 32 bits per thread block, all 0 between the sets. Grid: thread blocks of BITMAP_THREADS.
#pragma once
#include "spandrel.cuh"

#define BITMAP_THREADS 512

struct Bitmap {
    u32* words;
    u32 first, last;  // of the words that this thread has set bits in

    __device__ __forceinline__ Bitmap(u32* all, u32 each) : words(all + (u64)blockIdx.x * each), first(0xffffffffu), last(0) {}

    __device__ __forceinline__ void add(u32 element) {
        u32 word = element / 32;
        atomicOr(words + word, 1u << (element % 32));
        first = min(first, word);
        last = max(last, word);
    }

    // Calls visit(place, element) for each element, where `place` elements are smaller, empties the set and returns its size. The whole thread
    // block calls this, after all elements were added.
    template <class Visit>
    __device__ __forceinline__ u32 drain(Visit visit) {
        __shared__ u32 range[2], sums[BITMAP_THREADS / WARP];
        u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        if (threadIdx.x == 0) range[0] = 0xffffffffu, range[1] = 0;
        __syncthreads();
        atomicMin(range, first);
        atomicMax(range + 1, last);
        __syncthreads();
        u32 begin = range[0], end = range[1], before = 0;
        for (u32 base = begin; base <= end && begin != 0xffffffffu; base += BITMAP_THREADS) {
            u32 at = base + threadIdx.x, bits = at <= end ? __ldcg(words + at) : 0;
            if (bits) words[at] = 0;
            u32 count = __popc(bits), upto = count;
#pragma unroll
            for (int d = 1; d < WARP; d *= 2) {
                u32 other = __shfl_up_sync(ALL, upto, d);
                if (lane >= d) upto += other;
            }
            if (lane == WARP - 1) sums[warp] = upto;
            __syncthreads();
            u32 place = before + upto - count;
            for (u32 w = 0; w < BITMAP_THREADS / WARP; w++) {
                if (w < warp) place += sums[w];
                before += sums[w];
            }
            for (; bits; bits &= bits - 1) visit(place++, at * 32 + __ffs(bits) - 1);
            __syncthreads();  // `sums` may be written again
        }
        __syncthreads();  // so may `range`, and bits may be set again
        first = 0xffffffffu;
        last = 0;
        return before;
    }
};

// Running sums: where each of many counted pieces begins.
//
// Layout: `counts` has n elements; each becomes the sum of those before it. `sums` has one u64 per chunk of SCAN_CHUNK, and then the total.
// Sums of 2^32 or more wrap only in `counts`: the host checks the total before anything is read there.
// Grid: a thread block of 256 per chunk; one of 1024 for the chunks.
// Order: integers.
// Bytes: counts read twice and written once.
#include "spandrel.cuh"

#define SCAN_THREADS 256
#define SCAN_EACH 16
#define SCAN_CHUNK (SCAN_THREADS * SCAN_EACH)

template <class V>
__device__ __forceinline__ V warp_before(V v, V& all) {
    u32 lane = threadIdx.x % WARP;
    V upto = v;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        V other = __shfl_up_sync(ALL, upto, d);
        if (lane >= d) upto += other;
    }
    all = __shfl_sync(ALL, upto, WARP - 1);
    return upto - v;
}

// The sum of the values of earlier threads, and in `all` that of the whole thread block. `room`: one element per warp.
template <class V>
__device__ __forceinline__ V block_before(V v, V* room, V& all) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    V of_warp, before = warp_before(v, of_warp);
    if (lane == 0) room[warp] = of_warp;
    __syncthreads();
    V mine = lane < blockDim.x / WARP ? room[lane] : V(0);
    V ahead = warp_before(mine, all);
    before += __shfl_sync(ALL, ahead, warp);
    __syncthreads();  // `room` may be overwritten from here on
    return before;
}

__device__ __forceinline__ void load_chunk(const u32* counts, u64 n, u32 (&mine)[SCAN_EACH]) {
    u64 first = (u64)blockIdx.x * SCAN_CHUNK + threadIdx.x * SCAN_EACH;
#pragma unroll
    for (int i = 0; i < SCAN_EACH; i++) mine[i] = first + i < n ? counts[first + i] : 0;
}

__device__ __forceinline__ void sum_chunk(const u32* counts, u64 n, u64* sums) {
    __shared__ u64 room[SCAN_THREADS / WARP];
    u32 mine[SCAN_EACH];
    load_chunk(counts, n, mine);
    u64 sum = 0, all;
#pragma unroll
    for (int i = 0; i < SCAN_EACH; i++) sum += mine[i];
    block_before(sum, room, all);
    if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

// In place, by one thread block.
__device__ __forceinline__ void offset_chunks(u64* sums, u32 chunks) {
    __shared__ u64 room[1024 / WARP];
    u64 carry = 0;
    for (u32 base = 0; base < chunks; base += 1024) {
        u32 at = base + threadIdx.x;
        u64 v = at < chunks ? sums[at] : 0, all, before = block_before(v, room, all);
        if (at < chunks) sums[at] = carry + before;
        carry += all;
    }
    if (threadIdx.x == 0) sums[chunks] = carry;
}

__device__ __forceinline__ void spread_chunk(u32* counts, u64 n, const u64* sums) {
    __shared__ u64 room[SCAN_THREADS / WARP];
    u32 mine[SCAN_EACH];
    load_chunk(counts, n, mine);
    u64 sum = 0, all;
#pragma unroll
    for (int i = 0; i < SCAN_EACH; i++) sum += mine[i];
    u32 at = (u32)(sums[blockIdx.x] + block_before(sum, room, all));
    u64 first = (u64)blockIdx.x * SCAN_CHUNK + threadIdx.x * SCAN_EACH;
#pragma unroll
    for (int i = 0; i < SCAN_EACH; i++) {
        if (first + i < n) counts[first + i] = at;
        at += mine[i];
    }
}

// Counts do not depend on a type, but the names have one, as those of all kernels do.
#define SCANS(T, t)                                                                              \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS) sum_scan_##t(const u32* counts, u64 n, u64* sums) { sum_chunk(counts, n, sums); } \
    extern "C" __global__ void __launch_bounds__(1024) offset_scan_##t(u64* sums, u32 chunks) { offset_chunks(sums, chunks); } \
    extern "C" __global__ void __launch_bounds__(SCAN_THREADS) spread_scan_##t(u32* counts, u64 n, const u64* sums) { spread_chunk(counts, n, sums); }
FOR_EACH_TYPE(SCANS)

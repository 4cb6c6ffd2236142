// What products by pieces of whole rows have in common: entries four at a time, shares of a row, parts of long rows.
//
// Layout: columns and values of the entries, those of a row side by side, padded to a multiple of four entries.
// Order: a share by fma; a part: every 256th entry, the halving tree over the lanes, the warps in turn.
#pragma once
#include "parts.cuh"

// Entries of a lane in one step.
#define EACH 4

template <class T>
struct Four {
    T of[4];
};
__device__ __forceinline__ Four<u32> load_four(const u32* p) {
    uint4 v = __ldcs((const uint4*)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Four<float> load_four(const float* p) {
    float4 v = __ldcs((const float4*)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Four<double> load_four(const double* p) {
    double2 v = __ldcs((const double2*)p), w = __ldcs((const double2*)p + 1);
    return {v.x, v.y, w.x, w.y};
}

// Entries of a row by itself that each lane asks for at once.
#define SHARE_AHEAD 8

// Entries begin + who, begin + who + OF, ... before `end` of one row.
template <class T, int OF>
__device__ __forceinline__ T add_share(u32 begin, u32 end, u32 who, const u32* cols, const T* values, const T* x) {
    T acc = T(0);
    for (u32 e = begin + who; e < end; e += SHARE_AHEAD * OF) {
        u32 j[SHARE_AHEAD];
        T v[SHARE_AHEAD], of_x[SHARE_AHEAD];
#pragma unroll
        for (int i = 0; i < SHARE_AHEAD; i++) {
            u32 at = min(e + i * OF, end - 1);  // past the end, the last again, which is not added
            j[i] = stream(cols + at);
            v[i] = stream(values + at);
        }
        issued();
#pragma unroll
        for (int i = 0; i < SHARE_AHEAD; i++) of_x[i] = __ldg(x + j[i]);
        issued();
#pragma unroll
        for (int i = 0; i < SHARE_AHEAD; i++) {
            T sum = fma_rn(v[i], of_x[i], acc);
            if (e + i * OF < end) acc = sum;
        }
    }
    __syncwarp();
    return acc;
}

// A part of a long row. Whole thread block of 256.
template <class T>
__device__ __forceinline__ void spmv_part(const Part& part, u32 at, const u32* cols, const T* values, T* sums, u32* tickets, T a, const T* x, T b, T* y) {
    __shared__ T warp_sum[256 / WARP];
    T acc = halve(add_share<T, 256>(part.begin, part.end, threadIdx.x, cols, values, x));
    if (threadIdx.x % WARP == 0) warp_sum[threadIdx.x / WARP] = acc;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 1; i < 256 / WARP; i++) acc += warp_sum[i];
    }
    if (part.count > 1 && !last_part(part, at, acc, sums, tickets)) return;
    if (threadIdx.x == 0) finish_row(a, acc, b, y + part.row);
}

// Triangles: new values from device memory into the layouts of plans.
//
// Layout: `from` gives for each of n places where its value is among the triangle's, PADDING if a place has no value.
// Grid: 1024 places per thread block of 256.
// Order: element-wise; a reciprocal is rounded once.
// Bytes: `from` and what is written once, the values by sectors of 32 bytes.
#include "spandrel.cuh"

// to[i] = values[from[i]], or 0.
#define GATHER(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256) gather_triangle_##t(u64 n, const u32* __restrict__ from, const T* __restrict__ values, T* to) { \
        u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;                                       \
        _Pragma("unroll") for (int k = 0; k < 4; k++) {                                          \
            u64 i = first + k * 256;                                                             \
            if (i < n) to[i] = from[i] == PADDING ? T(0) : values[from[i]];                      \
        }                                                                                        \
    }
FOR_EACH_TYPE(GATHER)

// to[i] = 1 / values[from[i]].
#define INVERT(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256) invert_triangle_##t(u64 n, const u32* __restrict__ from, const T* __restrict__ values, T* to) { \
        u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;                                       \
        _Pragma("unroll") for (int k = 0; k < 4; k++) {                                          \
            u64 i = first + k * 256;                                                             \
            if (i < n) to[i] = T(1) / values[from[i]];                                           \
        }                                                                                        \
    }
FOR_EACH_TYPE(INVERT)

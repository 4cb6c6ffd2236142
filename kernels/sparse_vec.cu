// Sparse vectors: level 1 over their stored entries.
//
// Layout: indices ascend strictly; values[k] belongs to indices[k]. Indices are distinct, so no two threads write the same element.
// Grid: 1024 entries per thread block of 256, four per thread. The dot product: one warp per block of 1024 stored entries, one to eight
// warps per thread block; the last thread block to end combines the block results.
// Order: element-wise; the dot product in the tree over the packed entries.
// Bytes: indices and values once, y at the stored positions by sectors of 32 bytes.
#include "spandrel.cuh"

// y[i] = fma(a, s[i], y[i]).
#define AXPY(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) axpy_sparse_vec_##t(u64 nnz, Coeff<T> ca, const u32* __restrict__ indices, const T* __restrict__ values, T* y, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T a = ca.value();                                                                        \
        u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;                                       \
        u32 at[4];                                                                               \
        T s[4], before[4];                                                                       \
        _Pragma("unroll") for (int k = 0; k < 4; k++) {                                          \
            u64 e = first + k * 256;                                                             \
            if (e < nnz) at[k] = indices[e], s[k] = values[e];                                   \
        }                                                                                        \
        _Pragma("unroll") for (int k = 0; k < 4; k++) if (first + k * 256 < nnz) before[k] = y[at[k]]; \
        _Pragma("unroll") for (int k = 0; k < 4; k++) if (first + k * 256 < nnz) y[at[k]] = fma_rn(a, s[k], before[k]); \
    }
FOR_EACH_TYPE(AXPY)

// Values = y at the stored positions.
#define GATHER(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256) gather_sparse_vec_##t(u64 nnz, const u32* __restrict__ indices, const T* __restrict__ y, T* values, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;                                       \
        T v[4];                                                                                  \
        _Pragma("unroll") for (int k = 0; k < 4; k++) if (first + k * 256 < nnz) v[k] = y[indices[first + k * 256]]; \
        _Pragma("unroll") for (int k = 0; k < 4; k++) if (first + k * 256 < nnz) values[first + k * 256] = v[k]; \
    }
FOR_EACH_TYPE(GATHER)

// y at the stored positions = values.
#define SCATTER(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) scatter_sparse_vec_##t(u64 nnz, const u32* __restrict__ indices, const T* __restrict__ values, T* __restrict__ y, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;                                       \
        _Pragma("unroll") for (int k = 0; k < 4; k++) {                                          \
            u64 e = first + k * 256;                                                             \
            if (e < nnz) y[indices[e]] = values[e];                                              \
        }                                                                                        \
    }
FOR_EACH_TYPE(SCATTER)

// s . y.
#define DOT(T, t)                                                                                \
    extern "C" __global__ void __launch_bounds__(256) dot_sparse_vec_##t(u64 nnz, const u32* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ y, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 block = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP, blocks = (nnz + BLOCK - 1) / BLOCK; \
        u64 first = block * BLOCK + threadIdx.x % WARP;                                          \
        T acc = T(0);                                                                            \
        _Pragma("unroll 8") for (int i = 0; i < BLOCK / WARP; i++) {                             \
            u64 e = first + (u64)i * WARP;                                                       \
            if (e < nnz) acc = fma_rn(values[e], y[indices[e]], acc);                            \
        }                                                                                        \
        if (block >= (blocks > 0 ? blocks : 1)) return;                                          \
        T sum[1] = {halve(acc)};                                                                 \
        finish_warp<T, 1>(tree, block, blocks, sum);                                             \
    }
FOR_EACH_TYPE(DOT)

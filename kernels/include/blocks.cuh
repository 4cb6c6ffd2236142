// The rows of dense square blocks, for BSR and BSRX.
//
// Layout: entry r, c of block k at values[k*b*b + r*b + c]. Neighbouring lanes take the rows of a block row, so that together they
// read its blocks whole, each lane its own row by loads of 8 or 16 bytes if b permits.
// Order: stored: ascending columns through the blocks in order; columns past the matrix are skipped.
#pragma once
#include "spandrel.cuh"

// Elements of a row of b that one load takes: 16 or 8 bytes.
template <class T, int B>
struct Pack {
    static const int whole = 16 / sizeof(T), half = 8 / sizeof(T);
    static const int len = B % whole == 0 ? whole : B % half == 0 ? half : 1;
};

__device__ __forceinline__ void take(const float* p, float (&v)[1]) { v[0] = __ldg(p); }
__device__ __forceinline__ void take(const double* p, double (&v)[1]) { v[0] = __ldg(p); }
__device__ __forceinline__ void take(const float* p, float (&v)[2]) {
    float2 q = __ldg((const float2*)p);
    v[0] = q.x, v[1] = q.y;
}
__device__ __forceinline__ void take(const float* p, float (&v)[4]) {
    float4 q = __ldg((const float4*)p);
    v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
}
__device__ __forceinline__ void take(const double* p, double (&v)[2]) {
    double2 q = __ldg((const double2*)p);
    v[0] = q.x, v[1] = q.y;
}

// Loads B elements from an address that is a multiple of a pack's.
template <class T, int B>
__device__ __forceinline__ void take_row(const T* p, T (&v)[B]) {
    const int len = Pack<T, B>::len;
#pragma unroll
    for (int c = 0; c < B; c += len) {
        T pack[len];
        take(p + c, pack);
#pragma unroll
        for (int i = 0; i < len; i++) v[c + i] = pack[i];
    }
}

// Blocks of B x B; B = 0 for any size, then `dim`. For B > 0, x must be a multiple of 16 bytes.
template <class T, int B>
struct BlockRows {
    const T* __restrict__ values;
    const u32* __restrict__ cols;
    const u32* __restrict__ begin;
    const u32* __restrict__ end;
    u32 dim;
    u64 ncols;
    const T* __restrict__ x;

    __device__ __forceinline__ u32 size() const { return B ? B : dim; }

    // Row r of blocks k .. last, one element at a time.
    __device__ __forceinline__ T walk(u64 k, u64 last, u32 r, T acc) const {
        u64 b = size();
        for (; k < last; k++) {
            u64 first = __ldg(cols + k) * b;
            u64 len = ncols - first < b ? ncols - first : b;
            const T* v = values + (k * b + r) * b;
#pragma unroll 4
            for (u64 c = 0; c < len; c++) acc = fma_rn(__ldg(v + c), __ldg(x + first + c), acc);
        }
        return acc;
    }

    // Up to U blocks from k on, exactly U if WHOLE, whose block columns are `col`; then `col` becomes that of the next U.
    template <bool WHOLE, int U>
    __device__ __forceinline__ void batch(const T* at, u32 k, u32 last, u32 (&col)[U], T& acc) const {
        const int N = B ? B : 1;
        T v[U][N], xs[U][N];
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (WHOLE || k + u < last) {
                take_row<T, N>(at + u * N * N, v[u]);
                take_row<T, N>(x + (u64)col[u] * N, xs[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++)
            if (WHOLE && k + U + u < last) col[u] = __ldg(cols + k + U + u);
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (WHOLE || k + u < last) {
#pragma unroll
                for (int c = 0; c < N; c++) acc = fma_rn(v[u][c], xs[u][c], acc);
            }
        }
    }

    // The sum of row r of a block row.
    __device__ __forceinline__ T row(u32 block_row, u32 r) const {
        u32 k = __ldg(begin + block_row), stop = __ldg(end + block_row);
        if constexpr (B == 0) {
            return walk(k, stop, r, T(0));
        } else {
            // 64 bytes of values in flight, and the block columns after them.
            const int U = 64 / (int)sizeof(T) / B > 0 ? 64 / (int)sizeof(T) / B : 1;
            u32 last = stop;
            // Only a row's last block can reach past the matrix.
            if (ncols % B != 0 && k < stop && (u64)__ldg(cols + stop - 1) + 1 > ncols / B) last--;
            T acc = T(0);
            u32 col[U];
#pragma unroll
            for (int u = 0; u < U; u++) col[u] = k + u < last ? __ldg(cols + k + u) : 0;
            const T* at = values + ((u64)k * B + r) * B;
            for (; k + U <= last; k += U, at += U * B * B) batch<true, U>(at, k, last, col, acc);
            if (U > 1 && k < last) batch<false, U>(at, k, last, col, acc);
            return last < stop ? walk(last, stop, r, acc) : acc;
        }
    }

    // The sums of row r of a block row for `count` columns of X, at most 4, the first at `columns`.
    __device__ __forceinline__ void row_of_columns(u32 block_row, u32 r, const T* __restrict__ columns, u32 count, T (&acc)[4]) const {
        u64 b = size();
        for (u64 k = begin[block_row], stop = end[block_row]; k < stop; k++) {
            u64 first = __ldg(cols + k) * b;
            u64 len = ncols - first < b ? ncols - first : b;
            const T* v = values + (k * b + r) * b;
            const T* of_block = columns + first;
#pragma unroll 4
            for (u64 c = 0; c < len; c++) {
                T value = __ldg(v + c);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (i < count) acc[i] = fma_rn(value, __ldg(of_block + i * ncols + c), acc[i]);
            }
        }
    }
};

// `ENTRY(T, type, B, stem)` for the sizes with kernels of their own, and for any size.
#define FOR_EACH_DIM(ENTRY, T, t) \
    ENTRY(T, t, 0, ) ENTRY(T, t, 2, 2_) ENTRY(T, t, 3, 3_) ENTRY(T, t, 4, 4_) ENTRY(T, t, 5, 5_) ENTRY(T, t, 6, 6_) ENTRY(T, t, 8, 8_)

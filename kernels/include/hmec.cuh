// HEC and HMEC: products with a matrix of packed blocks and a CSR rest over rows sorted by length.
//
// Layout: `cols` and `values` hold the blocks one after the other; block p covers the sorted rows before `rows`, its entry k of row r
// at `at` + r + rows*k. Rest row r continues where the last block ends, its entries behind all blocks' from `rest_at` on. Sorted
// row r is row perm[r] of y. Twin of `Packed`: crates/backend-cuda/src/hmec.rs, two u64 per block.
#pragma once
#include "ell.cuh"
#include "lanes.cuh"

struct Packed {
    u64 at;
    u32 rows, width;
};

template <class T>
struct HmecRows {
    const u32* perm;
    const Packed* blocks;
    u32 count;
    const u32* cols;
    const T* values;
    const u32* rest_ptr;
    const u32* rest_cols;
    const T* rest_values;
    u32 rest_rows;
    u32 heavy;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return __ldg(perm + row); }
    __device__ __forceinline__ u64 heavy_row(u32 i) const { return i; }
    __device__ __forceinline__ bool is_heavy(u64 row) const { return row < heavy; }
    __device__ __forceinline__ u64 first_light() const { return heavy / WARP * WARP; }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64, T (&acc)[N]) const {
        static_assert(N == 1, "one row a thread");
        for (u32 p = 0; p < count; p++) {
            u32 rows = blocks[p].rows;
            if (row >= rows) break;  // the blocks after it are even shorter
            u64 at = blocks[p].at;
            add_packed(cols + at, values + at, rows, blocks[p].width, row, step, x, acc);
        }
        if (row < rest_rows) acc[0] = add_entries(rest_cols, rest_values, __ldg(rest_ptr + row), __ldg(rest_ptr + row + 1), 1, x, acc[0]);
    }

    __device__ __forceinline__ T part(u64 row, u32 who, u32 of) const {
        T acc = T(0);
        for (u32 p = 0; p < count; p++) {
            u64 at = blocks[p].at;
            if (row < blocks[p].rows) acc = add_packed_part(cols + at, values + at, blocks[p].rows, blocks[p].width, row, who, of, x, acc);
        }
        // A heavy row has a rest.
        return add_entries(rest_cols, rest_values, __ldg(rest_ptr + row) + who, __ldg(rest_ptr + row + 1), of, x, acc);
    }
};

#define HMEC_ENTRIES(noun, T, t)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_##noun##_##t(const u32* perm, const Packed* blocks, u32 count, const u32* cols, const T* values, const u32* rest_ptr, const u32* rest_cols, const T* rest_values, u32 rest_rows, u64 nrows, u32 longs, u32 heavy, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        HmecRows<T> rows{perm, blocks, count, cols, values, rest_ptr, rest_cols, rest_values, rest_rows, heavy, x}; \
        spmv_tailed_rows(rows, nrows, longs, heavy, a, b, y, gate);                              \
    }

// The blocks of a matrix that has at most COUNT; missing blocks have no rows.
template <int COUNT>
struct FewBlocks {
    Packed of[COUNT];
};

template <int COUNT>
struct HmecPlaces {
    const u32* perm;
    FewBlocks<COUNT> blocks;
    const u32* rest_ptr;
    u32 rest_at, rest_rows, heavy;

    __device__ __forceinline__ u32 heavy_row(u32 i) const { return i; }
    __device__ __forceinline__ bool is_heavy(u32 row) const { return row < heavy; }
    __device__ __forceinline__ u32 first_light() const { return heavy / WARP * WARP; }
    __device__ __forceinline__ u32 target(u32 row) const { return __ldg(perm + row); }
    __device__ __forceinline__ Places<COUNT> places(u32 row) const {
        u32 from = row < rest_rows ? __ldg(rest_ptr + row) : 0, to = row < rest_rows ? __ldg(rest_ptr + row + 1) : 0;
        Places<COUNT> places;
        u32 packed = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const Packed& block = blocks.of[i];
            places.start[i] = (u32)block.at + row - block.rows * packed;
            places.stride[i] = block.rows;
            packed += row < block.rows ? block.width : 0;
            places.end[i] = packed;
        }
        places.tail = rest_at + from - packed;
        places.total = packed + (to - from);
        return places;
    }
};

#define LANES_ENTRIES(name, COUNT, T, t)                                                         \
    extern "C" __global__ void __launch_bounds__(256) spmv_##name##_##t(const u32* perm, const __grid_constant__ FewBlocks<COUNT> blocks, const u32* cols, const T* values, const u32* rest_ptr, u32 rest_at, u32 rest_rows, u64 nrows, u32 longs, u32 heavy, u32 shift, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        HmecPlaces<COUNT> rows{perm, blocks, rest_ptr, rest_at, rest_rows, heavy};               \
        spmv_lanes_rows(rows, cols, values, (u32)nrows, longs, heavy, shift, a, x, b, y, gate);  \
    }

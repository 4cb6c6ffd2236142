// HYB: products with a matrix of a packed part and tails of the longer rows, in one kernel.
//
// Layout: packed part as ELL. Bit i % 32 of overflow[i/32].x says that row i has a tail, .y how many rows before row i/32*32 have
// one; tail t is tail_ptr[t]..tail_ptr[t+1] of the COO part's columns and values, whose row numbers are not read. These lie behind the
// packed part's, from `tail_at` on.
// Grid: thread blocks of 128 or 256; one for each row with a very long tail, then one warp for each further row with a long tail, then
// one thread for each other row. spmv_lanes: see include/lanes.cuh. spmv_dot, if no tail is long: as ell.cu.
// fill_from_csr: any number of thread blocks of 128, 32 rows per warp at a time, see include/walk.cuh.
// Order: stored, except for rows with a long tail: there a tree over the lanes (include/ell.cuh). No such rows if results must be
// reproducible. spmv_lanes: see include/lanes.cuh.
// Bytes: ELL's, the tails' columns and values, 8 per 32 rows and 4 per tail.
#include "ell.cuh"
#include "lanes.cuh"
#include "walk.cuh"

template <class T>
struct HybRows {
    const u32* cols;
    const T* values;
    u32 width;
    u64 rows;
    const uint2* overflow;
    const u32* tail_ptr;
    const u32* tail_cols;
    const T* tail_values;
    const u32* heavy_rows;
    u32 threshold;  // entries of a tail that make its row heavy
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }
    __device__ __forceinline__ u64 heavy_row(u32 i) const { return __ldg(heavy_rows + i); }
    __device__ __forceinline__ u64 first_light() const { return 0; }

    // The tail of a row, empty if it has none.
    __device__ __forceinline__ uint2 tail(u64 row) const {
        uint2 word = __ldg(overflow + row / 32);
        u32 bit = 1u << (u32)(row % 32);
        if (!(word.x & bit)) return make_uint2(0, 0);
        const u32* at = tail_ptr + word.y + __popc(word.x & (bit - 1));
        return make_uint2(__ldg(at), __ldg(at + 1));
    }

    __device__ __forceinline__ bool is_heavy(u64 row) const {
        uint2 range = tail(row);
        return range.y - range.x >= threshold;
    }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        add_packed(cols, values, rows, width, row, step, x, acc);
#pragma unroll 1
        for (int i = 0; i < N; i++) {
            u64 r = row + i * step;
            if (r >= nrows) break;
            uint2 range = tail(r);
            if (range.x == range.y) continue;
            // The loop is not unrolled; acc[i] is picked without a run-time index.
            T sum = T(0);
#pragma unroll
            for (int s = 0; s < N; s++)
                if (s == i) sum = acc[s];
            sum = add_entries(tail_cols, tail_values, range.x, range.y, 1, x, sum);
#pragma unroll
            for (int s = 0; s < N; s++)
                if (s == i) acc[s] = sum;
        }
    }

    __device__ __forceinline__ T part(u64 row, u32 who, u32 of) const {
        uint2 range = tail(row);
        T acc = add_packed_part(cols, values, rows, width, row, who, of, x, T(0));
        return add_entries(tail_cols, tail_values, range.x + who, range.y, of, x, acc);
    }
};

template <class T>
struct HybPlaces {
    HybRows<T> rows;
    u32 tail_at;

    __device__ __forceinline__ u32 heavy_row(u32 i) const { return (u32)rows.heavy_row(i); }
    __device__ __forceinline__ bool is_heavy(u32 row) const { return rows.is_heavy(row); }
    __device__ __forceinline__ u32 first_light() const { return 0; }
    __device__ __forceinline__ u32 target(u32 row) const { return row; }
    __device__ __forceinline__ Places<1> places(u32 row) const {
        uint2 tail = rows.tail(row);
        return {{row}, {(u32)rows.rows}, {rows.width}, tail_at + tail.x - rows.width, rows.width + (tail.y - tail.x)};
    }
};

#define ROWS(T) HybRows<T>{cols, values, width, nrows, overflow, tail_ptr, tail_cols, tail_values, heavy_rows, threshold, x}
#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_hyb_##t(const u32* cols, const T* values, u32 width, u64 nrows, const uint2* overflow, const u32* tail_ptr, const u32* tail_cols, const T* tail_values, const u32* heavy_rows, u32 threshold, u32 longs, u32 heavy, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_tailed_rows(ROWS(T), nrows, longs, heavy, a, b, y, gate);                           \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_lanes_hyb_##t(const u32* cols, const T* values, u32 width, u64 nrows, const uint2* overflow, const u32* tail_ptr, u32 tail_at, const u32* heavy_rows, u32 threshold, u32 longs, u32 heavy, u32 shift, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        HybRows<T> rows{cols, values, width, nrows, overflow, tail_ptr, nullptr, nullptr, heavy_rows, threshold, x}; \
        spmv_lanes_rows(HybPlaces<T>{rows, tail_at}, cols, values, (u32)nrows, longs, heavy, shift, a, x, b, y, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_dot_hyb_##t(const u32* cols, const T* values, u32 width, u64 nrows, const uint2* overflow, const u32* tail_ptr, const u32* tail_cols, const T* tail_values, const u32* heavy_rows, u32 threshold, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(ROWS(T), nrows, y, w, tree, gate);                                         \
    }
FOR_EACH_TYPE(ENTRIES)

// The first entries of a row and padding behind them as in ELL, the others in its tail.
template <class T>
struct FillHyb {
    struct Row {
        u32 tail;
    };
    u32 width;
    u64 nrows;
    const uint2* overflow;
    const u32* tail_ptr;
    u32* cols;
    T* values;
    u32* tail_cols;
    T* tail_values;

    __device__ __forceinline__ Row open(u32 row) const {
        uint2 word = __ldg(overflow + row / WARP);
        u32 bit = 1u << row % WARP;
        return {word.x & bit ? __ldg(tail_ptr + word.y + __popc(word.x & (bit - 1))) : 0};
    }
    __device__ __forceinline__ void put(u32 row, u32 e, u32 col, T value) const {
        u64 at = (u64)e * nrows + row;
        cols[at] = col;
        values[at] = value;
    }
    __device__ __forceinline__ void visit(Row& here, u32 row, u32 e, u32 col, T value) const {
        if (e < width) {
            put(row, e, col, value);
        } else {
            tail_cols[here.tail + (e - width)] = col;
            tail_values[here.tail + (e - width)] = value;
        }
    }
    __device__ __forceinline__ void close(const Row&, u32 row, u32 len) const {
        for (u32 e = len; e < width; e++) put(row, e, PADDING, T(0));
    }
};

#define FROM_CSR(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) fill_from_csr_hyb_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, u32 width, const uint2* overflow, const u32* tail_ptr, u32* out_cols, T* out_values, u32* tail_cols, T* tail_values) { \
        FillHyb<T> visitor{width, nrows, overflow, tail_ptr, out_cols, out_values, tail_cols, tail_values}; \
        walk_rows<T, true>(row_ptr, cols, values, nrows, visitor);                               \
    }
FOR_EACH_TYPE(FROM_CSR)

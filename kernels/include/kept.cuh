// Matrices of persistent kernels: the thread block's part of them on chip, as far as it fits, and its rows of a product.
//
// Layout: that of each format; each format says below what is on chip.
// Order: stored, except for CSR with several lanes per row.
#pragma once
#include "exchange.cuh"

// DIA, whose first diagonals a thread block keeps on chip. Its room: the offsets of all diagonals, padded to 16 bytes, then
// kept * span.rows values.
template <class T>
struct KeptDia {
    const T* values;
    const int* stored;  // offsets as stored
    u32 upper;          // diagonals stored
    u32 symmetric;
    u64 stride;         // from diagonal to diagonal
    u64 n;
    // Set by `keep`.
    u32 lower, kept, rows;  // diagonals that are stored as their mirror images
    u64 first;
    const int* offsets;
    const T* tile;

    __device__ __forceinline__ u32 place(u32 k) const { return k < lower ? upper - 1 - k : k - lower; }
    __device__ __forceinline__ i64 offset_of(u32 k) const {
        i64 offset = stored[place(k)];
        return k < lower ? -offset : offset;
    }
    // The entry of diagonal k in a row whose column lies inside the matrix.
    __device__ __forceinline__ T entry(u32 k, i64 offset, u64 row) const { return __ldg(values + (u64)place(k) * stride + (k < lower ? row + offset : row)); }

    __device__ __forceinline__ void keep(const Span& span, const Duty& duty, unsigned char* room) {
        lower = symmetric && upper > 0 ? upper - (stored[0] == 0) : 0;
        kept = span.kept;
        rows = span.rows;
        first = duty.first;
        u32 diagonals = lower + upper;
        int* offsets_here = (int*)room;
        T* tile_here = (T*)(room + ((u64)diagonals * 4 + 15) / 16 * 16);
        for (u32 k = threadIdx.x; k < diagonals; k += CREW) offsets_here[k] = (int)offset_of(k);
        // One warp per diagonal.
#pragma unroll 1
        for (u32 k = threadIdx.x / WARP; k < kept; k += CREW / WARP) {
            i64 offset = offset_of(k);
            const T* diagonal = values + (u64)place(k) * stride + first + (k < lower ? offset : 0);
            T* to = tile_here + (u64)k * rows;
#pragma unroll 8
            for (u32 i = threadIdx.x % WARP; i < rows; i += WARP) {
                bool inside = first + i < n && (u64)((i64)(first + i) + offset) < n;
                to[i] = inside ? __ldg(diagonal + i) : T(0);
            }
        }
        offsets = offsets_here;
        tile = tile_here;
    }

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    // Positions outside the matrix add 0 * -0 = -0, which changes no sum, not even -0.
    template <bool HERE>
    __device__ __forceinline__ T add(u32 from, u32 to, u64 row, const T* x, T acc) const {
        u32 i = (u32)(row - first);
#pragma unroll 1
        for (u32 k = from; k < to; k += 8) {
            T v[8], u[8];
#pragma unroll
            for (u32 s = 0; s < 8; s++) {
                bool inside = k + s < to;
                i64 offset = inside ? offsets[k + s] : 0;
                i64 j = (i64)row + offset;
                inside = inside && (u64)j < n;
                u[s] = inside ? x[j] : -T(0);
                if (HERE) v[s] = inside ? tile[(k + s) * rows + i] : T(0);
                else v[s] = inside ? entry(k + s, offset, row) : T(0);
            }
#pragma unroll
            for (u32 s = 0; s < 8; s++) acc = fma_rn(v[s], u[s], acc);
        }
        return acc;
    }

    __device__ __forceinline__ T row(u64 row, const T* x) const {
        T acc = add<true>(0, kept, row, x, T(0));
        return add<false>(kept, lower + upper, row, x, acc);
    }
};

// Where packed rows lie: entry k of a row at begin(row) + k*step(), width(row) of them.
struct EllPlaces {
    u32 width_;
    u64 n;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }
    __device__ __forceinline__ u64 begin(u64 row) const { return row; }
    __device__ __forceinline__ u64 step() const { return n; }
    __device__ __forceinline__ u32 width(u64) const { return width_; }
    __device__ __forceinline__ u32 widest() const { return width_; }
};
struct SellPlaces {
    const u32* slice_ptr;
    const u32* perm;
    u32 c, widest_;

    __device__ __forceinline__ u64 target(u64 row) const { return __ldg(perm + row); }
    __device__ __forceinline__ u64 begin(u64 row) const {
        u32 slice = (u32)row / c;
        return (u64)__ldg(slice_ptr + slice) * c + ((u32)row - slice * c);
    }
    __device__ __forceinline__ u64 step() const { return c; }
    __device__ __forceinline__ u32 width(u64 row) const {
        u32 slice = (u32)row / c;
        return __ldg(slice_ptr + slice + 1) - __ldg(slice_ptr + slice);
    }
    __device__ __forceinline__ u32 widest() const { return widest_; }
};

// Packed rows, the first span.kept entries of each of which are on chip. Its room: kept * span.rows values, then as many columns.
template <class T, class Places>
struct KeptPacked {
    Places places;
    const u32* cols;
    const T* values;
    // Set by `keep`.
    u32 kept, rows;
    u64 first;
    const T* tile;
    const u32* tile_cols;

    __device__ __forceinline__ void keep(const Span& span, const Duty& duty, unsigned char* room) {
        kept = span.kept;
        rows = span.rows;
        first = duty.first;
        T* values_here = (T*)room;
        u32* cols_here = (u32*)(values_here + (u64)kept * rows);
        u32 count = (u32)(duty.last - duty.first);
        for (u32 i = threadIdx.x; i < count; i += CREW) {
            u64 from = places.begin(first + i), step = places.step();
            u32 width = places.width(first + i);
#pragma unroll 8
            for (u32 k = 0; k < kept; k++) {
                u64 at = from + k * step, to = (u64)k * rows + i;
                bool inside = k < width;
                values_here[to] = inside ? __ldg(values + at) : T(0);
                cols_here[to] = inside ? __ldg(cols + at) : PADDING;
            }
        }
        tile = values_here;
        tile_cols = cols_here;
    }

    __device__ __forceinline__ u64 target(u64 row) const { return places.target(row); }

    // Padding adds 0 * -0 = -0, which changes no sum, not even -0.
    template <bool HERE>
    __device__ __forceinline__ T add(u32 from, u32 to, u64 begin, u64 step, const T* x, T acc) const {
#pragma unroll 1
        for (u32 k = from; k < to; k += 8) {
            u32 col[8];
            T v[8];
#pragma unroll
            for (u32 s = 0; s < 8; s++) {
                bool inside = k + s < to;
                u64 at = begin + (k + s) * step;
                if (HERE) {
                    col[s] = inside ? tile_cols[(u32)at] : PADDING;
                    v[s] = inside ? tile[(u32)at] : T(0);
                } else {
                    col[s] = inside ? __ldg(cols + at) : PADDING;
                    v[s] = inside ? __ldg(values + at) : T(0);
                }
            }
#pragma unroll
            for (u32 s = 0; s < 8; s++) acc = fma_rn(v[s], col[s] != PADDING ? x[col[s]] : -T(0), acc);
        }
        return acc;
    }

    __device__ __forceinline__ T row(u64 row, const T* x) const {
        T acc = add<true>(0, kept, row - first, rows, x, T(0));
        if (kept == places.widest()) return acc;
        return add<false>(kept, places.width(row), places.begin(row), places.step(), x, acc);
    }
};

// CSR, several lanes per row (a power of two up to 32): each adds every lanes-th entry in order, then a halving tree; with one lane
// that is the stored order. The first span.kept * span.rows entries of a thread block lie on chip. Its room: the values, the
// columns, then rows + 1 positions.
template <class T>
struct KeptCsr {
    const u32* row_ptr;
    const u32* cols;
    const T* values;
    u64 n;
    u32 lanes;
    // Set by `keep`.
    u32 room_for, base;  // entries on chip, the first of them
    const T* tile;
    const u32* tile_cols;
    const u32* ends;

    __device__ __forceinline__ void keep(const Span& span, const Duty& duty, unsigned char* room) {
        room_for = span.kept * span.rows;
        base = __ldg(row_ptr + duty.first);
        u32 entries = __ldg(row_ptr + duty.last) - base, count = (u32)(duty.last - duty.first);
        T* values_here = (T*)room;
        u32* cols_here = (u32*)(values_here + room_for);
        u32* ends_here = cols_here + room_for;
        u32 here = entries < room_for ? entries : room_for;
#pragma unroll 8
        for (u32 k = threadIdx.x; k < here; k += CREW) {
            values_here[k] = __ldg(values + base + k);
            cols_here[k] = __ldg(cols + base + k);
        }
        for (u32 i = threadIdx.x; i <= count; i += CREW) ends_here[i] = __ldg(row_ptr + duty.first + i) - base;
        tile = values_here;
        tile_cols = cols_here;
        ends = ends_here;
    }

    // acc and the entries from, from + lanes, ... before `to`. Missing entries add 0 * -0 = -0, which changes no sum, not even
    // -0.
    template <bool HERE>
    __device__ __forceinline__ T add(u32 from, u32 to, const T* x, T acc) const {
#pragma unroll 1
        for (u32 k = from; k < to; k += 8 * lanes) {
            u32 col[8];
            T v[8];
#pragma unroll
            for (u32 s = 0; s < 8; s++) {
                u32 at = k + s * lanes;
                bool inside = at < to;
                if (HERE) {
                    col[s] = inside ? tile_cols[at] : PADDING;
                    v[s] = inside ? tile[at] : T(0);
                } else {
                    col[s] = inside ? __ldg(cols + base + at) : PADDING;
                    v[s] = inside ? __ldg(values + base + at) : T(0);
                }
            }
#pragma unroll
            for (u32 s = 0; s < 8; s++) acc = fma_rn(v[s], col[s] != PADDING ? x[col[s]] : -T(0), acc);
        }
        return acc;
    }

    // A lane's share of the thread block's row i.
    __device__ __forceinline__ T share(u32 i, u32 lane, const T* x) const {
        u32 from = ends[i] + lane, to = ends[i + 1], border = to < room_for ? to : room_for, left = from;
        T acc = add<true>(from, border, x, T(0));
        if (from < border) left += (border - from + lanes - 1) / lanes * lanes;  // the first of the lane's entries that is not on chip
        return add<false>(left, to, x, acc);
    }
};

// y = A x over the thread block's rows, sent to the other blocks. `x` is the window.
template <class T, class Matrix>
__device__ __forceinline__ void send_product(const Matrix& m, const Duty& duty, const T* x, u64* slots, u32 tag) {
#pragma unroll 1
    for (u64 row = duty.first + threadIdx.x; row < duty.last; row += CREW) {
        T acc = m.row(row, x - (i64)duty.lo);
        Slot<T>::put(slots + m.target(row) * Slot<T>::WORDS, tag, acc);
    }
}

template <class T>
__device__ __forceinline__ void send_product(const KeptCsr<T>& m, const Duty& duty, const T* x, u64* slots, u32 tag) {
    u32 count = (u32)(duty.last - duty.first), lane = threadIdx.x & (m.lanes - 1), rows = CREW / m.lanes;
    // Whole warps loop, because their lanes add up together.
#pragma unroll 1
    for (u32 i = threadIdx.x / m.lanes; i - threadIdx.x / m.lanes < count; i += rows) {
        T acc = i < count ? m.share(i, lane, x - (i64)duty.lo) : T(0);
        __syncwarp();
#pragma unroll 1
        for (u32 d = m.lanes / 2; d > 0; d /= 2) acc += __shfl_down_sync(ALL, acc, d, m.lanes);
        if (i < count && lane == 0) Slot<T>::put(slots + (duty.first + i) * Slot<T>::WORDS, tag, acc);
    }
}

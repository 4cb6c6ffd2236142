// CSR: products by rows staged in shared memory, by one thread or several lanes per row, and by equal shares of rows and entries.
// CSC uses these kernels too, with its rows or its columns as the rows.
//
// Layout: row_ptr, col_idx and values as on the host. Columns and values are read 16 bytes at a time and start at multiples of that. The last
// entries, if fewer than four, are read one by one, so that nothing past them is read: the arrays may belong to someone else.
// Grid: staged, one warp with 32 rows per thread block; with a dot product, 1024 rows per thread block of any number of warps.
// Scalar, 1024 rows per thread block of 256. Vector, 256 threads with 2 to 32 lanes per row. Binned, 256 threads with 1 to 256 lanes per row,
// the same number in a thread block, or a thread block per piece of a longer row. Long, 256 threads with 8 to 32 lanes per row. Balanced, see
// include/pieces.cuh.
// Order: stored for staged and scalar; vector, long and binned by fma in each lane and a halving tree; balanced as include/pieces.cuh says.
// Bytes: col_idx, values, row_ptr and y once; x from the caches after its first use. Balanced: a bit per entry and
// 16 bytes per piece instead of row_ptr. Binned: 16 bytes per row.
// Persistent (cg_csr, bicgstab_csr): rows as scalar and vector sum them; see include/persistent.cuh.
// check_rows, check_columns: see include/checked.cuh.
// Variants: sm_90
#include "checked.cuh"
#include "marked.cuh"
#include "persistent.cuh"

// Entries whose x a lane requests before it adds the first: a row of 33 then waits for the cache three times, with 8 it would wait five times.
// `spandrel-bench spmv --formats csr` shows the times of other numbers.
#define AHEAD 14
// The same for lanes that share a row.
#define AHEAD_OF_LANES 8
// The same if rows are no longer than this: fewer registers, more warps.
#define AHEAD_OF_SHORT 8
// Rows per warp.
#define GROUP WARP

// Where entry e lies in shared memory. Rows of 8, 16, 24, ... entries would all begin on a few banks. Swizzling permutes groups of 16
// bytes inside 128 bytes, each time in another way. Rows of other lengths have fewer bank conflicts without it.
template <bool SWIZZLED, class E>
__device__ __forceinline__ u32 place(u32 e) {
    if (!SWIZZLED) return e;
    constexpr u32 PER = 16 / sizeof(E);
    u32 unit = e / PER;
    return e ^ ((((unit >> 3) ^ (unit >> 4)) & 7) * PER);
}

#if __CUDA_ARCH__ >= 800
// Bypasses the first-level cache, which is for x, and is evicted first from the second.
template <class E, bool SWIZZLED>
__device__ __forceinline__ void bring(E* to, const E* from, u32 units, u32 lane) {
    constexpr u32 PER = 16 / sizeof(E);
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#pragma unroll 4
    for (u32 u = lane; u < units; u += WARP) {
        u32 at = (u32)__cvta_generic_to_shared(to + place<SWIZZLED, E>(u * PER));
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(at), "l"(from + u * PER), "l"(policy) : "memory");
    }
}
__device__ __forceinline__ void arrived() {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
}
#else
template <class E, bool SWIZZLED>
__device__ __forceinline__ void bring(E* to, const E* from, u32 units, u32 lane) {
    constexpr u32 PER = 16 / sizeof(E), DEEP = 4;
    for (u32 first = lane; first < units; first += DEEP * WARP) {
        int4 got[DEEP];
#pragma unroll
        for (int i = 0; i < DEEP; i++)
            if (first + i * WARP < units) got[i] = __ldcs((const int4*)(from + (first + i * WARP) * PER));
#pragma unroll
        for (int i = 0; i < DEEP; i++)
            if (first + i * WARP < units) *(int4*)(to + place<SWIZZLED, E>((first + i * WARP) * PER)) = got[i];
    }
}
__device__ __forceinline__ void arrived() { __syncwarp(); }
#endif

extern __shared__ __align__(16) unsigned char dynamic_shared[];

// A warp's room for `capacity` entries (a multiple of 4; of 32 if swizzled), and the arrays that they come from.
template <class T, bool SWIZZLED>
struct Stage {
    const u32* col_idx;
    const T* values;
    u32 nnz, capacity;
    T* shared_values;
    u32* shared_cols;

    __device__ __forceinline__ Stage(const u32* col_idx, const T* values, u32 nnz, u32 capacity, unsigned char* room, u32 warp)
        : col_idx(col_idx), values(values), nnz(nnz), capacity(capacity) {
        unsigned char* own = room + (u64)warp * capacity * (sizeof(T) + sizeof(u32));
        shared_values = (T*)own;
        shared_cols = (u32*)(own + capacity * sizeof(T));
    }

    // Loads entries first .. first + count; `first` is a multiple of four. A whole warp calls this, in step before and after.
    __device__ __forceinline__ void fetch(u32 first, u32 count, u32 lane) const {
        u32 quads = (count + 3) / 4;
        if (first + 4 * quads > nnz) {  // only the last group
            quads = count / 4;
            u32 at = 4 * quads + lane;
            if (at < count) {
                shared_cols[place<SWIZZLED, u32>(at)] = __ldg(col_idx + first + at);
                shared_values[place<SWIZZLED, T>(at)] = __ldg(values + first + at);
            }
        }
        bring<u32, SWIZZLED>(shared_cols, col_idx + first, quads, lane);
        bring<T, SWIZZLED>(shared_values, values + first, quads * (sizeof(T) / 4), lane);
        arrived();
    }

    // DEPTH staged entries from k on, only those before `to`. Past `to` the last entry is loaded again and not added, so that no branch
    // separates the loads. The same holds for `columns` of the N columns of X, which lie `stride` apart.
    template <int N, int DEPTH, bool PART>
    __device__ __forceinline__ void step(u32 k, u32 to, const T* x, u64 stride, u32 columns, T (&acc)[N]) const {
        u32 col[DEPTH];
        T got[DEPTH][N];
#pragma unroll
        for (int i = 0; i < DEPTH; i++) col[i] = shared_cols[place<SWIZZLED, u32>(PART ? min(k + i, to - 1) : k + i)];
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
#pragma unroll
            for (int n = 0; n < N; n++) got[i][n] = __ldg(x + col[i] + (N == 1 ? 0 : min((u32)n, columns - 1) * stride));
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            T value = shared_values[place<SWIZZLED, T>(PART ? min(k + i, to - 1) : k + i)];
#pragma unroll
            for (int n = 0; n < N; n++) {
                T sum = fma_rn(value, got[i][n], acc[n]);
                if (!PART || k + i < to) acc[n] = sum;
            }
        }
    }

    // The staged entries from .. to of a lane's row, in order.
    template <int N, int DEPTH>
    __device__ __forceinline__ void walk(u32 from, u32 to, const T* x, u64 stride, u32 columns, T (&acc)[N]) const {
        u32 k = from;
#pragma unroll 1
        for (; k + DEPTH <= to; k += DEPTH) step<N, DEPTH, false>(k, to, x, stride, columns, acc);
        if (k + DEPTH / 2 < to) step<N, DEPTH, true>(k, to, x, stride, columns, acc);
        else if (k < to) step<N, DEPTH / 2, true>(k, to, x, stride, columns, acc);
    }

    // The lane's row of a group: entries begin .. end. A whole warp calls this.
    template <int DEPTH>
    __device__ __forceinline__ T row(u32 begin, u32 end, const T* x, u32 lane) const {
        T acc[1] = {T(0)};
        u32 p = __shfl_sync(ALL, begin, 0) & ~3u, last = __shfl_sync(ALL, end, WARP - 1);
        for (; p < last; p += capacity) {
            u32 count = min(capacity, last - p);
            fetch(p, count, lane);
            u32 from = max(begin, p), to = max(min(end, p + count), p);  // the part of the row that is staged
            walk<1, DEPTH>(from - p, to - p, x, 0, 1, acc);
            __syncwarp();  // all have read before the next entries overwrite
        }
        return acc[0];
    }
};

// Where row `row` begins; rows past the last are empty.
__device__ __forceinline__ u32 begin_of(const u32* row_ptr, u32 row, u32 nrows) { return row_ptr[min(row, nrows)]; }

// Prefetches into the second-level cache what the warps `ahead` groups later wait for first: their row pointers, 128 bytes each. Otherwise
// these come from memory one after the other with their entries.
__device__ __forceinline__ void ask_pointers(const u32* row_ptr, u32 first, u32 ahead, u32 nrows, u32 lane) {
    u64 row = (u64)first + (u64)ahead * GROUP + lane * 8;
    if (lane < GROUP / 8 && row <= nrows) asm volatile("prefetch.global.L2 [%0];" ::"l"(row_ptr + row));
}

template <class T, bool SWIZZLED, int DEPTH>
__device__ __forceinline__ void spmv_staged(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, u32 nnz, u32 capacity, u32 ahead, Coeff<T> ca, const T* x, Coeff<T> cb, Update<T> y, const Monitor* gate) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 first = (blockIdx.x * (blockDim.x / WARP) + warp) * GROUP, row = first + lane;
    if (first >= nrows) return;
    ask_pointers(row_ptr, first, ahead, nrows, lane);
    u32 begin = begin_of(row_ptr, row, nrows), end = begin_of(row_ptr, row + 1, nrows);
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    Stage<T, SWIZZLED> stage(col_idx, values, nnz, capacity, dynamic_shared, warp);
    T acc = stage.template row<DEPTH>(begin, end, x, lane);
    if (row < nrows) finish_row(a, acc, b, y + row);
}

// Dynamic shared memory: the block's 1024 y, its w, then a room per warp.
template <class T, bool SWIZZLED, int DEPTH>
__device__ __forceinline__ void spmv_dot_staged(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, u32 nnz, u32 capacity, const T* x, T* y, const T* w, const Tree<T>& tree, const Monitor* gate) {
    if (!open(gate)) return;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    u32 first = blockIdx.x * BLOCK;
    if (no_rows<T>(first, nrows, tree)) return;
    T *shared_y = (T*)dynamic_shared, *shared_w = shared_y + BLOCK;
    Stage<T, SWIZZLED> stage(col_idx, values, nnz, capacity, dynamic_shared + 2 * BLOCK * sizeof(T), warp);
    u32 row = first + warp * GROUP + lane;
    u32 begin = begin_of(row_ptr, row, nrows), end = begin_of(row_ptr, row + 1, nrows);
#pragma unroll 1
    for (u32 at = warp * GROUP + lane; at < BLOCK; at += warps * GROUP) {
        // w and the next group's pointers are in flight while this group is summed. Pointers past the block's rows are read and not used.
        row = first + at;
        u32 next = row + warps * GROUP;
        u32 next_begin = begin_of(row_ptr, next, nrows), next_end = begin_of(row_ptr, next + 1, nrows);
        T of_w = row < nrows ? w[row] : T(0);
        T acc = stage.template row<DEPTH>(begin, end, x, lane);
        if (row < nrows) {
            y[row] = acc;
            shared_y[at] = acc;
            shared_w[at] = of_w;
        }
        begin = next_begin;
        end = next_end;
    }
    __syncthreads();
    if (threadIdx.x < WARP) block_dots(shared_y, shared_w, first, nrows, tree);
}

#define STAGED(T, t, name, SWIZZLED, DEPTH, BOUNDS)                                                             \
    extern "C" __global__ void __launch_bounds__ BOUNDS spmv_##name##csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, u32 nnz, u32 capacity, u32 ahead, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        spmv_staged<T, SWIZZLED, DEPTH>(row_ptr, col_idx, values, nrows, nnz, capacity, ahead, a, x, b, Update<T>{y, z}, gate);   \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_dot_##name##csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, u32 nnz, u32 capacity, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_staged<T, SWIZZLED, DEPTH>(row_ptr, col_idx, values, nrows, nnz, capacity, x, y, w, tree, gate); \
    }
#define STAGED_ENTRIES(T, t) STAGED(T, t, , false, AHEAD, (32)) STAGED(T, t, swizzled_, true, AHEAD, (32)) STAGED(T, t, short_, false, AHEAD_OF_SHORT, (32, 17))
FOR_EACH_TYPE(STAGED_ENTRIES)

// Y = a A X + b Y, four columns at a time in the order of the staged product; a group that fits its room is loaded once.
template <class T>
__device__ __forceinline__ void spmm_staged(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, u64 ncols, u32 nnz, u32 capacity, u64 k, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u32 first = (blockIdx.x * (blockDim.x / WARP) + warp) * GROUP, row = first + lane;
    if (first >= nrows) return;
    u32 begin = begin_of(row_ptr, row, nrows), end = begin_of(row_ptr, row + 1, nrows);
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    Stage<T, false> stage(col_idx, values, nnz, capacity, dynamic_shared, warp);
    u32 group = __shfl_sync(ALL, begin, 0) & ~3u, last = __shfl_sync(ALL, end, WARP - 1);
    bool whole = last - group <= capacity;
    for (u64 c = 0; c < k; c += 4) {
        T acc[4] = {T(0), T(0), T(0), T(0)};
        u32 columns = k - c < 4 ? (u32)(k - c) : 4;
        for (u32 p = group; p < last; p += capacity) {
            u32 count = min(capacity, last - p);
            if (c == 0 || !whole) stage.fetch(p, count, lane);
            u32 from = max(begin, p), to = max(min(end, p + count), p);  // the part of the row that is staged
            stage.template walk<4, 4>(from - p, to - p, x + c * ncols, ncols, columns, acc);
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (row < nrows && i < columns) finish_row(a, acc[i], b, y + (c + i) * nrows + row);
    }
}

#define SPMM(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(128, 6) spmm_csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, u64 ncols, u32 nnz, u32 capacity, u64 k, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmm_staged<T>(row_ptr, col_idx, values, nrows, ncols, nnz, capacity, k, a, x, b, y, gate);   \
    }
FOR_EACH_TYPE(SPMM)

// One thread per row; the rows of a thread advance in step.
template <class T>
struct CsrRows {
    const u32* row_ptr;
    const u32* col_idx;
    const T* values;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        u32 at[N], end[N], longest = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            u64 r = row + i * step;
            at[i] = r < nrows ? row_ptr[r] : 0;
            end[i] = r < nrows ? row_ptr[r + 1] : 0;
            longest = max(longest, end[i] - at[i]);
        }
        for (u32 k = 0; k < longest; k += 2) {
            u32 col[2 * N];
            T value[2 * N], got[2 * N];
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                u32 e = at[i % N] + k + i / N;
                if (e < end[i % N]) {
                    col[i] = __ldg(col_idx + e);
                    value[i] = __ldg(values + e);
                }
            }
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (at[i % N] + k + i / N < end[i % N]) got[i] = __ldg(x + col[i]);
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (at[i % N] + k + i / N < end[i % N]) acc[i % N] = fma_rn(value[i], got[i], acc[i % N]);
        }
    }
};

#define SCALAR(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_scalar_csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        spmv_rows(CsrRows<T>{row_ptr, col_idx, values, x}, nrows, a, b, Update<T>{y, z}, gate);                \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_dot_scalar_csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(CsrRows<T>{row_ptr, col_idx, values, x}, nrows, y, w, tree, gate);         \
    }
FOR_EACH_TYPE(SCALAR)

// The entries from, from + step, ... before `end`, AHEAD requested at once if there are so many, with a test per load. A short product
// ends sooner with this than with `add_share` of include/pieces.cuh, and a matrix of millions of entries ends later.
template <class T, int AHEAD_OF_LANE>
__device__ __forceinline__ T add_few(u32 from, u32 end, u32 step, const u32* cols, const T* values, const T* x) {
    T acc = T(0);
    for (u32 e = from; e < end; e += AHEAD_OF_LANE * step) {
        u32 j[AHEAD_OF_LANE];
        T v[AHEAD_OF_LANE], of_x[AHEAD_OF_LANE];
#pragma unroll
        for (int i = 0; i < AHEAD_OF_LANE; i++)
            if (e + i * step < end) {
                j[i] = stream(cols + e + i * step);
                v[i] = stream(values + e + i * step);
            }
#pragma unroll
        for (int i = 0; i < AHEAD_OF_LANE; i++)
            if (e + i * step < end) of_x[i] = __ldg(x + j[i]);
#pragma unroll
        for (int i = 0; i < AHEAD_OF_LANE; i++)
            if (e + i * step < end) acc = fma_rn(v[i], of_x[i], acc);
    }
    __syncwarp();
    return acc;
}

// Several lanes per row, DEPTH entries of each requested at once. CLAMPED: for matrices of millions of entries, see `add_few`.
template <class T, int LANES, int DEPTH, bool CLAMPED>
__device__ __forceinline__ void spmv_vector(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, Update<T> y, const Monitor* gate) {
    u64 row = ((u64)blockIdx.x * 256 + threadIdx.x) / LANES;
    u32 lane = threadIdx.x % LANES, begin = 0, end = 0;
    if (row < nrows) {
        begin = row_ptr[row];
        end = row_ptr[row + 1];
    }
    if (!open(gate)) return;
    // A short product loads its coefficients first, not after the sum; a long one needs their registers more.
    T a = CLAMPED ? T(0) : ca.value(), b = CLAMPED ? T(0) : cb.value();
    T acc = CLAMPED ? add_share<T, DEPTH>(begin + lane, end, LANES, col_idx, values, x) : add_few<T, DEPTH>(begin + lane, end, LANES, col_idx, values, x);
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) acc += __shfl_down_sync(ALL, acc, d, LANES);
    if (row < nrows && lane == 0) finish_row(CLAMPED ? ca.value() : a, acc, CLAMPED ? cb.value() : b, y + row);
}

#define VECTOR(T, t, name, LANES, DEPTH, CLAMPED)                                                \
    extern "C" __global__ void __launch_bounds__(256) spmv_##name##LANES##_csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, u32 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        spmv_vector<T, LANES, DEPTH, CLAMPED>(row_ptr, col_idx, values, nrows, a, x, b, Update<T>{y, z}, gate); \
    }
#define FEW(T, t, LANES) VECTOR(T, t, vector, LANES, AHEAD_OF_LANES, false)
#define LONG(T, t, LANES, DEPTH) VECTOR(T, t, long, LANES, DEPTH, true)
#define VECTOR_ENTRIES(T, t) FEW(T, t, 2) FEW(T, t, 4) FEW(T, t, 8) FEW(T, t, 16) FEW(T, t, 32) LONG(T, t, 8, 8) LONG(T, t, 16, 4) LONG(T, t, 32, 4)
FOR_EACH_TYPE(VECTOR_ENTRIES)

// Rows by length: every class of rows has its number of lanes per row and its own thread blocks. Rows of the class SPLIT, twice a thread
// block's lanes, come in pieces, one thread block each; the last one to end adds the pieces in their order.
#define CLASSES 10
#define SPLIT 512
struct Classes {
    u32 block[CLASSES + 1];  // the first thread block of each class; classes past the last begin where the grid ends
    u32 row[CLASSES + 1];    // the first place of each class
    u32 lanes[CLASSES];      // a power of two up to 256, or SPLIT
};

// Entries per lane of a row in a class, and the longest row that is not cut into pieces. Twins: ENTRIES_A_LANE_OF_SMALL and ENTRIES_A_PIECE of
// crates/backend-cuda/src/csr/choose.rs.
#define ENTRIES_A_LANE 4u
#define ENTRIES_A_PIECE 2048u
// Rows per thread block of 256. Twin: CLASSED of crates/backend-cuda/src/csr/classes.rs.
#define CLASSED 4096u

// Classes go from SPLIT and 256 lanes down to one.
__device__ __forceinline__ u32 class_of(u32 len) {
    u32 lanes = (len + ENTRIES_A_LANE - 1) / ENTRIES_A_LANE, log = lanes > 1 ? 32 - __clz(lanes - 1) : 0;
    return len > ENTRIES_A_PIECE ? 0 : CLASSES - 1 - min(log, CLASSES - 2);
}

// Rows of each class among those of a thread block: counts[class * thread blocks + thread block].
__device__ __forceinline__ void count_classes(const u32* row_ptr, u32 nrows, u32* counts) {
    __shared__ u32 all[CLASSES];
    if (threadIdx.x < CLASSES) all[threadIdx.x] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < CLASSED; i += 256) {
        u64 row = (u64)blockIdx.x * CLASSED + i;
        u32 of = row < nrows ? class_of(__ldg(row_ptr + row + 1) - __ldg(row_ptr + row)) : CLASSES;
#pragma unroll
        for (u32 c = 0; c < CLASSES; c++) {
            u32 here = __popc(__ballot_sync(ALL, of == c));
            if (here && threadIdx.x % WARP == 0) atomicAdd(all + c, here);
        }
    }
    __syncthreads();
    if (threadIdx.x < CLASSES) counts[threadIdx.x * gridDim.x + blockIdx.x] = all[threadIdx.x];
}

// Puts rows in the order of their classes, those of a class in ascending order; `starts` are the running sums of the counts. Either output may be null.
__device__ __forceinline__ void place_classes(const u32* row_ptr, u32 nrows, const u32* starts, uint4* places, u32* perm) {
    __shared__ u32 next[CLASSES], of_warps[256 / WARP][CLASSES];
    if (threadIdx.x < CLASSES) next[threadIdx.x] = starts[threadIdx.x * gridDim.x + blockIdx.x];
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (u32 i = threadIdx.x; i < CLASSED; i += 256) {
        u64 row = (u64)blockIdx.x * CLASSED + i;
        u32 begin = row < nrows ? __ldg(row_ptr + row) : 0, end = row < nrows ? __ldg(row_ptr + row + 1) : 0;
        u32 of = row < nrows ? class_of(end - begin) : CLASSES, rank = 0;
#pragma unroll
        for (u32 c = 0; c < CLASSES; c++) {
            u32 these = __ballot_sync(ALL, of == c);
            if (of == c) rank = __popc(these & ((1u << lane) - 1));
            if (lane == 0) of_warps[warp][c] = __popc(these);
        }
        __syncthreads();
        if (of < CLASSES) {
            u32 at = next[of] + rank;
            for (u32 w = 0; w < warp; w++) at += of_warps[w][of];
            if (places) places[at] = make_uint4((u32)row, begin, end, 0);
            if (perm) perm[at] = (u32)row;
        }
        __syncthreads();
        if (threadIdx.x < CLASSES)
            for (u32 w = 0; w < 256 / WARP; w++) next[threadIdx.x] += of_warps[w][threadIdx.x];
        __syncthreads();
    }
}

// Where the row of a place is: with TABLE at places[place], row, begin and end side by side, so that a short product waits for one load
// less; otherwise perm[place] and its row pointers. CLAMPED: for matrices of millions of entries, see `add_few`.
template <class T, bool SPLITS, bool TABLE, bool CLAMPED>
__device__ __forceinline__ void spmv_binned(const u32* row_ptr, const u32* col_idx, const T* values, const u32* perm, const uint4* places, const Classes& classes, const Part* parts, T* pieces, u32* tickets, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, Update<T> y, const Monitor* gate) {
    __shared__ T warp_sum[256 / WARP];
    u32 lanes = classes.lanes[0], first_block = classes.block[0], first = classes.row[0], past = classes.row[1];
    if (!TABLE) {
        u32 c = 0;
        while (c + 1 < CLASSES && blockIdx.x >= classes.block[c + 1]) c++;
        lanes = classes.lanes[c], first_block = classes.block[c], first = classes.row[c], past = classes.row[c + 1];
    } else {
        // All comparisons at once.
#pragma unroll
        for (int c = 1; c < CLASSES; c++)
            if (blockIdx.x >= classes.block[c])
                lanes = classes.lanes[c], first_block = classes.block[c], first = classes.row[c], past = classes.row[c + 1];
    }
    u32 at = blockIdx.x - first_block;
    bool split = SPLITS && lanes == SPLIT;
    if (split) lanes = 256;
    u32 lane = threadIdx.x % lanes, row = 0, begin = 0, end = 0;
    Part part{};
    bool mine;
    if (split) {
        part = parts[at];
        row = part.row, begin = part.begin, end = part.end;
        mine = true;
    } else {
        u32 place = first + at * (256 / lanes) + threadIdx.x / lanes;
        mine = place < past;
        if (mine && !TABLE) {
            row = perm[place];
            begin = row_ptr[row];
            end = row_ptr[row + 1];
        } else if (mine) {
            uint4 found = __ldg(places + place);
            row = found.x, begin = found.y, end = found.z;
        }
    }
    if (!open(gate)) return;
    T acc = CLAMPED ? add_share<T, 4>(begin + lane, end, lanes, col_idx, values, x) : add_few<T, 4>(begin + lane, end, lanes, col_idx, values, x);
    for (u32 d = (lanes < WARP ? lanes : WARP) / 2; d > 0; d /= 2) acc += __shfl_down_sync(ALL, acc, d);
    if (lanes > WARP) {  // the same in the whole thread block
        u32 warp = threadIdx.x / WARP;
        if (threadIdx.x % WARP == 0) warp_sum[warp] = acc;
        __syncthreads();
        if (lane == 0)
            for (u32 i = 1; i < lanes / WARP; i++) acc += warp_sum[warp + i];
    }
    if (split) {
        if (threadIdx.x >= WARP) return;
        if (!last_part(part, at, acc, pieces, tickets)) return;
    }
    if (mine && lane == 0) finish_row(ca.value(), acc, cb.value(), y + row);
}

#define BINNED(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256) count_classes_csr_##t(const u32* row_ptr, u32 nrows, u32* counts) { count_classes(row_ptr, nrows, counts); } \
    extern "C" __global__ void __launch_bounds__(256) place_classes_csr_##t(const u32* row_ptr, u32 nrows, const u32* starts, uint4* places, u32* perm) { place_classes(row_ptr, nrows, starts, places, perm); } \
    extern "C" __global__ void __launch_bounds__(256) spmv_binned_csr_##t(const u32* col_idx, const T* values, const uint4* places, const __grid_constant__ Classes classes, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        spmv_binned<T, false, true, false>(nullptr, col_idx, values, nullptr, places, classes, nullptr, nullptr, nullptr, a, x, b, Update<T>{y, z}, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_wide_csr_##t(const u32* col_idx, const T* values, const uint4* places, const __grid_constant__ Classes classes, const Part* parts, T* pieces, u32* tickets, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        spmv_binned<T, true, true, true>(nullptr, col_idx, values, nullptr, places, classes, parts, pieces, tickets, a, x, b, Update<T>{y, z}, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_split_csr_##t(const u32* row_ptr, const u32* col_idx, const T* values, const u32* perm, const __grid_constant__ Classes classes, const Part* parts, T* pieces, u32* tickets, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        spmv_binned<T, true, false, false>(row_ptr, col_idx, values, perm, nullptr, classes, parts, pieces, tickets, a, x, b, Update<T>{y, z}, gate); \
    }
FOR_EACH_TYPE(BINNED)

#define BALANCED(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) spmv_balanced_csr_##t(const u32* marks, const u32* rows, const u32* col_idx, const T* values, u32 nnz, const uint4* pieces, u32 count, u32 limit, const Part* parts, u32 part_count, T* sums, u32* tickets, const u32* empty, u32 empties, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_pieces(MarkedEntries<T>{marks, rows, col_idx, values, nnz, pieces}, count, limit, parts, part_count, sums, tickets, empty, empties, a, x, b, y, gate); \
    }
FOR_EACH_TYPE(BALANCED)

// The structure does not depend on a type, but the names have one, as those of all kernels do.
#define CHECK(T, t)                                                                              \
    extern "C" __global__ void __launch_bounds__(CHECK_THREADS) check_rows_csr_##t(const u32* row_ptr, u32 nrows, u64* words) { \
        check_rows(row_ptr, nrows, words);                                                       \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) check_columns_csr_##t(const u32* row_ptr, const u32* col_idx, u32 nrows, u32 ncols, u64* words) { \
        check_columns<T>(row_ptr, col_idx, nrows, ncols, words);                                 \
    }
FOR_EACH_TYPE(CHECK)

#define KRYLOV(T, t) PERSISTENT(T, t, csr, (const u32* row_ptr, const u32* col_idx, const T* values, u32 lanes), (KeptCsr<T>{row_ptr, col_idx, values, n, lanes}))
FOR_EACH_TYPE(KRYLOV)

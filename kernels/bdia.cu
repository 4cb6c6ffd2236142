// bDIA: products with a matrix by bands of diagonals.
//
// Layout: values[i + stride*k] = A[i, i + offset of diagonal k], stride = nrows rounded up so that every diagonal begins at a multiple of 16
// bytes, 64 elements behind the last; +0 outside the matrix. A band, or a part of a wide one, is a piece: its lowest diagonal, its width,
// the number of its first diagonal, and the place of its window of x in shared memory. Pieces whose windows stand in shared memory
// together form a pass; the first piece of a pass has place 0.
// Grid: `window`: 16 bytes of consecutive rows per thread, 256 threads (with dot products 1024 rows) per thread block; `narrow`: 4 rows per
// thread, 1024 per thread block of 256, or (`single`) one row per thread; for few rows `small`, one per thread in thread blocks of 64, or
// `staged`, 64 per thread block of 256: all threads load, 64 sum. With dot products the last thread block of each 1024 rows of `single`,
// `small` and `staged` reads y again from the second-level cache.
// Order: stored, ascending diagonals. No position is left out: outside the matrix x reads as -0, and adding +0 * -0 = -0 leaves any
// accumulator as it is, also a zero of either sign.
// Bytes: values, y once; x once per thread block and band (`window`, `staged`), or from the first-level cache (`narrow`,
// `single`, `small`).
// Persistent (cg_bdia, bicgstab_bdia): as DIA; see include/persistent.cuh.
// Reference: Wang, Ren, Tian, Efficient sparse matrix-vector multiplication and CG solver optimization on GPU, 2013.
#include "persistent.cuh"

// Pieces and offsets that are passed by value, so that no work waits for a load of them.
#define NEAR_PIECES 16
#define NEAR_OFFSETS 64

struct Piece {
    int start;
    u32 width;
    u32 first;
    u32 at;
};

struct Pieces {
    const Piece* all;  // null if `near` holds all pieces
    u32 count;
    u32 reserved;
    Piece near[NEAR_PIECES];

    __device__ __forceinline__ Piece get(u32 p) const { return p < NEAR_PIECES ? near[p] : all[p]; }
};

struct Offsets {
    const int* all;  // null if `near` holds all offsets
    int near[NEAR_OFFSETS];
};

// 16 bytes as an array of elements.
__device__ __forceinline__ void put16(float4 q, float (&v)[4]) { v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w; }
__device__ __forceinline__ void put16(double2 q, double (&v)[2]) { v[0] = q.x, v[1] = q.y; }
__device__ __forceinline__ float4 pack16(const float (&v)[4]) { return make_float4(v[0], v[1], v[2], v[3]); }
__device__ __forceinline__ double2 pack16(const double (&v)[2]) { return make_double2(v[0], v[1]); }

template <class T>
struct Wide;
template <>
struct Wide<float> {
    typedef float4 Type;
    static const int len = 4;
};
template <>
struct Wide<double> {
    typedef double2 Type;
    static const int len = 2;
};

// The value that x reads as at column j. Unsigned, because a column below 0 is then far above ncols.
template <class T>
__device__ __forceinline__ T at_column(const T* __restrict__ x, u32 j, u32 ncols) {
    return j < ncols ? __ldg(x + j) : T(-0.0);
}

// Loads the window of a piece for `rows` rows from `first` on, with `threads` threads; this one is `thread`.
template <class T>
__device__ __forceinline__ void stage(const Piece& piece, u32 first, u32 rows, const T* __restrict__ x, u32 ncols, T* window, u32 thread, u32 threads) {
    u32 len = rows + (piece.width + Wide<T>::len - 1) / Wide<T>::len * Wide<T>::len;
    u32 column = first + (u32)piece.start;
    // A batch covers the rows of a block. All its loads come before its first store.
    const int N = Wide<T>::len + 1;
    for (u32 i = thread; i < len; i += N * threads) {
        T v[N];
#pragma unroll
        for (int u = 0; u < N; u++) {
            u32 e = i + u * threads;
            v[u] = e < len ? at_column(x, column + e, ncols) : T(0);
        }
#pragma unroll
        for (int u = 0; u < N; u++) {
            u32 e = i + u * threads;
            if (e < len) window[piece.at + e] = v[u];
        }
    }
}

template <class T>
struct NarrowRows {
    const T* __restrict__ values;
    u64 stride;
    u32 diagonals;
    const Offsets& offsets;
    u32 ncols;
    const T* __restrict__ x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    template <bool WHOLE, int U, int N>
    __device__ __forceinline__ void batch(u32 k, const T* const (&of_row)[N], const u32 (&row)[N], T (&acc)[N]) const {
        T v[U][N], xs[U][N];
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const T* p = of_row[i] + (u64)u * stride;
                if (WHOLE || k + u < diagonals) v[u][i] = N == 1 ? __ldg(p) : stream(p);
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (!(WHOLE || k + u < diagonals)) continue;
            u32 offset = k + u < NEAR_OFFSETS ? offsets.near[k + u] : offsets.all[k + u];
#pragma unroll
            for (int i = 0; i < N; i++) xs[u][i] = at_column(x, row[i] + offset, ncols);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            if (!(WHOLE || k + u < diagonals)) continue;
#pragma unroll
            for (int i = 0; i < N; i++) acc[i] = fma_rn(v[u][i], xs[u][i], acc[i]);
        }
    }

    // Rows past nrows repeat the last one; their sums are dropped.
    template <int N>
    __device__ __forceinline__ void accumulate(u64 first, u32 step, u64 nrows, T (&acc)[N]) const {
        const int U = N == 1 ? 8 : sizeof(T) == 8 ? 3 : 4;
        u32 row[N];
        const T* of_row[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            u64 r = first + i * step;
            row[i] = (u32)(r < nrows ? r : nrows - 1);
            of_row[i] = values + row[i];
        }
        u32 k = 0;
        for (; k + U <= diagonals; k += U) {
            batch<true, U, N>(k, of_row, row, acc);
#pragma unroll
            for (int i = 0; i < N; i++) of_row[i] += U * stride;
        }
        if (k < diagonals) batch<false, U, N>(k, of_row, row, acc);
    }
};

#define NARROW(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 3) spmv_narrow_bdia_##t(const T* values, u64 stride, u32 diagonals, const __grid_constant__ Offsets offsets, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_rows(NarrowRows<T>{values, stride, diagonals, offsets, (u32)ncols, x}, nrows, a, b, y, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 8 ? 2 : 3) spmv_dot_narrow_bdia_##t(const T* values, u64 stride, u32 diagonals, const __grid_constant__ Offsets offsets, u64 nrows, u64 ncols, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(NarrowRows<T>{values, stride, diagonals, offsets, (u32)ncols, x}, nrows, y, w, tree, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_single_bdia_##t(const T* values, u64 stride, u32 diagonals, const __grid_constant__ Offsets offsets, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                    \
        if (!open(gate) || row >= nrows) return;                                                 \
        T a = ca.value(), b = cb.value(), acc[1] = {T(0)};                                       \
        NarrowRows<T>{values, stride, diagonals, offsets, (u32)ncols, x}.accumulate(row, 1, nrows, acc); \
        finish_row(a, acc[0], b, y + row);                                                       \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_dot_single_bdia_##t(const T* values, u64 stride, u32 diagonals, const __grid_constant__ Offsets offsets, u64 nrows, u64 ncols, const T* x, T* y, const T* w, u32* arrivals, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;                                    \
        T acc[1] = {T(0)};                                                                       \
        NarrowRows<T>{values, stride, diagonals, offsets, (u32)ncols, x}.accumulate(row, 1, nrows, acc); \
        if (row < nrows) y[row] = acc[0];                                                        \
        dots_of_parts(y, w, nrows, blockDim.x, arrivals, tree);                                  \
    }
FOR_EACH_TYPE(NARROW)

#define SMALL_ROWS 64

// The value at `p` if `there`, else `other`. The load is predicated, because branches would separate the loads.
__device__ __forceinline__ float load_if(bool there, const float* p, float other) {
    asm("{ .reg .pred q; setp.ne.u32 q, %1, 0; @q ld.global.nc.f32 %0, [%2]; }" : "+f"(other) : "r"((u32)there), "l"(p));
    return other;
}
__device__ __forceinline__ double load_if(bool there, const double* p, double other) {
    asm("{ .reg .pred q; setp.ne.u32 q, %1, 0; @q ld.global.nc.f64 %0, [%2]; }" : "+d"(other) : "r"((u32)there), "l"(p));
    return other;
}

// Adds U diagonals of a row, from the k-th on, whose value lies at `at`. Diagonals past the last count as lying outside the
// matrix. `meets(there, k)` is x at the column where the row meets diagonal k, if there is one.
template <int U, bool WHOLE, class T, class Meets>
__device__ __forceinline__ void add_diagonals(const T* __restrict__ at, u64 stride, u32 k, u32 diagonals, Meets meets, T& acc) {
    T v[U], xs[U];
#pragma unroll
    for (int u = 0; u < U; u++) v[u] = load_if(WHOLE || k + u < diagonals, at + u * stride, T(0));
#pragma unroll
    for (int u = 0; u < U; u++) xs[u] = meets(WHOLE || k + u < diagonals, k + u);
#pragma unroll
    for (int u = 0; u < U; u++) acc = fma_rn(v[u], xs[u], acc);
}

// The sum of a row, with U diagonals in flight.
template <int U, class T, class Meets>
__device__ __forceinline__ T sum_diagonals(const T* __restrict__ at, u64 stride, u32 diagonals, Meets meets) {
    T acc = T(0);
    u32 k = 0;
#pragma unroll 1
    for (; k + U <= diagonals; k += U, at += U * stride) add_diagonals<U, true>(at, stride, k, diagonals, meets, acc);
    if (k + U / 2 < diagonals) add_diagonals<U, false>(at, stride, k, diagonals, meets, acc);
    else if (k < diagonals) add_diagonals<U / 2, false>(at, stride, k, diagonals, meets, acc);
    return acc;
}

// The same. In a single band neighbouring diagonals meet a row at neighbouring columns, so no load of x waits for an offset.
template <int U, class T>
__device__ __forceinline__ T small_sum(const T* values, u64 stride, u32 diagonals, u32 bands, const Offsets& offsets, u32 row, u32 ncols, const T* x) {
    const T* at = values + row;
    if (bands == 1) {
        u32 first = row + (u32)offsets.near[0];
        const T* from = x + ((i64)row + offsets.near[0]);
        return sum_diagonals<U>(at, stride, diagonals, [&](bool there, u32 k) { return load_if(there && first + k < ncols, from + k, T(-0.0)); });
    }
    if (!offsets.all) {
        return sum_diagonals<U>(at, stride, diagonals, [&](bool there, u32 k) {
            u32 j = row + (u32)offsets.near[k % NEAR_OFFSETS];
            return load_if(there && j < ncols, x + j, T(-0.0));
        });
    }
    return sum_diagonals<U>(at, stride, diagonals, [&](bool there, u32 k) {
        u32 j = row + (u32)__ldg(offsets.all + (there ? k : 0));
        return load_if(there && j < ncols, x + j, T(-0.0));
    });
}

#define SMALL(T, t, U, BLOCKS)                                                                       \
    extern "C" __global__ void __launch_bounds__(SMALL_ROWS, BLOCKS) spmv_small##U##_bdia_##t(const T* values, u64 stride, u32 diagonals, u32 bands, const __grid_constant__ Offsets offsets, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        u64 row = (u64)blockIdx.x * SMALL_ROWS + threadIdx.x;                                    \
        if (!open(gate) || row >= nrows) return;                                                 \
        T sum = small_sum<U>(values, stride, diagonals, bands, offsets, (u32)row, (u32)ncols, x); \
        finish_row(a.value(), sum, b.value(), y + row);                                          \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(SMALL_ROWS, BLOCKS) spmv_dot_small##U##_bdia_##t(const T* values, u64 stride, u32 diagonals, u32 bands, const __grid_constant__ Offsets offsets, u64 nrows, u64 ncols, const T* x, T* y, const T* w, u32* arrivals, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 row = (u64)blockIdx.x * SMALL_ROWS + threadIdx.x;                                    \
        if (row < nrows) y[row] = small_sum<U>(values, stride, diagonals, bands, offsets, (u32)row, (u32)ncols, x); \
        dots_of_parts(y, w, nrows, SMALL_ROWS, arrivals, tree);                                  \
    }
// Diagonals in flight, thread blocks per multiprocessor. Many registers pay only if all rows run at the same time. Twin: `SMALL` of
// crates/backend-cuda/src/bdia.rs.
#define SMALL_ENTRIES(T, t) SMALL(T, t, 4, 12) SMALL(T, t, 8, 12) SMALL(T, t, 12, 12) SMALL(T, t, 16, 12) SMALL(T, t, 22, 8) SMALL(T, t, 34, 4) SMALL(T, t, 44, 4)
FOR_EACH_TYPE(SMALL_ENTRIES)

// Diagonals in flight.
#define FLIGHT 8

template <class T>
struct WindowRows {
    typedef typename Wide<T>::Type Q;
    static const int V = Wide<T>::len;

    // Loads the values of up to FLIGHT diagonals; `left` remain.
    template <bool WHOLE>
    static __device__ __forceinline__ void take(const T* at, u64 stride, u32 left, T (&v)[FLIGHT][V]) {
#pragma unroll
        for (int u = 0; u < FLIGHT; u++)
            if (WHOLE || u < left) put16(__ldcs((const Q*)(at + u * stride)), v[u]);
    }

    // Multiplies them by the window from `w` on: row i and diagonal u meet at w[i + u].
    template <bool WHOLE>
    static __device__ __forceinline__ void add(const T* w, u32 left, const T (&v)[FLIGHT][V], T (&acc)[V]) {
        T lower[V], upper[V];
        put16(*(const Q*)w, lower);
#pragma unroll
        for (int s = 0; s < FLIGHT; s += V) {
            if (WHOLE || s < left) {
                put16(*(const Q*)(w + s + V), upper);
#pragma unroll
                for (int q = 0; q < V; q++) {
                    if (WHOLE || s + q < left) {
#pragma unroll
                        for (int i = 0; i < V; i++) acc[i] = fma_rn(v[s + q][i], q + i < V ? lower[q + i] : upper[q + i - V], acc[i]);
                    }
                }
#pragma unroll
                for (int i = 0; i < V; i++) lower[i] = upper[i];
            }
        }
    }

    // The sums of the thread's V rows. The whole thread block of `rows` rows calls this.
    static __device__ __forceinline__ void accumulate(const T* __restrict__ values, u64 stride, const Pieces& pieces, u32 rows, u64 nrows, u32 ncols, const T* __restrict__ x, T* window, T (&acc)[V]) {
        u32 first = blockIdx.x * rows, t = threadIdx.x * V;
        // Threads without a row repeat the first one; their sums are dropped.
        const T* of_row = values + (first + t < nrows ? first + t : 0);
        for (u32 p = 0; p < pieces.count; p++) {
            Piece piece = pieces.get(p);
            const T* at = of_row + (u64)piece.first * stride;
            u32 left = piece.width;
            T v[FLIGHT][V];
            // These loads are in flight while the window is staged.
            if (left >= FLIGHT) take<true>(at, stride, left, v);
            else take<false>(at, stride, left, v);
            if (piece.at == 0) {
                if (p > 0) __syncthreads();
                stage(piece, first, rows, x, ncols, window, threadIdx.x, blockDim.x);
                for (u32 q = p + 1; q < pieces.count; q++) {
                    Piece other = pieces.get(q);
                    if (other.at == 0) break;
                    stage(other, first, rows, x, ncols, window, threadIdx.x, blockDim.x);
                }
                __syncthreads();
            }
            const T* w = window + piece.at + t;
            while (left >= FLIGHT) {
                add<true>(w, left, v, acc);
                left -= FLIGHT, at += FLIGHT * stride, w += FLIGHT;
                if (left >= FLIGHT) take<true>(at, stride, left, v);
                else take<false>(at, stride, left, v);
            }
            if (left > 0) add<false>(w, left, v, acc);
        }
    }
};

extern __shared__ __align__(16) unsigned char shared_bytes[];

// y = a A x + b y.
template <class T>
__device__ __forceinline__ void spmv_window(const T* values, u64 stride, const Pieces& pieces, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) {
    typedef WindowRows<T> Rows;
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value(), acc[Rows::V] = {};
    u32 rows = blockDim.x * Rows::V;
    Rows::accumulate(values, stride, pieces, rows, nrows, (u32)ncols, x, (T*)shared_bytes, acc);
    u64 row = (u64)blockIdx.x * rows + threadIdx.x * Rows::V;
    if (row + Rows::V <= nrows && (u64)y % 16 == 0) {
        typename Rows::Q* to = (typename Rows::Q*)(y + row);
        T v[Rows::V];
        if (b != T(0)) put16(*to, v);
#pragma unroll
        for (int i = 0; i < Rows::V; i++) v[i] = b == T(0) ? a * acc[i] : fma_rn(a, acc[i], b * v[i]);
        *to = pack16(v);
    } else {
#pragma unroll
        for (int i = 0; i < Rows::V; i++)
            if (row + i < nrows) finish_row(a, acc[i], b, y + row + i);
    }
}

// y = A x; w . y and, if tree.out[1] is given, y . y. 1024 rows per thread block.
template <class T>
__device__ __forceinline__ void spmv_dot_window(const T* values, u64 stride, const Pieces& pieces, u64 nrows, u64 ncols, const T* x, T* y, const T* w, const Tree<T>& tree, const Monitor* gate) {
    typedef WindowRows<T> Rows;
    __shared__ __align__(16) T shared_y[BLOCK];
    if (!open(gate)) return;
    T acc[Rows::V] = {};
    Rows::accumulate(values, stride, pieces, BLOCK, nrows, (u32)ncols, x, (T*)shared_bytes, acc);
    u64 first = (u64)blockIdx.x * BLOCK;
    *(typename Rows::Q*)(shared_y + threadIdx.x * Rows::V) = pack16(acc);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Rows::V; i++) {
        u32 at = threadIdx.x + i * (BLOCK / Rows::V);
        if (first + at < nrows) y[first + at] = shared_y[at];
    }
    if (threadIdx.x < WARP) block_dots(shared_y, w + first, first, nrows, tree);
}

#define WINDOW(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_window_bdia_##t(const T* values, u64 stride, const __grid_constant__ Pieces pieces, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_window(values, stride, pieces, nrows, ncols, a, x, b, y, gate);                     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BLOCK / Wide<T>::len, Wide<T>::len) spmv_dot_window_bdia_##t(const T* values, u64 stride, const __grid_constant__ Pieces pieces, u64 nrows, u64 ncols, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_window(values, stride, pieces, nrows, ncols, x, y, w, tree, gate);              \
    }
FOR_EACH_TYPE(WINDOW)

#define STAGED_ROWS 64
// Loads of 16 bytes that each of 256 threads has in flight: a tile.
#define STAGED_LOADS 8

// Few rows: every thread of the block loads, so that a multiprocessor has a tile of values in flight even with few rows. The sums of 64
// rows then go through the tile in shared memory while the next one is in flight.
template <class T>
__device__ __forceinline__ T staged_sum(const T* __restrict__ values, u64 stride, u32 diagonals, const Pieces& pieces, u64 ncols, const T* __restrict__ x) {
    typedef typename Wide<T>::Type Q;
    const u32 V = Wide<T>::len, STEP = 256 / (STAGED_ROWS / V), K = STAGED_LOADS * STEP;
    T* tile = (T*)shared_bytes;
    T* window = tile + K * STAGED_ROWS;
    u32 first = blockIdx.x * STAGED_ROWS, c = threadIdx.x % (STAGED_ROWS / V) * V, k0 = threadIdx.x / (STAGED_ROWS / V);
    // Rows past the last one read what follows: the next diagonal, or the elements behind the last; their sums are dropped.
    const T* from = values + first + c;
    Q q[STAGED_LOADS];
#pragma unroll
    for (int m = 0; m < STAGED_LOADS; m++) {
        u32 k = k0 + m * STEP;
        if (k < diagonals) q[m] = __ldg((const Q*)(from + k * stride));
    }
    // Several windows at a time, each by some of the threads.
    u32 teams = pieces.count < 2 ? 1 : pieces.count < 4 ? 2 : pieces.count < 8 ? 4 : 8, team = 256 / teams;
    for (u32 p = threadIdx.x / team; p < pieces.count; p += teams)
        stage(pieces.get(p), first, STAGED_ROWS, x, (u32)ncols, window, threadIdx.x % team, team);
    T acc = T(0);
    u32 p = 0;
    for (u32 base = 0; base < diagonals; base += K) {
#pragma unroll
        for (int m = 0; m < STAGED_LOADS; m++) {
            u32 k = k0 + m * STEP;
            if (base + k < diagonals) *(Q*)(tile + k * STAGED_ROWS + c) = q[m];
        }
        __syncthreads();
#pragma unroll
        for (int m = 0; m < STAGED_LOADS; m++) {
            u32 k = base + K + k0 + m * STEP;
            if (k < diagonals) q[m] = __ldg((const Q*)(from + k * stride));
        }
        if (threadIdx.x < STAGED_ROWS) {
            u32 end = base + K < diagonals ? base + K : diagonals;
            for (u32 k = base; k < end;) {
                Piece piece = pieces.get(p);
                u32 after = piece.first + piece.width, stop = after < end ? after : end;
                const T* v = tile + (k - base) * STAGED_ROWS + threadIdx.x;
                const T* w = window + piece.at + (k - piece.first) + threadIdx.x;
#pragma unroll 16
                for (u32 i = 0; i < stop - k; i++) acc = fma_rn(v[i * STAGED_ROWS], w[i], acc);
                k = stop;
                if (stop == after) p++;
            }
        }
        __syncthreads();
    }
    return acc;
}

#define STAGED(T, t)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_staged_bdia_##t(const T* values, u64 stride, u32 diagonals, const __grid_constant__ Pieces pieces, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T sum = staged_sum(values, stride, diagonals, pieces, ncols, x);                         \
        u64 row = (u64)blockIdx.x * STAGED_ROWS + threadIdx.x;                                   \
        if (threadIdx.x < STAGED_ROWS && row < nrows) finish_row(ca.value(), sum, cb.value(), y + row); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 2) spmv_dot_staged_bdia_##t(const T* values, u64 stride, u32 diagonals, const __grid_constant__ Pieces pieces, u64 nrows, u64 ncols, const T* x, T* y, const T* w, u32* arrivals, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T sum = staged_sum(values, stride, diagonals, pieces, ncols, x);                         \
        u64 row = (u64)blockIdx.x * STAGED_ROWS + threadIdx.x;                                   \
        if (threadIdx.x < STAGED_ROWS && row < nrows) y[row] = sum;                              \
        dots_of_parts(y, w, nrows, STAGED_ROWS, arrivals, tree);                                 \
    }
FOR_EACH_TYPE(STAGED)

#define KRYLOV(T, t) PERSISTENT(T, t, bdia, (const T* values, const int* offsets, u64 stride, u32 diagonals), (KeptDia<T>{values, offsets, diagonals, 0, stride, n}))
FOR_EACH_TYPE(KRYLOV)

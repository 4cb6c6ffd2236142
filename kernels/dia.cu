// DIA: products with a matrix by diagonals.
//
// Layout: values[i + nrows*k] = A[i, i + offsets[k]], as on the host. Symmetric: only the diagonals with offset >= 0 are
// stored, ascending; the entry of offset -d in row i is the one of +d in row i - d.
// Grid: 1024 rows a thread block of 512, two rows a thread; several columns: 256 rows a thread block.
// Order: stored, ascending offsets; positions outside the matrix are skipped.
// Bytes: values inside the matrix, x, y once. Symmetric: the stored half once, its second use from the cache.
// The loads of several diagonals are in flight before the first product: without that the symmetric form, which asks the second-level
// cache for twice what it asks of memory, reaches three quarters of its speed.
// Persistent (cg_dia, bicgstab_dia): the thread block's part of the first `kept` diagonals lies in shared memory, both halves of a symmetric
// matrix written out; see include/persistent.cuh.
#include "persistent.cuh"

#define THREADS 512

// One step of a walk: which diagonal, where its value lies for a row, and which column it meets.
template <class T>
struct DiaRows {
    const T* values;
    const int* offsets;
    u32 diagonals;
    u64 rows, ncols;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    // acc[i] += the entries of diagonals k0, k0 + sign, ... (`count`) in rows row + i*step; LOWER: those of the mirrored diagonals.
    template <int N, int U, bool INSIDE, bool LOWER>
    __device__ __forceinline__ void batch(i64 k0, u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        T value[U][N], at_x[U][N];
        bool there[U][N];
#pragma unroll
        for (int u = 0; u < U; u++) {
            i64 k = LOWER ? k0 - u : k0 + u;
            i64 offset = LOWER ? -(i64)offsets[k] : (i64)offsets[k];
            const T* diagonal = values + (u64)k * rows;
#pragma unroll
            for (int i = 0; i < N; i++) {
                u64 r = row + i * step;
                i64 j = (i64)r + offset;
                there[u][i] = INSIDE || (r < nrows && j >= 0 && j < (i64)ncols);
                if (there[u][i]) {
                    value[u][i] = diagonal[LOWER ? (u64)j : r];
                    at_x[u][i] = x[j];
                }
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (there[u][i]) acc[i] = fma_rn(value[u][i], at_x[u][i], acc[i]);
    }

    template <int N, bool INSIDE, bool LOWER>
    __device__ __forceinline__ void walk(i64 k0, u32 count, u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        constexpr int U = 3;
        u32 done = 0;
        for (; done + U <= count; done += U) batch<N, U, INSIDE, LOWER>(LOWER ? k0 - done : k0 + done, row, step, nrows, acc);
        for (; done < count; done++) batch<N, 1, INSIDE, LOWER>(LOWER ? k0 - done : k0 + done, row, step, nrows, acc);
    }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        if (diagonals == 0) return;
        u64 last = row + (N - 1) * step;
        bool inside = last < nrows && (i64)row + offsets[0] >= 0 && (i64)last + offsets[diagonals - 1] < (i64)ncols;
        if (__all_sync(ALL, inside))
            walk<N, true, false>(0, diagonals, row, step, nrows, acc);
        else
            walk<N, false, false>(0, diagonals, row, step, nrows, acc);
    }
};

// The upper half: the farthest of the mirrored diagonals first, then the stored ones.
template <class T>
struct SymmetricDiaRows : DiaRows<T> {
    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        if (this->diagonals == 0) return;
        u64 last = row + (N - 1) * step;
        i64 reach = this->offsets[this->diagonals - 1];
        u32 mirrored = this->diagonals - (this->offsets[0] == 0 ? 1 : 0);
        i64 top = (i64)this->diagonals - 1;
        bool inside = (i64)row >= reach && (i64)last + reach < (i64)nrows;
        if (__all_sync(ALL, inside)) {
            this->template walk<N, true, true>(top, mirrored, row, step, nrows, acc);
            this->template walk<N, true, false>(0, this->diagonals, row, step, nrows, acc);
        } else {
            this->template walk<N, false, true>(top, mirrored, row, step, nrows, acc);
            this->template walk<N, false, false>(0, this->diagonals, row, step, nrows, acc);
        }
    }
};

#define ENTRIES(T, t)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_dia_##t(                                                  \
        const T* values, const int* offsets, u32 diagonals, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        DiaRows<T> m{values, offsets, diagonals, nrows, ncols, x};                                                          \
        spmv_rows<T, DiaRows<T>, THREADS>(m, nrows, a, b, y, gate);                                                         \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_dot_dia_##t(                                              \
        const T* values, const int* offsets, u32 diagonals, u64 nrows, u64 ncols, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        DiaRows<T> m{values, offsets, diagonals, nrows, ncols, x};                                                          \
        spmv_dot_rows<T, DiaRows<T>, THREADS>(m, nrows, y, w, tree, gate);                                                  \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_symmetric_dia_##t(                                        \
        const T* values, const int* offsets, u32 diagonals, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        SymmetricDiaRows<T> m{{values, offsets, diagonals, nrows, nrows, x}};                                               \
        spmv_rows<T, SymmetricDiaRows<T>, THREADS>(m, nrows, a, b, y, gate);                                                \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_dot_symmetric_dia_##t(                                    \
        const T* values, const int* offsets, u32 diagonals, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        SymmetricDiaRows<T> m{{values, offsets, diagonals, nrows, nrows, x}};                                               \
        spmv_dot_rows<T, SymmetricDiaRows<T>, THREADS>(m, nrows, y, w, tree, gate);                                         \
    }
FOR_EACH_TYPE(ENTRIES)

// Y = a A X + b Y, four columns at a time: a row's values are read once for four.
template <class T>
__device__ __forceinline__ void spmm(const T* values, const int* offsets, u32 diagonals, bool symmetric, u64 nrows, u64 ncols, u64 k, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, T* y, const Monitor* gate) {
    u64 row = (u64)blockIdx.x * 256 + threadIdx.x;
    if (!open(gate) || row >= nrows) return;
    T a = ca.value(), b = cb.value();
    for (u64 c = 0; c < k; c += 4) {
        T acc[4] = {T(0), T(0), T(0), T(0)};
        u64 columns = k - c < 4 ? k - c : 4;
        auto add = [&](i64 j, const T* at) {
            if (j < 0 || j >= (i64)ncols) return;
            T v = *at;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (i < columns) acc[i] = fma_rn(v, x[(c + i) * ncols + j], acc[i]);
        };
        if (symmetric)
            for (u32 d = diagonals; d-- > 0 && offsets[d] != 0;) add((i64)row - offsets[d], values + (u64)d * nrows + row - offsets[d]);
        for (u32 d = 0; d < diagonals; d++) add((i64)row + offsets[d], values + (u64)d * nrows + row);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < columns) finish_row(a, acc[i], b, y + (c + i) * nrows + row);
    }
}

#define SPMM(T, t)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) spmm_dia_##t(                                                         \
        const T* values, const int* offsets, u32 diagonals, u32 symmetric, u64 nrows, u64 ncols, u64 k, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmm(values, offsets, diagonals, symmetric != 0, nrows, ncols, k, a, x, b, y, gate);                                \
    }
FOR_EACH_TYPE(SPMM)

#define KRYLOV(T, t) PERSISTENT(T, t, dia, (const T* values, const int* offsets, u32 diagonals, u32 symmetric), (KeptDia<T>{values, offsets, diagonals, symmetric, n, n}))
FOR_EACH_TYPE(KRYLOV)

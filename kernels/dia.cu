// DIA: products with a matrix by diagonals.
//
// Layout: values[i + nrows*k] = A[i, i + offsets[k]], as on the host. Symmetric: only the diagonals with offset >= 0 are
// stored, ascending; the entry of offset -d in row i is the one of +d in row i - d. Narrow: values of f64 that f32 represents exactly, in f32 (in_f32; only for f64).
// Grid: 1024 rows per thread block of 512, two rows per thread; several columns: 256 rows per thread block. spmv_dot_few: blocks of 1024 rows in
// turn per thread block of 256, four rows per thread.
// Order: stored, ascending offsets; positions outside the matrix are skipped.
// Bytes: values inside the matrix, x, y once. Symmetric: the stored half once, its second use from the cache.
// The loads of several diagonals are in flight before the first product. Otherwise the symmetric form, which asks the second-level
// cache for twice what it asks of memory, reaches only three quarters of its speed.
// From CSR (mark_diagonals, fill_from_csr, compare_mirror): any number of thread blocks of 128, 32 rows per warp at a time, see
// include/walk.cuh. fill and compare read the entries once, mark reads their columns; fill also makes bDIA's diagonals, which begin every
// `stride` elements.
// From CSR again (refill, match_mirror): any number of thread blocks of 256, 32 rows per warp at a time. refill reads the entries above the main
// diagonal, match_mirror those below it; columns only of rows that lack entries.
// Persistent (cg_dia, bicgstab_dia): the thread block's part of the first `kept` diagonals lies in shared memory, both halves of a symmetric
// matrix written out; see include/persistent.cuh.
#include "persistent.cuh"
#include "walk.cuh"

#define THREADS 512

// One step of a walk: which diagonal, where its value for a row lies, and which column it meets. V: the type in which values are stored.
template <class T, class V = T>
struct DiaRows {
    const V* values;
    const int* offsets;
    u32 diagonals;
    u64 rows, ncols;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    // acc[i] += the entries of diagonals k0, k0 + sign, ... (`count`) in rows row + i*step; LOWER: those of the mirrored diagonals.
    template <int N, int U, bool INSIDE, bool LOWER>
    __device__ __forceinline__ void batch(i64 k0, u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        V value[U][N];
        T at_x[U][N];
        bool there[U][N];
#pragma unroll
        for (int u = 0; u < U; u++) {
            i64 k = LOWER ? k0 - u : k0 + u;
            i64 offset = LOWER ? -(i64)offsets[k] : (i64)offsets[k];
            const V* diagonal = values + (u64)k * rows;
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
                if (there[u][i]) acc[i] = fma_rn(T(value[u][i]), at_x[u][i], acc[i]);
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

// The upper half: first the mirrored diagonals, the farthest first, then the stored ones.
template <class T, class V = T>
struct SymmetricDiaRows : DiaRows<T, V> {
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

#define FORMS(T, V, t, in_f32)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_##in_f32##dia_##t(                                        \
        const V* values, const int* offsets, u32 diagonals, u64 nrows, u64 ncols, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        DiaRows<T, V> m{values, offsets, diagonals, nrows, ncols, x};                                                       \
        spmv_rows<T, DiaRows<T, V>, THREADS>(m, nrows, a, b, Update<T>{y, z}, gate);                                                      \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_dot_##in_f32##dia_##t(                                    \
        const V* values, const int* offsets, u32 diagonals, u64 nrows, u64 ncols, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        DiaRows<T, V> m{values, offsets, diagonals, nrows, ncols, x};                                                       \
        spmv_dot_rows<T, DiaRows<T, V>, THREADS>(m, nrows, y, w, tree, gate);                                               \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_##in_f32##symmetric_dia_##t(                              \
        const V* values, const int* offsets, u32 diagonals, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        SymmetricDiaRows<T, V> m{{values, offsets, diagonals, nrows, nrows, x}};                                            \
        spmv_rows<T, SymmetricDiaRows<T, V>, THREADS>(m, nrows, a, b, Update<T>{y, z}, gate);                                             \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) spmv_dot_##in_f32##symmetric_dia_##t(                          \
        const V* values, const int* offsets, u32 diagonals, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        SymmetricDiaRows<T, V> m{{values, offsets, diagonals, nrows, nrows, x}};                                            \
        spmv_dot_rows<T, SymmetricDiaRows<T, V>, THREADS>(m, nrows, y, w, tree, gate);                                      \
    }
#define ENTRIES(T, t) FORMS(T, T, t, )
FOR_EACH_TYPE(ENTRIES)
FORMS(double, float, f64, in_f32_)

// Offsets of a few diagonals, passed by value, so that no load waits for one of them.
#define FEW 8
struct FewOffsets {
    int of[FEW];
};

// The symmetric form with few diagonals: ROWS_APART between the rows of a thread, whole batches of U diagonals in flight.
template <class T, class V, u32 ROWS_APART>
struct FewRows {
    static constexpr int U = 2;
    const V* values;
    const FewOffsets& offsets;
    u32 diagonals;
    u64 rows;
    const T* x;

    template <int N, int W, bool LOWER>
    __device__ __forceinline__ void batch(u32 k0, u64 row, T (&acc)[N]) const {
        V value[W][N];
        T at_x[W][N];
#pragma unroll
        for (int u = 0; u < W; u++) {
            u32 k = LOWER ? k0 - u : k0 + u;
            u64 j = LOWER ? row - offsets.of[k] : row + offsets.of[k];
            const V* diagonal = values + k * rows + (LOWER ? j : row);
            const T* of_x = x + j;
#pragma unroll
            for (int i = 0; i < N; i++) {
                value[u][i] = __ldg(diagonal + i * ROWS_APART);
                at_x[u][i] = __ldg(of_x + i * ROWS_APART);
            }
        }
#pragma unroll
        for (int u = 0; u < W; u++)
#pragma unroll
            for (int i = 0; i < N; i++) acc[i] = fma_rn(T(value[u][i]), at_x[u][i], acc[i]);
    }

    template <int N, bool LOWER>
    __device__ __forceinline__ void walk(u32 k0, u32 count, u64 row, T (&acc)[N]) const {
        u32 done = 0;
#pragma unroll 1
        for (; done + U <= count; done += U) batch<N, U, LOWER>(LOWER ? k0 - done : k0 + done, row, acc);
        if (done < count) batch<N, 1, LOWER>(LOWER ? k0 - done : k0 + done, row, acc);
    }

    // One row near an end of the matrix, added to acc, with four diagonals in flight.
    template <bool LOWER>
    __device__ __forceinline__ T edge(u32 k0, u32 count, u64 row, T acc) const {
        constexpr int W = 4;
#pragma unroll 1
        for (u32 done = 0; done < count; done += W) {
            V value[W];
            T at_x[W];
            bool there[W];
#pragma unroll
            for (int u = 0; u < W; u++) {
                there[u] = done + u < count;
                u32 k = there[u] ? (LOWER ? k0 - done - u : k0 + done + u) : 0;
                i64 j = (i64)row + (LOWER ? -(i64)offsets.of[k] : (i64)offsets.of[k]);
                there[u] = there[u] && j >= 0 && j < (i64)rows;
                if (there[u]) {
                    value[u] = __ldg(values + k * rows + (LOWER ? (u64)j : row));
                    at_x[u] = __ldg(x + j);
                }
            }
#pragma unroll
            for (int u = 0; u < W; u++)
                if (there[u]) acc = fma_rn(T(value[u]), at_x[u], acc);
        }
        return acc;
    }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, T (&acc)[N]) const {
        u64 last = row + (N - 1) * ROWS_APART, reach = offsets.of[diagonals - 1];
        u32 mirrored = diagonals - (offsets.of[0] == 0 ? 1 : 0);
        if (__all_sync(ALL, row >= reach && last + reach < rows)) {
            walk<N, true>(diagonals - 1, mirrored, row, acc);
            walk<N, false>(0, diagonals, row, acc);
        } else {
#pragma unroll 1
            for (int i = 0; i < N; i++) {
                u64 r = row + i * ROWS_APART;
                if (r >= rows) break;
                T sum = edge<false>(0, diagonals, r, edge<true>(diagonals - 1, mirrored, r, T(0)));
#pragma unroll
                for (int s = 0; s < N; s++)
                    if (s == i) acc[s] = sum;
            }
        }
    }
};

#define FEW_THREADS 256

// y = A x; w . y and, if tree.out[1] is given, y . y. A thread block processes `depth` blocks of 1024 rows, each `stride` blocks after the previous
// one. If that is about the reach of the matrix, what it read above the diagonal for one block is in the first-level cache for the next, below
// the diagonal. One warp forms the sums of a block while the others continue with the next.
template <class T, class V>
__device__ __forceinline__ void spmv_dot_few(const V* values, const FewOffsets& offsets, u32 diagonals, u64 nrows, u32 stride, u32 depth, const T* x, T* y, const T* w, const Tree<T>& tree, const Monitor* gate) {
    constexpr int N = BLOCK / FEW_THREADS;
    __shared__ T shared_y[2][BLOCK], shared_w[2][BLOCK];
    if (!open(gate)) return;
    FewRows<T, V, FEW_THREADS> m{values, offsets, diagonals, nrows, x};
    u64 block = (u64)(blockIdx.x / stride) * stride * depth + blockIdx.x % stride;
    for (u32 step = 0; step < depth; step++, block += stride) {
        u64 first = block * BLOCK, row = first + threadIdx.x;
        if (first >= nrows) return;
        u32 half = step % 2;
        T acc[N] = {};
        m.accumulate(row, acc);
#pragma unroll
        for (int i = 0; i < N; i++) {
            u32 at = threadIdx.x + i * FEW_THREADS;
            if (first + at < nrows) {
                y[first + at] = acc[i];
                shared_y[half][at] = acc[i];
                shared_w[half][at] = w[first + at];
            }
        }
        // The next writes go to the other half. The warp that sums there has left it before it comes here.
        __syncthreads();
        if (threadIdx.x / WARP == step % (FEW_THREADS / WARP)) block_dots(shared_y[half], shared_w[half], first, nrows, tree);
    }
}

#define FEW_FORM(T, V, t, in_f32)                                                                                           \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 4) spmv_dot_##in_f32##few_dia_##t(                            \
        const V* values, const __grid_constant__ FewOffsets offsets, u32 diagonals, u64 nrows, u32 stride, u32 depth, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_few<T, V>(values, offsets, diagonals, nrows, stride, depth, x, y, w, tree, gate);                          \
    }
#define FEW_ENTRIES(T, t) FEW_FORM(T, T, t, )
FOR_EACH_TYPE(FEW_ENTRIES)
FEW_FORM(double, float, f64, in_f32_)

// Y = a A X + b Y, four columns at a time: the values of a row are read once for four columns.
template <class T, class V>
__device__ __forceinline__ void spmm(const V* values, const int* offsets, u32 diagonals, bool symmetric, u64 nrows, u64 ncols, u64 k, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, T* y, const Monitor* gate) {
    u64 row = (u64)blockIdx.x * 256 + threadIdx.x;
    if (!open(gate) || row >= nrows) return;
    T a = ca.value(), b = cb.value();
    for (u64 c = 0; c < k; c += 4) {
        T acc[4] = {T(0), T(0), T(0), T(0)};
        u64 columns = k - c < 4 ? k - c : 4;
        auto add = [&](i64 j, const V* at) {
            if (j < 0 || j >= (i64)ncols) return;
            T v = T(*at);
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

#define SPMM_FORM(T, V, t, in_f32)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) spmm_##in_f32##dia_##t(                                               \
        const V* values, const int* offsets, u32 diagonals, u32 symmetric, u64 nrows, u64 ncols, u64 k, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmm<T, V>(values, offsets, diagonals, symmetric != 0, nrows, ncols, k, a, x, b, y, gate);                          \
    }
#define SPMM(T, t) SPMM_FORM(T, T, t, )
FOR_EACH_TYPE(SPMM)
SPMM_FORM(double, float, f64, in_f32_)

// to <- from, if f32 represents every value bit for bit (no NaN, whose bits a conversion may change). Otherwise *inexact <- 1 and `to` is undefined. Each thread takes 16
// values at a time, and stops once a value is found that does not fit.
extern "C" __global__ void __launch_bounds__(256) narrow_in_f32_dia_f64(u64 count, const double* from, float* to, u32* inexact) {
    constexpr int N = 16;
    bool differs = false;
    for (u64 first = (u64)blockIdx.x * 256 * N; first < count; first += (u64)gridDim.x * 256 * N) {
        if (*(volatile u32*)inexact) return;
#pragma unroll
        for (int i = 0; i < N; i++) {
            u64 at = first + i * 256 + threadIdx.x;
            if (at < count) {
                double value = __ldcs(from + at);
                float near = (float)value;
                differs |= !((double)near == value);
                to[at] = near;
            }
        }
        if (differs) *(volatile u32*)inexact = 1;
    }
}

#define KRYLOV(T, t) PERSISTENT(T, t, dia, (const T* values, const int* offsets, u32 diagonals, u32 symmetric), (KeptDia<T>{values, offsets, diagonals, symmetric, n, n}))
FOR_EACH_TYPE(KRYLOV)

// Which diagonals hold entries: bit col - row + nrows of `marks`. A bit only ever goes from 0 to 1, so reading a stale word costs
// one more atomic and loses no bit. A thread block remembers some of the bits that it has seen set, by a hash of their places, so a stencil's
// diagonals are looked up on chip.
#define REMEMBERED_BITS 8
template <class T>
struct MarkDiagonals {
    struct Row {};
    volatile u32* marks;
    u32 nrows;
    volatile u32* remembered;  // 2^REMEMBERED_BITS words: a place + 1, 0 for none

    __device__ __forceinline__ Row open(u32) const { return {}; }
    __device__ __forceinline__ void visit(Row&, u32 row, u32, u32 col, T) const {
        u32 at = col + (nrows - row), bit = 1u << at % 32, slot = at * 2654435761u >> (32 - REMEMBERED_BITS);
        if (remembered[slot] == at + 1) return;
        if (!(marks[at / 32] & bit)) atomicOr((u32*)marks + at / 32, bit);
        remembered[slot] = at + 1;
    }
    __device__ __forceinline__ void close(const Row&, u32, u32) const {}
};

// The words of marks that are not 0 with their places, in any order, after their number; if there are more than `most`, only the number.
__device__ __forceinline__ void list_marks(const u32* marks, u32 words, u32 most, u32* list) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
        u32 word = marks[i];
        if (!word) continue;
        u32 at = atomicAdd(list, 1u);
        if (at < most) {
            list[1 + 2 * at] = i;
            list[2 + 2 * at] = word;
        }
    }
}

// The position of `offset`, which is there, among offsets[from .. count).
__device__ __forceinline__ u32 find_offset(const int* offsets, u32 from, u32 count, int offset) {
    if (__ldg(offsets + from) == offset) return from;
    u32 low = from + 1, high = count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (__ldg(offsets + middle) < offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Writes values to the diagonals from the `first` on; `out` was zero. Counts the nonzero values below, on and above the main diagonal.
template <class T>
struct FillDiagonals {
    struct Row {
        u32 k;
    };
    const int* offsets;
    u32 diagonals, first;
    u64 stride;
    T* out;
    u32 below, on, above;

    __device__ __forceinline__ Row open(u32) const { return {0}; }
    __device__ __forceinline__ void visit(Row& here, u32 row, u32, u32 col, T value) {
        u32 k = find_offset(offsets, here.k, diagonals, (int)col - (int)row);
        if (k >= first) out[(u64)(k - first) * stride + row] = value;
        here.k = k + 1;
        u32 one = value != T(0);
        below += col < row ? one : 0;
        on += col == row ? one : 0;
        above += col > row ? one : 0;
    }
    __device__ __forceinline__ void close(const Row&, u32, u32) const {}
};

// Adds the lanes' counts to *to.
__device__ __forceinline__ void add_count(u64* to, u32 count) {
    u32 sum = count;
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) sum += __shfl_down_sync(ALL, sum, d);
    if (threadIdx.x % WARP == 0 && sum) atomicAdd(to, (u64)sum);
}

// Whether an entry below the main diagonal differs from its mirror image on the filled diagonals at or above it.
template <class T>
struct CompareMirror {
    struct Row {
        u32 k;
    };
    const int* offsets;
    u32 diagonals, first;
    u64 nrows;
    const T* upper;
    bool differs;

    __device__ __forceinline__ Row open(u32) const { return {0}; }
    __device__ __forceinline__ void visit(Row& here, u32 row, u32, u32 col, T value) {
        if (col >= row) return;
        u32 k = find_offset(offsets, here.k, diagonals, (int)col - (int)row);
        here.k = k + 1;
        differs |= !(value == __ldg(upper + (u64)(diagonals - 1 - k - first) * nrows + col));
    }
    __device__ __forceinline__ void close(const Row&, u32, u32) const {}
};

#define FROM_CSR(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) mark_diagonals_dia_##t(const u32* row_ptr, const u32* cols, u32 nrows, u32* marks) { \
        __shared__ u32 remembered[1 << REMEMBERED_BITS];                                         \
        for (u32 i = threadIdx.x; i < 1 << REMEMBERED_BITS; i += WALK_THREADS) remembered[i] = 0; \
        __syncthreads();                                                                         \
        MarkDiagonals<T> visitor{marks, nrows, remembered};                                      \
        walk_rows<T, false>(row_ptr, cols, (const T*)nullptr, nrows, visitor);                   \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) list_diagonals_dia_##t(const u32* marks, u32 words, u32 most, u32* list) { \
        list_marks(marks, words, most, list);                                                    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) fill_from_csr_dia_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, const int* offsets, u32 diagonals, u32 first, u64 stride, T* out, u64* counts) { \
        FillDiagonals<T> visitor{offsets, diagonals, first, stride, out, 0, 0, 0};               \
        walk_rows<T, true>(row_ptr, cols, values, nrows, visitor);                               \
        add_count(counts, visitor.below);                                                        \
        add_count(counts + 1, visitor.on);                                                       \
        add_count(counts + 2, visitor.above);                                                    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(WALK_THREADS, 8) compare_mirror_dia_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, const int* offsets, u32 diagonals, u32 first, const T* upper, u64* differing) { \
        CompareMirror<T> visitor{offsets, diagonals, first, nrows, upper, false};                \
        walk_rows<T, true, true>(row_ptr, cols, values, nrows, visitor);                               \
        add_count(differing, visitor.differs);                                                   \
    }
FOR_EACH_TYPE(FROM_CSR)

// ---- Other values on a pattern that the diagonals were filled from ----

#define REFILL_THREADS 256
// The most stored diagonals, and the elements from one row to the next in shared memory.
#define SIDE 16
#define SIDE_STRIDE 17
// No entries.
#define NOWHERE 0xffffffffu

template <class T>
struct RefillTile {
    int offsets[SIDE];
    T rows[REFILL_THREADS / WARP][WARP * SIDE_STRIDE];
};

// Copies `count` entries of each lane's row, from entry `begin` on, to `rows`: WIDE lanes per row. None of a row whose `begin` is NOWHERE.
template <int WIDE, class T>
__device__ __forceinline__ void load_side(const T* __restrict__ values, u32 begin, u32 count, T* rows) {
    constexpr u32 AHEAD = WIDE < 8 ? WIDE : 8, AT_ONCE = WARP / WIDE;
    u32 part = threadIdx.x % WARP / WIDE, at = threadIdx.x % WIDE;
#pragma unroll
    for (u32 first = 0; first < WIDE; first += AHEAD) {
        T value[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            u32 from = __shfl_sync(ALL, begin, (first + i) * AT_ONCE + part);
            value[i] = from != NOWHERE && at < count ? __ldg(values + from + at) : T(0);
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++)
            if (at < count) rows[((first + i) * AT_ONCE + part) * SIDE_STRIDE + at] = value[i];
    }
}

template <class T>
__device__ __forceinline__ void load_side(const T* values, u32 begin, u32 count, T* rows) {
    __syncwarp();  // the previous rows have been read
    if (count <= 4) load_side<4>(values, begin, count, rows);
    else if (count <= 8) load_side<8>(values, begin, count, rows);
    else load_side<16>(values, begin, count, rows);
    __syncwarp();
}

// Calls whole(row, its entries from the `from`-th on) for rows with an entry on every diagonal, and part(row, begin, end) for the others.
template <class T, class Whole, class Part>
__device__ __forceinline__ void each_side(const u32* __restrict__ row_ptr, const T* values, u32 nrows, u32 diagonals, u32 from, u32 count, T* rows, Whole whole, Part part) {
    u32 lane = threadIdx.x % WARP, groups = nrows / WARP + (nrows % WARP != 0), warps = gridDim.x * (REFILL_THREADS / WARP);
    for (u32 group = blockIdx.x * (REFILL_THREADS / WARP) + threadIdx.x / WARP; group < groups; group += warps) {
        u32 row = group * WARP + lane, begin = 0, end = 0;
        if (row < nrows) {
            begin = __ldg(row_ptr + row);
            end = __ldg(row_ptr + row + 1);
        }
        bool is_whole = end - begin == diagonals;
        load_side(values, is_whole ? begin + from : NOWHERE, count, rows);
        if (is_whole) whole(row, rows + lane * SIDE_STRIDE);
        else if (row < nrows) part(row, begin, end);
    }
}

// Overwrites the `stored` diagonals at or above the main one, of `diagonals` that all entries lie on; 0 where there is no entry. Adds the nonzeros on
// and above the main diagonal to counts[1] and [2], and the lanes that found a value which f32 does not
// represent to [4].
template <class T, class V>
__device__ __forceinline__ void refill(const u32* row_ptr, const u32* __restrict__ cols, const T* __restrict__ values, u32 nrows, const int* offsets, u32 stored, u32 diagonals, V* out, u64* counts) {
    __shared__ RefillTile<T> tile;
    if (threadIdx.x < stored) tile.offsets[threadIdx.x] = offsets[threadIdx.x];
    __syncthreads();
    u32 on = 0, above = 0;
    bool is_inexact = false;
    auto put = [&](u32 row, u32 k, T value) {
        is_inexact |= !(T((float)value) == value);
        out[(u64)k * nrows + row] = V(value);
        u32 one = value != T(0);
        if (tile.offsets[k] == 0) on += one;
        else above += one;
    };
    each_side(
        row_ptr, values, nrows, diagonals, diagonals - stored, stored, tile.rows[threadIdx.x / WARP],
        [&](u32 row, const T* side) {
#pragma unroll 4
            for (u32 k = 0; k < stored; k++) put(row, k, side[k]);
        },
        [&](u32 row, u32 begin, u32 end) {
            u32 k = 0;
            for (u32 e = begin; e < end; e++) {
                u32 col = __ldg(cols + e);
                if (col < row) continue;
                for (; k < stored && tile.offsets[k] < (int)(col - row); k++) out[(u64)k * nrows + row] = V(0);
                if (k < stored) put(row, k++, __ldg(values + e));
            }
            for (; k < stored; k++) out[(u64)k * nrows + row] = V(0);
        });
    add_count(counts + 1, on);
    add_count(counts + 2, above);
    add_count(counts + 4, is_inexact);
}

// Compares the entries below the main diagonal with their mirror images. Adds the nonzeros to counts[0], and the lanes that found a difference to [3].
template <class T, class V>
__device__ __forceinline__ void match_mirror(const u32* row_ptr, const u32* __restrict__ cols, const T* __restrict__ values, u32 nrows, const int* offsets, u32 stored, u32 diagonals, const V* __restrict__ upper, u64* counts) {
    __shared__ RefillTile<T> tile;
    if (threadIdx.x < stored) tile.offsets[threadIdx.x] = offsets[threadIdx.x];
    __syncthreads();
    u32 below = 0, first = diagonals - stored;
    bool differs = false;
    auto look = [&](u32 row, u32 k, T value) {
        below += value != T(0);
        differs |= !(value == T(__ldg(upper + (u64)k * nrows + (row - tile.offsets[k]))));
    };
    each_side(
        row_ptr, values, nrows, diagonals, 0, first, tile.rows[threadIdx.x / WARP],
        [&](u32 row, const T* side) {
#pragma unroll 4
            for (u32 e = 0; e < first; e++) look(row, stored - 1 - e, side[e]);
        },
        [&](u32 row, u32 begin, u32 end) {
            u32 k = stored;
            for (u32 e = begin; e < end; e++) {
                u32 col = __ldg(cols + e);
                if (col >= row) break;
                while (k > 0 && tile.offsets[k - 1] > (int)(row - col)) k--;
                if (k > 0) look(row, --k, __ldg(values + e));
            }
        });
    add_count(counts, below);
    add_count(counts + 3, differs);
}

#define REFILL_FORM(T, V, t, in_f32)                                                             \
    extern "C" __global__ void __launch_bounds__(REFILL_THREADS, 6) refill_##in_f32##dia_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, const int* offsets, u32 stored, u32 diagonals, V* out, u64* counts) { \
        refill<T, V>(row_ptr, cols, values, nrows, offsets, stored, diagonals, out, counts);     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(REFILL_THREADS, 6) match_mirror_##in_f32##dia_##t(const u32* row_ptr, const u32* cols, const T* values, u32 nrows, const int* offsets, u32 stored, u32 diagonals, const V* upper, u64* counts) { \
        match_mirror<T, V>(row_ptr, cols, values, nrows, offsets, stored, diagonals, upper, counts); \
    }
#define REFILL(T, t) REFILL_FORM(T, T, t, )
FOR_EACH_TYPE(REFILL)
REFILL_FORM(double, float, f64, in_f32_)

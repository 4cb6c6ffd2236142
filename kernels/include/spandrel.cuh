// What every kernel uses: widths, coefficients, the gate and its monitor, the dot product's tree, the end of a row.
//
// Layout: the structures passed by value (`Coeff`, `Tree`) and the `Monitor` in device memory have the field order and sizes
// of their twins in crates/backend-cuda/src/{launch,monitor}.rs.
// Order: products and sums are separate roundings (compiled without contraction); every fused one is an explicit `fma`.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// The column of a position without an entry.
#define PADDING 0xffffffffu
// Elements of a block of the dot product's tree, and its lanes.
#define BLOCK 1024
#define WARP 32
#define ALL 0xffffffffu

// Entries `verb_noun_f32` and `verb_noun_f64` from one macro with the parameters (T, type).
#define FOR_EACH_TYPE(ENTRY) ENTRY(float, f32) ENTRY(double, f64)

template <class T>
__device__ __forceinline__ T fma_rn(T a, T b, T c);
template <>
__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
template <>
__device__ __forceinline__ double fma_rn(double a, double b, double c) { return __fma_rn(a, b, c); }

__device__ __forceinline__ float sqrt_rn(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double sqrt_rn(double a) { return __dsqrt_rn(a); }

__device__ __forceinline__ bool finite(double a) { return (__double_as_longlong(a) & 0x7ff0000000000000ll) != 0x7ff0000000000000ll; }

// A coefficient host * (num[0]/den[0]) * (num[1]/den[1]) of device scalars. A null counts as 1; a pair of nulls is skipped.
template <class T>
struct Coeff {
    T host;
    const T* num[2];
    const T* den[2];

    __device__ __forceinline__ T value() const {
        T product = host;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (num[i] || den[i]) {
                T n = num[i] ? *num[i] : T(1), d = den[i] ? *den[i] : T(1);
                product *= n / d;
            }
        }
        return product;
    }
};

// Codes of `Monitor::stop`.
enum Stop : u32 {
    RUNNING = 0,
    CONVERGED = 1,
    CONVERGED_HALF = 2,
    MAX_ITERATIONS = 3,
    DIVERGED = 4,
    NOT_POSITIVE = 5,
    ZERO = 6,
    NOT_FINITE = 7
};
// Codes of a phase, and the quantity of the residual.
#define PHASE_HALF 0u
#define PHASE_FULL 1u
#define RESIDUAL 0u

// The record of an iteration; also the gate of every operation that gets it.
struct Monitor {
    u32 stop;
    u32 quantity;
    u64 iterations;
    u64 max_iters;
    double threshold;
    double divergence;
    double residual;
    u64 recorded;   // norms since the monitor was armed
    u64 drained;    // of these, those that the host has taken
    u64 capacity;   // norms that `history` holds, a ring
    double* history;
    u32 owed;       // whether x must still take the step that r of CG has taken
    u32 unused;

    // Observes the squared norm of an iteration. One thread calls this.
    template <class T>
    __device__ void observe(T squared, u32 phase) {
        if (stop != RUNNING) return;
        double norm = (double)sqrt_rn(squared);
        bool full = phase == PHASE_FULL;
        if (full) iterations += 1;
        u32 decided = RUNNING;
        if (!finite(norm)) {
            decided = NOT_FINITE;
        } else if (norm <= threshold) {
            decided = full ? CONVERGED : CONVERGED_HALF;
        } else if (full && norm > divergence) {
            decided = DIVERGED;
        } else if (full && iterations >= max_iters) {
            decided = MAX_ITERATIONS;
        }
        if (full || decided != RUNNING) {
            if (recorded - drained < capacity) history[recorded % capacity] = norm;
            recorded += 1;
            residual = norm;
        }
        quantity = RESIDUAL;
        stop = decided;
    }

    // Whether a scalar is reliable; otherwise the reason to stop.
    template <class T>
    __device__ static u32 judge(T value, bool positive) {
        if (!finite((double)value)) return NOT_FINITE;
        if (positive) return value > T(0) ? RUNNING : NOT_POSITIVE;
        return value != T(0) ? RUNNING : ZERO;
    }

    __device__ void halt(u32 reason, u32 what) {
        if (stop == RUNNING && reason != RUNNING) {
            quantity = what;
            stop = reason;
        }
    }
};

// Whether the gate lets work through.
__device__ __forceinline__ bool open(const Monitor* gate) {
    return !gate || *(volatile const u32*)&gate->stop == RUNNING;
}

// Loads what an operation reads once and nothing writes meanwhile.
template <class T>
__device__ __forceinline__ T stream(const T* p) { return __ldcs(p); }

// Loads before this call are issued before anything that follows. Otherwise the compiler moves loads to the uses of their values, to save
// registers, and a thread waits for one load after the other. For the lanes that are here together, which need nothing in common.
__device__ __forceinline__ void issued() { __syncwarp(__activemask()); }

// y = a acc + b y; y is not read if b = 0.
template <class T>
__device__ __forceinline__ void finish_row(T a, T acc, T b, T* y) {
    *y = b == T(0) ? a * acc : fma_rn(a, acc, b * *y);
}

// Where a product y = a A x + b z writes y and reads z, which may be y.
template <class T>
struct Update {
    T* y;
    const T* z;
    __device__ __forceinline__ Update operator+(u64 row) const { return {y + row, z + row}; }
};
template <class T>
__device__ __forceinline__ void finish_row(T a, T acc, T b, const Update<T>& to) {
    *to.y = b == T(0) ? a * acc : fma_rn(a, acc, b * *to.z);
}

// The halving tree over the lanes: the sum in lane 0.
template <class T>
__device__ __forceinline__ T halve(T v) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_down_sync(ALL, v, d);
    return v;
}

// Room for the block results of up to two sums over one length, the tickets that tell which warp comes last, the sums.
template <class T>
struct Tree {
    T* partials;   // sum k from k * stride on: the results of the blocks, then those of the levels above
    u64 stride;
    u32* tickets;  // one per group of 1024 results on every level; 0 between operations
    T* out[2];
};

// The sum of one group of 1024 results of a level, bypassing the first-level cache.
template <class T>
__device__ __forceinline__ T group_sum(const T* results, u64 first, u64 count) {
    u64 at = first + threadIdx.x % WARP;
    u64 end = count - first < BLOCK ? count : first + BLOCK;
    T acc = T(0);
#pragma unroll 4
    for (; at < end; at += WARP) acc += __ldcg(results + at);
    return halve(acc);
}

// Takes one of `count` tickets. True for the last, which leaves 0 for the next operation of the queue. One thread calls this. No fence.
__device__ __forceinline__ bool last_ticket(u32* ticket, u32 count) {
    bool last = atomicAdd(ticket, 1u) == count - 1;
    if (last) *ticket = 0;
    return last;
}

// A whole warp hands in the results (in lane 0) of block `block` of `blocks`, for K sums. The warp that completes a group of 1024
// sums it, level by level; the one that completes the last group writes the sums. True only in lane 0 of that warp, with the sums.
template <class T, int K>
__device__ bool finish_warp(const Tree<T>& tree, u64 block, u64 blocks, T (&sum)[K]) {
    bool first_lane = threadIdx.x % WARP == 0;
    u64 at = block, count = blocks, level = 0;
    u32* tickets = tree.tickets;
    while (count > 1) {
        u64 group = at / BLOCK, groups = (count + BLOCK - 1) / BLOCK;
        u64 members = count - group * BLOCK < BLOCK ? count - group * BLOCK : BLOCK;
        u32 last = 0;
        if (first_lane) {
#pragma unroll
            for (int k = 0; k < K; k++) tree.partials[k * tree.stride + level + at] = sum[k];
            __threadfence();
            last = last_ticket(tickets + group, (u32)members);
        }
        if (!__shfl_sync(ALL, last, 0)) return false;
        __threadfence();
#pragma unroll
        for (int k = 0; k < K; k++) sum[k] = group_sum(tree.partials + k * tree.stride + level, group * BLOCK, count);
        tickets += groups;
        level += count;
        at = group;
        count = groups;
    }
    if (!first_lane) return false;
#pragma unroll
    for (int k = 0; k < K; k++) *tree.out[k] = sum[k];
    return true;
}

// Whether the thread block whose first row would be `first` has no rows, as the only one of an empty matrix. It writes the empty sums.
template <class T>
__device__ __forceinline__ bool no_rows(u64 first, u64 nrows, const Tree<T>& tree) {
    if (first < nrows) return false;
    if (threadIdx.x == 0) {
        *tree.out[0] = T(0);
        if (tree.out[1]) *tree.out[1] = T(0);
    }
    return true;
}

// The end of a product with dot products: w . y (and y . y) of the block of 1024 rows from `first` on, whose y and w are in
// shared memory. One warp calls this. True in lane 0 of the warp that writes the sums.
template <class T>
__device__ __forceinline__ void block_dots(const T* shared_y, const T* shared_w, u64 first, u64 nrows, const Tree<T>& tree) {
    u32 lane = threadIdx.x % WARP;
    u64 blocks = (nrows + BLOCK - 1) / BLOCK;
    u32 rows = nrows - first < BLOCK ? (u32)(nrows - first) : BLOCK;
    if (tree.out[1]) {
        T sum[2] = {T(0), T(0)};
#pragma unroll 8
        for (u32 at = lane; at < rows; at += WARP) {
            T v = shared_y[at];
            sum[0] = fma_rn(shared_w[at], v, sum[0]);
            sum[1] = fma_rn(v, v, sum[1]);
        }
        sum[0] = halve(sum[0]);
        sum[1] = halve(sum[1]);
        finish_warp<T, 2>(tree, first / BLOCK, blocks, sum);
    } else {
        T sum[1] = {T(0)};
#pragma unroll 8
        for (u32 at = lane; at < rows; at += WARP) sum[0] = fma_rn(shared_w[at], shared_y[at], sum[0]);
        sum[0] = halve(sum[0]);
        finish_warp<T, 1>(tree, first / BLOCK, blocks, sum);
    }
}

// The product of a format whose rows can be formed in any grouping. `Rows` has
//   template <int N> void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const
// which adds to acc[i] the stored entries of row + i*step (rows past nrows are skipped), in order, by `fma`, and
//   u64 target(u64 row) const
// the row of y that belongs to a stored row.

// y = a A x + b y, with y a T* or an Update<T>. Grid: 1024 rows per thread block of THREADS, neighbours side by side.
template <class T, class Rows, int THREADS = 256, class Y>
__device__ __forceinline__ void spmv_rows(const Rows& m, u64 nrows, const Coeff<T>& ca, const Coeff<T>& cb, Y y, const Monitor* gate) {
    constexpr int N = BLOCK / THREADS;
    if (!open(gate)) return;
    u64 row = (u64)blockIdx.x * BLOCK + threadIdx.x;
    T acc[N] = {};
    m.template accumulate<N>(row, THREADS, nrows, acc);
    T a = ca.value(), b = cb.value();
#pragma unroll
    for (int i = 0; i < N; i++) {
        u64 r = row + i * THREADS;
        if (r < nrows) finish_row(a, acc[i], b, y + m.target(r));
    }
}

// y = A x; w . y and, if tree.out[1] is given, y . y. `target` must map every block of 1024 rows onto itself.
template <class T, class Rows, int THREADS = 256>
__device__ __forceinline__ void spmv_dot_rows(const Rows& m, u64 nrows, T* y, const T* w, const Tree<T>& tree, const Monitor* gate) {
    constexpr int N = BLOCK / THREADS;
    __shared__ T shared_y[BLOCK], shared_w[BLOCK];
    if (!open(gate)) return;
    u64 first = (u64)blockIdx.x * BLOCK, row = first + threadIdx.x;
    if (no_rows(first, nrows, tree)) return;
    T acc[N] = {};
    m.template accumulate<N>(row, THREADS, nrows, acc);
#pragma unroll
    for (int i = 0; i < N; i++) {
        u64 r = row + i * THREADS;
        if (r < nrows) {
            u64 to = m.target(r);
            y[to] = acc[i];
            shared_y[to - first] = acc[i];
            shared_w[threadIdx.x + i * THREADS] = w[r];
        }
    }
    __syncthreads();
    if (threadIdx.x < WARP) block_dots(shared_y, shared_w, first, nrows, tree);
}

// Whether this thread block is the last of `count` to call this. The results that the others wrote before are then visible.
__device__ inline bool last_of(u32* ticket, u32 count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = last_ticket(ticket, count);
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// w . y (and y . y) after thread blocks that wrote `rows` rows of y each, `rows` a divisor of 1024. The last block to end in a group
// of 1024 rows forms its result, and the last of these the sums. `arrivals`: a 0 for each block of 1024 rows, at least one.
template <class T>
__device__ inline void dots_of_parts(const T* y, const T* w, u64 nrows, u32 rows, u32* arrivals, const Tree<T>& tree) {
    u32 parts = BLOCK / rows, group = blockIdx.x / parts, before = group * parts;
    u64 first = (u64)group * BLOCK, blocks = (nrows + BLOCK - 1) / BLOCK;
    if (!last_of(arrivals + group, gridDim.x - before < parts ? gridDim.x - before : parts)) return;
    if (threadIdx.x >= WARP) return;
    bool both = tree.out[1] != nullptr;
    T wy = T(0), yy = T(0);
#pragma unroll 8
    for (int i = 0; i < BLOCK / WARP; i++) {
        u64 at = first + i * WARP + threadIdx.x;
        if (at < nrows) {
            T v = __ldcg(y + at);
            wy = fma_rn(__ldg(w + at), v, wy);
            if (both) yy = fma_rn(v, v, yy);
        }
    }
    if (both) {
        T sum[2] = {halve(wy), halve(yy)};
        finish_warp<T, 2>(tree, group, blocks, sum);
    } else {
        T sum[1] = {halve(wy)};
        finish_warp<T, 1>(tree, group, blocks, sum);
    }
}

// Vectors and scalars: level 1, the monitor, and the fused steps of CG and BiCGStab.
//
// Layout: vectors are contiguous; scalars one element each.
// Grid: element-wise, 1024 elements a thread block of 256. With a sum, one warp a block of 1024 elements, any number of warps a
// thread block; the last thread block to end combines the block results and goes on to what depends on them.
// Order: that of Backend::dot: 32 lanes, lane l takes l, l + 32, ... by fma from +0, then a halving tree.
// Bytes: each operand once.
#include "spandrel.cuh"

// One warp's block of 1024 elements: `body(i)` for each of the lane's elements in order, `more` of them in flight.
#define FOR_EACH_OF_BLOCK(i, n)                                                                  \
    u64 block_of_warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP;                      \
    u64 first_of_lane = block_of_warp * BLOCK + threadIdx.x % WARP;                               \
    _Pragma("unroll 8") for (u64 i = first_of_lane, end_of_block = min_u64(n, (block_of_warp + 1) * BLOCK); i < end_of_block; i += WARP)

__device__ __forceinline__ u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }
__device__ __forceinline__ u64 blocks_of(u64 n) { return (n + BLOCK - 1) / BLOCK; }

// The warp's result of sum k of its block.
template <class T>
__device__ __forceinline__ void put(const Tree<T>& tree, int k, u64 block, u64 n, T acc) {
    acc = halve(acc);
    if (threadIdx.x % WARP == 0 && block < blocks_of(n)) tree.partials[k * tree.stride + block] = acc;
}

#define FILL(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) fill_vector_##t(u64 n, Coeff<T> value, T* y, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) y[i] = value.host;    \
    }
FOR_EACH_TYPE(FILL)

#define COPY(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) copy_vector_##t(u64 n, const T* x, T* y, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) y[i] = x[i];          \
    }
FOR_EACH_TYPE(COPY)

// y = fma(a, x, b*y); b = 0 never reads y.
template <class T>
__device__ __forceinline__ T axpby(T a, T x, T b, const T* y) {
    return b == T(0) ? a * x : fma_rn(a, x, b * *y);
}

#define AXPBY(T, t)                                                                              \
    extern "C" __global__ void __launch_bounds__(256) axpby_vector_##t(u64 n, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T a = ca.value(), b = cb.value();                                                        \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) y[i] = axpby(a, x[i], b, y + i); \
    }
FOR_EACH_TYPE(AXPBY)

template <class T>
__device__ __forceinline__ T axpbypcz(T a, T x, T b, T y, T c, const T* z) {
    return fma_rn(a, x, c == T(0) ? b * y : fma_rn(b, y, c * *z));
}

#define AXPBYPCZ(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) axpbypcz_vector_##t(u64 n, Coeff<T> ca, const T* x, Coeff<T> cb, const T* y, Coeff<T> cc, T* z, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T a = ca.value(), b = cb.value(), c = cc.value();                                        \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) z[i] = axpbypcz(a, x[i], b, y[i], c, z + i); \
    }
FOR_EACH_TYPE(AXPBYPCZ)

#define HADAMARD(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) hadamard_vector_##t(u64 n, const T* x, const T* y, T* z, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) z[i] = x[i] * y[i];   \
    }
FOR_EACH_TYPE(HADAMARD)

#define ASSIGN(T, t)                                                                             \
    extern "C" __global__ void assign_scalar_##t(Coeff<T> value, T* out, const Monitor* gate) {  \
        if (open(gate)) *out = value.value();                                                    \
    }
FOR_EACH_TYPE(ASSIGN)

// x . y, or its root.
#define DOT(T, t)                                                                                \
    extern "C" __global__ void dot_vector_##t(u64 n, const T* x, const T* y, u32 root, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T acc = T(0);                                                                            \
        FOR_EACH_OF_BLOCK(i, n) acc = fma_rn(x[i], y[i], acc);                                   \
        put(tree, 0, block_of_warp, n, acc);                                                     \
        T sum[1];                                                                                \
        if (finish_sums<T, 1>(tree, blocks_of(n), sum) && root) *tree.out[0] = sqrt_rn(sum[0]);  \
    }
FOR_EACH_TYPE(DOT)

#define OBSERVE(T, t)                                                                            \
    extern "C" __global__ void observe_scalar_##t(const T* squared, u32 phase, Monitor* monitor) { monitor->observe(*squared, phase); }
FOR_EACH_TYPE(OBSERVE)

#define REQUIRE(T, t)                                                                            \
    extern "C" __global__ void require_scalar_##t(const T* value, u32 positive, u32 what, Monitor* monitor) { \
        if (open(monitor)) monitor->halt(Monitor::judge(*value, positive != 0), what);           \
    }
FOR_EACH_TYPE(REQUIRE)

// Up to two scalars that must hold before the work of a fused step, each with its quantity; and what is observed at its end.
template <class T>
struct Checks {
    const T* value[2];
    u32 positive;       // whether the first must be positive; otherwise none may be zero
    u32 what[2];
    u32 observe;        // whether the first sum is the squared norm of `phase`
    u32 phase;
    u32 nonzero;        // whether the second sum must not be zero, as quantity `after`
    u32 after;
};

// Whether the step goes on. Every thread decides alike from scalars that this step does not write; one says so to the monitor.
template <class T>
__device__ __forceinline__ bool admitted(const Checks<T>& checks, Monitor* monitor) {
    if (!open(monitor)) return false;
    if (!monitor) return true;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!checks.value[i]) continue;
        u32 reason = Monitor::judge(*checks.value[i], i == 0 && checks.positive);
        if (reason != RUNNING) {
            if (blockIdx.x == 0 && threadIdx.x == 0) monitor->halt(reason, checks.what[i]);
            return false;
        }
    }
    return true;
}

template <class T, int K>
__device__ __forceinline__ void conclude(const Checks<T>& checks, const Tree<T>& tree, u64 n, Monitor* monitor) {
    T sum[K];
    if (!finish_sums<T, K>(tree, blocks_of(n), sum)) return;
    if (!monitor) return;
    if (checks.observe) monitor->observe(sum[0], checks.phase);
    if (K == 2 && checks.nonzero && monitor->stop == RUNNING) monitor->halt(Monitor::judge(sum[K - 1], false), checks.after);
}

// x = x + alpha p; r = r - alpha q; r . r.
#define CG_UPDATE(T, t)                                                                          \
    extern "C" __global__ void cg_update_vector_##t(u64 n, Coeff<T> ca, const T* p, const T* q, T* x, T* r, Checks<T> checks, Tree<T> tree, Monitor* monitor) { \
        if (!admitted(checks, monitor)) return;                                                  \
        T alpha = ca.value(), acc = T(0);                                                        \
        FOR_EACH_OF_BLOCK(i, n) {                                                                \
            x[i] = fma_rn(alpha, p[i], x[i]);                                                    \
            T v = fma_rn(-alpha, q[i], r[i]);                                                    \
            r[i] = v;                                                                            \
            acc = fma_rn(v, v, acc);                                                             \
        }                                                                                        \
        put(tree, 0, block_of_warp, n, acc);                                                     \
        conclude<T, 1>(checks, tree, n, monitor);                                                \
    }
FOR_EACH_TYPE(CG_UPDATE)

// r = r - alpha v; r . r.
#define BICGSTAB_HALF(T, t)                                                                      \
    extern "C" __global__ void bicgstab_half_vector_##t(u64 n, Coeff<T> ca, const T* v, T* r, Checks<T> checks, Tree<T> tree, Monitor* monitor) { \
        if (!admitted(checks, monitor)) return;                                                  \
        T alpha = ca.value(), acc = T(0);                                                        \
        FOR_EACH_OF_BLOCK(i, n) {                                                                \
            T s = fma_rn(-alpha, v[i], r[i]);                                                    \
            r[i] = s;                                                                            \
            acc = fma_rn(s, s, acc);                                                             \
        }                                                                                        \
        put(tree, 0, block_of_warp, n, acc);                                                     \
        conclude<T, 1>(checks, tree, n, monitor);                                                \
    }
FOR_EACH_TYPE(BICGSTAB_HALF)

// x = fma(alpha, p, fma(omega, s, x)); r = r - omega t; r . r; shadow . r. `s` null: r before its update.
#define BICGSTAB_UPDATE(T, t)                                                                    \
    extern "C" __global__ void bicgstab_update_vector_##t(u64 n, Coeff<T> ca, const T* p, Coeff<T> co, const T* s, const T* tt, const T* shadow, T* x, T* r, Checks<T> checks, Tree<T> tree, Monitor* monitor) { \
        if (!admitted(checks, monitor)) return;                                                  \
        T alpha = ca.value(), omega = co.value(), rr = T(0), rho = T(0);                         \
        FOR_EACH_OF_BLOCK(i, n) {                                                                \
            T before = r[i];                                                                     \
            T step = s ? s[i] : before;                                                          \
            x[i] = fma_rn(alpha, p[i], fma_rn(omega, step, x[i]));                               \
            T v = fma_rn(-omega, tt[i], before);                                                 \
            r[i] = v;                                                                            \
            rr = fma_rn(v, v, rr);                                                               \
            rho = fma_rn(shadow[i], v, rho);                                                     \
        }                                                                                        \
        put(tree, 0, block_of_warp, n, rr);                                                      \
        put(tree, 1, block_of_warp, n, rho);                                                     \
        conclude<T, 2>(checks, tree, n, monitor);                                                \
    }
FOR_EACH_TYPE(BICGSTAB_UPDATE)

// z = d .* r; r . z.
#define HADAMARD_DOT(T, t)                                                                       \
    extern "C" __global__ void hadamard_dot_vector_##t(u64 n, const T* d, const T* r, T* z, Tree<T> tree, const Monitor* gate) { \
        if (!open(gate)) return;                                                                 \
        T acc = T(0);                                                                            \
        FOR_EACH_OF_BLOCK(i, n) {                                                                \
            T v = d[i] * r[i];                                                                   \
            z[i] = v;                                                                            \
            acc = fma_rn(r[i], v, acc);                                                          \
        }                                                                                        \
        put(tree, 0, block_of_warp, n, acc);                                                     \
        T sum[1];                                                                                \
        finish_sums<T, 1>(tree, blocks_of(n), sum);                                              \
    }
FOR_EACH_TYPE(HADAMARD_DOT)

// p = fma(a, z, b*p), then `to` = `from`: the end of an iteration of CG, whose coefficient b still needs what `to` held.
#define CG_DIRECTION(T, t)                                                                       \
    extern "C" __global__ void __launch_bounds__(256) cg_direction_vector_##t(u64 n, const T* z, Coeff<T> cb, T* p, const T* from, T* to, const T* required, u32 what, u32* ticket, Monitor* monitor) { \
        if (!open(monitor)) return;                                                              \
        if (monitor && required) {                                                               \
            u32 reason = Monitor::judge(*required, true);                                        \
            if (reason != RUNNING) {                                                             \
                if (blockIdx.x == 0 && threadIdx.x == 0) monitor->halt(reason, what);            \
                return;                                                                          \
            }                                                                                    \
        }                                                                                        \
        T b = cb.value();                                                                        \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) p[i] = axpby(T(1), z[i], b, p + i); \
        if (last_block(ticket) && threadIdx.x == 0) *to = *from;                                 \
    }
FOR_EACH_TYPE(CG_DIRECTION)

// p = r + beta (p - omega v) as fma(1, r, fma(b, v, c*p)), then `to` = `from`: the end of an iteration of BiCGStab.
#define BICGSTAB_DIRECTION(T, t)                                                                 \
    extern "C" __global__ void __launch_bounds__(256) bicgstab_direction_vector_##t(u64 n, const T* r, Coeff<T> cb, const T* v, Coeff<T> cc, T* p, const T* from, T* to, u32* ticket, Monitor* monitor) { \
        if (!open(monitor)) return;                                                              \
        T b = cb.value(), c = cc.value();                                                        \
        u64 i = (u64)blockIdx.x * BLOCK + threadIdx.x;                                           \
        _Pragma("unroll") for (int k = 0; k < 4; k++, i += 256) if (i < n) p[i] = axpbypcz(T(1), r[i], b, v[i], c, p + i); \
        if (last_block(ticket) && threadIdx.x == 0) *to = *from;                                 \
    }
FOR_EACH_TYPE(BICGSTAB_DIRECTION)

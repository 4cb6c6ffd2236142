// Vectors and scalars: level 1, the monitor, and the fused steps of CG and BiCGStab.
//
// Layout: vectors are contiguous; scalars one element each.
// Grid: 1024 elements per thread block of 256. With a sum, the first warp then forms the block's result from shared memory; the warp
// that hands in the last result combines them and does the work that depends on the sums.
// Order: that of Backend::dot: 32 lanes, lane l takes l, l + 32, ... by fma from +0, then a halving tree.
// Bytes: each operand once.
#include "checks.cuh"

__device__ __forceinline__ u64 blocks_of(u64 n) { return (n + BLOCK - 1) / BLOCK; }

// Element-wise operations: `load(i, k)` reads the operands of element i into place k, `store(i, k)` computes and writes. All loads of
// a thread are in flight before `ready()`, which checks the gate and forms the coefficients.
template <class Load, class Ready, class Store>
__device__ __forceinline__ void elementwise(u64 n, Load load, Ready ready, Store store) {
    u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + k * 256 < n) load(first + k * 256, k);
    if (!ready()) return;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + k * 256 < n) store(first + k * 256, k);
}

#define FILL(T, t)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) fill_vector_##t(u64 n, Coeff<T> value, T* y, const Monitor* gate) {   \
        elementwise(n, [](u64, int) {}, [&] { return open(gate); }, [&](u64 i, int) { y[i] = value.host; });                \
    }
FOR_EACH_TYPE(FILL)

#define COPY(T, t)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) copy_vector_##t(u64 n, const T* x, T* y, const Monitor* gate) {       \
        T v[4];                                                                                                             \
        elementwise(n, [&](u64 i, int k) { v[k] = x[i]; }, [&] { return open(gate); }, [&](u64 i, int k) { y[i] = v[k]; }); \
    }
FOR_EACH_TYPE(COPY)

// y = fma(a, x, b*y); b = 0 never uses y, and does not even read it if the host knows that b = 0.
template <class T>
__device__ __forceinline__ void axpby(u64 n, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, T* y, const Monitor* gate) {
    T vx[4], vy[4], a, b;
    bool reads = cb.host != T(0);
    elementwise(
        n,
        [&](u64 i, int k) {
            vx[k] = x[i];
            if (reads) vy[k] = y[i];
        },
        [&] {
            if (!open(gate)) return false;
            a = ca.value();
            b = cb.value();
            return true;
        },
        [&](u64 i, int k) { y[i] = b == T(0) ? a * vx[k] : fma_rn(a, vx[k], b * vy[k]); });
}

#define AXPBY(T, t)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        axpby_vector_##t(u64 n, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) {                            \
        axpby(n, a, x, b, y, gate);                                                                                         \
    }
FOR_EACH_TYPE(AXPBY)

// y = fma(a, x, b*y), then z = fma(c, y, d*z); b = 0 and d = 0 as in axpby.
template <class T>
__device__ __forceinline__ void axpby_chain(u64 n, const Coeff<T>& ca, const T* x, const Coeff<T>& cb, T* y, const Coeff<T>& cc, const Coeff<T>& cd, T* z, const Monitor* gate) {
    T vx[4], vy[4], vz[4], a, b, c, d;
    bool reads_y = cb.host != T(0), reads_z = cd.host != T(0);
    elementwise(
        n,
        [&](u64 i, int k) {
            vx[k] = x[i];
            if (reads_y) vy[k] = y[i];
            if (reads_z) vz[k] = z[i];
        },
        [&] {
            if (!open(gate)) return false;
            a = ca.value();
            b = cb.value();
            c = cc.value();
            d = cd.value();
            return true;
        },
        [&](u64 i, int k) {
            T made = b == T(0) ? a * vx[k] : fma_rn(a, vx[k], b * vy[k]);
            y[i] = made;
            z[i] = d == T(0) ? c * made : fma_rn(c, made, d * vz[k]);
        });
}

#define AXPBY_CHAIN(T, t)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        axpby_chain_vector_##t(u64 n, Coeff<T> a, const T* x, Coeff<T> b, T* y, Coeff<T> c, Coeff<T> d, T* z, const Monitor* gate) { \
        axpby_chain(n, a, x, b, y, c, d, z, gate);                                                                          \
    }
FOR_EACH_TYPE(AXPBY_CHAIN)

// z = fma(a, x, fma(b, y, c*z)); c = 0 never uses z.
template <class T, class Ready>
__device__ __forceinline__ void axpbypcz(u64 n, T& a, const T* x, T& b, const T* y, T& c, bool reads, T* z, Ready ready) {
    T vx[4], vy[4], vz[4];
    elementwise(
        n,
        [&](u64 i, int k) {
            vx[k] = x[i];
            vy[k] = y[i];
            if (reads) vz[k] = z[i];
        },
        ready,
        [&](u64 i, int k) { z[i] = fma_rn(a, vx[k], c == T(0) ? b * vy[k] : fma_rn(b, vy[k], c * vz[k])); });
}

#define AXPBYPCZ(T, t)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        axpbypcz_vector_##t(u64 n, Coeff<T> ca, const T* x, Coeff<T> cb, const T* y, Coeff<T> cc, T* z, const Monitor* gate) { \
        T a, b, c;                                                                                                          \
        axpbypcz(n, a, x, b, y, c, cc.host != T(0), z, [&] {                                                                \
            if (!open(gate)) return false;                                                                                  \
            a = ca.value();                                                                                                 \
            b = cb.value();                                                                                                 \
            c = cc.value();                                                                                                 \
            return true;                                                                                                    \
        });                                                                                                                 \
    }
FOR_EACH_TYPE(AXPBYPCZ)

#define HADAMARD(T, t)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        hadamard_vector_##t(u64 n, const T* x, const T* y, T* z, const Monitor* gate) {                                     \
        T vx[4], vy[4];                                                                                                     \
        elementwise(                                                                                                        \
            n, [&](u64 i, int k) { vx[k] = x[i]; vy[k] = y[i]; }, [&] { return open(gate); },                               \
            [&](u64 i, int k) { z[i] = vx[k] * vy[k]; });                                                                   \
    }
FOR_EACH_TYPE(HADAMARD)

#define ASSIGN(T, t)                                                                             \
    extern "C" __global__ void assign_scalar_##t(Coeff<T> value, T* out, const Monitor* gate) {  \
        if (open(gate)) *out = value.value();                                                    \
    }
FOR_EACH_TYPE(ASSIGN)

// The other element type.
template <class T>
struct Other;
template <>
struct Other<float> {
    typedef double type;
};
template <>
struct Other<double> {
    typedef float type;
};
__device__ __forceinline__ void round_to(double v, float* y) { *y = __double2float_rn(v); }
__device__ __forceinline__ void round_to(double v, double* y) { *y = v; }

// y = a x, rounded in f64 and then to the type of y.
#define CAST(T, t)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        cast_vector_##t(u64 n, Coeff<double> ca, const T* x, Other<T>::type* y, const Monitor* gate) {                      \
        T v[4];                                                                                                             \
        double a;                                                                                                           \
        elementwise(                                                                                                        \
            n, [&](u64 i, int k) { v[k] = x[i]; },                                                                          \
            [&] {                                                                                                           \
                if (!open(gate)) return false;                                                                              \
                a = ca.value();                                                                                             \
                return true;                                                                                                \
            },                                                                                                              \
            [&](u64 i, int k) { round_to(a * (double)v[k], y + i); });                                                      \
    }
FOR_EACH_TYPE(CAST)

// The bits of |x|, which ascend with it: those of infinity are above those of all numbers, those of a NaN above both.
__device__ __forceinline__ u64 magnitude(double x) { return (u64)__double_as_longlong(x) & 0x7fffffffffffffffull; }

// The largest of the numbers of a thread block of 256, in its first thread.
__device__ __forceinline__ u64 largest(u64 v) {
    __shared__ u64 of_warp[256 / WARP];
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        u64 other = __shfl_down_sync(ALL, v, d);
        v = other > v ? other : v;
    }
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll
        for (int w = 1; w < 256 / WARP; w++) v = of_warp[w] > v ? of_warp[w] : v;
    }
    return v;
}

// 2^e from a magnitude's bits, e limited to -1022 .. 1022; 1 for zero, infinity and NaN.
__device__ __forceinline__ double binade(u64 bits) {
    u64 exponent = bits >> 52;
    if (bits == 0 || exponent == 0x7ff) return 1.0;
    exponent = exponent < 1 ? 1 : exponent > 2045 ? 2045 : exponent;
    return __longlong_as_double((i64)(exponent << 52));
}

// The binade of the largest magnitude: one result per thread block, and the last block to end takes the largest of them. Any grid.
#define BINADE(T, t)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        binade_vector_##t(u64 n, const T* x, u64* results, u32* ticket, double* out, const Monitor* gate) {                 \
        if (!open(gate)) return;                                                                                            \
        u64 most = 0;                                                                                                       \
        for (u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x; first < n; first += (u64)gridDim.x * BLOCK) {               \
            _Pragma("unroll") for (int k = 0; k < 4; k++) {                                                                 \
                u64 i = first + k * 256, bits = i < n ? magnitude((double)x[i]) : 0;                                        \
                most = bits > most ? bits : most;                                                                           \
            }                                                                                                               \
        }                                                                                                                   \
        most = largest(most);                                                                                               \
        if (threadIdx.x == 0) results[blockIdx.x] = most;                                                                   \
        if (!last_of(ticket, gridDim.x)) return;                                                                            \
        most = 0;                                                                                                           \
        for (u32 i = threadIdx.x; i < gridDim.x; i += 256) {                                                                \
            u64 bits = __ldcg(results + i);                                                                                 \
            most = bits > most ? bits : most;                                                                               \
        }                                                                                                                   \
        most = largest(most);                                                                                               \
        if (threadIdx.x == 0) *out = binade(most);                                                                          \
    }
FOR_EACH_TYPE(BINADE)

// A block's x . y from shared memory, by the first warp; the result is in lane 0, +0 if there are no elements.
template <class T>
__device__ __forceinline__ T block_dot(const T* x, const T* y, u64 n) {
    u64 left = n - (u64)blockIdx.x * BLOCK;
    u32 count = left < BLOCK ? (u32)left : BLOCK;
    T acc = T(0);
#pragma unroll 8
    for (u32 at = threadIdx.x; at < count; at += WARP) acc = fma_rn(x[at], y[at], acc);
    return halve(acc);
}

// x . y, or its square root.
template <class T>
__device__ __forceinline__ void dot(u64 n, const T* x, const T* y, bool root, const Tree<T>& tree, const Monitor* gate) {
    __shared__ T shared_x[BLOCK], shared_y[BLOCK];
    T vx[4], vy[4];
    if (!open(gate)) return;
    elementwise(
        n,
        [&](u64 i, int k) {
            vx[k] = x[i];
            vy[k] = y[i];
        },
        [] { return true; },
        [&](u64 i, int k) {
            shared_x[threadIdx.x + k * 256] = vx[k];
            shared_y[threadIdx.x + k * 256] = vy[k];
        });
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    T sum[1] = {block_dot(shared_x, shared_y, n)};
    if (finish_warp<T, 1>(tree, blockIdx.x, blocks_of(n), sum) && root) *tree.out[0] = sqrt_rn(sum[0]);
}

#define DOT(T, t)                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        dot_vector_##t(u64 n, const T* x, const T* y, u32 root, Tree<T> tree, const Monitor* gate) {                        \
        dot(n, x, y, root != 0, tree, gate);                                                                                \
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

// The end of a step with K sums over the thread block's 1024 elements, x_k . y_k from shared memory.
template <class T, int K>
__device__ __forceinline__ void end_step(u64 n, const T* x0, const T* y0, const T* x1, const T* y1, const Checks<T>& checks, const Tree<T>& tree, Monitor* monitor) {
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    T sum[K];
    sum[0] = block_dot(x0, y0, n);
    if (K == 2) sum[K - 1] = block_dot(x1, y1, n);
    if (finish_warp<T, K>(tree, blockIdx.x, blocks_of(n), sum)) conclude(checks, sum[0], sum[K - 1], monitor);
}

// x = x + alpha p; r = r - alpha q; r . r.
template <class T>
__device__ __forceinline__ void cg_update(u64 n, const Coeff<T>& ca, const T* p, const T* q, T* x, T* r, const Checks<T>& checks, const Tree<T>& tree, Monitor* monitor) {
    __shared__ T shared_r[BLOCK];
    T vp[4], vq[4], vx[4], vr[4], alpha;
    bool goes = true;
    elementwise(
        n,
        [&](u64 i, int k) {
            vp[k] = p[i];
            vx[k] = x[i];
            vq[k] = q[i];
            vr[k] = r[i];
        },
        [&] {
            goes = admitted(checks, monitor);
            if (goes) alpha = ca.value();
            return goes;
        },
        [&](u64 i, int k) {
            x[i] = fma_rn(alpha, vp[k], vx[k]);
            T v = fma_rn(-alpha, vq[k], vr[k]);
            r[i] = v;
            shared_r[threadIdx.x + k * 256] = v;
        });
    if (goes) end_step<T, 1>(n, shared_r, shared_r, shared_r, shared_r, checks, tree, monitor);
}

#define CG_UPDATE(T, t)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        cg_update_vector_##t(u64 n, Coeff<T> a, const T* p, const T* q, T* x, T* r, Checks<T> checks, Tree<T> tree, Monitor* monitor) { \
        cg_update(n, a, p, q, x, r, checks, tree, monitor);                                                                 \
    }
FOR_EACH_TYPE(CG_UPDATE)

// r = r - alpha v; r . r: the first half of BiCGStab, and the step of CG without x.
template <class T>
__device__ __forceinline__ void residual_step(u64 n, const Coeff<T>& ca, const T* v, T* r, const Checks<T>& checks, const Tree<T>& tree, Monitor* monitor) {
    __shared__ T shared_r[BLOCK];
    T vv[4], vr[4], alpha;
    bool goes = true;
    elementwise(
        n,
        [&](u64 i, int k) {
            vv[k] = v[i];
            vr[k] = r[i];
        },
        [&] {
            goes = admitted(checks, monitor);
            if (goes) alpha = ca.value();
            return goes;
        },
        [&](u64 i, int k) {
            T s = fma_rn(-alpha, vv[k], vr[k]);
            r[i] = s;
            shared_r[threadIdx.x + k * 256] = s;
        });
    if (goes) end_step<T, 1>(n, shared_r, shared_r, shared_r, shared_r, checks, tree, monitor);
}

#define RESIDUAL_STEP(T, t)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        residual_step_vector_##t(u64 n, Coeff<T> a, const T* v, T* r, Checks<T> checks, Tree<T> tree, Monitor* monitor) {   \
        residual_step(n, a, v, r, checks, tree, monitor);                                                                   \
    }
FOR_EACH_TYPE(RESIDUAL_STEP)

// x = fma(alpha, p, fma(omega, s, x)); r = r - omega t; r . r; shadow . r. If `s` is null, it is r before its update.
template <class T>
__device__ __forceinline__ void bicgstab_update(u64 n, const Coeff<T>& ca, const T* p, const Coeff<T>& co, const T* s, const T* t, const T* shadow, T* x, T* r, const Checks<T>& checks, const Tree<T>& tree, Monitor* monitor) {
    __shared__ T shared_r[BLOCK], shared_w[BLOCK];
    T vp[4], vs[4], vt[4], vx[4], vr[4], vw[4], alpha, omega;
    bool goes = true;
    elementwise(
        n,
        [&](u64 i, int k) {
            vr[k] = r[i];
            vp[k] = p[i];
            vx[k] = x[i];
            vt[k] = t[i];
            vw[k] = shadow[i];
            vs[k] = s ? s[i] : vr[k];
        },
        [&] {
            goes = admitted(checks, monitor);
            if (goes) {
                alpha = ca.value();
                omega = co.value();
            }
            return goes;
        },
        [&](u64 i, int k) {
            x[i] = fma_rn(alpha, vp[k], fma_rn(omega, vs[k], vx[k]));
            T v = fma_rn(-omega, vt[k], vr[k]);
            r[i] = v;
            shared_r[threadIdx.x + k * 256] = v;
            shared_w[threadIdx.x + k * 256] = vw[k];
        });
    if (goes) end_step<T, 2>(n, shared_r, shared_r, shared_w, shared_r, checks, tree, monitor);
}

#define BICGSTAB_UPDATE(T, t)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        bicgstab_update_vector_##t(u64 n, Coeff<T> a, const T* p, Coeff<T> o, const T* s, const T* tt, const T* shadow, T* x, T* r, Checks<T> checks, Tree<T> tree, Monitor* monitor) { \
        bicgstab_update(n, a, p, o, s, tt, shadow, x, r, checks, tree, monitor);                                            \
    }
FOR_EACH_TYPE(BICGSTAB_UPDATE)

// z = d .* r; r . z.
template <class T>
__device__ __forceinline__ void hadamard_dot(u64 n, const T* d, const T* r, T* z, const Tree<T>& tree, Monitor* monitor) {
    __shared__ T shared_r[BLOCK], shared_z[BLOCK];
    T vd[4], vr[4];
    bool goes = true;
    elementwise(
        n,
        [&](u64 i, int k) {
            vd[k] = d[i];
            vr[k] = r[i];
        },
        [&] { return goes = open(monitor); },
        [&](u64 i, int k) {
            T v = vd[k] * vr[k];
            z[i] = v;
            shared_r[threadIdx.x + k * 256] = vr[k];
            shared_z[threadIdx.x + k * 256] = v;
        });
    if (goes) end_step<T, 1>(n, shared_r, shared_z, shared_r, shared_z, Checks<T>{}, tree, monitor);
}

#define HADAMARD_DOT(T, t)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        hadamard_dot_vector_##t(u64 n, const T* d, const T* r, T* z, Tree<T> tree, Monitor* monitor) {                      \
        hadamard_dot(n, d, r, z, tree, monitor);                                                                            \
    }
FOR_EACH_TYPE(HADAMARD_DOT)

// The coefficients of BiCGStab's direction, read by one thread for its thread block. The last thread block to read them overwrites
// the scalar that they were made of.
template <class T>
__device__ __forceinline__ bool take_coefficients(const Coeff<T>& cb, const Coeff<T>& cc, T (&shared)[2], const T* from, T* to, u32* ticket) {
    if (threadIdx.x == 0) {
        shared[0] = cb.value();
        shared[1] = cc.value();
        __threadfence();
        if (last_ticket(ticket, gridDim.x)) *to = *from;
    }
    __syncthreads();
    return true;
}

// What is to be done at the end of an iteration of CG.
#define STEPS 1u
#define TURNS 2u

// x = x + alpha p if it is owed; p = fma(1, z, b*p), then `to` = `from`: the end of an iteration of CG, whose coefficients still need
// the old `to`. One thread of each thread block decides; all decide alike, and the last one to have read writes.
template <class T>
__device__ __forceinline__ void cg_direction(u64 n, const T* z, const Coeff<T>& cb, const Coeff<T>& ca, T* p, T* x, const T* from, T* to, const T* required, u32 what, u32* ticket, Monitor* monitor) {
    __shared__ T coefficients[2];
    __shared__ u32 does;
    T vz[4], vp[4], vx[4];
    elementwise(
        n,
        [&](u64 i, int k) {
            vp[k] = p[i];
            vx[k] = x[i];
            vz[k] = z[i];
        },
        [&] {
            if (threadIdx.x == 0) {
                u32 todo = *(volatile u32*)&monitor->owed ? STEPS : 0;
                if (open(monitor)) {
                    u32 reason = required ? Monitor::judge(*required, true) : RUNNING;
                    if (reason == RUNNING) todo |= TURNS;
                    else if (blockIdx.x == 0) monitor->halt(reason, what);
                }
                if (todo) {
                    coefficients[0] = todo & TURNS ? cb.value() : T(0);
                    coefficients[1] = todo & STEPS ? ca.value() : T(0);
                    __threadfence();
                    if (last_ticket(ticket, gridDim.x)) {
                        if (todo & TURNS) *to = *from;
                        monitor->owed = 0;
                    }
                }
                does = todo;
            }
            __syncthreads();
            return does != 0;
        },
        [&](u64 i, int k) {
            T b = coefficients[0];
            if (does & STEPS) x[i] = fma_rn(coefficients[1], vp[k], vx[k]);
            if (does & TURNS) p[i] = b == T(0) ? vz[k] : fma_rn(T(1), vz[k], b * vp[k]);
        });
}

#define CG_DIRECTION(T, t)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        cg_direction_vector_##t(u64 n, const T* z, Coeff<T> b, Coeff<T> a, T* p, T* x, const T* from, T* to, const T* required, u32 what, u32* ticket, Monitor* monitor) { \
        cg_direction(n, z, b, a, p, x, from, to, required, what, ticket, monitor);                                          \
    }
FOR_EACH_TYPE(CG_DIRECTION)

// p = r + beta (p - omega v) as fma(1, r, fma(b, v, c*p)), then `to` = `from`: the end of an iteration of BiCGStab.
#define BICGSTAB_DIRECTION(T, t)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        bicgstab_direction_vector_##t(u64 n, const T* r, Coeff<T> cb, const T* v, Coeff<T> cc, T* p, const T* from, T* to, u32* ticket, Monitor* monitor) { \
        __shared__ T coefficients[2];                                                                                       \
        T one = T(1);                                                                                                       \
        axpbypcz(n, one, r, coefficients[0], v, coefficients[1], true, p, [&] {                                             \
            return open(monitor) && take_coefficients<T>(cb, cc, coefficients, from, to, ticket);                          \
        });                                                                                                                 \
    }
FOR_EACH_TYPE(BICGSTAB_DIRECTION)

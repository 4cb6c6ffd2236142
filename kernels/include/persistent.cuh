// CG and BiCGStab as one kernel that keeps the matrix and the vectors on chip for many iterations: small systems, whose launches
// would cost more than their work.
//
// Layout: thread block b multiplies rows b*R .. (b+1)*R, R dividing 1024. Of every vector it holds a window in shared memory, the columns
// that its rows reach, and updates it itself: element-wise work is repeated where windows overlap, and only products y = A x and sums
// travel between thread blocks. The thread block with the first rows of a block of 1024 is its host: its window contains the
// whole block, it forms the block's part of every sum and keeps x.
// Exchange: include/exchange.cuh. The matrix on chip: include/kept.cuh.
// All thread blocks must be resident (a cooperative launch), and all decide alike: from the same sums, each on its copy of the monitor.
// Order: that of the operations one by one, bit for bit.
// Bytes: between looks nothing of the vectors; per product the part of the matrix that does not fit on chip.
#pragma once
#include "kept.cuh"

// The history of norms, which one thread writes so that the others need not: `watch` is a copy of the monitor that writes none.
struct Historian {
    double* history;
    u64 at, written, drained, capacity;

    __device__ __forceinline__ explicit Historian(const Monitor& monitor)
        : history(monitor.history), at(monitor.recorded % monitor.capacity), written(monitor.recorded), drained(monitor.drained), capacity(monitor.capacity) {}

    // Called after each observation, with a barrier before this call and one before the next.
    __device__ __forceinline__ void note(const Monitor& watch) {
        if (watch.recorded == written) return;
        if (written - drained < capacity) history[at] = watch.residual;
        at = at + 1 == capacity ? 0 : at + 1;
        written = watch.recorded;
    }
};

template <class T>
__device__ __forceinline__ void read_window(const Duty& duty, const T* from, T* to) {
    for (u32 i = threadIdx.x; i < duty.width; i += CREW) to[i] = from[duty.lo + i];
}

// Writes the host's block of a window back to the vector.
template <class T>
__device__ __forceinline__ void write_block(const Duty& duty, const T* from, T* to) {
    for (u32 i = threadIdx.x; i < duty.count; i += CREW) to[duty.first + i] = from[duty.at + i];
}

// The quantities of a stop, as in crates/backend/src/monitor.rs.
#define CURVATURE 1u
#define RHO 3u
#define SHADOW_DIRECTION 4u
#define STABILIZER 5u
#define OMEGA 6u

extern __shared__ __align__(16) unsigned char on_chip[];

// Up to span.count iterations of CG: q = A p, p'q; cg_step; cg_direction.
template <class T, class Matrix>
__device__ __forceinline__ void cg_iterations(Matrix m, u64 n, const Span& span, u64* slots, T* x, T* r, T* p, T* q, T* pq, T* rr, T* rz, Monitor* monitor) {
    __shared__ Monitor watch;
    __shared__ T sum;
    if (!open(monitor)) return;  // written only at the end, which needs a product of every thread block
    Duty duty(span, n);
    Exchange<T> exchange{slots, n, (n + BLOCK - 1) / BLOCK};
    T* P = (T*)on_chip;
    T* R = P + span.width;
    T* Q = R + span.width;
    if (threadIdx.x == 0) {
        watch = *monitor;
        watch.capacity = 0;  // the historian writes the history
        sum = *rz;           // read before the barrier below is passed: thread block 0 writes it at the end
    }
    bool writes_history = blockIdx.x == 0 && threadIdx.x == CREW - 1;
    Historian historian(*monitor);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    T last_rr = *rr, last_pq = T(0), xs[BLOCK / CREW];
#pragma unroll
    for (int i = 0; i < BLOCK / CREW; i++) {
        u32 k = threadIdx.x + i * CREW;
        xs[i] = duty.host && k < duty.count ? x[duty.first + k] : T(0);
    }
    read_window(duty, p, P);
    read_window(duty, r, R);
    // The matrix takes what follows the three windows, each of which has room for span.width.
    m.keep(span, duty, (unsigned char*)(Q + span.width));
    __syncthreads();
    T last_rz = sum;

    for (u32 k = 1; k <= span.count; k++) {
        u32 tag = span.epoch + k;
        send_product(m, duty, P, exchange.product(tag, 0), tag);
        exchange.gather(tag, 0, duty.lo, duty.width, Q);
        __syncthreads();
        if (warp == 0) {
            if (duty.host) send_dot(P + duty.at, Q + duty.at, duty.count, exchange.sum(tag, 0), duty.block, tag);
            T total = exchange.total(tag, 0);
            if (lane == 0) {
                watch.halt(Monitor::judge(total, true), CURVATURE);
                sum = total;
            }
        }
        __syncthreads();
        last_pq = sum;
        if (watch.stop != RUNNING) break;
        T alpha = last_rz / last_pq;
        for (u32 i = threadIdx.x; i < duty.width; i += CREW) R[i] = fma_rn(-alpha, Q[i], R[i]);
        if (duty.host) {
#pragma unroll
            for (int i = 0; i < BLOCK / CREW; i++) {
                u32 k = threadIdx.x + i * CREW;
                if (k < duty.count) xs[i] = fma_rn(alpha, P[duty.at + k], xs[i]);
            }
        }
        __syncthreads();
        if (warp == 0) {
            if (duty.host) send_dot(R + duty.at, R + duty.at, duty.count, exchange.sum(tag, 1), duty.block, tag);
            T total = exchange.total(tag, 1);
            if (lane == 0) {
                watch.observe(total, PHASE_FULL);
                sum = total;
            }
        }
        __syncthreads();
        last_rr = sum;
        if (writes_history) historian.note(watch);
        if (watch.stop != RUNNING) break;
        T beta = last_rr / last_rz;
        for (u32 i = threadIdx.x; i < duty.width; i += CREW) P[i] = beta == T(0) ? R[i] : fma_rn(T(1), R[i], beta * P[i]);
        last_rz = last_rr;
        __syncthreads();
    }

    if (duty.host) {
#pragma unroll
        for (int i = 0; i < BLOCK / CREW; i++) {
            u32 k = threadIdx.x + i * CREW;
            if (k < duty.count) x[duty.first + k] = xs[i];
        }
        write_block(duty, P, p);
        write_block(duty, R, r);
        write_block(duty, Q, q);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *pq = last_pq;
        *rr = last_rr;
        *rz = last_rz;
        watch.capacity = historian.capacity;
        *monitor = watch;
    }
}

// The scalars of BiCGStab.
template <class T>
struct StabScalars {
    T *rho, *rho_next, *rv, *ss, *ts, *tt, *rr;
};

// Up to span.count iterations of BiCGStab: v = A p, r0'v; bicgstab_first; t = A s, t's, t't; bicgstab_second; bicgstab_direction.
// t is formed before it is known whether s is small enough; if s is, t is not used.
template <class T, class Matrix>
__device__ __forceinline__ void bicgstab_iterations(Matrix m, u64 n, const Span& span, u64* slots, const T* shadow, T* x, T* r, T* p, T* v, T* t, StabScalars<T> scalars, Monitor* monitor) {
    __shared__ Monitor watch;
    __shared__ T sum[3];
    __shared__ bool whole;  // whether t is part of the state, because s was not small enough
    if (!open(monitor)) return;  // written only at the end, which needs a product of every thread block
    Duty duty(span, n);
    Exchange<T> exchange{slots, n, (n + BLOCK - 1) / BLOCK};
    T* P = (T*)on_chip;
    T* R = P + span.width;
    T* V = R + span.width;
    T* S = V + span.width;     // t
    T* H = S + span.width;     // the shadow residual: the host's block
    if (threadIdx.x == 0) {
        watch = *monitor;
        watch.capacity = 0;  // the historian writes the history
        sum[0] = *scalars.rho;  // read before the barrier below is passed: thread block 0 writes it at the end
        whole = false;
    }
    bool writes_history = blockIdx.x == 0 && threadIdx.x == CREW - 1;
    Historian historian(*monitor);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    T rho_next = *scalars.rho_next, rv = T(0), ss = *scalars.ss, ts = *scalars.ts, tt = *scalars.tt, rr = *scalars.rr;
    bool formed = false;
    T xs[BLOCK / CREW];
#pragma unroll
    for (int i = 0; i < BLOCK / CREW; i++) {
        u32 k = threadIdx.x + i * CREW;
        bool mine = duty.host && k < duty.count;
        xs[i] = mine ? x[duty.first + k] : T(0);
        H[k] = mine ? shadow[duty.first + k] : T(0);
    }
    read_window(duty, p, P);
    read_window(duty, r, R);
    m.keep(span, duty, (unsigned char*)(H + BLOCK));
    __syncthreads();
    T rho = sum[0];

    for (u32 k = 1; k <= span.count; k++) {
        u32 tag = span.epoch + k;
        send_product(m, duty, P, exchange.product(tag, 0), tag);
        exchange.gather(tag, 0, duty.lo, duty.width, V);
        __syncthreads();
        if (warp == 0) {
            if (duty.host) send_dot(H, V + duty.at, duty.count, exchange.sum(tag, 0), duty.block, tag);
            T total = exchange.total(tag, 0);
            if (lane == 0) {
                watch.halt(Monitor::judge(total, false), SHADOW_DIRECTION);
                sum[0] = total;
            }
        }
        __syncthreads();
        rv = sum[0];
        if (watch.stop != RUNNING) break;
        T alpha = rho / rv;
        for (u32 i = threadIdx.x; i < duty.width; i += CREW) R[i] = fma_rn(-alpha, V[i], R[i]);
        __syncthreads();

        send_product(m, duty, R, exchange.product(tag, 1), tag);
        if (warp == CREW / WARP - 1 && duty.host) send_dot(R + duty.at, R + duty.at, duty.count, exchange.sum(tag, 1), duty.block, tag);
        exchange.gather(tag, 1, duty.lo, duty.width, S);
        __syncthreads();
        if (warp == 1 && duty.host) send_dot(R + duty.at, S + duty.at, duty.count, exchange.sum(tag, 2), duty.block, tag);
        if (warp == 2 && duty.host) send_dot(S + duty.at, S + duty.at, duty.count, exchange.sum(tag, 3), duty.block, tag);
        if (warp < 3) {
            T total = exchange.total(tag, 1 + warp);
            if (lane == 0) sum[warp] = total;
        }
        __syncthreads();
        ss = sum[0];
        if (threadIdx.x == 0) {
            watch.observe(sum[0], PHASE_HALF);
            whole = watch.stop == RUNNING;
            watch.halt(Monitor::judge(sum[2], false), STABILIZER);
            watch.halt(Monitor::judge(sum[1], false), OMEGA);
        }
        __syncthreads();
        if (whole) {
            ts = sum[1];
            tt = sum[2];
            formed = true;
        }
        if (writes_history) historian.note(watch);
        if (watch.stop != RUNNING) break;
        T omega = ts / tt;
        if (duty.host) {
#pragma unroll
            for (int i = 0; i < BLOCK / CREW; i++) {
                u32 k = threadIdx.x + i * CREW;
                if (k < duty.count) xs[i] = fma_rn(alpha, P[duty.at + k], fma_rn(omega, R[duty.at + k], xs[i]));
            }
        }
        __syncthreads();  // s has been read in the host's order
        for (u32 i = threadIdx.x; i < duty.width; i += CREW) R[i] = fma_rn(-omega, S[i], R[i]);
        __syncthreads();

        if (warp == 0 && duty.host) send_dot(R + duty.at, R + duty.at, duty.count, exchange.sum(tag, 4), duty.block, tag);
        if (warp == 1 && duty.host) send_dot(H, R + duty.at, duty.count, exchange.sum(tag, 5), duty.block, tag);
        if (warp < 2) {
            T total = exchange.total(tag, 4 + warp);
            if (lane == 0) sum[warp] = total;
        }
        __syncthreads();
        rr = sum[0];
        rho_next = sum[1];
        if (threadIdx.x == 0) {
            watch.observe(rr, PHASE_FULL);
            watch.halt(Monitor::judge(rho_next, false), RHO);
        }
        __syncthreads();
        if (writes_history) historian.note(watch);
        if (watch.stop != RUNNING) break;
        T step = rho_next / rv, c = step * (tt / ts);
        for (u32 i = threadIdx.x; i < duty.width; i += CREW) P[i] = fma_rn(T(1), R[i], c == T(0) ? -step * V[i] : fma_rn(-step, V[i], c * P[i]));
        rho = rho_next;
        __syncthreads();
    }

    if (duty.host) {
#pragma unroll
        for (int i = 0; i < BLOCK / CREW; i++) {
            u32 k = threadIdx.x + i * CREW;
            if (k < duty.count) x[duty.first + k] = xs[i];
        }
        write_block(duty, P, p);
        write_block(duty, R, r);
        write_block(duty, V, v);
        if (formed) write_block(duty, S, t);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *scalars.rho = rho;
        *scalars.rho_next = rho_next;
        *scalars.rv = rv;
        *scalars.ss = ss;
        *scalars.ts = ts;
        *scalars.tt = tt;
        *scalars.rr = rr;
        watch.capacity = historian.capacity;
        *monitor = watch;
    }
}

// The two entries of a noun: PERSISTENT(T, type, noun, (its parameters), its matrix as an expression of them and of `n`).
#define UNPACK(...) __VA_ARGS__
#define PERSISTENT(T, t, noun, PARAMETERS, MATRIX)                                               \
    extern "C" __global__ void __launch_bounds__(CREW, 1) cg_##noun##_##t(UNPACK PARAMETERS, u64 n, Span span, u64* slots, T* x, T* r, T* p, T* q, T* pq, T* rr, T* rz, Monitor* monitor) { \
        cg_iterations(UNPACK MATRIX, n, span, slots, x, r, p, q, pq, rr, rz, monitor);           \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(CREW, 1) bicgstab_##noun##_##t(UNPACK PARAMETERS, u64 n, Span span, u64* slots, const T* shadow, T* x, T* r, T* p, T* v, T* t_, StabScalars<T> scalars, Monitor* monitor) { \
        bicgstab_iterations(UNPACK MATRIX, n, span, slots, shadow, x, r, p, v, t_, scalars, monitor); \
    }

// CG and BiCGStab as one kernel that keeps the matrix and the vectors on chip for many iterations: small systems, whose launches
// would cost more than their work.
//
// Layout: thread block b multiplies rows b*R .. (b+1)*R, R dividing 1024. Of every vector it holds a window in shared memory, the columns
// its rows reach, and updates it itself: element-wise work is done as often as windows overlap, and only products y = A x and sums
// travel between thread blocks. The thread block with the first rows of a block of 1024 is its host: its window takes in the
// whole block, it forms the block's part of every sum and keeps x.
// Exchange: every word that travels carries the number of its iteration in its upper half, so that data is its own flag: no fence, no
// barrier of the grid. A word of 64 bits is written and read whole; a double is two words. Numbers grow from launch to launch and are
// never 0, which is what new memory holds.
// A slot is used again two iterations later. Nobody can still be reading it: to write it then, all sums of the iteration between
// were needed, these needed a product of every thread block, and that came after everything the block read before.
// All thread blocks must be resident (a cooperative launch) and all decide alike: from the same sums, each on a copy of the monitor.
// Order: that of the operations one by one, bit for bit.
// Bytes: between looks nothing of the vectors; the part of the matrix that does not fit on chip once per product.
#pragma once
#include "spandrel.cuh"

#define CREW 256
#define PRODUCTS 2
#define SUMS 6

// Rows and columns of thread blocks.
struct Span {
    u64 below, above;  // row i uses columns i - below .. i + above at most
    u32 rows;          // of a thread block, dividing 1024
    u32 width;         // elements of a window at most
    u32 kept;          // units of the matrix that a thread block keeps on chip
    u32 count;         // iterations at most
    u32 epoch;         // number of the last iteration of all launches before
    u32 unused;
};

__device__ __forceinline__ void put_word(u64* at, u64 word) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory"); }
__device__ __forceinline__ u64 word_at(const u64* at) {
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

// A number in a slot with the number of its iteration.
template <class T>
struct Slot;
template <>
struct Slot<float> {
    static constexpr u32 WORDS = 1;
    u64 word;
    __device__ __forceinline__ static void put(u64* at, u32 tag, float v) { put_word(at, (u64)tag << 32 | (u64)__float_as_uint(v)); }
    __device__ __forceinline__ void load(const u64* at) { word = word_at(at); }
    __device__ __forceinline__ bool holds(u32 tag) const { return (u32)(word >> 32) == tag; }
    __device__ __forceinline__ float value() const { return __uint_as_float((u32)word); }
};
template <>
struct Slot<double> {
    static constexpr u32 WORDS = 2;
    u64 low, high;
    __device__ __forceinline__ static void put(u64* at, u32 tag, double v) {
        u64 bits = (u64)__double_as_longlong(v), mark = (u64)tag << 32;
        u64 low = mark | (bits & 0xffffffffull), high = mark | bits >> 32;
        asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
    }
    __device__ __forceinline__ void load(const u64* at) {
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
    }
    __device__ __forceinline__ bool holds(u32 tag) const { return (u32)(low >> 32) == tag && (u32)(high >> 32) == tag; }
    __device__ __forceinline__ double value() const { return __longlong_as_double((i64)(high << 32 | (low & 0xffffffffull))); }
};

// Waits for COUNT slots (the last of them standing in for those past the end) and gives their numbers.
template <int COUNT, class T>
__device__ __forceinline__ void await(const u64* slots, u64 from, u64 step, u64 end, u32 tag, T (&v)[COUNT]) {
    u32 missing = (1u << COUNT) - 1;
    while (missing) {
        Slot<T> slot[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            u64 at = from + i * step;
            slot[i].load(slots + (at < end ? at : end - 1) * Slot<T>::WORDS);
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (slot[i].holds(tag)) {
                v[i] = slot[i].value();
                missing &= ~(1u << i);
            }
        }
    }
}

// The slots: products of two iterations, then sums of two iterations.
template <class T>
struct Exchange {
    u64* slots;
    u64 n, blocks;

    __device__ __forceinline__ u64* product(u32 tag, u32 which) const { return slots + ((tag & 1) * PRODUCTS + which) * n * Slot<T>::WORDS; }
    __device__ __forceinline__ u64* sum(u32 tag, u32 which) const {
        return slots + (2 * PRODUCTS * n + ((tag & 1) * SUMS + which) * blocks) * Slot<T>::WORDS;
    }

    // The window of a product: a whole thread block, each thread waiting for so many elements at once.
    template <int COUNT>
    __device__ __forceinline__ void gather_by(u32 tag, const u64* from, u32 width, T* to) const {
        for (u32 base = threadIdx.x; base < width; base += COUNT * CREW) {
            T v[COUNT];
            await<COUNT>(from, base, CREW, width, tag, v);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if (base + i * CREW < width) to[base + i * CREW] = v[i];
        }
    }
    __device__ __forceinline__ void gather(u32 tag, u32 which, u64 lo, u32 width, T* to) const {
        const u64* from = product(tag, which) + lo * Slot<T>::WORDS;
        if (width <= 2 * CREW) gather_by<2>(tag, from, width, to);
        else gather_by<5>(tag, from, width, to);
    }

    // Sum `which` from its block results, in lane 0. One warp, at most 1024 blocks.
    __device__ __forceinline__ T total(u32 tag, u32 which) const {
        const u64* from = sum(tag, which);
        u32 lane = threadIdx.x % WARP;
        T acc = T(0);
        if (blocks <= WARP) {
            T v[1] = {T(0)};
            if (lane < blocks) await<1>(from, lane, WARP, blocks, tag, v);
            if (blocks == 1) return v[0];  // nothing is added to a single result
            acc += v[0];
        } else {
            for (u64 base = lane; base < blocks; base += 4 * WARP) {
                T v[4];
                await<4>(from, base, WARP, blocks, tag, v);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (base + i * WARP < blocks) acc += v[i];
            }
        }
        __syncwarp();
        return halve(acc);
    }
};

// The result a . b of a block of `count` elements, sent off. One warp.
template <class T>
__device__ __forceinline__ void send_dot(const T* a, const T* b, u32 count, u64* slots, u64 block, u32 tag) {
    u32 lane = threadIdx.x % WARP;
    T acc = T(0);
#pragma unroll 8
    for (int i = 0; i < BLOCK / WARP; i++) {
        u32 at = i * WARP + lane;
        if (at < count) acc = fma_rn(a[at], b[at], acc);
    }
    acc = halve(acc);
    if (lane == 0) Slot<T>::put(slots + block * Slot<T>::WORDS, tag, acc);
}

// The history of norms, which one thread keeps off the path of the others: `watch` is a copy of the monitor that writes none.
struct Historian {
    double* history;
    u64 at, written, drained, capacity;

    __device__ __forceinline__ explicit Historian(const Monitor& monitor)
        : history(monitor.history), at(monitor.recorded % monitor.capacity), written(monitor.recorded), drained(monitor.drained), capacity(monitor.capacity) {}

    // After each observation, with a barrier before and one before the next.
    __device__ __forceinline__ void note(const Monitor& watch) {
        if (watch.recorded == written) return;
        if (written - drained < capacity) history[at] = watch.residual;
        at = at + 1 == capacity ? 0 : at + 1;
        written = watch.recorded;
    }
};

// What a thread block is responsible for.
struct Duty {
    u64 first, last;  // its rows
    u64 lo;           // its window begins at this column
    u32 width;        // and is so wide
    bool host;        // of the block of 1024 that begins with its first row,
    u64 block;        // this one,
    u32 at, count;    // which lies there in the window

    __device__ __forceinline__ Duty(const Span& span, u64 n) {
        first = (u64)blockIdx.x * span.rows;
        last = first + span.rows < n ? first + span.rows : n;
        host = first % BLOCK == 0;
        block = first / BLOCK;
        u64 end_of_block = first + BLOCK < n ? first + BLOCK : n;
        lo = first > span.below ? first - span.below : 0;
        u64 hi = last + span.above < n ? last + span.above : n;
        if (host && hi < end_of_block) hi = end_of_block;
        width = (u32)(hi - lo);
        at = (u32)(first - lo);
        count = (u32)(end_of_block - first);
    }
};

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
        // A warp a diagonal.
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

    // What is outside the matrix comes as 0 * -0 = -0, which changes no sum, not even -0.
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

// Packed rows, of which the first span.kept entries of each lie on chip. Its room: kept * span.rows values, then as many columns.
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

    // Padding comes as 0 * -0 = -0, which changes no sum, not even -0.
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

// CSR, some lanes a row (a power of two up to 32): each adds every lanes-th entry in order, then a halving tree; with one lane
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

    // acc and the entries from, from + lanes, ... before `to`. What is not there comes as 0 * -0 = -0, which changes no sum, not even
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
        if (from < border) left += (border - from + lanes - 1) / lanes * lanes;  // the first of the lane's entries that is not here
        return add<false>(left, to, x, acc);
    }
};

// y = A x over the thread block's rows, sent off. `x` is the window.
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
    // Whole warps go round: their lanes add up together.
#pragma unroll 1
    for (u32 i = threadIdx.x / m.lanes; i - threadIdx.x / m.lanes < count; i += rows) {
        T acc = i < count ? m.share(i, lane, x - (i64)duty.lo) : T(0);
        __syncwarp();
#pragma unroll 1
        for (u32 d = m.lanes / 2; d > 0; d /= 2) acc += __shfl_down_sync(ALL, acc, d, m.lanes);
        if (i < count && lane == 0) Slot<T>::put(slots + (duty.first + i) * Slot<T>::WORDS, tag, acc);
    }
}

template <class T>
__device__ __forceinline__ void read_window(const Duty& duty, const T* from, T* to) {
    for (u32 i = threadIdx.x; i < duty.width; i += CREW) to[i] = from[duty.lo + i];
}

// The host's block of a window, back to where it belongs.
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
    if (!open(monitor)) return;  // written at the end alone, which needs a product of every thread block
    Duty duty(span, n);
    Exchange<T> exchange{slots, n, (n + BLOCK - 1) / BLOCK};
    T* P = (T*)on_chip;
    T* R = P + span.width;
    T* Q = R + span.width;
    if (threadIdx.x == 0) {
        watch = *monitor;
        watch.capacity = 0;  // the historian writes the history
        sum = *rz;           // read by the time that the barrier below is passed: thread block 0 writes it at the end
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
    // Everything behind the three windows, of which each has room for span.width.
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
// t is formed before it is known whether s is small enough; then it goes nowhere.
template <class T, class Matrix>
__device__ __forceinline__ void bicgstab_iterations(Matrix m, u64 n, const Span& span, u64* slots, const T* shadow, T* x, T* r, T* p, T* v, T* t, StabScalars<T> scalars, Monitor* monitor) {
    __shared__ Monitor watch;
    __shared__ T sum[3];
    __shared__ bool whole;  // whether t is part of the state: s was not small enough
    if (!open(monitor)) return;  // written at the end alone, which needs a product of every thread block
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
        sum[0] = *scalars.rho;  // read by the time that the barrier below is passed: thread block 0 writes it at the end
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

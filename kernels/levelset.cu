// Level sets: triangular solve over slices of rows in an order of execution.
//
// Layout: as on the host (crates/sptrsv/src/levelset.rs). slices[c] = (first place, first position, rows, entries of a row); entry k of
// its l-th row at first + k rows + l, in the order of its sum; cols are positions, PADDING without an entry, where values, which lie in
// the same places, hold 0; order[p] is the row at position p, inv[p] its 1/d, null for a unit diagonal.
// x is remembered in slots by position, each with the number of its solve (the epoch), so that data is its own flag: nothing is cleared
// and no fence is needed. `Progress` is advanced here, by the launch with `last`, when all of its thread blocks have read it.
// Grid: sptrsv_block: one thread block of up to 512, warp w takes slices w, w + warps, ...; x of the last 2^shift positions of the
// segment is also kept on chip, in slots that carry the lap around the ring. 2^shift slots and 64 numbers a warp of shared memory.
// For levels of a row: lanes wait one after the other, so that a lane alone goes on at once.
// sptrsv_grid: any number of thread blocks of 256; a warp draws its slices by ticket, the next while it solves one. Its lanes wait
// together, with the entries that come next under way.
// Either way a slice waits for slices before it alone, which are solved, or held by a warp that runs.
// Order: stored, towards the diagonal; one fma an entry.
// Bytes: places and slices once, b and x once; a slot a row written, read by who needs it.
#include "exchange.cuh"

// Entries of a row that a lane has under way.
#define HELD 8
// Entries of the longest row that one lane takes.
#define LONG 64
#define BLOCK_CREW 512
#define GRID_CREW 256

struct Progress {
    u32 epoch;    // of the last solve
    u32 ticket;   // slices drawn by the launch that runs; 0 between launches
    u32 arrived;  // of its thread blocks; 0 between launches
    u32 unused;
};

__device__ __forceinline__ void load_near(Slot<float>& slot, u32 at) {
    asm volatile("ld.relaxed.cta.shared.u64 %0, [%1];" : "=l"(slot.word) : "r"(at) : "memory");
}
__device__ __forceinline__ void load_near(Slot<double>& slot, u32 at) {
    asm volatile("ld.relaxed.cta.shared.v2.u64 {%0, %1}, [%2];" : "=l"(slot.low), "=l"(slot.high) : "r"(at) : "memory");
}
__device__ __forceinline__ void put_near(u32 at, u32 tag, float v) {
    u64 word = (u64)tag << 32 | (u64)__float_as_uint(v);
    asm volatile("st.relaxed.cta.shared.u64 [%0], %1;" ::"r"(at), "l"(word) : "memory");
}
__device__ __forceinline__ void put_near(u32 at, u32 tag, double v) {
    u64 bits = (u64)__double_as_longlong(v), mark = (u64)tag << 32;
    u64 low = mark | (bits & 0xffffffffull), high = mark | bits >> 32;
    asm volatile("st.relaxed.cta.shared.v2.u64 [%0], {%1, %2};" ::"r"(at), "l"(low), "l"(high) : "memory");
}
// Whether a slot of the ring, or half of it, has gone on to a later lap.
__device__ __forceinline__ bool passed(const Slot<float>& slot, u32 lap) { return (u32)(slot.word >> 32) > lap; }
__device__ __forceinline__ bool passed(const Slot<double>& slot, u32 lap) {
    return (u32)(slot.low >> 32) > lap || (u32)(slot.high >> 32) > lap;
}

// What is known of x: in slots of global memory, and, for a thread block that solves a segment alone, in its ring.
template <class T, bool RING>
struct Known {
    u64* slots;
    u32 tag;
    u32 ring;   // address in shared memory
    u32 base;   // first position of the segment
    u32 shift;  // 2^shift slots

    static constexpr u32 BYTES = 8 * Slot<T>::WORDS;

    __device__ __forceinline__ u32 near_at(u32 j) const { return ring + ((j - base) & ((1u << shift) - 1)) * BYTES; }
    // Laps begin with 1: a ring that holds nothing yet holds zeros.
    __device__ __forceinline__ u32 lap(u32 j) const { return ((j - base) >> shift) + 1; }
    // Whether position j is looked for in the ring by a row at position p.
    __device__ __forceinline__ bool near(u32 j, u32 p) const { return RING && j >= base && (p - j) >> shift == 0; }

    __device__ __forceinline__ void load(Slot<T>& slot, u32 j, bool near) const {
        if (RING && near) load_near(slot, near_at(j));
        else slot.load(slots + (u64)j * Slot<T>::WORDS);
    }
    __device__ __forceinline__ bool holds(const Slot<T>& slot, u32 j, bool near) const {
        return slot.holds(RING && near ? lap(j) : tag);
    }
    // Until x_j is there. What the ring has passed over is read from global memory, to which it is written as well.
    __device__ __forceinline__ void await(Slot<T>& slot, u32 j, bool near) const {
        u32 tries = 0;
        while (!holds(slot, j, near)) {
            if (RING && near && passed(slot, lap(j))) near = false;
            if (!(RING && near) && ++tries > 4) __nanosleep(40);
            load(slot, j, near);
        }
    }
    __device__ __forceinline__ void put(u32 p, T v) const {
        if (RING) put_near(near_at(p), lap(p), v);
        Slot<T>::put(slots + (u64)p * Slot<T>::WORDS, tag, v);
    }
};

template <class T>
struct Slices {
    const u32* order;
    const uint4* slices;
    const u32* cols;
    const T* values;
    const T* inv;

    __device__ __forceinline__ uint4 slice(u32 c, u32 end) const { return c < end ? __ldg(slices + c) : make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ u32 row(const uint4& slice, u32 lane) const {
        return lane < slice.z ? __ldg(order + slice.y + lane) : 0;
    }
    // Does not ask whether there is an entry in the place: places without one hold 0, and loads need not wait for their columns.
    __device__ __forceinline__ T value(u32 place) const { return __ldg(values + place); }
};

// The sums of up to 32 rows, one a lane, each of which waits for itself.
template <class T, class Known>
__device__ __forceinline__ T subtract_each(const Slices<T>& m, const Known& known, const uint4& slice, u32 lane, T s) {
    u32 p = slice.y + lane, rows = slice.z, steps = slice.w;
    u32 place = slice.x + lane;
    for (u32 done = 0; done < steps; done += HELD, place += HELD * rows) {
        u32 col[HELD];
        T t[HELD];
        Slot<T> slot[HELD];
        u32 near = 0;
#pragma unroll
        for (int i = 0; i < HELD; i++) col[i] = done + i < steps ? __ldg(m.cols + place + i * rows) : PADDING;
#pragma unroll
        for (int i = 0; i < HELD; i++) t[i] = done + i < steps ? m.value(place + i * rows) : T(0);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (col[i] == PADDING) continue;
            bool close = known.near(col[i], p);
            near |= (u32)close << i;
            known.load(slot[i], col[i], close);
        }
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (col[i] == PADDING) continue;
            bool close = near >> i & 1;
            if (!known.holds(slot[i], col[i], close)) {
                known.await(slot[i], col[i], close);
                // While this one was waited for, others may have come: all of them are asked for at once.
#pragma unroll
                for (int k = i + 1; k < HELD; k++)
                    if (col[k] != PADDING && !known.holds(slot[k], col[k], near >> k & 1)) known.load(slot[k], col[k], near >> k & 1);
            }
            s = fma_rn(-t[i], slot[i].value(), s);
        }
    }
    return s;
}

// Entries of a row from one of them on.
template <class T>
struct Held {
    u32 col[HELD];
    T t[HELD];

    __device__ __forceinline__ void bring(const Slices<T>& m, const uint4& slice, u32 done, u32 lane) {
        u32 place = slice.x + lane + done * slice.z;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            bool there = lane < slice.z && done + i < slice.w;
            col[i] = there ? __ldg(m.cols + place + i * slice.z) : PADDING;
            t[i] = there ? m.value(place + i * slice.z) : T(0);
        }
    }
};

// The same of a whole warp whose lanes wait together: each round asks for all that any of them lacks, so that entries which come one after the
// other, in this lane and that, are one wait and not as many.
template <class T, class Known>
__device__ __forceinline__ T subtract_together(const Slices<T>& m, const Known& known, const uint4& slice, u32 lane, T s) {
    Held<T> held, ahead;
    held.bring(m, slice, 0, lane);
    for (u32 done = 0; done < slice.w; done += HELD) {
        ahead.bring(m, slice, done + HELD, lane);
        Slot<T> slot[HELD];
        u32 missing = 0;
#pragma unroll
        for (int i = 0; i < HELD; i++) missing |= (u32)(held.col[i] != PADDING) << i;
        do {
#pragma unroll
            for (int i = 0; i < HELD; i++)
                if (missing >> i & 1) known.load(slot[i], held.col[i], false);
#pragma unroll
            for (int i = 0; i < HELD; i++)
                if (missing >> i & 1 && known.holds(slot[i], held.col[i], false)) missing &= ~(1u << i);
        } while (__any_sync(ALL, missing));
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (held.col[i] != PADDING) s = fma_rn(-held.t[i], slot[i].value(), s);
        held = ahead;
    }
    return s;
}

// The sum of one long row, in every lane: 32 entries are brought in side by side, and added by one chain.
template <class T, class Known>
__device__ __forceinline__ T subtract_long(const Slices<T>& m, const Known& known, const uint4& slice, u32 lane, T* stage, T s) {
    u32 p = slice.y, steps = slice.w;
    u32 place = slice.x + lane;
    u32 col = __ldg(m.cols + place);
    T t = m.value(place);
    for (u32 done = 0; done < steps; done += WARP) {
        bool mine = done + lane < steps;
        T x = T(0);
        if (mine) {
            Slot<T> slot;
            bool close = known.near(col, p);
            known.load(slot, col, close);
            known.await(slot, col, close);
            x = slot.value();
        }
        stage[lane] = -t;
        stage[WARP + lane] = x;
        place += WARP;
        if (done + WARP + lane < steps) {
            col = __ldg(m.cols + place);
            t = m.value(place);
        }
        __syncwarp();
        if (steps - done >= WARP) {
#pragma unroll
            for (int i = 0; i < WARP; i++) s = fma_rn(stage[i], stage[WARP + i], s);
        } else {
            for (u32 i = 0; i < steps - done; i++) s = fma_rn(stage[i], stage[WARP + i], s);
        }
        __syncwarp();
    }
    return s;
}

// One slice. A whole warp; lane l has the number of the slice's l-th row.
template <class T, bool RING>
__device__ __forceinline__ void solve_slice(const Slices<T>& m, const Known<T, RING>& known, const uint4& slice, u32 row, u32 lane, T* stage, const T* b, T* x) {
    u32 p = slice.y + lane;
    bool mine = lane < slice.z;
    // Read early: it waits for nothing.
    T s = mine ? b[row] : T(0);
    T inv = m.inv && mine ? __ldg(m.inv + p) : T(0);
    if (slice.w > LONG) {
        s = subtract_long(m, known, slice, lane, stage, __shfl_sync(ALL, s, 0));
    } else if (!RING) {
        s = subtract_together(m, known, slice, lane, s);
    } else if (mine) {
        s = subtract_each(m, known, slice, lane, s);
    }
    if (mine) {
        if (m.inv) s = s * inv;
        known.put(p, s);
        x[row] = s;
    }
    __syncwarp();
}

template <class T>
__device__ __forceinline__ void solve_by_block(const Slices<T>& m, u32 first, u32 end, u32 base, u32 shift, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) {
    extern __shared__ __align__(16) u64 on_chip[];
    if (!open(gate)) return;
    u32 words = Slot<T>::WORDS << shift;
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) on_chip[i] = 0;
    u32 tag = progress->epoch + 1;
    __syncthreads();
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    T* stage = (T*)(on_chip + words) + warp * 2 * WARP;
    Known<T, true> known{slots, tag, (u32)__cvta_generic_to_shared(on_chip), base, shift};
    uint4 slice = m.slice(first + warp, end), next = m.slice(first + warp + warps, end);
    u32 row = m.row(slice, lane);
    for (u32 c = first + warp; c < end; c += warps) {
        // Two slices ahead of their use: nothing of them depends on x.
        uint4 after = m.slice(c + 2 * warps, end);
        u32 next_row = m.row(next, lane);
        solve_slice(m, known, slice, row, lane, stage, b, x);
        slice = next;
        next = after;
        row = next_row;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) progress->epoch = tag;
}

template <class T>
__device__ __forceinline__ void solve_by_grid(const Slices<T>& m, u32 first, u32 end, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) {
    __shared__ T stages[GRID_CREW / WARP][2 * WARP];
    if (!open(gate)) return;
    u32 tag = *(volatile const u32*)&progress->epoch + 1;
    u32 lane = threadIdx.x % WARP;
    T* stage = stages[threadIdx.x / WARP];
    Known<T, false> known{slots, tag, 0, 0, 0};
    u32 count = end - first;
    u32 drawn = 0, next = 0;
    if (lane == 0) drawn = atomicAdd(&progress->ticket, 1u);
    drawn = __shfl_sync(ALL, drawn, 0);
    while (drawn < count) {
        if (lane == 0) next = atomicAdd(&progress->ticket, 1u);
        uint4 slice = m.slice(first + drawn, end);
        solve_slice(m, known, slice, m.row(slice, lane), lane, stage, b, x);
        drawn = __shfl_sync(ALL, next, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0 && (__threadfence(), last_ticket(&progress->arrived, gridDim.x))) {
        progress->ticket = 0;
        if (last) progress->epoch = tag;
    }
}

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(BLOCK_CREW, 1) sptrsv_block_levelset_##t(const u32* order, const uint4* slices, const u32* cols, const T* values, const T* inv, u32 first, u32 end, u32 base, u32 shift, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) { \
        solve_by_block(Slices<T>{order, slices, cols, values, inv}, first, end, base, shift, b, x, slots, progress, last, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_CREW, 2) sptrsv_grid_levelset_##t(const u32* order, const uint4* slices, const u32* cols, const T* values, const T* inv, u32 first, u32 end, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) { \
        solve_by_grid(Slices<T>{order, slices, cols, values, inv}, first, end, b, x, slots, progress, last, gate); \
    }
FOR_EACH_TYPE(ENTRIES)

// What the kernels of level sets share: slices and who draws them, what is known of x, the sums of a slice whose lanes wait together, and the
// sum of a long row.
//
// Layout and bytes: kernels/levelset.cu.
// Order: stored, towards the diagonal; one fma per entry.
#pragma once
#include "exchange.cuh"

// Entries of a row that a lane has in flight.
#define HELD 8
// Entries of the longest row that one lane sums.
#define LONG 64
#define GRID_CREW 256

struct Progress {
    u32 epoch;    // of the last solve
    u32 ticket;   // slices drawn by the current launch; 0 between launches
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
// Whether a slot of the ring, or half of it, has advanced to a later lap.
__device__ __forceinline__ bool passed(const Slot<float>& slot, u32 lap) { return (u32)(slot.word >> 32) > lap; }
__device__ __forceinline__ bool passed(const Slot<double>& slot, u32 lap) {
    return (u32)(slot.low >> 32) > lap || (u32)(slot.high >> 32) > lap;
}

// What is known of x: in slots of global memory, and also in its ring if one thread block solves a segment by itself.
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
    // Whether a row at position p looks for position j in the ring.
    __device__ __forceinline__ bool near(u32 j, u32 p) const { return RING && j >= base && (p - j) >> shift == 0; }

    __device__ __forceinline__ void load(Slot<T>& slot, u32 j, bool near) const {
        if (RING && near) load_near(slot, near_at(j));
        else slot.load(slots + (u64)j * Slot<T>::WORDS);
    }
    __device__ __forceinline__ bool holds(const Slot<T>& slot, u32 j, bool near) const {
        return slot.holds(RING && near ? lap(j) : tag);
    }
    // Waits until x_j is there. What the ring has overwritten is read from global memory, to which it is written as well.
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

    // Of a slice: its rows, and those of its longest chain less one.
    __device__ __forceinline__ static u32 rows(const uint4& slice) { return slice.z & 0xff; }
    __device__ __forceinline__ static u32 links(const uint4& slice) { return slice.z >> 16; }
    __device__ __forceinline__ uint4 slice(u32 c, u32 end) const { return c < end ? __ldg(slices + c) : make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ u32 row(const uint4& slice, u32 lane) const {
        return lane < rows(slice) ? __ldg(order + slice.y + lane) : 0;
    }
    // Does not check whether the place has an entry: places without one hold 0, and loads need not wait for their columns.
    __device__ __forceinline__ T value(u32 place) const { return __ldg(values + place); }
};

// Entries of a row, from a given one on.
template <class T>
struct Held {
    u32 col[HELD];
    T t[HELD];

    __device__ __forceinline__ void bring(const Slices<T>& m, const uint4& slice, u32 done, u32 lane) {
        u32 rows = m.rows(slice), place = slice.x + lane + done * rows;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            bool there = lane < rows && done + i < slice.w;
            col[i] = there ? __ldg(m.cols + place + i * rows) : PADDING;
            t[i] = there ? m.value(place + i * rows) : T(0);
        }
    }
};

// The sums of a slice of up to 32 rows, one per lane. Its lanes wait together: each round loads all that any of them lacks, so that entries which
// arrive one after the other, in different lanes, cost one wait and not many.
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

// The sum of one long row, in every lane: 32 entries are loaded side by side, and added in one chain.
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

// The end of a slice: each lane with `mine` has one of its rows, the row at position p, whose sum is s.
template <class T, class Known>
__device__ __forceinline__ void solved(const Slices<T>& m, const Known& known, bool mine, u32 p, u32 row, T inv, T s, T* x) {
    if (mine) {
        if (m.inv) s = s * inv;
        known.put(p, s);
        x[row] = s;
    }
    __syncwarp();
}

// Slices first .. end, by all warps of the grid. Each draws its own by ticket, and the next while it solves one by solve(known, slice, lane,
// stage), where `stage` is the warp's own STAGE numbers of shared memory.
template <int STAGE, class T, class Solve>
__device__ __forceinline__ void draw_slices(const Slices<T>& m, u32 first, u32 end, u64* slots, Progress* progress, u32 last, const Monitor* gate, Solve solve) {
    __shared__ T stages[GRID_CREW / WARP][STAGE];
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
        solve(known, m.slice(first + drawn, end), lane, stage);
        drawn = __shfl_sync(ALL, next, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0 && (__threadfence(), last_ticket(&progress->arrived, gridDim.x))) {
        progress->ticket = 0;
        if (last) progress->epoch = tag;
    }
}

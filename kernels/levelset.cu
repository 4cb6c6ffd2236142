// Level sets: triangular solve over slices of rows in an order of execution.
//
// Layout: as on the host (crates/sptrsv/src/levelset.rs). slices[c] = (first place, first position, rows, entries of a row); entry k of
// its l-th row at first + k rows + l, in the order of its sum; cols are positions, PADDING if there is no entry; values lie in the same
// places and are 0 without an entry; order[p] is the row at position p, inv[p] its 1/d, null for a unit diagonal.
// x is kept in slots by position, each with the number of its solve (the epoch), so that data is its own flag: nothing is cleared
// and no fence is needed. The launch with `last` advances `Progress`, after all of its thread blocks have read it.
// Grid: sptrsv_block: one thread block of up to 512, warp w takes slices w, w + warps, ...; x of the last 2^shift positions of the
// segment is also kept on chip, in slots that carry the lap around the ring. 2^shift slots and 64 numbers per warp of shared memory.
// For levels of one row each: lanes wait separately, so that a lane that has its operands continues at once.
// sptrsv_grid: any number of thread blocks of 256; a warp draws its slices by ticket, the next while it solves one. Its lanes wait
// together, with the next entries in flight.
// In both kernels a slice waits only for earlier slices, which are solved, or held by a warp that runs.
// Order: stored, towards the diagonal; one fma per entry.
// Bytes: places and slices once, b and x once; per row a slot is written, and read by the rows that need it.
#include "levelset.cuh"

#define BLOCK_CREW 512

// The sums of up to 32 rows, one per lane. Each lane waits for its own operands.
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
                // During this wait others may have arrived, so all of them are loaded again at once.
#pragma unroll
                for (int k = i + 1; k < HELD; k++)
                    if (col[k] != PADDING && !known.holds(slot[k], col[k], near >> k & 1)) known.load(slot[k], col[k], near >> k & 1);
            }
            s = fma_rn(-t[i], slot[i].value(), s);
        }
    }
    return s;
}

// Solves one slice. A whole warp calls this; lane l has the number of the slice's l-th row.
template <class T, bool RING>
__device__ __forceinline__ void solve_slice(const Slices<T>& m, const Known<T, RING>& known, const uint4& slice, u32 row, u32 lane, T* stage, const T* b, T* x) {
    u32 p = slice.y + lane;
    bool mine = lane < slice.z;
    // Read early, because it depends on nothing.
    T s = mine ? b[row] : T(0);
    T inv = m.inv && mine ? __ldg(m.inv + p) : T(0);
    if (slice.w > LONG) {
        s = subtract_long(m, known, slice, lane, stage, __shfl_sync(ALL, s, 0));
    } else if (!RING) {
        s = subtract_together(m, known, slice, lane, s);
    } else if (mine) {
        s = subtract_each(m, known, slice, lane, s);
    }
    solved(m, known, mine, p, row, inv, s, x);
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
        // Loaded two slices before their use, because they do not depend on x.
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
    draw_slices<2 * WARP>(m, first, end, slots, progress, last, gate, [&](const Known<T, false>& known, const uint4& slice, u32 lane, T* stage) {
        solve_slice(m, known, slice, m.row(slice, lane), lane, stage, b, x);
    });
}

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(BLOCK_CREW, 1) sptrsv_block_levelset_##t(const u32* order, const uint4* slices, const u32* cols, const T* values, const T* inv, u32 first, u32 end, u32 base, u32 shift, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) { \
        solve_by_block(Slices<T>{order, slices, cols, values, inv}, first, end, base, shift, b, x, slots, progress, last, gate); \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_CREW, 2) sptrsv_grid_levelset_##t(const u32* order, const uint4* slices, const u32* cols, const T* values, const T* inv, u32 first, u32 end, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) { \
        solve_by_grid(Slices<T>{order, slices, cols, values, inv}, first, end, b, x, slots, progress, last, gate); \
    }
FOR_EACH_TYPE(ENTRIES)

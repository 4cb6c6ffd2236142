// Chains: triangular solve over slices of rows, some of which need rows of their own slice.
//
// Layout: as in kernels/levelset.cu, except for slices[c].z, rows with the rows of the longest chain less one in the upper half, and slices[c].w,
// entries of rows of other chains; those of the row's own chain lie behind them. links[p]: bit t for an entry of the t-th row of its chain, HEAD
// for the chain's first row.
// Grid: any number of thread blocks of 256, whose warps draw slices by ticket. Up to 16 rows have several lanes each, which fetch side by side
// what the row needs of other slices, and leave it in shared memory, 512 numbers per warp. The row's first lane sums it there. Then the rows
// of a chain pass x on by shuffles, one after the other.
// A slice waits only for earlier slices, which are solved, or held by a warp that runs.
// Order: stored, towards the diagonal; one fma per entry.
// Bytes: as in kernels/levelset.cu, and 4 per row of a chain.
#include "levelset.cuh"

// The link of a row that begins a chain.
#define HEAD 0x80000000u
// Rows of a slice that have several lanes each.
#define FEW 16

// Values of a row's entries in the rows of its own chain, from a given row on; 0 if there is no entry.
template <class T>
struct Near {
    T t[HELD];

    __device__ __forceinline__ void bring(const Slices<T>& m, const uint4& slice, u32 from, u32 link, u32 lane) {
        if (from >= WARP) return;
        u32 rows = m.rows(slice), place = slice.x + lane + (slice.w + __popc(link & ((1u << from) - 1))) * rows;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            bool there = link >> (from + i) & 1;
            t[i] = there ? m.value(place) : T(0);
            place += there ? rows : 0;
        }
    }
};

// The sums of a slice of few rows, in the first lane of each row. All lanes of a row load its entries side by side.
template <class T, class Known>
__device__ __forceinline__ T subtract_shared(const Slices<T>& m, const Known& known, const uint4& slice, u32 lane, T* stage, T s) {
    u32 rows = m.rows(slice), log = rows > 1 ? WARP - __clz(rows - 1) : 0, side = WARP >> log;
    u32 l = lane & ((1u << log) - 1), sub = lane >> log;
    for (u32 done = 0; done < slice.w; done += side * HELD) {
        u32 col[HELD];
        T t[HELD];
        u32 first = done + sub, place = slice.x + l + first * rows;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            bool there = l < rows && first + i * side < slice.w;
            col[i] = there ? __ldg(m.cols + place + i * side * rows) : PADDING;
            t[i] = there ? m.value(place + i * side * rows) : T(0);
        }
        Slot<T> slot[HELD];
        u32 missing = 0;
#pragma unroll
        for (int i = 0; i < HELD; i++) missing |= (u32)(col[i] != PADDING) << i;
        do {
#pragma unroll
            for (int i = 0; i < HELD; i++)
                if (missing >> i & 1) known.load(slot[i], col[i], false);
#pragma unroll
            for (int i = 0; i < HELD; i++)
                if (missing >> i & 1 && known.holds(slot[i], col[i], false)) missing &= ~(1u << i);
        } while (__any_sync(ALL, missing));
        // Entry first + i side of the l-th row lies at i WARP + lane.
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            stage[i * WARP + lane] = -t[i];
            stage[(HELD + i) * WARP + lane] = col[i] != PADDING ? slot[i].value() : T(0);
        }
        __syncwarp();
        u32 count = min(slice.w - done, side * HELD);
        // A place without an entry is -0 times 0, which changes no sum.
#pragma unroll 8
        for (u32 k = 0; k < count; k++) s = fma_rn(stage[(k << log) + l], stage[HELD * WARP + (k << log) + l], s);
        __syncwarp();
    }
    return s;
}

// What rows need of their own chain: the rows become known one after the other and are passed to the rest. A whole warp calls this; `near`
// and `then` hold the first values.
template <bool UNIT, class T>
__device__ __forceinline__ T subtract_near(const Slices<T>& m, const uint4& slice, u32 lane, bool head, u32 link, Near<T> near, Near<T> then, T inv, T s) {
    u32 first = WARP - 1 - __clz(__ballot_sync(ALL, head) & ((2u << lane) - 1));
    u32 links = m.links(slice);
    for (u32 done = 0; done < links; done += HELD) {
        Near<T> ahead;
        ahead.bring(m, slice, done + 2 * HELD, link, lane);
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            if (done + i >= links) break;
            T x = __shfl_sync(ALL, UNIT ? s : s * inv, first + done + i);
            if (link >> (done + i) & 1) s = fma_rn(-near.t[i], x, s);
        }
        near = then;
        then = ahead;
    }
    return s;
}

// Solves one slice. A whole warp calls this.
template <class T>
__device__ __forceinline__ void solve_chains(const Slices<T>& m, const u32* links, const Known<T, false>& known, const uint4& slice, u32 lane, T* stage, const T* b, T* x) {
    u32 p = slice.y + lane;
    bool mine = lane < m.rows(slice), chained = m.links(slice);
    u32 row = m.row(slice, lane);
    // Read early, because it depends on nothing.
    T s = mine ? b[row] : T(0);
    T inv = m.inv && mine ? __ldg(m.inv + p) : T(0);
    u32 link = chained && mine ? __ldg(links + p) : HEAD;
    bool head = link == HEAD;
    if (head) link = 0;
    Near<T> near, then;
    if (chained) {
        near.bring(m, slice, 0, link, lane);
        then.bring(m, slice, HELD, link, lane);
    }
    if (slice.w > LONG) {
        s = subtract_long(m, known, slice, lane, stage, __shfl_sync(ALL, s, 0));
    } else if (m.rows(slice) <= FEW) {
        s = subtract_shared(m, known, slice, lane, stage, s);
    } else {
        s = subtract_together(m, known, slice, lane, s);
    }
    if (chained) {
        s = m.inv ? subtract_near<false>(m, slice, lane, head, link, near, then, inv, s)
                  : subtract_near<true>(m, slice, lane, head, link, near, then, inv, s);
    }
    solved(m, known, mine, p, row, inv, s, x);
}

template <class T>
__device__ __forceinline__ void solve_by_chains(const Slices<T>& m, const u32* links, u32 first, u32 end, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) {
    draw_slices<2 * HELD * WARP>(m, first, end, slots, progress, last, gate, [&](const Known<T, false>& known, const uint4& slice, u32 lane, T* stage) {
        solve_chains(m, links, known, slice, lane, stage, b, x);
    });
}

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_CREW, 1) sptrsv_chains_##t(const u32* order, const uint4* slices, const u32* cols, const T* values, const T* inv, const u32* links, u32 first, u32 end, const T* b, T* x, u64* slots, Progress* progress, u32 last, const Monitor* gate) { \
        solve_by_chains(Slices<T>{order, slices, cols, values, inv}, links, first, end, b, x, slots, progress, last, gate); \
    }
FOR_EACH_TYPE(ENTRIES)

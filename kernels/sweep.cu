// The sweep: exact triangular solve on a grid, one tile of planes per thread block, one line of points per thread.
//
// Variants: sm_90
//
// Layout: values plane by plane. A plane has a block of `width` x `lanes` values for each step x + sigma y, with a row of `lanes`
// values for each term, the reciprocal of the diagonal last. Line y is in lane y mod lanes. sigma lanes >= nx + reach + UNROLL - 1 or
// lanes >= ny, so no two points meet; places without a point or a neighbour hold zeros. `reach` is the largest |dx| of the stencil.
// Schedule: all lines of a tile advance together, one point per step: line y of plane p of a tile is at
// x = step - (sigma y + tau (p + behind)). Operands of other lines are in a window in shared memory, a row for each of the last `slots`
// steps; UNROLL steps share a barrier, so that every operand of another line is at least UNROLL steps old. A lane's next line begins
// reach + UNROLL - 1 steps after its last point at the earliest; what is kept of neighbours outside the grid is zero.
// Between tiles: the last planes of a tile are passed on point by point, each value with the number of the solve (include/exchange.cuh):
// no fence, no flag, nothing to clear. Tickets issue tiles in the order of planes, so a tile waits only for earlier tickets.
// In strips (grids of one plane) a plane is a strip of lines, a tile is one strip, and its last lines are passed on: line y is at
// x = step - sigma (y + behind).
// The transposed system runs on the mirrored grid: term k of a point is term k of the mirrored image of its neighbour.
// Grid: any number of thread blocks of up to 384: `compute` threads that solve, then the threads that receive. Dynamic shared memory:
// slots rows of the window (threads + 1 values, up to a power of two), then `depth` batches of PLACES values for each thread that solves.
// pack: any number of thread blocks of 256, one row per thread.
// Order: stored (columns ascending in the lower triangle that the grid represents, the reciprocal last).
// Bytes: width values, b, x per row; 2 (f32: 1) words of 8 bytes each way for every row of the planes passed on.
#include "exchange.cuh"
#include "stencil.cuh"

#define SWEEP_THREADS 384
// Steps between two barriers.
#define UNROLL 2
// Batches that a receiving thread has in flight.
#define TAKEN 2
// A grid, its tiles and its schedule. Twin: `SweepArg` of crates/backend-cuda/src/sweep/geometry.rs.
struct Sweep {
    u32 nx, ny, nz;   // points of a line, lines of a plane (strip), planes (strips)
    u32 lines;        // of the grid: ny nz, except that a last strip may be shorter
    u32 sigma, tau;
    u32 lanes;
    u32 planes;       // of a tile
    u32 behind;       // planes before a tile (lines before a strip) that it needs
    u32 strips;       // whether in strips
    u32 tiles;
    u32 steps;        // of a tile, a multiple of UNROLL
    u32 slots;        // a power of two
    u32 compute;      // threads that solve, in whole warps
    u32 width;        // terms and, unless unit, the reciprocal
    u32 unit;
    u32 mirrored;     // row r of the grid is row n - 1 - r
    u32 depth;        // batches in flight, at most those of the entry
    u64 plane_values; // values of a plane
};

__device__ __forceinline__ void meet() { asm volatile("bar.sync 0;" ::: "memory"); }

// Hides the origin of a value from the compiler, so that it stays in a register.
__device__ __forceinline__ u32 kept(u32 v) {
    asm volatile("" : "+r"(v));
    return v;
}

// The remainder of a number of either sign, never negative.
__device__ __forceinline__ int modulo(int a, int m) {
    a %= m;
    return a < 0 ? a + m : a;
}

// Copies to shared memory without waiting, or writes zero if not `wanted`; groups of copies end in order.
#if __CUDA_ARCH__ >= 800
constexpr bool ASYNC = true;
template <class T>
__device__ __forceinline__ void copy(char* room, u32 to, const char* from, bool wanted) {
    u32 at = (u32)__cvta_generic_to_shared(room) + to, bytes = wanted ? (u32)sizeof(T) : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"((int)sizeof(T)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N groups are in flight.
template <int N>
__device__ __forceinline__ void await_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else
constexpr bool ASYNC = false;
template <class T>
__device__ __forceinline__ void copy(char* room, u32 to, const char* from, bool wanted) {
    *(T*)(room + to) = wanted ? *(const T*)from : T(0);
}
__device__ __forceinline__ void end_group() {}
template <int N>
__device__ __forceinline__ void await_groups() {}
#endif

constexpr int NOWHERE = -(1 << 30);

// A tile of the grid that a thread block works on.
template <class T>
struct SweepTile {
    const Sweep& g;
    char* room;    // the window, then batches in flight
    u32 pitch;     // bytes of a row of the window, a power of two
    u32 tag;

    __device__ __forceinline__ T& cell(u32 at) const { return *(T*)(room + at); }

    // The words of the value at x = 0 of line y of the plane `back` planes before the end of a tile (of the line
    // `back` lines before the end of a strip).
    __device__ __forceinline__ u64* handed(u64* exchange, u32 tile, u32 back, int y) const {
        u64 kept = g.strips ? g.behind : (g.behind < g.planes ? g.behind : g.planes);
        u64 at = tile * kept + back;
        u64 place = g.strips ? at * g.nx : (at * (g.nx + g.sigma * (g.ny - 1)) + g.sigma * y) * g.lanes + y % g.lanes;
        return exchange + place * Slot<T>::WORDS;
    }
    // Words from a value to the next one of its line.
    __device__ __forceinline__ u32 handed_step() const { return (g.strips ? 1 : g.lanes) * Slot<T>::WORDS; }

    // Bytes into a row of the window at which lane `lane` of plane p of the tile finds the operand on the line off by (dy, dz), which is in
    // the grid.
    __device__ __forceinline__ u32 column(int p, int lane, int dy, int dz) const {
        int l = modulo(lane + dy, (int)g.lanes), pp = p + dz;
        return (pp >= 0 ? pp * g.lanes + l : g.compute + (-1 - pp) * g.lanes + l) * (u32)sizeof(T);
    }

    // The place, among the values of the first term, of the point whose mirrored image is x of the line off by (dy, dz) from line y of
    // plane z. May lie outside if that line does.
    __device__ __forceinline__ i64 mirrored_place(u32 z, int y, int x, int dy, int dz) const {
        int plane = (int)g.nz - 1 - (int)z - dz, line = (int)g.ny - 1 - y - dy;
        if (g.strips) {
            int at = (int)g.lines - 1 - (int)(z * g.ny) - y - dy;
            plane = at / (int)g.ny;
            line = at % (int)g.ny;
        }
        i64 step = (i64)((int)g.nx - 1 - x) + (i64)g.sigma * line;
        return plane * (i64)g.plane_values + step * (i64)(g.width * g.lanes) + modulo(line, (int)g.lanes);
    }

    // Receives what the previous tile passes on.
    __device__ __forceinline__ void take(u32 tile, const u64* exchange) const {
        u32 i = threadIdx.x - g.compute;
        u32 lanes = g.strips ? 1 : g.lanes;
        int r = i / lanes, lane = i % lanes, nx = (int)g.nx, period = (int)(g.sigma * g.lanes);
        bool here = r < (int)g.behind && (g.strips ? tile > 0 : (int)(tile * g.planes) - 1 - r >= 0);
        int lines = here ? (g.strips ? 1 : (int)g.ny) : 0;
        int lead = ((int)g.behind - 1 - r) * (int)(g.strips ? g.sigma : g.tau);
        u32 source = g.strips ? tile - 1 : (tile * g.planes - 1 - r) / g.planes;
        u32 back = g.strips ? r : g.planes - 1 - (tile * g.planes - 1 - r) % g.planes;
        u32 word_step = handed_step();
        // Batches in flight: where they are, and what has arrived.
        int x = -(lead + (int)g.sigma * lane), y = lane;
        const u64* from = here ? handed((u64*)exchange, source, back, y) + (i64)x * word_step : exchange;
        Slot<T> ring[TAKEN][UNROLL];
        const u64* places[TAKEN];
        u32 wanted[TAKEN];  // a bit per step
        auto load = [&](auto k) {
            each<UNROLL>([&](auto u) {
                if (wanted[k] >> u & 1) ring[k][u].load(places[k] + u * word_step);
            });
        };
        auto fetch = [&](auto k) {
            places[k] = from;
            wanted[k] = 0;
            each<UNROLL>([&](auto u) {
                if ((u32)(x + u) < (u32)nx && y < lines) wanted[k] |= 1u << u;
            });
            load(k);
            from += UNROLL * word_step;
            x += UNROLL;
            if (x >= nx) {
                x -= period;
                y += (int)lanes;
            }
        };
        each<TAKEN - 1>([&](auto k) { fetch(k); });
        int steps = (int)g.steps;
        u32 mask = g.slots * pitch - 1, own = threadIdx.x * (u32)sizeof(T);
        for (int step = 0; step < steps;) {
            each<TAKEN>([&](auto i) {
                if (step < steps) {
                    fetch(Constant<(i + TAKEN - 1) % TAKEN>{});
                    auto complete = [&] {
                        bool all = true;
                        each<UNROLL>([&](auto u) { all = all && (!(wanted[i] >> u & 1) || ring[i][u].holds(tag)); });
                        return all;
                    };
                    // After a miss, everything in flight is loaded again, so that one wait serves all.
                    while (!complete()) each<TAKEN>([&](auto k) { load(k); });
                    each<UNROLL>([&](auto u) { cell((u32)(step + u) * pitch & mask | own) = ring[i][u].value(); });
                    step += UNROLL;
                    __syncwarp();
                    meet();
                }
            });
        }
    }

    // Solves with a stencil that the compiler knows.
    template <int POINTS, int DEPTH, bool TRANSPOSED>
    __device__ __forceinline__ void solve(u32 tile, const T* values, const T* b, T* x, u64* exchange) const {
        using S = Stencil<POINTS>;
        using L = Lines<POINTS>;
        constexpr int TERMS = L::terms, COUNT = L::count;
        // What a thread needs for a step: the row's terms, its reciprocal, its b. An odd number of places per thread avoids bank conflicts.
        constexpr int PARTS = TERMS + 2, PLACES = (UNROLL * PARTS) | 1;
        // Steps whose parts are loaded to registers before they are due: all, unless registers are short.
        constexpr int EARLY = !TRANSPOSED || TERMS <= 9 || sizeof(T) == 4 ? UNROLL : ASYNC && TERMS <= 13 ? 1 : 0;
        const bool strips = L::is_flat && g.strips;
        int p = threadIdx.x / g.lanes, lane = threadIdx.x % g.lanes;
        u32 z = tile * g.planes + p;
        bool here = p < (int)g.planes && z < g.nz;
        int lines = here ? (int)(g.lines - z * g.ny < g.ny ? g.lines - z * g.ny : g.ny) : 0;
        u64 n = (u64)g.nx * g.lines;
        int lead = (int)(strips ? g.sigma * g.behind : g.tau * (g.behind + p));
        int period = (int)kept(g.sigma * g.lanes), nx = (int)kept(g.nx), lanes = (int)kept(g.lanes);
        // Both cursors begin at step 0, before the lane's first line; rows jump from a line to the lane's next. A lane without a line
        // is nowhere.
        int first_x = -(lead + (int)g.sigma * lane);
        i64 along = g.mirrored ? -1 : 1;
        i64 row = (i64)((u64)z * g.ny + lane) * nx + first_x;
        if (g.mirrored) row = (i64)n - 1 - row;
        i64 jump = ((i64)lanes * nx - period) * along;

        // What is in flight, one batch after the other.
        int next_x = lane < lines ? first_x : NOWHERE, next_y = lane;
        const T* next_b = b + row;
        u32 width = kept(lanes * (u32)sizeof(T));
        int stride = (int)kept(g.width * lanes * (u32)sizeof(T));
        u32 batch = kept(g.compute * PLACES * (u32)sizeof(T));
        u32 begin = g.slots * pitch + threadIdx.x * PLACES * (u32)sizeof(T), end = kept(begin + g.depth * batch), place = begin;
        bool reciprocal = !g.unit;
        const char* at = (const char*)(values + (i64)z * (i64)g.plane_values + lane) - (i64)lead * stride;
        // Transposed: bytes from the values of the mirrored point to those of its neighbours' lines.
        int aside[COUNT + 1];
        auto aim = [&](int from_x) {
            i64 base = mirrored_place(z, next_y, from_x, 0, 0);
            at = (const char*)(values + base);
            each<COUNT>([&](auto c) {
                aside[c] = (int)((mirrored_place(z, next_y, from_x, L::dy(c), L::dz(c)) - base) * (i64)sizeof(T));
            });
            aside[COUNT] = 0;
        };
        if constexpr (TRANSPOSED) aim(first_x);
        auto fetch = [&](u32 place) {
            if (__any_sync(ALL, next_x + UNROLL > 0 && next_x < nx)) {
                bool reached[COUNT + 1];
                if constexpr (TRANSPOSED) {
                    each<COUNT>([&](auto c) {
                        int yy = next_y + L::dy(c) + (strips ? (int)(z * g.ny) : 0);
                        reached[c] = yy >= 0 && (strips || yy < (int)g.ny) && (int)z + L::dz(c) >= 0;
                    });
                    reached[COUNT] = true;
                }
                each<UNROLL>([&](auto u) {
                    bool inside = (u32)(next_x + u) < (u32)nx;
                    u32 to = place + u * PARTS * (u32)sizeof(T);
                    if constexpr (TRANSPOSED) {
                        each<TERMS>([&](auto k) {
                            constexpr int c = L::of(k), dx = S::dx(k);
                            bool wanted = inside && reached[c] && (dx == 0 || (u32)(next_x + u + dx) < (u32)nx);
                            copy<T>(room, to + k * (u32)sizeof(T), at + aside[c] - (u + dx) * stride + k * width, wanted);
                        });
                    } else {
                        each<TERMS>([&](auto k) { copy<T>(room, to + k * (u32)sizeof(T), at + u * stride + k * width, inside); });
                    }
                    copy<T>(room, to + TERMS * (u32)sizeof(T), at + (TRANSPOSED ? -u : +u) * stride + TERMS * width, inside && reciprocal);
                    copy<T>(room, to + (TERMS + 1) * (u32)sizeof(T), (const char*)(next_b + u * along), inside);
                });
            }
            end_group();
            at += (TRANSPOSED ? -UNROLL : UNROLL) * stride;
            next_b += UNROLL * along;
            next_x += UNROLL;
            if (next_x >= nx) {
                next_y += lanes;
                next_b += jump;
                // Mirrored strips do not begin where strips begin.
                if constexpr (TRANSPOSED && L::is_flat)
                    if (strips && next_y < lines) aim(next_x - period);
                next_x = next_y < lines ? next_x - period : NOWHERE;
            }
        };

        // The line being solved. Its neighbours' columns are the lane's for every line, except those outside the grid.
        int now_x = lane < lines ? first_x : NOWHERE, now_y = lane;
        u32 zeros = blockDim.x * (u32)sizeof(T);
        u32 columns[COUNT + 1], lane_column[COUNT + 1], delay[COUNT + 1];
        each<COUNT>([&](auto c) {
            lane_column[c] = (int)z + L::dz(c) < 0 ? zeros : column(p, lane, L::dy(c), L::dz(c));
            delay[c] = kept((u32)((int)g.sigma * L::dy(c) + (int)g.tau * L::dz(c) + L::hi(c)) * pitch);
        });
        u32 hand_step = kept(handed_step());
        u64* hand = exchange;
        bool hands = here && g.planes - 1 - p < g.behind && tile + 1 < g.tiles;
        if (hands && !strips) hand = handed(exchange, tile, g.planes - 1 - p, lane) + (i64)first_x * hand_step;
        auto begin_line = [&] {
            each<COUNT>([&](auto c) {
                int yy = now_y + L::dy(c);
                bool inside = yy >= 0 && yy < (int)g.ny;
                columns[c] = inside ? lane_column[c] : zeros;
                if (strips && yy < 0 && tile > 0) columns[c] = (g.compute + (u32)(-1 - yy)) * (u32)sizeof(T);
            });
            if (strips) {
                u32 back = (u32)(lines - 1 - now_y);
                hands = now_y < lines && back < g.behind && tile + 1 < g.tiles;
                if (hands) hand = handed(exchange, tile, back, 0) + (i64)now_x * hand_step;
            }
        };
        begin_line();
        T* out = x + row;

        u32 mask = kept(g.slots * pitch - 1), own = threadIdx.x * (u32)sizeof(T), row_bytes = kept(pitch), now = 0;
        T held[COUNT + 1][3], before = T(0), before2 = T(0), value[UNROLL][PARTS];
        each<COUNT>([&](auto c) { held[c][0] = held[c][1] = held[c][2] = T(0); });
        bool full = g.depth == DEPTH;
        auto receive = [&] {
            if (full) await_groups<DEPTH - 1>();
            else await_groups<0>();
            if (__any_sync(ALL, now_x + 2 * UNROLL > 0)) each<EARLY>([&](auto u) {
                each<PARTS>([&](auto k) { value[u][k] = cell(place + (u * PARTS + k) * (u32)sizeof(T)); });
            });
        };
#pragma unroll 1
        for (u32 first = begin; first != end; first += batch) fetch(first);
        receive();
        bool unit = g.unit;
        int steps = (int)kept(g.steps);
        for (int step = 0; step < steps; step += UNROLL) {
            if (__any_sync(ALL, now_x + UNROLL > -2 && now_x < nx + 2)) {
                T lead_value[UNROLL][COUNT + 1];
                each<UNROLL>([&](auto u) {
                    each<COUNT>([&](auto c) { lead_value[u][c] = cell((now + u * row_bytes + delay[c]) & mask | columns[c]); });
                });
                T solved[UNROLL];
                each<UNROLL>([&](auto u) {
                    if constexpr (u >= EARLY) each<PARTS>([&](auto k) { value[u][k] = cell(place + (u * PARTS + k) * (u32)sizeof(T)); });
                    T s = value[u][TERMS + 1];
                    each<COUNT>([&](auto c) {
                        constexpr int wide = L::hi(c) - L::lo(c), first = L::first(c), terms = L::first(c + 1) - first;
                        if constexpr (wide > 0) held[c][0] = held[c][1];
                        if constexpr (wide > 1) held[c][1] = held[c][2];
                        // If all dx are 0, a neighbour's value is there wherever this row is.
                        held[c][wide] = wide == 0 || (u32)(now_x + u + L::hi(c)) < (u32)nx ? lead_value[u][c] : T(0);
                        each<terms>([&](auto j) {
                            constexpr int k = first + j;
                            s = fma_rn(-value[u][k], held[c][S::dx(k) - L::lo(c)], s);
                        });
                    });
                    if constexpr (L::own == 2) s = fma_rn(-value[u][TERMS - 2], before2, s);
                    s = fma_rn(-value[u][TERMS - 1], before, s);
                    if (!unit) s *= value[u][TERMS];
                    solved[u] = s;
                    before2 = before;
                    before = (u32)(now_x + u) < (u32)nx ? s : T(0);
                });
                each<UNROLL>([&](auto u) { cell((now + u * row_bytes) & mask | own) = solved[u]; });
                each<UNROLL>([&](auto u) {
                    if (hands && (u32)(now_x + u) < (u32)nx) Slot<T>::put(hand + u * hand_step, tag, solved[u]);
                });
                each<UNROLL>([&](auto u) {
                    if ((u32)(now_x + u) < (u32)nx) out[u * along] = solved[u];
                });
            }
            fetch(place);
            place = place + batch == end ? begin : place + batch;
            receive();
            meet();
            now += UNROLL * row_bytes;
            out += UNROLL * along;
            hand += UNROLL * hand_step;
            now_x += UNROLL;
            if (now_x >= nx) {
                now_y += lanes;
                now_x = now_y < lines ? now_x - period : NOWHERE;
                out += jump;
                begin_line();
            }
        }
        await_groups<0>();
    }

    // Solves with any stencil: every operand comes from the window, every value is loaded when it is needed.
    template <bool TRANSPOSED>
    __device__ __forceinline__ void solve_any(const Terms& terms, u32 tile, const T* values, const T* b, T* x, u64* exchange) const {
        int p = threadIdx.x / g.lanes, lane = threadIdx.x % g.lanes, nx = (int)g.nx, period = (int)(g.sigma * g.lanes);
        u32 z = tile * g.planes + p;
        bool here = p < (int)g.planes && z < g.nz;
        int lines = here ? (int)(g.lines - z * g.ny < g.ny ? g.lines - z * g.ny : g.ny) : 0;
        int lead = (int)(g.strips ? g.sigma * g.behind : g.tau * (g.behind + p));
        int now_x = lane < lines ? -(lead + (int)g.sigma * lane) : NOWHERE, now_y = lane;
        i64 n = (i64)g.nx * g.lines;
        u32 mask = g.slots * pitch - 1, own = threadIdx.x * (u32)sizeof(T);
        for (u32 step = 0; step < g.steps; step += UNROLL) {
#pragma unroll 1
            for (int u = 0; u < UNROLL; u++) {
                int at_x = now_x + u;
                if (at_x < 0 || at_x >= nx) continue;
                u32 now = (step + u) * pitch;
                i64 row = ((i64)z * g.ny + now_y) * nx + at_x;
                if (g.mirrored) row = n - 1 - row;
                const T* at = TRANSPOSED ? values + mirrored_place(z, now_y, at_x, 0, 0)
                                         : values + (i64)z * (i64)g.plane_values + (at_x + (i64)g.sigma * now_y) * (g.width * g.lanes) + lane;
                T s = b[row];
#pragma unroll 1
                for (u32 k = 0; k < terms.count; k++) {
                    int dx = terms.dx[k], dy = terms.dy[k], dz = terms.dz[k], yy = now_y + dy;
                    if (at_x + dx < 0 || at_x + dx >= nx || (int)z + dz < 0 || yy >= (int)g.ny) continue;
                    u32 from = column(p, lane, dy, dz);
                    if (yy < 0) {
                        if (!g.strips || tile == 0) continue;
                        from = (g.compute + (u32)(-1 - yy)) * (u32)sizeof(T);
                    }
                    T operand = cell(now + (u32)((int)g.sigma * dy + (int)g.tau * dz + dx) * pitch & mask | from);
                    const T* value = TRANSPOSED ? values + mirrored_place(z, now_y, at_x + dx, dy, dz) : at;
                    s = fma_rn(-value[k * g.lanes], operand, s);
                }
                if (!g.unit) s *= at[terms.count * g.lanes];
                cell(now & mask | own) = s;
                u32 back = g.strips ? (u32)(lines - 1 - now_y) : g.planes - 1 - p;
                if (back < g.behind && tile + 1 < g.tiles)
                    Slot<T>::put(handed(exchange, tile, back, g.strips ? 0 : now_y) + (i64)at_x * handed_step(), tag, s);
                x[row] = s;
            }
            __syncwarp();
            meet();
            now_x += UNROLL;
            if (now_x >= nx) {
                now_y += (int)g.lanes;
                now_x = now_y < lines ? now_x - period : NOWHERE;
            }
        }
    }
};

// Tile by tile, by tickets. state: the ticket, thread blocks that are done, the number of the last solve. The threads that solve call
// solve(tile's object, tile).
template <class T, class F>
__device__ __forceinline__ void sweep_tiles(const Sweep& g, u64* exchange, u32* state, const Monitor* gate, const F& solve) {
    extern __shared__ __align__(128) char room[];
    __shared__ u32 drawn;
    if (!open(gate)) return;
    u32 tag = *(volatile u32*)(state + 2) + 1;
    u32 pitch = (u32)sizeof(T);
    while (pitch < (blockDim.x + 1) * (u32)sizeof(T)) pitch *= 2;
    SweepTile<T> tile{g, room, pitch, tag};
    for (u32 at = threadIdx.x; at < g.slots * pitch / sizeof(T); at += blockDim.x) ((T*)room)[at] = T(0);
    bool solves = __shfl_sync(ALL, threadIdx.x, 0) < g.compute;
    for (;;) {
        if (threadIdx.x == 0) drawn = atomicAdd(state, 1u);
        __syncthreads();
        u32 mine = drawn;
        __syncthreads();
        if (mine >= g.tiles) break;
        if (solves) solve(tile, mine);
        else tile.take(mine, exchange);
    }
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(state + 1, 1u) == gridDim.x - 1) {
            state[0] = 0;
            state[1] = 0;
            state[2] = tag;
        }
    }
}

// Moves a row's entries to the places of their terms; `values` held zeros.
template <class T>
__device__ __forceinline__ void pack(const Sweep& g, const Terms& terms, const u32* row_ptr, const u32* cols, const T* from, const T* inv_diag, T* values) {
    u64 n = (u64)g.nx * g.lines;
    int ny = (int)(g.strips ? g.lines : g.ny);
    for (u64 r = (u64)blockIdx.x * blockDim.x + threadIdx.x; r < n; r += (u64)gridDim.x * blockDim.x) {
        u64 row = g.mirrored ? n - 1 - r : r, line = r / g.nx;
        int x = (int)(r % g.nx), y = (int)(line % ny), z = (int)(line / ny);
        u64 plane = line / g.ny, in_plane = line % g.ny;
        T* to = values + plane * g.plane_values + (x + g.sigma * in_plane) * (g.width * g.lanes) + in_plane % g.lanes;
        u32 first = row_ptr[row], last = row_ptr[row + 1], k = 0;
        for (u32 i = 0; i < last - first; i++) {
            // Ascending in the lower triangle that the grid represents.
            u32 e = g.mirrored ? last - 1 - i : first + i;
            u64 c = g.mirrored ? n - 1 - cols[e] : cols[e];
            if (c == r) continue;
            for (bool found = false; !found && k < terms.count; k++) {
                int xx = x + terms.dx[k], yy = y + terms.dy[k], zz = z + terms.dz[k];
                bool inside = xx >= 0 && xx < (int)g.nx && yy >= 0 && yy < ny && zz >= 0;
                found = inside && xx + (u64)g.nx * (yy + (u64)ny * zz) == c;
                if (found) to[(u64)k * g.lanes] = from[e];
            }
        }
        if (!g.unit) to[(u64)terms.count * g.lanes] = inv_diag[row];
    }
}

#define SWEEP_OF(T, t, VERB, POINTS, DEPTH, TRANSPOSED)                                          \
    extern "C" __global__ void __launch_bounds__(SWEEP_THREADS, 1) VERB##_sweep_##t(const __grid_constant__ Sweep g, const T* values, const T* b, T* x, u64* exchange, u32* state, const Monitor* gate) { \
        sweep_tiles<T>(g, exchange, state, gate, [&](const SweepTile<T>& tile, u32 at) {         \
            tile.template solve<POINTS, DEPTH, TRANSPOSED>(at, values, b, x, exchange);          \
        });                                                                                      \
    }
#define SWEEP(T, t, POINTS, DEPTH)                                                               \
    SWEEP_OF(T, t, sptrsv##POINTS, POINTS, DEPTH, false)                                         \
    SWEEP_OF(T, t, sptrsv_transposed##POINTS, POINTS, DEPTH, true)
// Batches in flight: `DEPTHS` of crates/backend-cuda/src/sweep/geometry.rs.
#define SWEEPS(T, t)                                                                             \
    SWEEP(T, t, 5, 10) SWEEP(T, t, 7, 10) SWEEP(T, t, 9, 8) SWEEP(T, t, 13, 6) SWEEP(T, t, 15, 6) SWEEP(T, t, 19, 5) SWEEP(T, t, 27, 5) SWEEP(T, t, 33, 4)
FOR_EACH_TYPE(SWEEPS)

#define ANY_OF(T, t, VERB, TRANSPOSED)                                                           \
    extern "C" __global__ void __launch_bounds__(SWEEP_THREADS, 1) VERB##_sweep_##t(const __grid_constant__ Sweep g, const __grid_constant__ Terms terms, const T* values, const T* b, T* x, u64* exchange, u32* state, const Monitor* gate) { \
        sweep_tiles<T>(g, exchange, state, gate, [&](const SweepTile<T>& tile, u32 at) {         \
            tile.template solve_any<TRANSPOSED>(terms, at, values, b, x, exchange);              \
        });                                                                                      \
    }
#define ANY(T, t)                                                                                \
    ANY_OF(T, t, sptrsv, false)                                                                  \
    ANY_OF(T, t, sptrsv_transposed, true)                                                        \
    extern "C" __global__ void __launch_bounds__(256) pack_sweep_##t(const __grid_constant__ Sweep g, const __grid_constant__ Terms terms, const u32* row_ptr, const u32* cols, const T* from, const T* inv_diag, T* values) { \
        pack(g, terms, row_ptr, cols, from, inv_diag, values);                                   \
    }
FOR_EACH_TYPE(ANY)

// The sweep where thread blocks come in clusters: exact triangular solve on a grid, blocks of 32 lines as a dataflow of warps.
//
// Variants: sm_90
//
// Layout: values by plane and block of 32 lines; of a block `rows` rows of `width` x 32 values, row t holding the points x = t - SIGMA l of
// its lines l: terms in pairs by lane, an odd one by itself, the reciprocal of the diagonal last (1 for a unit diagonal). Places without a
// point or a neighbour hold zeros.
// Schedule: a warp solves a block, a line a lane, a row a step, four rows a batch; batch 0 are zeros before the first row. Its values go into
// a ring of `ring` rows in shared memory, and after a batch the block's progress. A warp waits until the blocks that it reads (the one before
// in its plane, its own and both neighbours in the planes before) have come far enough, and until those that read its ring no longer
// need what it is about to overwrite. SIGMA is such that a point's operands in its own plane are at least a row old.
// Between tiles: a tile of planes is a thread block's; warps of their own take over the last planes of tiles before into rings like the
// others. Inside a cluster values travel through the shared memory of the taker (slots of NEAR rows, each value with the number of its
// batch), between clusters through device memory with the number of the solve (include/exchange.cuh). No fence, nothing to clear.
// Progress: clusters draw tiles by ticket in the order of planes, a tile a thread block, and wait for earlier tickets and for each other alone;
// thread blocks of a cluster run together. Which waits cannot form a circle: see `Wavefront` in crates/backend-cuda/src/sweep/wavefront.rs.
// Coefficients come by bulk copies, `depth` batches ahead; b and x move in chunks of 8 rows, 8 points of 4 lines an instruction.
// The transposed system is packed apart, as the lower triangle of the mirrored grid.
// Grid: clusters of thread blocks of 32 (planes + BEHIND) warps threads. Dynamic shared memory: `shared` of that file.
// pack: any number of thread blocks of 256, a row a thread.
// Order: stored (columns ascending in the lower triangle that the grid stands for, the reciprocal last).
// Bytes: width values (with the rows' ends some rows / nx of them), b, x a row; 2 (f32: 1) words of 8 bytes each way for every row handed on between clusters.
#include "exchange.cuh"
#include "stencil.cuh"

// Rows of the slots between thread blocks of a cluster.
#define NEAR 8

// A grid, its tiles and its schedule. Twin: `WavefrontArg` of crates/backend-cuda/src/sweep/wavefront.rs.
struct Wavefront {
    u32 nx, ny, nz;
    u32 blocks;     // of lines, in a plane
    u32 warps;      // that solve a plane; block j is warp j mod warps'
    u32 planes;     // of a tile
    u32 tiles;
    u32 batches;    // of a block
    u32 rows;       // stored of a block, 4 (batches - 1)
    u32 ring;       // rows, a power of two
    u32 depth;      // batches of coefficients under way
    u32 mirrored;   // row r of the grid is row n - 1 - r
    u64 plane_values;
};

template <int POINTS>
struct Schedule {
    using L = Lines<POINTS>;
    static constexpr int TERMS = POINTS / 2, WIDTH = TERMS + 1;
    __device__ static constexpr int slope() {
        int slope = 1;
        for (int c = 0; c < L::count; c++) {
            int need = L::dz(c) == 0 ? (L::hi(c) - L::dy(c)) / -L::dy(c) : 1;
            if (need > slope) slope = need;
        }
        return slope;
    }
    __device__ static constexpr int deepest() {
        int deepest = 0;
        for (int c = 0; c < L::count; c++)
            if (-L::dz(c) > deepest) deepest = -L::dz(c);
        return deepest;
    }
    __device__ static constexpr int foremost() {
        int reach = 0;
        for (int c = 0; c < L::count; c++)
            if (L::hi(c) > reach) reach = L::hi(c);
        return reach;
    }
    // Terms on planes before.
    __device__ static constexpr int early() {
        int terms = 0;
        for (int c = 0; c < L::count; c++)
            if (L::dz(c) != 0) terms = L::first(c + 1);
        return terms;
    }
    static constexpr int SIGMA = slope(), BEHIND = deepest(), REACH = foremost(), EARLY = early();
    // The row, from that of a point, of its newest operand on line c.
    __device__ static constexpr int newest(int c) { return L::hi(c) + SIGMA * L::dy(c); }
    __device__ static constexpr int batch_of(int row) { return row >= 0 ? row / 4 : -((3 - row) / 4); }
    static constexpr int NONE = -(1 << 28);
    __device__ static constexpr bool reads(int c, int d, int side) {
        int dy = L::dy(c);
        return L::dz(c) == -d && (side < 0 ? dy < 0 : side > 0 ? dy > 0 : d > 0);
    }
    // Batch k of a block needs k + this batches of the block `side` of it, d planes before.
    __device__ static constexpr int need(int d, int side) {
        int most = NONE;
        for (int c = 0; c < L::count; c++)
            if (reads(c, d, side)) {
                int batches = batch_of(newest(c) - 1) - 8 * SIGMA * side + 2;
                if (batches > most) most = batches;
            }
        return most;
    }
    // Batch k may be written once the block whose neighbour on its other side `side` is, d planes after, has done k + this - ring / 4.
    __device__ static constexpr int release(int d, int side) {
        int most = NONE;
        for (int c = 0; c < L::count; c++)
            if (reads(c, d, -side)) {
                // A block's first batch reads the row before its own where a line has several terms.
                int batches = 1 - batch_of(newest(c) - (L::hi(c) > L::lo(c))) - 8 * SIGMA * side;
                if (batches > most) most = batches;
            }
        return most;
    }
};

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u32 near(const void* at) { return (u32)__cvta_generic_to_shared(at); }
__device__ __forceinline__ u32 special_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ u32 special_crew() { u32 r; asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void cluster_meet() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where thread block `rank` of the cluster has what is at `at` here.
__device__ __forceinline__ u32 there(u32 at, u32 rank) { u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank)); return r; }
__device__ __forceinline__ void tell(u32 at, u32 v) { asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
__device__ __forceinline__ int progress_at(u32 at) { int v; asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(v) : "r"(at) : "memory"); return v; }
__device__ __forceinline__ void publish(u32 at, int v) { asm volatile("st.release.cta.shared::cta.s32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
__device__ __forceinline__ void clear(u32 at, int v) { asm volatile("st.shared::cta.s32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }

// Values in shared memory: of rings (volatile, as other warps write them) and of coefficients.
template <class T>
struct Cells;
template <>
struct Cells<double> {
    static constexpr u32 SLOT = 16;
    struct Pair { double x, y; };
    __device__ __forceinline__ static double ring(u32 at) { double v; asm volatile("ld.volatile.shared::cta.f64 %0, [%1];" : "=d"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static void put(u32 at, double v) { asm volatile("st.volatile.shared::cta.f64 [%0], %1;" ::"r"(at), "d"(v)); }
    __device__ __forceinline__ static double one(u32 at) { double v; asm volatile("ld.shared::cta.f64 %0, [%1];" : "=d"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static Pair two(u32 at) { Pair v; asm volatile("ld.shared::cta.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "r"(at)); return v; }
    __device__ __forceinline__ static void hand(u32 at, u32 mark, double v) {
        u64 bits = (u64)__double_as_longlong(v), tag = (u64)mark << 32;
        asm volatile("st.relaxed.cluster.shared::cluster.v2.u64 [%0], {%1, %2};" ::"r"(at), "l"(tag | (bits & 0xffffffffull)), "l"(tag | bits >> 32) : "memory");
    }
    __device__ __forceinline__ static void take(u32 at, Slot<double>& slot) { asm volatile("ld.relaxed.cta.shared::cta.v2.u64 {%0, %1}, [%2];" : "=l"(slot.low), "=l"(slot.high) : "r"(at) : "memory"); }
};
template <>
struct Cells<float> {
    static constexpr u32 SLOT = 8;
    struct Pair { float x, y; };
    __device__ __forceinline__ static float ring(u32 at) { float v; asm volatile("ld.volatile.shared::cta.f32 %0, [%1];" : "=f"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static void put(u32 at, float v) { asm volatile("st.volatile.shared::cta.f32 [%0], %1;" ::"r"(at), "f"(v)); }
    __device__ __forceinline__ static float one(u32 at) { float v; asm volatile("ld.shared::cta.f32 %0, [%1];" : "=f"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static Pair two(u32 at) { Pair v; asm volatile("ld.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at)); return v; }
    __device__ __forceinline__ static void hand(u32 at, u32 mark, float v) {
        asm volatile("st.relaxed.cluster.shared::cluster.u64 [%0], %1;" ::"r"(at), "l"((u64)mark << 32 | (u64)__float_as_uint(v)) : "memory");
    }
    __device__ __forceinline__ static void take(u32 at, Slot<float>& slot) { asm volatile("ld.relaxed.cta.shared::cta.u64 %0, [%1];" : "=l"(slot.word) : "r"(at) : "memory"); }
};

__device__ __forceinline__ void await_copy(u32 bar, u32 parity) {
    asm volatile("{\n.reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy_ahead(u32 to, const void* from, u32 bytes, u32 bar) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

template <class T, int POINTS>
struct Waves {
    using S = Stencil<POINTS>;
    using L = Lines<POINTS>;
    using G = Schedule<POINTS>;
    using C = Cells<T>;
    static constexpr int TERMS = G::TERMS, WIDTH = G::WIDTH, SIGMA = G::SIGMA, BEHIND = G::BEHIND, COUNT = L::count, EARLY = G::EARLY;
    // Bytes: a row of coefficients' one term, a row of a ring, a batch of coefficients, what b waits in, a row of slots.
    static constexpr u32 ROW = 32 * sizeof(T), PITCH = 34 * sizeof(T), STAGE = 4 * WIDTH * ROW, ROOM_B = 16 * PITCH, SLOTS = 32 * C::SLOT;

    const Wavefront& g;
    u32 zero, rings, rooms, stages, bars, slots, progress, taken;  // where they begin
    u32 ring_bytes, groups, lane, rank, crew, tag, seq, tile;

    __device__ __forceinline__ u32 ring_of(int q, int j) const { return rings + (q * g.warps + (u32)j % g.warps) * ring_bytes; }
    __device__ __forceinline__ u32 progress_of(int q, int j) const { return progress + (q * (int)g.blocks + j) * 4; }
    // What plane p of the tile has been taken by the tile d after it.
    __device__ __forceinline__ u32 taken_of(int d, int p, int j) const { return taken + (((d - 1) * g.planes + p) * g.blocks + j) * 4; }
    __device__ __forceinline__ u32 slot_of(int q, int j) const { return slots + (q * g.warps + (u32)j % g.warps) * (NEAR * SLOTS) + lane * C::SLOT; }
    // The words of row 0 of a block of plane z, one of the last BEHIND of its cluster.
    __device__ __forceinline__ u64* handed(u64* exchange, int z, int j) const {
        u32 span = crew * g.planes, cluster = (u32)z / span, place = cluster * BEHIND + (u32)z - ((cluster + 1) * span - BEHIND);
        return exchange + (((u64)place * g.blocks + j) * g.rows * 32 + lane) * Slot<T>::WORDS;
    }

    // What a lane watches for its warp: a progress, and what it has to be for batch k: k + lead, at most `most`.
    struct Watch {
        u32 at;
        int lead, most;
        __device__ __forceinline__ void wait(int k) const {
            int need = most < k + lead ? most : k + lead;
            while (!__all_sync(ALL, progress_at(at) >= need)) {}
        }
    };
    // Of block j of plane q of the tile (those before the tile first).
    __device__ __forceinline__ Watch watch(int q, int j, bool solves) const {
        Watch w{progress, G::NONE, (int)g.batches};
        each<3>([&](auto depth) {
            constexpr int d = depth;
            each<3>([&](auto s) {
                constexpr int side = (int)s - 1, need = G::need(d, side), release = G::release(d, side);
                bool beside = j + side >= 0 && j + side < (int)g.blocks, after = q + d >= BEHIND && q + d < (int)g.planes + BEHIND;
                if constexpr (need > G::NONE)
                    if (solves && lane == d * 3 + s && beside) w = {progress_of(q - d, j + side), need, (int)g.batches};
                if constexpr (release > G::NONE) {
                    if (lane == 9 + d * 3 + s && beside && after) w = {progress_of(q + d, j + side), release - (int)groups, (int)g.batches};
                    // The block whose ring this one takes over must have been read to its end.
                    int before = j - (int)g.warps;
                    if (lane == 18 + d * 3 + s && before >= 0 && before + side >= 0 && after) w = {progress_of(q + d, before + side), 1 << 28, (int)g.batches};
                }
            });
        });
        return w;
    }

    __device__ __forceinline__ void zeros(u32 own, u32 mine) const {
        each<4>([&](auto i) { C::put(own + i * PITCH, T(0)); });
        __syncwarp();
        if (lane == 0) publish(mine, 1);
    }

    // Takes over a block of a plane before the tile, slot by slot: load(slot, row of the batch) of what bears the mark of its batch.
    template <class Load, class Mark, class Next>
    __device__ __forceinline__ void take(int q, int j, const Watch& w, const Load& load, const Mark& mark, const Next& next) const {
        u32 own = ring_of(q, j) + lane * (u32)sizeof(T), mine = progress_of(q, j);
        for (int k = 1; k < (int)g.batches; k++) {
            Slot<T> slot[4];
            for (;;) {
                each<4>([&](auto i) { load(slot[i], k, (int)i); });
                bool there = true;
                each<4>([&](auto i) { there = there & slot[i].holds(mark(k)); });
                if (__all_sync(ALL, there)) break;
            }
            w.wait(k);
            u32 to = own + (k & (groups - 1)) * 4 * PITCH;
            each<4>([&](auto i) { C::put(to + i * PITCH, slot[i].value()); });
            __syncwarp();
            if (lane == 0) {
                publish(mine, k + 1);
                next(k);
            }
        }
    }
    __device__ __forceinline__ void take_over(int q, u32 w, const u64* exchange) const {
        int z = (int)(tile * g.planes) - BEHIND + q;
        if (z < 0) return;
        u32 from = (u32)z / g.planes, d = tile - from, p = (u32)z % g.planes;
        for (int j = w; j < (int)g.blocks; j += g.warps) {
            Watch watched = watch(q, j, false);
            watched.wait(0);
            zeros(ring_of(q, j) + lane * (u32)sizeof(T), progress_of(q, j));
            if (rank >= d) {
                u32 at = slot_of(q, j), first = (seq * g.blocks + j) * g.batches, back = there(taken_of(d, p, j), rank - d);
                take(q, j, watched, [&](Slot<T>& slot, int k, int i) { C::take(at + ((k & 1) * 4 + i) * SLOTS, slot); },
                     [&](int k) { return first + k; }, [&](int k) { tell(back, k); });
            } else {
                const u64* at = handed(const_cast<u64*>(exchange), z, j);
                // The first values may be long in coming.
                for (Slot<T> slot;;) {
                    slot.load(at);
                    if (__all_sync(ALL, slot.holds(tag))) break;
                    __nanosleep(100);
                }
                take(q, j, watched, [&](Slot<T>& slot, int k, int i) { slot.load(at + (u64)(4 * (k - 1) + i) * (32 * Slot<T>::WORDS)); },
                     [&](int) { return tag; }, [&](int) {});
            }
        }
    }

    // Solves warp w's blocks of plane p of the tile. `used`: batches of coefficients that the warp has used so far.
    __device__ __forceinline__ void solve(int p, u32 w, u32& used, const T* values, const T* b, T* x, u64* exchange) const {
        int q = BEHIND + p, z = (int)(tile * g.planes) + p, nx = (int)g.nx, blocks = (int)g.blocks, batches = (int)g.batches;
        if (z >= (int)g.nz) return;
        u32 warp = p * g.warps + w, depth = g.depth;
        u32 stage = stages + warp * depth * STAGE, bar = bars + warp * depth * 8, slot = used % depth, parity = used / depth & 1;
        u32 to_come = (blocks - w + g.warps - 1) / g.warps * (batches - 1), of_block = batches - 1;
        const char* from = (const char*)(values + (u64)z * g.plane_values + (u64)w * g.rows * WIDTH * 32);
        u64 skip = (u64)(g.warps - 1) * g.rows * WIDTH * ROW;
        auto ahead = [&](u32 to) {
            if (to_come == 0) return;
            if (lane == 0) copy_ahead(stage + to * STAGE, from, STAGE, bar + to * 8);
            to_come--;
            from += STAGE;
            if (--of_block == 0) {
                of_block = batches - 1;
                from += skip;
            }
        };
        for (u32 i = 0, to = slot; i < depth; i++) {
            ahead(to);
            to = to + 1 == depth ? 0 : to + 1;
        }

        for (int j = w; j < blocks; j += g.warps) {
            Watch watched = watch(q, j, true);
            u32 my_ring = ring_of(q, j), own = my_ring + lane * (u32)sizeof(T), mine = progress_of(q, j);
            int y = j * 32 + (int)lane, lines = (int)g.ny - j * 32;
            u32 base[COUNT + 1];
            each<COUNT>([&](auto c) {
                constexpr int dy = L::dy(c), dz = L::dz(c);
                int yy = y + dy, l = (int)lane + dy, jj = j + (l < 0 ? -1 : l > 31 ? 1 : 0);
                bool absent = yy < 0 || yy >= (int)g.ny || z + dz < 0;
                // In the plane itself a lane before has the value in a register.
                if (dz == 0 && l >= 0) absent = true;
                base[c] = absent ? zero : ring_of(q + dz, jj) + (l & 31) * (u32)sizeof(T);
            });

            // Eight rows of b and x: an instruction is for points e of lines l, l + 1, l + 2, l + 3.
            int e = lane % 8, l = lane / 8, x_in = e - SIGMA * l, x_out = x_in;
            i64 first = ((i64)z * g.ny + j * 32) * g.nx + (i64)l * (nx - SIGMA) + e, hop = 4 * (i64)(nx - SIGMA), turn = 8;
            if (g.mirrored) {
                first = (i64)g.nx * g.ny * g.nz - 1 - first;
                hop = -hop;
                turn = -turn;
            }
            const T* b_from = b + first;
            T* x_to = x + first;
            u32 room = rooms + warp * ROOM_B, b_to = room + e * PITCH + l * (u32)sizeof(T), half = 0;
            auto inside = [&](int at, int m) { return (u32)(at - 4 * SIGMA * m) < (u32)nx && l + 4 * m < lines; };
            auto fetch = [&] {
                each<8>([&](auto m) {
                    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(b_to + half + m * 4 * (u32)sizeof(T)), "l"(b_from + m * hop),
                                 "n"((int)sizeof(T)), "r"(inside(x_in, m) ? (u32)sizeof(T) : 0) : "memory");
                });
                asm volatile("cp.async.commit_group;" ::: "memory");
                x_in += 8;
                b_from += turn;
                half ^= 8 * PITCH;
            };
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            __syncwarp();
            fetch();
            fetch();

            // Who takes this plane over.
            u32 near_at[BEHIND], far = 0, first_mark = (seq * blocks + j) * batches;
            u64* hand = nullptr;
            each<BEHIND>([&](auto i) {
                constexpr int d = i + 1;
                int there_q = p + BEHIND - d * (int)g.planes;
                bool taker = there_q >= 0 && tile + d < g.tiles, close = taker && rank + d < crew;
                near_at[i] = close ? there(slot_of(there_q, j), rank + d) : 0;
                if (close && lane == 27 + i) watched = {taken_of(d, p, j), -(NEAR / 4), 1 << 28};
                if (taker && !close) far = 1;
            });
            if (far) hand = handed(exchange, z, j);

            watched.wait(0);
            zeros(own, mine);
            T held[COUNT + 1][3], last[4] = {T(0), T(0), T(0), T(0)};
            each<COUNT>([&](auto c) { held[c][0] = held[c][1] = held[c][2] = T(0); });
            u32 group[4] = {0, 4 * PITCH, 2 % groups * 4 * PITCH, 3 % groups * 4 * PITCH}, b_at = room + lane * (u32)sizeof(T), b_turn = 0;
            asm volatile("cp.async.wait_group 1;" ::: "memory");
            __syncwarp();
            int now_x = lines > (int)lane ? -SIGMA * (int)lane : -(1 << 29);
            for (int k = 1; k < batches; k++) {
                T s[4], lead[COUNT + 1][4], value[4][WIDTH + 1];
                each<4>([&](auto i) { s[i] = C::ring(b_at + (b_turn + i) * PITCH); });
                u32 at = stage + slot * STAGE;
                await_copy(bar + slot * 8, parity);
                auto load = [&](auto i, auto u) {
                    if constexpr (2 * u + 1 < WIDTH) {
                        auto two = C::two(at + lane * 2 * (u32)sizeof(T) + (i * WIDTH + 2 * u) * ROW);
                        value[i][2 * u] = two.x;
                        value[i][2 * u + 1] = two.y;
                    } else {
                        value[i][2 * u] = C::one(at + lane * (u32)sizeof(T) + (i * WIDTH + 2 * u) * ROW);
                    }
                };
                constexpr int PAIRS = (WIDTH + 1) / 2, AHEAD = WIDTH <= 8 ? PAIRS : 2;
                each<AHEAD>([&](auto u) { each<4>([&](auto i) { load(i, u); }); });
                watched.wait(k);

                // The newest operand on line c of row i of the batch (-1: the row before).
                auto newest = [&](auto c, auto i) {
                    constexpr int row = (int)i + G::newest(c), of = G::batch_of(row), in = row - 4 * of;
                    static_assert(of >= -1 && of <= 2, "a row that the ring's groups do not reach");
                    return C::ring(base[c] + group[of + 1] + in * PITCH);
                };
                if (k == 1) each<COUNT>([&](auto c) {
                    constexpr int wide = L::hi(c) - L::lo(c);
                    if constexpr (wide > 0) held[c][wide] = newest(c, Constant<-1>{});
                });
                each<COUNT>([&](auto c) { each<4>([&](auto i) { lead[c][i] = newest(c, i); }); });
                // Planes before, four rows side by side.
                each<COUNT>([&](auto c) {
                    constexpr int line = c, wide = L::hi(line) - L::lo(line), first_term = L::first(line), terms = L::first(line + 1) - first_term;
                    if constexpr (L::dz(line) != 0) {
                        each<terms>([&](auto t) {
                            constexpr int term = first_term + t, dx = S::dx(term) - L::lo(line), next = term / 2 + 1;
                            if constexpr (term % 2 == 0 && next >= AHEAD && next < PAIRS) each<4>([&](auto i) { load(i, Constant<next>{}); });
                            each<4>([&](auto i) {
                                constexpr int from_row = (int)i + dx - wide;
                                T operand = from_row >= 0 ? lead[c][from_row < 0 ? 0 : from_row] : held[c][wide + from_row + 1 > 0 ? wide + from_row + 1 : 0];
                                s[i] = fma_rn(-value[i][term], operand, s[i]);
                            });
                        });
                        if constexpr (wide > 0) held[c][wide] = lead[c][3];
                        if constexpr (wide > 1) held[c][wide - 1] = lead[c][2];
                    }
                });
                constexpr int CAME = EARLY > 0 ? (EARLY - 1) / 2 + 2 : 0, LATE = CAME > AHEAD ? CAME : AHEAD;
                each<PAIRS>([&](auto u) {
                    if constexpr (u >= LATE) each<4>([&](auto i) { load(i, u); });
                });
                // The plane itself, row by row.
                auto before = [&](auto row) {
                    if constexpr (row >= 0) return s[row];
                    else return last[row + 4];
                };
                each<4>([&](auto i) {
                    constexpr int step = i;
                    each<COUNT>([&](auto c) {
                        constexpr int line = c, wide = L::hi(line) - L::lo(line), first_term = L::first(line), terms = L::first(line + 1) - first_term, dy = L::dy(line);
                        if constexpr (L::dz(line) == 0) {
                            constexpr int row = step + G::newest(line);
                            static_assert(row >= -4, "a row that no register holds");
                            T operand = __shfl_up_sync(ALL, before(Constant<row>{}), -dy);
                            operand = (int)lane < -dy ? lead[c][i] : operand;
                            if constexpr (wide > 0) held[c][0] = held[c][1];
                            if constexpr (wide > 1) held[c][1] = held[c][2];
                            held[c][wide] = operand;
                            each<terms>([&](auto t) {
                                constexpr int term = first_term + t;
                                s[i] = fma_rn(-value[i][term], held[c][S::dx(term) - L::lo(c)], s[i]);
                            });
                        }
                    });
                    if constexpr (L::own == 2) s[i] = fma_rn(-value[i][TERMS - 2], before(Constant<(int)i - 2>{}), s[i]);
                    s[i] = fma_rn(-value[i][TERMS - 1], before(Constant<(int)i - 1>{}), s[i]);
                    s[i] *= value[i][TERMS];
                    // Others read zeros beside a line.
                    s[i] = (u32)(now_x + i) < (u32)nx ? s[i] : T(0);
                    C::put(own + group[1] + i * PITCH, s[i]);
                });
                __syncwarp();
                if (lane == 0) publish(mine, k + 1);
                each<BEHIND>([&](auto d) {
                    if (near_at[d]) each<4>([&](auto i) { C::hand(near_at[d] + ((k & 1) * 4 + i) * SLOTS, first_mark + k, s[i]); });
                });
                if (far) {
                    each<4>([&](auto i) { Slot<T>::put(hand + i * (32 * Slot<T>::WORDS), tag, s[i]); });
                    hand += 4 * 32 * Slot<T>::WORDS;
                }
                each<4>([&](auto i) { last[i] = s[i]; });
                if ((k & 1) == 0) {
                    // The batch before and this one.
                    u32 rows = my_ring + (e < 4 ? group[0] : group[1]) + e % 4 * PITCH + l * (u32)sizeof(T);
                    each<8>([&](auto m) {
                        T solved = C::ring(rows + m * 4 * (u32)sizeof(T));
                        if (inside(x_out, m)) x_to[m * hop] = solved;
                    });
                    x_out += 8;
                    x_to += turn;
                    fetch();
                    asm volatile("cp.async.wait_group 1;" ::: "memory");
                    __syncwarp();
                }
                b_turn = (b_turn + 4) % 16;
                ahead(slot);
                used++;
                slot++;
                if (slot == depth) {
                    slot = 0;
                    parity ^= 1;
                }
                group[0] = group[1];
                group[1] = group[2];
                group[2] = group[3];
                group[3] = group[3] + 4 * PITCH == ring_bytes ? 0 : group[3] + 4 * PITCH;
                now_x += 4;
            }
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
};
#endif

// Tile by tile, by tickets of clusters. state: the ticket, thread blocks that are done, the number of the last solve.
template <class T, int POINTS>
__device__ __forceinline__ void waves(const Wavefront& g, const T* values, const T* b, T* x, u64* exchange, u32* state, const Monitor* gate) {
#if __CUDA_ARCH__ >= 900
    using W = Waves<T, POINTS>;
    extern __shared__ __align__(128) char room[];
    __shared__ u32 drawn;
    if (!open(gate)) return;
    u32 solving = g.planes * g.warps, taking = W::BEHIND * g.warps, ring_bytes = g.ring * W::PITCH;
    u32 zero = near(room), rings = zero + ring_bytes, rooms = rings + (solving + taking) * ring_bytes;
    u32 stages = (rooms + solving * W::ROOM_B + 127) / 128 * 128, bars = stages + solving * g.depth * W::STAGE;
    u32 slots = (bars + solving * g.depth * 8 + 15) / 16 * 16, progress = slots + taking * (NEAR * W::SLOTS);
    u32 taken = progress + (g.planes + W::BEHIND) * g.blocks * 4, end = taken + W::BEHIND * g.planes * g.blocks * 4;
    for (u32 at = zero + threadIdx.x * 4; at < rings; at += blockDim.x * 4) clear(at, 0);
    for (u32 at = slots + threadIdx.x * 4; at < progress; at += blockDim.x * 4) clear(at, 0);
    for (u32 i = threadIdx.x; i < solving * g.depth; i += blockDim.x) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bars + i * 8) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    u32 warp = __shfl_sync(ALL, threadIdx.x / 32, 0), tag = *(volatile u32*)(state + 2) + 1, used = 0;
    W at{g, zero, rings, rooms, stages, bars, slots, progress, taken, ring_bytes, g.ring / 4, threadIdx.x % 32, special_rank(), special_crew(), tag, 0, 0};
    for (;;) {
        cluster_meet();
        if (at.rank == 0 && threadIdx.x == 0) {
            u32 ticket = atomicAdd(state, 1u);
            for (u32 r = 0; r < at.crew; r++) tell(there(near(&drawn), r), ticket);
        }
        for (u32 to = taken + threadIdx.x * 4; to < end; to += blockDim.x * 4) clear(to, 0);
        cluster_meet();
        u32 first = *(volatile u32*)&drawn * at.crew;
        if (first >= g.tiles) break;
        at.seq++;
        at.tile = first + at.rank;
        for (u32 i = threadIdx.x; i < (g.planes + W::BEHIND) * g.blocks; i += blockDim.x) {
            int z = (int)(at.tile * g.planes) - W::BEHIND + (int)(i / g.blocks);
            // Planes outside the grid keep nobody waiting.
            clear(progress + i * 4, z < 0 || z >= (int)g.nz ? (int)g.batches : 0);
        }
        __syncthreads();
        if (at.tile >= g.tiles) continue;
        if (warp < solving) at.solve(warp / g.warps, warp % g.warps, used, values, b, x, exchange);
        else at.take_over((warp - solving) / g.warps, (warp - solving) % g.warps, exchange);
    }
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(state + 1, 1u) == gridDim.x - 1) {
            state[0] = 0;
            state[1] = 0;
            state[2] = tag;
        }
    }
#endif
}

// A row's entries to the places of their terms in the rows of the equations that they belong to; `values` held zeros.
template <class T>
__device__ __forceinline__ void pack(const Wavefront& g, const Terms& terms, u32 sigma, u32 transposed, const u32* row_ptr, const u32* cols, const T* from, const T* inv_diag, T* values) {
    u64 n = (u64)g.nx * g.ny * g.nz;
    u32 width = terms.count + 1;
    auto place = [&](u64 row, u32 k) {
        int x = (int)(row % g.nx), y = (int)(row / g.nx % g.ny), lane = y % 32;
        u64 z = row / g.nx / g.ny, t = x + (u64)sigma * lane;
        T* at = values + z * g.plane_values + ((u64)(y / 32) * g.rows + t) * (width * 32);
        return k < width / 2 * 2 ? at + k / 2 * 64 + lane * 2 + k % 2 : at + width / 2 * 64 + lane;
    };
    for (u64 r = (u64)blockIdx.x * blockDim.x + threadIdx.x; r < n; r += (u64)gridDim.x * blockDim.x) {
        u64 self = g.mirrored ? n - 1 - r : r;
        for (u32 e = row_ptr[r]; e < row_ptr[r + 1]; e++) {
            if (cols[e] == r) continue;
            u64 other = g.mirrored ? n - 1 - cols[e] : cols[e], row = transposed ? other : self, operand = transposed ? self : other;
            int x = (int)(row % g.nx), y = (int)(row / g.nx % g.ny), z = (int)(row / g.nx / g.ny);
            int dx = (int)(operand % g.nx) - x, dy = (int)(operand / g.nx % g.ny) - y, dz = (int)(operand / g.nx / g.ny) - z;
            for (u32 k = 0; k < terms.count; k++)
                if (terms.dx[k] == dx && terms.dy[k] == dy && terms.dz[k] == dz) *place(row, k) = from[e];
        }
        *place(self, terms.count) = inv_diag ? inv_diag[r] : T(1);
    }
}

#define WAVEFRONT(T, t, POINTS, THREADS)                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) sptrsv##POINTS##_wavefront_##t(const __grid_constant__ Wavefront g, const T* values, const T* b, T* x, u64* exchange, u32* state, const Monitor* gate) { \
        waves<T, POINTS>(g, values, b, x, exchange, state, gate);                                \
    }
// Threads at most: `KERNELS` of crates/backend-cuda/src/sweep/wavefront.rs.
#define WAVEFRONTS(T, t)                                                                         \
    WAVEFRONT(T, t, 7, 512) WAVEFRONT(T, t, 13, 512) WAVEFRONT(T, t, 15, 512) WAVEFRONT(T, t, 19, 512) WAVEFRONT(T, t, 27, 512) WAVEFRONT(T, t, 33, 384) \
    extern "C" __global__ void __launch_bounds__(256) pack_wavefront_##t(const __grid_constant__ Wavefront g, const __grid_constant__ Terms terms, u32 sigma, u32 transposed, const u32* row_ptr, const u32* cols, const T* from, const T* inv_diag, T* values) { \
        pack(g, terms, sigma, transposed, row_ptr, cols, from, inv_diag, values);                \
    }
FOR_EACH_TYPE(WAVEFRONTS)

// The sweep on clusters of thread blocks: exact triangular solve on a grid, with blocks of 8 lines of 4 planes as a dataflow of warps.
//
// Variants: sm_90
//
// Layout: values by tile (PLANES planes) and block (LINES lines of each of them: line l of plane p of block j lies at y = LINES j + l - shear p);
// a block has 4 (batches - 1) rows of `width` x 32 values, row t holding the points x = t - by_line l - by_plane p of its lines, lane LINES p + l:
// terms in pairs by lane, an odd one alone, the reciprocal of the diagonal last (1 for a unit diagonal). Places without a point or
// a neighbour hold zeros.
// Schedule: a warp solves a block, one line per lane, one row per step, four rows per batch; batch 0 is zeros before the first row. The shear is such
// that a block reads its own planes and the previous block of its tile, and two blocks of the previous tile; the slopes are such that a point's
// operands are at least one row old, those on earlier planes AGE rows. What is older than the batch is read from a ring in shared memory; what
// is younger comes by a shuffle. After a batch the block's progress is published; what the next block reads is kept for `deep` batches. A warp
// waits until the blocks that it reads have come far enough, and until the blocks that read from it no longer need what it overwrites.
// Parts: a tile's blocks are dealt to `parts` thread blocks, `warps` to each in turn, because a multiprocessor's shared memory serves only three
// or four solving warps. Separate warps receive what a part reads from others, into rings like the others, and move b and x
// in chunks of 8 rows, 8 points of 4 lines per instruction. Inside a cluster values travel through the receiver's shared memory (slots of NEAR
// rows, each value with the number of its batch), between clusters through device memory with the number of the solve (include/exchange.cuh).
// No fence, nothing to clear.
// Progress: clusters draw tiles by ticket in the order of planes, and wait only for earlier tickets and for each other; thread blocks of
// a cluster run together. Why waits cannot form a cycle: see crates/backend-cuda/src/sweep/wavefront.rs.
// Coefficients come by bulk copies, `depth` batches ahead.
// The transposed system has its own packed values, as the lower triangle of the mirrored grid.
// Grid: clusters of thread blocks of 32 (solvers + takers + movers) threads; takers receive. Dynamic shared memory: `shared` of that file.
// pack: any number of thread blocks of 256, one row per thread. mirror: the same, one row of the layout per warp.
// Order: stored (columns ascending in the lower triangle that the grid represents, the reciprocal last).
// Bytes: width values (about rows / nx times, for rows past line ends), b, x per row; 2 (f32: 1) words of 8 bytes each way per point passed between clusters.
#include "cluster.cuh"
#include "schedule.cuh"

// Rows of the slots between thread blocks of a cluster.
#define NEAR 8

// A grid, its tiles and its schedule. Twin: `WavefrontArg` of crates/backend-cuda/src/sweep/wavefront.rs.
struct Wavefront {
    u32 nx, ny, nz;
    u32 by_line, by_plane;  // rows by which a line follows the previous line, and a plane the previous plane
    u32 shear;      // lines by which a plane of a block lies before the previous plane
    u32 blocks;     // of a tile
    u32 parts;      // of a tile, one thread block each
    u32 warps;      // that solve a part: block j is warp j mod warps of part j / warps mod parts
    u32 tiles;
    u32 batches;    // of a block
    u32 movers;     // warps that move b and x
    u32 deep;       // batches that a block keeps for the blocks after it
    u32 depth;      // batches of coefficients in flight
    u32 mirrored;   // row r of the grid is row n - 1 - r
    u32 unused;     // for the alignment
    u64 tile_values;
};

#if __CUDA_ARCH__ >= 900
template <class T, int POINTS>
struct Waves {
    using S = Stencil<POINTS>;
    using L = Lines<POINTS>;
    using G = Schedule<POINTS>;
    using C = Cells<T>;
    static constexpr int TERMS = G::TERMS, WIDTH = G::WIDTH, COUNT = L::count, HANDED = G::HANDED, SHARE = 32 / HANDED;
    // Batches of a block's own ring, chunks of b in flight.
    static constexpr int RING = 4, ROOMS = 4;
    // Bytes: one term of a row of coefficients, a row of a ring, a batch of coefficients, the room for b, a row of slots.
    static constexpr u32 SIZE = sizeof(T), ROW = 32 * SIZE, PITCH = 34 * SIZE, STAGE = 4 * WIDTH * ROW, ROOM_B = 8 * ROOMS * PITCH, SLOTS = HANDED * C::SLOT;

    const Wavefront& g;
    u32 rings, kept, copies, rooms, stages, bars, slots, progress, moved, taken;  // where each begins
    u32 lane, rank, crew, tag, seq, tile, part, turn;

    // Whether a block belongs to this part; its warp, or the place after the last for other blocks.
    __device__ __forceinline__ bool here(int j) const { return (u32)j % turn / g.warps == part; }
    __device__ __forceinline__ u32 at(int j) const { return here(j) ? (u32)j % g.warps : g.warps; }
    // The thread block of a part, of this tile or of one `after` it (negative: before).
    __device__ __forceinline__ u32 rank_of(int after, u32 of_part) const { return (rank / g.parts + after) * g.parts + of_part % g.parts; }
    __device__ __forceinline__ u32 ring_of(int j) const { return rings + at(j) * (RING * 4 * PITCH); }
    // What a block keeps for the next one: rows of 8 values, four blocks side by side.
    __device__ __forceinline__ u32 kept_of(int j) const { return kept + at(j) / 4 * (g.deep * 4 * PITCH) + at(j) % 4 * (8 * SIZE); }
    // The copy of a block of the previous tile: rows of HANDED values, several blocks side by side.
    __device__ __forceinline__ u32 copy_of(int j) const { return copies + at(j) / SHARE * (g.deep * 4 * PITCH) + at(j) % SHARE * (HANDED * SIZE); }
    // The progress of block j of the tile (d = 0) or of the previous one.
    __device__ __forceinline__ u32 progress_of(int d, int j) const { return progress + (d * (int)g.blocks + j) * 4; }
    // Batches of a warp's blocks that have left its ring.
    __device__ __forceinline__ u32 moved_of(u32 w) const { return moved + w * 4; }
    // Who receives a block: the part of the next tile that solves it, the part that solves the previous block, and the part of the next block.
    enum Taker { SAME, PREVIOUS, NEXT };
    // How much of it they have received.
    __device__ __forceinline__ u32 taken_of(Taker by, int j) const { return taken + (by * g.blocks + j) * 4; }
    __device__ __forceinline__ u32 slot_of(Taker by, int j) const { return slots + (by == SAME ? (u32)j % g.warps : g.warps + by - 1) * (NEAR * SLOTS); }
    // Barriers of a warp: for coefficients, then for b.
    __device__ __forceinline__ u32 bars_of(u32 w) const { return bars + w * (g.depth + ROOMS) * 8; }
    // The words of row 0 of a block of a cluster's last tile.
    __device__ __forceinline__ u64 handed(u32 cluster, int j) const { return ((u64)cluster * g.blocks + j) * (4 * (g.batches - 1) * HANDED) * Slot<T>::WORDS; }
    // Where batch k of a block stands in a ring of so many batches. Batches that are needed at the same time stand in the same place.
    __device__ __forceinline__ u32 place(u32 of_tile, int j, int k, u32 ring) const {
        return (u32)(k + (int)(4 * ring) + j * G::BLOCK_LAG + (int)of_tile * G::TILE_LAG) % ring * (4 * PITCH);
    }

    // What a lane watches for its warp: a progress, and the value that it must have for batch k: k + lead, at most `most`.
    struct Watch {
        u32 at;
        int lead, most;
        __device__ __forceinline__ void wait(int k) const {
            int need = most < k + lead ? most : k + lead;
            while (!__all_sync(ALL, progress_at(at) >= need)) {}
        }
    };
    // For block j of the tile (d = 0) with `solves`, or for receiving block j of the tile (d = 0) or of the previous one (d = 1).
    __device__ __forceinline__ Watch watch(int d, int j, bool solves) const {
        Watch w{progress, G::NONE, (int)g.batches};
        auto beside = [&](int side) { return j + side >= 0 && j + side < (int)g.blocks; };
        each<3>([&](auto s) {
            constexpr int side = (int)s - 1;
            each<2>([&](auto of) {
                constexpr int before = of, need = G::need(before, side), release = G::release(before, side);
                if constexpr (need > G::NONE)
                    if (solves && lane == before * 3 + s && beside(side)) w = {progress_of(before, j + side), need, (int)g.batches};
                if constexpr (release > G::NONE) {
                    if (d == before && lane == 9 + s && beside(side) && here(j + side)) w = {progress_of(0, j + side), release - (int)g.deep, (int)g.batches};
                    // The block whose place this one takes must have been read to its end.
                    int last = j - (int)turn;
                    if (d == before && lane == 18 + s && last >= 0 && last + side >= 0 && here(last + side)) w = {progress_of(0, last + side), 1 << 28, (int)g.batches};
                }
            });
        });
        return w;
    }

    // Receives a block batch by batch, rows of USED values, in slots of WIDE: the last planes of the previous tile, or what a block of this tile keeps.
    template <int WIDE, int USED>
    __device__ __forceinline__ void take(int d, int j, Taker by, u32 from, u32 to, u32 of_tile, const u64* far) const {
        constexpr int EACH = WIDE / 8, SIDE = 32 / WIDE;
        Watch watched = watch(d, j, false);
        u32 copy = to + lane / WIDE * PITCH + lane % WIDE * SIZE, mine = progress_of(d, j);
        auto put = [&](int k, int i, T v) { C::put(copy + place(of_tile, j, k, g.deep) + i * (SIDE * PITCH), v); };
        watched.wait(0);
        each<EACH>([&](auto i) { put(0, i, T(0)); });
        __syncwarp();
        if (lane == 0) publish(mine, 1);
        u32 near = slot_of(by, j) + lane * C::SLOT, first = (seq * g.blocks + j) * g.batches, back = there(taken_of(by, j), from);
        if (far) {
            far += lane * Slot<T>::WORDS;
            // The first values may take long to arrive.
            for (Slot<T> slot;;) {
                slot.load(far);
                if (__all_sync(ALL, slot.holds(tag))) break;
                __nanosleep(100);
            }
        }
        for (int k = 1; k < (int)g.batches; k++) {
            Slot<T> slot[EACH];
            u32 mark = far ? tag : first + k;
            for (bool there = false; !there;) {
                each<EACH>([&](auto i) {
                    if (far) slot[i].load(far + (u64)(k - 1) * (4 * WIDE * Slot<T>::WORDS) + i * (32 * Slot<T>::WORDS));
                    else C::take(near + (k & (NEAR / 4 - 1)) * (4 * WIDE * C::SLOT) + i * (32 * C::SLOT), slot[i]);
                });
                there = true;
                each<EACH>([&](auto i) { there = there & (slot[i].holds(mark) || lane % WIDE >= USED); });
                there = __all_sync(ALL, there);
            }
            watched.wait(k);
            each<EACH>([&](auto i) { put(k, i, slot[i].value()); });
            __syncwarp();
            if (lane == 0) {
                publish(mine, k + 1);
                if (!far) tell(back, k);
            }
        }
    }
    // Warp w receives what the part's blocks read from others: for w below `warps` block w of each turn of the previous tile, then the block after
    // the part's last one of the previous tile, then the block before its first one.
    __device__ __forceinline__ void take_over(u32 w, const u64* exchange) const {
        Taker by = w < g.warps ? SAME : w == g.warps ? PREVIOUS : NEXT;
        if (by == PREVIOUS && G::need(1, 1) == G::NONE) return;
        int first = by == NEXT ? (int)(part * g.warps) - 1 : (int)(part * g.warps + w);
        for (int j = first < 0 ? first + (int)turn : first; j < (int)g.blocks; j += turn) {
            if (by == NEXT) {
                if (j + 1 < (int)g.blocks) take<8, G::KEPT * PLANES>(0, j, by, rank_of(0, part + g.parts - 1), kept_of(j), tile, nullptr);
            } else if (tile > 0) {
                bool close = rank >= g.parts;
                const u64* far = close ? nullptr : exchange + handed(tile * g.parts / crew - 1, j);
                take<HANDED, HANDED>(1, j, by, close ? rank_of(-1, part + by) : rank, copy_of(j), tile - 1, far);
            }
        }
    }

    // Eight rows of b or x of a block: an instruction handles points e of lines l, l + 1, l + 2, l + 3 of a plane.
    struct Chunks {
        static constexpr int FOURS = LINES / 4;
        u32 present = 0, first = 0;  // modulo 2^32: only used for points
        __device__ __forceinline__ Chunks() {}
        __device__ __forceinline__ Chunks(const Waves& at, int j, int e, int l) {
            const Wavefront& g = at.g;
            each<8>([&](auto m) {
                int y = j * LINES + l + m % FOURS * 4 - G::SHEAR * (m / FOURS);
                if (y >= 0 && y < (int)g.ny && at.tile * PLANES + m / FOURS < g.nz) present |= 1u << m;
            });
            first = (at.tile * PLANES * g.ny + j * LINES + l) * g.nx + e - G::BY_LINE * l;
            if (g.mirrored) first = g.nx * g.ny * g.nz - 1 - first;
        }
        // body(m, whether it is a point, its place from the first)
        template <class Body>
        __device__ __forceinline__ void visit(const Wavefront& g, int q, int x, const Body& body) const {
            u32 sign = g.mirrored ? ~0u : 1, by_line = sign * 4 * (g.nx - G::BY_LINE), by_plane = sign * ((g.ny - G::SHEAR) * g.nx - G::BY_PLANE);
            u32 from = first + sign * 8 * q;
            each<8>([&](auto m) {
                bool point = (u32)(x + 8 * q - m % FOURS * 4 * G::BY_LINE - m / FOURS * G::BY_PLANE) < g.nx && (present >> m & 1);
                body(m, point, from + m % FOURS * by_line + m / FOURS * by_plane);
            });
        }
    };
    // Moves b to, and x from, the blocks of the part's warps m and m + movers. `before`: chunks that they had before this tile.
    __device__ __forceinline__ void move(u32 m, u32 (&before)[2], const T* b, T* x) const {
        int e = lane % 8, l = lane / 8, chunks = (g.batches - 1) / 2, skew = e - G::BY_LINE * l;
        int jb[2], qb[2], jx[2], qx[2];
        Chunks of_b[2], of_x[2];
        u32 in[2], out[2];
        each<2>([&](auto s) {
            jb[s] = jx[s] = part * g.warps + m + s * g.movers;
            qb[s] = qx[s] = 0;
            in[s] = out[s] = 0;
            if (m + s * g.movers >= g.warps) jb[s] = jx[s] = g.blocks;
            of_b[s] = of_x[s] = Chunks(*this, jb[s], e, l);
        });
        while (jx[0] < (int)g.blocks || jx[1] < (int)g.blocks) {
            each<2>([&](auto s) {
                u32 w = m + s * g.movers;
                if (jb[s] < (int)g.blocks && in[s] < out[s] + ROOMS) {
                    u32 number = before[s] + in[s], to = rooms + w * ROOM_B + (number % ROOMS * 8 + e) * PITCH + l * SIZE;
                    of_b[s].visit(g, qb[s], skew, [&](auto i, bool point, u32 at) {
                        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to + i * 4 * SIZE), "l"(b + at), "n"((int)SIZE), "r"(point ? SIZE : 0) : "memory");
                    });
                    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bars_of(w) + (g.depth + number % ROOMS) * 8) : "memory");
                    in[s]++;
                    if (++qb[s] == chunks) {
                        qb[s] = 0;
                        of_b[s] = Chunks(*this, jb[s] += turn, e, l);
                    }
                }
                if (jx[s] < (int)g.blocks && __all_sync(ALL, progress_at(progress_of(0, jx[s])) >= 2 * qx[s] + 3)) {
                    u32 ring = ring_of(jx[s]) + place(tile, jx[s], 2 * qx[s] + 1 + (e >= 4), RING) + e % 4 * PITCH + l * SIZE;
                    T solved[8];
                    each<8>([&](auto i) { solved[i] = C::ring(ring + i * 4 * SIZE); });
                    out[s]++;
                    __syncwarp();
                    if (lane == 0) publish(moved_of(w), 2 * out[s]);
                    of_x[s].visit(g, qx[s], skew, [&](auto i, bool point, u32 at) {
                        if (point) x[at] = solved[i];
                    });
                    if (++qx[s] == chunks) {
                        qx[s] = 0;
                        of_x[s] = Chunks(*this, jx[s] += turn, e, l);
                    }
                }
            });
        }
        each<2>([&](auto s) { before[s] += in[s]; });
    }

    // Solves the part's blocks of warp w. `used`: batches of coefficients that the warp has used so far.
    __device__ __forceinline__ void solve(u32 w, u32& used, const T* values, u64* exchange) const {
        int nx = (int)g.nx, ny = (int)g.ny, blocks = (int)g.blocks, batches = (int)g.batches, a = lane % LINES, plane = lane / LINES;
        u32 depth = g.depth, of_block = batches - 1;
        u32 stage = stages + w * depth * STAGE, bar = bars_of(w), slot = used % depth, parity = used / depth & 1;
        int start = part * g.warps + w;
        u32 to_come = start < blocks ? (blocks - start + turn - 1) / turn * of_block : 0;
        const char* from = (const char*)(values + (u64)tile * g.tile_values + (u64)start * of_block * 4 * WIDTH * 32);
        u64 skip = (u64)(turn - 1) * of_block * 4 * WIDTH * ROW;
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

        int solved = 0;
        for (int j = start; j < blocks; j += turn, solved += batches - 1) {
            Watch watched = watch(0, j, true);
            u32 own = ring_of(j) + lane * SIZE, mine = progress_of(0, j);
            u32 base[COUNT + 1];
            bool inside[COUNT + 1];
            each<COUNT>([&](auto c) {
                int of_plane = plane + L::dz(c), at = a + G::da(c);
                bool before = of_plane < 0;
                if (before) {
                    of_plane += G::BEHIND;
                    at += G::SHEAR * PLANES;
                }
                int side = at < 0 ? -1 : at >= LINES ? 1 : 0, jj = j + side;
                at -= side * LINES;
                bool absent = jj < 0 || jj >= blocks || (before && tile == 0);
                inside[c] = !before && side == 0;
                // Zeros lie beside what is kept.
                base[c] = inside[c] ? own + (at - a + (of_plane - plane) * LINES) * (int)SIZE : absent ? kept + 32 * SIZE
                        : before ? copy_of(jj) + (of_plane * LINES + at) * SIZE : kept_of(jj) + (of_plane * G::KEPT + at - (LINES - G::KEPT)) * SIZE;
            });
            u32 of_kept = plane * G::KEPT + a - (LINES - G::KEPT);
            bool ends = a >= LINES - G::KEPT, keeps = ends && here(j + 1);
            u32 keep = kept_of(j) + of_kept * SIZE;

            // For those that receive the block.
            u32 first_mark = (seq * blocks + j) * batches, of_handed = lane - (32 - HANDED), near[3] = {0, 0, 0};
            u64* far = nullptr;
            auto to = [&](Taker by, bool hands, u32 of, u32 whom) {
                if (hands) near[by] = there(slot_of(by, j) + of * C::SLOT, whom);
                if (lane == 29 + by) watched = {taken_of(by, j), -(NEAR / 4), 1 << 28};
            };
            bool hands = lane >= 32 - HANDED;
            if (tile + 1 < g.tiles) {
                if (rank + g.parts < crew) {
                    to(SAME, hands, of_handed, rank_of(1, part));
                    if (G::need(1, 1) > G::NONE && j > 0 && !here(j - 1)) to(PREVIOUS, hands, of_handed, rank_of(1, part + g.parts - 1));
                } else if (hands) {
                    far = exchange + handed(tile * g.parts / crew, j) + of_handed * Slot<T>::WORDS;
                }
            }
            if (j + 1 < blocks && !here(j + 1)) to(NEXT, ends, of_kept, rank_of(0, part + 1));
            if (lane == 28) watched = {moved_of(w), solved - RING, 1 << 28};
            // Places of the last four batches in the block's own ring, and in what is kept.
            u32 group[4], deep[4];
            each<4>([&](auto i) {
                group[i] = place(tile, j, (int)i - 2, RING);
                deep[i] = place(tile, j, (int)i - 2, g.deep);
            });
            // All of the previous block must have left the ring.
            while (!__all_sync(ALL, progress_at(moved_of(w)) >= solved)) {}
            watched.wait(0);
            each<4>([&](auto i) {
                C::put(own + group[2] + i * PITCH, T(0));
                if (keeps) C::put(keep + deep[2] + i * PITCH, T(0));
            });
            __syncwarp();
            if (lane == 0) publish(mine, 1);
            T held[COUNT + 1][3], last[2] = {T(0), T(0)};
            each<COUNT>([&](auto c) { held[c][0] = held[c][1] = held[c][2] = T(0); });
            u32 room = rooms + w * ROOM_B + lane * SIZE, b_turn = 0;
            int y = j * LINES + a - G::SHEAR * plane;
            int now_x = y >= 0 && y < ny && tile * PLANES + plane < g.nz ? -G::BY_LINE * a - G::BY_PLANE * plane : -(1 << 29);
            for (int k = 1; k < batches; k++) {
                T s[4], lead[COUNT + 1][4], value[4][WIDTH + 1];
                if (k & 1) {
                    u32 chunk = used / 2;
                    b_turn = chunk % ROOMS * 8;
                    await_copy(bar + (depth + chunk % ROOMS) * 8, chunk / ROOMS & 1);
                } else b_turn += 4;
                each<4>([&](auto i) { s[i] = C::ring(room + (b_turn + i) * PITCH); });
                u32 at = stage + slot * STAGE;
                await_copy(bar + slot * 8, parity);
                auto load = [&](auto i, auto u) {
                    if constexpr (2 * u + 1 < WIDTH) {
                        auto two = C::two(at + lane * 2 * SIZE + (i * WIDTH + 2 * u) * ROW);
                        value[i][2 * u] = two.x;
                        value[i][2 * u + 1] = two.y;
                    } else {
                        value[i][2 * u] = C::one(at + lane * SIZE + (i * WIDTH + 2 * u) * ROW);
                    }
                };
                constexpr int PAIRS = (WIDTH + 1) / 2, AHEAD = WIDTH <= 8 ? PAIRS : 2;
                each<AHEAD>([&](auto u) { each<4>([&](auto i) { load(i, u); }); });
                watched.wait(k);

                // The newest operand on line c of row i of the batch (-1: the previous row), if it is not in a register of another lane.
                auto newest = [&](auto c, auto i) {
                    constexpr int row = (int)i + G::newest(c), of = G::batch_of(row), in = row - 4 * of;
                    static_assert(of >= -3 && of <= 0, "a row that the ring's groups do not reach");
                    return C::ring(base[c] + (inside[c] ? group[3 + of] : deep[3 + of]) + in * PITCH);
                };
                if (k == 1) each<COUNT>([&](auto c) {
                    constexpr int wide = L::hi(c) - L::lo(c);
                    if constexpr (wide > 0) held[c][wide] = newest(c, Constant<-1>{});
                });
                each<COUNT>([&](auto c) { each<4>([&](auto i) { lead[c][i] = newest(c, i); }); });
                auto add = [&](auto c, auto i, auto t) {
                    constexpr int line = c, row = i, wide = L::hi(line) - L::lo(line), from_row = row + S::dx(t) - L::hi(line);
                    T operand = from_row >= 0 ? lead[c][from_row < 0 ? 0 : from_row] : held[c][wide + from_row + 1 > 0 ? wide + from_row + 1 : 0];
                    s[i] = fma_rn(-value[i][t], operand, s[i]);
                };
                // Terms that need nothing of this batch, four rows side by side.
                each<COUNT>([&](auto c) {
                    constexpr int line = c, first_term = L::first(line), terms = L::first(line + 1) - first_term;
                    each<terms>([&](auto t) {
                        constexpr int term = first_term + t, next = term / 2 + 1;
                        if constexpr (term % 2 == 0 && next >= AHEAD && next < PAIRS) each<4>([&](auto i) { load(i, Constant<next>{}); });
                        each<4>([&](auto i) {
                            if constexpr (G::early(line, i)) add(c, i, Constant<term>{});
                        });
                    });
                });
                constexpr int OTHERS = L::first(COUNT), CAME = OTHERS > 0 ? (OTHERS - 1) / 2 + 2 : 0, LATE = CAME > AHEAD ? CAME : AHEAD;
                each<PAIRS>([&](auto u) {
                    if constexpr (u >= LATE) each<4>([&](auto i) { load(i, u); });
                });
                // The other terms row by row.
                each<4>([&](auto i) {
                    constexpr int step = i;
                    each<COUNT>([&](auto c) {
                        constexpr int line = c, row = step + G::newest(line), first_term = L::first(line), terms = L::first(line + 1) - first_term;
                        if constexpr (row >= 0) {
                            T operand = __shfl_up_sync(ALL, s[row], -(G::da(line) + LINES * L::dz(line)));
                            lead[c][step] = inside[c] ? operand : lead[c][step];
                        }
                        if constexpr (!G::early(line, step)) each<terms>([&](auto t) { add(c, Constant<step>{}, Constant<first_term + t>{}); });
                    });
                    auto before = [&](auto row) {
                        if constexpr (row >= 0) return s[row];
                        else return last[row + 2];
                    };
                    if constexpr (L::own == 2) s[i] = fma_rn(-value[i][TERMS - 2], before(Constant<(int)i - 2>{}), s[i]);
                    s[i] = fma_rn(-value[i][TERMS - 1], before(Constant<(int)i - 1>{}), s[i]);
                    s[i] *= value[i][TERMS];
                    // Other lanes must read zeros beside a line.
                    s[i] = (u32)(now_x + i) < (u32)nx ? s[i] : T(0);
                    C::put(own + group[3] + i * PITCH, s[i]);
                    if (keeps) C::put(keep + deep[3] + i * PITCH, s[i]);
                });
                __syncwarp();
                if (lane == 0) publish(mine, k + 1);
                if (near[SAME]) each<4>([&](auto i) { C::hand(near[SAME] + ((k & (NEAR / 4 - 1)) * 4 + i) * SLOTS, first_mark + k, s[i]); });
                if (near[NEXT]) each<4>([&](auto i) { C::hand(near[NEXT] + ((k & (NEAR / 4 - 1)) * 4 + i) * (8 * C::SLOT), first_mark + k, s[i]); });
                if (G::need(1, 1) > G::NONE && near[PREVIOUS]) each<4>([&](auto i) { C::hand(near[PREVIOUS] + ((k & (NEAR / 4 - 1)) * 4 + i) * SLOTS, first_mark + k, s[i]); });
                if (far) {
                    each<4>([&](auto i) { Slot<T>::put(far + i * (HANDED * Slot<T>::WORDS), tag, s[i]); });
                    far += 4 * HANDED * Slot<T>::WORDS;
                }
                each<COUNT>([&](auto c) {
                    constexpr int wide = L::hi(c) - L::lo(c);
                    if constexpr (wide > 0) held[c][wide] = lead[c][3];
                    if constexpr (wide > 1) held[c][wide - 1] = lead[c][2];
                });
                last[0] = s[2];
                last[1] = s[3];
                ahead(slot);
                used++;
                slot++;
                if (slot == depth) {
                    slot = 0;
                    parity ^= 1;
                }
                each<3>([&](auto i) { group[i] = group[i + 1], deep[i] = deep[i + 1]; });
                group[3] = group[3] + 4 * PITCH == RING * 4 * PITCH ? 0 : group[3] + 4 * PITCH;
                deep[3] = deep[3] + 4 * PITCH == g.deep * 4 * PITCH ? 0 : deep[3] + 4 * PITCH;
                now_x += 4;
            }
        }
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
    u32 deep = g.deep * 4 * W::PITCH, sets = g.warps + (g.parts > 1), takers = g.parts > 1 ? g.warps + 2 : g.warps;
    u32 zero = near(room), rings = zero, kept = rings + g.warps * (W::RING * 4 * W::PITCH);
    u32 copies = kept + (sets + 3) / 4 * deep, rooms = copies + (sets + W::SHARE - 1) / W::SHARE * deep;
    u32 stages = (rooms + g.warps * W::ROOM_B + 127) / 128 * 128, bars = stages + g.warps * g.depth * W::STAGE;
    u32 slots = (bars + g.warps * (g.depth + W::ROOMS) * 8 + 15) / 16 * 16, progress = slots + takers * (NEAR * W::SLOTS);
    u32 moved = progress + 2 * g.blocks * 4, taken = moved + g.warps * 4, end = taken + 3 * g.blocks * 4;
    for (u32 at = zero + threadIdx.x * 4; at < rooms; at += blockDim.x * 4) clear(at, 0);
    for (u32 at = slots + threadIdx.x * 4; at < progress; at += blockDim.x * 4) clear(at, 0);
    for (u32 i = threadIdx.x; i < g.warps * (g.depth + W::ROOMS); i += blockDim.x)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bars + i * 8), "r"(i % (g.depth + W::ROOMS) < g.depth ? 1 : 32) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    u32 warp = __shfl_sync(ALL, threadIdx.x / 32, 0), tag = *(volatile u32*)(state + 2) + 1, used = 0, before[2] = {0, 0};
    W at{g, rings, kept, copies, rooms, stages, bars, slots, progress, moved, taken, threadIdx.x % 32, special_rank(), special_crew(), tag, 0, 0, 0, g.warps * g.parts};
    at.part = at.rank % g.parts;
    for (;;) {
        cluster_meet();
        if (at.rank == 0 && threadIdx.x == 0) {
            u32 ticket = atomicAdd(state, 1u);
            for (u32 r = 0; r < at.crew; r++) tell(there(near(&drawn), r), ticket);
        }
        for (u32 to = taken + threadIdx.x * 4; to < end; to += blockDim.x * 4) clear(to, 0);
        cluster_meet();
        u32 first = *(volatile u32*)&drawn * (at.crew / g.parts);
        if (first >= g.tiles) break;
        at.seq++;
        at.tile = first + at.rank / g.parts;
        // Nobody waits for what lies before the grid.
        for (u32 i = threadIdx.x; i < 2 * g.blocks + g.warps; i += blockDim.x)
            clear(progress + i * 4, i >= g.blocks && i < 2 * g.blocks && at.tile == 0 ? (int)g.batches : 0);
        __syncthreads();
        if (at.tile >= g.tiles) continue;
        if (warp < g.warps) at.solve(warp, used, values, exchange);
        else if (warp < g.warps + takers) at.take_over(warp - g.warps, exchange);
        else at.move(warp - g.warps - takers, before, b, x);
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

// Moves a row's entries to the places of their terms; `values` held zeros.
template <class T>
__device__ __forceinline__ void pack(const Wavefront& g, const Terms& terms, const u32* row_ptr, const u32* cols, const T* from, const T* inv_diag, T* values) {
    u64 n = (u64)g.nx * g.ny * g.nz;
    u32 width = terms.count + 1;
    auto place = [&](u64 row, u32 k) {
        u32 x = (u32)(row % g.nx), z = (u32)(row / g.nx / g.ny), plane = z % PLANES, y = (u32)(row / g.nx % g.ny) + g.shear * plane, a = y % LINES;
        u32 t = x + g.by_line * a + g.by_plane * plane, lane = plane * LINES + a;
        T* at = values + z / PLANES * g.tile_values + ((u64)(y / LINES) * (4 * (g.batches - 1)) + t) * (width * 32);
        return k < width / 2 * 2 ? at + k / 2 * 64 + lane * 2 + k % 2 : at + width / 2 * 64 + lane;
    };
    for (u64 r = (u64)blockIdx.x * blockDim.x + threadIdx.x; r < n; r += (u64)gridDim.x * blockDim.x) {
        u64 self = g.mirrored ? n - 1 - r : r;
        for (u32 e = row_ptr[r]; e < row_ptr[r + 1]; e++) {
            if (cols[e] == r) continue;
            u64 operand = g.mirrored ? n - 1 - cols[e] : cols[e];
            int x = (int)(self % g.nx), y = (int)(self / g.nx % g.ny), z = (int)(self / g.nx / g.ny);
            int dx = (int)(operand % g.nx) - x, dy = (int)(operand / g.nx % g.ny) - y, dz = (int)(operand / g.nx / g.ny) - z;
            for (u32 k = 0; k < terms.count; k++)
                if (terms.dx[k] == dx && terms.dy[k] == dy && terms.dz[k] == dz) *place(self, k) = from[e];
        }
        *place(self, terms.count) = inv_diag ? inv_diag[r] : T(1);
    }
}

// From the packed values of a system to those of the transposed one, one warp per row of the layout. Term k of a point is term k of the mirrored
// image of its neighbour, and values that are side by side in one layout are so in the other. Every place is written.
template <class T>
__device__ __forceinline__ void mirror(const Wavefront& g, const Terms& terms, const T* __restrict__ from, T* __restrict__ to) {
    struct alignas(2 * sizeof(T)) Pair { T x, y; };
    u32 lane = threadIdx.x % WARP, plane = lane / LINES, a = lane % LINES, width = terms.count + 1, rows = 4 * (g.batches - 1), all = rows * g.blocks * g.tiles;
    for (u32 at = (blockIdx.x * blockDim.x + threadIdx.x) / WARP; at < all; at += gridDim.x * blockDim.x / WARP) {
        u32 x = at % rows - g.by_line * a - g.by_plane * plane, block = at / rows, y = block % g.blocks * LINES + a - g.shear * plane, z = block / g.blocks * PLANES + plane;
        bool on = x < g.nx && y < g.ny && z < g.nz;
        // For a unit diagonal the reciprocals are ones as well.
        auto value = [&](u32 k) {
            u32 xx = x, yy = y, zz = z;
            if (k < terms.count) xx += (u32)terms.dx[k], yy += (u32)terms.dy[k], zz += (u32)terms.dz[k];
            if (!on || xx >= g.nx || yy >= g.ny || zz >= g.nz) return T(0);
            xx = g.nx - 1 - xx, yy = g.ny - 1 - yy, zz = g.nz - 1 - zz;
            u32 of_plane = zz % PLANES, line = yy + g.shear * of_plane, of_line = line % LINES, lane = of_plane * LINES + of_line;
            u64 row = (u64)(zz / PLANES * g.blocks + line / LINES) * rows + xx + g.by_line * of_line + g.by_plane * of_plane;
            return __ldg(from + row * (width * 32) + (k < width / 2 * 2 ? k / 2 * 64 + lane * 2 + k % 2 : width / 2 * 64 + lane));
        };
        T* row = to + (u64)at * (width * 32);
#pragma unroll 4
        for (u32 u = 0; u < width / 2; u++) ((Pair*)(row + u * 64))[lane] = {value(2 * u), value(2 * u + 1)};
        if (width % 2) row[width / 2 * 64 + lane] = value(width - 1);
    }
}

// The most threads, as in crates/backend-cuda/src/sweep/wavefront.rs.
#define WAVEFRONT(T, t, POINTS)                                                                  \
    extern "C" __global__ void __launch_bounds__(384, 1) sptrsv##POINTS##_wavefront_##t(const __grid_constant__ Wavefront g, const T* values, const T* b, T* x, u64* exchange, u32* state, const Monitor* gate) { \
        waves<T, POINTS>(g, values, b, x, exchange, state, gate);                                \
    }
#define WAVEFRONTS(T, t)                                                                         \
    WAVEFRONT(T, t, 7) WAVEFRONT(T, t, 13) WAVEFRONT(T, t, 15) WAVEFRONT(T, t, 19) WAVEFRONT(T, t, 27) WAVEFRONT(T, t, 33) \
    extern "C" __global__ void __launch_bounds__(256) pack_wavefront_##t(const __grid_constant__ Wavefront g, const __grid_constant__ Terms terms, const u32* row_ptr, const u32* cols, const T* from, const T* inv_diag, T* values) { \
        pack(g, terms, row_ptr, cols, from, inv_diag, values);                                   \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) mirror_wavefront_##t(const __grid_constant__ Wavefront g, const __grid_constant__ Terms terms, const T* from, T* to) { \
        mirror(g, terms, from, to);                                                              \
    }
FOR_EACH_TYPE(WAVEFRONTS)

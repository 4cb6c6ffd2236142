// Moves the values of one side of a CSR matrix on a grid to where the sweeps read them.
//
// Layout: packed values are those of kernels/sweep.cu, by plane, step and term, the reciprocal of the diagonal last, zeros elsewhere; or those of
// kernels/wavefront.cu, where a block of its layout takes the role of a plane, and a row that of a step. Every place is written.
// Grid: fill: a thread block takes 32 lanes and `deep` steps of a plane through shared memory, 33 values for each step and term; `deep` is at
// most 8, a power of two. pack: as fill.
// Order: none is summed. A reciprocal is rounded once.
// Bytes: fill reads row pointers, values of the side, and writes every place once (no column if every row holds all of its neighbours); pack row
// pointers, columns and values of the side, and every place once.
#pragma once
#include "side.cuh"

#define LANES 32u

// Where the sweep has its values, and the lower terms of its stencil. Twin: `PlacesArg` of crates/backend-cuda/src/sweep/resident.rs.
struct Places {
    u32 nx, ny;       // points of a line, lines of a plane of the grid
    u32 lines;        // of the grid
    u32 plane_lines;  // of a plane (strip) of the layout
    u32 planes;
    u32 sigma, lanes;
    u32 period;       // steps between a lane's lines
    u32 steps;        // of a plane
    u32 width;        // terms and, unless unit, the reciprocal
    u32 terms;
    u32 magic;        // floor(2^32 / width) + 1; not used for a width of 1
    u32 deep;         // steps of a tile
    u32 mirrored;
    u32 blocks;       // of a tile in kernels/wavefront.cu's layout, 0 in the other
    u32 by_line, by_plane, shear;  // in that layout
    u32 unit;         // in that layout, if the reciprocals are ones
    u32 unused;       // for the alignment
    u64 plane_values;
    int dx[SIDE_MOST], dy[SIDE_MOST], dz[SIDE_MOST], shift[SIDE_MOST];
};

// What is known of a point: its terms inside the grid, its row's entries. There are no terms if there is no point.
struct Point {
    u64 inside;
    u32 row, first, last;
};

// The points of a tile, one thread each: `inverses` are the reciprocals of their diagonals, 0 if there is no point.
template <class T>
__device__ __forceinline__ void meet_points(const Places& g, const u32* row_ptr, const u32* cols, const T* from, u32 n, bool whole, u32 plane, u32 step0, u32 lane0, Point* points, T* inverses, u64* zero) {
    u32 mine = lane0 + threadIdx.x / g.deep, step = step0 + threadIdx.x % g.deep;
    Point p = {0, 0, 0, 0};
    T inverse = T(0);
    u32 x = 0;
    u64 line = g.lines;
    if (mine < g.lanes && step < g.steps) {
        if (g.blocks) {
            // A place before a line's first point wraps to one behind its last.
            u32 of_plane = mine / 8, of_line = mine % 8, y = plane % g.blocks * 8 + of_line - g.shear * of_plane;
            x = step - g.by_line * of_line - g.by_plane * of_plane;
            if (y < g.ny) line = (u64)(plane / g.blocks * 4 + of_plane) * g.ny + y;
        } else {
            i64 since = (i64)step - (i64)g.sigma * mine;
            if (since >= 0) {
                u32 turn = (u32)since / g.period;
                u64 in_plane = mine + (u64)turn * g.lanes;
                x = (u32)since - turn * g.period;
                if (in_plane < g.plane_lines) line = (u64)plane * g.plane_lines + in_plane;
            }
        }
        if (x < g.nx && line < g.lines) {
            u32 y = (u32)line % g.ny, r = (u32)line * g.nx + x;
            int z = (int)((u32)line / g.ny);
            for (u32 k = 0; k < g.terms; k++) {
                // No term leads to a later plane.
                bool inside = x + (u32)g.dx[k] < g.nx && y + (u32)g.dy[k] < g.ny && z + g.dz[k] >= 0;
                p.inside |= (u64)inside << k;
            }
            p.row = g.mirrored ? n - 1 - r : r;
            p.first = row_ptr[p.row];
            p.last = row_ptr[p.row + 1];
            if (g.unit) {
                inverse = T(1);
            } else if (g.width > g.terms) {
                u32 before = (u32)__popcll(p.inside), e;
                bool found;
                if (whole) {
                    found = before < p.last - p.first;
                    e = g.mirrored ? p.last - 1 - before : p.first + before;
                } else {
                    e = lower_bound(cols, p.first, p.last, p.row);
                    found = e < p.last && cols[e] == p.row;
                }
                T d = found ? from[e] : T(1);
                if (d == T(0)) report(zero, p.row);
                inverse = T(1) / d;
            }
        }
    }
    points[threadIdx.x] = p;
    inverses[threadIdx.x] = inverse;
}

// Points of a thread block's lanes whose values a warp has in flight.
#define ABREAST (LANES / (GRID_THREADS / WARP))
#define NO_ENTRY 0xffffffffu

// Two neighbours that are stored at once.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
    T x, y;
};

template <class T>
__device__ __forceinline__ void fill(const Places& g, const u32* row_ptr, const u32* cols, const T* from, u32 n, u64* words, T* values) {
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    __shared__ Point points[GRID_THREADS];
    __shared__ T inverses[GRID_THREADS];
    T* tile = (T*)dynamic_shared;
    if (((volatile u64*)words)[OUTSIDE]) return;
    bool whole = !((volatile u64*)words)[LACKING];
    u32 blocks_x = (g.lanes + LANES - 1) / LANES, blocks_s = (g.steps + g.deep - 1) / g.deep;
    u64 tiles = (u64)blocks_x * blocks_s * g.planes;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row_values = g.deep * g.width;
    for (u64 at = blockIdx.x; at < tiles; at += gridDim.x) {
        u32 lane0 = (u32)(at % blocks_x) * LANES, rest = (u32)(at / blocks_x), step0 = rest % blocks_s * g.deep, plane = rest / blocks_s;
        if (threadIdx.x < LANES * g.deep)
            meet_points(g, row_ptr, cols, from, n, whole, plane, step0, lane0, points, inverses, words + ZERO_DIAGONAL);
        __syncthreads();
        // The values of neighbouring steps of a lane stand in neighbouring rows.
        for (u32 j = lane; j < row_values; j += WARP) {
            u32 s = g.width == 1 ? j : __umulhi(j, g.magic), k = j - s * g.width;
            T value[ABREAST];
            u32 entry[ABREAST];
#pragma unroll
            for (u32 i = 0; i < ABREAST; i++) {
                u32 which = (warp + i * (GRID_THREADS / WARP)) * g.deep + s;
                entry[i] = NO_ENTRY;
                value[i] = k < g.terms ? T(0) : inverses[which];
                const Point& p = points[which];
                if (k < g.terms && p.inside >> k & 1) {
                    if (whole) {
                        u32 before = (u32)__popcll(p.inside & ((1ull << k) - 1));
                        entry[i] = g.mirrored ? p.last - 1 - before : p.first + before;
                    } else {
                        u32 col = g.mirrored ? p.row - (u32)g.shift[k] : p.row + (u32)g.shift[k];
                        u32 e = lower_bound(cols, p.first, p.last, col);
                        if (e < p.last && cols[e] == col) entry[i] = e;
                    }
                }
            }
#pragma unroll
            for (u32 i = 0; i < ABREAST; i++)
                if (entry[i] != NO_ENTRY) value[i] = from[entry[i]];
#pragma unroll
            for (u32 i = 0; i < ABREAST; i++) tile[j * (LANES + 1) + warp + i * (GRID_THREADS / WARP)] = value[i];
        }
        __syncthreads();
        T* to = values + plane * g.plane_values + (u64)step0 * g.width * g.lanes;
        u32 steps_left = g.steps - step0 < g.deep ? g.steps - step0 : g.deep;
        if (g.blocks) {
            // Terms stand in pairs by lane, an odd one alone.
            u32 units = (g.width + 1) / 2, s = warp / units, unit = warp % units;
            while (s < steps_left) {
                const T* of = tile + (s * g.width + 2 * unit) * (LANES + 1) + lane;
                T* place = to + s * g.width * LANES + unit * (2 * LANES);
                if (2 * unit + 1 < g.width) ((Pair<T>*)place)[lane] = {of[0], of[LANES + 1]};
                else place[lane] = of[0];
                for (unit += GRID_THREADS / WARP; unit >= units; unit -= units) s++;
            }
        } else if (lane0 + lane < g.lanes) {
            for (u32 j = warp; j < steps_left * g.width; j += GRID_THREADS / WARP) to[(u64)j * g.lanes + lane0 + lane] = tile[j * (LANES + 1) + lane];
        }
        __syncthreads();
    }
}

// What packing knows of a point: its terms inside the grid, its diagonal as the term after them, its row (NO_ROW: there is no point), and its
// entries: `base` is where the first term is, from which those of an upper triangle descend, `end` bounds them.
struct Spot { u32 inside, row, base, end; };

// Check and fill in one pass, into the layout of kernels/wavefront.cu, for a side that holds its whole stencil in every row: where a row's
// entries are follows from its number alone. A missing entry, or one anywhere else, is reported as LACKING, whatever it is, and ends
// the pass: the packed values are then discarded, and check says what is wrong.
template <class T>
__device__ __forceinline__ void pack_proving(const Places& g, const u32* row_ptr, const u32* cols, const T* from, u32 n, u64* words, T* values) {
    extern __shared__ __align__(16) unsigned char dynamic_shared[];
    __shared__ Spot spots[GRID_THREADS];
    __shared__ int shifts[SIDE_MOST];
    T* tile = (T*)dynamic_shared;
    u32 steps = (g.steps + g.deep - 1) / g.deep, planes = g.lines / g.ny, tiles = g.planes / g.blocks;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row_values = g.deep * g.width;
    u32 line = threadIdx.x / g.deep % 8, plane = threadIdx.x / g.deep / 8, deep = threadIdx.x % g.deep;
    if (threadIdx.x < g.terms) shifts[threadIdx.x] = g.shift[threadIdx.x];
    // Terms that lead at least this far along an axis, in one direction (at most two points; no term leads to a later plane) and in the other.
    auto far = [&](const int* along, int least, int most) {
        u32 those = 0;
        for (u32 k = 0; k < g.terms; k++) those |= (u32)(along[k] >= least && along[k] <= most) << k;
        return those;
    };
    u32 back_x[2] = {far(g.dx, -2, -1), far(g.dx, -2, -2)}, ahead_x[2] = {far(g.dx, 1, 2), far(g.dx, 2, 2)}, back_z[2] = {far(g.dz, -2, -1), far(g.dz, -2, -2)};
    u32 back_y[2] = {far(g.dy, -2, -1), far(g.dy, -2, -2)}, ahead_y[2] = {far(g.dy, 1, 2), far(g.dy, 2, 2)};
    // A tile of places: some steps of a block of a tile of the layout. Thread blocks advance by `stride`.
    struct Tile { u32 step, block, tile; };
    auto tile_of = [&](u32 at) { return Tile{at % steps, at / steps % g.blocks, at / steps / g.blocks}; };
    Tile now = tile_of(blockIdx.x), stride = tile_of(gridDim.x);
    auto go_on = [&](Tile t) {
        t.step += stride.step, t.block += stride.block, t.tile += stride.tile;
        if (t.step >= steps) t.step -= steps, t.block++;
        if (t.block >= g.blocks) t.block -= g.blocks, t.tile++;
        return t;
    };
    // The row pointers of a tile's points are in flight while the previous tile is packed.
    auto meet = [&](const Tile& t) {
        Spot spot = {0, NO_ROW, 0, 0};
        u32 step = t.step * g.deep + deep;
        // A place before a line's first point wraps to one behind its last.
        u32 x = step - g.by_line * line - g.by_plane * plane, y = t.block * 8 + line - g.shear * plane, z = t.tile * 4 + plane;
        if (t.tile < tiles && plane < 4 && step < g.steps && x < g.nx && y < g.ny && z < planes) {
            u32 outside = (x < 1 ? back_x[0] : x < 2 ? back_x[1] : 0) | (x + 1 >= g.nx ? ahead_x[0] : x + 2 >= g.nx ? ahead_x[1] : 0);
            outside |= (y < 1 ? back_y[0] : y < 2 ? back_y[1] : 0) | (y + 1 >= g.ny ? ahead_y[0] : y + 2 >= g.ny ? ahead_y[1] : 0);
            outside |= z < 1 ? back_z[0] : z < 2 ? back_z[1] : 0;
            spot.inside = ((1u << g.terms) - 1) & ~outside;
            u32 row = (z * g.ny + y) * g.nx + x;
            spot.row = g.mirrored ? n - 1 - row : row;
            spot.base = row_ptr[spot.row], spot.end = row_ptr[spot.row + 1];
        }
        return spot;
    };
    Spot next = meet(now);
    bool wrong = false, stopped = false;
    u32 units = (g.width + 1) / 2, first_s = warp / units, first_unit = warp % units, more_s = GRID_THREADS / WARP / units, more_units = GRID_THREADS / WARP % units;
    while (now.tile < tiles) {
        Tile after = go_on(now);
        if (next.row != NO_ROW) {
            u32 terms = (u32)__popc(next.inside), entries = next.end - next.base;
            // The entry after the terms is the diagonal's. If the diagonal counts as 1, it may be another entry, of the other side, or none.
            if (entries < terms + !g.unit) {
                wrong = true;
                next.inside = 0;
            } else if (entries > terms) {
                next.inside |= 1u << g.terms;
            }
            if (g.mirrored) next.base = next.end - 1;
        }
        spots[threadIdx.x] = next;
        if (wrong) *(volatile u64*)(words + LACKING) = ~0ull;
        if (__syncthreads_or(wrong || stopped)) return;
        stopped = *(volatile u64*)(words + LACKING) != 0;
        next = meet(after);
        for (u32 j = lane; j < row_values; j += WARP) {
            u32 s = __umulhi(j, g.magic), k = j - s * g.width, col[ABREAST], row[ABREAST], has = 0;
            T value[ABREAST];
#pragma unroll
            for (u32 i = 0; i < ABREAST; i++) {
                const Spot& p = spots[(warp + i * (GRID_THREADS / WARP)) * g.deep + s];
                u32 before = (u32)__popc(p.inside & ((1u << k) - 1)), e = g.mirrored ? p.base - before : p.base + before;
                row[i] = p.row, col[i] = 0, value[i] = T(0);
                if (p.inside >> k & 1) {
                    has |= 1u << i;
                    value[i] = stream(from + e);
                    col[i] = stream(cols + e);
                }
            }
#pragma unroll
            for (u32 i = 0; i < ABREAST; i++) {
                bool here = has >> i & 1;
                if (k < g.terms) {
                    wrong |= here && col[i] != (g.mirrored ? row[i] - (u32)shifts[k] : row[i] + (u32)shifts[k]);
                } else if (g.unit) {
                    wrong |= here && (g.mirrored ? col[i] > row[i] : col[i] < row[i]);
                    value[i] = row[i] != NO_ROW ? T(1) : T(0);
                } else {
                    wrong |= here && col[i] != row[i];
                    if (here && value[i] == T(0)) report(words + ZERO_DIAGONAL, row[i]);
                }
                tile[j * (LANES + 1) + warp + i * (GRID_THREADS / WARP)] = value[i];
            }
        }
        __syncthreads();
        // Terms stand in pairs by lane, an odd one alone.
        u32 step = now.step * g.deep, left = g.steps - step < g.deep ? g.steps - step : g.deep, s = first_s, unit = first_unit;
        T* to = values + (now.tile * g.blocks + now.block) * g.plane_values + (u64)step * g.width * LANES;
        while (s < left) {
            const T* of = tile + (s * g.width + 2 * unit) * (LANES + 1) + lane;
            T* place = to + s * g.width * LANES + unit * (2 * LANES);
            // If there is no point, the reciprocal is 0 as well.
            auto stored = [&](u32 k, T v) { return k < g.terms || v == T(0) ? v : T(1) / v; };
            if (2 * unit + 1 < g.width) ((Pair<T>*)place)[lane] = {of[0], stored(2 * unit + 1, of[LANES + 1])};
            else place[lane] = stored(2 * unit, of[0]);
            s += more_s, unit += more_units;
            if (unit >= units) unit -= units, s++;
        }
        now = after;
    }
    if (wrong) *(volatile u64*)(words + LACKING) = ~0ull;
}

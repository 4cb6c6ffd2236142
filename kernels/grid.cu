// A CSR matrix on the device as a stencil on a grid: rows to guess it from, the proof of a guess, one triangle's values in the layout of the
// sweep, for a whole stencil both in one pass, and of a matrix that holds all of its stencil the patterns of both triangles and the order of the rows by levels.
//
// Layout: the side of a row is its entries on one side of the diagonal, the diagonal's included: the first ones of a row for a lower
// triangle, the last ones for an upper one. `Sides` has its differences in the order of the columns. Packed values: those of
// kernels/sweep.cu, by plane, step and term, the reciprocal of the diagonal last, zeros elsewhere; or those of kernels/wavefront.cu, a block
// of its layout standing for a plane, a row for a step. Every place is written.
// sample: SAMPLE_WORDS words a row: entries of the side (more than SAMPLE_COLS are not counted), whether there are others, columns.
// Reports: a word each, 0 for none, else the complement of the smallest row (of what is outside: row, then column, 32 bits each), so
// that zeroed words are ready and the largest wins: OUTSIDE, LACKING, WITHOUT_DIAGONAL, ZERO_DIAGONAL.
// Grid: any number of thread blocks of 256. check: a warp takes 8 times 32 rows, entries side by side where all of them are the inner points
// of one line and hold the whole pattern, a row a lane otherwise. fill: a thread block takes 32 lanes and `deep` steps of a plane through
// shared memory, 33 values for each step and term; `deep` is 8 or less, a power of two. pack: as fill. split, order, reciprocals: a
// row a thread.
// Order: none is summed. A reciprocal is rounded once.
// Bytes: check row pointers and columns once; fill row pointers, values of the side, and every place once (no column, where every row
// holds all of its neighbours); pack row pointers, columns and values of the side, and every place once.
#include "spandrel.cuh"

// Differences of one side, its diagonal included, and of both.
#define SIDE_MOST 41
#define BOTH_MOST 81
#define SAMPLE_COLS 44u
#define SAMPLE_WORDS 46u
#define GRID_THREADS 256
#define LANES 32u
// Groups of 32 rows that a warp takes one after the other: they often lie on one line.
#define RUN 8u

#define OUTSIDE 0
#define LACKING 1
#define WITHOUT_DIAGONAL 2
#define ZERO_DIAGONAL 3
#define NO_ROW 0xffffffffu

// Twin: `SidesArg` of crates/backend-cuda/src/sweep/resident.rs.
struct Sides {
    u32 nx, ny, nz;
    u32 before, after;  // how far the pattern reaches along a line
    u32 upper;          // whether the side is the upper one
    u32 count;          // differences of the side, the diagonal's among them
    u32 both;           // of the pattern of whole rows: what is first looked for
    u32 holds_diagonal; // whether the pattern has the diagonal
    int dx[SIDE_MOST], dy[SIDE_MOST], dz[SIDE_MOST], shift[SIDE_MOST];
    int both_dy[BOTH_MOST], both_dz[BOTH_MOST], both_shift[BOTH_MOST];
};

// Where the sweep has its values, and the terms of its stencil, lower. Twin: `PlacesArg` of crates/backend-cuda/src/sweep/resident.rs.
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
    u32 unit;         // in that layout, where the reciprocals are ones
    u32 unused;       // for the alignment
    u64 plane_values;
    int dx[SIDE_MOST], dy[SIDE_MOST], dz[SIDE_MOST], shift[SIDE_MOST];
};

// The smallest row (in the high half) stays.
__device__ __forceinline__ void report(u64* word, u64 key) {
    if (~key > *(volatile u64*)word) atomicMax(word, ~key);
}

// As `report` for the smallest of the warp's rows, NO_ROW for none. The whole warp.
__device__ __forceinline__ void report_least(u64* word, u32 row) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        u32 other = __shfl_xor_sync(ALL, row, d);
        if (other < row) row = other;
    }
    if (row != NO_ROW && threadIdx.x % WARP == 0) report(word, row);
}

// The first of the ascending entries from..end with a column not below `col`.
__device__ __forceinline__ u32 lower_bound(const u32* cols, u32 from, u32 end, u32 col) {
    while (from < end) {
        u32 middle = from + (end - from) / 2;
        if (cols[middle] < col) from = middle + 1;
        else end = middle;
    }
    return from;
}

// Windows of 16 rows at these parts of 2^16 of the rows; all rows of a matrix of at most 256.
__device__ __forceinline__ u32 sampled_row(u32 n, u32 at) {
    if (n <= 256) return at;
    u32 window = at / 16, begin = (u32)((u64)(n - 16) * ((window * 40503u + 24593u) & 0xffffu) >> 16);
    return begin + at % 16;
}

// Rows of a sample, a thread each; and, by the thread blocks after the first, the first of 65,535 rows that lacks the entry next to the
// diagonal: its complement in *line, a word that was 0.
__device__ __forceinline__ void sample(const u32* row_ptr, const u32* cols, u32 n, u32 upper, u32* out, u32* line) {
    if (blockIdx.x == 0) {
        u32 at = threadIdx.x, row = sampled_row(n, at);
        if (at >= n) return;
        u32 first = row_ptr[row], last = row_ptr[row + 1], from = first, end = last;
        if (upper) from = lower_bound(cols, first, last, row);
        else end = lower_bound(cols, first, last, row + 1);
        u32 count = end - from;
        u32* to = out + at * SAMPLE_WORDS;
        to[0] = count;
        to[1] = count < last - first;
        for (u32 k = 0; k < count && k < SAMPLE_COLS; k++) to[2 + k] = cols[from + k];
        return;
    }
    u32 end = n - 1 < 65535u ? n - 1 : 65535u;
    for (u32 i = (blockIdx.x - 1) * blockDim.x + threadIdx.x; i < end; i += (gridDim.x - 1) * blockDim.x) {
        u32 row = upper ? i : i + 1, col = upper ? i + 1 : i;
        u32 last = row_ptr[row + 1], e = lower_bound(cols, row_ptr[row], last, col);
        if (e == last || cols[e] != col) {
            if (~i > *(volatile u32*)line) atomicMax(line, ~i);
            return;
        }
    }
}

// A row's side against its differences: LACKING and WITHOUT_DIAGONAL as bits; `outside` is an entry's column.
__device__ __forceinline__ u32 check_row(const Sides& s, const int* shifts, const u32* cols, u32 row, u32 first, u32 last, bool& is_outside, u32& outside) {
    u32 x = row % s.nx, line = row / s.nx, y = line % s.ny, z = line / s.ny;
    u64 left = 0, diagonal = 0;
    for (u32 k = 0; k < s.count; k++) {
        bool inside = x + (u32)s.dx[k] < s.nx && y + (u32)s.dy[k] < s.ny && z + (u32)s.dz[k] < s.nz;
        left |= (u64)inside << k;
        if ((s.dx[k] | s.dy[k] | s.dz[k]) == 0) diagonal = 1ull << k;
    }
    if (s.upper) first = lower_bound(cols, first, last, row);
    u32 says = 0;
    bool has = false;
    for (u32 e = first; e < last; e++) {
        u32 col = cols[e];
        if (!s.upper && col > row) break;
        bool found = false;
        while (left && !found) {
            u32 k = (u32)__ffsll((i64)left) - 1;
            u32 place = row + (u32)shifts[k];
            if (place > col) break;
            u64 bit = left & (0 - left);
            left ^= bit;
            found = place == col;
            if (bit == diagonal) has = found;
            else if (!found) says |= 1u << LACKING;
        }
        if (!found) {
            is_outside = true;
            outside = col;
            break;
        }
    }
    if (left & ~diagonal) says |= 1u << LACKING;
    return has ? says : says | 1u << WITHOUT_DIAGONAL;
}

__device__ __forceinline__ void check(const Sides& s, const u32* row_ptr, const u32* cols, u32 n, u64* words) {
    __shared__ int shifts[SIDE_MOST];
    __shared__ int patterns[GRID_THREADS / WARP][BOTH_MOST + 15];
    int* pattern = patterns[threadIdx.x / WARP];
    u32 lane = threadIdx.x % WARP;
    if (threadIdx.x < s.count) shifts[threadIdx.x] = s.shift[threadIdx.x];
    __syncthreads();
    u32 groups = n / WARP + (n % WARP != 0), warps = gridDim.x * (GRID_THREADS / WARP), lacking = NO_ROW, without = NO_ROW;
    // The line that `pattern` is of, its entries, and of the lane's first one the row and the place in it.
    u32 aimed = NO_ROW, width = 0, lane_row = 0, lane_k = 0, step_rows = 0, step_k = 0, x = 0, line = 0;
    u32 runs = groups / RUN + (groups % RUN != 0), mine = blockIdx.x * (GRID_THREADS / WARP) + threadIdx.x / WARP;
    for (u32 turn = 0, run = mine; run < runs; turn++) {
        u32 group = run * RUN + turn % RUN;
        if (turn % RUN == RUN - 1) run += warps;
        if (group >= groups) continue;
        u32 head = group * WARP, row = head + lane, first = 0, last = 0;
        if (row < n) {
            first = row_ptr[row];
            last = row_ptr[row + 1];
        }
        if (turn % RUN == 0) {
            x = head % s.nx;
            line = head / s.nx;
        } else if ((x += WARP) >= s.nx) {
            line += x / s.nx;
            x %= s.nx;
        }
        bool fits = x >= s.before && x + (WARP - 1) + s.after < s.nx && head + WARP <= n;
        if (fits && line != aimed) {
            u32 y = line % s.ny, z = line / s.ny;
            aimed = line;
            width = 0;
            __syncwarp();
            for (u32 from = 0; from < s.both; from += WARP) {
                u32 k = from + lane;
                bool inside = k < s.both && y + (u32)s.both_dy[k] < s.ny && z + (u32)s.both_dz[k] < s.nz;
                u32 all = __ballot_sync(ALL, inside);
                if (inside) pattern[width + __popc(all & ((1u << lane) - 1))] = s.both_shift[k];
                width += __popc(all);
            }
            __syncwarp();
            if (width > 0) {
                step_rows = WARP / width;
                step_k = WARP % width;
                lane_row = lane / width;
                lane_k = lane % width;
            }
        }
        if (fits) {
            u32 base = __shfl_sync(ALL, first, 0);
            bool differs = last - first != width || first != base + lane * width;
            fits = width > 0 && !__any_sync(ALL, differs);
        }
        if (fits) {
            // Entry e of the 32 rows is entry e mod width of row e / width; both go on by 32 entries at a time.
            const u32* at = cols + __shfl_sync(ALL, first, 0) + lane;
            u32 i = head + lane_row, k = lane_k, wrong = 0;
#pragma unroll 8
            for (u32 e = 0; e < width; e++) {
                wrong |= (u32)pattern[k] + i ^ at[e * WARP];
                i += step_rows;
                k += step_k;
                if (k >= width) {
                    k -= width;
                    i++;
                }
            }
            fits = !__any_sync(ALL, wrong != 0);
        }
        u32 says = 0, outside = 0;
        bool is_outside = false;
        if (fits) says = s.holds_diagonal ? 0 : 1u << WITHOUT_DIAGONAL;
        else if (row < n) says = check_row(s, shifts, cols, row, first, last, is_outside, outside);
        if (is_outside) report(words + OUTSIDE, (u64)row << 32 | outside);
        // Rows of a lane ascend.
        if (lacking == NO_ROW && says >> LACKING & 1) lacking = row;
        if (without == NO_ROW && says >> WITHOUT_DIAGONAL & 1) without = row;
    }
    // Once a warp: all of them report to the same words.
    report_least(words + LACKING, lacking);
    report_least(words + WITHOUT_DIAGONAL, without);
}

// What is known of a point: its terms inside the grid, its row's entries. No terms where there is no point.
struct Point {
    u64 inside;
    u32 row, first, last;
};

// A tile's points, a thread each: `inverses` are the reciprocals of their diagonals, 0 where there is no point.
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

// Points of a thread block's lanes that a warp has values of under way.
#define ABREAST (LANES / (GRID_THREADS / WARP))
#define NO_ENTRY 0xffffffffu

// Neighbours that are stored at once.
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
            // Terms stand in pairs by lane, an odd one by itself.
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

// What packing knows of a point: its terms inside the grid, its diagonal as the term after them, its row (NO_ROW: there is no point), and in which
// entries that lies: `base` is where the first term is, from which those of an upper triangle go down, `end` what bounds them.
struct Spot { u32 inside, row, base, end; };

// As check and fill in one pass, into the layout of kernels/wavefront.cu, for a side that holds all of its stencil in every row: where a row's
// entries are follows from their number alone. An entry anywhere else, or none, is reported as LACKING, whatever it is, and ends
// the pass: what was packed is then of no use, and check says what is wrong.
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
    // Terms that lead at least so far along an axis, one way (no further than two points; no term leads to a later plane) and the other.
    auto far = [&](const int* along, int least, int most) {
        u32 those = 0;
        for (u32 k = 0; k < g.terms; k++) those |= (u32)(along[k] >= least && along[k] <= most) << k;
        return those;
    };
    u32 back_x[2] = {far(g.dx, -2, -1), far(g.dx, -2, -2)}, ahead_x[2] = {far(g.dx, 1, 2), far(g.dx, 2, 2)}, back_z[2] = {far(g.dz, -2, -1), far(g.dz, -2, -2)};
    u32 back_y[2] = {far(g.dy, -2, -1), far(g.dy, -2, -2)}, ahead_y[2] = {far(g.dy, 1, 2), far(g.dy, 2, 2)};
    // A tile of places: a block of the layout in a tile of its, and steps of it. Thread blocks go on by `stride`.
    struct Tile { u32 step, block, tile; };
    auto tile_of = [&](u32 at) { return Tile{at % steps, at / steps % g.blocks, at / steps / g.blocks}; };
    Tile now = tile_of(blockIdx.x), stride = tile_of(gridDim.x);
    auto go_on = [&](Tile t) {
        t.step += stride.step, t.block += stride.block, t.tile += stride.tile;
        if (t.step >= steps) t.step -= steps, t.block++;
        if (t.block >= g.blocks) t.block -= g.blocks, t.tile++;
        return t;
    };
    // The row pointers of a tile's points are under way while the tile before is packed.
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
            // The entry after the terms is the diagonal's; where that counts as 1 it may be another one, of the other side, or none.
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
        // Terms stand in pairs by lane, an odd one by itself.
        u32 step = now.step * g.deep, left = g.steps - step < g.deep ? g.steps - step : g.deep, s = first_s, unit = first_unit;
        T* to = values + (now.tile * g.blocks + now.block) * g.plane_values + (u64)step * g.width * LANES;
        while (s < left) {
            const T* of = tile + (s * g.width + 2 * unit) * (LANES + 1) + lane;
            T* place = to + s * g.width * LANES + unit * (2 * LANES);
            // Where there is no point, the reciprocal is 0 as well.
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

// The lower half of a stencil that every row of a matrix has all of, inside the grid, with the diagonal. Twin: `HalfArg` of
// crates/backend-cuda/src/sweep/factors.rs.
struct Half {
    u32 nx, ny, nz;
    u32 count;          // offsets, ascending by (dz, dy, dx), each shorter than the grid along every axis
    u32 with_diagonal;  // whether the lower part ends with it; else the upper part begins with it
    int dx[SIDE_MOST], dy[SIDE_MOST], dz[SIDE_MOST], shift[SIDE_MOST];
};

// Of the coordinates 0..v those from which a step of d stays in 0..extent.
__device__ __forceinline__ u32 staying(u32 v, u32 extent, int d) {
    u32 begin = d < 0 ? (u32)-d : 0, length = extent - (u32)(d < 0 ? -d : d);
    return v <= begin ? 0 : v - begin < length ? v - begin : length;
}

__device__ __forceinline__ bool stays(u32 v, u32 extent, int d) { return v < extent && v + (u32)d < extent; }

// The points before (x, y, z) whose neighbour at this difference is inside the grid.
__device__ __forceinline__ u32 neighbours_before(const Half& h, u32 x, u32 y, u32 z, int dx, int dy, int dz) {
    u32 line = staying(h.nx, h.nx, dx), plane = line * staying(h.ny, h.ny, dy), count = staying(z, h.nz, dz) * plane;
    if (stays(z, h.nz, dz)) {
        count += staying(y, h.ny, dy) * line;
        if (stays(y, h.ny, dy)) count += staying(x, h.nx, dx);
    }
    return count;
}

// Patterns of both parts of such a matrix, a row a thread; of the lower one alone, and the places of its diagonal entries, where it has them.
__device__ __forceinline__ void split(const Half& h, u32 n, u32* lower_ptr, u32* lower_cols, u32* upper_ptr, u32* upper_cols, u32* diagonal) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at <= n; at += (u64)gridDim.x * blockDim.x) {
        // The one behind the last row is the first point of a plane behind the last.
        u32 row = (u32)at, x = row % h.nx, y = row / h.nx % h.ny, z = row / h.nx / h.ny;
        u32 lower = h.with_diagonal ? row : 0, upper = row;
        for (u32 k = 0; k < h.count; k++) {
            lower += neighbours_before(h, x, y, z, h.dx[k], h.dy[k], h.dz[k]);
            if (!h.with_diagonal) upper += neighbours_before(h, x, y, z, -h.dx[k], -h.dy[k], -h.dz[k]);
        }
        lower_ptr[row] = lower;
        if (!h.with_diagonal) upper_ptr[row] = upper;
        if (row == n) return;
        for (u32 k = 0; k < h.count; k++)
            if (stays(x, h.nx, h.dx[k]) && stays(y, h.ny, h.dy[k]) && stays(z, h.nz, h.dz[k])) lower_cols[lower++] = row + (u32)h.shift[k];
        if (h.with_diagonal) {
            diagonal[row] = lower;
            lower_cols[lower] = row;
            continue;
        }
        upper_cols[upper++] = row;
        for (u32 k = h.count; k-- > 0;)
            if (stays(x, h.nx, -h.dx[k]) && stays(y, h.ny, -h.dy[k]) && stays(z, h.nz, -h.dz[k])) upper_cols[upper++] = row - (u32)h.shift[k];
    }
}

// Rows in the order of their levels x + sigma y + tau z, a row a thread: lines stand by the level that they begin at, so those with a point in
// a level follow one another. place: where a level's rows begin, less its first line's place among the lines.
__device__ __forceinline__ void level_order(u32 nx, u32 ny, u32 sigma, u32 tau, u32 n, const u32* rank, const u32* place, u32* order) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (u64)gridDim.x * blockDim.x) {
        u32 row = (u32)at, line = row / nx, level = row % nx + sigma * (line % ny) + tau * (line / ny);
        order[place[level] + rank[line]] = row;
    }
}

// The reciprocals of the diagonal, a row a thread; 1 where a row has no entry there.
template <class T>
__device__ __forceinline__ void reciprocals(const u32* row_ptr, const u32* cols, const T* from, u32 n, T* to) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (u64)gridDim.x * blockDim.x) {
        u32 row = (u32)at, last = row_ptr[row + 1], e = lower_bound(cols, row_ptr[row], last, row);
        to[row] = T(1) / (e < last && cols[e] == row ? from[e] : T(1));
    }
}

// Structure has no type of its own; the names have one as all kernels do.
#define GRID(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS) sample_grid_##t(const u32* row_ptr, const u32* cols, u32 n, u32 upper, u32* out, u32* line) { \
        sample(row_ptr, cols, n, upper, out, line);                                              \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS, 6) check_grid_##t(const __grid_constant__ Sides sides, const u32* row_ptr, const u32* cols, u32 n, u64* words) { \
        check(sides, row_ptr, cols, n, words);                                                   \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS, 5) fill_grid_##t(const __grid_constant__ Places places, const u32* row_ptr, const u32* cols, const T* from, u32 n, u64* words, T* values) { \
        fill(places, row_ptr, cols, from, n, words, values);                                     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS, 5) pack_grid_##t(const __grid_constant__ Places places, const u32* row_ptr, const u32* cols, const T* from, u32 n, u64* words, T* values) { \
        pack_proving(places, row_ptr, cols, from, n, words, values);                             \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS) split_grid_##t(const __grid_constant__ Half half, u32 n, u32* lower_ptr, u32* lower_cols, u32* upper_ptr, u32* upper_cols, u32* diagonal) { \
        split(half, n, lower_ptr, lower_cols, upper_ptr, upper_cols, diagonal);                  \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS) order_grid_##t(u32 nx, u32 ny, u32 sigma, u32 tau, u32 n, const u32* rank, const u32* place, u32* order) { \
        level_order(nx, ny, sigma, tau, n, rank, place, order);                                  \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(GRID_THREADS) reciprocals_grid_##t(const u32* row_ptr, const u32* cols, const T* from, u32 n, T* to) { \
        reciprocals(row_ptr, cols, from, n, to);                                                 \
    }
FOR_EACH_TYPE(GRID)

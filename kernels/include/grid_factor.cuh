// Incomplete factorisations of a matrix whose rows hold a whole stencil on a grid, in the schedule of the sweep with the factors and in its
// layout (kernels/wavefront.cu): no column is read, and the rows that a row needs lie side by side for the lanes of a warp.
//
// Layout: packed values as kernels/wavefront.cu says; `pivots` has a value per place of a point, by tile, block, row and lane. `OnGrid` has the
// twin `OnGridArg` in crates/backend-cuda/src/factor.rs. Terms of an upper factor are packed for the mirrored grid.
// Progress: a warp takes a block of lines (8 of each of 4 planes) from its first row of points to its last. Give row t of block j of tile T the
// time t + 4 BLOCK_LAG j + 4 TILE_LAG T: what a point needs has an earlier time, in its own block or in one that was drawn before, because
// blocks are drawn by the time of their first row. A warp continues with a row when those blocks have reached its time: marks, one per block,
// count their rows, and are 0 before a run. A grid of one thread block suffices.
// Order: that of kernels/ic0.cu and kernels/ilu0.cu. Neighbours outside the grid count as zeros, which leave a sum as it is.
#pragma once
#include "factor.cuh"
#include "schedule.cuh"

// Threads of a thread block: one warp, so that blocks of lines spread over the multiprocessors.
#define ON_GRID_THREADS 32

// A grid in blocks, and the factors' packed values.
template <class T>
struct OnGrid {
    u32 nx, ny, nz;
    u32 blocks, tiles;  // blocks of a tile
    u32 rows;           // of a block
    T* lower;
    T* upper;  // null if the other factor is L^T
    T* pivots;
};

// The terms of a stencil that a row has in common with a row that it needs.
template <int POINTS>
struct Common {
    using S = Stencil<POINTS>;
    static constexpr int TERMS = POINTS / 2;
    // Differences of a whole row by place: lower ones, the diagonal, upper ones.
    __device__ static constexpr int dx(int f) { return f < TERMS ? S::dx(f < TERMS ? f : 0) : f == TERMS ? 0 : -S::dx(f > TERMS ? 2 * TERMS - f : 0); }
    __device__ static constexpr int dy(int f) { return f < TERMS ? S::dy(f < TERMS ? f : 0) : f == TERMS ? 0 : -S::dy(f > TERMS ? 2 * TERMS - f : 0); }
    __device__ static constexpr int dz(int f) { return f < TERMS ? S::dz(f < TERMS ? f : 0) : f == TERMS ? 0 : -S::dz(f > TERMS ? 2 * TERMS - f : 0); }
    // The place of the sum of the differences at two places, -1 if there is none.
    __device__ static constexpr int sum(int f, int g) {
        for (int h = 0; h <= 2 * TERMS; h++)
            if (dx(h) == dx(f) + dx(g) && dy(h) == dy(f) + dy(g) && dz(h) == dz(f) + dz(g)) return h;
        return -1;
    }
};

// Where the points of a line are in the layout: the row of the point at x = 0, counted from the first row of the first block, and the lane.
struct Spread {
    i64 row;
    int lane;
};

// Where neighbours are.
template <class T, int POINTS>
struct Aside {
    using L = Lines<POINTS>;
    using G = Schedule<POINTS>;
    static constexpr int TERMS = G::TERMS, WIDTH = G::WIDTH, COUNT = L::count, STEP = WIDTH * 32;

    // For a line inside the grid.
    __device__ static __forceinline__ Spread spread(const OnGrid<T>& g, int y, int z) {
        int plane = z % PLANES, at = y + G::SHEAR * plane, line = at % LINES;
        u32 block = (u32)(z / PLANES) * g.blocks + (u32)(at / LINES);
        return {(i64)block * g.rows + G::BY_LINE * line + G::BY_PLANE * plane, plane * LINES + line};
    }
    // The same in the mirrored grid, where x counts down.
    __device__ static __forceinline__ Spread mirrored(const OnGrid<T>& g, int y, int z) {
        Spread s = spread(g, (int)g.ny - 1 - y, (int)g.nz - 1 - z);
        s.row += g.nx - 1;
        return s;
    }
    // The place of the first term of a row's lane; of term k from there, if it stands in a pair; of the diagonal.
    __device__ static __forceinline__ i64 first(i64 row, int lane) { return row * STEP + lane * 2; }
    __device__ static constexpr int term(int k) { return k / 2 * 64 + k % 2; }
    __device__ static __forceinline__ int last(int lane) { return WIDTH % 2 ? WIDTH / 2 * 64 - lane : term(TERMS); }
    // Terms with this dx, a bit each.
    __device__ static constexpr u32 along(int dx) {
        u32 those = 0;
        for (int k = 0; k < TERMS; k++) those |= (u32)(Stencil<POINTS>::dx(k) == dx) << k;
        return those;
    }
    // Terms that lead out of a line from x, or with the opposite sign.
    __device__ static __forceinline__ u32 outside(int x, int nx, int sign) {
        u32 those = 0;
        each<2>([&](auto i) {
            constexpr int d = (int)i + 1;
            if constexpr (along(-d) != 0) those |= x - sign * d < 0 || x - sign * d >= nx ? along(-d) : 0;
            if constexpr (along(d) != 0) those |= x + sign * d < 0 || x + sign * d >= nx ? along(d) : 0;
        });
        return those;
    }
};

template <class T>
struct alignas(2 * sizeof(T)) Two {
    T x, y;
};

// Writes the terms of a point to their places.
template <class T, int POINTS>
__device__ __forceinline__ void put_terms(T* first, const T* terms) {
    using A = Aside<T, POINTS>;
    each<A::TERMS / 2>([&](auto u) { *(Two<T>*)(first + 64 * u) = {terms[2 * u], terms[2 * u + 1]}; });
    if constexpr (A::TERMS % 2) first[A::term(A::TERMS - 1)] = terms[A::TERMS - 1];
}

__device__ __forceinline__ void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// All blocks. `Method` has, for a lane at x of the line y, z, which is inside the grid if `here`,
//   static constexpr bool BOTH                                        whether rows have upper terms
//   void begin(int y, int z, bool here, i64 row, int x)               where the lane begins, and the row of the layout
//   void take(u32 before, u32 after, const T* from, bool on)          A's row of a point from there: its terms and opposite terms inside the grid
//   void make(u32 number, u32 before, u32 after, bool on)             makes the factors' rows, and writes what others need of them
//   void end(u32 number, u32 before, u32 after, bool on)              writes the rest
//   void step()                                                       the next point of the line
template <class T, int POINTS, class Method>
__device__ __forceinline__ void factor_blocks(const Task<T>& task, const OnGrid<T>& g, Method& method) {
    using A = Aside<T, POINTS>;
    using S = Stencil<POINTS>;
    using G = typename A::G;
    constexpr int TERMS = A::TERMS, BY_BLOCK = 4 * G::BLOCK_LAG, BY_TILE = 4 * G::TILE_LAG;
    u32 lane = threadIdx.x % WARP, tag = task.state->progress.tag(), all = g.blocks * g.tiles;
    int nx = (int)g.nx, rows = (int)g.rows;
    for (;;) {
        u32 drawn = task.state->progress.draw();
        if (drawn >= all) break;
        u32 which = __ldg(task.order + drawn);
        int tile = (int)(which / g.blocks), j = (int)(which % g.blocks);
        int plane = (int)lane / LINES, a = (int)lane % LINES, y = j * LINES + a - G::SHEAR * plane, z = tile * PLANES + plane;
        bool here = y >= 0 && y < (int)g.ny && z < (int)g.nz;
        // Terms whose line is inside the grid, and those whose opposite term's line is.
        u32 below = 0, above = 0;
        each<TERMS>([&](auto k) {
            bool in = y + S::dy(k) >= 0 && y + S::dy(k) < (int)g.ny && z + S::dz(k) >= 0;
            bool opposite = y - S::dy(k) >= 0 && y - S::dy(k) < (int)g.ny && z - S::dz(k) < (int)g.nz;
            below |= (u32)(here && in) << k;
            above |= (u32)(here && opposite) << k;
        });
        int x = -(G::BY_LINE * a + G::BY_PLANE * plane);
        u32 number = ((u32)z * g.ny + (u32)y) * g.nx + (u32)x;
        method.begin(y, z, here, (i64)which * rows, x);
        // What is watched: the previous block, and two blocks of the previous tile.
        u32* mine = task.marks + which;
        const u32* watched = mine;
        int lead = 0, seen = 1 << 30;
        auto watch = [&](u32 who, int tiles, int side) {
            if (lane != who || tile < tiles || j + side < 0 || j + side >= (int)g.blocks) return;
            watched = task.marks + (which - tiles * g.blocks + side);
            lead = tiles * BY_TILE - side * BY_BLOCK;
            seen = 0;
        };
        watch(0, 0, -1), watch(1, 1, 0), watch(2, 1, 1);
        bool watches = seen == 0;
        // Where A's rows begin is known one row ahead, and their values are in flight.
        auto begins = [&](int at, u32 row) -> u32 {
            if (!here || at < 0 || at >= nx) return 0;
            return Method::BOTH ? __ldg(task.lower.ptr + row) + __ldg(task.upper.ptr + row) : __ldg(task.given.ptr + row);
        };
        u32 next = begins(x, number);
        for (int t = 0; t < rows; t++) {
            bool on = here && x >= 0 && x < nx;
            u32 before = on ? below & ~A::outside(x, nx, 1) : 0, after = Method::BOTH && on ? above & ~A::outside(x, nx, -1) : 0;
            const T* from = task.values + next;
            next = begins(x + 1, number + 1);
            method.take(before, after, from, on);
            prefetch(task.values + next);
            if (Method::BOTH) prefetch(task.values + next + TERMS);
            int need = t + lead < rows ? t + lead : rows;
            for (u32 vain = 0; !__all_sync(ALL, seen >= need); vain++) {
                if (vain > PATIENCE) __nanosleep(NAP);
                if (watches) seen = (int)mark_at(watched);
            }
            __syncwarp();
            method.make(number, before, after, on);
            __syncwarp();
            if (lane == 0) put_mark(mine, (u32)t + 1);
            method.end(number, before, after, on);
            method.step();
            x++;
            number++;
        }
    }
    task.state->leave(tag);
}

// When the points of a tile are solved on clusters of thread blocks: slopes, lags and waits, computed only from the stencil.
//
// Twin: `Slopes` of crates/backend-cuda/src/sweep/wavefront.rs. A batch is four rows; see kernels/wavefront.cu.
#pragma once
#include "stencil.cuh"

// Planes of a tile, and lines of a plane in a block.
#define PLANES 4
#define LINES 8
// The least age, in rows, of an operand on an earlier plane.
#define AGE 2

template <int POINTS>
struct Schedule {
    using L = Lines<POINTS>;
    static constexpr int TERMS = POINTS / 2, WIDTH = TERMS + 1;
    __device__ static constexpr int sheared() {
        int shear = 0;
        for (int c = 0; c < L::count; c++)
            if (L::dz(c) < 0 && L::dy(c) > shear * -L::dz(c)) shear = (L::dy(c) - L::dz(c) - 1) / -L::dz(c);
        return shear;
    }
    static constexpr int SHEAR = sheared();
    // Lanes of a plane between a point and line c, which is never after it.
    __device__ static constexpr int da(int c) { return L::dy(c) + SHEAR * L::dz(c); }
    __device__ static constexpr int slope() {
        int slope = 1;
        for (int c = 0; c < L::count; c++) {
            int need = L::dz(c) == 0 ? (L::hi(c) - L::dy(c)) / -L::dy(c) : 1;
            if (need > slope) slope = need;
        }
        return slope;
    }
    static constexpr int BY_LINE = slope();
    __device__ static constexpr bool late(int by_plane) {
        for (int c = 0; c < L::count; c++)
            if (L::dz(c) < 0 && L::hi(c) + BY_LINE * da(c) + by_plane * L::dz(c) > -AGE) return false;
        return PLANES * (by_plane + SHEAR * BY_LINE) % 4 == 0;
    }
    __device__ static constexpr int plane_slope() {
        int by_plane = 1;
        while (!late(by_plane)) by_plane++;
        return by_plane;
    }
    __device__ static constexpr int deepest() {
        int deepest = 0;
        for (int c = 0; c < L::count; c++)
            if (-L::dz(c) > deepest) deepest = -L::dz(c);
        return deepest;
    }
    static constexpr int BY_PLANE = plane_slope(), BEHIND = deepest();
    // Batches by which a block is behind the previous block, and a tile behind the previous tile.
    static constexpr int BLOCK_LAG = LINES * BY_LINE / 4, TILE_LAG = PLANES * (BY_PLANE + SHEAR * BY_LINE) / 4;
    // Lanes whose values the next tile reads, the last ones of a warp.
    static constexpr int HANDED = LINES * BEHIND;
    // Lines of a plane that the next block reads, the last ones.
    __device__ static constexpr int kept() {
        int kept = 0;
        for (int c = 0; c < L::count; c++)
            if (-da(c) > kept) kept = -da(c);
        return kept;
    }
    static constexpr int KEPT = kept();
    static_assert(KEPT * PLANES <= 8, "what a block keeps for the next is 8 lanes wide");
    static_assert(BEHIND <= PLANES, "a tile reads the tile before it alone");
    // The row, relative to that of a point, of its newest operand on line c.
    __device__ static constexpr int newest(int c) { return L::hi(c) + BY_LINE * da(c) + BY_PLANE * L::dz(c); }
    __device__ static constexpr int batch_of(int row) { return row >= 0 ? row / 4 : -((3 - row) / 4); }
    static constexpr int NONE = -(1 << 28);
    // Whether a block reads line c of the block `side` away from it, d tiles before.
    __device__ static constexpr bool reads(int c, int d, int side) {
        if (d == 0) return side < 0 && da(c) < 0 && -L::dz(c) < PLANES;
        int first = da(c) + SHEAR * PLANES;
        return L::dz(c) < 0 && first < (side + 1) * LINES && first + LINES > side * LINES;
    }
    // The batch of that block that is at the time of batch 0 of this one.
    __device__ static constexpr int shift(int d, int side) { return d * TILE_LAG - side * BLOCK_LAG; }
    // Batch k of a block needs k + this batches of the block `side` away from it, d tiles before.
    __device__ static constexpr int need(int d, int side) {
        int most = NONE;
        for (int c = 0; c < L::count; c++)
            if (reads(c, d, side)) {
                int batches = batch_of(newest(c) - 1) + 2 + shift(d, side);
                if (batches > most) most = batches;
            }
        return most;
    }
    // Batch k may be kept once the block `side` away from it, d tiles after, has done k + this - deep.
    __device__ static constexpr int release(int d, int side) {
        int most = NONE;
        for (int c = 0; c < L::count; c++)
            if (reads(c, d, -side)) {
                // A block's first batch reads the previous row if a line has several terms.
                int batches = 1 - batch_of(newest(c) - (L::hi(c) > L::lo(c))) - shift(d, -side);
                if (batches > most) most = batches;
            }
        return most;
    }
    static_assert(need(1, -1) == NONE, "of the tile before, a block reads its own place and the next");
    // Whether the terms on line c and those before it need nothing of their own batch for row i of the batch.
    __device__ static constexpr bool early(int c, int i) {
        for (int before = 0; before <= c; before++)
            if (i + newest(before) >= 0) return false;
        return true;
    }
};

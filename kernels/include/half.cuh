// Matrices that hold a whole stencil on a grid, for their incomplete factors: the patterns of both triangles, the order of the rows by levels.
//
// Grid: any number of thread blocks, one row per thread. Bytes: what is written once.
#pragma once
#include "side.cuh"

// The lower half of a stencil that every row of a matrix holds inside the grid, with the diagonal. Twin: `HalfArg` of
// crates/backend-cuda/src/sweep/factors.rs.
struct Half {
    u32 nx, ny, nz;
    u32 count;          // offsets, ascending by (dz, dy, dx), each shorter than the grid along every axis
    u32 with_diagonal;  // whether the lower part ends with it; else the upper part begins with it
    int dx[SIDE_MOST], dy[SIDE_MOST], dz[SIDE_MOST], shift[SIDE_MOST];
};

// How many of the coordinates 0..v a step of d keeps in 0..extent.
__device__ __forceinline__ u32 staying(u32 v, u32 extent, int d) {
    u32 begin = d < 0 ? (u32)-d : 0, length = extent - (u32)(d < 0 ? -d : d);
    return v <= begin ? 0 : v - begin < length ? v - begin : length;
}

__device__ __forceinline__ bool stays(u32 v, u32 extent, int d) { return v < extent && v + (u32)d < extent; }

// The number of points before (x, y, z) whose neighbour at this difference is inside the grid.
__device__ __forceinline__ u32 neighbours_before(const Half& h, u32 x, u32 y, u32 z, int dx, int dy, int dz) {
    u32 line = staying(h.nx, h.nx, dx), plane = line * staying(h.ny, h.ny, dy), count = staying(z, h.nz, dz) * plane;
    if (stays(z, h.nz, dz)) {
        count += staying(y, h.ny, dy) * line;
        if (stays(y, h.ny, dy)) count += staying(x, h.nx, dx);
    }
    return count;
}

// Patterns of both parts of such a matrix, one row per thread, or only where their rows begin; or only those of the lower one, and where its diagonal entries are, if any.
__device__ __forceinline__ void split(const Half& h, u32 n, u32* lower_ptr, u32* lower_cols, u32* upper_ptr, u32* upper_cols, u32* diagonal) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at <= n; at += (u64)gridDim.x * blockDim.x) {
        // The row behind the last one is the first point of a plane behind the last.
        u32 row = (u32)at, x = row % h.nx, y = row / h.nx % h.ny, z = row / h.nx / h.ny;
        u32 lower = h.with_diagonal ? row : 0, upper = row;
        for (u32 k = 0; k < h.count; k++) {
            lower += neighbours_before(h, x, y, z, h.dx[k], h.dy[k], h.dz[k]);
            if (!h.with_diagonal) upper += neighbours_before(h, x, y, z, -h.dx[k], -h.dy[k], -h.dz[k]);
        }
        lower_ptr[row] = lower;
        if (!h.with_diagonal) upper_ptr[row] = upper;
        if (row == n) return;
        if (!lower_cols) continue;
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

// Rows in the order of their levels x + sigma y + tau z, one row per thread. Lines are sorted by the level at which they begin, so those with a
// point in a level follow one another. place: where a level's rows begin, less its first line's place among the lines.
__device__ __forceinline__ void level_order(u32 nx, u32 ny, u32 sigma, u32 tau, u32 n, const u32* rank, const u32* place, u32* order) {
    for (u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += (u64)gridDim.x * blockDim.x) {
        u32 row = (u32)at, line = row / nx, level = row % nx + sigma * (line % ny) + tau * (line / ny);
        order[place[level] + rank[line]] = row;
    }
}

// A CSR matrix on the device as a stencil on a grid: rows from which to guess it, the proof of a guess, one triangle's values in the layout
// of the sweep (include/side_values.cuh), both in one pass for a whole stencil; if a matrix holds its whole stencil, also the patterns of
// both triangles and the order of the rows by levels (include/half.cuh).
//
// Layout: sides and reports as include/side.cuh says; `Sides` has a side's differences in the order of the columns.
// sample: SAMPLE_WORDS words per row: entries of the side (more than SAMPLE_COLS are not counted), whether there are others, columns.
// Grid: any number of thread blocks of 256. check: a warp takes 8 times 32 rows, entries side by side if all of the rows are inner points
// of one line and hold the whole pattern, else one row per lane. fill, pack: see include/side_values.cuh. split, order: one row per thread.
// Order: none is summed.
// Bytes: check reads row pointers and columns once; for the others see the headers.
#include "half.cuh"
#include "side_values.cuh"

// Most differences of both sides.
#define BOTH_MOST 81
#define SAMPLE_COLS 44u
#define SAMPLE_WORDS 46u
// Groups of 32 rows that a warp takes in a row, because they often lie on one line.
#define RUN 8u

// Twin: `SidesArg` of crates/backend-cuda/src/sweep/resident.rs.
struct Sides {
    u32 nx, ny, nz;
    u32 before, after;  // how far the pattern reaches along a line
    u32 upper;          // whether the side is the upper one
    u32 count;          // differences of the side, including the diagonal's
    u32 both;           // of the pattern of whole rows, which is tried first
    u32 holds_diagonal; // whether the pattern has the diagonal
    int dx[SIDE_MOST], dy[SIDE_MOST], dz[SIDE_MOST], shift[SIDE_MOST];
    int both_dy[BOTH_MOST], both_dz[BOTH_MOST], both_shift[BOTH_MOST];
};

// Windows of 16 rows at pseudorandom places; all rows if the matrix has at most 256.
__device__ __forceinline__ u32 sampled_row(u32 n, u32 at) {
    if (n <= 256) return at;
    u32 window = at / 16, begin = (u32)((u64)(n - 16) * ((window * 40503u + 24593u) & 0xffffu) >> 16);
    return begin + at % 16;
}

// The rows of a sample, one thread each. The thread blocks after the first find the first of 65,535 rows that lacks the entry next to the
// diagonal, and leave its complement in *line, a word that was 0.
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

// Compares a row's side with its differences: LACKING and WITHOUT_DIAGONAL as bits; `outside` is the column of an entry outside.
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
    // The line that `pattern` belongs to and its entries; the row of the lane's first entry and its place there.
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
            // Entry e of the 32 rows is entry e mod width of row e / width; both advance by 32 entries at a time.
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
    // Once per warp, because all of them report to the same words.
    report_least(words + LACKING, lacking);
    report_least(words + WITHOUT_DIAGONAL, without);
}

// The structure does not depend on a type, but the names have one, as those of all kernels do.
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
    }
FOR_EACH_TYPE(GRID)

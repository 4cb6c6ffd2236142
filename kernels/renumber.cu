// Numbers the rows of a CSR matrix breadth first, level by level, and moves the matrix to that order.
//
// Layout: `order` holds the rows that are numbered, in their order; `place` is its inverse. The parent of a row is one plus the position, in `order`, of
// the first row that has it as a column: that row appends it. 0: a search began here. UNREACHED: no row yet. `head` holds two copies of (begin, end,
// levels); a level is begin..end in `order`. A kernel reads one copy and writes the other, so levels follow one another without the host.
// Grid: 256 threads per thread block. Levels: any number of thread blocks, each with consecutive rows of the level, 8 lanes per row. Distance: 8 lanes
// per row. Sorting: 8 lanes per row, a warp per row of more than LIGHT entries, a thread block of BITMAP_THREADS per long row. Elsewhere one thread per row.
// Order: integers. A row goes to the parent with the least position, and children keep the order of their columns, as in a search by one thread.
// Bytes: a search: columns three times, the parent of each entry three times, in two launches per level. Moving: columns of A once, `place` of each entry, columns and positions
// written once.
#include "bitmap.cuh"

#define THREADS 256
#define LANES 8
// Rows of a level that a thread block handles at a time.
#define ROWS (THREADS / LANES)
#define UNREACHED 0xffffffffu
// Rows whose columns LANES lanes claim at a time.
#define TOGETHER 4
// The most entries of a row that LANES lanes sort, and the most that a warp does.
#define LIGHT 64u
#define SORTED (WARP / LANES * LIGHT)

// The rows of a level that a thread block handles: positions in `order`.
struct Part {
    u32 begin, end;  // of the level
    u32 first, last;

    __device__ __forceinline__ Part(const u32* head, u32 copy) : begin(head[3 * copy]), end(head[3 * copy + 1]) {
        u32 each = (end - begin + gridDim.x - 1) / gridDim.x;
        each = (each + ROWS - 1) / ROWS * ROWS;
        u64 from = begin + (u64)blockIdx.x * each;
        first = (u32)min(from, (u64)end);
        last = (u32)min(from + each, (u64)end);
    }
};

// Each unreached column of the row at this position gets the least position as its parent. `lanes` threads share the row.
__device__ __forceinline__ void claim_row(const u32* ptr, const u32* cols, u32* parents, u32 row, u32 at, u32 lane, u32 lanes) {
    u32 end = __ldg(ptr + row + 1);
    for (u32 e = __ldg(ptr + row) + lane; e < end; e += lanes) {
        u32 col = __ldg(cols + e);
        if (parents[col] > at + 1) atomicMin(parents + col, at + 1);
    }
}

// As `claim_row` for several rows, whose entries begin at `from` for this lane, end at `upto`, and get the parents `parent`; LANES lanes share each.
__device__ __forceinline__ void claim_rows(const u32* cols, u32* parents, u32 (&from)[TOGETHER], const u32 (&upto)[TOGETHER], const u32 (&parent)[TOGETHER]) {
    for (bool more = true; more;) {
        u32 col[TOGETHER], found[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) col[k] = from[k] < upto[k] ? __ldg(cols + from[k]) : UNREACHED;
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) found[k] = col[k] != UNREACHED ? parents[col[k]] : 0;
        more = false;
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            if (found[k] > parent[k]) atomicMin(parents + col[k], parent[k]);
            from[k] += LANES;
            more |= from[k] < upto[k];
        }
    }
}

// The children of each row of the level, and their sum per thread block.
__device__ __forceinline__ void count_level(const u32* ptr, const u32* cols, const u32* order, const u32* parents, const u32* head, u32 copy, u32* counts, u32* sums) {
    __shared__ u32 all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    Part part(head, copy);
    u32 lane = threadIdx.x % LANES, mine = 0;
    for (u32 base = part.first; base < part.last; base += ROWS) {
        u32 at = base + threadIdx.x / LANES, count = 0;
        if (at < part.last) {
            u32 row = order[at], end = __ldg(ptr + row + 1);
            for (u32 e = __ldg(ptr + row) + lane; e < end; e += LANES) count += parents[__ldg(cols + e)] == at + 1;
        }
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) count += __shfl_xor_sync(ALL, count, d);
        if (at < part.last && lane == 0) {
            counts[at] = count;
            mine += count;
        }
    }
    if (mine) atomicAdd(&all, mine);
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

// Appends the children of the level to `order`: they are the next level, whose columns they claim at once. No claim changes a row of this level or of
// the next: these have parents with lesser positions.
__device__ __forceinline__ void place_level(const u32* ptr, const u32* cols, u32* order, u32* parents, const u32* counts, const u32* sums, u32* head, u32 copy) {
    __shared__ u32 before, all, offsets[ROWS], of_rows;
    if (threadIdx.x == 0) before = 0, all = 0;
    __syncthreads();
    Part part(head, copy);
    u32 ahead = 0, total = 0;
    for (u32 block = threadIdx.x; block < gridDim.x; block += THREADS) {
        u32 sum = sums[block];
        total += sum;
        if (block < blockIdx.x) ahead += sum;
    }
    if (ahead) atomicAdd(&before, ahead);
    if (total) atomicAdd(&all, total);
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        u32* next = head + 3 * (copy ^ 1);
        next[0] = part.end;
        next[1] = part.end + all;
        next[2] = head[3 * copy + 2] + (part.end > part.begin);
    }
    u32 lane = threadIdx.x % LANES, group = threadIdx.x / LANES, to = part.end + before;
    u32 below = (1u << lane) - 1, shift = threadIdx.x % WARP / LANES * LANES;
    for (u32 base = part.first; base < part.last; base += ROWS) {
        if (threadIdx.x < ROWS) {
            u32 at = base + threadIdx.x, count = at < part.last ? counts[at] : 0, upto = count;
#pragma unroll
            for (int d = 1; d < WARP; d *= 2) {
                u32 other = __shfl_up_sync(ALL, upto, d);
                if (threadIdx.x >= d) upto += other;
            }
            offsets[threadIdx.x] = upto - count;
            if (threadIdx.x == ROWS - 1) of_rows = upto;
        }
        __syncthreads();
        u32 at = base + group, e = 0, end = 0, next = to + offsets[group];
        if (at < part.last) {
            u32 row = order[at];
            e = __ldg(ptr + row);
            end = __ldg(ptr + row + 1);
        }
        for (; __any_sync(ALL, e < end); e += LANES) {
            u32 col = e + lane < end ? __ldg(cols + e + lane) : UNREACHED;
            bool is_child = col != UNREACHED && parents[col] == at + 1;
            u32 children = __ballot_sync(ALL, is_child) >> shift & ((1u << LANES) - 1);
            if (is_child) order[next + __popc(children & below)] = col;
            // Each lane of a child asks for its row, and several rows are claimed at a time: loads that wait for each other are most of a level.
            u32 child_begin = is_child ? __ldg(ptr + col) : 0, child_end = is_child ? __ldg(ptr + col + 1) : 0;
            while (__any_sync(ALL, children)) {
                u32 from[TOGETHER], upto[TOGETHER], parent[TOGETHER];
#pragma unroll
                for (int k = 0; k < TOGETHER; k++) {
                    u32 source = children ? __ffs(children) - 1 : 0;
                    from[k] = __shfl_sync(ALL, child_begin, source, LANES) + lane;
                    upto[k] = __shfl_sync(ALL, child_end, source, LANES);
                    if (!children) upto[k] = 0;
                    next += children != 0;
                    parent[k] = next;
                    children &= children - 1;
                }
                claim_rows(cols, parents, from, upto, parent);
            }
        }
        to += of_rows;
        __syncthreads();  // `offsets` may be overwritten
    }
}

// The first unreached row from `from` on that has an entry besides its diagonal.
__device__ __forceinline__ void find_root(const u32* ptr, const u32* cols, const u32* parents, u32 n, u32 from, u32* root) {
    u64 row = from + (u64)blockIdx.x * THREADS + threadIdx.x;
    u32 found = UNREACHED;
    if (row < n && parents[row] == UNREACHED) {
        u32 begin = __ldg(ptr + row), end = __ldg(ptr + row + 1);
        if (end - begin > 1 || (end - begin == 1 && __ldg(cols + begin) != row)) found = (u32)row;
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) found = min(found, __shfl_xor_sync(ALL, found, d));
    if (threadIdx.x % WARP == 0 && found != UNREACHED) atomicMin(root, found);
}

// Begins a search, by one thread block: the level is this row, after `reached` others.
__device__ __forceinline__ void seat_root(const u32* ptr, const u32* cols, u32* order, u32* parents, u32 root, u32 reached, u32* head, u32 copy) {
    if (threadIdx.x == 0) {
        order[reached] = root;
        parents[root] = 0;
        head[3 * copy] = reached;
        head[3 * copy + 1] = reached + 1;
    }
    __syncthreads();
    claim_row(ptr, cols, parents, root, reached, threadIdx.x, THREADS);
}

// Marks the rows that no search has reached; later the sums of these marks give them the last places.
__device__ __forceinline__ void mark_rest(const u32* parents, u32 n, u32* marks) {
    u64 row = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (row < n) marks[row] = parents[row] == UNREACHED;
}
__device__ __forceinline__ void place_rest(const u32* parents, u32 n, const u32* marks, u32 reached, u32* order) {
    u64 row = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (row < n && parents[row] == UNREACHED) order[reached + marks[row]] = (u32)row;
}

__device__ __forceinline__ void invert(const u32* order, u32 n, u32* place) {
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at < n) place[order[at]] = (u32)at;
}

// The sum of the distances of all entries from the diagonal.
__device__ __forceinline__ void sum_distances(const u32* ptr, const u32* cols, u32 n, u64* distance) {
    __shared__ u64 all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    u64 row = ((u64)blockIdx.x * THREADS + threadIdx.x) / LANES, sum = 0;
    if (row < n) {
        u32 end = __ldg(ptr + row + 1);
        for (u32 e = __ldg(ptr + row) + threadIdx.x % LANES; e < end; e += LANES) {
            u32 col = __ldg(cols + e);
            sum += col < row ? row - col : col - row;
        }
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) sum += __shfl_xor_sync(ALL, sum, d);
    if (threadIdx.x % WARP == 0) atomicAdd(&all, sum);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(distance, all);
}

__device__ __forceinline__ void count_rows(const u32* ptr, const u32* order, u32 n, u32* rows) {
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at < n) {
        u32 row = order[at];
        rows[at] = __ldg(ptr + row + 1) - __ldg(ptr + row);
    }
}

// Writes a row's new columns in ascending order, and the position of each entry in A. `lanes` threads share the row, whose columns are in `room`.
__device__ __forceinline__ void sort_row(const u32* room, u32 len, u32 from, u32 to, u32 lane, u32 lanes, u32* out_cols, u32* positions) {
    for (u32 e = lane; e < len; e += lanes) {
        u32 mine = room[e], rank = 0;
#pragma unroll 8
        for (u32 other = 0; other < len; other++) rank += room[other] < mine;
        out_cols[to + rank] = mine;
        positions[to + rank] = from + e;
    }
}

// 8 lanes sort a row of up to LIGHT entries, a warp a row of up to SORTED. Longer rows are listed.
__device__ __forceinline__ void sort_rows(const u32* ptr, const u32* cols, const u32* order, const u32* place, u32 n, const u32* rows, u32* out_cols, u32* positions, u32* list, u32* listed) {
    __shared__ u32 all[THREADS / WARP][SORTED];
    u32 lane = threadIdx.x % WARP, within = lane % LANES, *room = all[threadIdx.x / WARP], *mine = room + lane / LANES * LIGHT;
    u64 at = (u64)blockIdx.x * ROWS + threadIdx.x / LANES;
    u32 from = at < n ? __ldg(ptr + __ldg(order + at)) : 0, to = at < n ? __ldg(rows + at) : 0, len = at < n ? __ldg(rows + at + 1) - to : 0;
    if (len > SORTED && within == 0) list[atomicAdd(listed, 1u)] = (u32)at;
    if (len <= LIGHT)
        for (u32 e = within; e < len; e += LANES) mine[e] = __ldg(place + __ldg(cols + from + e));
    __syncwarp();
    if (len <= LIGHT) sort_row(mine, len, from, to, within, LANES, out_cols, positions);
    for (u32 left = __ballot_sync(ALL, within == 0 && len > LIGHT && len <= SORTED); left; left &= left - 1) {
        u32 of = __ffs(left) - 1, first = __shfl_sync(ALL, from, of), begin = __shfl_sync(ALL, to, of), count = __shfl_sync(ALL, len, of);
        __syncwarp();  // the room is free
        for (u32 e = lane; e < count; e += WARP) room[e] = __ldg(place + __ldg(cols + first + e));
        __syncwarp();
        sort_row(room, count, first, begin, lane, WARP, out_cols, positions);
    }
}

// The listed rows, one thread block each.
__device__ __forceinline__ void sort_long(const u32* ptr, const u32* cols, const u32* order, const u32* place, const u32* rows, const u32* list, const u32* listed, u32* bitmaps, u32 words, u32* out_cols, u32* positions) {
    Bitmap set(bitmaps, words);
    for (u32 i = blockIdx.x; i < *listed; i += gridDim.x) {
        u32 at = list[i], row = __ldg(order + at), begin = __ldg(ptr + row), end = __ldg(ptr + row + 1), to = __ldg(rows + at);
        for (u32 e = begin + threadIdx.x; e < end; e += BITMAP_THREADS) set.add(__ldg(place + __ldg(cols + e)));
        __syncthreads();
        set.drain([&](u32 rank, u32 col) {
            u32 old = __ldg(order + col), low = begin, high = end;
            while (high - low > 1) {
                u32 middle = low + (high - low) / 2;
                if (__ldg(cols + middle) <= old) low = middle;
                else high = middle;
            }
            out_cols[to + rank] = col;
            positions[to + rank] = low;
        });
    }
}

// Nothing here depends on a type, but the names have one, as those of all kernels do.
#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS) count_renumber_##t(const u32* ptr, const u32* cols, const u32* order, const u32* parents, const u32* head, u32 copy, u32* counts, u32* sums) { \
        count_level(ptr, cols, order, parents, head, copy, counts, sums);                        \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS) place_renumber_##t(const u32* ptr, const u32* cols, u32* order, u32* parents, const u32* counts, const u32* sums, u32* head, u32 copy) { \
        place_level(ptr, cols, order, parents, counts, sums, head, copy);                        \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS) root_renumber_##t(const u32* ptr, const u32* cols, const u32* parents, u32 n, u32 from, u32* root) { find_root(ptr, cols, parents, n, from, root); } \
    extern "C" __global__ void __launch_bounds__(THREADS) seat_renumber_##t(const u32* ptr, const u32* cols, u32* order, u32* parents, u32 root, u32 reached, u32* head, u32 copy) { \
        seat_root(ptr, cols, order, parents, root, reached, head, copy);                         \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS) mark_rest_renumber_##t(const u32* parents, u32 n, u32* marks) { mark_rest(parents, n, marks); } \
    extern "C" __global__ void __launch_bounds__(THREADS) place_rest_renumber_##t(const u32* parents, u32 n, const u32* marks, u32 reached, u32* order) { place_rest(parents, n, marks, reached, order); } \
    extern "C" __global__ void __launch_bounds__(THREADS) invert_renumber_##t(const u32* order, u32 n, u32* place) { invert(order, n, place); } \
    extern "C" __global__ void __launch_bounds__(THREADS) distance_renumber_##t(const u32* ptr, const u32* cols, u32 n, u64* distance) { sum_distances(ptr, cols, n, distance); } \
    extern "C" __global__ void __launch_bounds__(THREADS) rows_renumber_##t(const u32* ptr, const u32* order, u32 n, u32* rows) { count_rows(ptr, order, n, rows); } \
    extern "C" __global__ void __launch_bounds__(THREADS) sort_renumber_##t(const u32* ptr, const u32* cols, const u32* order, const u32* place, u32 n, const u32* rows, u32* out_cols, u32* positions, u32* list, u32* listed) { \
        sort_rows(ptr, cols, order, place, n, rows, out_cols, positions, list, listed);          \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(BITMAP_THREADS) sort_long_renumber_##t(const u32* ptr, const u32* cols, const u32* order, const u32* place, const u32* rows, const u32* list, const u32* listed, u32* bitmaps, u32 words, u32* out_cols, u32* positions) { \
        sort_long(ptr, cols, order, place, rows, list, listed, bitmaps, words, out_cols, positions); \
    }
FOR_EACH_TYPE(ENTRIES)

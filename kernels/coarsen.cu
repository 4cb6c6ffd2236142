// Algebraic coarsening: strong couplings, independent roots, aggregates, the tentative prolongation T, the filter F of the smoothed one, and the
// diagonal with a bound on the spectrum. The prolongation itself is the product F T of kernels/spgemm.cu.
//
// Layout: matrices as CSR stores them. A node is `unknowns` consecutive rows (1 to 6). A graph has row pointers, the neighbours of each node in ascending
// order, and the weight of each coupling. Vectors of the near-null space follow one another, column by column.
// Grid: COARSEN_THREADS per thread block; one warp per node or aggregate, or 8 lanes per node (or row), where a kernel says so, otherwise one thread per
// node or row.
// Order: stored: every sum goes over a row (the rows of an aggregate) in ascending order, by one thread, or by each lane of a warp for itself. Minima,
// maxima and the choice of an aggregate do not depend on the order.
// Bytes: couplings: entries three times, 4 + |T| bytes per strong one written. A round of roots: neighbours twice, 8 bytes per node and neighbour.
// T and F: entries twice, each written once. Spectrum: entries twice.
// Reference: crates/formats/src/amg; the bits are the same.
#include "couplings.cuh"

#define COARSEN_THREADS 256
#define LANES 8
// Rows of an aggregate that a lane loads at once.
#define ROWS_AT_ONCE 4

// The state of a root, or of a node next to one; priorities lie between the two states.
#define ROOT 0ull
#define OUT (~0ull)

__device__ __forceinline__ u64 thread() { return (u64)blockIdx.x * COARSEN_THREADS + threadIdx.x; }
// The number of the thread's warp.
__device__ __forceinline__ u64 warp() { return (u64)blockIdx.x * (COARSEN_THREADS / WARP) + threadIdx.x / WARP; }

// The largest value of the 8 lanes that share a node.
template <class T>
__device__ __forceinline__ T largest_of_lanes(T v) {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) v = larger(v, __shfl_xor_sync(ALL, v, d));
    return v;
}

// ---- Strong couplings ----

// One over the largest weight of each node, over all entries outside its own block: the largest of a block is one of them. 8 lanes per node.
template <class T>
__device__ __forceinline__ void find_shares(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, T* shares) {
    u64 node = thread() / LANES;
    u32 lane = threadIdx.x % LANES;
    T most = T(0);
    if (node < nodes) {
        u32 end = __ldg(ptr + (node + 1) * unknowns);
        for (u32 e = __ldg(ptr + node * unknowns) + lane; e < end; e += LANES)
            if (__ldg(cols + e) / unknowns != node) most = larger(most, magnitude(__ldg(values + e)));
    }
    most = largest_of_lanes(most);
    if (node < nodes && lane == 0) shares[node] = T(1) / most;
}

template <class T>
__device__ __forceinline__ bool is_strong(T weight, T share, T other, T squared) {
    return weight > T(0) && (weight * share) * (weight * other) >= squared;
}

// Counts the strong couplings of each node to `rows`, or (FILL) writes them to where `rows` says. One unknown: 8 lanes per node.
template <class T, bool FILL>
__device__ __forceinline__ void couple_rows(const u32* ptr, const u32* cols, const T* values, u32 nodes, const T* shares, T squared, u32* rows, u32* neighbours, T* weights) {
    u64 node = thread() / LANES;
    u32 lane = threadIdx.x % LANES, ahead = threadIdx.x % WARP / LANES * LANES;
    u32 begin = node < nodes ? __ldg(ptr + node) : 0, end = node < nodes ? __ldg(ptr + node + 1) : 0;
    T share = node < nodes ? shares[node] : T(0);
    u32 count = 0, to = FILL && node < nodes ? rows[node] : 0;
    for (u32 base = begin; __any_sync(ALL, base < end); base += LANES) {
        u32 e = base + lane, col = 0;
        T weight = T(0);
        bool strong = false;
        if (e < end) {
            col = __ldg(cols + e);
            weight = magnitude(__ldg(values + e));
            strong = col != node && is_strong(weight, share, shares[col], squared);
        }
        u32 all = __ballot_sync(ALL, strong) >> ahead & 0xff;
        if (FILL && strong) {
            u32 at = to + count + __popc(all & ((1u << lane) - 1));
            neighbours[at] = col;
            weights[at] = weight;
        }
        count += __popc(all);
    }
    if (!FILL && node < nodes && lane == 0) rows[node] = count;
}

// The same for several unknowns. One warp per node. If a node has too many neighbours for the table, one lane walks its rows.
template <class T, bool FILL>
__device__ __forceinline__ void couple_nodes(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, const T* shares, T squared, u32* rows, u32* neighbours, T* weights) {
    constexpr u32 WARPS = COARSEN_THREADS / WARP;
    __shared__ u32 all_keys[WARPS][PLACES], all_used[WARPS];
    __shared__ T all_weights[WARPS][PLACES];
    u32 lane = threadIdx.x % WARP, of = threadIdx.x / WARP;
    u64 node = warp();
    if (node >= nodes) return;
    Neighbours<T> table = {all_keys[of], all_weights[of], all_used + of};
    table.clear(lane);
    if (table.add_rows(cols, values, __ldg(ptr + node * unknowns), __ldg(ptr + (node + 1) * unknowns), unknowns, (u32)node, lane)) {
        __syncwarp();
        T share = shares[node];
        u32 count = 0;
        // Strong neighbours move to the front.
        for (u32 from = 0; from < PLACES; from += WARP) {
            u32 other = table.keys[from + lane];
            T weight = table.weights[from + lane];
            bool strong = other != EMPTY && is_strong(weight, share, __ldg(shares + other), squared);
            u32 all = __ballot_sync(ALL, strong);
            if (FILL) {
                __syncwarp();  // all have read
                if (strong) {
                    u32 to = count + __popc(all & ((1u << lane) - 1));
                    table.keys[to] = other;
                    table.weights[to] = weight;
                }
            }
            count += __popc(all);
        }
        if (!FILL) {
            if (lane == 0) rows[node] = count;
            return;
        }
        __syncwarp();
        u32 to = rows[node];
        for (u32 at = lane; at < count; at += WARP) {
            u32 other = table.keys[at], place = to;
#pragma unroll 8
            for (u32 k = 0; k < count; k++) place += table.keys[k] < other;
            neighbours[place] = other;
            weights[place] = table.weights[at];
        }
        return;
    }
    if (lane != 0) return;
    Couplings<T> couplings(ptr, cols, values, unknowns, (u32)node);
    T share = shares[node], weight;
    u32 at = FILL ? rows[node] : 0;
    for (u32 other; (other = couplings.next(weight)) != UNASSIGNED;) {
        if (!is_strong(weight, share, shares[other], squared)) continue;
        if (FILL) {
            neighbours[at] = other;
            weights[at] = weight;
        }
        at++;
    }
    if (!FILL) rows[node] = at;
}

// ---- Roots ----

// The finalizer of splitmix64 in the upper bits, the node's number in the lower: no two nodes have the same priority in a round.
__device__ __forceinline__ u64 priority(u32 node, u64 round) {
    u64 z = (((u64)node << 16) ^ round) + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return ((z >> 33) << 32) | ((u64)node + 1);
}

// A node without a coupling is never a root.
__device__ __forceinline__ void draw(const u32* graph, u32 nodes, u64* state, u64* near) {
    u64 node = thread();
    if (node >= nodes) return;
    u64 drawn = graph[node + 1] > graph[node] ? priority((u32)node, 0) : OUT;
    state[node] = drawn;
    near[node] = drawn;
}

// The smallest state within one step. A node next to a root stays so, and once all nodes are decided nothing changes.
__device__ __forceinline__ void look_around(const u32* graph, const u32* neighbours, u32 nodes, const u64* state, u64* near) {
    u64 node = thread();
    if (node >= nodes || near[node] == ROOT || near[node] == OUT) return;
    u64 least = state[node];
    for (u32 k = __ldg(graph + node); k < __ldg(graph + node + 1); k++) least = min(least, state[__ldg(neighbours + k)]);
    near[node] = least;
}

// The smallest state within two steps decides about a node. If it is undecided, it draws again, and `left` says so.
__device__ __forceinline__ void decide(const u32* graph, const u32* neighbours, u32 nodes, u32 round, u64* state, const u64* near, u32* left) {
    u64 node = thread();
    bool undecided = false;
    if (node < nodes) {
        u64 own = state[node];
        if (own != ROOT && own != OUT) {
            u64 least = near[node];
            for (u32 k = __ldg(graph + node); k < __ldg(graph + node + 1); k++) least = min(least, near[__ldg(neighbours + k)]);
            undecided = least != ROOT && least < own;
            state[node] = least == ROOT ? OUT : least >= own ? ROOT : priority((u32)node, round + 1);
        }
    }
    if (__syncthreads_or(undecided) && threadIdx.x == 0) *left = 1;
}

// Writes 1 for each root.
__device__ __forceinline__ void count_roots(const u64* state, u32 nodes, u32* numbers) {
    u64 node = thread();
    if (node < nodes) numbers[node] = state[node] == ROOT;
}

// Assigns each root to the aggregate of its number.
__device__ __forceinline__ void number_roots(const u64* state, u32 nodes, const u32* numbers, u32* assigned) {
    u64 node = thread();
    if (node < nodes) assigned[node] = state[node] == ROOT ? numbers[node] : UNASSIGNED;
}

// A node without an aggregate joins that of the neighbour with the largest weight; among equal weights, the lowest number wins.
template <class T>
__device__ __forceinline__ void join(const u32* graph, const u32* neighbours, const T* weights, u32 nodes, const u32* from, u32* to) {
    u64 node = thread();
    if (node >= nodes) return;
    u32 own = from[node];
    if (own == UNASSIGNED) {
        T most = T(0);
        for (u32 k = __ldg(graph + node); k < __ldg(graph + node + 1); k++) {
            u32 other = from[__ldg(neighbours + k)];
            T weight = __ldg(weights + k);
            if (other != UNASSIGNED && (weight > most || (weight == most && other < own))) {
                most = weight;
                own = other;
            }
        }
    }
    to[node] = own;
}

// ---- The tentative prolongation ----

// Entries of each row of T: one per vector for a row of an aggregate.
__device__ __forceinline__ void count_tentative(const u32* assigned, u32 n, u32 unknowns, u32 vectors, u32* rows) {
    u64 row = thread();
    if (row < n) rows[row] = assigned[row / unknowns] != UNASSIGNED ? vectors : 0;
}

// The vectors, cut into the parts of the aggregates.
template <class T>
__device__ __forceinline__ void fill_tentative(const u32* assigned, u32 n, u32 unknowns, u32 vectors, const T* near_null, const u32* rows, u32* cols, T* values) {
    u64 row = thread();
    if (row >= n) return;
    u32 of = assigned[row / unknowns];
    if (of == UNASSIGNED) return;
    u32 at = rows[row];
    for (u32 c = 0; c < vectors; c++) {
        cols[at + c] = of * vectors + c;
        values[at + c] = near_null[(u64)c * n + row];
    }
}

// The rows of an aggregate, which a warp shares: each lane has every 32nd of them.
template <class T>
struct Columns {
    const u32* positions;  // of the entries in the first column; those of the other columns follow each of them
    T* values;
    u32 begin, end;
    T* room;  // ROWS_AT_ONCE per lane, in shared memory

    // The positions of the lane's rows from `base` on; UNASSIGNED after the last.
    __device__ __forceinline__ void find(u32 base, u32 (&at)[ROWS_AT_ONCE]) const {
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            u32 k = base + i * WARP + threadIdx.x % WARP;
            at[i] = k < end ? __ldg(positions + k) : UNASSIGNED;
        }
    }

    // Columns x and y multiplied, in each lane. The lanes share the products; each of them sums all, in the order of the rows.
    __device__ __forceinline__ T dot(u32 x, u32 y) const {
        T sum = T(0);
        for (u32 base = begin; base < end; base += ROWS_AT_ONCE * WARP) {
            u32 at[ROWS_AT_ONCE], count = min(ROWS_AT_ONCE * WARP, end - base);
            T product[ROWS_AT_ONCE];
            find(base, at);
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) product[i] = at[i] != UNASSIGNED ? values[at[i] + x] * values[at[i] + y] : T(0);
            __syncwarp();  // all have read
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) room[i * WARP + threadIdx.x % WARP] = product[i];
            __syncwarp();
            // The zeros after the last product change nothing, because no sum that begins with +0 is ever -0.
            for (u32 k = 0; k < count; k += 8) {
#pragma unroll
                for (int i = 0; i < 8; i++) sum = sum + room[k + i];
            }
        }
        return sum;
    }

    // Replaces the entries v of column c by f(v, position of the row's first entry).
    template <class F>
    __device__ __forceinline__ void map(u32 c, F f) const {
        for (u32 base = begin; base < end; base += ROWS_AT_ONCE * WARP) {
            u32 at[ROWS_AT_ONCE];
            T v[ROWS_AT_ONCE];
            find(base, at);
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) v[i] = at[i] != UNASSIGNED ? f(values[at[i] + c], at[i]) : T(0);
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++)
                if (at[i] != UNASSIGNED) values[at[i] + c] = v[i];
        }
    }
};

// Orthonormalises the columns of each aggregate by modified Gram-Schmidt, twice, in the order of the rows. `ptr` and `positions` give the entries of
// T in the aggregate's first column; those of the other columns follow each of them. The factors are the coarse vectors. A dependent column becomes
// zero and is `dropped`. One warp per aggregate. No lane reads what another one wrote to `values`.
template <class T>
__device__ __forceinline__ void orthonormalise(const u32* ptr, const u32* positions, u32 aggregates, u32 vectors, T* values, T* coarse, T* dropped, double roundoff) {
    __shared__ __align__(16) T rooms[COARSEN_THREADS / WARP][ROWS_AT_ONCE * WARP];
    u32 lane = threadIdx.x % WARP;
    u64 aggregate = warp();
    if (aggregate >= aggregates) return;
    u64 size = (u64)aggregates * vectors, first = aggregate * vectors;
    Columns<T> columns = {positions, values, __ldg(ptr + first), __ldg(ptr + first + 1), rooms[threadIdx.x / WARP]};
    for (u32 c = 0; c < vectors; c++) {
        T* factors = coarse + c * size + first;
        T given = sqrt_rn(columns.dot(c, c));
        if (lane == 0)
            for (u32 k = 0; k < vectors; k++) factors[k] = T(0);
        for (int pass = 0; pass < 2; pass++) {
            for (u32 b = 0; b < c; b++) {
                // Read before the sum, so that lane 0 need not wait for it. No other lane uses it.
                T before = lane == 0 ? factors[b] : T(0);
                T factor = columns.dot(b, c);
                if (lane == 0) factors[b] = before + factor;
                columns.map(c, [&](T v, u32 at) { return v - factor * values[at + b]; });
            }
        }
        T left = sqrt_rn(columns.dot(c, c));
        // What rounding leaves of a dependent column: each subtraction errs by one roundoff of the column per row.
        T noise = T(4.0 * (double)((u64)vectors * (columns.end - columns.begin + 2)) * roundoff) * given;
        bool kept = left > noise;
        if (lane == 0) {
            if (kept) factors[c] = left;
            dropped[first + c] = kept ? T(0) : T(1);
        }
        columns.map(c, [&](T v, u32) { return kept ? v / left : T(0); });
    }
}

// ---- The filter F = I - omega E^-1 A_f ----

// Entries of a row that 8 lanes hold at a time.
#define CHUNK 32

// A row of A, and the nodes that its node is strongly coupled to, in ascending order.
struct FilteredRow {
    u32 begin, end, node, at, last;
    const u32* cols;
    const u32* neighbours;

    // A row that is not there has no entries.
    __device__ __forceinline__ FilteredRow(bool there, const u32* ptr, const u32* cols, u64 row, u32 unknowns, const u32* graph, const u32* neighbours)
        : begin(0), end(0), node((u32)row / unknowns), at(0), last(0), cols(cols), neighbours(neighbours) {
        if (!there) return;
        begin = __ldg(ptr + row), end = __ldg(ptr + row + 1);
        at = __ldg(graph + node), last = __ldg(graph + node + 1);
    }

    // Whether a column of this node belongs to a strongly coupled one.
    __device__ __forceinline__ bool is_strong(u32 other) const {
        u32 low = at, high = last;
        while (low < high) {
            u32 middle = low + (high - low) / 2;
            if (__ldg(neighbours + middle) < other) low = middle + 1;
            else high = middle;
        }
        return low < last && __ldg(neighbours + low) == other;
    }
};

// Entries of each row of F: the strong ones of A and one for each unknown of the node; none in a node without an aggregate. 8 lanes per row.
template <class T>
__device__ __forceinline__ void count_filter(const u32* ptr, const u32* cols, const T* values, u32 n, u32 unknowns, const u32* graph, const u32* neighbours, const u32* assigned, u32* rows) {
    u64 row = thread() / LANES;
    u32 lane = threadIdx.x % LANES, count = 0;
    bool there = row < n && assigned[row / unknowns] != UNASSIGNED;
    FilteredRow of(there, ptr, cols, row, unknowns, graph, neighbours);
    if (unknowns == 1) {
        // Each coupled node is a column of the row.
        count = of.last - of.at;
    } else {
#pragma unroll 4
        for (u32 e = of.begin + lane; e < of.end; e += LANES) count += of.is_strong(__ldg(cols + e) / unknowns);
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) count += __shfl_xor_sync(ALL, count, d);
    }
    if (row < n && lane == 0) rows[row] = there ? unknowns + count : 0;
}

// 8 lanes per row: they hold the row chunk by chunk, and each takes what is added to one sum, in stored order. Lane k < unknowns adds what belongs to
// unknown k of the node, the weak entries; lane MOST_UNKNOWNS adds the magnitudes of the strong ones.
template <class T>
__device__ __forceinline__ void fill_filter(const u32* ptr, const u32* cols, const T* values, u32 n, u32 unknowns, const u32* graph, const u32* neighbours, const u32* assigned, T omega, const u32* rows, u32* out_cols, T* out) {
    __shared__ T all_held[COARSEN_THREADS / LANES][CHUNK];
    __shared__ u8 all_takers[COARSEN_THREADS / LANES][CHUNK];
    u64 row = thread() / LANES;
    u32 lane = threadIdx.x % LANES, mine = (u32)row % unknowns, before = 0;
    T *held = all_held[threadIdx.x / LANES], sum = T(0);
    u8* takers = all_takers[threadIdx.x / LANES];
    bool there = row < n && assigned[row / unknowns] != UNASSIGNED;
    FilteredRow of(there, ptr, cols, row, unknowns, graph, neighbours);
    // The last entries that a lane has looked at, so that rows of one chunk are not read again: columns, values, and a bit for each strong one.
    u32 seen[CHUNK / LANES], strong_ones = 0;
    T of_seen[CHUNK / LANES];
    for (u32 base = of.begin; __any_sync(ALL, base < of.end); base += CHUNK) {
        strong_ones = 0;
#pragma unroll
        for (int k = 0; k < CHUNK / LANES; k++) {
            u32 i = lane + k * LANES;
            seen[k] = 0, of_seen[k] = T(0);
            if (base + i >= of.end) continue;
            u32 col = __ldg(cols + base + i), other = unknowns == 1 ? col : col / unknowns;
            T v = __ldg(values + base + i);
            bool strong = of.is_strong(other);
            seen[k] = col, of_seen[k] = v, strong_ones |= (u32)strong << k;
            held[i] = strong ? magnitude(v) : v;
            takers[i] = strong ? MOST_UNKNOWNS : col - other * unknowns;
            before += strong && other < of.node;
        }
        __syncwarp();
        for (u32 i = 0; i < CHUNK && base + i < of.end; i++)
            if (takers[i] == lane) sum = sum + held[i];
        __syncwarp();
    }
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) before += __shfl_xor_sync(ALL, before, d);
    T beside = __shfl_sync(ALL, sum, MOST_UNKNOWNS, LANES), diagonal = T(0);
#pragma unroll
    for (int k = 0; k < MOST_UNKNOWNS; k++) {
        T inner = __shfl_sync(ALL, sum, k, LANES);
        if (k == mine) diagonal = inner;
        else if (k < unknowns) beside = beside + magnitude(inner);
    }
    T half = T(0.5) * (magnitude(diagonal) + beside), scale = -omega / larger(diagonal, half);
    if (!finite((double)scale)) scale = T(0);
    u32 to = there ? rows[row] : 0, shift = threadIdx.x % WARP / LANES * LANES;
    if (there && lane < unknowns) {
        out_cols[to + before + lane] = of.node * unknowns + lane;
        out[to + before + lane] = fma_rn(scale, sum, lane == mine ? T(1) : T(0));
    }
    auto put = [&](bool strong, u32 col, T v) {
        u32 together = __ballot_sync(ALL, strong) >> shift & ((1u << LANES) - 1);
        if (strong) {
            u32 place = to + __popc(together & ((1u << lane) - 1)) + (col / unknowns > of.node ? unknowns : 0);
            out_cols[place] = col;
            out[place] = scale * v;
        }
        to += __popc(together);
    };
    if (!__any_sync(ALL, of.end - of.begin > CHUNK)) {
#pragma unroll
        for (int k = 0; k < CHUNK / LANES; k++)
            if (__any_sync(ALL, strong_ones >> k)) put(strong_ones >> k & 1, seen[k], of_seen[k]);
        return;
    }
    for (u32 e = of.begin + lane; __any_sync(ALL, e - lane < of.end); e += LANES) {
        u32 col = e < of.end ? __ldg(cols + e) : 0;
        bool strong = e < of.end && of.is_strong(col / unknowns);
        put(strong, col, strong ? __ldg(values + e) : T(0));
    }
}

// ---- Scaling ----

// The diagonal and one over it. `unfit` becomes the first row that has an entry that is not finite, or no positive diagonal entry with a finite
// inverse. 8 lanes per row.
template <class T>
__device__ __forceinline__ void find_diagonal(const u32* ptr, const u32* cols, const T* values, u32 n, T* diagonal, T* inverse, u32* unfit) {
    u64 row = thread() / LANES;
    u32 lane = threadIdx.x % LANES, ahead = threadIdx.x % WARP / LANES * LANES;
    bool bad = false, found = false;
    T d = T(0);
    if (row < n) {
        u32 end = __ldg(ptr + row + 1);
        for (u32 e = __ldg(ptr + row) + lane; e < end; e += LANES) {
            T v = __ldg(values + e);
            bad = bad || !finite((double)v);
            if (__ldg(cols + e) == row) d = v, found = true;
        }
    }
    u32 here = __ballot_sync(ALL, found) >> ahead & 0xff;
    d = __shfl_sync(ALL, d, here ? ahead + __ffs(here) - 1 : ahead);
    if (!here) d = T(0);
    u32 bads = __ballot_sync(ALL, bad) >> ahead & 0xff;
    if (row >= n || lane != 0) return;
    T over = T(1) / d;
    diagonal[row] = d;
    inverse[row] = over;
    if (bads || !(d > T(0)) || !finite((double)over)) atomicMin(unfit, (u32)row);
}

// next <- |D^-1 A| w, with w = 1 if it is null; `most` becomes the largest next_i / w_i. One thread per row.
template <class T>
__device__ __forceinline__ void bound_spectrum(const u32* ptr, const u32* cols, const T* values, u32 n, const T* inverse, const double* w, double* next, u64* most) {
    __shared__ u64 all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    u64 row = thread(), ratio = 0;
    if (row < n) {
        double sum = 0.0;
        u32 end = __ldg(ptr + row + 1);
        for (u32 e = __ldg(ptr + row); e < end; e++) {
            double v = magnitude((double)__ldg(values + e));
            sum = sum + v * (w ? w[__ldg(cols + e)] : 1.0);
        }
        sum = sum * (double)inverse[row];
        next[row] = sum;
        double quotient = sum / (w ? w[row] : 1.0);
        // Quotients are not negative, so their bits are ordered as they are. NaN is ignored.
        if (quotient > 0.0) ratio = (u64)__double_as_longlong(quotient);
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) ratio = max(ratio, __shfl_xor_sync(ALL, ratio, d));
    if (threadIdx.x % WARP == 0) atomicMax(&all, ratio);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(most, all);
}

// out_ij <- m_ij (right_j left_i), or m_ij left_i. 8 lanes per row.
template <class T>
__device__ __forceinline__ void scale_entries(const u32* ptr, const u32* cols, const T* values, u32 n, const T* left, const T* right, T* out) {
    u64 row = thread() / LANES;
    if (row >= n) return;
    u32 end = __ldg(ptr + row + 1);
    T by = __ldg(left + row);
    for (u32 e = __ldg(ptr + row) + threadIdx.x % LANES; e < end; e += LANES) {
        T factor = right ? __ldg(right + __ldg(cols + e)) * by : by;
        out[e] = __ldg(values + e) * factor;
    }
}

// Adds to the diagonal entry of each row that has one.
template <class T>
__device__ __forceinline__ void add_diagonal(const u32* ptr, const u32* cols, u32 n, const T* d, T* values) {
    u64 row = thread();
    if (row >= n || d[row] == T(0)) return;
    u32 low = __ldg(ptr + row), end = __ldg(ptr + row + 1), high = end;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (__ldg(cols + middle) < row) low = middle + 1;
        else high = middle;
    }
    if (low < end && __ldg(cols + low) == row) values[low] = values[low] + d[row];
}

// These kernels do not depend on a type, but their names have one, as those of all kernels do.
#define ENTRY extern "C" __global__ void __launch_bounds__(COARSEN_THREADS, 4)
#define ENTRIES(T, t)                                                                            \
    ENTRY share_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, T* shares) { find_shares<T>(ptr, cols, values, nodes, unknowns, shares); } \
    ENTRY count_rows_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, const T* shares, double squared, u32* rows, u32* neighbours, T* weights) { \
        couple_rows<T, false>(ptr, cols, values, nodes, shares, T(squared), rows, neighbours, weights); \
    }                                                                                            \
    ENTRY fill_rows_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, const T* shares, double squared, u32* rows, u32* neighbours, T* weights) { \
        couple_rows<T, true>(ptr, cols, values, nodes, shares, T(squared), rows, neighbours, weights); \
    }                                                                                            \
    ENTRY count_nodes_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, const T* shares, double squared, u32* rows, u32* neighbours, T* weights) { \
        couple_nodes<T, false>(ptr, cols, values, nodes, unknowns, shares, T(squared), rows, neighbours, weights); \
    }                                                                                            \
    ENTRY fill_nodes_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 nodes, u32 unknowns, const T* shares, double squared, u32* rows, u32* neighbours, T* weights) { \
        couple_nodes<T, true>(ptr, cols, values, nodes, unknowns, shares, T(squared), rows, neighbours, weights); \
    }                                                                                            \
    ENTRY draw_coarsen_##t(const u32* graph, u32 nodes, u64* state, u64* near) { draw(graph, nodes, state, near); } \
    ENTRY look_coarsen_##t(const u32* graph, const u32* neighbours, u32 nodes, const u64* state, u64* near) { look_around(graph, neighbours, nodes, state, near); } \
    ENTRY decide_coarsen_##t(const u32* graph, const u32* neighbours, u32 nodes, u32 round, u64* state, const u64* near, u32* left) { decide(graph, neighbours, nodes, round, state, near, left); } \
    ENTRY count_roots_coarsen_##t(const u64* state, u32 nodes, u32* numbers) { count_roots(state, nodes, numbers); } \
    ENTRY number_roots_coarsen_##t(const u64* state, u32 nodes, const u32* numbers, u32* assigned) { number_roots(state, nodes, numbers, assigned); } \
    ENTRY join_coarsen_##t(const u32* graph, const u32* neighbours, const T* weights, u32 nodes, const u32* from, u32* to) { join<T>(graph, neighbours, weights, nodes, from, to); } \
    ENTRY count_tentative_coarsen_##t(const u32* assigned, u32 n, u32 unknowns, u32 vectors, u32* rows) { count_tentative(assigned, n, unknowns, vectors, rows); } \
    ENTRY fill_tentative_coarsen_##t(const u32* assigned, u32 n, u32 unknowns, u32 vectors, const T* near_null, const u32* rows, u32* cols, T* values) { \
        fill_tentative<T>(assigned, n, unknowns, vectors, near_null, rows, cols, values);        \
    }                                                                                            \
    ENTRY orthonormalise_coarsen_##t(const u32* ptr, const u32* positions, u32 aggregates, u32 vectors, T* values, T* coarse, T* dropped, double roundoff) { \
        orthonormalise<T>(ptr, positions, aggregates, vectors, values, coarse, dropped, roundoff); \
    }                                                                                            \
    ENTRY count_filter_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 n, u32 unknowns, const u32* graph, const u32* neighbours, const u32* assigned, u32* rows) { \
        count_filter<T>(ptr, cols, values, n, unknowns, graph, neighbours, assigned, rows);      \
    }                                                                                            \
    ENTRY fill_filter_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 n, u32 unknowns, const u32* graph, const u32* neighbours, const u32* assigned, double omega, const u32* rows, u32* out_cols, T* out) { \
        fill_filter<T>(ptr, cols, values, n, unknowns, graph, neighbours, assigned, T(omega), rows, out_cols, out); \
    }                                                                                            \
    ENTRY diagonal_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 n, T* diagonal, T* inverse, u32* unfit) { find_diagonal<T>(ptr, cols, values, n, diagonal, inverse, unfit); } \
    ENTRY bound_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 n, const T* inverse, const double* w, double* next, u64* most) { \
        bound_spectrum<T>(ptr, cols, values, n, inverse, w, next, most);                         \
    }                                                                                            \
    ENTRY scale_coarsen_##t(const u32* ptr, const u32* cols, const T* values, u32 n, const T* left, const T* right, T* out) { scale_entries<T>(ptr, cols, values, n, left, right, out); } \
    ENTRY add_diagonal_coarsen_##t(const u32* ptr, const u32* cols, u32 n, const T* d, T* values) { add_diagonal<T>(ptr, cols, n, d, values); }
FOR_EACH_TYPE(ENTRIES)

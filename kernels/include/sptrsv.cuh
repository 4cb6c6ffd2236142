// Triangles in device memory, how far a solve has come, and the walk of warps whose rows wait for each other.
//
// Layout: `TriangleRows` and `Progress` have the field order and sizes of their twins in crates/backend-cuda/src/sptrsv.rs.
// Progress: warps draw runs of rows by a ticket, in the order of a solve, so a run depends only on itself and on runs that running warps
// have already drawn. The first run that is not done can therefore continue, whatever else waits: a grid of one thread block suffices.
// Epochs: a solve has a number, one above that of the previous solve, which the last thread block to end stores. A finished solve
// has written every slot, so slots hold the number of the last solve (0 at first) or that of the current one; numbers may wrap.
#pragma once
#include "exchange.cuh"

// The rows of T or of T^T: row i's entries are ptr[i] .. ptr[i+1], entry e in column idx[e] with the value values[e]. A stored diagonal entry
// is the last of a lower row and the first of an upper one.
template <class T>
struct TriangleRows {
    const u32* ptr;
    const u32* idx;
    const T* values;
    const T* inv_diag;  // null: a unit diagonal
    u32 nrows;
    u32 lower;          // 0: solved from the last row upwards

    // The k-th row to solve, and the place of a row in that order.
    __device__ __forceinline__ u32 row(u32 k) const { return lower ? k : nrows - 1 - k; }
    // The entry at a place of the walk towards the diagonal, which comes last.
    __device__ __forceinline__ u32 entry(u32 begin, u32 len, u32 place) const { return lower ? begin + place : begin + len - 1 - place; }
    __device__ __forceinline__ T value(u32 e) const { return __ldg(values + e); }
    // x of a row after its terms were subtracted.
    __device__ __forceinline__ T solved(u32 row, T s) const { return inv_diag ? s * __ldg(inv_diag + row) : s; }
};

// How far the solves of one resident triangle have come; all 0 at first.
struct Progress {
    u32 epoch;    // of the last solve that ended
    u32 ticket;   // the next one to be drawn; 0 between solves
    u32 arrived;  // thread blocks that have ended; 0 between solves
    u32 unused;

    // The number of the current solve.
    __device__ __forceinline__ u32 tag() const { return *(volatile const u32*)&epoch + 1; }
    // Draws the next ticket, for a whole warp.
    __device__ __forceinline__ u32 draw() {
        u32 drawn = 0;
        if (threadIdx.x % WARP == 0) drawn = atomicAdd(&ticket, 1u);
        return __shfl_sync(ALL, drawn, 0);
    }
    // The end of a thread block. All of its threads call this once they draw no more.
    __device__ __forceinline__ void leave(u32 tag) {
        __syncthreads();
        if (threadIdx.x == 0 && (__threadfence(), last_ticket(&arrived, gridDim.x))) {
            ticket = 0;
            epoch = tag;
        }
    }
};

// Rounds without success after which a waiting warp leaves the memory to others for a while, and for how many nanoseconds.
#define PATIENCE 16u
#define NAP 64u

#define SOLVE_THREADS 256
#define SOLVE_WARPS (SOLVE_THREADS / WARP)

// x of every row, LANES lanes per row: lane l takes the places l, l + LANES, ... of the walk towards the diagonal, one `fma(-t, x_j, s)`
// each. Lane 0 begins with s = b, and a halving tree over the lanes ends the row. With one lane that is the order of the serial solve.
// A ticket is for `deep` runs of 32 / LANES rows, one run after the other, together at most 32 rows.
// A warp loops: each lane loads once the values that its next entries lack, then takes all that are there, and a complete row
// is published in the same round, so lanes of a warp may depend on each other. What the rows of a ticket need from each other
// goes through shared memory, the rest through `slots`, one per row.
// b may be x: the lane that writes a row's x reads its b before.
template <class T, int LANES>
__device__ __forceinline__ void solve_rows(const TriangleRows<T>& m, u32 deep, u64* slots, Progress* progress, const T* b, T* x, const Monitor* gate) {
    constexpr u32 GROUPS = WARP / LANES;
    constexpr int U = LANES == 1 ? 4 : 2;
    __shared__ T shared_x[SOLVE_WARPS][WARP];
    if (!open(gate)) return;
    T* near = shared_x[threadIdx.x / WARP];
    u32 lane = threadIdx.x % WARP, part = lane % LANES, group = lane / LANES, tag = progress->tag();
    for (;;) {
        u64 first = (u64)progress->draw() * deep * GROUPS;
        if (first >= m.nrows) break;
        for (u32 run = 0; run < deep && first + run * GROUPS < m.nrows; run++) {
            u32 place = run * GROUPS + group;  // in the ticket
            bool waiting = first + place < m.nrows;
            u32 row = 0, begin = 0, len = 0;
            T s = T(0);
            if (waiting) {
                row = m.row((u32)first + place);
                begin = __ldg(m.ptr + row);
                len = __ldg(m.ptr + row + 1) - begin;
                if (part == 0) s = b[row];
            }
            // Entries of this lane from place `at` on: U ready and U ahead of them.
            u32 at = part, next = 0, have = 0;
            u32 col[U], col_ahead[U];
            T value[U], value_ahead[U], of_x[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                u32 p = at + u * LANES, q = p + U * LANES;
                col[u] = col_ahead[u] = row;
                value[u] = value_ahead[u] = of_x[u] = T(0);
                if (p < len) {
                    u32 e = m.entry(begin, len, p);
                    col[u] = __ldg(m.idx + e), value[u] = m.value(e);
                }
                if (q < len) {
                    u32 e = m.entry(begin, len, q);
                    col_ahead[u] = __ldg(m.idx + e), value_ahead[u] = m.value(e);
                }
            }
            u32 known = 0;  // the bit of the first lane of each group of this run that has published its x
            u32 vain = 0;
            while (__any_sync(ALL, waiting)) {
                // Values of rows of earlier tickets.
                Slot<T> slot[U];
                u32 asked = 0;
#pragma unroll
                for (int u = 0; u < U; u++) {
                    u32 k = m.row(col[u]) - (u32)first;  // the place in the ticket, wrapped around for rows of earlier tickets
                    bool far = u >= next && at + u * LANES < len && !(have >> u & 1) && k >= deep * GROUPS;
                    if (far) {
                        slot[u].load(slots + (u64)col[u] * Slot<T>::WORDS);
                        asked |= 1u << u;
                    }
                }
#pragma unroll
                for (int u = 0; u < U; u++)
                    if (asked >> u & 1 && slot[u].holds(tag)) {
                        of_x[u] = slot[u].value();
                        have |= 1u << u;
                    }
                bool moved = false, again;
                do {
                    u32 before = next;
#pragma unroll
                    for (int u = 0; u < U; u++) {
                        if (next != u || at + u * LANES >= len) continue;
                        if (col[u] == row) {  // the diagonal
                            next = u + 1;
                        } else if (have >> u & 1) {
                            s = fma_rn(-value[u], of_x[u], s);
                            next = u + 1;
                        } else {
                            u32 k = m.row(col[u]) - (u32)first;
                            bool there = k < run * GROUPS || (k < deep * GROUPS && k / GROUPS == run && known >> (k % GROUPS * LANES) & 1);
                            if (there) {
                                s = fma_rn(-value[u], near[k], s);
                                next = u + 1;
                            }
                        }
                    }
                    moved = moved || next != before;
                    if (next == U && at + U * LANES < len) {
                        at += U * LANES, next = 0, have = 0;
#pragma unroll
                        for (int u = 0; u < U; u++) {
                            u32 q = at + (u + U) * LANES;
                            col[u] = col_ahead[u], value[u] = value_ahead[u];
                            if (q < len) {
                                u32 e = m.entry(begin, len, q);
                                col_ahead[u] = __ldg(m.idx + e), value_ahead[u] = m.value(e);
                            }
                        }
                    }
                    u32 ended = __ballot_sync(ALL, at + next * LANES >= len);
                    u32 mine = LANES == WARP ? ALL : ((1u << LANES % WARP) - 1) << group * LANES;
                    bool complete = waiting && (ended & mine) == mine;
                    bool given = false;
                    if (__any_sync(ALL, complete)) {
                        T sum = s;
#pragma unroll
                        for (int d = LANES / 2; d > 0; d /= 2) sum += __shfl_down_sync(ALL, sum, d, LANES);
                        if (complete) {
                            waiting = false;
                            if (part == 0) {
                                T v = m.solved(row, sum);
                                Slot<T>::put(slots + (u64)row * Slot<T>::WORDS, tag, v);
                                x[row] = v;
                                near[place] = v;
                                given = true;
                            }
                        }
                        __syncwarp();
                    }
                    u32 now = __ballot_sync(ALL, given);
                    known |= now;
                    again = now != 0;
                } while (again && __any_sync(ALL, waiting));
                vain = __any_sync(ALL, moved) ? 0 : vain + 1;
                if (vain > PATIENCE) __nanosleep(NAP);
            }
        }
        __syncwarp();  // what the rows of this ticket passed to each other has been read
    }
    progress->leave(tag);
}

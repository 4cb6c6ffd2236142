// The nodes that a node of several unknowns is coupled to.
//
// Layout: a matrix as CSR stores it; a node is `unknowns` consecutive rows. Grid: one thread walks the rows of a node side by side, or a warp collects
// what they refer to in a table in shared memory.
// Order: none is summed; a weight is the largest magnitude between two nodes.
#pragma once
#include "spandrel.cuh"

// The most rows per node. Twin: MOST_UNKNOWNS of crates/formats/src/amg/mod.rs.
#define MOST_UNKNOWNS 6
// Places of the table of a node's neighbours, and the most neighbours that it takes. Lanes that add at the same time may each add one more.
#define PLACES_LOG 8
#define PLACES (1u << PLACES_LOG)
#define NEIGHBOURS_MOST 192u
// Entries of a node that a lane loads at once.
#define ENTRIES_AT_ONCE 4

#define EMPTY 0xffffffffu
#define UNASSIGNED 0xffffffffu

template <class T>
__device__ __forceinline__ T magnitude(T v) { return v < T(0) ? -v : v; }
template <class T>
__device__ __forceinline__ T larger(T a, T b) { return a < b ? b : a; }

// The rows of a node, walked side by side.
template <class T>
struct Couplings {
    u32 at[MOST_UNKNOWNS], end[MOST_UNKNOWNS];
    const u32* cols;
    const T* values;
    u32 unknowns, node;

    __device__ __forceinline__ Couplings(const u32* ptr, const u32* cols, const T* values, u32 unknowns, u32 node) : cols(cols), values(values), unknowns(unknowns), node(node) {
#pragma unroll
        for (int r = 0; r < MOST_UNKNOWNS; r++) {
            at[r] = r < unknowns ? __ldg(ptr + (u64)node * unknowns + r) : 0;
            end[r] = r < unknowns ? __ldg(ptr + (u64)node * unknowns + r + 1) : 0;
        }
    }

    // The next other node, in ascending order, with the largest magnitude between the two; UNASSIGNED after the last.
    __device__ __forceinline__ u32 next(T& weight) {
        for (;;) {
            u32 other = UNASSIGNED;
#pragma unroll
            for (int r = 0; r < MOST_UNKNOWNS; r++)
                if (at[r] < end[r]) other = min(other, __ldg(cols + at[r]) / unknowns);
            if (other == UNASSIGNED) return other;
            weight = T(0);
#pragma unroll
            for (int r = 0; r < MOST_UNKNOWNS; r++)
                while (at[r] < end[r] && __ldg(cols + at[r]) / unknowns == other) weight = larger(weight, magnitude(__ldg(values + at[r]++)));
            if (other != node) return other;
        }
    }
};

// Values that are not negative are ordered as their bits are.
__device__ __forceinline__ void atomic_larger(float* to, float v) { atomicMax((u32*)to, __float_as_uint(v)); }
__device__ __forceinline__ void atomic_larger(double* to, double v) { atomicMax((u64*)to, (u64)__double_as_longlong(v)); }

// The other nodes that a node's rows refer to, each with the largest magnitude between the two: a hash table in shared memory, which a warp shares.
template <class T>
struct Neighbours {
    u32* keys;
    T* weights;
    u32* used;

    __device__ __forceinline__ void clear(u32 lane) {
#pragma unroll
        for (u32 at = lane; at < PLACES; at += WARP) keys[at] = EMPTY, weights[at] = T(0);
        if (lane == 0) *used = 0;
        __syncwarp();
    }

    // Returns false if the node is new and the table is full. So some call returns false if there are too many nodes, and none does otherwise: that
    // does not depend on the order of the calls.
    __device__ __forceinline__ bool add(u32 node, T weight) {
        u32 at = (node * 0x9e3779b1u) >> (32 - PLACES_LOG);
        for (;;) {
            u32 key = *(volatile u32*)(keys + at);
            if (key == EMPTY) {
                key = atomicCAS(keys + at, EMPTY, node);
                if (key == EMPTY) {
                    if (atomicAdd(used, 1u) >= NEIGHBOURS_MOST) return false;
                    key = node;
                }
            }
            if (key == node) {
                // False for NaN, as in `larger`. Lanes that change one weight wait for each other.
                if (*(volatile T*)(weights + at) < weight) atomic_larger(weights + at, weight);
                return true;
            }
            at = (at + 1) % PLACES;
        }
    }

    // Adds the entries from `begin` to `end`, the rows of `node`. Returns whether all fit in.
    __device__ __forceinline__ bool add_rows(const u32* cols, const T* values, u32 begin, u32 end, u32 unknowns, u32 node, u32 lane) {
        bool fits = true;
        for (u32 base = begin + lane; base < end; base += ENTRIES_AT_ONCE * WARP) {
            u32 other[ENTRIES_AT_ONCE];
            T weight[ENTRIES_AT_ONCE];
#pragma unroll
            for (int i = 0; i < ENTRIES_AT_ONCE; i++) {
                u32 e = base + i * WARP;
                other[i] = e < end ? __ldg(cols + e) : node * unknowns;
                weight[i] = e < end ? __ldg(values + e) : T(0);
            }
            issued();
#pragma unroll
            for (int i = 0; i < ENTRIES_AT_ONCE; i++) {
                u32 of = other[i] / unknowns;
                if (fits && of != node) fits = add(of, magnitude(weight[i]));
            }
        }
        return __all_sync(ALL, fits);
    }
};

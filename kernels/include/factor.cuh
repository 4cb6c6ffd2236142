// Incomplete factorisations: patterns in device memory, what a run has found, and the walk of warps whose rows depend on earlier rows.
//
// Layout: `Pattern`, `Task` and `Numeric` have the field order and sizes of their twins in crates/backend-cuda/src/factor.rs.
// Progress: warps draw runs of rows by a ticket, in an order in which each row comes after the rows of its columns, so a run depends only on
// itself and on runs that running warps have already drawn: a grid of one thread block suffices. Lanes of a warp never wait separately:
// the warp loops, each group takes what is there, and a row that is complete is published in the same round.
// Marks: a row's mark is the number of the run that made it, one above that of the previous run. A run marks every row, whatever the
// values are, so marks hold the number of the last run (0 at first) or that of the current run; numbers may wrap. But a hasty run ends once
// a row of the second kind is found wrong: waiting warps check for that, and draw no more. It leaves marks of earlier runs. After some tens
// of hasty runs at most, the host lets a complete run follow, or one that finds nothing wrong.
#pragma once
#include "sptrsv.cuh"

// Where rows have entries: row i's are ptr[i] .. ptr[i+1], their columns ascending.
struct Pattern {
    const u32* ptr;
    const u32* cols;
};

// How far the runs of one resident factorisation have come, and what was wrong; all 0 at first.
struct Numeric {
    Progress progress;
    u32 worst[2];  // complements of the first rows found wrong in the current run, of two kinds; 0 for none
    u32 found[2];  // those of the last run that ended

    __device__ __forceinline__ void blame(u32 kind, u32 row) { atomicMax(&worst[kind], ~row); }
    // Whether a row of the second kind was found wrong in the current run.
    __device__ __forceinline__ bool lost() const { return *(volatile const u32*)&worst[1] != 0; }
    // The end of a thread block. All of its threads call this once they draw no more.
    __device__ __forceinline__ void leave(u32 tag) {
        __syncthreads();
        if (threadIdx.x == 0 && (__threadfence(), last_ticket(&progress.arrived, gridDim.x))) {
            __threadfence();
            for (int kind = 0; kind < 2; kind++) found[kind] = atomicExch(&worst[kind], 0u);
            progress.ticket = 0;
            progress.epoch = tag;
        }
    }
};

// A factorisation on its patterns.
template <class T>
struct Task {
    Pattern lower;
    Pattern upper;     // nulls if the other factor is L^T
    Pattern given;     // A's; nulls if A's rows are those of the factors, no columns if they begin with L's
    const T* values;   // A's
    T* l;
    T* u;
    const u32* order;  // rows, each after the rows of its columns
    u32* marks;        // one per row
    Numeric* state;
    T number;          // the unit roundoff; SSOR: omega
    T shift;           // of the diagonal; SSOR: 2 - omega
    u32 nrows;
    u32 hasty;         // not 0: see Marks
};

#define FACTOR_THREADS 256
#define FACTOR_WARPS (FACTOR_THREADS / WARP)
// Entries of rows for which a warp has room on chip.
#define ROOM 256

__device__ __forceinline__ u32 mark_at(const u32* at) {
    u32 seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
    return seen;
}

// Comes after everything that this warp did before its last __syncwarp.
__device__ __forceinline__ void put_mark(u32* at, u32 tag) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(tag) : "memory"); }

// What another thread block of this run may have written: read after its mark, never before, and bypassing the first-level cache.
__device__ __forceinline__ float made_at(const float* at) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
    return v;
}
__device__ __forceinline__ double made_at(const double* at) {
    double v;
    asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(v) : "l"(at) : "memory");
    return v;
}

template <class T>
__device__ __forceinline__ T magnitude(T v) { return v < T(0) ? -v : v; }

// The position of a column among ascending ones, PADDING if it is not there.
__device__ __forceinline__ u32 find(const u32* cols, u32 len, u32 col) {
    u32 at = 0, left = len;
    while (left > 0) {
        u32 half = left / 2;
        if (cols[at + half] < col) at += half + 1, left -= half + 1;
        else left = half;
    }
    return at < len && cols[at] == col ? at : PADDING;
}

// A row in progress: places 0 .. nl below the diagonal, nl .. len from it on. On chip if there is room, else where the factors will be.
template <class T>
struct Row {
    u32 row, nl, len;
    u32 at_l, at_u;            // where the two parts begin in the factors
    const u32 *before, *rest;  // their columns
    T *w, *v;                  // their values
    bool near;                 // on chip

    __device__ __forceinline__ T* at(u32 place) const { return place < nl ? w + place : v + (place - nl); }
    __device__ __forceinline__ u32 place(u32 col) const {
        if (col < row) return find(before, nl, col);
        u32 found = find(rest, len - nl, col);
        return found == PADDING ? PADDING : nl + found;
    }
};

// What is known of a needed row before it is complete: its entries begin .. end, this lane's first entry e and the place that it meets.
struct Ahead {
    u32 begin, end, e, place;
};

// The lanes of a group.
template <int LANES>
struct Group {
    u32 part, group;

    __device__ __forceinline__ Group() : part(threadIdx.x % LANES), group(threadIdx.x % WARP / LANES) {}
    // Bits of this group's lanes; for a whole warp.
    __device__ __forceinline__ u32 ballot(bool said) const {
        u32 bits = __ballot_sync(ALL, said) >> group * LANES;
        return LANES == WARP ? bits : bits & ((1u << LANES % WARP) - 1);
    }
};

// All rows, LANES lanes per row. A whole warp calls `Method`, with `on` true for groups that take part,
//   Row<T> open(bool on, u32 row, u32* room_cols, T* room, u32 most)   a row laid out with A's values
//   Ahead look(const Row<T>&, u32 step)                                the pattern that step `step` needs; without waiting
//   void take(const Row<T>&, u32 step, const Ahead&, bool on)          does the step, whose row is complete
//   void finish(const Row<T>&, bool on)                                writes the row and checks it
// Step p of a row needs the row of its p-th column.
template <class T, int LANES, class Method>
__device__ __forceinline__ void factor_rows(const Task<T>& task, Method& method) {
    constexpr u32 GROUPS = WARP / LANES, MOST = ROOM / GROUPS;
    __shared__ T shared_values[FACTOR_WARPS][ROOM];
    __shared__ u32 shared_cols[FACTOR_WARPS][ROOM];
    Group<LANES> lanes;
    u32 warp = threadIdx.x / WARP, tag = task.state->progress.tag();
    T* room = shared_values[warp] + lanes.group * MOST;
    u32* room_cols = shared_cols[warp] + lanes.group * MOST;
    for (;;) {
        u64 first = (u64)task.state->progress.draw() * GROUPS;
        if (first >= task.nrows) break;
        bool waiting = first + lanes.group < task.nrows;
        u32 number = waiting ? __ldg(task.order + first + lanes.group) : 0;
        Row<T> row = method.open(waiting, number, room_cols, room, MOST);
        Ahead ahead = {0, 0, 0, PADDING};
        u32 step = 0, known = PADDING, vain = 0;
        bool lost = false;
        while (__any_sync(ALL, waiting)) {
            // Loaded at the same time as the marks.
            lost = task.hasty && task.state->lost();
            if (waiting && step < row.nl && known != step) {
                ahead = method.look(row, step);
                known = step;
            }
            // Each lane asks for a row of its own. Those that are complete, up to the first that is not, are taken.
            u32 p = step + lanes.part;
            bool seen = waiting && p < row.nl && mark_at(task.marks + row.before[p]) == tag;
            u32 bits = lanes.ballot(seen);
            __syncwarp();  // what one lane has seen, the others may read
            u32 ready = bits == ALL ? WARP : __ffs(~bits) - 1;
            for (u32 s = 0; __any_sync(ALL, s < ready); s++) {
                bool on = s < ready;
                if (on && s > 0) ahead = method.look(row, step + s);
                method.take(row, step + s, ahead, on);
            }
            step += ready;
            bool complete = waiting && step == row.nl;
            bool any = __any_sync(ALL, complete);
            if (any) {
                __syncwarp();
                method.finish(row, complete);
                __syncwarp();  // every lane has written
                if (complete && lanes.part == 0) put_mark(task.marks + row.row, tag);
                waiting = waiting && !complete;
            }
            vain = any || __any_sync(ALL, ready > 0) ? 0 : vain + 1;
            if (vain > 0 && __any_sync(ALL, lost)) break;
            if (vain > PATIENCE) __nanosleep(NAP);
        }
        __syncwarp();  // the room may be reused
        if (__any_sync(ALL, lost)) break;
    }
    task.state->leave(tag);
}

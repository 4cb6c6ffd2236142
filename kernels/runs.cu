// Row pointers and columns from the runs that the host sent instead of them.
//
// Layout: `Run` and `Piece` have twins of the same names in crates/backend-cuda/src/runs.rs. A run has `periods` times `step` rows. Each
// `width` entries repeat the `width` entries before, with every column larger by `step`. In `words`, from `first` on, a run has the ends of
// the rows of a period except the last, counted from the period's beginning, then the columns of the first period. A piece is all runs of
// some consecutive rows.
// Grid: `parts` thread blocks of 256 for each piece; a warp takes CHUNK entries and CHUNK rows at a time.
// Order: none is summed.
// Bytes: columns and row pointers written once; runs and words as the host sent them, read once from memory.
#include "spandrel.cuh"

#define RUN_THREADS 256
#define CHUNK 1024u

struct Run {
    u32 row, begin;  // its first row, and where its first entry lies
    u32 periods, step, width;
    u32 first;
};

struct Piece {
    u32 row, end_row;
    u32 begin, end;
    u32 run, end_run;
    u32 words;       // the word that `first` counts from
};

// The last run that begins at or before a row or an entry. If several begin at the same entry, all but one have no entries.
__device__ __forceinline__ u32 run_of(const Run* runs, u32 low, u32 high, u32 at, bool by_row) {
    while (high - low > 1) {
        u32 middle = low + (high - low) / 2;
        if ((by_row ? runs[middle].row : runs[middle].begin) <= at) low = middle;
        else high = middle;
    }
    return low;
}

// Writes where rows of a run end.
__device__ __forceinline__ void write_ends(const Run& run, const u32* words, u32 from, u32 to, u32 lane, u32* row_ptr) {
    for (u32 row = from + lane; row < to; row += WARP) {
        u32 i = row - run.row, period = i / run.step, k = i % run.step;
        u32 end = k + 1 < run.step ? words[k] : run.width;
        row_ptr[row + 1] = run.begin + period * run.width + end;
    }
}

__device__ __forceinline__ void write_columns(const Run& run, const u32* words, u32 from, u32 to, u32 lane, u32* cols) {
    if (from + lane >= to) return;
    u32 i = from + lane - run.begin, more = i / run.width * run.step, k = i % run.width;
    u32 step_more = WARP / run.width * run.step, step_k = WARP % run.width;
    const u32* base = words + (run.step - 1);
#pragma unroll 4
    for (u32 e = from + lane; e < to; e += WARP) {
        cols[e] = base[k] + more;
        more += step_more;
        k += step_k;
        if (k >= run.width) {
            k -= run.width;
            more += run.step;
        }
    }
}

__device__ __forceinline__ void expand(const Piece* pieces, u32 parts, const Run* runs, const u32* words, u32* row_ptr, u32* cols) {
    const Piece piece = pieces[blockIdx.x / parts];
    u32 lane = threadIdx.x % WARP, warps = parts * (RUN_THREADS / WARP);
    u32 mine = blockIdx.x % parts * (RUN_THREADS / WARP) + threadIdx.x / WARP;
    words += piece.words;
    for (u32 chunk = mine; chunk < (piece.end - piece.begin + CHUNK - 1) / CHUNK; chunk += warps) {
        u32 at = piece.begin + chunk * CHUNK, end = piece.end - at < CHUNK ? piece.end : at + CHUNK;
        for (u32 k = run_of(runs, piece.run, piece.end_run, at, false); at < end; k++) {
            const Run run = runs[k];
            u32 last = run.begin + run.periods * run.width, to = last < end ? last : end;
            write_columns(run, words + run.first, at, to, lane, cols);
            at = to;
        }
    }
    for (u32 chunk = mine; chunk < (piece.end_row - piece.row + CHUNK - 1) / CHUNK; chunk += warps) {
        u32 at = piece.row + chunk * CHUNK, end = piece.end_row - at < CHUNK ? piece.end_row : at + CHUNK;
        for (u32 k = run_of(runs, piece.run, piece.end_run, at, true); at < end; k++) {
            const Run run = runs[k];
            u32 last = run.row + run.periods * run.step, to = last < end ? last : end;
            write_ends(run, words + run.first, at, to, lane, row_ptr);
            at = to;
        }
    }
}

// The structure does not depend on a type, but the names have one, as those of all kernels do.
#define RUNS(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(RUN_THREADS) expand_runs_##t(const Piece* pieces, u32 parts, const Run* runs, const u32* words, u32* row_ptr, u32* cols) { \
        expand(pieces, parts, runs, words, row_ptr, cols);                                       \
    }
FOR_EACH_TYPE(RUNS)

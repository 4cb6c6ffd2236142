// Structured: triangular solve on a grid by lines, Algorithm 2 of Chen, Yang, Liu, Ma 2023. A line of X points is one task of one warp.
//
// Layout: the rows of a plain CSR triangle, or of its transpose by an index of its columns (`from`). They are walked as a lower triangle:
// row w of the walk is row w of a lower triangle and row n - 1 - w of an upper one, whose entries are walked backwards too, so that
// columns ascend and a stored diagonal entry is last. Line l has rows l X .. (l + 1) X.
// State: number of solves, ticket, warps that have left, one word unused; a counter for each plane's queue; the marks. The kernel advances
// all of them, so nothing is cleared: counters grow modulo 2^32 by the same amount in each solve. Compressed, a mark is an integer per line,
// X * solves + rows solved there, compared modulo 2^32; otherwise one word per row, the number of the solve.
// Grid: any number of thread blocks of 128. A warp draws a ticket, which assigns it to a plane, D to each in z order; there it draws lines
// in y order until none is left, then the next ticket. A line depends on itself and on lines before it. Running warps drew those before it,
// so a single warp suffices.
// Order: own. A stage is as many rows as groups of `1 << group` lanes fit into a warp. Terms of other lines, and of rows of the same line
// before the stage and over two rows away, go through a halving tree over the group and are added to b; then terms of the two rows before,
// farthest first, one fma each; then the reciprocal. Rows longer than a group: one by one, entry k on lane k % 32, the tree over 32 lanes.
// Bytes: the CSR arrays, the reciprocals, b, x once; marks and x of other lines from the second-level cache.
#include "spandrel.cuh"

#define LINE_CREW 128

// Rows of a triangle and the state of its solves. Twin: LinesArg in crates/backend-cuda/src/structured.rs.
template <class T>
struct Lines {
    const u32* ptr;
    const u32* idx;   // with values and from: at least one element
    const u32* from;  // null: a value has the position of its column
    const T* values;
    const T* inv;     // null: a unit diagonal
    u32* state;
    u32 n, nnz;
    u32 flip;                  // 0, or all ones for an upper triangle
    u32 width, height, depth;  // X, Y, Z
    u32 crew;                  // D, warps of a queue
    u32 magic, shift;          // w / X = w * magic >> shift for w < 2^31
    u32 group;                 // log2 of the lanes of a row

    // Maps a row of the walk to a row of the triangle, and back.
    __device__ __forceinline__ u32 image(u32 w) const { return (w ^ flip) + (flip & n); }
    // Where a row of the walk begins among walked entries.
    __device__ __forceinline__ u32 begin(u32 w) const {
        u32 at = __ldg(ptr + ((w ^ flip) + (flip & (n + 1))));
        return (at ^ flip) + (flip & (nnz + 1));
    }
    // Where a walked entry is stored.
    __device__ __forceinline__ u32 place(u32 q) const { return (q ^ flip) + (flip & nnz); }
    __device__ __forceinline__ T value(u32 e) const { return __ldg(values + (from ? __ldg(from + e) : e)); }
    __device__ __forceinline__ T reciprocal(u32 row) const { return inv ? __ldg(inv + row) : T(1); }
    // 1 if the last entry of a row is certainly the diagonal's.
    __device__ __forceinline__ u32 diagonal() const { return inv ? 1 : 0; }
    __device__ __forceinline__ u32 line(u32 w) const { return (u32)((u64)w * magic >> shift); }
};

__device__ __forceinline__ void release_mark(u32* at, u32 mark) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(mark) : "memory"); }

// A mark as another warp left it. If not ACQUIRE, a fence must follow before the data that it covers is read.
template <bool ACQUIRE>
__device__ __forceinline__ u32 mark_at(const u32* at) {
    u32 mark;
    if (ACQUIRE) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(mark) : "l"(at) : "memory");
    else asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(mark) : "l"(at) : "memory");
    return mark;
}
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// The sum over groups of 1 << log lanes, in each lane of a group.
template <class T>
__device__ __forceinline__ T lane_sum(T v, u32 log) {
#pragma unroll
    for (u32 d = 0; d < 5; d++)
        if (d < log) v += __shfl_xor_sync(ALL, v, 1u << d);
    return v;
}

// One warp that works on a line.
template <class T, bool MULTISTAGE, bool PREFETCH, bool PREDICATION, bool COMPRESSED, bool ACQUIRE>
struct LineSolver {
    const Lines<T>& m;
    const T* b;
    T* x;
    u32 lane;
    u32* marks;
    u32 solve;          // number of this solve, from 0
    u32 line;           // the line it works on
    u32 first, last;    // its rows

    // What a lane waits for: a mark and its least value.
    struct Mark {
        u32 at, least;
        __device__ __forceinline__ bool reached(u32 found) const {
            return COMPRESSED ? (int)(found - least) >= 0 : found == least;
        }
    };
    __device__ __forceinline__ Mark mark_of(u32 c) const {
        if (!COMPRESSED) return {c, solve + 1};
        u32 l = m.line(c);
        return {l, solve * m.width + (c - l * m.width) + 1};
    }
    __device__ __forceinline__ T solved(u32 row) const { return ACQUIRE ? x[row] : __ldcg(x + row); }

    // Announces that rows w .. w + k are solved, after each lane with `mine` has written one of them: row w + part.
    __device__ __forceinline__ void publish(u32 w, u32 k, bool mine, u32 part) const {
        __syncwarp();
        if (COMPRESSED) {
            if (lane == 0) release_mark(marks + line, solve * m.width + (w + k - first));
        } else if (mine) {
            release_mark(marks + w + part, solve + 1);
        }
    }

    // One row by the whole warp; its x is in every lane.
    __device__ __forceinline__ T row(u32 w) const {
        u32 q = m.begin(w) + lane, end = m.begin(w + 1) - m.diagonal(), i = m.image(w);
        T at = __ldcg(b + i), inv = m.reciprocal(i), sum = T(0);
        for (; q < end; q += WARP) {
            u32 e = m.place(q), j = __ldg(m.idx + e), c = m.image(j);
            if (c < w) {  // not the diagonal of a unit triangle
                T v = m.value(e);
                if (c < first) {
                    Mark mark = mark_of(c);
                    while (!mark.reached(mark_at<ACQUIRE>(marks + mark.at))) {}
                    if (!ACQUIRE) fence();
                }
                sum = fma_rn(-v, solved(j), sum);
            }
        }
        __syncwarp();
        return (at + lane_sum(sum, 5)) * inv;
    }

    // One row by the whole warp, written and announced.
    __device__ __forceinline__ T row_alone(u32 w) const {
        T found = row(w);
        if (lane == 0) x[m.image(w)] = found;
        publish(w, 1, lane == 0, 0);
        __syncwarp();
        return found;
    }

    // Where the entries off the diagonal of a row begin, and how many there are: none past the line. With predication a lane without entry
    // reads what another lane reads.
    struct Span {
        u32 begin, len;
    };
    __device__ __forceinline__ Span span_of(u32 w) const {
        Span span{0, 0};
        if (PREDICATION) {
            u32 inside = w < last ? w : last - 1;
            span.begin = m.begin(inside);
            span.len = m.begin(inside + 1) - span.begin - m.diagonal();
            span.len = w < last ? span.len : 0;
        } else if (w < last) {
            span.begin = m.begin(w);
            span.len = m.begin(w + 1) - span.begin - m.diagonal();
        }
        return span;
    }
    // A lane's entry of its row, and what ends the row.
    struct Entry {
        u32 j;
        T v, b, inv;
    };
    __device__ __forceinline__ Entry entry_of(u32 w, const Span& span, u32 sub) const {
        Entry entry{0, T(0), T(0), T(0)};
        if (PREDICATION) {
            u32 e = sub < span.len ? m.place(span.begin + sub) : 0, i = m.image(w < last ? w : last - 1);
            entry.j = __ldg(m.idx + e);
            entry.v = m.value(e);
            entry.b = __ldcg(b + i);
            entry.inv = m.reciprocal(i);
        } else {
            if (sub < span.len) {
                u32 e = m.place(span.begin + sub);
                entry.j = __ldg(m.idx + e);
                entry.v = m.value(e);
            }
            if (w < last) {
                u32 i = m.image(w);
                entry.b = __ldcg(b + i);
                entry.inv = m.reciprocal(i);
            }
        }
        return entry;
    }

    __device__ __forceinline__ void stages() const {
        const u32 lanes = 1u << m.group, rows = WARP >> m.group, part = lane >> m.group, sub = lane & (lanes - 1);
        const u32 before = part << m.group, mask = ALL >> (WARP - lanes);
        u32 r = first;
        Span span = span_of(r + part), ahead{0, 0};
        Entry entry = entry_of(r + part, span, sub);
        if (PREFETCH) ahead = span_of(r + rows + part);
        // The mark seen last. A lane's entry lies on the same line from stage to stage, except at the edges of the grid.
        u32 seen_at = ALL, seen = 0;
        T x1 = T(0), x2 = T(0);  // of the two previous rows
        while (r < last) {
            const u32 w = r + part, c = m.image(entry.j), back = w - c;
            const bool has = sub < span.len, own = has && c >= first, near = own && back <= 2;
            // A row ends the stage if it is longer than its lanes, or depends inside the stage on more than the two previous rows.
            const u32 odd = __ballot_sync(ALL, span.len > lanes || (own && !near && c >= r));
            u32 k = last - r < rows ? last - r : rows;
            if (odd) {
                u32 whole = (u32)(__ffs(odd) - 1) >> m.group;
                k = whole < k ? whole : k;
                if (k == 0) {
                    T found = row_alone(r);
                    x2 = x1;
                    x1 = found;
                    r += 1;
                    span = span_of(r + part);
                    entry = entry_of(r + part, span, sub);
                    if (PREFETCH) ahead = span_of(r + rows + part);
                    continue;
                }
            }
            const u32 next = r + k;
            Span span_next{0, 0};
            Entry entry_next{0, T(0), T(0), T(0)};
            if (PREFETCH) {
                span_next = ahead;
                if (k < rows && next < last) span_next = span_of(next + part);
                entry_next = entry_of(next + part, span_next, sub);
                ahead = span_of(next + rows + part);
            }

            // The coefficients of the two previous rows, to all lanes of the row.
            const u32 one = (__ballot_sync(ALL, own && back == 1) >> before) & mask;
            const u32 two = (__ballot_sync(ALL, own && back == 2) >> before) & mask;
            const T a1 = __shfl_sync(ALL, entry.v, before + (u32)__ffs(one) - 1);
            const T a2 = __shfl_sync(ALL, entry.v, before + (u32)__ffs(two) - 1);

            const bool reads = has && !near && part < k;
            bool waits = reads && c < first;
            const Mark mark = mark_of(c);
            if (COMPRESSED && seen_at == mark.at && mark.reached(seen)) waits = false;
            T sum = T(0);
            if (PREDICATION) {
                u32 tries = 0;
                while (__any_sync(ALL, waits)) {
                    if (waits) {
                        u32 found = mark_at<ACQUIRE>(marks + mark.at);
                        seen_at = mark.at;
                        seen = found;
                        waits = !mark.reached(found);
                    }
                    if (++tries > 8) __nanosleep(64);
                }
                if (!ACQUIRE) fence();
                T other = reads ? solved(entry.j) : T(0);
                sum = reads ? -(entry.v * other) : T(0);
            } else {
                if (reads) {
                    if (waits) {
                        u32 found;
                        do {
                            found = mark_at<ACQUIRE>(marks + mark.at);
                        } while (!mark.reached(found));
                        seen_at = mark.at;
                        seen = found;
                        if (!ACQUIRE) fence();
                    }
                    sum = -(entry.v * solved(entry.j));
                }
                __syncwarp();
            }
            T s = entry.b + lane_sum(sum, m.group);
            // The rows of the stage one after the other; each group keeps its own x.
            for (u32 j = 0; j < k; j++) {
                T t = s;
                if (two) t = fma_rn(-a2, x2, t);
                if (one) t = fma_rn(-a1, x1, t);
                t *= entry.inv;
                if (part == j) s = t;
                x2 = x1;
                x1 = __shfl_sync(ALL, t, j << m.group);
            }
            const bool mine = sub == 0 && part < k;
            if (mine) x[m.image(w)] = s;
            publish(r, k, mine, part);
            r = next;
            if (PREFETCH) {
                span = span_next;
                entry = entry_next;
            } else {
                span = span_of(r + part);
                entry = entry_of(r + part, span, sub);
            }
        }
    }

    __device__ __forceinline__ void solve_line(u32 at) {
        line = at;
        first = at * m.width;
        last = first + m.width;
        if (MULTISTAGE) {
            stages();
        } else {
            for (u32 w = first; w < last; w++) row_alone(w);
        }
    }
};

// The next number of a counter, the same in all lanes.
__device__ __forceinline__ u32 draw(u32* counter, u32 lane) {
    u32 number = 0;
    if (lane == 0) number = atomicAdd(counter, 1u);
    return __shfl_sync(ALL, number, 0);
}

template <class T, bool MULTISTAGE, bool PREFETCH, bool PREDICATION, bool COMPRESSED, bool ACQUIRE>
__device__ __forceinline__ void sptrsv_lines(const Lines<T>& m, const T* b, T* x, const Monitor* gate) {
    if (!open(gate)) return;
    const u32 lane = threadIdx.x % WARP;
    u32* queues = m.state + 4;
    const u32 solve = *(volatile const u32*)m.state;
    // In each solve Y lines are drawn from a queue, and each of its D warps draws once in vain.
    const u32 base = solve * (m.height + m.crew);
    LineSolver<T, MULTISTAGE, PREFETCH, PREDICATION, COMPRESSED, ACQUIRE> solver{m, b, x, lane, queues + m.depth, solve, 0, 0, 0};
    for (u32 ticket = draw(m.state + 1, lane); ticket < m.depth * m.crew; ticket = draw(m.state + 1, lane)) {
        u32 z = ticket / m.crew;
        for (u32 y = draw(queues + z, lane) - base; y < m.height; y = draw(queues + z, lane) - base) solver.solve_line(z * m.height + y);
    }
    // The last warp to leave prepares the state for the next solve; all others have read theirs.
    if (lane == 0) {
        __threadfence();
        if (atomicAdd(m.state + 2, 1u) == gridDim.x * (LINE_CREW / WARP) - 1) {
            m.state[1] = 0;
            m.state[2] = 0;
            m.state[0] = solve + 1;
        }
    }
}

#define SOLVE(T, t, name, M, F, P, C, A)                                                         \
    extern "C" __global__ void __launch_bounds__(LINE_CREW, 8) name##_structured_##t(Lines<T> m, const T* b, T* x, const Monitor* gate) { \
        sptrsv_lines<T, M, F, P, C, A>(m, b, x, gate);                                           \
    }
// Multistage, prefetch, predication, compressed, acquire.
#define ENTRIES(T, t)                                                                            \
    SOLVE(T, t, sptrsv, true, true, true, true, true)                                            \
    SOLVE(T, t, sptrsv_baseline, false, false, false, false, false)                              \
    SOLVE(T, t, sptrsv_multistage, true, false, false, false, false)                             \
    SOLVE(T, t, sptrsv_prefetch, true, true, false, false, false)                                \
    SOLVE(T, t, sptrsv_uncached, true, true, true, true, false)                                  \
    SOLVE(T, t, sptrsv_flags, true, true, true, false, true)                                     \
    SOLVE(T, t, sptrsv_flags_uncached, true, true, true, false, false)
FOR_EACH_TYPE(ENTRIES)

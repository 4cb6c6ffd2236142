// ILU(0): A ~ L U on given patterns, so these kernels compute ILU(k) too.
//
// Layout: the patterns of L (strictly below the diagonal) and of U as in include/factor.cuh. A's rows are those of L and U, one after
// the other, unless A has a pattern of its own.
// Grid: any number of thread blocks of 256; 4 to 32 lanes per row, one ticket for the rows of a warp.
// Order: that of the host: l_ik = w_k / u_kk for k ascending, then w_j = fma(-l_ik, u_kj, w_j) wherever the row has a place; each entry
// takes its terms one by one.
// Bytes: A's values, the factors, patterns and order once; for each l_ik the columns and values of row k of U. Places are searched in
// the row, on chip: lists of them would take 8 bytes per term, more than the columns that they would save.
#include "grid_factor.cuh"

template <class T, int LANES>
struct Elimination {
    const Task<T>& task;
    Group<LANES> lanes;
    T largest;  // in A's row, over this lane's share

    __device__ __forceinline__ Row<T> open(bool on, u32 number, u32* room_cols, T* room, u32 most) {
        Row<T> row = {};
        largest = T(0);
        if (on) {
            row.row = number;
            row.at_l = __ldg(task.lower.ptr + number);
            row.at_u = __ldg(task.upper.ptr + number);
            row.nl = __ldg(task.lower.ptr + number + 1) - row.at_l;
            row.len = row.nl + __ldg(task.upper.ptr + number + 1) - row.at_u;
            row.near = row.len <= most;
            const u32 *before = task.lower.cols + row.at_l, *rest = task.upper.cols + row.at_u;
            row.before = row.near ? room_cols : before;
            row.rest = row.near ? room_cols + row.nl : rest;
            row.w = row.near ? room : task.l + row.at_l;
            row.v = row.near ? room + row.nl : task.u + row.at_u;
            const T* values = task.values + row.at_l + row.at_u;
            for (u32 q = lanes.part; q < row.len; q += LANES) {
                if (row.near) room_cols[q] = q < row.nl ? __ldg(before + q) : __ldg(rest + (q - row.nl));
                T value = T(0);
                if (!task.given.ptr) value = __ldg(values + q), remember(value);
                *row.at(q) = value;
            }
        }
        __syncwarp();
        if (task.given.ptr) {
            if (on) {
                u32 end = __ldg(task.given.ptr + number + 1);
                for (u32 e = __ldg(task.given.ptr + number) + lanes.part; e < end; e += LANES) {
                    T value = __ldg(task.values + e);
                    u32 place = row.place(__ldg(task.given.cols + e));
                    if (place != PADDING) *row.at(place) = value;
                    remember(value);
                }
            }
            __syncwarp();
        }
        return row;
    }

    // Ignores a NaN, which is found in the row itself.
    __device__ __forceinline__ void remember(T value) {
        T size = magnitude(value);
        if (size > largest) largest = size;
    }

    __device__ __forceinline__ Ahead look(const Row<T>& row, u32 step) const {
        u32 k = row.before[step];
        Ahead ahead = {__ldg(task.upper.ptr + k), __ldg(task.upper.ptr + k + 1), 0, PADDING};
        ahead.e = ahead.begin + 1 + lanes.part;
        if (ahead.e < ahead.end) ahead.place = row.place(__ldg(task.upper.cols + ahead.e));
        return ahead;
    }

    __device__ __forceinline__ void take(const Row<T>& row, u32 step, const Ahead& ahead, bool on) const {
        T factor = T(0);
        if (on) {
            T pivot = made_at(task.u + ahead.begin), term = T(0);
            u32 e = ahead.e, place = ahead.place;
            if (place != PADDING) term = made_at(task.u + e);
            factor = row.w[step] / pivot;
            while (e < ahead.end) {
                if (place != PADDING) {
                    T* at = row.at(place);
                    *at = fma_rn(-factor, term, *at);
                }
                e += LANES;
                if (e < ahead.end) {
                    place = row.place(__ldg(task.upper.cols + e));
                    if (place != PADDING) term = made_at(task.u + e);
                }
            }
        }
        __syncwarp();  // every lane has read w_k
        if (on && lanes.part == 0) row.w[step] = factor;
    }

    __device__ __forceinline__ void finish(const Row<T>& row, bool on) const {
        bool fine = true;
        if (on) {
            for (u32 q = lanes.part; q < row.len; q += LANES) {
                T value = *row.at(q);
                fine = fine && finite((double)value);
                if (row.near) (q < row.nl ? task.l[row.at_l + q] : task.u[row.at_u + (q - row.nl)]) = value;
            }
        }
        bool wrong = lanes.ballot(!fine) != 0;
        T most = largest;
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) {
            T other = __shfl_xor_sync(ALL, most, d, LANES);
            if (other > most) most = other;
        }
        if (on && lanes.part == 0) {
            T pivot = row.v[0];
            if (wrong || pivot == T(0) || magnitude(pivot) <= task.number * most) task.state->blame(0, row.row);
        }
    }
};

#define FACTORIZE(T, t, LANES)                                                                   \
    extern "C" __global__ void __launch_bounds__(FACTOR_THREADS, 4) factorize##LANES##_ilu0_##t(Task<T> task) { \
        Elimination<T, LANES> method = {task};                                                   \
        factor_rows<T, LANES>(task, method);                                                     \
    }
#define FACTORIZE_BY_ALL_LANES(T, t) FACTORIZE(T, t, 4) FACTORIZE(T, t, 8) FACTORIZE(T, t, 16) FACTORIZE(T, t, 32)
FOR_EACH_TYPE(FACTORIZE_BY_ALL_LANES)

// On a grid, one point per lane. Rows of U are read where the sweep of the mirrored grid has them.
template <class T, int POINTS>
struct GridElimination {
    using A = Aside<T, POINTS>;
    using C = Common<POINTS>;
    using S = Stencil<POINTS>;
    using L = Lines<POINTS>;
    static constexpr bool BOTH = true;
    static constexpr int TERMS = A::TERMS, COUNT = A::COUNT, PLACES = 2 * TERMS + 1;
    // What is loaded from neighbours at once: everything, or for large stencils what comes from one line.
    static constexpr int TURNS = POINTS <= 13 ? 1 : COUNT + 1;
    const Task<T>& task;
    const OnGrid<T>& g;
    // For the point at this x on each line: U's terms, its pivot. The last line is the point's own.
    T* terms[COUNT + 1];
    T* pivots[COUNT + 1];
    T* lower;
    int mirrored_lane;
    T w[PLACES];  // lower terms, the diagonal, upper ones

    __device__ __forceinline__ void begin(int y, int z, bool here, i64 row, int x) {
        lower = g.lower + A::first(row, threadIdx.x);
        each<COUNT + 1>([&](auto c) {
            constexpr int line = (int)c < COUNT ? (int)c : 0;
            int yy = y + ((int)c < COUNT ? L::dy(line) : 0), zz = z + ((int)c < COUNT ? L::dz(line) : 0);
            bool in = here && yy >= 0 && yy < (int)g.ny && zz >= 0;
            Spread s = in ? A::spread(g, yy, zz) : Spread{0, 0}, m = in ? A::mirrored(g, yy, zz) : Spread{0, 0};
            terms[c] = g.upper + A::first(m.row - x, m.lane);
            pivots[c] = g.pivots + (s.row + x) * 32 + s.lane;
            mirrored_lane = m.lane;
        });
    }

    __device__ __forceinline__ void step() {
        each<COUNT + 1>([&](auto c) { terms[c] -= A::STEP, pivots[c] += 32; });
        lower += A::STEP;
    }

    __device__ __forceinline__ void take(u32 before, u32 after, const T* from, bool on) {
        each<TERMS>([&](auto k) {
            w[k] = T(0);
            if (before >> k & 1) w[k] = __ldg(from + __popc(before & ((1u << k) - 1)));
        });
        from += __popc(before);
        w[TERMS] = T(1);
        if (on) w[TERMS] = __ldg(from);
        // Opposite terms of larger k come before that of term k.
        each<TERMS>([&](auto k) {
            w[2 * TERMS - k] = T(0);
            if (after >> k & 1) w[2 * TERMS - k] = __ldg(from + 1 + __popc(after >> k >> 1));
        });
    }

    __device__ __forceinline__ void make(u32 number, u32 before, u32 after, bool on) {
        T largest = T(0);
        each<PLACES>([&](auto f) {
            T size = magnitude(w[f]);
            if (size > largest) largest = size;
        });
        each<TURNS>([&](auto turn) {
            constexpr int begins = TURNS == 1 ? 0 : L::first(turn), count = (TURNS == 1 ? TERMS : L::first((int)turn + 1)) - begins;
            T other[count], term[count][TERMS];
            each<count>([&](auto i) {
                constexpr int k = begins + (int)i, c = L::of(k);
                bool in = before >> k & 1;
                other[i] = T(1);
                if (in) other[i] = made_at(pivots[c] + S::dx(k) * 32);
                each<TERMS>([&](auto q) {
                    constexpr int to = C::sum(k, 2 * TERMS - (int)q);
                    if constexpr (to >= 0) {
                        term[i][q] = T(0);
                        if (in) term[i][q] = made_at(terms[c] + (A::term(q) - S::dx(k) * A::STEP));
                    }
                });
            });
            each<count>([&](auto i) {
                constexpr int k = begins + (int)i;
                w[k] = before >> k & 1 ? w[k] / other[i] : T(0);
                each<TERMS>([&](auto q) {
                    constexpr int to = C::sum(k, 2 * TERMS - (int)q);
                    if constexpr (to >= 0) w[to >= 0 ? to : 0] = fma_rn(-w[k], term[i][q], w[to >= 0 ? to : 0]);
                });
            });
        });
        bool fine = finite((double)w[TERMS]);
        each<TERMS>([&](auto k) {
            // Terms that lead outside the grid become zero.
            w[2 * TERMS - k] = after >> k & 1 ? w[2 * TERMS - k] : T(0);
            fine = fine && finite((double)w[k]) && finite((double)w[2 * TERMS - k]);
        });
        T pivot = w[TERMS];
        if (!on) return;
        if (!(fine && pivot != T(0) && magnitude(pivot) > task.number * largest)) task.state->blame(0, number);
        T upper[TERMS];
        each<TERMS>([&](auto k) { upper[k] = w[2 * TERMS - k]; });
        put_terms<T, POINTS>(terms[COUNT], upper);
        *pivots[COUNT] = pivot;
    }

    __device__ __forceinline__ void end(u32 number, u32 before, u32 after, bool on) const {
        put_terms<T, POINTS>(lower, w);
        lower[A::last(threadIdx.x)] = on ? T(1) : T(0);
        if (!on) return;
        terms[COUNT][A::last(mirrored_lane)] = T(1) / w[TERMS];
        T *l = task.l + __ldg(task.lower.ptr + number), *u = task.u + __ldg(task.upper.ptr + number);
        each<TERMS>([&](auto k) {
            if (before >> k & 1) l[__popc(before & ((1u << k) - 1))] = w[k];
        });
        u[0] = w[TERMS];
        each<TERMS>([&](auto k) {
            if (after >> k & 1) u[1 + __popc(after >> k >> 1)] = w[2 * TERMS - k];
        });
    }
};

#define FACTORIZE_ON_GRID(T, t, POINTS)                                                          \
    extern "C" __global__ void __launch_bounds__(ON_GRID_THREADS) factorize_grid##POINTS##_ilu0_##t(Task<T> task, OnGrid<T> g) { \
        GridElimination<T, POINTS> method = {task, g};                                           \
        factor_blocks<T, POINTS>(task, g, method);                                               \
    }
#define FACTORIZE_ON_GRIDS(T, t)                                                                 \
    FACTORIZE_ON_GRID(T, t, 7) FACTORIZE_ON_GRID(T, t, 13) FACTORIZE_ON_GRID(T, t, 15) FACTORIZE_ON_GRID(T, t, 19) FACTORIZE_ON_GRID(T, t, 27) FACTORIZE_ON_GRID(T, t, 33)
FOR_EACH_TYPE(FACTORIZE_ON_GRIDS)

// IC(0): A + shift diag(A) ~ L L^T on the pattern of A's lower triangle.
//
// Layout: the pattern of L, its diagonal entry last in a row, as in include/factor.cuh. A's rows begin with the entries of L's.
// Grid: any number of thread blocks of 256; 4 to 32 lanes per row, one ticket for the rows of a warp.
// Order: that of the host: l_ik = s / l_kk, s = a_ik less l_ij l_kj by `fma`, j ascending; the pivot s = fma(shift, a_ii, a_ii) less
// l_ij^2, j ascending; l_ii = sqrt(s). Lanes search for the terms of a sum, and all of them form it.
// Bytes: the values of A's lower triangle, the factor, patterns and order once; for each l_ik the columns of row k of L and the values
// for which the row has a place.
#include "grid_factor.cuh"

// Two kinds of fault: a row of A that no shift mends, and a pivot that is not positive.
#define NOT_MENDED 0
#define BROKEN 1

template <class T, int LANES>
struct Cholesky {
    const Task<T>& task;
    Group<LANES> lanes;

    __device__ __forceinline__ Row<T> open(bool on, u32 number, u32* room_cols, T* room, u32 most) const {
        Row<T> row = {};
        if (on) {
            row.row = number;
            row.at_l = __ldg(task.lower.ptr + number);
            row.len = __ldg(task.lower.ptr + number + 1) - row.at_l;
            row.nl = row.len - 1;
            row.near = row.len <= most;
            const u32* cols = task.lower.cols + row.at_l;
            row.before = row.near ? room_cols : cols;
            row.rest = row.before + row.nl;
            row.w = row.near ? room : task.l + row.at_l;
            row.v = row.w + row.nl;
            const T* values = task.values + __ldg(task.given.ptr + number);
            for (u32 q = lanes.part; q < row.len; q += LANES) {
                if (row.near) room_cols[q] = __ldg(cols + q);
                T value = __ldg(values + q);
                row.w[q] = value;
                if (!finite((double)value) || (q == row.nl && value <= T(0))) task.state->blame(NOT_MENDED, number);
            }
        }
        __syncwarp();
        return row;
    }

    __device__ __forceinline__ Ahead look(const Row<T>& row, u32 step) const {
        u32 k = row.before[step];
        Ahead ahead = {__ldg(task.lower.ptr + k), __ldg(task.lower.ptr + k + 1) - 1, 0, PADDING};
        ahead.e = ahead.begin + lanes.part;
        if (ahead.e < ahead.end) ahead.place = find(row.before, step, __ldg(task.lower.cols + ahead.e));
        return ahead;
    }

    __device__ __forceinline__ void take(const Row<T>& row, u32 step, const Ahead& ahead, bool on) const {
        T s = T(0), diagonal = T(1);
        u32 e = ahead.e, place = ahead.place;
        if (on) {
            s = row.w[step];
            diagonal = made_at(task.l + ahead.end);
        }
        while (__any_sync(ALL, on && e - lanes.part < ahead.end)) {
            bool hit = on && e < ahead.end && place != PADDING;
            T x = T(0), term = T(0);
            if (hit) {
                term = made_at(task.l + e);
                x = row.w[place];
            }
            // Adds the terms one by one, by column.
            u32 bits = lanes.ballot(hit);
            while (__any_sync(ALL, bits != 0)) {
                u32 from = bits ? __ffs(bits) - 1 : 0;
                T of_x = __shfl_sync(ALL, x, from, LANES), of_term = __shfl_sync(ALL, term, from, LANES);
                if (bits) s = fma_rn(-of_x, of_term, s);
                bits &= bits - 1;
            }
            e += LANES;
            place = on && e < ahead.end ? find(row.before, step, __ldg(task.lower.cols + e)) : PADDING;
        }
        __syncwarp();  // every lane has read a_ik
        if (on && lanes.part == 0) row.w[step] = s / diagonal;
        __syncwarp();
    }

    __device__ __forceinline__ void finish(const Row<T>& row, bool on) const {
        T s = T(0), given = T(0);
        if (on) {
            T diagonal = row.v[0];
            given = s = fma_rn(task.shift, diagonal, diagonal);
            for (u32 q = 0; q < row.nl; q++) {
                T v = row.w[q];
                s = fma_rn(-v, v, s);
            }
            if (row.near)
                for (u32 q = lanes.part; q < row.nl; q += LANES) task.l[row.at_l + q] = row.w[q];
        }
        __syncwarp();  // every lane has read the diagonal entry
        if (on && lanes.part == 0) {
            // False for a NaN too. A wrong pivot is left as it is, for whoever reads it.
            bool positive = s > task.number * given && finite((double)s);
            if (!positive) task.state->blame(BROKEN, row.row);
            task.l[row.at_l + row.nl] = positive ? sqrt_rn(s) : s;
        }
    }
};

#define FACTORIZE(T, t, LANES)                                                                   \
    extern "C" __global__ void __launch_bounds__(FACTOR_THREADS, 4) factorize##LANES##_ic0_##t(Task<T> task) { \
        Cholesky<T, LANES> method = {task};                                                      \
        factor_rows<T, LANES>(task, method);                                                     \
    }
#define FACTORIZE_BY_ALL_LANES(T, t) FACTORIZE(T, t, 4) FACTORIZE(T, t, 8) FACTORIZE(T, t, 16) FACTORIZE(T, t, 32)
FOR_EACH_TYPE(FACTORIZE_BY_ALL_LANES)

// On a grid, one point per lane.
template <class T, int POINTS>
struct GridCholesky {
    using A = Aside<T, POINTS>;
    using C = Common<POINTS>;
    using S = Stencil<POINTS>;
    using L = Lines<POINTS>;
    static constexpr bool BOTH = false;
    static constexpr int TERMS = A::TERMS, COUNT = A::COUNT;
    // What is loaded from neighbours at once: everything, or for large stencils what comes from one line.
    static constexpr int TURNS = POINTS <= 27 && POINTS != 13 ? 1 : COUNT + 1;
    const Task<T>& task;
    const OnGrid<T>& g;
    // For the point at this x on each line: its terms, its pivot. The last line is the point's own.
    T* terms[COUNT + 1];
    T* pivots[COUNT + 1];
    T w[TERMS], pivot;

    __device__ __forceinline__ void begin(int y, int z, bool here, i64 row, int x) {
        terms[COUNT] = g.lower + A::first(row, threadIdx.x);
        pivots[COUNT] = g.pivots + row * 32 + threadIdx.x;
        each<COUNT>([&](auto c) {
            int yy = y + L::dy(c), zz = z + L::dz(c);
            bool in = here && yy >= 0 && yy < (int)g.ny && zz >= 0;
            Spread s = in ? A::spread(g, yy, zz) : Spread{0, 0};
            terms[c] = g.lower + A::first(s.row + x, s.lane);
            pivots[c] = g.pivots + (s.row + x) * 32 + s.lane;
        });
    }

    __device__ __forceinline__ void step() {
        each<COUNT + 1>([&](auto c) { terms[c] += A::STEP, pivots[c] += 32; });
    }

    __device__ __forceinline__ void take(u32 before, u32, const T* from, bool on) {
        each<TERMS>([&](auto k) {
            w[k] = T(0);
            if (before >> k & 1) w[k] = __ldg(from + __popc(before & ((1u << k) - 1)));
        });
        pivot = T(1);
        if (on) pivot = __ldg(from + __popc(before));
    }

    __device__ __forceinline__ void make(u32 number, u32 before, u32, bool on) {
        T whole = fma_rn(task.shift, pivot, pivot), s = whole;
        bool mended = pivot > T(0) && finite((double)pivot);
        each<TERMS>([&](auto k) { mended = mended && finite((double)w[k]); });
        each<TURNS>([&](auto turn) {
            constexpr int begins = TURNS == 1 ? 0 : L::first(turn), count = (TURNS == 1 ? TERMS : L::first((int)turn + 1)) - begins;
            // For each row that the point's row needs: its pivot, and its terms that lead to columns of the point's row.
            T other[count], term[count][TERMS];
            each<count>([&](auto i) {
                constexpr int k = begins + (int)i, c = L::of(k);
                bool in = before >> k & 1;
                other[i] = T(1);
                if (in) other[i] = made_at(pivots[c] + S::dx(k) * 32);
                each<TERMS>([&](auto q) {
                    constexpr int to = C::sum(k, q);
                    if constexpr (to >= 0) {
                        term[i][q] = T(0);
                        if (in) term[i][q] = made_at(terms[c] + (S::dx(k) * A::STEP + A::term(q)));
                    }
                });
            });
            each<count>([&](auto i) {
                constexpr int k = begins + (int)i;
                T sum = w[k];
                each<TERMS>([&](auto q) {
                    constexpr int to = C::sum(k, q);
                    if constexpr (to >= 0) sum = fma_rn(-w[to >= 0 ? to : 0], term[i][q], sum);
                });
                w[k] = before >> k & 1 ? sum / other[i] : T(0);
            });
        });
        each<TERMS>([&](auto k) { s = fma_rn(-w[k], w[k], s); });
        bool positive = s > task.number * whole && finite((double)s);
        pivot = positive ? sqrt_rn(s) : s;
        if (on && !(mended && positive)) {
            if (!mended) task.state->blame(NOT_MENDED, number);
            if (!positive) task.state->blame(BROKEN, number);
        }
        put_terms<T, POINTS>(terms[COUNT], w);
        if (on) *pivots[COUNT] = pivot;
    }

    __device__ __forceinline__ void end(u32 number, u32 before, u32, bool on) const {
        terms[COUNT][A::last(threadIdx.x)] = on ? T(1) / pivot : T(0);
        if (!on) return;
        T* to = task.l + __ldg(task.lower.ptr + number);
        each<TERMS>([&](auto k) {
            if (before >> k & 1) to[__popc(before & ((1u << k) - 1))] = w[k];
        });
        to[__popc(before)] = pivot;
    }
};

#define FACTORIZE_ON_GRID(T, t, POINTS)                                                          \
    extern "C" __global__ void __launch_bounds__(ON_GRID_THREADS) factorize_grid##POINTS##_ic0_##t(Task<T> task, OnGrid<T> g) { \
        GridCholesky<T, POINTS> method = {task, g};                                              \
        factor_blocks<T, POINTS>(task, g, method);                                               \
    }
#define FACTORIZE_ON_GRIDS(T, t)                                                                 \
    FACTORIZE_ON_GRID(T, t, 7) FACTORIZE_ON_GRID(T, t, 13) FACTORIZE_ON_GRID(T, t, 15) FACTORIZE_ON_GRID(T, t, 19) FACTORIZE_ON_GRID(T, t, 27) FACTORIZE_ON_GRID(T, t, 33)
FOR_EACH_TYPE(FACTORIZE_ON_GRIDS)

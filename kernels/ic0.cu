// IC(0): A + shift diag(A) ~ L L^T on the pattern of A's lower triangle.
//
// Layout: the pattern of L, its diagonal entry last in a row, as in include/factor.cuh. A's rows begin with the entries of L's.
// Grid: any number of thread blocks of 256; 4 to 32 lanes a row, a ticket for a warp's rows.
// Order: that of the host: l_ik = s / l_kk, s = a_ik less l_ij l_kj by `fma`, j ascending; the pivot s = fma(shift, a_ii, a_ii) less
// l_ij^2, j ascending; l_ii = sqrt(s). Lanes look for the terms of a sum, all of them form it.
// Bytes: the values of A's lower triangle, the factor, patterns and order once; for each l_ik the columns of row k of L and the values
// that the row has a place for.
#include "factor.cuh"

// Kinds of what is wrong: a row of A that no shift mends, a pivot that is not positive.
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
            // The terms one by one, by column.
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
            // False for a NaN too. A pivot that is wrong is left as it is, for whoever asks.
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

// ILU(0): A ~ L U on given patterns, so that ILU(k) is made here too.
//
// Layout: the patterns of L (strictly below the diagonal) and of U as in include/factor.cuh. A's rows are those of L and U, one after
// the other, unless A has a pattern of its own.
// Grid: any number of thread blocks of 256; 4 to 32 lanes a row, a ticket for a warp's rows.
// Order: that of the host: l_ik = w_k / u_kk for k ascending, then w_j = fma(-l_ik, u_kj, w_j) wherever the row has a place; each entry
// takes its terms one by one.
// Bytes: A's values, the factors, patterns and order once; for each l_ik the columns and values of row k of U. Places are looked for in
// the row, on chip: lists of them would be 8 bytes for each term, more than the columns that they save.
#include "factor.cuh"

template <class T, int LANES>
struct Elimination {
    const Task<T>& task;
    Group<LANES> lanes;
    T largest;  // of A's row, this lane's share

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

    // Not of a NaN, which is found in the row itself.
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

// COO: products with a matrix in coordinates.
//
// Layout: rows, cols, values of the entries, sorted by row, as on the host. The parallel product cuts them into intervals of
// `interval` entries (a multiple of 32), one a warp. A row that an interval's end cuts is carried: its sum in the interval where it
// begins goes to tails[interval], those in the intervals after to heads[interval]; `chains` says which make up which row.
// Grid: spmv: 8 warps a thread block. fold: see there. spmv_serial: one thread. spmv_stored: 32 rows a warp, 8 warps a thread block.
// rows_from_csr: 32 rows a warp, 8 warps a thread block.
// Order: spmv: four entries one after the other, these by a segmented scan over the lanes, the steps of a warp in turn, the carries
// in turn; serial, stored: stored.
// Bytes: entries 8 + |T|, x, y once. stored: 4 + |T|, row_ptr, x, y once.
#include "spandrel.cuh"

// Entries of a lane in one step.
#define EACH 4

template <class T>
struct Four {
    T of[4];
};
__device__ __forceinline__ Four<u32> load_four(const u32* p) {
    uint4 v = __ldcs((const uint4*)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Four<float> load_four(const float* p) {
    float4 v = __ldcs((const float4*)p);
    return {v.x, v.y, v.z, v.w};
}
__device__ __forceinline__ Four<double> load_four(const double* p) {
    double2 v = __ldcs((const double2*)p), w = __ldcs((const double2*)p + 1);
    return {v.x, v.y, w.x, w.y};
}

// What becomes of a row's sum inside an interval. PADDING is the row of the positions behind the last entry; whatever is written for
// it into heads or tails is not read.
template <class T>
struct Closer {
    u32 head, tail;  // the rows that the interval's ends cut
    T *to_head, *to_tail;
    T a, b;
    T* y;

    __device__ __forceinline__ void operator()(u32 row, T sum) const {
        if (row == head) {
            *to_head = sum;
        } else if (row == tail) {
            *to_tail = sum;
        } else {
            finish_row(a, sum, b, y + row);
        }
    }
};

template <class T>
__device__ __forceinline__ void spmv_intervals(const u32* __restrict__ rows, const u32* __restrict__ cols, const T* __restrict__ values, u32 nnz, u32 interval, T* heads, T* tails, Coeff<T> ca, const T* __restrict__ x, Coeff<T> cb, T* y, const Monitor* gate) {
    u32 mine = blockIdx.x * 8 + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u64 from = (u64)mine * interval;
    if (!open(gate) || from >= nnz) return;  // whole warps
    u32 begin = (u32)from, end = nnz - begin < interval ? nnz : begin + interval;
    u32 open_row = __ldg(rows + begin);
    u32 head = begin > 0 && __ldg(rows + begin - 1) == open_row ? open_row : PADDING;
    u32 tail = PADDING;
    if (end < nnz && __ldg(rows + end) == __ldg(rows + end - 1)) tail = __ldg(rows + end);
    Closer<T> close{head, tail, heads + mine, tails + mine, ca.value(), cb.value(), y};
    T carry = T(0);  // of the open row, from the steps before
    for (u32 base = begin; base < end; base += EACH * WARP) {
        u32 at = base + EACH * lane;
        Four<u32> r, j;
        Four<T> v, of_x;
        if (end - base >= EACH * WARP) {
            r = load_four(rows + at);
            j = load_four(cols + at);
            v = load_four(values + at);
#pragma unroll
            for (int k = 0; k < EACH; k++) of_x.of[k] = __ldg(x + j.of[k]);
        } else {
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                bool entry = at + k < end;
                r.of[k] = entry ? __ldg(rows + at + k) : PADDING;
                v.of[k] = entry ? __ldg(values + at + k) : T(0);
                of_x.of[k] = entry ? __ldg(x + __ldg(cols + at + k)) : T(0);
            }
        }
        // The lane's own: its first segment may have begun before it, its last may go on behind it.
        T first = T(0), acc = fma_rn(v.of[0], of_x.of[0], T(0));
        bool whole = true;
#pragma unroll
        for (int k = 1; k < EACH; k++) {
            if (r.of[k] != r.of[k - 1]) {
                if (whole) {
                    first = acc;
                } else {
                    close(r.of[k - 1], acc);
                }
                whole = false;
                acc = T(0);
            }
            acc = fma_rn(v.of[k], of_x.of[k], acc);
        }
        // Sums of the lanes' last segments up to each lane.
        u32 before = __shfl_up_sync(ALL, r.of[EACH - 1], 1);
        if (lane == 0) before = open_row;
        bool joins = before == r.of[0];
        if (lane == 0 && whole && joins) acc = carry + acc;
        u32 starts = __ballot_sync(ALL, !(whole && joins)) & (ALL >> (WARP - 1 - lane));
        u32 reach = starts ? lane - (WARP - 1 - __clz(starts)) : lane;  // lanes before this one in its last segment
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            T other = __shfl_up_sync(ALL, acc, d);
            if (d <= reach) acc = other + acc;
        }
        T into = __shfl_up_sync(ALL, acc, 1);
        if (lane == 0) into = carry;
        if (!joins) close(before, into);
        if (!whole) close(r.of[0], joins ? into + first : first);
        carry = __shfl_sync(ALL, acc, WARP - 1);
        open_row = __shfl_sync(ALL, r.of[EACH - 1], WARP - 1);
    }
    if (lane == 0) close(open_row, carry);
}

// The rows that ends of intervals cut, and the rows without entries. Chain i is row chains[i].x, from interval .y to .z.
// Grid: thread blocks of 256: one for each of the first `longs` chains, one for 256 further chains, one for 1024 empty rows.
template <class T>
__device__ __forceinline__ void fold(const uint4* chains, u32 count, u32 longs, const T* heads, const T* tails, const u32* empty, u32 empties, Coeff<T> ca, Coeff<T> cb, T* y, const Monitor* gate) {
    __shared__ T sums[256 / WARP];
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 block = blockIdx.x;
    if (block < longs) {
        uint4 chain = chains[block];
        T acc = T(0);
#pragma unroll 4
        for (u32 i = chain.y + 1 + threadIdx.x; i <= chain.z; i += 256) acc += heads[i];
        acc = halve(acc);
        if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = acc;
        __syncthreads();
        if (threadIdx.x == 0) {
            T sum = tails[chain.y];
#pragma unroll
            for (int i = 0; i < 256 / WARP; i++) sum += sums[i];
            finish_row(a, sum, b, y + chain.x);
        }
        return;
    }
    block -= longs;
    u32 others = (count - longs + 255) / 256;
    if (block < others) {
        u32 i = longs + block * 256 + threadIdx.x;
        if (i >= count) return;
        uint4 chain = chains[i];
        T sum = tails[chain.y];
#pragma unroll 4
        for (u32 k = chain.y + 1; k <= chain.z; k++) sum += heads[k];
        finish_row(a, sum, b, y + chain.x);
        return;
    }
    block -= others;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 i = block * 1024 + k * 256 + threadIdx.x;
        if (i < empties) finish_row(a, T(0), b, y + __ldg(empty + i));
    }
}

// One thread, entry by entry: what the parallel product is held against.
template <class T>
__device__ __forceinline__ void spmv_serial(const u32* rows, const u32* cols, const T* values, u32 nnz, u64 nrows, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) {
    if (!open(gate)) return;
    T a = ca.value(), b = cb.value();
    u32 at = 0;
    for (u64 row = 0; row < nrows; row++) {
        T acc = T(0);
        for (; at < nnz && rows[at] == row; at++) acc = fma_rn(values[at], x[cols[at]], acc);
        finish_row(a, acc, b, y + row);
    }
}

// Entries that a warp stages at a time.
#define STAGE 256

// Rows in stored order: a warp brings in the entries of its 32 rows side by side, then every lane goes through its own row's.
template <class T>
__device__ __forceinline__ void spmv_stored(const u32* __restrict__ row_ptr, const u32* __restrict__ cols, const T* __restrict__ values, u64 nrows, Coeff<T> ca, const T* __restrict__ x, Coeff<T> cb, T* y, const Monitor* gate) {
    __shared__ T staged_values[8][STAGE], staged_x[8][STAGE];
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u64 first = ((u64)blockIdx.x * 8 + warp) * WARP, row = first + lane;
    if (!open(gate) || first >= nrows) return;  // whole warps
    u32 from = __ldg(row_ptr + (row < nrows ? row : nrows)), to = __ldg(row_ptr + (row < nrows ? row + 1 : nrows));
    u32 begin = __shfl_sync(ALL, from, 0), end = __shfl_sync(ALL, to, WARP - 1);
    T *v = staged_values[warp], *of_x = staged_x[warp];
    T acc = T(0);
    for (u32 base = begin; base < end; base += STAGE) {
        u32 j[STAGE / WARP];
        T value[STAGE / WARP], at_j[STAGE / WARP];
#pragma unroll
        for (int i = 0; i < STAGE / WARP; i++) {
            u32 e = base + i * WARP + lane;
            j[i] = e < end ? stream(cols + e) : PADDING;
        }
#pragma unroll
        for (int i = 0; i < STAGE / WARP; i++) {
            value[i] = j[i] != PADDING ? stream(values + base + i * WARP + lane) : T(0);
            at_j[i] = j[i] != PADDING ? __ldg(x + j[i]) : T(0);
        }
        __syncwarp();  // the lanes are done with what was staged before
#pragma unroll
        for (int i = 0; i < STAGE / WARP; i++) {
            v[i * WARP + lane] = value[i];
            of_x[i * WARP + lane] = at_j[i];
        }
        __syncwarp();
        u32 low = from > base ? from - base : 0;
        u32 high = to > base ? to - base : 0;
        if (high > STAGE) high = STAGE;
#pragma unroll 4
        for (u32 e = low; e < high; e++) acc = fma_rn(v[e], of_x[e], acc);
    }
    if (row < nrows) finish_row(ca.value(), acc, cb.value(), y + row);
}

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_coo_##t(const u32* rows, const u32* cols, const T* values, u32 nnz, u32 interval, T* heads, T* tails, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_intervals(rows, cols, values, nnz, interval, heads, tails, a, x, b, y, gate);       \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) fold_coo_##t(const uint4* chains, u32 count, u32 longs, const T* heads, const T* tails, const u32* empty, u32 empties, Coeff<T> a, Coeff<T> b, T* y, const Monitor* gate) { \
        fold(chains, count, longs, heads, tails, empty, empties, a, b, y, gate);                 \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(32) spmv_serial_coo_##t(const u32* rows, const u32* cols, const T* values, u32 nnz, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_serial(rows, cols, values, nnz, nrows, a, x, b, y, gate);                           \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_stored_coo_##t(const u32* row_ptr, const u32* cols, const T* values, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_stored(row_ptr, cols, values, nrows, a, x, b, y, gate);                             \
    }
FOR_EACH_TYPE(ENTRIES)

// The row of each entry: a lane has the end of a row, and lanes look up among these ends which row an entry lies in.
__device__ __forceinline__ void rows_from_csr(const u32* row_ptr, u32 nrows, u32* rows) {
    u32 lane = threadIdx.x % WARP, group = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, first = group * WARP;
    if (first >= nrows) return;  // the whole warp
    u32 end = __ldg(row_ptr + (first + lane < nrows ? first + lane + 1 : nrows));
    u32 last = __shfl_sync(ALL, end, WARP - 1);
    for (u32 from = __ldg(row_ptr + first); from < last; from += WARP) {
        u32 at = from + lane, before = 0;
#pragma unroll
        for (u32 d = WARP / 2; d > 0; d /= 2)
            if (__shfl_sync(ALL, end, before + d - 1) <= at) before += d;
        if (at < last) rows[at] = first + before;
    }
}

#define FROM_CSR(T, t)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) rows_from_csr_coo_##t(const u32* row_ptr, u32 nrows, u32* rows) { \
        rows_from_csr(row_ptr, nrows, rows);                                                     \
    }
FOR_EACH_TYPE(FROM_CSR)

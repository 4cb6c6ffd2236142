// Symmetric stencils of nearest neighbours on a grid: P^T A P, the diagonal with a bound on the spectrum, moves between grids, and the step of a
// polynomial smoother.
//
// Layout: the diagonals at or above the main one, one after the other, with a value per row, as in kernels/dia.cu; in_f32: values of f64 that f32
// represents, in f32. A place is (dz + 1) 9 + (dy + 1) 3 + dx + 1. Points are numbered x + X (y + Y z); point k of a halved axis is fine point 2 k + 1.
// Grid: STENCIL_THREADS per thread block, one thread per coarse point (restrict), sampled row (sample) or fine point (prolong). coarsen: at least one warp
// per strip of coarse points along x and per z, see there. spectrum: one thread per row, SPECTRUM_THREADS per thread block. relax: 1024 elements per
// thread block of 256.
// Order: along z first, then y, then x; along an axis by coordinate, from +0. In P^T A P the places of a point ascend within that. A bound is a maximum.
// Bytes: coarsen: each diagonal once, further uses from the caches, and 14 diagonals of the coarse grid. Others: each vector and diagonal once.
// Reference: crates/formats/src/coarse/neighbours/mod.rs; the bits are the same.
#include "spandrel.cuh"

#define STENCIL_THREADS 128
#define SPECTRUM_THREADS 512
#define PLACES 27
// A child of an axis that is not halved.
#define KEPT 2

// A grid, and the places of a stencil on it. present: bit k for place k, if it has a stored diagonal. from[k]: where the entry of a row at that place
// lies, in bytes from the row's value of the first diagonal. Entries below the main diagonal lie where their mirror images do.
struct Stencil {
    int size[3];
    u32 present;
    i64 from[PLACES];
};

// A fine and a coarse grid.
struct Grids {
    int fine[3];
    int coarse[3];
    u32 halved[3];
};

__device__ __forceinline__ u64 thread() { return (u64)blockIdx.x * STENCIL_THREADS + threadIdx.x; }

__device__ __forceinline__ u64 points(const int (&size)[3]) { return (u64)size[0] * size[1] * size[2]; }

// Points are counted by 32 bits.
__device__ __forceinline__ void locate(u64 row, const int (&size)[3], int (&p)[3]) {
    u32 line = (u32)row / (u32)size[0], plane = line / (u32)size[1];
    p[0] = (int)((u32)row - line * (u32)size[0]);
    p[1] = (int)(line - plane * (u32)size[1]);
    p[2] = (int)plane;
}

__device__ __forceinline__ constexpr int place(int dx, int dy, int dz) { return (dz + 1) * 9 + (dy + 1) * 3 + dx + 1; }

__device__ __forceinline__ constexpr bool is_upper(int dx, int dy, int dz) { return dz > 0 || (dz == 0 && (dy > 0 || (dy == 0 && dx >= 0))); }

// ---- Entries ----

// Sets of places, bit k for place k: for each axis, those whose difference along it is -1 and 1.
#define LEFT 0111111111u
#define RIGHT 0444444444u
#define FRONT 0007007007u
#define BACK 0700700700u
#define BELOW 0000000777u
#define ABOVE 0777000000u
// The main diagonal and the neighbours along the axes.
#define STAR 0020272020u

// Those of `places` that lie inside the grid along an axis, for a row at point p of it.
__device__ __forceinline__ u32 inside(u32 places, int p, int size, u32 before, u32 after) {
    if (p >= size) return 0;
    if (p == 0) places &= ~before;
    return p == size - 1 ? places & ~after : places;
}

// Those of the places of a row that have an entry, for a row at point p.
__device__ __forceinline__ u32 inside(const Stencil& of, const int (&p)[3]) {
    u32 places = inside(of.present, p[0], of.size[0], LEFT, RIGHT);
    return inside(inside(places, p[1], of.size[1], FRONT, BACK), p[2], of.size[2], BELOW, ABOVE);
}

template <class V>
__device__ __forceinline__ const V* shifted(const V* at, i64 bytes) { return (const V*)((const char*)at + bytes); }
template <class V>
__device__ __forceinline__ V* shifted(V* at, i64 bytes) { return (V*)((char*)at + bytes); }

// The value at an address; 0 if `wanted` is 0, and then nothing is read. The load is predicated, because branches would separate the loads.
__device__ __forceinline__ float load_if(u32 wanted, const float* from) {
    float v = 0;
    asm("{ .reg .pred q; setp.ne.u32 q, %1, 0; @q ld.global.nc.f32 %0, [%2]; }" : "+f"(v) : "r"(wanted), "l"(from));
    return v;
}
__device__ __forceinline__ double load_if(u32 wanted, const double* from) {
    double v = 0;
    asm("{ .reg .pred q; setp.ne.u32 q, %1, 0; @q ld.global.nc.f64 %0, [%2]; }" : "+d"(v) : "r"(wanted), "l"(from));
    return v;
}

// ---- P^T A P ----

// Where the entry at difference E of child C goes along an axis: to FIRST with WEIGHT, and also to FIRST + 1 if BOTH.
template <int C, int E>
struct Target {
    static constexpr int SUM = C == KEPT ? 2 * E : C + E;
    static constexpr bool BOTH = SUM % 2 != 0;
    static constexpr int FIRST = BOTH ? (SUM - 1) / 2 : SUM / 2;
};

template <class T>
__device__ __forceinline__ T weight_of(int c, bool both) {
    T of_child = c == 0 || c == KEPT ? T(1) : T(0.5);
    return both ? of_child * T(0.5) : of_child;
}

// sum + w v with two roundings. If EXACT, w v has no rounding, and one fused operation gives the same bits: v is then a value of f32 or a weighted sum
// of such, in f64. These are multiples of 2^-149, and the weights, which multiply to 2^-6 at least, leave them far above the least number of f64.
template <bool EXACT, class T>
__device__ __forceinline__ T add(T w, T v, T sum) { return EXACT ? fma_rn(w, v, sum) : sum + w * v; }

// along_z[dz][DY + 1][DX + 1] = the sum along z of the entries at DX and DY of three fine rows, one per child along z, `plane` values apart. Only dz = 0
// and 1 are wanted. `row`: the first row's value of the first diagonal; `places`: those of each row; `last`: the weight of the last row's entry upwards.
template <int DX, int DY, bool IS_STAR, class T, class V>
__device__ __forceinline__ void sum_place(const V* row, u32 plane, const Stencil& of, const u32 (&places)[3], T last, T (&along_z)[2][3][3]) {
    constexpr bool EXACT = sizeof(V) < sizeof(T), LEVEL = !IS_STAR || DX == 0 || DY == 0, STEEP = !IS_STAR || (DX == 0 && DY == 0);
    constexpr int DOWN = place(DX, DY, -1), HERE = place(DX, DY, 0), UP = place(DX, DY, 1);
    const V *at_down = shifted(row, of.from[DOWN]), *at_here = shifted(row, of.from[HERE]), *at_up = shifted(row, of.from[UP]);
    T down[3] = {}, here[3] = {}, up[3] = {}, sum = T(0), next = T(0);
#pragma unroll
    for (int c = 0; c < 3; c++) {
        if (STEEP && c > 0) down[c] = T(load_if(places[c] & 1u << DOWN, at_down));
        if (LEVEL) here[c] = T(load_if(places[c] & 1u << HERE, at_here));
        if (STEEP) up[c] = T(load_if(places[c] & 1u << UP, at_up));
        at_down += plane;
        at_here += plane;
        at_up += plane;
    }
    // As Target<C, E> and weight_of have it, for the children C = -1, 0 and 1 and their entries E = -1, 0 and 1.
    if (LEVEL) sum = add<EXACT>(T(0.25), here[0], sum);
    if (STEEP) sum = add<EXACT>(T(0.5), up[0], sum);
    if (STEEP) sum = add<EXACT>(T(0.5), down[1], sum);
    if (LEVEL) sum = add<EXACT>(T(1), here[1], sum);
    if (STEEP) sum = add<EXACT>(T(0.5), up[1], sum);
    if (STEEP) next = add<EXACT>(T(0.5), up[1], next);
    if (STEEP) sum = add<EXACT>(T(0.5), down[2], sum);
    if (LEVEL) sum = add<EXACT>(T(0.25), here[2], sum);
    if (LEVEL) next = add<EXACT>(T(0.25), here[2], next);
    if (STEEP) next = add<EXACT>(last, up[2], next);
    along_z[0][DY + 1][DX + 1] = sum;
    along_z[1][DY + 1][DX + 1] = next;
}

template <bool IS_STAR, class T, class V>
__device__ __forceinline__ void sum_along_z(const V* row, u32 plane, const Stencil& of, const u32 (&places)[3], T last, T (&along_z)[2][3][3]) {
    sum_place<-1, -1, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<0, -1, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<1, -1, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<-1, 0, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<0, 0, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<1, 0, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<-1, 1, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<0, 1, IS_STAR>(row, plane, of, places, last, along_z);
    sum_place<1, 1, IS_STAR>(row, plane, of, places, last, along_z);
}

// along_y += along_z for child C along y. If `is_star`, the corners are 0 and add nothing.
template <int C, bool EXACT, class T>
__device__ __forceinline__ void add_along_y(const T (&along_z)[2][3][3], bool is_star, T (&along_y)[2][3][3]) {
#define ADD_LINE(E, BEGIN, STEP)                                                                               \
    {                                                                                                          \
        using To = Target<C, E>;                                                                               \
        T w = weight_of<T>(C, To::BOTH);                                                                       \
        _Pragma("unroll") for (int z = 0; z < 2; z++) _Pragma("unroll") for (int x = BEGIN; x < 3; x += STEP) { \
            T v = along_z[z][E + 1][x], &first = along_y[z][To::FIRST + 1][x];                                 \
            first = add<EXACT>(w, v, first);                                                                   \
            if (!To::BOTH) continue;                                                                           \
            T& second = along_y[z][To::BOTH ? To::FIRST + 2 : 0][x];                                           \
            second = add<EXACT>(w, v, second);                                                                 \
        }                                                                                                      \
    }
    if (!is_star) ADD_LINE(-1, 0, 2)
    ADD_LINE(-1, 1, 2)
    ADD_LINE(0, 0, 1)
    if (!is_star) ADD_LINE(1, 0, 2)
    ADD_LINE(1, 1, 2)
#undef ADD_LINE
}

// along_x += along_y for child C along x, both a line of places.
template <int C, bool EXACT, class T>
__device__ __forceinline__ void add_along_x(const T (&along_y)[3], T (&along_x)[3]) {
#define ADD_POINT(E)                                                                          \
    {                                                                                         \
        using To = Target<C, E>;                                                              \
        T w = weight_of<T>(C, To::BOTH), v = along_y[E + 1], &first = along_x[To::FIRST + 1]; \
        first = add<EXACT>(w, v, first);                                                      \
        if (To::BOTH) {                                                                       \
            T& second = along_x[To::BOTH ? To::FIRST + 2 : 0];                                \
            second = add<EXACT>(w, v, second);                                                \
        }                                                                                     \
    }
    ADD_POINT(-1)
    ADD_POINT(0)
    ADD_POINT(1)
#undef ADD_POINT
}

template <class T>
__device__ __forceinline__ void clear(T (&sums)[2][3][3]) {
#pragma unroll
    for (int z = 0; z < 2; z++)
#pragma unroll
        for (int y = 0; y < 3; y++)
#pragma unroll
            for (int x = 0; x < 3; x++) sums[z][y][x] = T(0);
}

// The fine point of child c of coarse point k, or the point itself on an axis that is not halved.
__device__ __forceinline__ int child(bool halved, int k, int c) { return halved ? 2 * k + 1 + c : k; }

// Writes the sums along x at one coarse y, in the lanes that want any place. `at`: the row's value of the first diagonal.
template <bool EXACT, class T, class O>
__device__ __forceinline__ void write_row(const T (&along_y)[2][3][3], bool halved, const Stencil& coarse, u32 wanted, O* at, bool& is_inexact) {
#pragma unroll
    for (int dz = 0; dz < 2; dz++)
#pragma unroll
        for (int dy = dz == 0 ? 0 : -1; dy < 2; dy++) {
            const T(&own)[3] = along_y[dz][dy + 1];
            T sums[3] = {own[0], own[1], own[2]};
            if (halved) {
                T before[3], after[3];
#pragma unroll
                for (int e = 0; e < 3; e++) {
                    before[e] = __shfl_up_sync(ALL, own[e], 1);
                    after[e] = __shfl_down_sync(ALL, own[e], 1);
                    sums[e] = T(0);
                }
                add_along_x<-1, EXACT>(before, sums);
                add_along_x<0, EXACT>(own, sums);
                add_along_x<1, EXACT>(after, sums);
            }
#pragma unroll
            for (int dx = -1; dx < 2; dx++) {
                if (!is_upper(dx, dy, dz)) continue;
                int of = place(dx, dy, dz);
                if (wanted >> of & 1) {
                    O near = O(sums[dx + 1]);
                    if (sizeof(O) < sizeof(T)) is_inexact |= !(T(near) == sums[dx + 1]);
                    *shifted(at, coarse.from[of]) = near;
                }
            }
        }
}

// Coarse points of a warp along x if that axis is halved. Each lane has one fine x, and the last child of a coarse point is the first of the next.
#define STRIP 15
// Coarse z whose warps come one after the other. They share the planes of their children.
#define DEEP 4

// A warp has a strip of coarse points along x, one coarse z and a range of coarse y. It goes along y: each lane sums the rows at its fine x along z, then
// along y; when a coarse y is complete, neighbouring lanes sum along x. The number of ranges follows from the number of thread blocks.
// O: the type of the coarse values. If it is f32 and does not represent a value in f64, *inexact becomes 1.
template <class T, class V, class O>
__device__ __forceinline__ void coarsen(const V* values, const Stencil& of, const Grids& to, const Stencil& coarse, O* out, u32* inexact) {
    constexpr bool EXACT = sizeof(V) < sizeof(T);
    constexpr u32 WARPS = STENCIL_THREADS / WARP;
    bool hx = to.halved[0], hy = to.halved[1], hz = to.halved[2], is_star = !(of.present & ~STAR);
    u32 lane = threadIdx.x % WARP;
    if (points(to.coarse) == 0) return;
    u32 width = hx ? STRIP : WARP, strips = (to.coarse[0] + width - 1) / width, deep = to.coarse[2] < DEEP ? to.coarse[2] : DEEP;
    // By z within DEEP, then strip, then z, then range.
    u32 layer = strips * deep * ((to.coarse[2] + deep - 1) / deep), item = blockIdx.x * WARPS + __shfl_sync(ALL, threadIdx.x / WARP, 0), range = item / layer;
    item -= range * layer;
    u32 ranges = gridDim.x * WARPS / layer, length = (to.coarse[1] + ranges - 1) / ranges, strip = item / deep % strips;
    int kz = item / deep / strips * deep + item % deep, begin = range * length, end = begin + length;
    if (range >= ranges || kz >= to.coarse[2] || begin >= to.coarse[1]) return;
    if (end > to.coarse[1]) end = to.coarse[1];

    int x = strip * (hx ? 2 * STRIP : WARP) + lane, y = child(hy, begin, -1), z = child(hz, kz, -1), last = child(hy, end - 1, 1);
    // The places inside the grid by the lane's x, and by the z of each child.
    u32 places = inside(of.present, x, of.size[0], LEFT, RIGHT), planes[3];
#pragma unroll
    for (int c = 0; c < 3; c++) planes[c] = inside(ALL, hz ? z + c : z, of.size[2], BELOW, ABOVE);
    // If z is not halved, the row's entries with dz = 0 are taken as those of the middle child, and those with dz = 1 as those of the last.
    u32 plane = hz ? (u32)of.size[0] * of.size[1] : 0;
    T upwards = hz ? T(0.5) : T(1);
    if (!hz) {
        planes[0] = 0;
        planes[1] &= ~(BELOW | ABOVE);
        planes[2] &= ABOVE;
    }
    const V* row = values + x + (i64)of.size[0] * (y + (i64)of.size[1] * z);
    T along_y[2][3][3];
    clear(along_y);
    bool begun = !hy, is_inexact = false;
#pragma unroll 1
    for (; y <= last; y++, row += of.size[0]) {
        u32 here[3];
#pragma unroll
        for (int c = 0; c < 3; c++) here[c] = places & inside(planes[c], y, of.size[1], FRONT, BACK);
        T along_z[2][3][3];
        if (is_star) sum_along_z<true>(row, plane, of, here, upwards, along_z);
        else sum_along_z<false>(row, plane, of, here, upwards, along_z);
        if (hy && y % 2 == 1) {
            add_along_y<0, EXACT>(along_z, is_star, along_y);
            continue;
        }
        if (begun) {
            if (hy) add_along_y<1, EXACT>(along_z, is_star, along_y);
            else add_along_y<KEPT, EXACT>(along_z, is_star, along_y);
            // The coarse point, whose children along x are x and its neighbours.
            int kx = hx ? (x - 1) / 2 : x, ky = hy ? y / 2 - 1 : y, k[3] = {kx, ky, kz};
            u32 wanted = !hx || (lane % 2 == 1 && lane < 2 * STRIP) ? inside(coarse, k) : 0;
            write_row<EXACT>(along_y, hx, coarse, wanted, out + kx + (i64)to.coarse[0] * (ky + (i64)to.coarse[1] * kz), is_inexact);
            clear(along_y);
        }
        if (hy) add_along_y<-1, EXACT>(along_z, is_star, along_y);
        begun = true;
    }
    if (sizeof(O) < sizeof(T) && is_inexact) *inexact = 1;
}

// ---- Rows ----

// The sum of the magnitudes of a row's entries, the number of those that are not 0, whether all are finite, and the diagonal entry.
template <class V>
struct RowSum {
    double sum = 0;
    u32 count = 0;
    bool fit = true;
    V diagonal = V(0);

    __device__ __forceinline__ void add(V v, bool is_diagonal) {
        sum += fabs((double)v);
        count += v != V(0);
        if (sizeof(V) == sizeof(double)) fit = fit && finite((double)v);
        if (is_diagonal) diagonal = v;
    }
    // A sum of values of f32 does not overflow f64.
    __device__ __forceinline__ bool is_finite() const { return sizeof(V) == sizeof(double) ? fit : finite(sum); }
};

// Adds those of N places of a row, from the k-th on, that are in WHICH, ascending. `row`: the row's value of the first diagonal.
template <int N, u32 WHICH, class V>
__device__ __forceinline__ void add_places(const V* row, const Stencil& of, u32 places, int k, RowSum<V>& sum) {
    V v[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        if (WHICH >> i & 1) v[i] = load_if(places >> (k + i) & 1, shifted(row, of.from[k + i]));
#pragma unroll
    for (int i = 0; i < N; i++)
        if (WHICH >> i & 1) sum.add(v[i], k + i == place(0, 0, 0));
}

// The largest number whose inverse is not finite: 2^-1024, in f32 2^-128. The next larger one is 1 + 2^-50 times it, in f32 1 + 2^-21 times. Its inverse
// lies below 2^1024 (2^128) by more than half a unit in the last place, 2^-54 (2^-25) of that, and so rounds to a finite number.
__device__ __forceinline__ double least_inverted(double) { return __longlong_as_double(1ll << 50); }
__device__ __forceinline__ float least_inverted(float) { return __int_as_float(1 << 21); }

// inverse = 1 / d, or if `by_sum`, 1 / (sum of |a_ij|); *most = the bits of the largest sum of |a_ij| over |a_ii|; *unfit = the first row that does not suit;
// *entries += those that are not 0.
template <class T, class V>
__device__ __forceinline__ void find_spectrum(const V* values, const Stencil& of, bool by_sum, T* inverse, u64* most, u32* unfit, u64* entries) {
    __shared__ double bounds[SPECTRUM_THREADS / WARP];
    __shared__ u32 counts[SPECTRUM_THREADS / WARP];
    u64 row = (u64)blockIdx.x * SPECTRUM_THREADS + threadIdx.x, n = points(of.size);
    double bound = 0;
    u32 count = 0;
    if (row < n) {
        int p[3];
        locate(row, of.size, p);
        u32 places = inside(of, p);
        RowSum<V> sum;
        if (!(of.present & ~STAR)) {
            add_places<PLACES, STAR>(values + row, of, places, 0, sum);
        } else {
#pragma unroll 1
            for (int k = 0; k < PLACES; k += 9) add_places<9, ALL>(values + row, of, places, k, sum);
        }
        count = sum.count;
        T diagonal = T(sum.diagonal), divisor = by_sum ? T(sum.sum) : diagonal, over = T(1) / divisor;
        inverse[row] = over;
        bool fit = sum.is_finite() && finite((double)divisor) && finite((double)over) && diagonal > least_inverted(T(0));
        if (fit) bound = sum.sum / (double)diagonal;
        else atomicMin(unfit, (u32)row);
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        double other = __shfl_xor_sync(ALL, bound, d);
        bound = bound < other ? other : bound;
        count += __shfl_xor_sync(ALL, count, d);
    }
    // One thread block adds to the words once: many additions to one word are slow.
    if (threadIdx.x % WARP == 0) {
        bounds[threadIdx.x / WARP] = bound;
        counts[threadIdx.x / WARP] = count;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
#pragma unroll 1
    for (int warp = 1; warp < SPECTRUM_THREADS / WARP; warp++) {
        bound = bound < bounds[warp] ? bounds[warp] : bound;
        count += counts[warp];
    }
    if (count) atomicAdd(entries, (u64)count);
    // Bits of positive numbers ascend as the numbers do.
    if (bound > 0) atomicMax(most, (u64)__double_as_longlong(bound));
}

// The places of every step-th row from `begin` on.
template <class T, class V>
__device__ __forceinline__ void sample_rows(const V* values, const Stencil& of, u64 begin, u64 step, u64 count, T* out) {
    u64 sample = thread();
    if (sample >= count) return;
    int p[3];
    u64 row = begin + sample * step;
    locate(row, of.size, p);
    u32 places = inside(of, p);
#pragma unroll 3
    for (int k = 0; k < PLACES; k++) out[sample * PLACES + k] = T(load_if(places >> k & 1, shifted(values + row, of.from[k])));
}

// ---- Vectors ----

// s = P^T r.
template <class T>
__device__ __forceinline__ void restrict_vector(const Grids& to, const T* r, T* s, const Monitor* gate) {
    u64 at = thread();
    if (!open(gate) || at >= points(to.coarse)) return;
    int k[3];
    locate(at, to.coarse, k);
    bool hx = to.halved[0], hy = to.halved[1], hz = to.halved[2];
    T along_x = T(0);
#pragma unroll
    for (int cx = -1; cx <= 1; cx++) {
        int x = child(hx, k[0], cx);
        if ((!hx && cx != 0) || x >= to.fine[0]) continue;
        T along_y = T(0);
#pragma unroll
        for (int cy = -1; cy <= 1; cy++) {
            int y = child(hy, k[1], cy);
            if ((!hy && cy != 0) || y >= to.fine[1]) continue;
            T along_z = T(0);
#pragma unroll
            for (int cz = -1; cz <= 1; cz++) {
                int z = child(hz, k[2], cz);
                if ((!hz && cz != 0) || z >= to.fine[2]) continue;
                along_z += weight_of<T>(cz, false) * __ldg(r + x + (u64)to.fine[0] * (y + (u64)to.fine[1] * z));
            }
            along_y += weight_of<T>(cy, false) * along_z;
        }
        along_x += weight_of<T>(cx, false) * along_y;
    }
    s[at] = along_x;
}

// The coarse points next to a fine one: `first` with its weight, and the one after it if there are two. Points outside the grid have the weight 0.
template <class T>
struct Parents {
    int first;
    T weight[2];
    __device__ __forceinline__ Parents(bool halved, int point, int coarse) {
        bool between = halved && point % 2 == 0;
        first = !halved ? point : between ? point / 2 - 1 : point / 2;
        weight[0] = !between ? T(1) : first >= 0 ? T(0.5) : T(0);
        weight[1] = between && first + 1 < coarse ? T(0.5) : T(0);
    }
};

// x += P e.
template <class T>
__device__ __forceinline__ void prolong_vector(const Grids& to, const T* e, T* x, const Monitor* gate) {
    u64 at = thread();
    if (!open(gate) || at >= points(to.fine)) return;
    int p[3];
    locate(at, to.fine, p);
    Parents<T> px(to.halved[0], p[0], to.coarse[0]), py(to.halved[1], p[1], to.coarse[1]), pz(to.halved[2], p[2], to.coarse[2]);
    T along_x = T(0);
#pragma unroll
    for (int ix = 0; ix < 2; ix++) {
        if (px.weight[ix] == T(0)) continue;
        T along_y = T(0);
#pragma unroll
        for (int iy = 0; iy < 2; iy++) {
            if (py.weight[iy] == T(0)) continue;
            T along_z = T(0);
#pragma unroll
            for (int iz = 0; iz < 2; iz++) {
                if (pz.weight[iz] == T(0)) continue;
                u64 from = px.first + ix + (u64)to.coarse[0] * (py.first + iy + (u64)to.coarse[1] * (pz.first + iz));
                along_z += pz.weight[iz] * __ldg(e + from);
            }
            along_y += py.weight[iy] * along_z;
        }
        along_x += px.weight[ix] * along_y;
    }
    x[at] += along_x;
}

// z = kept z + taken (d s); x = x + weight z. If not `keeps`, z is not read; if not `adds`, x is not read.
template <class T>
__device__ __forceinline__ void relax(u64 n, bool keeps, T kept, T taken, T weight, bool adds, const T* d, const T* s, T* z, T* x, const Monitor* gate) {
    u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;
    T vd[4], vs[4], vz[4], vx[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u64 i = first + k * 256;
        if (i >= n) continue;
        vd[k] = d[i];
        vs[k] = s[i];
        if (keeps) vz[k] = z[i];
        if (adds) vx[k] = x[i];
    }
    if (!open(gate)) return;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u64 i = first + k * 256;
        if (i >= n) continue;
        T moved = taken * (vd[k] * vs[k]);
        if (keeps) moved = kept * vz[k] + moved;
        z[i] = moved;
        x[i] = adds ? vx[k] + weight * moved : weight * moved;
    }
}

#define ENTRY extern "C" __global__ void __launch_bounds__(STENCIL_THREADS)
#define MATRIX_FORM(T, V, t, in_f32)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(STENCIL_THREADS, 3) coarsen_##in_f32##stencil_##t(const V* values, const __grid_constant__ Stencil of, const __grid_constant__ Grids to, const __grid_constant__ Stencil coarse, T* out) { \
        coarsen<T, V, T>(values, of, to, coarse, out, nullptr);                                                                               \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(SPECTRUM_THREADS) spectrum_##in_f32##stencil_##t(const V* values, const __grid_constant__ Stencil of, u32 by_sum, T* inverse, u64* most, u32* unfit, u64* entries) { \
        find_spectrum<T, V>(values, of, by_sum != 0, inverse, most, unfit, entries);                                                                     \
    }                                                                                                                                \
    ENTRY sample_##in_f32##stencil_##t(const V* values, const __grid_constant__ Stencil of, u64 begin, u64 step, u64 count, T* out) { \
        sample_rows<T, V>(values, of, begin, step, count, out);                                                                      \
    }
#define ENTRIES(T, t)                                                                                                                 \
    MATRIX_FORM(T, T, t, )                                                                                                           \
    ENTRY restrict_stencil_##t(const __grid_constant__ Grids to, const T* r, T* s, const Monitor* gate) { restrict_vector<T>(to, r, s, gate); } \
    ENTRY prolong_stencil_##t(const __grid_constant__ Grids to, const T* e, T* x, const Monitor* gate) { prolong_vector<T>(to, e, x, gate); } \
    extern "C" __global__ void __launch_bounds__(256) relax_stencil_##t(u64 n, u32 keeps, double kept, double taken, double weight, u32 adds, const T* d, const T* s, T* z, T* x, const Monitor* gate) { \
        relax<T>(n, keeps != 0, T(kept), T(taken), T(weight), adds != 0, d, s, z, x, gate);                                          \
    }
FOR_EACH_TYPE(ENTRIES)
MATRIX_FORM(double, float, f64, in_f32_)
extern "C" __global__ void __launch_bounds__(STENCIL_THREADS, 3) coarsen_within_f32_stencil_f64(const float* values, const __grid_constant__ Stencil of, const __grid_constant__ Grids to, const __grid_constant__ Stencil coarse, float* out, u32* inexact) {
    coarsen<double, float, float>(values, of, to, coarse, out, inexact);
}

// Symmetric stencils of nearest neighbours on a grid: P^T A P, the diagonal with a bound on the spectrum, moves between grids, and the step of a
// polynomial smoother.
//
// Layout: the diagonals at or above the main one, one after the other, with a value per row, as in kernels/dia.cu; in_f32: values of f64 that f32
// represents, in f32. A place is (dz + 1) 9 + (dy + 1) 3 + dx + 1. Points are numbered x + X (y + Y z); point k of a halved axis is fine point 2 k + 1.
// Grid: STENCIL_THREADS per thread block, one thread per coarse point (coarsen, restrict), row (spectrum), sampled row (sample) or fine point (prolong);
// relax: 1024 elements per thread block of 256.
// Order: along z first, then y, then x; along an axis by coordinate, from +0. In P^T A P the places of a point ascend within that. A bound is a maximum.
// Bytes: coarsen: each diagonal once, further uses from the caches, and 14 diagonals of the coarse grid. Others: each vector and diagonal once.
// Reference: crates/formats/src/coarse/neighbours.rs; the bits are the same.
#include "spandrel.cuh"

#define STENCIL_THREADS 128
#define PLACES 27
// A child of an axis that is not halved.
#define KEPT 2

// A grid, and the stored diagonal of each place at or above the main diagonal; -1 for none.
struct Stencil {
    int size[3];
    int at[PLACES];
};

// A fine and a coarse grid.
struct Grids {
    int fine[3];
    int coarse[3];
    u32 halved[3];
};

__device__ __forceinline__ u64 thread() { return (u64)blockIdx.x * STENCIL_THREADS + threadIdx.x; }

__device__ __forceinline__ u64 points(const int (&size)[3]) { return (u64)size[0] * size[1] * size[2]; }

__device__ __forceinline__ void locate(u64 row, const int (&size)[3], int (&p)[3]) {
    u64 line = row / (u32)size[0];
    p[0] = (int)(row - line * (u32)size[0]);
    u64 plane = line / (u32)size[1];
    p[1] = (int)(line - plane * (u32)size[1]);
    p[2] = (int)plane;
}

__device__ __forceinline__ constexpr int place(int dx, int dy, int dz) { return (dz + 1) * 9 + (dy + 1) * 3 + dx + 1; }

__device__ __forceinline__ constexpr bool is_upper(int dx, int dy, int dz) { return dz > 0 || (dz == 0 && (dy > 0 || (dy == 0 && dx >= 0))); }

// The entry of a row at a place; 0 if there is none.
template <int DX, int DY, int DZ, class T, class V>
__device__ __forceinline__ T entry(const V* values, const Stencil& of, u64 n, const int (&p)[3], i64 row) {
    constexpr bool UPPER = is_upper(DX, DY, DZ);
    int k = of.at[UPPER ? place(DX, DY, DZ) : place(-DX, -DY, -DZ)];
    if (k < 0) return T(0);
    if (DX != 0 && (u32)(p[0] + DX) >= (u32)of.size[0]) return T(0);
    if (DY != 0 && (u32)(p[1] + DY) >= (u32)of.size[1]) return T(0);
    if (DZ != 0 && (u32)(p[2] + DZ) >= (u32)of.size[2]) return T(0);
    i64 from = UPPER ? row : row + DX + (i64)of.size[0] * (DY + (i64)of.size[1] * DZ);
    return T(__ldg(values + (u64)k * n + from));
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

// along_z[dz][dy][dx] += the entries of one row, child C along z. Only dz = 0 and 1 are wanted.
template <int C, int DZ, class T, class V>
__device__ __forceinline__ void add_plane(const V* values, const Stencil& of, u64 n, const int (&p)[3], i64 row, T (&along_z)[2][3][3]) {
    using To = Target<C, DZ>;
    constexpr bool FIRST = To::FIRST >= 0, SECOND = To::BOTH && To::FIRST + 1 >= 0;
    if (!FIRST && !SECOND) return;
    T w = weight_of<T>(C, To::BOTH);
#define ADD_PLACE(DX, DY)                                                        \
    {                                                                            \
        T v = w * entry<DX, DY, DZ, T>(values, of, n, p, row);                   \
        if (FIRST) along_z[FIRST ? To::FIRST : 0][DY + 1][DX + 1] += v;          \
        if (SECOND) along_z[SECOND ? To::FIRST + 1 : 0][DY + 1][DX + 1] += v;    \
    }
    ADD_PLACE(-1, -1)
    ADD_PLACE(0, -1)
    ADD_PLACE(1, -1)
    ADD_PLACE(-1, 0)
    ADD_PLACE(0, 0)
    ADD_PLACE(1, 0)
    ADD_PLACE(-1, 1)
    ADD_PLACE(0, 1)
    ADD_PLACE(1, 1)
#undef ADD_PLACE
}

template <int C, class T, class V>
__device__ __forceinline__ void add_row(const V* values, const Stencil& of, u64 n, const int (&p)[3], T (&along_z)[2][3][3]) {
    i64 row = p[0] + (i64)of.size[0] * (p[1] + (i64)of.size[1] * p[2]);
    add_plane<C, -1>(values, of, n, p, row, along_z);
    add_plane<C, 0>(values, of, n, p, row, along_z);
    add_plane<C, 1>(values, of, n, p, row, along_z);
}

// along_y += along_z for child C along y, and along_x += along_y for child C along x.
template <int C, class T>
__device__ __forceinline__ void add_along_y(const T (&along_z)[2][3][3], T (&along_y)[2][3][3]) {
#define ADD_LINE(E)                                                                                  \
    {                                                                                                \
        using To = Target<C, E>;                                                                     \
        T w = weight_of<T>(C, To::BOTH);                                                             \
        _Pragma("unroll") for (int z = 0; z < 2; z++) _Pragma("unroll") for (int x = 0; x < 3; x++) { \
            T v = w * along_z[z][E + 1][x];                                                          \
            along_y[z][To::FIRST + 1][x] += v;                                                       \
            if (To::BOTH) along_y[z][To::BOTH ? To::FIRST + 2 : 0][x] += v;                          \
        }                                                                                            \
    }
    ADD_LINE(-1)
    ADD_LINE(0)
    ADD_LINE(1)
#undef ADD_LINE
}

template <int C, class T>
__device__ __forceinline__ void add_along_x(const T (&along_y)[2][3][3], T (&along_x)[2][3][3]) {
#define ADD_POINT(E)                                                                                 \
    {                                                                                                \
        using To = Target<C, E>;                                                                     \
        T w = weight_of<T>(C, To::BOTH);                                                             \
        _Pragma("unroll") for (int z = 0; z < 2; z++) _Pragma("unroll") for (int y = 0; y < 3; y++) { \
            T v = w * along_y[z][y][E + 1];                                                          \
            along_x[z][y][To::FIRST + 1] += v;                                                       \
            if (To::BOTH) along_x[z][y][To::BOTH ? To::FIRST + 2 : 0] += v;                          \
        }                                                                                            \
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

template <class T, class V>
__device__ __forceinline__ void coarsen(const V* values, const Stencil& of, const Grids& to, const Stencil& coarse, T* out) {
    u64 at = thread(), n = points(of.size), nc = points(to.coarse);
    if (at >= nc) return;
    int k[3], p[3];
    locate(at, to.coarse, k);
    T along_x[2][3][3];
    clear(along_x);
    bool hx = to.halved[0], hy = to.halved[1], hz = to.halved[2];
#pragma unroll 1
    for (int cx = hx ? -1 : 0; cx <= (hx ? 1 : 0); cx++) {
        p[0] = child(hx, k[0], cx);
        if (p[0] >= of.size[0]) continue;
        T along_y[2][3][3];
        clear(along_y);
#pragma unroll 1
        for (int cy = hy ? -1 : 0; cy <= (hy ? 1 : 0); cy++) {
            p[1] = child(hy, k[1], cy);
            if (p[1] >= of.size[1]) continue;
            T along_z[2][3][3];
            clear(along_z);
            if (hz) {
                p[2] = 2 * k[2];
                add_row<-1>(values, of, n, p, along_z);
                p[2]++;
                add_row<0>(values, of, n, p, along_z);
                p[2]++;
                if (p[2] < of.size[2]) add_row<1>(values, of, n, p, along_z);
            } else {
                p[2] = k[2];
                add_row<KEPT>(values, of, n, p, along_z);
            }
            if (!hy) add_along_y<KEPT>(along_z, along_y);
            else if (cy < 0) add_along_y<-1>(along_z, along_y);
            else if (cy == 0) add_along_y<0>(along_z, along_y);
            else add_along_y<1>(along_z, along_y);
        }
        if (!hx) add_along_x<KEPT>(along_y, along_x);
        else if (cx < 0) add_along_x<-1>(along_y, along_x);
        else if (cx == 0) add_along_x<0>(along_y, along_x);
        else add_along_x<1>(along_y, along_x);
    }
#pragma unroll
    for (int z = 0; z < 2; z++)
#pragma unroll
        for (int y = 0; y < 3; y++)
#pragma unroll
            for (int x = 0; x < 3; x++) {
                if (!is_upper(x - 1, y - 1, z)) continue;
                int diagonal = coarse.at[place(x - 1, y - 1, z)];
                bool inside = (u32)(k[0] + x - 1) < (u32)to.coarse[0] && (u32)(k[1] + y - 1) < (u32)to.coarse[1] && k[2] + z < to.coarse[2];
                if (diagonal >= 0 && inside) out[(u64)diagonal * nc + at] = along_x[z][y][x];
            }
}

// ---- Rows ----

// Calls `visit(place, value)` for all places of a row, ascending, with 0 if there is no entry.
template <class T, class V, class Visit>
__device__ __forceinline__ void visit_row(const V* values, const Stencil& of, u64 n, u64 row, Visit visit) {
    int p[3];
    locate(row, of.size, p);
#pragma unroll 1
    for (int dz = -1; dz <= 1; dz++)
#pragma unroll 1
        for (int dy = -1; dy <= 1; dy++)
#pragma unroll
            for (int dx = -1; dx <= 1; dx++) {
                bool upper = is_upper(dx, dy, dz);
                int at = place(dx, dy, dz), k = of.at[upper ? at : PLACES - 1 - at];
                bool inside = (u32)(p[0] + dx) < (u32)of.size[0] && (u32)(p[1] + dy) < (u32)of.size[1] && (u32)(p[2] + dz) < (u32)of.size[2];
                i64 from = (i64)row + (upper ? 0 : dx + (i64)of.size[0] * (dy + (i64)of.size[1] * dz));
                visit(at, k >= 0 && inside ? T(__ldg(values + (u64)k * n + from)) : T(0));
            }
}

// inverse = 1 / d, or if `by_sum`, 1 / (sum of |a_ij|); *most = the bits of the largest sum of |a_ij| over |a_ii|; *unfit = the first row that does not suit;
// *entries += those that are not 0.
template <class T, class V>
__device__ __forceinline__ void find_spectrum(const V* values, const Stencil& of, bool by_sum, T* inverse, u64* most, u32* unfit, u64* entries) {
    u64 row = thread(), n = points(of.size);
    double bound = 0;
    u32 count = 0;
    if (row < n) {
        double sum = 0;
        bool fit = true;
        T diagonal = T(0);
        visit_row<T>(values, of, n, row, [&](int at, T v) {
            double size = (double)v < 0 ? -(double)v : (double)v;
            sum += size;
            count += v != T(0);
            fit = fit && finite((double)v);
            if (at == place(0, 0, 0)) diagonal = v;
        });
        T divisor = by_sum ? T(sum) : diagonal, over = T(1) / divisor;
        inverse[row] = over;
        fit = fit && finite((double)divisor) && finite((double)over);
        if (fit && diagonal > T(0) && finite((double)(T(1) / diagonal))) bound = sum / (double)diagonal;
        else atomicMin(unfit, (u32)row);
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        double other = __shfl_xor_sync(ALL, bound, d);
        bound = bound < other ? other : bound;
        count += __shfl_xor_sync(ALL, count, d);
    }
    if (threadIdx.x % WARP == 0 && count) atomicAdd(entries, (u64)count);
    // Bits of positive numbers ascend as the numbers do.
    if (threadIdx.x % WARP == 0 && bound > 0) atomicMax(most, (u64)__double_as_longlong(bound));
}

// The places of every step-th row from `begin` on.
template <class T, class V>
__device__ __forceinline__ void sample_rows(const V* values, const Stencil& of, u64 begin, u64 step, u64 count, T* out) {
    u64 sample = thread();
    if (sample >= count) return;
    visit_row<T>(values, of, points(of.size), begin + sample * step, [&](int at, T v) { out[sample * PLACES + at] = v; });
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
    extern "C" __global__ void __launch_bounds__(STENCIL_THREADS, 1) coarsen_##in_f32##stencil_##t(const V* values, const __grid_constant__ Stencil of, const __grid_constant__ Grids to, const __grid_constant__ Stencil coarse, T* out) { \
        coarsen<T, V>(values, of, to, coarse, out);                                                                                  \
    }                                                                                                                                \
    ENTRY spectrum_##in_f32##stencil_##t(const V* values, const __grid_constant__ Stencil of, u32 by_sum, T* inverse, u64* most, u32* unfit, u64* entries) { \
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

// Lower stencils as types: their terms, and the lines of the grid on which these lie.
#pragma once
#include "spandrel.cuh"

// The most terms of a stencil.
#define TERMS_MOST 40

// A number as a type, so that a loop's counter is a constant.
template <int I>
struct Constant {
    __device__ constexpr operator int() const { return I; }
};
// body(0), body(1), ... with constants.
template <int N, int I = 0, class F>
__device__ __forceinline__ void each(const F& body) {
    if constexpr (I < N) {
        body(Constant<I>{});
        each<N, I + 1>(body);
    }
}

// A stencil by its terms, ascending by (dz, dy, dx).
struct Terms {
    u32 count;
    int dx[TERMS_MOST], dy[TERMS_MOST], dz[TERMS_MOST];
};

// The lower half of a stencil of POINTS points, ascending by (dz, dy, dx). A line's terms are neighbours; those of the row's own line
// come last, without a gap.
template <int POINTS>
struct Stencil;
#define LIST(...) {__VA_ARGS__}
#define STENCIL(POINTS, DX, DY, DZ)                                                              \
    template <>                                                                                  \
    struct Stencil<POINTS> {                                                                     \
        __device__ static constexpr int dx(int k) { constexpr int of[] = DX; return of[k]; }     \
        __device__ static constexpr int dy(int k) { constexpr int of[] = DY; return of[k]; }     \
        __device__ static constexpr int dz(int k) { constexpr int of[] = DZ; return of[k]; }     \
    };
STENCIL(5, LIST(0, -1), LIST(-1, 0), LIST(0, 0))
STENCIL(7, LIST(0, 0, -1), LIST(0, -1, 0), LIST(-1, 0, 0))
STENCIL(9, LIST(-1, 0, 1, -1), LIST(-1, -1, -1, 0), LIST(0, 0, 0, 0))
STENCIL(13, LIST(0, 0, 0, 0, -2, -1), LIST(0, 0, -2, -1, 0, 0), LIST(-2, -1, 0, 0, 0, 0))
STENCIL(15, LIST(-1, 1, 0, -1, 1, 0, -1), LIST(-1, -1, 0, 1, 1, -1, 0), LIST(-1, -1, -1, -1, -1, 0, 0))
STENCIL(19, LIST(0, -1, 0, 1, 0, -1, 0, 1, -1), LIST(-1, 0, 0, 0, 1, -1, -1, -1, 0), LIST(-1, -1, -1, -1, -1, 0, 0, 0, 0))
STENCIL(27, LIST(-1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1), LIST(-1, -1, -1, 0, 0, 0, 1, 1, 1, -1, -1, -1, 0),
        LIST(-1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0))
STENCIL(33, LIST(0, -1, 0, 1, -1, 0, 1, -1, 0, 1, 0, -1, 0, 1, -2, -1), LIST(0, -1, -1, -1, 0, 0, 0, 1, 1, 1, -2, -1, -1, -1, 0, 0),
        LIST(-2, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0))

// The lines on which a stencil's terms lie.
template <int POINTS>
struct Lines {
    using S = Stencil<POINTS>;
    static constexpr int terms = POINTS / 2;
    __device__ static constexpr bool begins(int k) { return k == 0 || S::dy(k) != S::dy(k - 1) || S::dz(k) != S::dz(k - 1); }
    // Terms on lines before line c of the list.
    __device__ static constexpr int first(int c) {
        int k = 0;
        for (int line = 0; k < terms; k++) {
            if (k > 0 && begins(k)) line++;
            if (line == c) return k;
        }
        return k;
    }
    // Lines other than the row's own, which is the last of the list.
    __device__ static constexpr int others() {
        int lines = 0;
        for (int k = 0; k < terms; k++) lines += begins(k) && (S::dy(k) != 0 || S::dz(k) != 0);
        return lines;
    }
    // The line of a term.
    __device__ static constexpr int of(int k) {
        int line = 0;
        for (int i = 1; i <= k; i++) line += begins(i);
        return line;
    }
    __device__ static constexpr bool flat() {
        for (int k = 0; k < terms; k++)
            if (S::dz(k) != 0) return false;
        return true;
    }
    static constexpr int count = others(), own = terms - first(count), is_flat = flat();
    __device__ static constexpr int dy(int c) { return S::dy(first(c)); }
    __device__ static constexpr int dz(int c) { return S::dz(first(c)); }
    __device__ static constexpr int lo(int c) { return S::dx(first(c)); }
    __device__ static constexpr int hi(int c) { return S::dx(first(c + 1) - 1); }
};


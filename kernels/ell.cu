// ELL: products with a matrix whose rows are padded to one width.
//
// Layout: entry k of row i at i + nrows*k, as on the host; PADDING to the right.
// Grid: 1024 rows a thread block of 256, four rows a thread; spmv_small: one row a thread; spmv_dot_small: one row a thread of
// thread blocks of 1024.
// Order: stored; padding is skipped.
// Bytes: columns of all positions but those behind the end of eight neighbouring rows, values of entries, x, y once.
// Persistent (cg_ell, bicgstab_ell): see include/persistent.cuh.
#include "ell.cuh"
#include "persistent.cuh"

template <class T>
struct EllRows {
    const u32* cols;
    const T* values;
    u32 width;
    const T* x;

    __device__ __forceinline__ u64 target(u64 row) const { return row; }

    template <int N>
    __device__ __forceinline__ void accumulate(u64 row, u32 step, u64 nrows, T (&acc)[N]) const {
        add_packed(cols, values, nrows, width, row, step, x, acc);
    }
};

#define ENTRIES(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_rows(EllRows<T>{cols, values, width, x}, nrows, a, b, y, gate);                     \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(128) spmv_small_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, Coeff<T> a, const T* x, Coeff<T> b, T* y, const Monitor* gate) { \
        spmv_each_row(EllRows<T>{cols, values, width, x}, nrows, a, b, y, gate);                 \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) spmv_dot_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_rows(EllRows<T>{cols, values, width, x}, nrows, y, w, tree, gate);              \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024) spmv_dot_small_ell_##t(const u32* cols, const T* values, u32 width, u64 nrows, const T* x, T* y, const T* w, Tree<T> tree, const Monitor* gate) { \
        spmv_dot_each_row(EllRows<T>{cols, values, width, x}, nrows, y, w, tree, gate);          \
    }
FOR_EACH_TYPE(ENTRIES)

#define KRYLOV(T, t) PERSISTENT(T, t, ell, (const u32* cols, const T* values, u32 width), (KeptPacked<T, EllPlaces>{{width, n}, cols, values}))
FOR_EACH_TYPE(KRYLOV)

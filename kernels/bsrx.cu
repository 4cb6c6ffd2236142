// BSRX: the product with the block rows of a mask.
//
// Layout: as on the host: row_start and row_end per block row, the mask ascending, blocks as in BSR.
// Grid: one thread per masked row, 256 per thread block; rows outside the mask have no thread and keep their y.
// Order: stored, as BSR.
// Bytes: the masked rows' blocks and y once, 12 bytes per masked block row; x by sectors, mostly from the cache.
#include "blocks.cuh"

#define SPMV(T, t, B, stem)                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) spmv_##stem##bsrx_##t(const T* values, const u32* row_start, const u32* row_end, const u32* col_idx, const u32* mask, u64 masked, u32 dim, u64 nrows, u64 ncols, Coeff<T> ca, const T* x, Coeff<T> cb, T* y, const Monitor* gate) { \
        BlockRows<T, B> m{values, col_idx, row_start, row_end, dim, ncols, x};                   \
        u32 at = blockIdx.x * 256 + threadIdx.x, place = at / m.size();                          \
        if (!open(gate) || place >= masked) return;                                              \
        u32 block_row = __ldg(mask + place), r = at - place * m.size();                          \
        u64 row = (u64)block_row * m.size() + r;                                                 \
        if (row >= nrows) return;                                                                \
        T a = ca.value(), b = cb.value();                                                        \
        finish_row(a, m.row(block_row, r), b, y + row);                                          \
    }
FOR_EACH_DIM(SPMV, float, f32)
FOR_EACH_DIM(SPMV, double, f64)

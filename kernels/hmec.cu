// HMEC: products with a matrix of several packed blocks and a CSR rest over rows sorted by length, in one kernel.
//
// Layout: include/hmec.cuh.
// Grid: thread blocks of 128 or 256; one for each row with a very long rest, then a warp for each further row with a long rest, then a
// thread for each other row. spmv_lanes, spmv_lanes_two: see include/lanes.cuh.
// Order: stored, except for rows with a long rest: there a tree over the lanes (include/ell.cuh). No such rows if results must be
// reproducible. spmv_lanes, spmv_lanes_two: see include/lanes.cuh.
// Bytes: columns of the positions, values of entries, perm, rest, x, y once; y scattered through perm.
#include "hmec.cuh"

// One block as in HEC, and two blocks.
#define ENTRIES(T, t) HMEC_ENTRIES(hmec, T, t) LANES_ENTRIES(lanes_hmec, 1, T, t) LANES_ENTRIES(lanes_two_hmec, 2, T, t)
FOR_EACH_TYPE(ENTRIES)

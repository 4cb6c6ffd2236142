// HMEC: products with a matrix of several packed blocks and a CSR rest over rows sorted by length, in one kernel.
//
// Layout: include/hmec.cuh.
// Grid: thread blocks of 128 or 256; one for each row with a very long rest, then a warp for each further row with a long rest, then a
// thread for each other row.
// Order: stored, but for rows with a long rest: there a tree over the lanes (include/ell.cuh). No such rows where results must be
// reproducible.
// Bytes: columns of the positions, values of entries, perm, rest, x, y once; y scattered through perm.
#include "hmec.cuh"

#define ENTRIES(T, t) HMEC_ENTRIES(hmec, T, t)
FOR_EACH_TYPE(ENTRIES)

// HMEC: products with a matrix of several packed blocks and a CSR rest over rows sorted by length, in one kernel.
//
// Layout: include/hmec.cuh.
// Grid: thread blocks of 256; one for each row with a very long rest, one for 8 further rows with a long rest, one for 256 other
// rows, one row a thread.
// Order: stored, but for rows with a long rest: there a tree over the lanes (include/ell.cuh). No such rows where results must be
// reproducible.
// Bytes: columns of the positions, values of entries, perm, rest, x, y once; y scattered through perm.
#include "hmec.cuh"

#define ENTRIES(T, t) HMEC_ENTRIES(hmec, T, t)
FOR_EACH_TYPE(ENTRIES)

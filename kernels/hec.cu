// HEC: products with a matrix of at most one packed block and a CSR rest over rows sorted by length: HMEC with one block.
//
// Layout: include/hmec.cuh.
// Grid: as hmec.cu.
// Order: as hmec.cu.
// Bytes: as hmec.cu.
#include "hmec.cuh"

#define ENTRIES(T, t) HMEC_ENTRIES(hec, T, t) LANES_ENTRIES(lanes_hec, 1, T, t)
FOR_EACH_TYPE(ENTRIES)

// Long rows in parts: one thread block sums each part, and the last block to end adds the parts in their order.
//
// Layout: the parts of a row lie side by side, `first` to `first` + `count`; `sums` has one element per part, `tickets` a 0 per part
// between products; a row uses its first one. Twin of `Part`: crates/backend-cuda/src/parts.rs, five u32.
// Order: 32 lanes take every 32nd part's sum, then the halving tree over them: the bits do not depend on which part ends last.
#pragma once
#include "spandrel.cuh"

// Entries begin..end of a row.
struct Part {
    u32 row, begin, end, first, count;
};

// Hands in part `at` with the sum `acc` (in lane 0). Returns true for the warp that is the row's last, with the row's sum in lane 0.
// One whole warp of the thread block calls this.
template <class T>
__device__ __forceinline__ bool last_part(const Part& part, u32 at, T& acc, T* sums, u32* tickets) {
    u32 lane = threadIdx.x % WARP, last = 0;
    if (lane == 0) {
        sums[at] = acc;
        __threadfence();
        last = last_ticket(tickets + part.first, part.count);
    }
    if (!__shfl_sync(ALL, last, 0)) return false;
    __threadfence();
    acc = T(0);
#pragma unroll 4
    for (u32 i = lane; i < part.count; i += WARP) acc += __ldcg(sums + part.first + i);
    acc = halve(acc);
    return true;
}

// What warps of a cluster of thread blocks exchange: progress, values with their marks, copies in flight.
//
// Layout: addresses in shared memory have 32 bits, and belong to this thread block or, from `there`, to another one of the cluster. A slot has a
// value and the mark of what it is (include/exchange.cuh), written and read as one. Progress is published by st.release and read by ld.acquire.
#pragma once
#include "exchange.cuh"

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u32 near(const void* at) { return (u32)__cvta_generic_to_shared(at); }
__device__ __forceinline__ u32 special_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ u32 special_crew() { u32 r; asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void cluster_meet() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The address in thread block `rank` of the cluster of what is at `at` here.
__device__ __forceinline__ u32 there(u32 at, u32 rank) { u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank)); return r; }
__device__ __forceinline__ void tell(u32 at, u32 v) { asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
__device__ __forceinline__ int progress_at(u32 at) { int v; asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(v) : "r"(at) : "memory"); return v; }
__device__ __forceinline__ void publish(u32 at, int v) { asm volatile("st.release.cta.shared::cta.s32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
__device__ __forceinline__ void clear(u32 at, int v) { asm volatile("st.shared::cta.s32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }

// Values in shared memory: of rings (volatile, as other warps write them) and of coefficients.
template <class T>
struct Cells;
template <>
struct Cells<double> {
    static constexpr u32 SLOT = 16;
    struct Pair { double x, y; };
    __device__ __forceinline__ static double ring(u32 at) { double v; asm volatile("ld.volatile.shared::cta.f64 %0, [%1];" : "=d"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static void put(u32 at, double v) { asm volatile("st.volatile.shared::cta.f64 [%0], %1;" ::"r"(at), "d"(v)); }
    __device__ __forceinline__ static double one(u32 at) { double v; asm volatile("ld.shared::cta.f64 %0, [%1];" : "=d"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static Pair two(u32 at) { Pair v; asm volatile("ld.shared::cta.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "r"(at)); return v; }
    __device__ __forceinline__ static void hand(u32 at, u32 mark, double v) {
        u64 bits = (u64)__double_as_longlong(v), tag = (u64)mark << 32;
        asm volatile("st.relaxed.cluster.shared::cluster.v2.u64 [%0], {%1, %2};" ::"r"(at), "l"(tag | (bits & 0xffffffffull)), "l"(tag | bits >> 32) : "memory");
    }
    __device__ __forceinline__ static void take(u32 at, Slot<double>& slot) { asm volatile("ld.relaxed.cta.shared::cta.v2.u64 {%0, %1}, [%2];" : "=l"(slot.low), "=l"(slot.high) : "r"(at) : "memory"); }
};
template <>
struct Cells<float> {
    static constexpr u32 SLOT = 8;
    struct Pair { float x, y; };
    __device__ __forceinline__ static float ring(u32 at) { float v; asm volatile("ld.volatile.shared::cta.f32 %0, [%1];" : "=f"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static void put(u32 at, float v) { asm volatile("st.volatile.shared::cta.f32 [%0], %1;" ::"r"(at), "f"(v)); }
    __device__ __forceinline__ static float one(u32 at) { float v; asm volatile("ld.shared::cta.f32 %0, [%1];" : "=f"(v) : "r"(at)); return v; }
    __device__ __forceinline__ static Pair two(u32 at) { Pair v; asm volatile("ld.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at)); return v; }
    __device__ __forceinline__ static void hand(u32 at, u32 mark, float v) {
        asm volatile("st.relaxed.cluster.shared::cluster.u64 [%0], %1;" ::"r"(at), "l"((u64)mark << 32 | (u64)__float_as_uint(v)) : "memory");
    }
    __device__ __forceinline__ static void take(u32 at, Slot<float>& slot) { asm volatile("ld.relaxed.cta.shared::cta.u64 %0, [%1];" : "=l"(slot.word) : "r"(at) : "memory"); }
};

__device__ __forceinline__ void await_copy(u32 bar, u32 parity) {
    asm volatile("{\n.reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy_ahead(u32 to, const void* from, u32 bytes, u32 bar) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
#endif

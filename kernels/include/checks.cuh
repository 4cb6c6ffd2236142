// What a fused step of a solver checks before its work, and what the monitor makes of its sums.
//
// Layout: `Checks` has the field order and sizes of its twin in crates/backend-cuda/src/launch.rs.
#pragma once
#include "spandrel.cuh"

// Up to two scalars that must be valid before a fused step does its work, each with its quantity; and what is observed at its end.
template <class T>
struct Checks {
    const T* value[2];
    u32 positive;       // whether the first must be positive; otherwise none may be zero
    u32 what[2];
    u32 observe;        // whether the first sum is the squared norm of `phase`
    u32 phase;
    u32 nonzero;        // whether the second sum must not be zero, as quantity `after`
    u32 after;
    u32 owes;           // whether x must still take the step
};

// Whether the step continues. All threads decide alike from scalars that this step does not write; one thread tells the monitor.
template <class T>
__device__ __forceinline__ bool admitted(const Checks<T>& checks, Monitor* monitor) {
    if (!open(monitor)) return false;
    if (!monitor) return true;
    u32 reason = RUNNING, what = checks.what[0];
    if (checks.value[0]) reason = Monitor::judge(*checks.value[0], checks.positive != 0);
    if (reason == RUNNING && checks.value[1]) {
        what = checks.what[1];
        reason = Monitor::judge(*checks.value[1], false);
    }
    if (reason == RUNNING) return true;
    if (blockIdx.x == 0 && threadIdx.x == 0) monitor->halt(reason, what);
    return false;
}

// What the monitor makes of a step's sums. One thread calls this.
template <class T>
__device__ __forceinline__ void conclude(const Checks<T>& checks, T first, T second, Monitor* monitor) {
    if (!monitor) return;
    if (checks.observe) monitor->observe(first, checks.phase);
    if (checks.nonzero) monitor->halt(Monitor::judge(second, false), checks.after);
    if (checks.owes) monitor->owed = 1;
}

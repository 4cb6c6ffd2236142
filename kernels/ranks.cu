// What the ranks of one process read from each other's GPUs: messages, and the sums of dot products over all ranks.
//
// Layout: a message lies in the sender's memory. Beside it lies the number of messages published so far, which only grows. A reader waits
// until that number is large enough. Its host has seen before that the sender has enqueued the message, so no wait is forever; but a GPU
// that has failed never publishes, and then a reader gives up after a minute.
// A rank's message of a sum: results of blocks of 1024 elements of its own. Those of whole groups of 1024 blocks are summed; those before the
// first whole group and behind the last one stay as they are. One list for each sum.
// Grid: sums are completed by one thread block, messages copied by one thread block per 1024 elements; rows with packed entries of x: one warp
// per `rows` rows, thread blocks of ROWS_THREADS.
// Order: that of Backend::dot; of rows, stored.
// Bytes: block results once; n / 1024^2 + 2 * 1023 values from each rank at most. Rows: their entries and places once, x from the caches after
// its first use.
#include "checks.cuh"

#define MOST_RANKS 32
// Nanoseconds after which a reader gives up.
#define PATIENCE 60000000000ull

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Waits until a peer has published `turn` messages. What it wrote before is then visible to this thread.
__device__ __forceinline__ void await(const u64* published, u64 turn) {
    u64 seen, since = nanoseconds();
    while (true) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(published) : "memory");
        if (seen >= turn) return;
        if (nanoseconds() - since > PATIENCE) __trap();
        __nanosleep(100);
    }
}

// Publishes everything that this thread has written or seen to be written. One thread calls this.
__device__ __forceinline__ void publish(u64* published, u64 turn) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(published), "l"(turn) : "memory");
}

// A message: x at `count` places, to `to`. 1024 entries per thread block of 256.
template <class T>
__device__ __forceinline__ void send(u64 count, const u32* places, const T* x, T* to, u32* ticket, u64* published, u64 turn) {
    u64 first = (u64)blockIdx.x * BLOCK + threadIdx.x;
    T v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i * 256 < count) v[i] = x[places[first + i * 256]];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i * 256 < count) to[first + i * 256] = v[i];
    if (last_of(ticket, gridDim.x) && threadIdx.x == 0) publish(published, turn);
}

#define SEND(T, t)                                                                               \
    extern "C" __global__ void __launch_bounds__(256) send_ranks_##t(u64 count, const u32* places, const T* x, T* to, u32* ticket, u64* published, u64 turn) { \
        send(count, places, x, to, ticket, published, turn);                                     \
    }
FOR_EACH_TYPE(SEND)

// The blocks of one rank, and which of them are whole groups.
struct Blocks {
    u64 begin, end;   // of the blocks
    u64 first, last;  // of the groups

    __device__ __forceinline__ Blocks(u64 begin, u64 end, u64 all) : begin(begin), end(end) {
        first = (begin + BLOCK - 1) / BLOCK;
        last = end == all ? (end + BLOCK - 1) / BLOCK : end / BLOCK;
        if (all <= 1 || first >= last) first = last = (begin + BLOCK - 1) / BLOCK;
    }
    // Numbers of blocks before the groups, of groups, and of values of a sum.
    __device__ __forceinline__ u64 before() const { return first < last ? first * BLOCK - begin : end - begin; }
    __device__ __forceinline__ u64 groups() const { return last - first; }
    __device__ __forceinline__ u64 behind() const { return first < last && last * BLOCK < end ? end - last * BLOCK : 0; }
    __device__ __forceinline__ u64 values() const { return before() + groups() + behind(); }
    // Where the value of a block outside the groups stands.
    __device__ __forceinline__ u64 place(u64 block) const {
        return first < last && block >= last * BLOCK ? before() + groups() + (block - last * BLOCK) : block - begin;
    }
};

// As `group_sum`, with all loads under way at once.
template <class T>
__device__ __forceinline__ T whole_group_sum(const T* results, u64 first, u64 count) {
    u64 at = first + threadIdx.x % WARP;
    u64 end = count - first < BLOCK ? count : first + BLOCK;
    T v[BLOCK / WARP], acc = T(0);
#pragma unroll
    for (int i = 0; i < BLOCK / WARP; i++) v[i] = at + i * WARP < end ? __ldcg(results + at + i * WARP) : T(0);
#pragma unroll
    for (int i = 0; i < BLOCK / WARP; i++)
        if (at + i * WARP < end) acc += v[i];
    return halve(acc);
}

// The message of a rank that has the blocks begin..end of `all`: for each of `sums` lists of their results its values, to `to`.
template <class T>
__device__ __forceinline__ void send_sums(const T* results0, const T* results1, u32 sums, u64 begin, u64 end, u64 all, T* to, u32* ticket, u64* published, u64 turn) {
    Blocks own(begin, end, all);
    u64 before = own.before(), groups = own.groups(), behind = own.behind(), values = own.values();
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    for (u64 task = thread / WARP; task < sums * groups; task += threads / WARP) {
        u64 k = task / groups, group = task % groups;
        T sum = whole_group_sum(k ? results1 : results0, before + group * BLOCK, end - begin);
        if (threadIdx.x % WARP == 0) to[k * values + before + group] = sum;
    }
    for (u64 at = thread; at < sums * (before + behind); at += threads) {
        u64 k = at / (before + behind), i = at % (before + behind);
        bool is_before = i < before;
        const T* results = k ? results1 : results0;
        to[k * values + (is_before ? i : i + groups)] = __ldcg(results + (is_before ? i : end - begin - behind + (i - before)));
    }
    if (last_of(ticket, gridDim.x) && threadIdx.x == 0) publish(published, turn);
}

#define SEND_SUMS(T, t)                                                                          \
    extern "C" __global__ void __launch_bounds__(128) send_sums_ranks_##t(const T* results0, const T* results1, u32 sums, u64 begin, u64 end, u64 all, T* to, u32* ticket, u64* published, u64 turn) { \
        send_sums(results0, results1, sums, begin, end, all, to, ticket, published, turn);       \
    }
FOR_EACH_TYPE(SEND_SUMS)

// The messages of all ranks, in their order.
struct Messages {
    const void* values[MOST_RANKS];
    const u64* published[MOST_RANKS];
    u64 ends[MOST_RANKS];  // of the ranks' blocks
    u32 count;
    u32 unused;

    __device__ __forceinline__ Blocks blocks(u32 rank, u64 all) const { return Blocks(rank ? ends[rank - 1] : 0, ends[rank], all); }
};

// Sum k of all ranks from their messages. One thread block calls this. `nodes`: room for the groups of all levels.
template <class T>
__device__ T total(const Messages& from, u32 k, u64 all, T* nodes) {
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    u64 count = (all + BLOCK - 1) / BLOCK;
    // Groups of one rank.
    for (u64 group = threadIdx.x; group < count; group += blockDim.x) {
        for (u32 rank = 0; rank < from.count; rank++) {
            Blocks of = from.blocks(rank, all);
            if (group < of.first || group >= of.last) continue;
            nodes[group] = ((const volatile T*)from.values[rank])[k * of.values() + of.before() + (group - of.first)];
            break;
        }
    }
    // Groups of several: those in which a rank ends, but for the last group of all.
    for (u32 rank = warp; rank + 1 < from.count; rank += warps) {
        u64 end = from.ends[rank], group = end / BLOCK;
        bool known = rank > 0 && from.ends[rank - 1] / BLOCK == group && from.ends[rank - 1] % BLOCK != 0;
        if (end % BLOCK == 0 || end == all || known) continue;
        T acc = T(0);
        u32 of = 0;
        for (u64 block = group * BLOCK + lane; block < all && block < (group + 1) * BLOCK; block += WARP) {
            while (block >= from.ends[of]) of++;
            Blocks blocks = from.blocks(of, all);
            acc += ((const volatile T*)from.values[of])[k * blocks.values() + blocks.place(block)];
        }
        acc = halve(acc);
        if (lane == 0) nodes[group] = acc;
    }
    __syncthreads();
    T* level = nodes;
    while (count > 1) {
        u64 groups = (count + BLOCK - 1) / BLOCK;
        for (u64 group = warp; group < groups; group += warps) {
            T sum = group_sum(level, group * BLOCK, count);
            if (lane == 0) level[count + group] = sum;
        }
        __syncthreads();
        level += count;
        count = groups;
    }
    return count ? *level : T(0);
}

template <class T>
__device__ __forceinline__ void sum_ranks(const Messages& from, u64 turn, u64 all, u32 sums, u32 root, T* nodes, T* out0, T* out1, const Checks<T>& checks, Monitor* monitor) {
    if (threadIdx.x < from.count) await(from.published[threadIdx.x], turn);
    __syncthreads();
    if (!open(monitor)) return;
    T sum[2];
    for (u32 k = 0; k < sums; k++) {
        if (all == 1) {
            // A single block needs no addition.
            u32 rank = 0;
            while (from.ends[rank] == 0) rank++;
            sum[k] = ((const volatile T*)from.values[rank])[k];
        } else {
            sum[k] = total(from, k, all, nodes);
        }
        if (root) sum[k] = sqrt_rn(sum[k]);
        if (threadIdx.x == 0) *(k ? out1 : out0) = sum[k];
        __syncthreads();
    }
    if (threadIdx.x == 0) conclude(checks, sum[0], sum[sums - 1], monitor);
}

#define SUM(T, t)                                                                                \
    extern "C" __global__ void __launch_bounds__(512) sum_ranks_##t(const __grid_constant__ Messages from, u64 turn, u64 all, u32 sums, u32 root, T* nodes, T* out0, T* out1, Checks<T> checks, Monitor* monitor) { \
        sum_ranks(from, turn, all, sums, root, nodes, out0, out1, checks, monitor);              \
    }
FOR_EACH_TYPE(SUM)

// Parts of messages: elements `values..` of each go to `to + at..`.
struct Parts {
    const void* values[MOST_RANKS];
    const u64* published[MOST_RANKS];
    u64 at[MOST_RANKS];
    u64 len[MOST_RANKS];
    u32 chunks[MOST_RANKS];  // thread blocks up to and with this part
    u32 count;
    u32 unused;
};

template <class T>
__device__ __forceinline__ void receive(const Parts& from, u64 turn, T* to) {
    u32 part = 0;
    while (part + 1 < from.count && blockIdx.x >= from.chunks[part]) part++;
    if (threadIdx.x == 0) await(from.published[part], turn);
    __syncthreads();
    u64 first = (u64)(blockIdx.x - (part ? from.chunks[part - 1] : 0)) * BLOCK + threadIdx.x, len = from.len[part];
    const T* values = (const T*)from.values[part];
    T v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i * 256 < len) v[i] = values[first + i * 256];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (first + i * 256 < len) to[from.at[part] + first + i * 256] = v[i];
}

#define RECEIVE(T, t)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) receive_ranks_##t(const __grid_constant__ Parts from, u64 turn, T* to) { \
        receive(from, turn, to);                                                                 \
    }
FOR_EACH_TYPE(RECEIVE)

#define ROWS_THREADS 128
// Entries that a lane has in flight, and a warp has at once.
#define ROWS_AHEAD 8
#define ROWS_ENTRIES (ROWS_AHEAD * WARP)

// y[places[k]] = a (row k of A) x + b z[places[k]], or b z[k] if `by_row`. The columns from `at` on, as many as `own_count`, are those of x at the places
// `own`; the others are those of `packed`. A warp brings the entries of `rows` rows, at most 32, with their x, to shared memory as they lie. Then a lane
// sums each row.
template <class T>
__device__ __forceinline__ void apply_packed(u32 nrows, u32 rows, const u32* row_ptr, const u32* cols, const T* values, const u32* places, const u32* own, u32 at, u32 own_count, const T* packed, u32 by_row, const Coeff<T>& a, const T* x, const Coeff<T>& b, const T* z, T* y, const Monitor* gate) {
    __shared__ T value[ROWS_THREADS / WARP][ROWS_ENTRIES], at_x[ROWS_THREADS / WARP][ROWS_ENTRIES];
    if (!open(gate)) return;
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    u64 first_row = ((u64)blockIdx.x * (ROWS_THREADS / WARP) + warp) * rows, row = lane < rows ? first_row + lane : nrows;
    bool sums = row < nrows;
    u32 begin = __ldg(row_ptr + (sums ? row : nrows)), end = __ldg(row_ptr + (sums ? row + 1 : nrows)), target = sums ? __ldg(places + row) : 0;
    T acc = T(0);
    u32 e = begin, first = __shfl_sync(ALL, begin, 0), last = __shfl_sync(ALL, end, rows - 1);
    for (; first < last; first += ROWS_ENTRIES) {
        u32 count = last - first < ROWS_ENTRIES ? last - first : ROWS_ENTRIES, col[ROWS_AHEAD];
        T v[ROWS_AHEAD], w[ROWS_AHEAD];
#pragma unroll
        for (u32 i = 0; i < ROWS_AHEAD; i++) {
            bool there = i * WARP + lane < count;
            col[i] = there ? __ldg(cols + first + i * WARP + lane) : 0;
            v[i] = there ? __ldg(values + first + i * WARP + lane) : T(0);
        }
        issued();
        const T* of_x[ROWS_AHEAD];
#pragma unroll
        for (u32 i = 0; i < ROWS_AHEAD; i++) {
            bool is_own = col[i] - at < own_count;
            of_x[i] = (is_own ? x : packed) + (is_own ? __ldg(own + (col[i] - at)) : col[i]);
        }
        issued();
#pragma unroll
        for (u32 i = 0; i < ROWS_AHEAD; i++) w[i] = i * WARP + lane < count ? __ldg(of_x[i]) : T(0);
        issued();
#pragma unroll
        for (u32 i = 0; i < ROWS_AHEAD; i++) {
            value[warp][i * WARP + lane] = v[i];
            at_x[warp][i * WARP + lane] = w[i];
        }
        __syncwarp();
        for (; e < end && e < first + count; e++) acc = fma_rn(value[warp][e - first], at_x[warp][e - first], acc);
        __syncwarp();
    }
    if (!sums) return;
    Update<T> to = {y + target, z + (by_row ? row : target)};
    finish_row(a.value(), acc, b.value(), to);
}

#define APPLY_PACKED(T, t)                                                                       \
    extern "C" __global__ void __launch_bounds__(ROWS_THREADS) apply_packed_ranks_##t(           \
        u32 nrows, u32 rows, const u32* row_ptr, const u32* cols, const T* values, const u32* places, const u32* own, u32 at, u32 own_count, const T* packed, u32 by_row, Coeff<T> a, const T* x, Coeff<T> b, T* y, const T* z, const Monitor* gate) { \
        apply_packed(nrows, rows, row_ptr, cols, values, places, own, at, own_count, packed, by_row, a, x, b, z, y, gate); \
    }
FOR_EACH_TYPE(APPLY_PACKED)

// The results w . y, and y . y if `results1` is given, of `count` blocks of 1024 elements of n. A warp per block.
template <class T>
__device__ __forceinline__ void block_results(u64 n, const T* w, const T* y, const u32* blocks, u64 count, T* results0, T* results1, const Monitor* gate) {
    if (!open(gate)) return;
    u64 at = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (at >= count) return;
    u64 block = blocks[at], first = block * BLOCK, left = n - first;
    u32 rows = left < BLOCK ? (u32)left : BLOCK;
    T wy = T(0), yy = T(0);
#pragma unroll 8
    for (u32 i = threadIdx.x % WARP; i < rows; i += WARP) {
        T v = y[first + i];
        wy = fma_rn(w[first + i], v, wy);
        yy = fma_rn(v, v, yy);
    }
    wy = halve(wy);
    yy = halve(yy);
    if (threadIdx.x % WARP != 0) return;
    results0[block] = wy;
    if (results1) results1[block] = yy;
}

#define BLOCK_RESULTS(T, t)                                                                      \
    extern "C" __global__ void __launch_bounds__(256) block_results_ranks_##t(u64 n, const T* w, const T* y, const u32* blocks, u64 count, T* results0, T* results1, const Monitor* gate) { \
        block_results(n, w, y, blocks, count, results0, results1, gate);                         \
    }
FOR_EACH_TYPE(BLOCK_RESULTS)

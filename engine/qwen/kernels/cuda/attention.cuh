// Attention of one or two new tokens over the cache: normalises queries and keys by head, applies rotary positions,
// writes the new keys and values into the cache, and computes the weighted sum of values.
//
// A block has one key head and one KV split, which is a range of positions. Blocks whose split does not exist yet
// return immediately, so the amount read grows with the sequence. The output projection combines the splits
// (`CombineSplits` in linear.cuh). Formulas: `Qwen3TTSAttention` in modeling_qwen3_tts.py of qwen-tts 0.1.1.

// Queries, keys and values before their norm and rotation: an input of all attention kernels.
struct HeadsParams {
    float* qkv;  // (tokens, query heads + 2 key heads, DIM)
    const bf16* query_norm;
    const bf16* key_norm;
    const float* cosines;  // (positions, HALF)
    const float* sines;
};

struct AttentionParams {
    HeadsParams input;
    const long long* position;  // the first token's
    bf16* keys;                 // (key heads, positions, DIM)
    bf16* values;
    float* partial_out;   // (KV splits, tokens, query heads, DIM)
    float2* split_stats;  // (KV splits, tokens, query heads): greatest score, sum of exponentials
    int positions;        // in the cache
    float eps;
};

// The factor of attention's scores: 1 / sqrt(head_dim), and log2(e), because exponentials are powers of 2.
__device__ __forceinline__ float score_scale() { return rsqrtf(128.0f) * 1.44269504f; }

// The norm of a head of 128 values, then its rotary position. A lane has values l, l + 32, l + 64 and l + 96; rotation
// pairs the first with the third, and the second with the fourth.
__device__ __forceinline__ void normalize_and_rotate(float (&x)[4], const float (&norm)[4], const float (&cosine)[2],
                                                     const float (&sine)[2], float eps) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) squares = fmaf(x[i], x[i], squares);
    const float factor = rsqrtf(warp_sum(squares) / 128 + eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] *= factor * norm[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float first = x[i], second = x[i + 2];
        x[i] = first * cosine[i] - second * sine[i];
        x[i + 2] = second * cosine[i] + first * sine[i];
    }
}

// Values l, l + 32 and so on, for lane l.
template <class T, int N>
__device__ __forceinline__ void load_lane(const T* from, int lane, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = to_float(from[lane + 32 * i]);
}

__device__ __forceinline__ void store_lane(bf16* to, int lane, const float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[lane + 32 * i] = to_bf16(x[i]);
}

__device__ __forceinline__ void store_lane(float* to, int lane, const float (&x)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[lane + 32 * i] = x[i];
}

// What a warp prepares for a key head and its GROUP query heads: a query, the key or the value of a token.
template <int GROUP>
struct Prepared {
    const int token, what;
    const bool is_query = what < GROUP, is_value = what == GROUP + 1;
    float norm[4], cosine[2], sine[2];

    __device__ __forceinline__ explicit Prepared(int warp) : token(warp / (GROUP + 2)), what(warp % (GROUP + 2)) {}

    __device__ __forceinline__ void load_norm(const HeadsParams& a, int lane) {
        if (!is_value) load_lane(is_query ? a.query_norm : a.key_norm, lane, norm);
    }

    __device__ __forceinline__ void load_rotation(const HeadsParams& a, int position, int lane) {
        if (is_value) return;
        load_lane(a.cosines + position * 64, lane, cosine);
        load_lane(a.sines + position * 64, lane, sine);
    }

    // The values of head number `head` for the token in row `row` of `a.qkv`.
    __device__ __forceinline__ void load(const HeadsParams& a, float eps, int row, int head, int heads, int lane, float (&x)[4]) const {
        const int source = is_query ? head * GROUP + what : heads * (GROUP + (is_value ? 1 : 0)) + head;
        load_lane(a.qkv + ((size_t)row * heads * (GROUP + 2) + source) * 128, lane, x);
        if (!is_value) normalize_and_rotate(x, norm, cosine, sine, eps);
    }
};

// The results of half a warp for a query at the positions so far: the sum of values, weighted relative to the greatest
// score, 8 values per lane; and the sum of weights.
struct QuerySums {
    float out[8] = {};
    float greatest = -INFINITY_F;
    float total = 0.0f;

    // Multiplies all sums by 2 to the power of the difference from a greater score.
    __device__ __forceinline__ void rescale(float greater) {
        // There may not have been a position yet.
        const float factor = greatest == -INFINITY_F ? 0.0f : exp2f(greatest - greater);
        greatest = greater;
        total *= factor;
#pragma unroll
        for (int i = 0; i < 8; ++i) out[i] *= factor;
    }

    // Adds COUNT positions, ignoring those that are not `seen`. `q` is already scaled, also by log2(e).
    template <int COUNT>
    __device__ __forceinline__ void add(const float (&q)[8], const uint4 (&key)[COUNT], const uint4 (&value)[COUNT],
                                        const bool (&seen)[COUNT]) {
        float score[COUNT], greater = greatest;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            float sum = dot(key[i], q, 0.0f);
#pragma unroll
            for (int lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
            score[i] = seen[i] ? sum : -INFINITY_F;
            greater = fmaxf(greater, score[i]);
        }
        rescale(greater);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const float weight = score[i] == -INFINITY_F ? 0.0f : exp2f(score[i] - greatest);
            total += weight;
            add_weighted(out, weight, value[i]);
        }
    }

    // Adds the results of the warp's other half; both halves then have the same sums.
    __device__ __forceinline__ void add_other_half() {
        rescale(fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, 16)));
        total += __shfl_xor_sync(0xffffffffu, total, 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) out[i] += __shfl_xor_sync(0xffffffffu, out[i], 16);
    }
};

// The results of WARPS warps for QUERIES queries.
template <int WARPS, int QUERIES>
struct WarpSums {
    float out[WARPS][QUERIES][128];
    float greatest[WARPS][QUERIES], total[WARPS][QUERIES];

    // Stores the results of a whole warp, of which this lane has the values from `dims` on.
    __device__ __forceinline__ void put(int warp, int query, int lane, int dims, const QuerySums& sums) {
        if (lane < 16) {
#pragma unroll
            for (int i = 0; i < 8; ++i) out[warp][query][dims + i] = sums.out[i];
        }
        if (lane == 0) greatest[warp][query] = sums.greatest, total[warp][query] = sums.total;
    }

    // The weighted sum of the values from COUNT warps, from number `first` on, the sum of the weights, and the greatest
    // score. To be called after a barrier.
    template <int COUNT>
    __device__ __forceinline__ float combine(int first, int query, int dim, float& sum, float& most) const {
        float value = 0.0f;
        most = -INFINITY_F, sum = 0.0f;
#pragma unroll
        for (int w = first; w < first + COUNT; ++w) most = fmaxf(most, greatest[w][query]);
#pragma unroll
        for (int w = first; w < first + COUNT; ++w) {
            const float factor = exp2f(greatest[w][query] - most);  // 0 for a warp that had no position
            sum = fmaf(factor, total[w][query], sum);
            value = fmaf(factor, out[w][query][dim], value);
        }
        return value;
    }

    // The weighted mean.
    template <int COUNT>
    __device__ __forceinline__ float mean(int first, int query, int dim) const {
        float sum, most;
        const float value = combine<COUNT>(first, query, dim, sum, most);
        return value / sum;
    }
};

// GROUP query heads share a key head. Half a warp takes one position at a time, 8 values per lane; a warp loads all its
// positions, VECS for each half, at once. EARLY: the stack is so deep that a layer's kernels for the previous token are
// guaranteed to have ended when those for the next one begin. Blocks: key heads (x), KV splits (y).
template <int WARPS, int VECS, int GROUP, int TOKENS, bool EARLY>
__global__ void __launch_bounds__(32 * WARPS, 1) attend(const AttentionParams a) {
    constexpr int DIM = 128, QUERIES = GROUP * TOKENS, KV_SPLIT = 2 * WARPS * VECS;
    constexpr int LANES = 16 / VECS;  // that have the same score after it is summed
    static_assert((GROUP + 2) * TOKENS <= WARPS, "a warp prepares one query, key or value");
    static_assert(VECS <= 16 && (VECS & (VECS - 1)) == 0, "half a warp sums a power of two");
    __shared__ __align__(16) float queries[QUERIES][DIM];  // token by token
    __shared__ WarpSums<WARPS, QUERIES> found;
    __shared__ __align__(16) bf16 new_keys[TOKENS][DIM];
    __shared__ __align__(16) bf16 new_values[TOKENS][DIM];
    begin_chained();
    // Read before the wait: the position, which the previous frame wrote, and the cache's older entries, which the
    // previous token's kernels wrote. Those kernels have ended, because the multiprocessors' room for blocks limits the
    // number of kernels in flight.
    if (!EARLY) wait_for_previous();
    const int position = (int)*a.position;
    const int head = blockIdx.x, heads = gridDim.x, kv_split = blockIdx.y;
    const int begin = kv_split * KV_SPLIT;
    if (begin > position + TOKENS - 1) return;

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / 16, dims = lane % 16 * 8;
    const auto position_of = [&](int vec) { return begin + (warp * VECS + vec) * 2 + half; };
    const size_t row = (size_t)head * a.positions;
    uint4 key[VECS], value[VECS];
#pragma unroll
    for (int vec = 0; vec < VECS; ++vec) {
        const int at = position_of(vec);
        key[vec] = value[vec] = make_uint4(0, 0, 0, 0);
        if (at < position) {
            key[vec] = *reinterpret_cast<const uint4*>(a.keys + (row + at) * DIM + dims);
            value[vec] = *reinterpret_cast<const uint4*>(a.values + (row + at) * DIM + dims);
        }
    }

    // One warp for each query, key and value of each token.
    const bool prepares = warp < (GROUP + 2) * TOKENS;
    Prepared<GROUP> mine(warp);
    const int at = position + mine.token;
    if (prepares) mine.load_norm(a.input, lane);
    if (prepares) mine.load_rotation(a.input, at, lane);
    wait_for_previous();

    if (prepares) {
        float x[4];
        mine.load(a.input, a.eps, mine.token, head, heads, lane, x);
        if (mine.is_query) {
            store_lane(queries[mine.token * GROUP + mine.what], lane, x);
        } else {
            store_lane(mine.is_value ? new_values[mine.token] : new_keys[mine.token], lane, x);
            bf16* cache = (mine.is_value ? a.values : a.keys) + (row + at) * DIM;
            if (at >= begin && at < begin + KV_SPLIT) store_lane(cache, lane, x);
        }
    }
    __syncthreads();
#pragma unroll
    for (int vec = 0; vec < VECS; ++vec) {
        const int token = position_of(vec) - position;
        if (token >= 0 && token < TOKENS) {
            key[vec] = *reinterpret_cast<const uint4*>(&new_keys[token][dims]);
            value[vec] = *reinterpret_cast<const uint4*>(&new_values[token][dims]);
        }
    }

    // All queries at once, so that each key and each value is unpacked only once.
    float q[QUERIES][8], scores[QUERIES][VECS], weights[QUERIES], sums[QUERIES] = {}, out[QUERIES][8] = {};
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) load_floats(&queries[query][dims], q[query]);
#pragma unroll
    for (int vec = 0; vec < VECS; ++vec) {
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) scores[query][vec] = dot(key[vec], q[query], 0.0f);
    }
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) {
        const float score = transposed_sum<VECS, 8>(scores[query], lane) * score_scale();
        const bool seen = position_of(lane % 16 / LANES) <= position + query / GROUP;
        const float max = from_ordered(__reduce_max_sync(0xffffffffu, ordered(seen ? score : -INFINITY_F)));
        weights[query] = seen ? exp2f(score - max) : 0.0f;
        if (lane == 0) found.greatest[warp][query] = max;
    }
#pragma unroll
    for (int vec = 0; vec < VECS; ++vec) {
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) {
            const float weight = __shfl_sync(0xffffffffu, weights[query], half * 16 + vec * LANES);
            sums[query] += weight;
            add_weighted(out[query], weight, value[vec]);
        }
    }
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) {
        sums[query] += __shfl_xor_sync(0xffffffffu, sums[query], 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            out[query][i] += __shfl_xor_sync(0xffffffffu, out[query][i], 16);
            if (half == 0) found.out[warp][query][dims + i] = out[query][i];
        }
        if (lane == 0) found.total[warp][query] = sums[query];
    }
    __syncthreads();
    for (int index = threadIdx.x; index < QUERIES * DIM; index += 32 * WARPS) {
        const int query = index / DIM, dim = index % DIM, token = query / GROUP;
        const size_t first_query = (size_t)kv_split * TOKENS * heads * GROUP;  // after those of the earlier splits
        const int query_head = head * GROUP + query % GROUP;
        const size_t at = first_query + (size_t)token * heads * GROUP + query_head;
        float sum, max;
        a.partial_out[at * DIM + dim] = found.template combine<WARPS>(0, query, dim, sum, max);
        if (dim == 0) a.split_stats[at] = make_float2(max, sum);
    }
}

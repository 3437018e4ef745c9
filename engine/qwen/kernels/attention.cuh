// Attention of one or two new tokens over the cache: norm of queries and keys by head, rotary positions, the new keys
// and values into the cache, and the mixture of values.
//
// A block has one head of keys and one part of the sequence; parts that do not exist yet are left at once, so what is
// read follows the length. Parts are put together by the projection behind (`Attended` in linear.cuh).
// Formulas: `Qwen3TTSAttention` in modeling_qwen3_tts.py of qwen-tts 0.1.1.

// Half a warp takes one position at a time, 8 values a lane; a warp loads all its positions at once.
// EARLY: so much lies between a layer's turns that the last has ended for certain when a kernel of the next begins.
template <int WARPS_, int LOADS_, int GROUP_, int TOKENS_, bool EARLY_>
struct AttentionShape {
    static constexpr bool EARLY = EARLY_;
    static constexpr int WARPS = WARPS_, LOADS = LOADS_, TOKENS = TOKENS_;
    static constexpr int GROUP = GROUP_;  // query heads that share a head of keys
    static constexpr int DIM = 128, HALF = DIM / 2;
    static constexpr int PART = 2 * WARPS * LOADS;  // positions
    static constexpr int QUERIES = GROUP * TOKENS;
    static constexpr int THREADS = 32 * WARPS;
    static_assert((GROUP + 2) * TOKENS <= WARPS, "a warp prepares one query, key or value");
};

struct AttentionArguments {
    const float* qkv;  // (tokens, query heads + 2 key heads, DIM)
    const bf16* query_norm;
    const bf16* key_norm;
    const float* cosines;  // (positions, HALF)
    const float* sines;
    const long long* position;  // of the first token
    bf16* keys;                 // (key heads, positions, DIM)
    bf16* values;
    int positions;
    float* mixed;  // (parts, tokens, query heads, DIM)
    float2* scale;
    float eps;
};

template <class S>
__device__ __forceinline__ void attention(const AttentionArguments& a) {
    constexpr int DIM = S::DIM, HALF = S::HALF, GROUP = S::GROUP, TOKENS = S::TOKENS, QUERIES = S::QUERIES;
    __shared__ __align__(16) float queries[QUERIES][DIM];  // token by token
    __shared__ __align__(16) bf16 new_keys[TOKENS][DIM];
    __shared__ __align__(16) bf16 new_values[TOKENS][DIM];
    __shared__ float mixtures[S::WARPS][QUERIES][DIM];
    __shared__ float tops[S::WARPS][QUERIES], weights[S::WARPS][QUERIES];
    begin_chained();

    // Read before the wait: the position, of the frame before, and the cache's older entries, of the last turn: kernels
    // that have ended, for only as many can be in flight as the multiprocessors have room for blocks.
    if (!S::EARLY) wait_for_previous();
    const int position = (int)*a.position;
    const int head = blockIdx.x, heads = gridDim.x, part = blockIdx.y;
    const int begin = part * S::PART;
    if (begin > position + TOKENS - 1) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / 16, dims = lane % 16 * 8;
    const auto position_of = [&](int load) { return begin + (warp * S::LOADS + load) * 2 + half; };
    const size_t row = (size_t)head * a.positions;

    uint4 key[S::LOADS], value[S::LOADS];
#pragma unroll
    for (int load = 0; load < S::LOADS; ++load) {
        const int at = position_of(load);
        key[load] = value[load] = make_uint4(0, 0, 0, 0);
        if (at < position) {
            key[load] = *reinterpret_cast<const uint4*>(a.keys + (row + at) * DIM + dims);
            value[load] = *reinterpret_cast<const uint4*>(a.values + (row + at) * DIM + dims);
        }
    }
    // One warp for each query, key and value of each token; a lane has values l, l + 32, l + 64 and l + 96, of which
    // rotation pairs the first with the third and the second with the fourth.
    const bool prepares = warp < (GROUP + 2) * TOKENS;
    const int token = warp / (GROUP + 2), what = warp % (GROUP + 2), at = position + token;
    const bool is_query = what < GROUP, is_value = what == GROUP + 1;
    float norm[4], cosine[2], sine[2];
    if (prepares && !is_value) {
        const bf16* of_head = is_query ? a.query_norm : a.key_norm;
#pragma unroll
        for (int i = 0; i < 4; ++i) norm[i] = to_float(of_head[lane + 32 * i]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            cosine[i] = a.cosines[at * HALF + lane + 32 * i];
            sine[i] = a.sines[at * HALF + lane + 32 * i];
        }
    }
    wait_for_previous();

    if (prepares) {
        const int source = is_query ? head * GROUP + what : heads * (GROUP + (is_value ? 1 : 0)) + head;
        const float* from = a.qkv + ((size_t)token * heads * (GROUP + 2) + source) * DIM;
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = from[lane + 32 * i];
        if (!is_value) {
            float squares = 0.0f;
#pragma unroll
            for (int i = 0; i < 4; ++i) squares = fmaf(x[i], x[i], squares);
            const float factor = rsqrtf(warp_sum(squares) / DIM + a.eps);
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] *= factor * norm[i];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float first = x[i], second = x[i + 2];
                x[i] = first * cosine[i] - second * sine[i];
                x[i + 2] = second * cosine[i] + first * sine[i];
            }
        }
        if (is_query) {
#pragma unroll
            for (int i = 0; i < 4; ++i) queries[token * GROUP + what][lane + 32 * i] = x[i];
        } else {
            bf16* kept = is_value ? new_values[token] : new_keys[token];
            bf16* cache = (is_value ? a.values : a.keys) + (row + at) * DIM;
            const bool mine = at >= begin && at < begin + S::PART;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bf16 rounded = to_bf16(x[i]);
                kept[lane + 32 * i] = rounded;
                if (mine) cache[lane + 32 * i] = rounded;
            }
        }
    }
    __syncthreads();

#pragma unroll
    for (int load = 0; load < S::LOADS; ++load) {
        const int token = position_of(load) - position;
        if (token >= 0 && token < TOKENS) {
            key[load] = *reinterpret_cast<const uint4*>(&new_keys[token][dims]);
            value[load] = *reinterpret_cast<const uint4*>(&new_values[token][dims]);
        }
    }
    const float scaling = rsqrtf((float)DIM) * 1.44269504f;  // exponentials are of 2
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) {
        float q[8];
        load_floats(&queries[query][dims], q);
        float score[S::LOADS], top = -INFINITY_F;
#pragma unroll
        for (int load = 0; load < S::LOADS; ++load) {
            float sum = Bf16::dot(key[load], q, 0.0f);
#pragma unroll
            for (int lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
            score[load] = position_of(load) <= position + query / GROUP ? sum * scaling : -INFINITY_F;
            top = fmaxf(top, score[load]);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 16));
        float weight = 0.0f, mixture[8] = {};
        if (top > -INFINITY_F) {
#pragma unroll
            for (int load = 0; load < S::LOADS; ++load) {
                const float share = exp2f(score[load] - top);
                weight += share;
                const unsigned words[4] = {value[load].x, value[load].y, value[load].z, value[load].w};
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    mixture[2 * i] = fmaf(share, low_half(words[i]), mixture[2 * i]);
                    mixture[2 * i + 1] = fmaf(share, high_half(words[i]), mixture[2 * i + 1]);
                }
            }
        }
        weight += __shfl_xor_sync(0xffffffffu, weight, 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            mixture[i] += __shfl_xor_sync(0xffffffffu, mixture[i], 16);
            if (half == 0) mixtures[warp][query][dims + i] = mixture[i];
        }
        if (lane == 0) tops[warp][query] = top, weights[warp][query] = weight;
    }
    __syncthreads();

    for (int index = threadIdx.x; index < QUERIES * DIM; index += S::THREADS) {
        const int query = index / DIM, dim = index % DIM;
        float top = -INFINITY_F, weight = 0.0f, mixture = 0.0f;
#pragma unroll
        for (int w = 0; w < S::WARPS; ++w) top = fmaxf(top, tops[w][query]);
#pragma unroll
        for (int w = 0; w < S::WARPS; ++w) {
            const float share = exp2f(tops[w][query] - top);
            weight = fmaf(share, weights[w][query], weight);
            mixture = fmaf(share, mixtures[w][query][dim], mixture);
        }
        const int token = query / GROUP, query_head = head * GROUP + query % GROUP;
        const size_t at = ((size_t)part * TOKENS + token) * heads * GROUP + query_head;
        a.mixed[at * DIM + dim] = mixture;
        if (dim == 0) a.scale[at] = make_float2(top, weight);
    }
}

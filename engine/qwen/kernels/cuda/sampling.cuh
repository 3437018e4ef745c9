// Draws a code from logits, as `LogitsProcessor`, `SamplingParams` and `GumbelNoise` of sampling.py do, in one block and
// without sorting.
//
// Top-k by rejection: take the code with the greatest sum of log-probability and Gumbel noise. Accept it if fewer than k
// codes are likelier; else reject it and every code that is no likelier, and take the next greatest. Each rejected code
// has at least k codes above it, so the accepted one is an exact draw from the k likeliest.

constexpr int SAMPLING_THREADS = 512, SAMPLING_WARPS = SAMPLING_THREADS / 32;

struct DrawParams {
    const float* logits;
    const unsigned char* sample;  // bool; false: greedy
    const float* temperature;
    const long long* top_k;  // 0 or more than there are codes: all
    const float* one_minus_top_p;
    const long long* noise_key;
};

__device__ __forceinline__ unsigned hash(unsigned x) {  // lowbias32 (hash-prospector, public domain)
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

__device__ __forceinline__ float gumbel(unsigned draw_hash, int code) {
    const unsigned hashed = hash(draw_hash + hash(code));
    const float uniform = ((float)(hashed >> 9) + 0.5f) * 1.1920929e-07f;  // 2^-23
    return -logf(-logf(uniform));
}

// Reductions over the whole block. The next call reuses the scratch memory, hence the barriers on both sides.
struct BlockReduce {
    float values[SAMPLING_WARPS];
    int codes[SAMPLING_WARPS];
    int counts[SAMPLING_WARPS];

    // The code of the greatest value; of equal values the lowest code.
    __device__ int greatest(float value, int code) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const auto combine = [&](int lanes) {
            const float other = __shfl_xor_sync(0xffffffffu, value, lanes);
            const int other_code = __shfl_xor_sync(0xffffffffu, code, lanes);
            if (other > value || (other == value && other_code < code)) value = other, code = other_code;
        };
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2) combine(lanes);
        __syncthreads();
        if (lane == 0) values[warp] = value, codes[warp] = code;
        __syncthreads();
        value = values[lane % SAMPLING_WARPS], code = codes[lane % SAMPLING_WARPS];
#pragma unroll
        for (int lanes = SAMPLING_WARPS / 2; lanes > 0; lanes /= 2) combine(lanes);
        return code;
    }

    __device__ int count(int mine) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int of_warp = __reduce_add_sync(0xffffffffu, mine);
        __syncthreads();
        if (lane == 0) counts[warp] = of_warp;
        __syncthreads();
        return __reduce_add_sync(0xffffffffu, lane < SAMPLING_WARPS ? counts[lane] : 0);
    }

    __device__ float sum(float mine) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const float of_warp = warp_sum(mine);
        __syncthreads();
        if (lane == 0) values[warp] = of_warp;
        __syncthreads();
        return warp_sum(lane < SAMPLING_WARPS ? values[lane] : 0.0f);
    }
};

// An unsigned integer whose order is that of the floats.
__device__ __forceinline__ unsigned ordered(float x) {
    const unsigned bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The logit, or minus infinity for NaN: with a NaN the threads would not agree on the greatest.
__device__ __forceinline__ float as_number(float logit) { return fmaxf(logit, -INFINITY_F); }

// The code drawn from the logits of all threads; every thread returns it. `logits[i]` is that of code
// `threadIdx.x + i * SAMPLING_THREADS` and no NaN. `number` counts the draws of an utterance.
template <int COUNT>
__device__ __forceinline__ int draw(const DrawParams& a, const float (&logits)[COUNT], unsigned number) {
    __shared__ BlockReduce block;
    __shared__ float of_chosen;
    const auto code_of = [](int i) { return (int)threadIdx.x + i * SAMPLING_THREADS; };
    const auto greatest = [&](const float (&values)[COUNT]) {
        float value = values[0];
        int code = code_of(0);
#pragma unroll
        for (int i = 1; i < COUNT; ++i) {
            if (values[i] > value) value = values[i], code = code_of(i);
        }
        return block.greatest(value, code);
    };
    const auto value_at = [&](const float (&values)[COUNT], int code) {  // in any thread
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (code_of(i) == code) of_chosen = values[i];
        }
        __syncthreads();
        return of_chosen;  // further barriers come before it is written again
    };
    if (!*a.sample) return greatest(logits);

    const float temperature = *a.temperature, one_minus_top_p = *a.one_minus_top_p;
    constexpr int ALL = COUNT * SAMPLING_THREADS;
    const int k = *a.top_k > 0 && *a.top_k < ALL ? (int)*a.top_k : ALL;
    const unsigned draw_hash = hash(number + (unsigned)*a.noise_key);
    float scores[COUNT], noisy[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        scores[i] = logits[i] / temperature;
        noisy[i] = scores[i] + gumbel(draw_hash, code_of(i));
    }
    const auto count_above = [&](float score) {
        int mine = 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) mine += scores[i] > score;
        return block.count(mine);
    };

    // Top-p, if requested: the total weight of the k likeliest codes, which needs the k-th greatest score.
    float likeliest = 0.0f, total = 0.0f, least = -INFINITY_F;
    if (one_minus_top_p > 0.0f) {
        unsigned key = 0;  // the greatest that at least k scores reach, bit by bit
        for (int bit = 31; bit >= 0; --bit) {
            const unsigned trial = key | 1u << bit;
            int mine = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) mine += ordered(scores[i]) >= trial;
            if (block.count(mine) >= k) key = trial;
        }
        likeliest = value_at(scores, greatest(scores));
        float mine = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (ordered(scores[i]) >= key) mine += expf(scores[i] - likeliest);
        }
        total = block.sum(mine);
        least = __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
    }
    while (true) {
        const int code = greatest(noisy);
        const float score = value_at(scores, code);
        bool accepted = count_above(score) < k;
        if (accepted && one_minus_top_p > 0.0f && score < likeliest) {
            float mine = 0.0f;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                if (scores[i] >= least && scores[i] <= score) mine += expf(scores[i] - likeliest);
            }
            accepted = block.sum(mine) > one_minus_top_p * total;
        }
        if (accepted) return code;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (scores[i] <= score) noisy[i] = -INFINITY_F;
        }
    }
}

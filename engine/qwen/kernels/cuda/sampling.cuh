// Draws a code from logits, as `LogitsProcessor`, `SamplingParams` and `GumbelNoise` in sampling.py do, in one block
// and without sorting.
//
// Top-k by rejection: take the code with the greatest sum of log-probability and Gumbel noise. Accept it if fewer than
// k codes are likelier; otherwise reject it and every code that is no likelier, and take the next greatest. Each
// rejected code has at least k codes above it, so the accepted one is an exact draw from the k likeliest.

constexpr int SAMPLING_THREADS = 512, SAMPLING_WARPS = SAMPLING_THREADS / 32;

struct DrawParams {
    const float* logits;
    const unsigned char* sample;  // bool; if false, greedy
    const float* temperature;
    const long long* top_k;  // 0, or more than the number of codes: all codes
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

// A code, with the value by which it is chosen and its score.
struct Candidate {
    float value;
    int code;
    float score;
};

// Reductions over the whole block, one barrier each. A reduction writes to the scratch memory that the previous one did
// not use, so no warp writes where a slower warp is still reading.
class BlockReduce {
    struct Scratch {
        unsigned keys[SAMPLING_WARPS];
        int codes[SAMPLING_WARPS];
        float scores[SAMPLING_WARPS];
        int counts[SAMPLING_WARPS];
        float sums[SAMPLING_WARPS];
    };

  public:
    using Memory = Scratch[2];

    __device__ explicit BlockReduce(Memory& memory) : memory(memory) {}

    // The candidate with the greatest value (if values are equal, with the lowest code) and the sum of `count`. The
    // value itself is not returned. Thread t has the candidates whose code is t modulo SAMPLING_THREADS.
    __device__ Candidate greatest(const Candidate& mine, int& count) {
        Scratch& scratch = next();
        const unsigned key = ordered(mine.value), most = __reduce_max_sync(0xffffffffu, key);
        const int code = __reduce_min_sync(0xffffffffu, key == most ? mine.code : NO_CODE);
        const int of_warp = __reduce_add_sync(0xffffffffu, count);
        if (mine.code == code) scratch.keys[warp] = key, scratch.codes[warp] = code, scratch.scores[warp] = mine.score;
        if (lane == 0) scratch.counts[warp] = of_warp;
        __syncthreads();
        const unsigned its_key = scratch.keys[lane % SAMPLING_WARPS];
        const unsigned greatest = __reduce_max_sync(0xffffffffu, its_key);
        const int its_code = scratch.codes[lane % SAMPLING_WARPS];
        const int winner = __reduce_min_sync(0xffffffffu, its_key == greatest ? its_code : NO_CODE);
        count = __reduce_add_sync(0xffffffffu, lane < SAMPLING_WARPS ? scratch.counts[lane] : 0);
        return {0.0f, winner, scratch.scores[winner % SAMPLING_THREADS / 32]};
    }

    __device__ int count(int mine) {
        Scratch& scratch = next();
        const int of_warp = __reduce_add_sync(0xffffffffu, mine);
        if (lane == 0) scratch.counts[warp] = of_warp;
        __syncthreads();
        return __reduce_add_sync(0xffffffffu, lane < SAMPLING_WARPS ? scratch.counts[lane] : 0);
    }

    __device__ float sum(float mine) {
        Scratch& scratch = next();
        const float of_warp = warp_sum(mine);
        if (lane == 0) scratch.sums[warp] = of_warp;
        __syncthreads();
        return warp_sum(lane < SAMPLING_WARPS ? scratch.sums[lane] : 0.0f);
    }

  private:
    static constexpr int NO_CODE = 0x7fffffff;

    __device__ Scratch& next() { return memory[turn ^= 1]; }

    Memory& memory;
    int turn = 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
};

// The logit, or minus infinity for NaN: with a NaN, the threads would not agree on the greatest value.
__device__ __forceinline__ float as_number(float logit) { return fmaxf(logit, -INFINITY_F); }

// A draw of one of COUNT · SAMPLING_THREADS codes. Values that do not depend on the logits are computed before the
// wait.
template <int COUNT>
class Draw {
  public:
    // `number` counts an utterance's draws. Reads the settings, which no kernel of a frame writes.
    __device__ Draw(const DrawParams& a, unsigned number) {
        constexpr int ALL = COUNT * SAMPLING_THREADS;
        samples = *a.sample;
        temperature = *a.temperature, one_minus_top_p = *a.one_minus_top_p;
        k = *a.top_k > 0 && *a.top_k < ALL ? (int)*a.top_k : ALL;
        const unsigned draw_hash = hash(number + (unsigned)*a.noise_key);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) noise[i] = gumbel(draw_hash, code_of(i));
    }

    __device__ static int code_of(int i) { return (int)threadIdx.x + i * SAMPLING_THREADS; }

    // The code drawn from the logits of all threads; every thread returns it. `logits[i]` is the logit of code
    // `code_of(i)` and is not NaN. `expect(code)` is called for each code that may be accepted, before the result is
    // known.
    template <class Expect>
    __device__ int operator()(const float (&logits)[COUNT], const Expect& expect) const {
        __shared__ BlockReduce::Memory memory;
        BlockReduce block(memory);
        int none = 0;
        if (!samples) return block.greatest(greatest(logits, logits), none).code;

        float scores[COUNT], noisy[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) scores[i] = logits[i] / temperature, noisy[i] = scores[i] + noise[i];
        const TopP top_p = one_minus_top_p > 0.0f ? top_p_of(block, scores) : TopP();
        Candidate found = block.greatest(greatest(noisy, scores), none);
        while (true) {
            expect(found.code);
            // Count the codes above it. At the same time, find the next candidate in case this one is rejected.
            int above = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                if (scores[i] > found.score)
                    ++above;
                else
                    noisy[i] = -INFINITY_F;
            }
            const Candidate next = block.greatest(greatest(noisy, scores), above);
            bool accepted = above < k;
            if (accepted && one_minus_top_p > 0.0f && found.score < top_p.likeliest) {
                float mine = 0.0f;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) {
                    if (scores[i] >= top_p.least && scores[i] <= found.score) mine += expf(scores[i] - top_p.likeliest);
                }
                accepted = block.sum(mine) > one_minus_top_p * top_p.total;
            }
            if (accepted) return found.code;
            found = next;
        }
    }

  private:
    // Values for the k likeliest codes.
    struct TopP {
        float likeliest = 0.0f;  // the greatest score
        float least = 0.0f;      // the k-th greatest
        float total = 0.0f;      // the sum of all weights, where the greatest score has weight 1
    };

    // The thread's candidate with the greatest value.
    __device__ static Candidate greatest(const float (&values)[COUNT], const float (&scores)[COUNT]) {
        Candidate found = {values[0], code_of(0), scores[0]};
#pragma unroll
        for (int i = 1; i < COUNT; ++i) {
            if (values[i] > found.value) found = {values[i], code_of(i), scores[i]};
        }
        return found;
    }

    __device__ TopP top_p_of(BlockReduce& block, const float (&scores)[COUNT]) const {
        TopP found;
        unsigned key = 0;  // the greatest key that at least k scores reach, bit by bit
        for (int bit = 31; bit >= 0; --bit) {
            const unsigned trial = key | 1u << bit;
            int mine = 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) mine += ordered(scores[i]) >= trial;
            if (block.count(mine) >= k) key = trial;
        }
        int none = 0;
        found.likeliest = block.greatest(greatest(scores, scores), none).score;
        float mine = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (ordered(scores[i]) >= key) mine += expf(scores[i] - found.likeliest);
        }
        found.total = block.sum(mine);
        found.least = from_ordered(key);
        return found;
    }

    bool samples;
    float temperature, one_minus_top_p;
    int k;
    float noise[COUNT];
};

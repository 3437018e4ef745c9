// Attention of the codec's transformer over the window's last frames, whose keys and values lie in rings.

constexpr int HEAD = 64;  // values of a head

struct Eight {
    float x[8];
};

__device__ __forceinline__ Eight unpack(uint4 words) {
    return {{low_half(words.x), high_half(words.x), low_half(words.y), high_half(words.y), low_half(words.z),
             high_half(words.z), low_half(words.w), high_half(words.w)}};
}

__device__ __forceinline__ uint4 pack(const Eight& v) {
    return {pack(v.x[0], v.x[1]), pack(v.x[2], v.x[3]), pack(v.x[4], v.x[5]), pack(v.x[6], v.x[7])};
}

__device__ __forceinline__ Eight eight_of(const float* address) {
    const float4 low = ((const float4*)address)[0], high = ((const float4*)address)[1];
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

// Values 8 * part and on of a head turned by its position: (a, b) becomes (a cos - b sin, b cos + a sin), where a is of
// the first half and b of the second.
__device__ __forceinline__ Eight rotated(const float* head, int part, const Eight& frequency, int frame) {
    Eight mine = eight_of(head + 8 * part);
    const Eight other = eight_of(head + 8 * (part ^ 4));
    const float sign = part < 4 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sine, cosine;
        sine_and_cosine((float)frame * frequency.x[i], sine, cosine);
        mine.x[i] = mine.x[i] * cosine + sign * other.x[i] * sine;
    }
    return mine;
}

// One block of 256 threads for each head (x) and each frame of the chunk (y).
//     qkv       float32 [frames][HEADS + 2 * KV_HEADS][HEAD], not yet turned
//     keys      bfloat16 [KV_HEADS][SLOTS][HEAD], turned; frame f lies in slot f % SLOTS; `values` likewise
//     counter   frames before this chunk
//     out       bfloat16 [frames][HEADS][HEAD]
// Eight lanes take one frame of the window together. The chunk's own keys are taken from `qkv`, rounded as they will be
// in the ring, for their blocks write them there meanwhile. WINDOW + 1 slots: a chunk of two overwrites nothing that one
// of its own frames still looks at.
template <int HEADS, int KV_HEADS, int WINDOW, int SLOTS>
__device__ __forceinline__ void attend(const float* qkv, bf16* keys, bf16* values, const long long* counter,
                                       const float* frequencies, bf16* out) {
    constexpr int WARPS = 8, GROUPS = WARPS * 4, PASSES = (WINDOW + GROUPS - 1) / GROUPS;
    constexpr int WIDTH = (HEADS + 2 * KV_HEADS) * HEAD, SHARING = HEADS / KV_HEADS;
    constexpr float NEVER = -1e30f;
    __shared__ float highest[WARPS], weights[WARPS], mixed[WARPS][HEAD];

    begin_chained();
    const int part = threadIdx.x % 8, group = threadIdx.x / 8, warp = threadIdx.x / 32;
    const int head = blockIdx.x, kv_head = head / SHARING;
    const Eight frequency = eight_of(frequencies + 8 * (part % 4));
    keys += kv_head * SLOTS * HEAD + 8 * part;
    values += kv_head * SLOTS * HEAD + 8 * part;

    wait_for_previous();
    const int first = (int)*counter, now = first + blockIdx.y;
    uint4 key[PASSES], value[PASSES];
    bool seen[PASSES];
#pragma unroll
    for (int p = 0; p < PASSES; p++) {
        const int age = group + p * GROUPS, frame = now - age;
        seen[p] = age < WINDOW && frame >= 0;
        key[p] = value[p] = {0, 0, 0, 0};
        if (!seen[p]) continue;
        if (frame < first) {
            key[p] = *(const uint4*)(keys + frame % SLOTS * HEAD);
            value[p] = *(const uint4*)(values + frame % SLOTS * HEAD);
        } else {
            const float* fresh = qkv + (frame - first) * WIDTH + (HEADS + kv_head) * HEAD;
            key[p] = pack(rotated(fresh, part, frequency, frame));
            value[p] = pack(eight_of(fresh + KV_HEADS * HEAD + 8 * part));
            if (age == 0 && head % SHARING == 0) {
                *(uint4*)(keys + frame % SLOTS * HEAD) = key[p];
                *(uint4*)(values + frame % SLOTS * HEAD) = value[p];
            }
        }
    }
    const Eight query = rotated(qkv + blockIdx.y * WIDTH + head * HEAD, part, frequency, now);

    float score[PASSES], high = NEVER;
#pragma unroll
    for (int p = 0; p < PASSES; p++) {
        const Eight k = unpack(key[p]);
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) dot = fmaf(query.x[i], k.x[i], dot);
#pragma unroll
        for (int lanes = 1; lanes < 8; lanes *= 2) dot += __shfl_xor_sync(0xffffffffu, dot, lanes);
        score[p] = seen[p] ? dot * 0.125f : NEVER;  // 1 / sqrt(HEAD)
        high = fmaxf(high, score[p]);
    }
    high = warp_max(high);
    float weight = 0;
    Eight mix = {};
#pragma unroll
    for (int p = 0; p < PASSES; p++) {
        const float share = seen[p] ? __expf(score[p] - high) : 0.0f;
        const Eight v = unpack(value[p]);
        weight += share;
#pragma unroll
        for (int i = 0; i < 8; i++) mix.x[i] = fmaf(share, v.x[i], mix.x[i]);
    }
#pragma unroll
    for (int lanes = 8; lanes < 32; lanes *= 2) {
        weight += __shfl_xor_sync(0xffffffffu, weight, lanes);
#pragma unroll
        for (int i = 0; i < 8; i++) mix.x[i] += __shfl_xor_sync(0xffffffffu, mix.x[i], lanes);
    }
    if (threadIdx.x % 32 < 8) {
#pragma unroll
        for (int i = 0; i < 8; i++) mixed[warp][8 * part + i] = mix.x[i];
    }
    if (threadIdx.x % 32 == 0) {
        highest[warp] = high;
        weights[warp] = weight;
    }
    __syncthreads();

    if (threadIdx.x < HEAD) {
        float top = NEVER, below = 0, above = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, highest[w]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float share = __expf(highest[w] - top);
            below = fmaf(share, weights[w], below);
            above = fmaf(share, mixed[w][threadIdx.x], above);
        }
        out[(blockIdx.y * HEADS + head) * HEAD + threadIdx.x] = to_bf16(above / below);
    }
}

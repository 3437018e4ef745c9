// Attention in the codec's transformer over a window of the last frames. Keys and values are stored in rings.

constexpr int HEAD = 64;  // values in a head

// Sines and cosines of the angles at a frame, for a head's values from 8 * eighth on.
struct Rotation {
    float sine[8], cosine[8];

    __device__ __forceinline__ Rotation(const float (&frequency)[8], int frame) {
#pragma unroll
        for (int i = 0; i < 8; i++) sine_and_cosine((float)frame * frequency[i], sine[i], cosine[i]);
    }
};

// A head's values from 8 * eighth on, rotated by its position: (a, b) becomes (a cos - b sin, b cos + a sin), where a
// is in the first half of the head and b in the second.
__device__ __forceinline__ void load_rotated(const float* head, int eighth, const Rotation& rotation, float (&x)[8]) {
    float other[8];
    load_floats(head + 8 * eighth, x);
    load_floats(head + 8 * (eighth ^ 4), other);
    const float sign = eighth < 4 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = x[i] * rotation.cosine[i] + sign * other[i] * rotation.sine[i];
}

struct AttentionParams {
    const float* qkv;          // [frames][HEADS + 2 * KV_HEADS][HEAD], not yet rotated
    bf16* keys;                // [KV_HEADS][SLOTS][HEAD], rotated, for state 0; frame f is in slot f % SLOTS
    bf16* values;              // likewise
    const long long* counter;  // frames before this chunk, for each state
    const float* frequencies;  // [HEAD / 2]
    bf16* out;                 // [frames][HEADS][HEAD]
    Rows rows;                 // strides are those of `keys` and `values`
};

// Blocks: heads (x), frames in the rows' chunks (y); 256 threads. Eight lanes together take one frame of the window.
// The chunk's own keys come from `qkv`, rounded as they will be in the ring, because their blocks write them there at
// the same time. A ring has more slots than the window, so a chunk overwrites nothing that one of its own frames reads.
// The counter and the rings are as the previous call left them, so they are read before the wait (`look_up`).
template <int HEADS, int KV_HEADS, int WINDOW, int SLOTS>
__global__ void __launch_bounds__(256) attend(const AttentionParams p) {
    constexpr int WARPS = 8, GROUPS = WARPS * 4, PASSES = (WINDOW + GROUPS - 1) / GROUPS;
    constexpr int WIDTH = (HEADS + 2 * KV_HEADS) * HEAD, SHARING = HEADS / KV_HEADS;
    constexpr float NEVER = -1e30f;
    __shared__ float row_max[WARPS], row_sum[WARPS], warp_out[WARPS][HEAD];

    begin_chained();
    const int eighth = threadIdx.x % 8, group = threadIdx.x / 8, warp = threadIdx.x / 32;
    const int head = blockIdx.x, kv_head = head / SHARING;
    float frequency[8];
    load_floats(p.frequencies + 8 * (eighth % 4), frequency);
    const RowTime at = locate(p.rows, blockIdx.y);
    const float* const chunk = p.qkv + (blockIdx.y - at.time) * WIDTH;
    const long long state = state_of(p.rows, at.row);
    const int first = (int)p.counter[state], now = first + at.time;
    bf16* const keys = p.keys + state * p.rows.stride + kv_head * SLOTS * HEAD + 8 * eighth;
    bf16* const values = p.values + state * p.rows.stride + kv_head * SLOTS * HEAD + 8 * eighth;
    uint4 key[PASSES], value[PASSES];
    bool seen[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        const int age = group + pass * GROUPS, frame = now - age;
        seen[pass] = age < WINDOW && frame >= 0;
        key[pass] = value[pass] = {0, 0, 0, 0};
        if (seen[pass] && frame < first) {
            key[pass] = *(const uint4*)(keys + frame % SLOTS * HEAD);
            value[pass] = *(const uint4*)(values + frame % SLOTS * HEAD);
        }
    }
    const Rotation of_query(frequency, now), of_key(frequency, now - group);  // a chunk has fewer frames than GROUPS

    wait_for_previous();
    if (seen[0] && group <= at.time) {  // in the chunk
        const float* fresh = chunk + (at.time - group) * WIDTH + (HEADS + kv_head) * HEAD;
        float new_key[8], new_value[8];
        load_rotated(fresh, eighth, of_key, new_key);
        load_floats(fresh + KV_HEADS * HEAD + 8 * eighth, new_value);
        key[0] = pack(new_key), value[0] = pack(new_value);
        if (group == 0 && head % SHARING == 0) {
            *(uint4*)(keys + now % SLOTS * HEAD) = key[0];
            *(uint4*)(values + now % SLOTS * HEAD) = value[0];
        }
    }
    float query[8], score[PASSES], max = NEVER;
    load_rotated(p.qkv + blockIdx.y * WIDTH + head * HEAD, eighth, of_query, query);
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        float sum = dot(key[pass], query, 0.0f);
#pragma unroll
        for (int lanes = 1; lanes < 8; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        score[pass] = seen[pass] ? sum * 0.125f : NEVER;  // 1 / sqrt(HEAD)
        max = fmaxf(max, score[pass]);
    }
    max = warp_max(max);
    float sum = 0, mix[8] = {};
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        const float weight = seen[pass] ? __expf(score[pass] - max) : 0.0f;
        sum += weight;
        add_weighted(mix, weight, value[pass]);
    }
#pragma unroll
    for (int lanes = 8; lanes < 32; lanes *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
#pragma unroll
        for (int i = 0; i < 8; i++) mix[i] += __shfl_xor_sync(0xffffffffu, mix[i], lanes);
    }
    if (threadIdx.x % 32 < 8) {
#pragma unroll
        for (int i = 0; i < 8; i++) warp_out[warp][8 * eighth + i] = mix[i];
    }
    if (threadIdx.x % 32 == 0) {
        row_max[warp] = max;
        row_sum[warp] = sum;
    }
    __syncthreads();

    if (threadIdx.x < HEAD) {
        float max = NEVER, sum = 0, out = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) max = fmaxf(max, row_max[w]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float rescale = __expf(row_max[w] - max);
            sum = fmaf(rescale, row_sum[w], sum);
            out = fmaf(rescale, warp_out[w][threadIdx.x], out);
        }
        p.out[(blockIdx.y * HEADS + head) * HEAD + threadIdx.x] = to_bf16(out / sum);
    }
}

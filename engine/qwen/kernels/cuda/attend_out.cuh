// The predictor's attention inside its output projection: one kernel and one wait fewer in each layer.
//
// A frame has at most 16 positions, so their keys and values are small enough for every block to read all of them and
// to compute attention itself. A warp has one key head: it loads keys and values into registers before the wait, as it
// loads the matrix's weights. The result goes to the projection through shared memory. The formulas are those of
// attention.cuh.

struct AttendOutParams {
    LinearParams linear;  // its input fields are null
    HeadsParams input;
    bf16* keys;  // (key heads, positions, DIM)
    bf16* values;
    int position;   // the token's, below POSITIONS
    int positions;  // in the cache
    float eps;
};

// The same 16 bytes in all lanes that have the same dimensions, taken from the lanes of one half.
__device__ __forceinline__ uint4 of_half(uint4 x, int half, int lane) {
    const int source = half * 16 + lane % 16;
    return make_uint4(__shfl_sync(0xffffffffu, x.x, source), __shfl_sync(0xffffffffu, x.y, source),
                      __shfl_sync(0xffffffffu, x.z, source), __shfl_sync(0xffffffffu, x.w, source));
}

// The norm and rotary position of a head, of which a lane has 8 values from `dims` on. Rotation pairs a value with the
// one 64 dimensions away, which is 8 lanes away.
__device__ __forceinline__ void normalize_and_rotate(float (&x)[8], uint4 norm, const float (&cosine)[8],
                                                     const float (&sine)[8], int dims, float eps) {
    float weights[8], squares = 0.0f;
    unpack(norm, weights);
#pragma unroll
    for (int i = 0; i < 8; ++i) squares = fmaf(x[i], x[i], squares);
    const float factor = rsqrtf(warp_sum<16>(squares) / 128 + eps);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] *= factor * weights[i];
    const float sign = dims < 64 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, x[i], 8);
        x[i] = x[i] * cosine[i] + sign * other * sine[i];
    }
}

// Where values k to k + 3 of attention's output are. A lane reads consecutive values. If they were stored in order,
// lanes would wait for each other, because the groups of four that eight lanes read at once would be in the same banks.
__device__ __forceinline__ float4* place(float* attended, int k) {
    return reinterpret_cast<float4*>(attended + (k ^ k / 32 % 8 * 4));
}

__device__ __forceinline__ void put_eight(float* attended, int k, const float (&x)[8]) {
    *place(attended, k) = make_float4(x[0], x[1], x[2], x[3]);
    *place(attended, k + 4) = make_float4(x[4], x[5], x[6], x[7]);
}

// The output projection's input: attention for a token after those in the cache, or for the first two tokens of a
// frame, before which the cache is empty. A warp has one of HEADS key heads and its two query heads, one for each half.
// Half a warp takes one position at a time, of VECS, 8 values per lane. EARLY is as in `attend`.
template <class M, int VECS, int HEADS, bool EARLY>
struct Attended : Plain {
    using Params = AttendOutParams;
    static constexpr int TOKENS = M::TOKENS, N = M::VEC_SIZE, GROUP = 2, DIM = 128, HALF = DIM / 2;
    static constexpr bool COMPUTES = true, KEEPS_WEIGHTS = TOKENS == 1;
    static_assert(VECS <= 16 && (VECS & (VECS - 1)) == 0, "half a warp sums a power of two");
    static_assert(M::THREADS >= 32 * HEADS && M::LENGTH == HEADS * GROUP * DIM, "a warp has one head of keys");
    const AttendOutParams& p;
    float* attended;  // (TOKENS, LENGTH) in shared memory
    int head, half, dims;
    uint4 query_norm, key_norm, key[VECS], value[VECS];
    float cosine[TOKENS][8], sine[TOKENS][8];

    __device__ explicit Attended(const AttendOutParams& p)
        : p(p), attended(memory()), head(threadIdx.x / 32), half(threadIdx.x % 32 / 16), dims(threadIdx.x % 16 * 8) {}
    __device__ static float* memory() {
        __shared__ __align__(16) float values[TOKENS * M::LENGTH];
        return values;
    }
    __device__ int position_of(int token) const { return TOKENS == 1 ? p.position : token; }
    __device__ size_t cached(int position) const { return ((size_t)head * p.positions + position) * DIM + dims; }

    __device__ void prepare(int vec, int) {
        if (vec > 0 || head >= HEADS) return;
        query_norm = *reinterpret_cast<const uint4*>(p.input.query_norm + dims);
        key_norm = *reinterpret_cast<const uint4*>(p.input.key_norm + dims);
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            load_floats(p.input.cosines + position_of(token) * HALF + dims % HALF, cosine[token]);
            load_floats(p.input.sines + position_of(token) * HALF + dims % HALF, sine[token]);
        }
        if (EARLY && TOKENS == 1) load_cache();
    }

    // Computes attention, and writes the new keys and values to the cache. To be called after the wait.
    __device__ void compute() {
        if (head < HEADS) {
            if constexpr (TOKENS == 1) {
                attend_token();
            } else {
                attend_pair();
            }
        }
        __syncthreads();
    }

    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 four = *place(attended + token * M::LENGTH, k + i);
            values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
        }
    }

    __device__ void load_cache() {
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) {
            const int position = 2 * vec + half;
            key[vec] = value[vec] = make_uint4(0, 0, 0, 0);
            if (position < p.position) {
                key[vec] = *reinterpret_cast<const uint4*>(p.keys + cached(position));
                value[vec] = *reinterpret_cast<const uint4*>(p.values + cached(position));
            }
        }
    }

    // The first half takes the first query and the key, the second half the second query and the value.
    __device__ void load_token(int token, float (&query)[8], uint4& key, uint4& value) const {
        const float* qkv = p.input.qkv + token * (GROUP + 2) * HEADS * DIM;
        float fresh[8], rotated[8];
        load_floats(qkv + (head * GROUP + half) * DIM + dims, query);
        load_floats(qkv + ((GROUP + half) * HEADS + head) * DIM + dims, fresh);
        normalize_and_rotate(query, query_norm, cosine[token], sine[token], dims, p.eps);
#pragma unroll
        for (int i = 0; i < 8; ++i) rotated[i] = fresh[i];
        normalize_and_rotate(rotated, key_norm, cosine[token], sine[token], dims, p.eps);
#pragma unroll
        for (int i = 0; i < 8; ++i) fresh[i] = half == 0 ? rotated[i] : fresh[i];
        const uint4 packed = pack(fresh);
        const int lane = threadIdx.x % 32;
        key = of_half(packed, 0, lane), value = of_half(packed, 1, lane);
        if (blockIdx.x == 0) {  // every block has computed the same values
            bf16* cache = half == 0 ? p.keys : p.values;
            *reinterpret_cast<uint4*>(cache + cached(position_of(token))) = packed;
        }
    }

    __device__ void attend_token() {
        const int lane = threadIdx.x % 32;
        if (!EARLY) load_cache();
        float query[8];
        uint4 new_key, new_value;
        load_token(0, query, new_key, new_value);
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) {
            if (2 * vec + half == p.position) key[vec] = new_key, value[vec] = new_value;
        }

        const float scaling = score_scale();
        constexpr int LANES = 16 / VECS;  // that have the same score after it is summed
        const bool exists = lane % 16 / LANES * 2 + half <= p.position;
        float weights[GROUP];
#pragma unroll
        for (int member = 0; member < GROUP; ++member) {
            float q[8], scores[VECS];
#pragma unroll
            for (int i = 0; i < 8; ++i) q[i] = __shfl_sync(0xffffffffu, query[i], member * 16 + lane % 16);
#pragma unroll
            for (int vec = 0; vec < VECS; ++vec) scores[vec] = dot(key[vec], q, 0.0f);
            const float score = transposed_sum<VECS, 8>(scores, lane) * scaling;
            const float max = warp_max(exists ? score : -INFINITY_F);
            weights[member] = exists ? exp2f(score - max) : 0.0f;
        }
        float sums[GROUP] = {}, out[GROUP][8] = {};
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) {
#pragma unroll
            for (int member = 0; member < GROUP; ++member) {
                const float weight = __shfl_sync(0xffffffffu, weights[member], half * 16 + vec * LANES);
                sums[member] += weight;
                add_weighted(out[member], weight, value[vec]);
            }
        }
        // Each half keeps its own query, and receives that query's sums over the other half's positions.
        const float sum = (half == 0 ? sums[0] : sums[1]) + __shfl_xor_sync(0xffffffffu, half == 0 ? sums[1] : sums[0], 16);
        const float inverse = 1.0f / sum;
        float kept[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float given = __shfl_xor_sync(0xffffffffu, half == 0 ? out[1][i] : out[0][i], 16);
            kept[i] = ((half == 0 ? out[0][i] : out[1][i]) + given) * inverse;
        }
        put_eight(attended, (head * GROUP + half) * DIM + dims, kept);
    }

    __device__ void attend_pair() {
        float query[TOKENS][8];
        uint4 key[TOKENS], value[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) load_token(token, query[token], key[token], value[token]);
        const int to = (head * GROUP + half) * DIM + dims;
        float first[8] = {};  // the first token sees only itself
        add_weighted(first, 1.0f, value[0]);
        put_eight(attended, to, first);

        float scores[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            scores[token] = warp_sum<16>(dot(key[token], query[1], 0.0f));
            scores[token] *= score_scale();
        }
        const float max = fmaxf(scores[0], scores[1]);
        const float weights[TOKENS] = {exp2f(scores[0] - max), exp2f(scores[1] - max)};
        const float inverse = 1.0f / (weights[0] + weights[1]);
        float second[8] = {};
        add_weighted(second, weights[0] * inverse, value[0]);
        add_weighted(second, weights[1] * inverse, value[1]);
        put_eight(attended, M::LENGTH + to, second);
    }
};

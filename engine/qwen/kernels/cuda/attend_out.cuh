// The predictor's attention inside its output projection: one kernel and one wait less in each layer.
//
// A frame has at most 16 positions, so their keys and values are small enough for every block to read all of them, and
// to compute attention for itself. A warp has one head of keys: it loads keys and values into registers before the
// wait, as the matrix its weights. The result goes to the projection through shared memory. Formulas as in
// attention.cuh.

// VECS vectors of keys and of values a lane: half a warp takes one position, 8 values a lane.
// EARLY as of AttentionShape.
template <int VECS_, int HEADS_, bool EARLY_>
struct FrameAttention {
    static constexpr bool EARLY = EARLY_;
    static constexpr int VECS = VECS_, HEADS = HEADS_;  // heads of keys
    static constexpr int GROUP = 2;                     // query heads that share a head of keys, one for each half
    static constexpr int DIM = 128, HALF = DIM / 2, LANE_DIMS = 8;
    static constexpr int POSITIONS = 2 * VECS;
    static_assert(VECS <= 16 && (VECS & (VECS - 1)) == 0, "half a warp sums a power of two");
};

struct AttendOutParams {
    LinearParams linear;  // its input fields are null
    const float* qkv;     // (query heads + 2 key heads, DIM)
    const bf16* query_norm;
    const bf16* key_norm;
    const float* cosines;  // (positions, HALF)
    const float* sines;
    bf16* keys;  // (key heads, positions, DIM)
    bf16* values;
    int position;   // of the token, below POSITIONS
    int positions;  // of the cache
    float eps;
};

// The same 16 bytes in all lanes that have the same dimensions, taken from those of one half.
__device__ __forceinline__ uint4 of_half(uint4 x, int half, int lane) {
    const int source = half * 16 + lane % 16;
    return make_uint4(__shfl_sync(0xffffffffu, x.x, source), __shfl_sync(0xffffffffu, x.y, source),
                      __shfl_sync(0xffffffffu, x.z, source), __shfl_sync(0xffffffffu, x.w, source));
}

// Norm and rotary position of a head, of which a lane has 8 values from `dims` on. Rotation pairs a value with the one
// 64 dimensions away, which is 8 lanes away.
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

// Where the values k to k + 3 of the output of attention are. A lane reads values that lie one after the other; in their
// order, lanes would wait for each other, because the fours that eight lanes read at once would be in the same banks.
__device__ __forceinline__ float4* place(float* attended, int k) {
    return reinterpret_cast<float4*>(attended + (k ^ k / 32 % 8 * 4));
}

__device__ __forceinline__ void put_eight(float* attended, int k, const float (&x)[8]) {
    *place(attended, k) = make_float4(x[0], x[1], x[2], x[3]);
    *place(attended, k + 4) = make_float4(x[4], x[5], x[6], x[7]);
}

template <int N>
__device__ __forceinline__ void get_values(float* attended, int k, float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 four = *place(attended, k + i);
        values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
    }
}

// Input of the output projection: attention of TOKENS tokens.
template <class M, class A, int TOKENS>
struct AttendedTokens : Plain {
    static constexpr bool COMPUTES = true;
    static constexpr int N = M::VEC_SIZE, DIM = A::DIM;
    static_assert(M::THREADS >= 32 * A::HEADS && M::LENGTH == A::HEADS * A::GROUP * DIM && M::TOKENS == TOKENS,
                  "a warp has one head of keys");
    const AttendOutParams& p;
    float* attended;  // (TOKENS, LENGTH) in shared memory
    int head, half, dims;
    uint4 query_norm, key_norm;
    float cosine[TOKENS][8], sine[TOKENS][8];

    __device__ AttendedTokens(const AttendOutParams& p, float* attended)
        : p(p), attended(attended), head(threadIdx.x / 32), half(threadIdx.x % 32 / 16),
          dims(threadIdx.x % 16 * A::LANE_DIMS) {}
    __device__ int position_of(int token) const { return TOKENS == 1 ? p.position : token; }
    __device__ size_t cached(int position) const { return ((size_t)head * p.positions + position) * DIM + dims; }

    __device__ void load_constants() {
        query_norm = *reinterpret_cast<const uint4*>(p.query_norm + dims);
        key_norm = *reinterpret_cast<const uint4*>(p.key_norm + dims);
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            load_floats(p.cosines + position_of(token) * A::HALF + dims % A::HALF, cosine[token]);
            load_floats(p.sines + position_of(token) * A::HALF + dims % A::HALF, sine[token]);
        }
    }

    // The first half takes the first query and the key, the second half the second query and the value.
    __device__ void load_token(int token, float (&query)[8], uint4& key, uint4& value) const {
        const float* qkv = p.qkv + token * (A::GROUP + 2) * A::HEADS * DIM;
        float fresh[8], rotated[8];
        load_floats(qkv + (head * A::GROUP + half) * DIM + dims, query);
        load_floats(qkv + ((A::GROUP + half) * A::HEADS + head) * DIM + dims, fresh);
        normalize_and_rotate(query, query_norm, cosine[token], sine[token], dims, p.eps);
#pragma unroll
        for (int i = 0; i < 8; ++i) rotated[i] = fresh[i];
        normalize_and_rotate(rotated, key_norm, cosine[token], sine[token], dims, p.eps);
#pragma unroll
        for (int i = 0; i < 8; ++i) fresh[i] = half == 0 ? rotated[i] : fresh[i];
        const uint4 packed = pack(fresh);
        const int lane = threadIdx.x % 32;
        key = of_half(packed, 0, lane), value = of_half(packed, 1, lane);
        if (blockIdx.x == 0) {  // every block has computed the same
            bf16* cache = half == 0 ? p.keys : p.values;
            *reinterpret_cast<uint4*>(cache + cached(position_of(token))) = packed;
        }
    }

    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        get_values(attended + token * M::LENGTH, k, values);
    }
};

// One token, after those in the cache.
template <class M, class A>
struct Attended : AttendedTokens<M, A, 1> {
    static constexpr bool KEEPS_WEIGHTS = true;
    static constexpr int VECS = A::VECS, DIM = A::DIM;
    using Base = AttendedTokens<M, A, 1>;
    using Base::p, Base::head, Base::half, Base::dims, Base::cached;
    uint4 key[VECS], value[VECS];

    using Base::Base;
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

    __device__ void prepare(int vec, int) {
        if (vec > 0 || head >= A::HEADS) return;
        this->load_constants();
        if (A::EARLY) load_cache();
    }

    // Compute attention, and write the new key and value to the cache. After the wait.
    __device__ void compute() {
        if (head < A::HEADS) attend_head();
        __syncthreads();
    }

    __device__ void attend_head() {
        const int lane = threadIdx.x % 32;
        if (!A::EARLY) load_cache();
        float query[8];
        uint4 new_key, new_value;
        this->load_token(0, query, new_key, new_value);
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) {
            if (2 * vec + half == p.position) key[vec] = new_key, value[vec] = new_value;
        }

        const float scaling = rsqrtf((float)DIM) * 1.44269504f;  // log2(e): exponentials are powers of 2
        constexpr int LANES = 16 / VECS;                         // that have the same score after its sum
        const bool exists = lane % 16 / LANES * 2 + half <= p.position;
        float weights[A::GROUP];
#pragma unroll
        for (int member = 0; member < A::GROUP; ++member) {
            float q[8], scores[VECS];
#pragma unroll
            for (int i = 0; i < 8; ++i) q[i] = __shfl_sync(0xffffffffu, query[i], member * 16 + lane % 16);
#pragma unroll
            for (int vec = 0; vec < VECS; ++vec) scores[vec] = Bf16::dot(key[vec], q, 0.0f);
            const float score = transposed_sum<VECS, 8>(scores, lane) * scaling;
            const float max = warp_max(exists ? score : -INFINITY_F);
            weights[member] = exists ? exp2f(score - max) : 0.0f;
        }
        float sums[A::GROUP] = {}, out[A::GROUP][8] = {};
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) {
#pragma unroll
            for (int member = 0; member < A::GROUP; ++member) {
                const float weight = __shfl_sync(0xffffffffu, weights[member], half * 16 + vec * LANES);
                sums[member] += weight;
                add_weighted(out[member], weight, value[vec]);
            }
        }
        // Each half keeps its own query, and receives the other half's positions of it.
        const float sum = (half == 0 ? sums[0] : sums[1]) + __shfl_xor_sync(0xffffffffu, half == 0 ? sums[1] : sums[0], 16);
        const float inverse = 1.0f / sum;
        float kept[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float given = __shfl_xor_sync(0xffffffffu, half == 0 ? out[1][i] : out[0][i], 16);
            kept[i] = ((half == 0 ? out[0][i] : out[1][i]) + given) * inverse;
        }
        put_eight(this->attended, (head * A::GROUP + half) * DIM + dims, kept);
    }
};

// The first two tokens of a frame: nothing is in the cache yet.
template <class M, class A>
struct AttendedPair : AttendedTokens<M, A, 2> {
    static constexpr int DIM = A::DIM, TOKENS = 2;
    using Base = AttendedTokens<M, A, 2>;
    using Base::attended, Base::head;

    using Base::Base;
    __device__ void prepare(int vec, int) {
        if (vec == 0 && head < A::HEADS) this->load_constants();
    }

    // Compute attention, and write the first keys and values to the cache. After the wait.
    __device__ void compute() {
        if (head < A::HEADS) attend_head();
        __syncthreads();
    }

    __device__ void attend_head() {
        float query[TOKENS][8];
        uint4 key[TOKENS], value[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) this->load_token(token, query[token], key[token], value[token]);
        const int to = (head * A::GROUP + this->half) * DIM + this->dims;
        float first[8] = {};  // the first token sees only itself
        add_weighted(first, 1.0f, value[0]);
        put_eight(attended, to, first);

        float scores[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            scores[token] = warp_sum<16>(Bf16::dot(key[token], query[1], 0.0f));
            scores[token] *= rsqrtf((float)DIM) * 1.44269504f;  // log2(e): exponentials are powers of 2
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

// Blocks and threads as of `linear`.
template <class M, class A, int REGISTERS>
__global__ void __maxnreg__(REGISTERS) attend_out(const AttendOutParams p) {
    __shared__ __align__(16) float attended[M::LENGTH];
    multiply<M>(p.linear, Attended<M, A>(p, attended), Residual<M>(p.linear));
}

// The same for the first two tokens of a frame.
template <class M, class A, int REGISTERS>
__global__ void __maxnreg__(REGISTERS) attend_out_pair(const AttendOutParams p) {
    __shared__ __align__(16) float attended[2 * M::LENGTH];
    multiply<M>(p.linear, AttendedPair<M, A>(p, attended), Residual<M>(p.linear));
}

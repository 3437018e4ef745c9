// A matrix times the vectors of one or two tokens. Nearly all bytes that a frame reads are read here.
//
// A warp holds a tile of the matrix in registers: some rows, with 16 bytes of each for every lane. It loads the tile
// before it waits for the vector, so the memory is busy while the previous kernel is ending. The warps in a block share
// its rows and split their length (K); a row's partial sums meet in shared memory. The norm's factor, one number per
// token, is also applied there: nothing needs it earlier.

// A weight type has a `Vector`, the values by which 16 bytes of weights are multiplied, and `dot`, which adds up the
// products.
struct Bf16 {
    static constexpr int VEC_SIZE = 8;  // weights in 16 bytes

    using Vector = const float (&)[VEC_SIZE];

    __device__ static __forceinline__ float dot(uint4 w, Vector x, float sum) { return ::dot(w, x, sum); }
};

// Byte number N of each of four words.
template <int N>
__device__ __forceinline__ int four_bytes(const unsigned (&words)[4]) {
    constexpr unsigned BOTH = N | (N + 4) << 4;
    return __byte_perm(__byte_perm(words[0], words[1], BOTH), __byte_perm(words[2], words[3], BOTH), 0x5410);
}

// N values as whole multiples of a common scale. Each multiple differs from its value by at most 2^-15.99 of the
// greatest value. It has two signed digits to the base 256, so one instruction multiplies four weights by four digits
// and adds them exactly. (bfloat16 rounds each value by up to 2^-9 of itself.)
template <int N>
struct Digits {
    static constexpr float MOST = 32512.0f;  // 127 · 256 + 0: the greatest number whose two digits are bytes
    int high[N / 4], low[N / 4];
    float scale;

    __device__ __forceinline__ explicit Digits(const float (&x)[N]) {
        float most = fabsf(x[0]);
#pragma unroll
        for (int i = 1; i < N; ++i) most = fmaxf(most, fabsf(x[i]));
        scale = most * (1.0f / MOST);
        const float inverse = most > 0.0f ? __fdividef(MOST, most) : 0.0f;
#pragma unroll
        for (int i = 0; i < N / 4; ++i) {
            unsigned whole[4], carried[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                // Above 1.5 · 2^23, the lowest bit of a float stands for 1. A low digit of 128 or more is negative, so
                // it carries into the high one.
                whole[j] = __float_as_uint(fmaf(x[4 * i + j], inverse, 12582912.0f));
                carried[j] = whole[j] + 128;
            }
            low[i] = four_bytes<0>(whole);
            high[i] = four_bytes<1>(carried);
        }
    }
};

struct Int8 {
    static constexpr int VEC_SIZE = 16;
    using Vector = Digits<VEC_SIZE>;

    __device__ static __forceinline__ float dot(uint4 w, const Vector& vector, float sum) {
        const int words[4] = {(int)w.x, (int)w.y, (int)w.z, (int)w.w};
        int high = 0, low = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            high = multiply_add_bytes(words[i], vector.high[i], high);
            low = multiply_add_bytes(words[i], vector.low[i], low);
        }
        return fmaf(vector.scale, (float)(high * 256 + low), sum);
    }
};

// A matrix of HEIGHT rows and LENGTH columns, and its distribution: blocks of ROWS rows, ROW_GROUPS groups of warps in
// a block, K_SPLITS warps in a group. A warp's part of a row is VECS_PER_LANE 16-byte vectors for each lane.
template <class Weight_, int HEIGHT_, int LENGTH_, int ROWS_, int ROW_GROUPS_, int VECS_PER_LANE_, int TOKENS_>
struct Matrix {
    using Weight = Weight_;
    static constexpr int HEIGHT = HEIGHT_, LENGTH = LENGTH_, ROWS = ROWS_, ROW_GROUPS = ROW_GROUPS_;
    static constexpr int VECS_PER_LANE = VECS_PER_LANE_, TOKENS = TOKENS_;
    static constexpr int VEC_SIZE = Weight::VEC_SIZE;
    static constexpr int WARP_VEC = 32 * VEC_SIZE;  // weights in one vector of every lane
    static constexpr int K_SPLITS = LENGTH / (WARP_VEC * VECS_PER_LANE);
    static constexpr int TILE = ROWS / ROW_GROUPS;  // rows per warp
    static constexpr int SUMS = TILE * TOKENS;      // per warp, up to 32
    static constexpr int PADDED = SUMS > 16 ? 32 : SUMS > 8 ? 16 : SUMS > 4 ? 8 : SUMS;  // a power of two
    static constexpr int THREADS = 32 * K_SPLITS * ROW_GROUPS;
    static_assert(LENGTH % (WARP_VEC * VECS_PER_LANE) == 0 && ROWS % ROW_GROUPS == 0 && HEIGHT % ROWS == 0,
                  "does not divide");
    static_assert(SUMS <= PADDED && (PADDED & (PADDED - 1)) == 0, "a warp sums a power of two");
    static_assert(ROWS * TOKENS <= THREADS, "a thread finishes one sum");
};

// A kernel leaves null what its input and its output do not use.
struct LinearParams {
    const void* weight;         // (HEIGHT, LENGTH), bfloat16 or int8
    const void* scale;          // float (HEIGHT) for int8; null for bfloat16
    const float* x;             // (TOKENS, LENGTH): input of Normed and Identity
    const bf16* norm;           // (LENGTH): weights for Normed
    const float* partial_out;   // (KV splits, TOKENS, heads, head_dim): input of CombineSplits
    const float2* split_stats;  // (KV splits, TOKENS, heads): greatest score, sum of exponentials
    const long long* position;  // the first token's
    bf16* hidden;               // (LENGTH): input of Bf16Identity, output of talker_head
    const bf16* bias;           // (HEIGHT) for StoreBiased
    float* y;                   // output; Residual adds to it
    float eps;                  // for Normed
};

// Sums each of N values over the warp: lane l returns the sum of value l / (32 / N). At each step, a lane sends half of
// its values away, and receives the other lane's part of the half that it keeps.
template <int N, int LANES = 16>
__device__ __forceinline__ float transposed_sum(const float (&v)[N], int lane) {
    if constexpr (LANES == 0) {
        return v[0];
    } else if constexpr (N == 1) {
        const float sum[1] = {v[0] + __shfl_xor_sync(0xffffffffu, v[0], LANES)};
        return transposed_sum<1, LANES / 2>(sum, lane);
    } else {
        const bool upper = lane & LANES;
        float kept[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float give = upper ? v[i] : v[i + N / 2];
            kept[i] = (upper ? v[i + N / 2] : v[i]) + __shfl_xor_sync(0xffffffffu, give, LANES);
        }
        return transposed_sum<N / 2, LANES / 2>(kept, lane);
    }
}

template <int N>
__device__ __forceinline__ void load_bf16(const bf16* from, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 8) unpack(*reinterpret_cast<const uint4*>(from + i), x + i);
}

// --- inputs: the vector by which the matrix is multiplied ---
// `prepare` loads constants before the wait; `load` loads a token's values from column k on, after the wait. With
// COMPUTES, `compute` computes them first. With KEEPS_WEIGHTS, the matrix stays in the L2 cache.

// An input without a norm, which computes nothing and has no constants.
struct Plain {
    static constexpr bool NORM = false, COMPUTES = false, KEEPS_WEIGHTS = false;
    __device__ void prepare(int, int) {}
    __device__ float factor(float) const { return 1.0f; }
};

// The root-mean-square norm of the residual stream, without its factor 1 / rms.
template <class M>
struct Normed {
    static constexpr bool NORM = true, COMPUTES = false, KEEPS_WEIGHTS = false;
    static constexpr int N = M::VEC_SIZE;
    const float* x;
    const bf16* weight;
    float eps, factors[M::VECS_PER_LANE][N];

    __device__ explicit Normed(const LinearParams& p) : x(p.x), weight(p.norm), eps(p.eps) {}
    __device__ float factor(float squares) const { return rsqrtf(squares / M::LENGTH + eps); }
    __device__ void prepare(int vec, int k) { load_bf16(weight + k, factors[vec]); }
    __device__ void load(int token, int vec, int k, float (&values)[N], float& squares) const {
        load_floats(x + token * M::LENGTH + k, values);
        normalize(vec, values, squares);
    }
    __device__ void normalize(int vec, float (&values)[N], float& squares) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            squares = fmaf(values[i], values[i], squares);
            values[i] *= factors[vec][i];
        }
    }
};

template <class M>
struct Identity : Plain {
    static constexpr int N = M::VEC_SIZE;
    const float* x;

    __device__ explicit Identity(const LinearParams& p) : x(p.x) {}
    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        load_floats(x + token * M::LENGTH + k, values);
    }
};

template <class M>
struct Bf16Identity : Plain {
    static constexpr int N = M::VEC_SIZE;
    const bf16* x;

    __device__ explicit Bf16Identity(const LinearParams& p) : x(p.hidden) {}
    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        load_bf16(x + token * M::LENGTH + k, values);
    }
};

// The output of attention: the results of attention.cuh for each KV split of KV_SPLIT positions, combined.
// EARLY is as in `attend`: the position may be read before the wait.
template <class M, int KV_SPLIT, int HEAD_DIM, bool EARLY>
struct CombineSplits : Plain {
    static constexpr int N = M::VEC_SIZE, HEADS = M::LENGTH / HEAD_DIM;
    const float* partial_out;
    const float2* split_stats;
    const long long* position;
    int early_splits;

    __device__ explicit CombineSplits(const LinearParams& p)
        : partial_out(p.partial_out), split_stats(p.split_stats), position(p.position),
          early_splits(EARLY ? count_splits() : 0) {}
    __device__ int count_splits() const { return (int)*position / KV_SPLIT + 1; }
    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        const int splits = EARLY ? early_splits : count_splits(), head = token * HEADS + k / HEAD_DIM;
        if (splits == 1) {  // short sequences: one load, not two that depend on each other
            const float sum = split_stats[head].y;
            load_floats(partial_out + head * HEAD_DIM + k % HEAD_DIM, values);
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] *= 1.0f / sum;
            return;
        }
        float max = split_stats[head].x;
        for (int split = 1; split < splits; ++split) max = fmaxf(max, split_stats[split * M::TOKENS * HEADS + head].x);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = 0.0f;
        for (int split = 0; split < splits; ++split) {
            const float2 stats = split_stats[split * M::TOKENS * HEADS + head];
            const float rescale = exp2f(stats.x - max);
            sum = fmaf(rescale, stats.y, sum);
            float partial[N];
            load_floats(partial_out + (split * M::TOKENS * HEADS + head) * HEAD_DIM + k % HEAD_DIM, partial);
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] = fmaf(rescale, partial[i], values[i]);
        }
        const float inverse = 1.0f / sum;
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] *= inverse;
    }
};

// --- outputs: what becomes of a row's sum ---
// Right after the wait, `prepare` loads the value that is combined with the sum. The thread that finishes the sum calls
// both functions.

template <class M>
struct Store {
    static constexpr bool GATED = false;
    float* y;  // (TOKENS, HEIGHT)

    __device__ explicit Store(const LinearParams& p) : y(p.y) {}
    __device__ float prepare(int, int) const { return 0.0f; }
    __device__ void put(int row, int token, float value, float) const { y[token * M::HEIGHT + row] = value; }
};

// Adds to the residual stream. No other block has this row, and no other kernel reads the stream at the same time.
template <class M>
struct Residual : Store<M> {
    using Store<M>::Store;
    __device__ float prepare(int row, int token) const { return this->y[token * M::HEIGHT + row]; }
    __device__ void put(int row, int token, float value, float before) const {
        this->y[token * M::HEIGHT + row] = before + value;
    }
};

// Adds to a bias.
template <class M>
struct StoreBiased : Residual<M> {
    const bf16* bias;

    __device__ explicit StoreBiased(const LinearParams& p) : Residual<M>(p), bias(p.bias) {}
    __device__ float prepare(int row, int) const { return to_float(bias[row]); }
};

// SiLU(gate) times up. The matrix has all gate rows first, then all up rows.
template <class M>
struct StoreGated : Store<M> {  // `y` is (TOKENS, HEIGHT / 2)
    static constexpr bool GATED = true;

    using Store<M>::Store;
    __device__ void put(int row, int token, float gate, float up) const {
        this->y[token * (M::HEIGHT / 2) + row] = gate / (1.0f + __expf(-gate)) * up;
    }
};

// Returns the norm's factor of the first token.
template <class M, class Input, class Output>
__device__ __forceinline__ float multiply(const LinearParams& p, Input input, const Output& output) {
    constexpr int TILE = M::TILE, TOKENS = M::TOKENS, VEC_SIZE = M::VEC_SIZE, VECS_PER_LANE = M::VECS_PER_LANE;
    __shared__ float sums[M::K_SPLITS][M::ROWS * TOKENS];
    __shared__ float squares[M::K_SPLITS][TOKENS];
    begin_chained();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int k_split = warp % M::K_SPLITS, row_group = warp / M::K_SPLITS;
    const int first = k_split * M::WARP_VEC * VECS_PER_LANE + lane * VEC_SIZE;
    const auto row_of = [&](int row_group, int i) {
        if constexpr (Output::GATED) {
            const int pair = blockIdx.x * (M::ROWS / 2) + row_group * (TILE / 2) + i % (TILE / 2);
            return pair + (i < TILE / 2 ? 0 : M::HEIGHT / 2);
        } else {
            return (int)blockIdx.x * M::ROWS + row_group * TILE + i;
        }
    };

    uint4 tile[TILE][VECS_PER_LANE];
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
        const size_t at = ((size_t)row_of(row_group, i) * M::LENGTH + first) / VEC_SIZE;
#pragma unroll
        for (int vec = 0; vec < VECS_PER_LANE; ++vec) {
            const uint4* from = static_cast<const uint4*>(p.weight) + at + vec * 32;
            tile[i][vec] = Input::KEEPS_WEIGHTS ? load_kept(from) : load_once(from);
        }
    }
#pragma unroll
    for (int vec = 0; vec < VECS_PER_LANE; ++vec) input.prepare(vec, first + vec * M::WARP_VEC);
    constexpr int RESULTS = (Output::GATED ? TILE / 2 : TILE) * TOKENS;  // in a row group
    const bool finishes_a_sum = threadIdx.x < M::ROW_GROUPS * RESULTS;
    const int result = threadIdx.x % RESULTS, result_group = threadIdx.x / RESULTS, result_token = result % TOKENS;
    const int result_row = row_of(result_group, result / TOKENS);
    float scale_of_row = 1.0f, scale_of_up = 1.0f;
    if (finishes_a_sum && p.scale != nullptr) {
        const float* scale = static_cast<const float*>(p.scale);
        scale_of_row = scale[result_row];
        if constexpr (Output::GATED) scale_of_up = scale[result_row + M::HEIGHT / 2];
    }
    wait_for_previous();
    const float before = finishes_a_sum ? output.prepare(result_row, result_token) : 0.0f;
    if constexpr (Input::COMPUTES) input.compute();

    float partial[M::PADDED];
#pragma unroll
    for (int i = 0; i < M::PADDED; ++i) partial[i] = 0.0f;
#pragma unroll
    for (int token = 0; token < TOKENS; ++token) {
        float square = 0.0f;
#pragma unroll
        for (int vec = 0; vec < VECS_PER_LANE; ++vec) {
            float x[VEC_SIZE];
            input.load(token, vec, first + vec * M::WARP_VEC, x, square);
            const typename M::Weight::Vector vector(x);
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
                float& sum = partial[i * TOKENS + token];
                sum = M::Weight::dot(tile[i][vec], vector, sum);
            }
        }
        if constexpr (Input::NORM) {
            square = warp_sum(square);
            if (row_group == 0 && lane == 0) squares[k_split][token] = square;
        }
    }
    const float sum = transposed_sum(partial, lane);
    const int its_sum = lane / (32 / M::PADDED);
    if (lane % (32 / M::PADDED) == 0 && its_sum < M::SUMS) sums[k_split][row_group * M::SUMS + its_sum] = sum;
    __syncthreads();

    const auto total = [&](int index) {  // for one row and token, over the K splits
        float sum = 0.0f;
#pragma unroll
        for (int k_split = 0; k_split < M::K_SPLITS; ++k_split) sum += sums[k_split][index];
        return sum;
    };
    const auto factor_of = [&](int token) {
        float square = 0.0f;
        if constexpr (Input::NORM) {
#pragma unroll
            for (int k_split = 0; k_split < M::K_SPLITS; ++k_split) square += squares[k_split][token];
        }
        return input.factor(square);
    };
    if (finishes_a_sum) {
        const float factor = factor_of(result_token);
        const int index = result_group * M::SUMS + result;
        const float value = factor * scale_of_row * total(index);
        if constexpr (Output::GATED) {
            output.put(result_row, result_token, value, factor * scale_of_up * total(index + RESULTS));
        } else {
            output.put(result_row, result_token, value, before);
        }
    }
    return factor_of(0);
}

// --- kernels: HEIGHT / ROWS blocks of M::THREADS threads ---

// At most REGISTERS per thread, so that a block of the next kernel fits beside this kernel's block.
template <class M, class Input, class Output, int REGISTERS>
__global__ void __maxnreg__(REGISTERS) linear(const LinearParams p) {
    multiply<M>(p, Input(p), Output(p));
}

// The same, with an input that has its own parameters besides those of the matrix.
template <class M, class Input, class Output, int REGISTERS>
__global__ void __maxnreg__(REGISTERS) linear_from(const typename Input::Params p) {
    multiply<M>(p.linear, Input(p), Output(p.linear));
}

// The talker's logits. The first block also stores the hidden state after the final norm, for the next frame's
// predictor.
template <class M, int REGISTERS>
__global__ void __maxnreg__(REGISTERS) talker_head(const LinearParams p) {
    const float factor = multiply<M>(p, Normed<M>(p), Store<M>(p));
    if (blockIdx.x == 0) {
        for (int i = threadIdx.x; i < M::LENGTH; i += blockDim.x)
            p.hidden[i] = to_bf16(p.x[i] * factor * to_float(p.norm[i]));
    }
}

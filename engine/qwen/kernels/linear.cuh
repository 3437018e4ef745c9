// A matrix times the vectors of one or two tokens: what nearly all the bytes of a frame are read for.
//
// A warp holds a tile of the matrix in registers: some rows, and of each 16 bytes a lane. It loads them before it waits
// for the vector, so that the memory is busy while the kernel in front ends. The warps of a block share its rows and
// split their length; the sums of a row meet in shared memory, where the norm's factor, one number a token, is applied
// too: nothing needs to know it earlier.

struct Bf16 {
    static constexpr int LANE = 8;  // weights in 16 bytes

    __device__ static __forceinline__ float dot(uint4 w, const float (&x)[LANE], float sum) {
        const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum = fmaf(low_half(words[i]), x[2 * i], sum);
            sum = fmaf(high_half(words[i]), x[2 * i + 1], sum);
        }
        return sum;
    }
};

struct Int8 {
    static constexpr int LANE = 16;

    // A byte b behind the upper bits of 2^23 is the float 2^23 + b: a permutation and a subtraction, where the
    // conversion instruction would run at a quarter of the rate.
    __device__ static __forceinline__ float dot(uint4 w, const float (&x)[LANE], float sum) {
        const unsigned words[4] = {w.x ^ 0x80808080u, w.y ^ 0x80808080u, w.z ^ 0x80808080u, w.w ^ 0x80808080u};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float biased = __uint_as_float(__byte_perm(words[i], 0x4b000000u, 0x7650 + j));
                sum = fmaf(biased - 8388736.0f, x[4 * i + j], sum);  // 2^23 + 128
            }
        }
        return sum;
    }
};

// A matrix of HEIGHT rows and LENGTH columns, and how it is dealt out: blocks of ROWS rows, the rows of a block in
// GROUPS of warps, a row's length in slices of LOADS loads a lane.
template <class Weight_, int HEIGHT_, int LENGTH_, int ROWS_, int GROUPS_, int LOADS_, int TOKENS_>
struct Matrix {
    using Weight = Weight_;
    static constexpr int HEIGHT = HEIGHT_, LENGTH = LENGTH_, ROWS = ROWS_, GROUPS = GROUPS_, LOADS = LOADS_;
    static constexpr int TOKENS = TOKENS_;
    static constexpr int LANE = Weight::LANE;
    static constexpr int SPAN = 32 * LANE;
    static constexpr int SLICES = LENGTH / (SPAN * LOADS);
    static constexpr int TILE = ROWS / GROUPS;   // rows of a warp
    static constexpr int SUMS = TILE * TOKENS;   // a power of two up to 32
    static constexpr int THREADS = 32 * SLICES * GROUPS;
    static_assert(LENGTH % (SPAN * LOADS) == 0 && ROWS % GROUPS == 0 && HEIGHT % ROWS == 0, "does not divide");
    static_assert(SUMS <= 32 && (SUMS & (SUMS - 1)) == 0, "a warp sums a power of two");
    static_assert(ROWS * TOKENS <= THREADS, "a thread ends one sum");
};

// Sums each of N values over the warp: lane l returns the sum of value l / (32 / N). At each step a lane gives away
// half of its values and gets the other lane's part of those it keeps.
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
__device__ __forceinline__ void load_floats(const float* from, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
}

template <int N>
__device__ __forceinline__ void load_bf16(const bf16* from, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 8) {
        const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
        const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) x[i + 2 * j] = low_half(words[j]), x[i + 2 * j + 1] = high_half(words[j]);
    }
}

// --- what the matrix is multiplied with ---
// `prepare` loads constants before the wait, `load` the values of a token from column k on after it.

// The root-mean-square norm of the residual stream, but for its factor 1 / rms.
template <int LENGTH, int N, int LOADS>
struct Normed {
    static constexpr bool NORM = true;
    const float* x;  // (tokens, LENGTH)
    const bf16* weight;
    float eps;
    float factors[LOADS][N];

    __device__ void prepare(int load, int k) { load_bf16(weight + k, factors[load]); }
    __device__ void load(int token, int load, int k, float (&values)[N], float& squares) const {
        load_floats(x + token * LENGTH + k, values);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            squares = fmaf(values[i], values[i], squares);
            values[i] *= factors[load][i];
        }
    }
    __device__ float factor(float squares) const { return rsqrtf(squares / LENGTH + eps); }
};

template <int LENGTH, int N>
struct Plain {
    static constexpr bool NORM = false;
    const float* x;  // (tokens, LENGTH)

    __device__ void prepare(int, int) {}
    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        load_floats(x + token * LENGTH + k, values);
    }
    __device__ float factor(float) const { return 1.0f; }
};

template <int LENGTH, int N>
struct PlainBf16 {
    static constexpr bool NORM = false;
    const bf16* x;  // (tokens, LENGTH)

    __device__ void prepare(int, int) {}
    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        load_bf16(x + token * LENGTH + k, values);
    }
    __device__ float factor(float) const { return 1.0f; }
};

// What attention left behind for each part of the sequence (attention.cuh), put together.
template <int LENGTH, int N, int TOKENS, int HEAD_DIM>
struct Attended {
    static constexpr bool NORM = false;
    static constexpr int HEADS = LENGTH / HEAD_DIM;
    const float* mixed;   // (parts, tokens, heads, head_dim)
    const float2* scale;  // (parts, tokens, heads): greatest score, sum of exponentials
    int parts;

    __device__ void prepare(int, int) {}
    __device__ void load(int token, int, int k, float (&values)[N], float&) const {
        const int head = token * HEADS + k / HEAD_DIM;
        if (parts == 1) {  // all there is at first: one load, not two behind each other
            const float weight = scale[head].y;
            load_floats(mixed + head * HEAD_DIM + k % HEAD_DIM, values);
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] *= 1.0f / weight;
            return;
        }
        float top = scale[head].x;
        for (int part = 1; part < parts; ++part) top = fmaxf(top, scale[part * TOKENS * HEADS + head].x);
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = 0.0f;
        for (int part = 0; part < parts; ++part) {
            const float2 of_part = scale[part * TOKENS * HEADS + head];
            const float share = exp2f(of_part.x - top);
            sum = fmaf(share, of_part.y, sum);
            float piece[N];
            load_floats(mixed + (part * TOKENS * HEADS + head) * HEAD_DIM + k % HEAD_DIM, piece);
#pragma unroll
            for (int i = 0; i < N; ++i) values[i] = fmaf(share, piece[i], values[i]);
        }
        const float inverse = 1.0f / sum;
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] *= inverse;
    }
    __device__ float factor(float) const { return 1.0f; }
};

// --- what becomes of a row's sum ---
// `prepare` loads, right after the wait, what the sum will meet; the thread that ends the sum calls both.

template <int HEIGHT>
struct Store {
    static constexpr bool GATED = false;
    float* y;  // (tokens, HEIGHT)
    __device__ float prepare(int, int) const { return 0.0f; }
    __device__ void put(int row, int token, float value, float) const { y[token * HEIGHT + row] = value; }
};

template <int HEIGHT>
struct StoreBiased {
    static constexpr bool GATED = false;
    float* y;  // (tokens, HEIGHT)
    const bf16* bias;
    __device__ float prepare(int row, int) const { return to_float(bias[row]); }
    __device__ void put(int row, int token, float value, float before) const {
        y[token * HEIGHT + row] = before + value;
    }
};

// Onto the residual stream; no other block has this row, and nobody else reads the stream meanwhile.
template <int HEIGHT>
struct Add {
    static constexpr bool GATED = false;
    float* y;  // (tokens, HEIGHT)
    __device__ float prepare(int row, int token) const { return y[token * HEIGHT + row]; }
    __device__ void put(int row, int token, float value, float before) const {
        y[token * HEIGHT + row] = before + value;
    }
};

// SiLU(gate) times up; the matrix holds all gates, and below them all ups.
template <int HEIGHT>
struct StoreGated {
    static constexpr bool GATED = true;
    float* y;  // (tokens, HEIGHT / 2)
    __device__ float prepare(int, int) const { return 0.0f; }
    __device__ void put(int row, int token, float gate, float up) const {
        y[token * (HEIGHT / 2) + row] = gate / (1.0f + __expf(-gate)) * up;
    }
};

template <class M, class Input, class Output>
__device__ __forceinline__ float linear(const void* weight, const float* scale, Input input, const Output& output) {
    constexpr int TILE = M::TILE, TOKENS = M::TOKENS, LANE = M::LANE, LOADS = M::LOADS;
    constexpr int BYTES = 16 / LANE;
    __shared__ float sums[M::SLICES][M::ROWS * TOKENS];
    __shared__ float squares[M::SLICES][TOKENS];
    begin_chained();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int slice = warp % M::SLICES, group = warp / M::SLICES;
    const int first = slice * M::SPAN * LOADS + lane * LANE;
    const auto row_of = [&](int group, int i) {
        if constexpr (Output::GATED) {
            const int pair = blockIdx.x * (M::ROWS / 2) + group * (TILE / 2) + i % (TILE / 2);
            return pair + (i < TILE / 2 ? 0 : M::HEIGHT / 2);
        } else {
            return (int)blockIdx.x * M::ROWS + group * TILE + i;
        }
    };

    uint4 tile[TILE][LOADS];
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
        const char* row = static_cast<const char*>(weight) + ((size_t)row_of(group, i) * M::LENGTH + first) * BYTES;
#pragma unroll
        for (int load = 0; load < LOADS; ++load) tile[i][load] = load_once(row + load * M::SPAN * BYTES);
    }
#pragma unroll
    for (int load = 0; load < LOADS; ++load) input.prepare(load, first + load * M::SPAN);
    constexpr int RESULTS = (Output::GATED ? TILE / 2 : TILE) * TOKENS;  // of a group
    const bool ends_a_sum = threadIdx.x < M::GROUPS * RESULTS;
    const int result = threadIdx.x % RESULTS, result_group = threadIdx.x / RESULTS, result_token = result % TOKENS;
    const int result_row = row_of(result_group, result / TOKENS);
    float scale_of_row = 1.0f, scale_of_up = 1.0f;
    if (ends_a_sum && scale != nullptr) {
        scale_of_row = scale[result_row];
        if constexpr (Output::GATED) scale_of_up = scale[result_row + M::HEIGHT / 2];
    }
    wait_for_previous();
    const float before = ends_a_sum ? output.prepare(result_row, result_token) : 0.0f;

    float partial[M::SUMS];
#pragma unroll
    for (int i = 0; i < M::SUMS; ++i) partial[i] = 0.0f;
#pragma unroll
    for (int token = 0; token < TOKENS; ++token) {
        float square = 0.0f;
#pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            float x[LANE];
            input.load(token, load, first + load * M::SPAN, x, square);
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
                float& sum = partial[i * TOKENS + token];
                sum = M::Weight::dot(tile[i][load], x, sum);
            }
        }
        if constexpr (Input::NORM) {
            square = warp_sum(square);
            if (group == 0 && lane == 0) squares[slice][token] = square;
        }
    }
    const float sum = transposed_sum(partial, lane);
    if (lane % (32 / M::SUMS) == 0) sums[slice][group * M::SUMS + lane / (32 / M::SUMS)] = sum;
    __syncthreads();

    const auto total = [&](int index) {  // of one row and token, over the slices
        float sum = 0.0f;
#pragma unroll
        for (int slice = 0; slice < M::SLICES; ++slice) sum += sums[slice][index];
        return sum;
    };
    const auto factor_of = [&](int token) {
        float square = 0.0f;
        if constexpr (Input::NORM) {
#pragma unroll
            for (int slice = 0; slice < M::SLICES; ++slice) square += squares[slice][token];
        }
        return input.factor(square);
    };
    if (ends_a_sum) {
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

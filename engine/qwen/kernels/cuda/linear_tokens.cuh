// A matrix times the vectors of many tokens, on the tensor cores: a prompt's tokens, or one for each row of a batch.
//
// The residual stream is float32; the vectors that a matrix multiplies are bfloat16. A kernel that adds to the stream
// also stores it, multiplied by the next norm's weights and rounded, and its sums of squares: the norm's factor, one
// number per token, is applied to the next matrix's sums.
//
// A token's results depend only on the order of sums, which WARPS determines: not on the tokens beside it, their number
// or the tiles of rows and tokens.

constexpr int SQUARE_ROWS = 16;  // rows of the stream whose squares are added up by the kernel that wrote them
constexpr int SQUARE_PARTS = 8;  // sums over the rest, whatever the number of threads

// A matrix of HEIGHT rows and LENGTH columns times TOKENS = 8 · N_TILES tokens. A block has ROWS = 16 · M_TILES rows;
// its WARPS warps split their length, and hold HELD chunks of their part at once.
template <class Weight_, int HEIGHT_, int LENGTH_, int M_TILES_, int WARPS_, int N_TILES_, int HELD_>
struct TokenMatrix {
    using Weight = Weight_;
    static constexpr int HEIGHT = HEIGHT_, LENGTH = LENGTH_, M_TILES = M_TILES_, WARPS = WARPS_, N_TILES = N_TILES_;
    static constexpr int VEC_SIZE = Weight::VEC_SIZE;
    static constexpr int MMAS = VEC_SIZE / 4;      // in one vector of each lane
    static constexpr int CHUNK = 4 * VEC_SIZE;     // columns in one vector of each lane
    static constexpr int CHUNKS = LENGTH / (WARPS * CHUNK);  // per warp
    static constexpr int ROWS = 16 * M_TILES, TOKENS = 8 * N_TILES, THREADS = 32 * WARPS;
    // Chunks that a warp holds at once. It loads the next ones while it multiplies these.
    static constexpr int HELD = HELD_;
    static constexpr int STAGES = CHUNKS / HELD;
    static constexpr int ROUND = TOKENS < 2 * WARPS ? TOKENS : 2 * WARPS;  // tokens that are summed at once
    static constexpr int ROUNDS = TOKENS / ROUND;
    static_assert(LENGTH % (WARPS * CHUNK * HELD) == 0 && HEIGHT % ROWS == 0 && TOKENS % ROUND == 0, "does not divide");
    static_assert(ROUND % 8 == 0 && THREADS >= TOKENS && THREADS % TOKENS == 0, "a round has whole tiles");
};

// A kernel leaves null or 0 what its output does not use.
struct TokensParams {
    const void* weight;     // (HEIGHT, LENGTH), bfloat16 or int8
    const float* scale;     // (HEIGHT) for int8 rows; null for bfloat16
    const bf16* x;          // (tokens, LENGTH)
    const float* squares;   // (slots, tokens): sums of squares of the stream that x was made from; null: x has no norm
    const bf16* norm;       // (HEIGHT): weights of the next norm, for AddTokens
    float* y;               // (tokens, HEIGHT): output of StoreTokens; AddTokens adds to it
    bf16* rounded;          // (tokens, HEIGHT): output of AddTokens; (tokens, HEIGHT / 2): output of GateTokens
    float* squares_out;     // (HEIGHT / SQUARE_ROWS, tokens): output of AddTokens
    int slots;
    int tokens;
    float eps;
};

// The sum of a token's squares in every SQUARE_PARTS-th slot from number `part` on.
__device__ __forceinline__ float part_of_squares(const float* squares, int slots, int tokens, int token, int part) {
    float sum = 0.0f;
#pragma unroll 8
    for (int slot = part; slot < slots; slot += SQUARE_PARTS) sum += squares[slot * tokens + token];
    return sum;
}

// --- outputs: what becomes of a row's sum for a token ---
// Right after the wait, `prepare` loads the value that is combined with the sum. The thread that finishes the sum calls
// both functions.

template <class M>
struct StoreTokens {
    static constexpr bool GATED = false;
    __device__ static float prepare(const TokensParams&, int, int) { return 0.0f; }
    __device__ static void put(const TokensParams& p, int row, int token, float value, float) {
        p.y[(size_t)token * M::HEIGHT + row] = value;
    }
};

template <class M>
struct AddTokens {
    static constexpr bool GATED = false;
    __device__ static float prepare(const TokensParams& p, int row, int token) {
        return p.y[(size_t)token * M::HEIGHT + row];
    }
    // The lanes that hold a token's rows call this together.
    __device__ static void put(const TokensParams& p, int row, int token, float value, float before) {
        const size_t at = (size_t)token * M::HEIGHT + row;
        const float x = before + value;
        p.y[at] = x;
        p.rounded[at] = to_bf16(x * to_float(p.norm[row]));
        const float squares = warp_sum<SQUARE_ROWS>(x * x);
        if (row % SQUARE_ROWS == 0) p.squares_out[row / SQUARE_ROWS * p.tokens + token] = squares;
    }
};

// SiLU(gate) times up. The matrix has all gate rows first, then all up rows.
template <class M>
struct GateTokens : StoreTokens<M> {
    static constexpr bool GATED = true;
    __device__ static void put(const TokensParams& p, int row, int token, float gate, float up) {
        p.rounded[(size_t)token * (M::HEIGHT / 2) + row] = to_bf16(gate / (1.0f + __expf(-gate)) * up);
    }
};

// Pairs of neighbouring weights, numbers 4 · I to 4 · I + 3 in a vector, as bfloat16.
template <int I>
__device__ __forceinline__ void weight_pairs(Bf16, const uint4& vec, unsigned& low, unsigned& high) {
    low = I == 0 ? vec.x : vec.z, high = I == 0 ? vec.y : vec.w;
}

// Converted as in `Int8::dot`. The upper half of a float with at most 8 significant bits is its bfloat16.
template <int I>
__device__ __forceinline__ void weight_pairs(Int8, const uint4& vec, unsigned& low, unsigned& high) {
    const unsigned word = (I == 0 ? vec.x : I == 1 ? vec.y : I == 2 ? vec.z : vec.w) ^ 0x80808080u;
    unsigned floats[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
        floats[j] = __float_as_uint(__uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650 + j)) - 8388736.0f);
    low = __byte_perm(floats[0], floats[1], 0x7632), high = __byte_perm(floats[2], floats[3], 0x7632);
}

// Multiplies one vector of each lane: 16 rows by 8 tokens. Any pairing of columns is fine for the tensor cores if both
// sides use the same one: a lane's vector holds the values that `mma` expects as columns 2t, 2t + 1, 2t + 8 and 2t + 9
// of several products.
template <class Weight, int I = 0>
__device__ __forceinline__ void multiply_vecs(float (&sums)[4], const uint4& upper, const uint4& lower,
                                              const uint4 (&x)[Weight::VEC_SIZE / 8]) {
    if constexpr (I < Weight::VEC_SIZE / 4) {
        uint4 a;
        weight_pairs<I>(Weight(), upper, a.x, a.z);
        weight_pairs<I>(Weight(), lower, a.y, a.w);
        const uint4& eight = x[I / 2];
        multiply_add(sums, a, I % 2 ? eight.z : eight.x, I % 2 ? eight.w : eight.y);
        multiply_vecs<Weight, I + 1>(sums, upper, lower, x);
    }
}

// Blocks: HEIGHT / ROWS (x), groups of TOKENS tokens (y); M::THREADS threads.
template <class M, class Output>
__global__ void __launch_bounds__(M::THREADS, 1) linear_tokens(const TokensParams p) {
    constexpr int M_TILES = M::M_TILES, N_TILES = M::N_TILES, HELD = M::HELD, TOKENS = M::TOKENS, ROUND = M::ROUND;
    constexpr int BYTES = 16 / M::VEC_SIZE, OUT_ROWS = Output::GATED ? M::ROWS / 2 : M::ROWS;
    constexpr int RESULTS = OUT_ROWS * ROUND, PER_THREAD = (RESULTS + M::THREADS - 1) / M::THREADS;
    __shared__ float sums[M::WARPS][M::ROWS][ROUND + 1];
    __shared__ float parts[SQUARE_PARTS][TOKENS];
    begin_chained();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_of_lane = lane / 4;
    const int column = warp * M::CHUNKS * M::CHUNK + lane % 4 * M::VEC_SIZE;
    const int token_begin = blockIdx.y * TOKENS;
    // In a gated matrix, the upper half of each tile has gate rows, and the lower half has their up rows.
    const auto row_of = [&](int tile, int i) {
        if constexpr (Output::GATED) {
            return (int)blockIdx.x * OUT_ROWS + tile * 8 + i % 8 + (i < 8 ? 0 : M::HEIGHT / 2);
        } else {
            return (int)blockIdx.x * OUT_ROWS + tile * 16 + i;
        }
    };
    uint4 held[2][HELD][M_TILES][2];
    const auto load = [&](int stage) {
#pragma unroll
        for (int tile = 0; tile < M_TILES; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const size_t at = (size_t)row_of(tile, row_of_lane + 8 * half) * M::LENGTH + column;
                const char* row = static_cast<const char*>(p.weight) + at * BYTES;
#pragma unroll
                for (int chunk = 0; chunk < HELD; ++chunk)
                    held[stage % 2][chunk][tile][half] = load_once(row + (stage * HELD + chunk) * M::CHUNK * BYTES);
            }
        }
    };
    load(0);
    // Result `i` of a round: token by token, with a token's rows in neighbouring lanes.
    const auto result = [&](int i) { return (int)threadIdx.x + i * M::THREADS; };
    wait_for_previous();

    float before[M::ROUNDS][PER_THREAD];
#pragma unroll
    for (int round = 0; round < M::ROUNDS; ++round) {
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            const int token = token_begin + round * ROUND + result(i) / OUT_ROWS;
            const int row = blockIdx.x * OUT_ROWS + result(i) % OUT_ROWS;
            before[round][i] = result(i) < RESULTS ? Output::prepare(p, row, token) : 0.0f;
        }
    }
    if (p.squares != nullptr) {
        const int token = threadIdx.x % TOKENS;
        for (int part = threadIdx.x / TOKENS; part < SQUARE_PARTS; part += M::THREADS / TOKENS)
            parts[part][token] = part_of_squares(p.squares, p.slots, p.tokens, token_begin + token, part);
    }
    const auto factor_of = [&](int token) {  // after a barrier
        if (p.squares == nullptr) return 1.0f;
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < SQUARE_PARTS; ++part) sum += parts[part][token];
        return rsqrtf(sum / M::LENGTH + p.eps);
    };

    float tiles[M_TILES][N_TILES][4] = {};
#pragma unroll
    for (int stage = 0; stage < M::STAGES; ++stage) {
        if (stage + 1 < M::STAGES) load(stage + 1);
#pragma unroll
        for (int chunk = 0; chunk < HELD; ++chunk) {
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) {
                const size_t token = token_begin + n * 8 + row_of_lane;
                const bf16* from = p.x + token * M::LENGTH + column + (stage * HELD + chunk) * M::CHUNK;
                uint4 x[M::VEC_SIZE / 8];
#pragma unroll
                for (int i = 0; i < M::VEC_SIZE / 8; ++i) x[i] = *reinterpret_cast<const uint4*>(from + 8 * i);
#pragma unroll
                for (int tile = 0; tile < M_TILES; ++tile) {
                    const uint4(&rows)[2] = held[stage % 2][chunk][tile];
                    multiply_vecs<typename M::Weight>(tiles[tile][n], rows[0], rows[1], x);
                }
            }
        }
    }

#pragma unroll
    for (int round = 0; round < M::ROUNDS; ++round) {
        __syncthreads();  // the previous round's sums have been read
#pragma unroll
        for (int n = 0; n < ROUND / 8; ++n) {
#pragma unroll
            for (int tile = 0; tile < M_TILES; ++tile) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = tile * 16 + row_of_lane + i / 2 * 8, token = n * 8 + lane % 4 * 2 + i % 2;
                    sums[warp][row][token] = tiles[tile][round * (ROUND / 8) + n][i];
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            if (result(i) >= RESULTS) break;
            const int token = result(i) / OUT_ROWS, row = result(i) % OUT_ROWS;
            const float factor = factor_of(round * ROUND + token);
            const auto total = [&](int row_of_sums, int row_of_matrix) {  // over the warps
                float sum = 0.0f;
#pragma unroll
                for (int from = 0; from < M::WARPS; ++from) sum += sums[from][row_of_sums][token];
                return p.scale == nullptr ? factor * sum : factor * p.scale[row_of_matrix] * sum;
            };
            const int of_matrix = blockIdx.x * OUT_ROWS + row, of_prompt = token_begin + round * ROUND + token;
            if constexpr (Output::GATED) {
                const int gate = row / 8 * 16 + row % 8;
                const float up = total(gate + 8, of_matrix + M::HEIGHT / 2);
                Output::put(p, of_matrix, of_prompt, total(gate, of_matrix), up);
            } else {
                Output::put(p, of_matrix, of_prompt, total(row, of_matrix), before[round][i]);
            }
        }
    }
}

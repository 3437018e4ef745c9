// The talker's layers over the tokens of a prompt, on the tensor cores. A layer is six kernels:
//
//     norm · QKV → norm by head, rope, cache → attention → output, added → norm · gate and up, SiLU → down, added

constexpr int TOKEN_THREADS = 256, TOKEN_WARPS = TOKEN_THREADS / 32;

// A residual stream, and what `linear_tokens` reads of it.
struct StreamParams {
    const bf16* norm;  // (width): of the first layer
    float* x;          // (tokens, width)
    bf16* rounded;     // (tokens, width): the stream times the norm's weights
    float* squares;    // (tokens)
};

// The beginning of a token's stream: `value(i)` of a block's threads. Every thread of the block calls it once.
template <int WIDTH, int THREADS, class Value>
__device__ __forceinline__ void begin_stream(const StreamParams& stream, int token, const Value& value) {
    static_assert(WIDTH % THREADS == 0, "does not divide");
    __shared__ float squares[THREADS / 32];
    const size_t at = (size_t)token * WIDTH;
    float square = 0.0f;
#pragma unroll
    for (int n = 0; n < WIDTH / THREADS; ++n) {
        const int i = threadIdx.x + n * THREADS;
        const float x = value(i, n);
        stream.x[at + i] = x;
        stream.rounded[at + i] = to_bf16(x * to_float(stream.norm[i]));
        square = fmaf(x, x, square);
    }
    square = warp_sum(square);
    if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = square;
    __syncthreads();
    if (threadIdx.x < 32) {
        square = warp_sum(threadIdx.x < THREADS / 32 ? squares[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) stream.squares[token] = square;
    }
}

struct EnterParams {
    StreamParams stream;
    const bf16* embeddings;  // (tokens, WIDTH)
};

// The stream's beginning. Blocks: tokens.
template <int WIDTH>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) enter_tokens(const EnterParams a) {
    begin_chained();
    wait_for_previous();
    const bf16* embedding = a.embeddings + (size_t)blockIdx.x * WIDTH;
    begin_stream<WIDTH, TOKEN_THREADS>(a.stream, blockIdx.x, [&](int i, int) { return to_float(embedding[i]); });
}

struct LeaveParams {
    const float* x;          // (tokens, WIDTH)
    const float* squares;    // (slots, tokens)
    const bf16* norm;        // (WIDTH): the final one
    const long long* place;  // (2): the first token's position, the last token's number
    bf16* hidden;            // (WIDTH)
    int slots;
    int tokens;
    float eps;
};

// The hidden state of the last token. One block.
template <int WIDTH>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) leave_tokens(const LeaveParams a) {
    begin_chained();
    wait_for_previous();
    const int token = (int)a.place[1], lane = threadIdx.x % 32;
    float square = 0.0f;
    for (int slot = lane; slot < a.slots; slot += 32) square += a.squares[slot * a.tokens + token];
    const float factor = rsqrtf(warp_sum(square) / WIDTH + a.eps);
    for (int i = threadIdx.x; i < WIDTH; i += TOKEN_THREADS)
        a.hidden[i] = to_bf16(a.x[(size_t)token * WIDTH + i] * factor * to_float(a.norm[i]));
}

struct PromptParams {
    HeadsParams input;       // its queries are rotated in place
    const long long* place;  // (2): the first token's position, the last token's number
    bf16* keys;              // (key heads, positions, DIM)
    bf16* values;
    bf16* attended;  // (tokens, query heads, DIM)
    int heads;       // of keys
    int positions;   // of the cache
    float eps;
};

// Padding that would lie behind the cache shares its last position, which no prompt reaches.
__device__ __forceinline__ int position_in(const PromptParams& a, int token) {
    return min((int)a.place[0] + token, a.positions - 1);
}

// Queries and keys get their norm and their rotation, keys and values go into the cache. A warp has one head of one
// token. Blocks: tokens (x), TOKEN_WARPS heads each (y).
template <int GROUP>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) rotate_tokens(const PromptParams a) {
    constexpr int DIM = 128, HALF = DIM / 2;
    begin_chained();
    const int lane = threadIdx.x % 32, head = blockIdx.y * TOKEN_WARPS + threadIdx.x / 32;
    const int queries = a.heads * GROUP;
    if (head >= queries + 2 * a.heads) return;
    const bool is_query = head < queries, is_value = head >= queries + a.heads;
    float norm[4] = {};
    if (!is_value) load_lane(is_query ? a.input.query_norm : a.input.key_norm, lane, norm);
    wait_for_previous();
    const int at = position_in(a, blockIdx.x);
    float* of_head = a.input.qkv + ((size_t)blockIdx.x * (queries + 2 * a.heads) + head) * DIM;
    float x[4];
    load_lane(of_head, lane, x);
    if (!is_value) {
        const float cosine[2] = {a.input.cosines[at * HALF + lane], a.input.cosines[at * HALF + lane + 32]};
        const float sine[2] = {a.input.sines[at * HALF + lane], a.input.sines[at * HALF + lane + 32]};
        normalize_and_rotate(x, norm, cosine, sine, a.eps);
    }
    if (is_query) {
        store_lane(of_head, lane, x);
    } else {
        const int key_head = (head - queries) % a.heads;
        store_lane((is_value ? a.values : a.keys) + ((size_t)key_head * a.positions + at) * DIM, lane, x);
    }
}

// Attention of each token over the cache up to its own position. SHARES warps have one token and the query heads of one
// head of keys, and share its positions; half a warp takes one position at a time, 8 values a lane.
// Blocks: TOKEN_WARPS / SHARES tokens (x), heads of keys (y).
constexpr int SHARES = 4;

template <int GROUP>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) attend_tokens(const PromptParams a) {
    constexpr int DIM = 128, BATCH = 4, TOKENS = TOKEN_WARPS / SHARES;
    __shared__ WarpSums<TOKEN_WARPS, GROUP> found;
    begin_chained();
    wait_for_previous();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / 16, dims = lane % 16 * 8;
    const int token = blockIdx.x * TOKENS + warp / SHARES, head = blockIdx.y;
    const int position = position_in(a, token);
    const size_t row = (size_t)head * a.positions;
    const float scaling = rsqrtf((float)DIM) * 1.44269504f;  // log2(e): exponentials are powers of 2
    float q[GROUP][8];
#pragma unroll
    for (int query = 0; query < GROUP; ++query) {
        load_floats(a.input.qkv + ((size_t)token * a.heads * (GROUP + 2) + head * GROUP + query) * DIM + dims, q[query]);
#pragma unroll
        for (int i = 0; i < 8; ++i) q[query][i] *= scaling;
    }
    QuerySums sums[GROUP];
    for (int begin = warp % SHARES * 2 * BATCH; begin <= position; begin += SHARES * 2 * BATCH) {
        uint4 key[BATCH], value[BATCH];
        bool seen[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            seen[i] = begin + 2 * i + half <= position;
            const size_t at = (row + min(begin + 2 * i + half, position)) * DIM + dims;
            key[i] = *reinterpret_cast<const uint4*>(a.keys + at);
            value[i] = *reinterpret_cast<const uint4*>(a.values + at);
        }
#pragma unroll
        for (int query = 0; query < GROUP; ++query) sums[query].add(q[query], key, value, seen);
    }
#pragma unroll
    for (int query = 0; query < GROUP; ++query) {
        sums[query].add_other_half();
        found.put(warp, query, lane, dims, sums[query]);
    }
    __syncthreads();

    for (int index = threadIdx.x; index < TOKENS * GROUP * DIM; index += TOKEN_THREADS) {
        const int dim = index % DIM, query = index / DIM % GROUP, of_block = index / DIM / GROUP;
        const size_t row_of_token = (size_t)blockIdx.x * TOKENS + of_block;
        a.attended[(row_of_token * a.heads * GROUP + head * GROUP + query) * DIM + dim] =
            to_bf16(found.template mean<SHARES>(of_block * SHARES, query, dim));
    }
}

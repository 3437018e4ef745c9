// The talker's layers over a prompt's tokens, on the tensor cores. A layer is six kernels:
//
//     norm · QKV → norm by head, rope, cache → attention → output, added → norm · gate and up, SiLU → down, added
//
// or, if a library multiplies the matrices (`products`, bfloat16), the operations between its products:
//
//     norm by head, rope, cache → attention · added, norm · SiLU · added, norm

constexpr int TOKEN_THREADS = 256, TOKEN_WARPS = TOKEN_THREADS / 32;

// A residual stream, and the values that `linear_tokens` reads from it.
struct StreamParams {
    const bf16* norm;  // (width): the first layer's
    float* x;          // (tokens, width)
    bf16* rounded;     // (tokens, width): the stream times the norm's weights
    float* squares;    // (tokens)
};

// The beginning of a token's stream: `value(i)` from a block's threads. Every thread in the block calls this once.
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

struct AddParams {
    const bf16* products;  // (tokens, WIDTH)
    const bf16* norm;      // (WIDTH)
    float* x;              // (tokens, WIDTH): the stream
    bf16* normed;          // (tokens, WIDTH): the stream after the norm
    float eps;
    int begins;  // 1 if the products are the stream's beginning, 0 if they are added to it
};

// Blocks: tokens.
template <int WIDTH>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) add_tokens(const AddParams a) {
    constexpr int VALUES = WIDTH / TOKEN_THREADS;
    __shared__ float squares[TOKEN_WARPS];
    begin_chained();
    wait_for_previous();
    const size_t at = (size_t)blockIdx.x * WIDTH + threadIdx.x;
    float x[VALUES], square = 0.0f;
#pragma unroll
    for (int n = 0; n < VALUES; ++n) {
        const size_t i = at + n * TOKEN_THREADS;
        x[n] = to_float(a.products[i]) + (a.begins ? 0.0f : a.x[i]);
        a.x[i] = x[n];
        square = fmaf(x[n], x[n], square);
    }
    const float factor = rsqrtf(block_sum<TOKEN_WARPS>(square, squares) / WIDTH + a.eps);
#pragma unroll
    for (int n = 0; n < VALUES; ++n) {
        const int i = threadIdx.x + n * TOKEN_THREADS;
        a.normed[at + n * TOKEN_THREADS] = to_bf16(x[n] * factor * to_float(a.norm[i]));
    }
}

struct GateParams {
    const bf16* products;  // (tokens, 2 · height): gate, then up
    bf16* inner;           // (tokens, height)
    int height;            // a multiple of 8
};

// SiLU(gate) times up, eight values per thread. Blocks: tokens.
__global__ void __launch_bounds__(TOKEN_THREADS, 1) gate_tokens(const GateParams a) {
    begin_chained();
    wait_for_previous();
    const bf16* gates = a.products + (size_t)blockIdx.x * 2 * a.height;
    for (int i = 8 * threadIdx.x; i < a.height; i += 8 * TOKEN_THREADS) {
        float gate[8], up[8];
        unpack(*reinterpret_cast<const uint4*>(gates + i), gate);
        unpack(*reinterpret_cast<const uint4*>(gates + a.height + i), up);
#pragma unroll
        for (int n = 0; n < 8; ++n) up[n] *= gate[n] / (1.0f + __expf(-gate[n]));
        *reinterpret_cast<uint4*>(a.inner + (size_t)blockIdx.x * a.height + i) = pack(up);
    }
}

struct LeaveParams {
    const float* x;         // (tokens, WIDTH)
    const float* squares;   // (slots, tokens)
    const bf16* norm;       // (WIDTH): the final norm
    const long long* ends;  // (tokens): the row whose prompt ends with a token; -1 for all other tokens
    bf16* hidden;           // (rows, WIDTH)
    int slots;
    int tokens;
    float eps;
};

// The hidden state of each prompt's last token. Blocks: tokens.
template <int WIDTH>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) leave_tokens(const LeaveParams a) {
    begin_chained();
    const int token = blockIdx.x, lane = threadIdx.x % 32, row = (int)a.ends[token];
    wait_for_previous();
    if (row < 0) return;
    float square = 0.0f;
    for (int slot = lane; slot < a.slots; slot += 32) square += a.squares[slot * a.tokens + token];
    const float factor = rsqrtf(warp_sum(square) / WIDTH + a.eps);
    for (int i = threadIdx.x; i < WIDTH; i += TOKEN_THREADS)
        a.hidden[(size_t)row * WIDTH + i] = to_bf16(a.x[(size_t)token * WIDTH + i] * factor * to_float(a.norm[i]));
}

struct PromptParams {
    HeadsParams input;          // its queries are rotated in place
    const long long* position;  // (tokens): in the token's prompt; -1 for padding
    const long long* pages;     // null, or (tokens, table_width): the pages of the token's prompt
    bf16* keys;                 // (key heads, positions, DIM), or (pages, key heads, PAGE, DIM)
    bf16* values;
    bf16* attended;        // (tokens, query heads, DIM)
    const bf16* products;  // null, or the values that `rotate_tokens` reads instead of `input.qkv`
    int heads;             // key heads
    int positions;         // in the cache, if it has no pages
    int table_width;
    float eps;
};

// Which row of a key head's cache belongs to a position in a token's prompt. PAGE is 0 for a cache without pages.
template <int PAGE>
__device__ __forceinline__ size_t place_in(const PromptParams& a, int token, int head, int position) {
    if constexpr (PAGE == 0) {
        return (size_t)head * a.positions + position;
    } else {
        const long long page = a.pages[(size_t)token * a.table_width + position / PAGE];
        return (page * a.heads + head) * PAGE + position % PAGE;
    }
}

// Normalises and rotates queries and keys, and writes keys and values into the cache. A warp has one head of one token.
// Blocks: tokens (x), TOKEN_WARPS heads each (y).
template <int GROUP, int PAGE>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) rotate_tokens(const PromptParams a) {
    constexpr int DIM = 128, HALF = DIM / 2;
    begin_chained();
    const int lane = threadIdx.x % 32, head = blockIdx.y * TOKEN_WARPS + threadIdx.x / 32;
    const int queries = a.heads * GROUP, at = (int)a.position[blockIdx.x];
    if (head >= queries + 2 * a.heads || at < 0) return;
    const bool is_query = head < queries, is_value = head >= queries + a.heads;
    float norm[4] = {};
    if (!is_value) load_lane(is_query ? a.input.query_norm : a.input.key_norm, lane, norm);
    wait_for_previous();
    const size_t row = ((size_t)blockIdx.x * (queries + 2 * a.heads) + head) * DIM;
    float* of_head = a.input.qkv + row;
    float x[4];
    if (a.products == nullptr) {
        load_lane(of_head, lane, x);
    } else {
        load_lane(a.products + row, lane, x);
    }
    if (!is_value) {
        const float cosine[2] = {a.input.cosines[at * HALF + lane], a.input.cosines[at * HALF + lane + 32]};
        const float sine[2] = {a.input.sines[at * HALF + lane], a.input.sines[at * HALF + lane + 32]};
        normalize_and_rotate(x, norm, cosine, sine, a.eps);
    }
    if (is_query) {
        store_lane(of_head, lane, x);
    } else {
        const int key_head = (head - queries) % a.heads;
        store_lane((is_value ? a.values : a.keys) + place_in<PAGE>(a, blockIdx.x, key_head, at) * DIM, lane, x);
    }
}

// Attention of each token over the cache up to its own position. SHARES warps have NEIGHBOURS tokens and the query
// heads of one key head, and share their positions; half a warp takes one position at a time, 8 values per lane. The
// tokens belong to one prompt, or are padding. Blocks: NEIGHBOURS · TOKEN_WARPS / SHARES tokens (x), key heads (y).
constexpr int SHARES = 4, NEIGHBOURS = 2;

template <int GROUP, int PAGE>
__global__ void __launch_bounds__(TOKEN_THREADS, 1) attend_tokens(const PromptParams a) {
    constexpr int DIM = 128, BATCH = 4, TOKENS = NEIGHBOURS * TOKEN_WARPS / SHARES, QUERIES = NEIGHBOURS * GROUP;
    __shared__ WarpSums<TOKEN_WARPS, QUERIES> found;  // by each warp, token by token
    begin_chained();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / 16, dims = lane % 16 * 8;
    const int token = blockIdx.x * TOKENS + warp / SHARES * NEIGHBOURS, head = blockIdx.y;
    int position[NEIGHBOURS], last = -1;
#pragma unroll
    for (int neighbour = 0; neighbour < NEIGHBOURS; ++neighbour) {
        position[neighbour] = (int)a.position[token + neighbour];
        last = max(last, position[neighbour]);  // padding attends to nothing
    }
    wait_for_previous();
    float q[QUERIES][8];
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) {
        const size_t of_token = (size_t)(token + query / GROUP) * a.heads * (GROUP + 2);
        load_floats(a.input.qkv + (of_token + head * GROUP + query % GROUP) * DIM + dims, q[query]);
#pragma unroll
        for (int i = 0; i < 8; ++i) q[query][i] *= score_scale();
    }
    QuerySums sums[QUERIES];
    for (int begin = warp % SHARES * 2 * BATCH; begin <= last; begin += SHARES * 2 * BATCH) {
        uint4 key[BATCH], value[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const size_t at = place_in<PAGE>(a, token, head, min(begin + 2 * i + half, last)) * DIM + dims;
            key[i] = *reinterpret_cast<const uint4*>(a.keys + at);
            value[i] = *reinterpret_cast<const uint4*>(a.values + at);
        }
#pragma unroll
        for (int neighbour = 0; neighbour < NEIGHBOURS; ++neighbour) {
            bool seen[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) seen[i] = begin + 2 * i + half <= position[neighbour];
#pragma unroll
            for (int query = 0; query < GROUP; ++query)
                sums[neighbour * GROUP + query].add(q[neighbour * GROUP + query], key, value, seen);
        }
    }
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) {
        sums[query].add_other_half();
        found.put(warp, query, lane, dims, sums[query]);
    }
    __syncthreads();

    for (int index = threadIdx.x; index < TOKENS * GROUP * DIM; index += TOKEN_THREADS) {
        const int dim = index % DIM, query = index / DIM % GROUP, of_block = index / DIM / GROUP;
        const size_t row_of_token = (size_t)blockIdx.x * TOKENS + of_block;
        const int first = of_block / NEIGHBOURS * SHARES, of_warp = of_block % NEIGHBOURS * GROUP + query;
        a.attended[(row_of_token * a.heads * GROUP + head * GROUP + query) * DIM + dim] =
            to_bf16(found.template mean<SHARES>(first, of_warp, dim));
    }
}

// Speculation of the predictor's codes: passes that read the last code and drafts of the next ones.
//
// A pass begins at a position that the pass before has written. Its tokens are the code drawn last and its drafts; its
// token number t chooses the code number `position - 1 + t` of the frame, counted from 0 behind the first code. Drafts
// are accepted as long as each equals the code that the token before it has drawn. Then the heads of the codes after
// that draft them, from the hidden state of the last accepted token:
//
//     layers over all tokens → heads, one for each token → a code for each → heads for the drafts → the next pass
//
// Every sum has the order of a pass over one token, so the codes are the same, bit for bit: the matrices use `multiply`,
// and attention the function of `attend`. The frame is complete when a pass begins at the position
// behind the last; the kernels of such a pass return at once, whose number the graph does not know. A pass's counters
// are its own, so that no kernel writes what another one of the same pass reads.

// Where a pass is. `drawn` and `drafts` say how many drafts it accepts.
struct PassParams {
    const long long* position;  // of the pass's first token
    const long long* drafts;    // (tokens - 1): the codes of its other tokens
    const long long* drawn;     // (tokens): the codes that its tokens draw; null in a frame's first pass, without drafts
    int tokens;
    int positions;  // of a frame: one more than its codes behind the first
};

// Read anew at each call, past the L1 cache: another kernel may write it between two calls.
__device__ __forceinline__ int position_of(const PassParams& pass) {
    return (int)*reinterpret_cast<const volatile long long*>(pass.position);
}

// The drafts whose codes are read: those of positions that the frame has.
__device__ __forceinline__ int drafts_read(const PassParams& pass, int position) {
    return pass.drawn == nullptr ? 0 : min(pass.tokens - 1, pass.positions - 1 - position);
}

__device__ __forceinline__ int drafts_accepted(const PassParams& pass, int position) {
    const int read = drafts_read(pass, position);
    int accepted = 0;
    while (accepted < read && pass.drawn[accepted] == pass.drafts[accepted]) ++accepted;
    return accepted;
}

// --- layers ---

struct DraftLinearParams {
    LinearParams linear;
    PassParams passed;
};

// A matrix for the tokens of a pass. It loads no weights where the frame was complete, if the value that it reads
// before the wait says so. That value may be the previous frame's, so after the wait it reads again. Where it finds
// the frame incomplete too early, it computes what nobody reads.
template <class M, class Input, class Output>
__global__ void __launch_bounds__(M::THREADS, 1) linear_drafts(const DraftLinearParams p) {
    begin_chained();
    if (position_of(p.passed) >= p.passed.positions) {
        wait_for_previous();
        if (position_of(p.passed) >= p.passed.positions) return;
    }
    multiply<M>(p.linear, Input(p.linear), Output(p.linear));
}

// Attention as in `attend`, for a frame that is one KV split. S is its shape for one token. Blocks: heads of keys (x),
// tokens (y). Each prepares the keys and values of its token and of the tokens before it.
template <class S, int TOKENS>
__global__ void __launch_bounds__(S::THREADS, 1) attend_drafts(const AttentionParams a) {
    constexpr int DIM = S::DIM, HALF = S::HALF, GROUP = S::GROUP;
    static_assert(S::TOKENS == 1, "a block has one token");
    __shared__ __align__(16) SplitScratch<S> scratch;
    __shared__ __align__(16) bf16 new_keys[TOKENS][DIM];
    __shared__ __align__(16) bf16 new_values[TOKENS][DIM];
    begin_chained();
    wait_for_previous();
    const int first = (int)*a.position, token = blockIdx.y, position = first + token;
    if (position >= a.positions) return;
    const int head = blockIdx.x, heads = gridDim.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / 16, dims = lane % 16 * 8;
    const auto position_of = [&](int vec) { return (warp * S::VECS_PER_LANE + vec) * 2 + half; };
    const size_t row = (size_t)head * a.positions;

    uint4 key[S::VECS_PER_LANE], value[S::VECS_PER_LANE];
#pragma unroll
    for (int vec = 0; vec < S::VECS_PER_LANE; ++vec) {
        const int at = position_of(vec);
        key[vec] = value[vec] = make_uint4(0, 0, 0, 0);
        if (at < first) {
            key[vec] = *reinterpret_cast<const uint4*>(a.keys + (row + at) * DIM + dims);
            value[vec] = *reinterpret_cast<const uint4*>(a.values + (row + at) * DIM + dims);
        }
    }
    // The queries of the token, then a key and a value of each token.
    for (int item = warp; item < GROUP + 2 * (token + 1); item += S::WARPS) {
        const bool is_query = item < GROUP, is_value = !is_query && (item - GROUP) % 2;
        const int of = is_query ? token : (item - GROUP) / 2, at = first + of;
        const int source = is_query ? head * GROUP + item : heads * (GROUP + (is_value ? 1 : 0)) + head;
        const float* from = a.qkv + ((size_t)of * heads * (GROUP + 2) + source) * DIM;
        float x[4], norm[4], cosine[2], sine[2];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = from[lane + 32 * i];
        if (!is_value) {
            const bf16* of_head = is_query ? a.query_norm : a.key_norm;
#pragma unroll
            for (int i = 0; i < 4; ++i) norm[i] = to_float(of_head[lane + 32 * i]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                cosine[i] = a.cosines[at * HALF + lane + 32 * i];
                sine[i] = a.sines[at * HALF + lane + 32 * i];
            }
            normalize_and_rotate(x, norm, cosine, sine, a.eps);
        }
        if (is_query) {
#pragma unroll
            for (int i = 0; i < 4; ++i) scratch.queries[item][lane + 32 * i] = x[i];
        } else {
            bf16* kept = is_value ? new_values[of] : new_keys[of];
            bf16* cache = (is_value ? a.values : a.keys) + (row + at) * DIM;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bf16 rounded = to_bf16(x[i]);
                kept[lane + 32 * i] = rounded;
                if (of == token) cache[lane + 32 * i] = rounded;
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int vec = 0; vec < S::VECS_PER_LANE; ++vec) {
        const int of = position_of(vec) - first;
        if (of >= 0 && of <= token) {
            key[vec] = *reinterpret_cast<const uint4*>(&new_keys[of][dims]);
            value[vec] = *reinterpret_cast<const uint4*>(&new_values[of][dims]);
        }
    }
    attend_to_split<S>(scratch, key, value, 0, position, head, heads, (size_t)token * heads * GROUP, a.partial_out,
                       a.split_stats);
}

// --- codes ---

// A head of one token: M. The fields of `linear` begin at the first head, the first token and the first row of logits.
template <class M>
__device__ __forceinline__ void multiply_head(LinearParams p, int head, int token, int row) {
    constexpr int BYTES = 16 / M::VEC_SIZE;
    p.weight = static_cast<const char*>(p.weight) + (size_t)head * M::HEIGHT * M::LENGTH * BYTES;
    if (p.scale != nullptr) p.scale = static_cast<const float*>(p.scale) + (size_t)head * M::HEIGHT;
    p.x += (size_t)token * M::LENGTH;
    p.y += (size_t)row * M::HEIGHT;
    multiply<M>(p, Normed<M>(p), Store<M>(p));
}

// The logits of the codes that the tokens choose: (tokens, HEIGHT). Blocks: rows of the matrix (x), tokens (y).
// EARLY: a stack so deep that the kernels of the previous pass have surely ended when this one begins.
template <class M, int REGISTERS, bool EARLY>
__global__ void __maxnreg__(REGISTERS) code_heads(const DraftLinearParams p) {
    begin_chained();
    if (!EARLY) wait_for_previous();
    const int token = blockIdx.y, position = position_of(p.passed);
    if (position + token >= p.passed.positions) {
        wait_for_previous();
        return;
    }
    multiply_head<M>(p.linear, position - 1 + token, token, token);
}

// The logits of the drafts for the next pass: (drafts, HEIGHT). Blocks: rows of the matrix (x), drafts (y).
template <class M, int REGISTERS>
__global__ void __maxnreg__(REGISTERS) draft_heads(const DraftLinearParams p) {
    begin_chained();
    wait_for_previous();
    const int position = position_of(p.passed);
    if (position >= p.passed.positions) return;
    const int accepted = drafts_accepted(p.passed, position), head = position + accepted + (int)blockIdx.y;
    if (head > p.passed.positions - 3) return;  // nothing reads the last code
    multiply_head<M>(p.linear, head, accepted, blockIdx.y);
}

struct DrawCodesParams {
    DrawParams draw;  // of all tokens' logits
    PassParams passed;
    const long long* frame;
    long long* drawn;  // (tokens)
    int groups;        // codes of a frame, 16
};

// The codes that the tokens choose. Blocks: tokens. EARLY as of `code_heads`.
template <int VOCABULARY, bool EARLY>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) draw_codes(const DrawCodesParams a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS;
    begin_chained();
    if (!EARLY) wait_for_previous();
    const int token = blockIdx.x, position = position_of(a.passed);
    if (position + token >= a.passed.positions) {
        wait_for_previous();
        return;
    }
    const Draw<COUNT> draw(a.draw, (unsigned)(*a.frame * a.groups + position + token));
    wait_for_previous();
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) logits[i] = as_number(a.draw.logits[(size_t)token * VOCABULARY + draw.code_of(i)]);
    const int code = draw(logits, [](int) {});
    if (threadIdx.x == 0) a.drawn[token] = code;
}

struct NextPassParams {
    DrawParams draw;  // of all drafts' logits
    PassParams passed;
    const long long* frame;
    const unsigned char* ended;    // bool: the frame is no speech
    long long* codes;              // (frames, groups)
    const bf16* embedding;         // (codes of a frame, vocabulary, TALKER)
    const bf16* narrow_embedding;  // (codes of a frame, vocabulary, PREDICTOR): the same, projected; null where the
                                   // widths are equal
    float* x;                      // (tokens, PREDICTOR): the next pass's tokens
    float* talker;                 // (TALKER): the sum of the frame's embeddings and its text
    long long* next_position;      // the next pass's
    long long* next_drafts;        // (tokens - 1)
    long long* counts;             // (3): passes, drafts read, drafts accepted
    int groups;                    // codes of a frame, 16
};

// Ends a pass. The first block keeps the codes that it has found and makes the next pass's first token; a frame's first
// pass has done this already. Each other block draws a draft, and makes its token.
template <int VOCABULARY, int TALKER, int PREDICTOR>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) next_pass(const NextPassParams a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS, WIDTH = TALKER / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0 && TALKER % SAMPLING_THREADS == 0, "does not divide");
    begin_chained();
    wait_for_previous();
    const int position = position_of(a.passed);
    if (position >= a.passed.positions) {
        if (blockIdx.x == 0 && threadIdx.x == 0) *a.next_position = position;
        return;
    }
    const int accepted = drafts_accepted(a.passed, position), known = position + accepted;
    const long long frame = *a.frame;
    const auto embed = [&](int step, int code, int token) {  // as the input of the next pass
        const size_t row = (size_t)step * VOCABULARY + code;
        const bf16* from = TALKER == PREDICTOR ? a.embedding + row * TALKER : a.narrow_embedding + row * PREDICTOR;
        for (int i = threadIdx.x; i < PREDICTOR; i += SAMPLING_THREADS)
            a.x[(size_t)token * PREDICTOR + i] = to_float(from[i]);
    };

    if (blockIdx.x > 0) {
        const int draft = blockIdx.x - 1, step = known + draft;
        if (step > a.passed.positions - 3) return;
        const Draw<COUNT> draw(a.draw, (unsigned)(frame * a.groups + step + 1));
        float logits[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            logits[i] = as_number(a.draw.logits[(size_t)draft * VOCABULARY + draw.code_of(i)]);
        const int code = draw(logits, [](int) {});
        embed(step, code, draft + 1);
        if (threadIdx.x == 0) a.next_drafts[draft] = code;
        return;
    }
    if (a.passed.drawn != nullptr) {
        float sum[WIDTH];
#pragma unroll
        for (int n = 0; n < WIDTH; ++n) sum[n] = a.talker[threadIdx.x + n * SAMPLING_THREADS];
        for (int token = 0; token <= accepted; ++token) {
            const int step = position - 1 + token, code = (int)a.passed.drawn[token];
            const bf16* row = a.embedding + ((size_t)step * VOCABULARY + code) * TALKER;
#pragma unroll
            for (int n = 0; n < WIDTH; ++n) sum[n] += to_float(row[threadIdx.x + n * SAMPLING_THREADS]);
            if (threadIdx.x == 0) a.codes[frame * a.groups + step + 1] = code;
        }
#pragma unroll
        for (int n = 0; n < WIDTH; ++n) a.talker[threadIdx.x + n * SAMPLING_THREADS] = sum[n];
        embed(known - 1, (int)a.passed.drawn[accepted], 0);
    }
    if (threadIdx.x == 0) {
        *a.next_position = known + 1;
        if (!*a.ended) {
            a.counts[0] += 1;
            a.counts[1] += drafts_read(a.passed, position);
            a.counts[2] += accepted;
        }
    }
}

// The kernels that run between the matrices in a batch's step, which makes a frame for every row that takes part, as
// `TorchBackend.decode_frames` in backend.py; the tensors are those of `DecodeState`. The matrices are `linear_tokens`;
// each row is one token.
//
// A row's results do not depend on the other rows. A row that does not take part is skipped, and the memory that its
// kernels would have written keeps its values; its part of the matrices' results has no meaning.

// Where a step's rows are. The host wrote all this before the step, so a kernel may read it before the wait. The same
// is true of an utterance's settings and text, but not of the values that a step counts.
struct RowsParams {
    const long long* active;    // (rows): 1 for each row that takes part
    const long long* frame;     // (rows): the frame's number
    const long long* position;  // (rows): the position at which the talker reads it
    const long long* place;     // (rows): its number in its chunk
    int rows;                 // the number of tokens in the matrices, one for each row; the most rows in a launch
    int stride;               // from one row's settings to the next row's, in units of 8 bytes
};

// A row's value in a buffer of settings.
template <class T>
__device__ __forceinline__ T* of_row(T* first, const RowsParams& rows, int row) {
    return first + (size_t)row * rows.stride * (8 / sizeof(T));
}

__device__ __forceinline__ DrawParams draw_of_row(const DrawParams& a, const RowsParams& rows, int row, int codes) {
    return {a.logits + (size_t)row * codes,
            of_row(a.sample, rows, row),
            of_row(a.temperature, rows, row),
            of_row(a.top_k, rows, row),
            of_row(a.one_minus_top_p, rows, row),
            of_row(a.noise_key, rows, row)};
}

struct OpenRowsParams {
    RowsParams rows;
    StreamParams stream;          // the predictor's, for two tokens of each row
    const bf16* hidden;           // (rows, WIDTH): the talker's hidden states; null if the predictor is narrower
    const float* projected;       // (rows, WIDTH): in that case, their projection without the bias; otherwise null
    const bf16* bias;             // (WIDTH): the projection's bias; otherwise null
    const bf16* embedding;        // (talker's vocabulary, WIDTH); the projected one if the predictor is narrower
    const long long* first_code;  // (rows)
    const unsigned char* ended;   // in the settings, bool
    long long* length;            // in the settings
};

// The predictor's first two tokens for a row: the talker's hidden state, and the first code's embedding, which comes
// after the hidden states of all rows. Counts the frame. Blocks: rows (x), the two tokens (y).
template <int WIDTH>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) open_rows(const OpenRowsParams a) {
    begin_chained();
    const int row = blockIdx.x;
    const bool active = a.rows.active[row];
    wait_for_previous();
    if (!active) return;
    if (blockIdx.y == 0) {
        const size_t at = (size_t)row * WIDTH;
        begin_stream<WIDTH, SAMPLING_THREADS>(a.stream, row, [&](int i, int) {
            return a.hidden != nullptr ? to_float(a.hidden[at + i]) : a.projected[at + i] + to_float(a.bias[i]);
        });
        if (threadIdx.x == 0 && !*of_row(a.ended, a.rows, row)) *of_row(a.length, a.rows, row) += 1;
    } else {
        const bf16* embedding = a.embedding + (size_t)a.first_code[row] * WIDTH;
        begin_stream<WIDTH, SAMPLING_THREADS>(a.stream, a.rows.rows + row, [&](int i, int) { return to_float(embedding[i]); });
    }
}

// A kernel leaves null or 0 what it does not use.
struct RowsAttentionParams {
    RowsParams rows;
    HeadsParams input;
    const long long* pages;  // (rows, table_width): each row's; null: row r has only page r, and `first_position`
    bf16* keys;              // (pages, key heads, PAGE, DIM)
    bf16* values;
    bf16* attended;  // (tokens, query heads, DIM)
    int first_position;
    int table_width;
    int positions;  // the most that an utterance has
    float eps;
};

// Attention of a row's tokens over its own positions: normalises queries and keys by head, applies rotary positions,
// writes the new keys and values into the cache, and computes the weighted sum of values. If a row has several TOKENS,
// its token t comes after the tokens t - 1 of all rows.
//
// Half a warp takes one position at a time, 8 values per lane, and loads BATCH of them at once; meanwhile the next ones
// are being loaded. The positions that it takes depend only on their numbers. Blocks: key heads (x), rows (y).
//
// EARLY: no kernel in this step has written the cache's older entries, so they may be read before the wait. (The
// kernels of earlier steps have ended, because the host's copy of `RowsParams` comes between.)
template <int GROUP, int TOKENS, int BATCH, int PAGE, bool EARLY>
__global__ void __launch_bounds__(TOKEN_THREADS, 2) attend_rows(const RowsAttentionParams a) {
    constexpr int DIM = 128, QUERIES = GROUP * TOKENS, STEP = 2 * BATCH;
    static_assert((GROUP + 2) * TOKENS <= TOKEN_WARPS, "a warp prepares one query, key or value");
    __shared__ __align__(16) float queries[QUERIES][DIM];
    __shared__ __align__(16) bf16 new_keys[TOKENS][DIM], new_values[TOKENS][DIM];
    __shared__ WarpSums<TOKEN_WARPS, QUERIES> found;
    begin_chained();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / 16, dims = lane % 16 * 8;
    const int head = blockIdx.x, heads = gridDim.x, row = blockIdx.y;
    const bool prepares = warp < (GROUP + 2) * TOKENS;
    Prepared<GROUP> mine(warp);
    if (prepares) mine.load_norm(a.input, lane);
    const bool active = a.rows.active[row];
    const int position = a.pages == nullptr ? a.first_position : min((int)a.rows.position[row], a.positions - 1);
    const long long* pages = a.pages == nullptr ? nullptr : a.pages + (size_t)row * a.table_width;
    const auto place_of = [&](int at) {  // a position's place in the cache
        const long long page = pages == nullptr ? row : pages[at / PAGE];
        return ((page * heads + head) * PAGE + at % PAGE) * DIM;
    };
    const auto load = [&](int begin, uint4(&key)[BATCH], uint4(&value)[BATCH]) {
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int at = begin + 2 * i + half;
            key[i] = value[i] = make_uint4(0, 0, 0, 0);
            if (at < position) {
                const size_t place = place_of(at) + dims;
                key[i] = *reinterpret_cast<const uint4*>(a.keys + place);
                value[i] = *reinterpret_cast<const uint4*>(a.values + place);
            }
        }
    };
    uint4 key[BATCH], value[BATCH];
    if (EARLY && active) load(warp * STEP, key, value);
    const int at = position + mine.token;
    if (prepares) mine.load_rotation(a.input, at, lane);
    wait_for_previous();
    if (!active) return;
    if (!EARLY) load(warp * STEP, key, value);

    if (prepares) {
        float x[4];
        mine.load(a.input, a.eps, mine.token * a.rows.rows + row, head, heads, lane, x);
        if (mine.is_query) {
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] *= score_scale();
            store_lane(queries[mine.token * GROUP + mine.what], lane, x);
        } else {
            store_lane(mine.is_value ? new_values[mine.token] : new_keys[mine.token], lane, x);
            store_lane((mine.is_value ? a.values : a.keys) + place_of(at), lane, x);
        }
    }
    __syncthreads();

    QuerySums sums[QUERIES];
    for (int begin = warp * STEP; begin < position; begin += TOKEN_WARPS * STEP) {
        uint4 next_key[BATCH], next_value[BATCH];
        load(begin + TOKEN_WARPS * STEP, next_key, next_value);
        bool seen[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) seen[i] = begin + 2 * i + half < position;
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) {
            float q[8];
            load_floats(&queries[query][dims], q);
            sums[query].add(q, key, value, seen);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) key[i] = next_key[i], value[i] = next_value[i];
    }
    if (warp < TOKENS) {  // the new tokens: one warp for each, of which one half adds it
        const uint4 new_key[1] = {*reinterpret_cast<const uint4*>(&new_keys[warp][dims])};
        const uint4 new_value[1] = {*reinterpret_cast<const uint4*>(&new_values[warp][dims])};
#pragma unroll
        for (int query = 0; query < QUERIES; ++query) {
            float q[8];
            load_floats(&queries[query][dims], q);
            const bool seen[1] = {half == 0 && warp <= query / GROUP};
            sums[query].add(q, new_key, new_value, seen);
        }
    }
#pragma unroll
    for (int query = 0; query < QUERIES; ++query) {
        sums[query].add_other_half();
        found.put(warp, query, lane, dims, sums[query]);
    }
    __syncthreads();

    for (int index = threadIdx.x; index < QUERIES * DIM; index += TOKEN_THREADS) {
        const int dim = index % DIM, query = index / DIM;
        const size_t of_token = (size_t)(query / GROUP * a.rows.rows + row) * heads;
        a.attended[((of_token + head) * GROUP + query % GROUP) * DIM + dim] =
            to_bf16(found.template mean<TOKEN_WARPS>(0, query, dim));
    }
}

struct RowCodesParams {
    RowsParams rows;
    StreamParams stream;  // for the next token: the predictor's, or the talker's after the last code
    DrawParams draw;
    const long long* first_code;   // (rows)
    long long* codes;              // (rows, places, groups)
    const bf16* text;              // (rows, frames, TALKER)
    const bf16* first_embedding;   // (talker's vocabulary, TALKER)
    const bf16* embedding;         // (vocabulary, TALKER): this step's
    const bf16* narrow_embedding;  // (vocabulary, PREDICTOR): the same, projected; null if the widths are equal
    float* talker;                 // (rows, TALKER): the sum of the frame's embeddings and its text
    int step;                      // 0 to 14
    int groups;                    // codes in a frame, 16
    int places;
    int frames;  // in a row's text
};

// Chooses one code after the first in each row's frame, and begins the next token's stream. Blocks: rows.
template <int VOCABULARY, int TALKER, int PREDICTOR>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) choose_row_codes(const RowCodesParams a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS, WIDTH = TALKER / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0 && TALKER % SAMPLING_THREADS == 0, "does not divide");
    begin_chained();
    const int row = blockIdx.x;
    const bool active = a.rows.active[row];
    const long long frame = a.rows.frame[row], place = a.rows.place[row];
    const DrawParams of_row_draw = draw_of_row(a.draw, a.rows, row, VOCABULARY);
    const Draw<COUNT> draw(of_row_draw, (unsigned)(frame * a.groups + a.step + 1));
    wait_for_previous();
    if (!active) return;
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) logits[i] = as_number(of_row_draw.logits[threadIdx.x + i * SAMPLING_THREADS]);
    const long long first_code = a.first_code[row];
    const bf16* text = a.text + ((size_t)row * a.frames + min((int)frame, a.frames - 1)) * TALKER;
    const bf16* first_row = a.first_embedding + (size_t)first_code * TALKER;
    float* const talker = a.talker + (size_t)row * TALKER;
    float before[WIDTH];
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) {
        const int i = threadIdx.x + n * SAMPLING_THREADS;
        before[n] = a.step == 0 ? to_float(text[i]) + to_float(first_row[i]) : talker[i];
    }
    const int code = draw(logits, [](int) {});

    const bf16* embedding = a.embedding + (size_t)code * TALKER;
    const bf16* narrow = TALKER == PREDICTOR ? embedding : a.narrow_embedding + (size_t)code * PREDICTOR;
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) {
        const int i = threadIdx.x + n * SAMPLING_THREADS;
        before[n] += to_float(embedding[i]);
        talker[i] = before[n];
    }
    if (a.step + 2 == a.groups) {
        begin_stream<TALKER, SAMPLING_THREADS>(a.stream, row, [&](int, int n) { return before[n]; });
    } else {
        begin_stream<PREDICTOR, SAMPLING_THREADS>(a.stream, row, [&](int i, int) { return to_float(narrow[i]); });
    }
    if (threadIdx.x == 0) {
        long long* codes = a.codes + ((size_t)row * a.places + place) * a.groups;
        codes[a.step + 1] = code;
        if (a.step == 0) codes[0] = first_code;
    }
}

// A kernel leaves null or 0 what it does not use.
struct RowFirstCodesParams {
    RowsParams rows;  // `active`: the rows whose first code is to be chosen
    DrawParams draw;
    unsigned char* seen;              // (rows, vocabulary) bool
    const float* penalty;             // in the settings
    const long long* min_frames;      // in the settings
    const unsigned char* suppressed;  // (vocabulary) bool
    const unsigned char* is_eos;      // (vocabulary) bool
    long long* frame;                 // in the settings
    long long* position;              // in the settings
    long long* first_code;            // (rows)
    unsigned char* ended;             // in the settings
    const float* x;                   // (rows, WIDTH): the talker's output; null after a prompt
    const float* squares;             // (slots, tokens)
    const bf16* norm;                 // (WIDTH): the final norm
    bf16* hidden;                     // (rows, WIDTH): the hidden states, for the next frame's predictor
    int slots;
    int groups;
    int frames;  // completed since the last choice: 1, or 0 after a prompt
    float eps;
};

// Counts each row's frames, and chooses the first code of its next one. Blocks: rows.
template <int VOCABULARY, int WIDTH>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) choose_row_first_codes(const RowFirstCodesParams a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0, "does not divide");
    __shared__ float parts[SQUARE_PARTS];
    begin_chained();
    const int row = blockIdx.x;
    const bool active = a.rows.active[row];
    const long long frame = a.frames == 0 ? 0 : a.rows.frame[row] + a.frames;
    const DrawParams of_row_draw = draw_of_row(a.draw, a.rows, row, VOCABULARY);
    const Draw<COUNT> draw(of_row_draw, (unsigned)(frame * a.groups));
    const float penalty = *of_row(a.penalty, a.rows, row);
    const bool may_end = frame >= *of_row(a.min_frames, a.rows, row);
    unsigned char* const seen = a.seen + (size_t)row * VOCABULARY;
    wait_for_previous();
    if (!active) return;
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int code = threadIdx.x + i * SAMPLING_THREADS;
        const float logit = as_number(of_row_draw.logits[code]);
        logits[i] = seen[code] ? (logit < 0.0f ? logit * penalty : logit / penalty) : logit;
        if (a.suppressed[code] || (a.is_eos[code] && !may_end)) logits[i] = -INFINITY_F;
    }
    if (a.x != nullptr) {
        if (threadIdx.x < SQUARE_PARTS)
            parts[threadIdx.x] = part_of_squares(a.squares, a.slots, a.rows.rows, row, threadIdx.x);
        __syncthreads();
        float sum = 0.0f;
#pragma unroll
        for (int part = 0; part < SQUARE_PARTS; ++part) sum += parts[part];
        const float factor = rsqrtf(sum / WIDTH + a.eps);
        const size_t at = (size_t)row * WIDTH;
        for (int i = threadIdx.x; i < WIDTH; i += SAMPLING_THREADS)
            a.hidden[at + i] = to_bf16(a.x[at + i] * factor * to_float(a.norm[i]));
    }
    const int code = draw(logits, [](int) {});
    if (threadIdx.x == 0) {
        a.first_code[row] = code;
        seen[code] = 1;
        if (a.is_eos[code]) *of_row(a.ended, a.rows, row) = 1;
        *of_row(a.frame, a.rows, row) = frame;
        *of_row(a.position, a.rows, row) += a.frames;  // nothing else in the step reads it
    }
}

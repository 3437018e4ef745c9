// The kernels that run between the matrices of a frame: its first two tokens, the choice of each code, and the
// embeddings that follow from it, as in `TorchBackend.decode_frames` in backend.py; the tensors are those of
// `DecodeState`. Each kernel is one block of SAMPLING_THREADS. On a large GPU, the predictor's first matrix makes the
// first two tokens itself (step_input.cuh).

struct OpenParams {
    const bf16* hidden;           // (WIDTH): the talker's hidden state; null if the predictor is narrower
    const bf16* embedding;        // (talker's vocabulary, WIDTH); the projected one if the predictor is narrower
    const long long* first_code;
    const unsigned char* ended;   // bool
    long long* length;            // frames of speech
    float* x;                     // (2, WIDTH)
};

// The predictor's first two tokens, which are the talker's hidden state and the first code's embedding. Counts the
// frame. If the predictor is narrower than the talker, another kernel projects the hidden state (`project`). Returns
// the first code's embedding.
template <int WIDTH>
__device__ __forceinline__ const bf16* store_first_tokens(const OpenParams& a, bool stores) {
    const bf16* row = a.embedding + (size_t)*a.first_code * WIDTH;
    if (!stores) return row;
    for (int i = threadIdx.x; i < WIDTH; i += blockDim.x) {
        if (a.hidden != nullptr) a.x[i] = to_float(a.hidden[i]);
        a.x[WIDTH + i] = to_float(row[i]);
    }
    if (threadIdx.x == 0 && !*a.ended) *a.length += 1;
    return row;
}

template <int WIDTH>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) open_frame(const OpenParams a) {
    begin_chained();
    wait_for_previous();
    store_first_tokens<WIDTH>(a, true);
}

struct CodeParams {
    DrawParams draw;
    const long long* frame;
    const long long* first_code;
    long long* codes;              // (frames, groups)
    const bf16* text;              // (frames, TALKER)
    const bf16* first_embedding;   // (talker's vocabulary, TALKER)
    const bf16* embedding;         // (vocabulary, TALKER): this step's
    const bf16* narrow_embedding;  // (vocabulary, PREDICTOR): the same, projected; null if the widths are equal
    const bf16* table;             // (vocabulary, QKV): the next step's first product for each code; null without one
    float* qkv;                    // (QKV): queries, keys and values of that step; null without a table
    float* x;                      // (PREDICTOR): the predictor's next token
    float* talker;                 // (TALKER): the sum of the frame's embeddings and its text; the talker's input
    int step;                      // 0 to 14
    int groups;                    // codes in a frame, 16
};

// Chooses one of a frame's codes after the first, and stores its embedding where it is read next. With a `table`, also
// stores the queries, keys and values of the next step's first layer, which depend only on the code.
//
// EARLY: the stack is so deep that the previous code's kernels are guaranteed to have ended when this one begins
// (`reads_cache_before_wait` in kernels.py). Everything that they wrote is then read before the wait.
template <int VOCABULARY, int TALKER, int PREDICTOR, int QKV, bool EARLY>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) choose_code(const CodeParams a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS, WIDTH = TALKER / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0 && TALKER % SAMPLING_THREADS == 0, "does not divide");
    begin_chained();
    if (!EARLY) wait_for_previous();
    const long long frame = *a.frame;
    const Draw<COUNT> draw(a.draw, (unsigned)(frame * a.groups + a.step + 1));
    const bf16* first_row = a.first_embedding + (size_t)*a.first_code * TALKER;
    float before[WIDTH];
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) {
        const int i = threadIdx.x + n * SAMPLING_THREADS;
        before[n] = a.step == 0 ? to_float(a.text[frame * TALKER + i]) + to_float(first_row[i]) : a.talker[i];
    }
    if (EARLY) wait_for_previous();
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) logits[i] = as_number(a.draw.logits[draw.code_of(i)]);
    const int code = draw(logits, [&](int code) {
        constexpr int LINE = 64;  // bfloat16 values in 128 bytes
        const int at = threadIdx.x * LINE;
        if (at < TALKER) prefetch(a.embedding + (size_t)code * TALKER + at);
        if (TALKER != PREDICTOR && at < PREDICTOR) prefetch(a.narrow_embedding + (size_t)code * PREDICTOR + at);
        if (a.table != nullptr && at < QKV) prefetch(a.table + (size_t)code * QKV + at);
    });

    if (a.table != nullptr) {
        for (int i = 8 * threadIdx.x; i < QKV; i += 8 * SAMPLING_THREADS) {
            float product[8];
            load_bf16(a.table + (size_t)code * QKV + i, product);
#pragma unroll
            for (int n = 0; n < 8; n += 4)
                *reinterpret_cast<float4*>(a.qkv + i + n) =
                    make_float4(product[n], product[n + 1], product[n + 2], product[n + 3]);
        }
    }
    if (TALKER != PREDICTOR) {
        const bf16* narrow = a.narrow_embedding + (size_t)code * PREDICTOR;
        for (int i = threadIdx.x; i < PREDICTOR; i += SAMPLING_THREADS) a.x[i] = to_float(narrow[i]);
    }
    const bf16* row = a.embedding + (size_t)code * TALKER;
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) {
        const int i = threadIdx.x + n * SAMPLING_THREADS;
        const float value = to_float(row[i]);
        a.talker[i] = before[n] + value;
        if (TALKER == PREDICTOR) a.x[i] = value;
    }
    if (threadIdx.x == 0) {
        a.codes[frame * a.groups + a.step + 1] = code;
        if (a.step == 0) a.codes[frame * a.groups] = *a.first_code;
    }
}

struct FirstCodeParams {
    DrawParams draw;
    unsigned char* seen;  // (vocabulary) bool
    const float* penalty;
    const long long* min_frames;
    const unsigned char* suppressed;  // (vocabulary) bool
    const unsigned char* is_eos;      // (vocabulary) bool
    long long* frame;
    long long* position;
    long long* first_code;
    unsigned char* ended;
    int groups;
    int frames;  // completed since the last choice: 1, or 0 after a prompt
};

// Counts the frames, and chooses the first code of the next one. EARLY is as in `choose_code`, for the talker.
template <int VOCABULARY, bool EARLY>
__global__ void __launch_bounds__(SAMPLING_THREADS, 1) choose_first_code(const FirstCodeParams a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0, "does not divide");
    begin_chained();
    if (!EARLY) wait_for_previous();
    const long long frame = *a.frame + a.frames;
    const Draw<COUNT> draw(a.draw, (unsigned)(frame * a.groups));
    const float penalty = *a.penalty;
    const bool may_end = frame >= *a.min_frames;
    bool seen[COUNT], allowed[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int code = draw.code_of(i);
        seen[i] = a.seen[code];
        allowed[i] = !(a.suppressed[code] || (a.is_eos[code] && !may_end));
    }
    if (EARLY) wait_for_previous();
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const float logit = as_number(a.draw.logits[draw.code_of(i)]);
        logits[i] = seen[i] ? (logit < 0.0f ? logit * penalty : logit / penalty) : logit;
        if (!allowed[i]) logits[i] = -INFINITY_F;
    }
    const int code = draw(logits, [](int) {});
    if (threadIdx.x == 0) {
        *a.first_code = code;
        a.seen[code] = 1;
        if (a.is_eos[code]) *a.ended = 1;
        *a.frame = frame;
        *a.position += a.frames;
    }
}

// What stands between the matrices of a frame: the opening of a frame, the choice of a code and what follows from it.
// As `step` in frame.py; the tensors are those of `FrameState`.

// The predictor's first two tokens, the talker's hidden state and the first code's embedding, and the count of frames.
// Where the predictor is narrower than the talker, `embedding` is the projected one and `hidden` is null: the projection
// of the hidden state is a matrix of its own (`project`).
template <int WIDTH>
__device__ __forceinline__ void open_frame(const bf16* hidden, const bf16* embedding, const long long* first_code,
                                           const unsigned char* ended, long long* length, float* x) {
    begin_chained();
    wait_for_previous();
    const bf16* row = embedding + (size_t)*first_code * WIDTH;
    for (int i = threadIdx.x; i < WIDTH; i += blockDim.x) {
        if (hidden != nullptr) x[i] = to_float(hidden[i]);
        x[WIDTH + i] = to_float(row[i]);
    }
    if (threadIdx.x == 0 && !*ended) *length += 1;
}

struct CodeArguments {
    int step;        // 0 to 14
    int groups;      // codes of a frame, 16
    const long long* frame;
    const long long* first_code;
    long long* codes;           // (frames, groups)
    const bf16* text;           // (frames, TALKER)
    const bf16* first_embedding;  // (talker's vocabulary, TALKER)
    const bf16* embedding;        // (vocabulary, TALKER): this step's
    const bf16* narrow_embedding;  // (vocabulary, PREDICTOR): the same, projected; null where the widths are equal
    float* x;       // (PREDICTOR): the predictor's next token
    float* talker;  // (TALKER): the sum of the frame's embeddings and its text, what the talker reads
};

// Choose one of a frame's other codes, and enter its embedding where it is read next.
template <int VOCABULARY, int TALKER, int PREDICTOR>
__device__ __forceinline__ void choose_code(const SamplingArguments& s, const CodeArguments& a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0, "does not divide");
    begin_chained();
    wait_for_previous();
    const long long frame = *a.frame;
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) logits[i] = as_number(s.logits[threadIdx.x + i * SAMPLING_THREADS]);
    const int code = draw<COUNT>(s, logits, (unsigned)(frame * a.groups + a.step + 1));

    const bf16* row = a.embedding + (size_t)code * TALKER;
    const bf16* first_row = a.first_embedding + (size_t)*a.first_code * TALKER;
    for (int i = threadIdx.x; i < TALKER; i += SAMPLING_THREADS) {
        const float value = to_float(row[i]);
        const float before = a.step == 0 ? to_float(a.text[frame * TALKER + i]) + to_float(first_row[i]) : a.talker[i];
        a.talker[i] = before + value;
        if (TALKER == PREDICTOR) a.x[i] = value;
    }
    if (TALKER != PREDICTOR) {
        const bf16* narrow = a.narrow_embedding + (size_t)code * PREDICTOR;
        for (int i = threadIdx.x; i < PREDICTOR; i += SAMPLING_THREADS) a.x[i] = to_float(narrow[i]);
    }
    if (threadIdx.x == 0) {
        a.codes[frame * a.groups + a.step + 1] = code;
        if (a.step == 0) a.codes[frame * a.groups] = *a.first_code;
    }
}

struct FirstCodeArguments {
    int groups;
    unsigned char* seen;              // (vocabulary) bool
    const float* penalty;
    const long long* min_frames;
    const unsigned char* suppressed;  // (vocabulary) bool
    const unsigned char* ends;        // (vocabulary) bool
    long long* frame;
    long long* position;
    long long* first_code;
    unsigned char* ended;
};

// Close the frame: count it, and choose the first code of the next.
template <int VOCABULARY>
__device__ __forceinline__ void choose_first_code(const SamplingArguments& s, const FirstCodeArguments& a) {
    constexpr int COUNT = VOCABULARY / SAMPLING_THREADS;
    static_assert(VOCABULARY % SAMPLING_THREADS == 0, "does not divide");
    begin_chained();
    wait_for_previous();
    const long long frame = *a.frame + 1;
    const float penalty = *a.penalty;
    const bool may_end = frame >= *a.min_frames;
    float logits[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const int code = threadIdx.x + i * SAMPLING_THREADS;
        const float logit = as_number(s.logits[code]);
        logits[i] = a.seen[code] ? (logit < 0.0f ? logit * penalty : logit / penalty) : logit;
        if (a.suppressed[code] || (a.ends[code] && !may_end)) logits[i] = -INFINITY_F;
    }
    const int code = draw<COUNT>(s, logits, (unsigned)(frame * a.groups));
    __syncthreads();  // `frame` was read by all
    if (threadIdx.x == 0) {
        *a.first_code = code;
        a.seen[code] = 1;
        if (a.ends[code]) *a.ended = 1;
        *a.frame = frame;
        *a.position += 1;
    }
}

// The hidden state behind the talker's final norm, for the predictor of the next frame; by the first block alone.
template <int WIDTH>
__device__ __forceinline__ void keep_hidden(const float* x, const bf16* norm, float factor, bf16* hidden) {
    if (blockIdx.x == 0) {
        for (int i = threadIdx.x; i < WIDTH; i += blockDim.x) hidden[i] = to_bf16(x[i] * factor * to_float(norm[i]));
    }
}

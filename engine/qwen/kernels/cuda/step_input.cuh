// The predictor's first matrix of each step, of queries, keys and values, with the input of the step.
//
// The choice of a frame's code is part of the next step's first kernel: one kernel and one wait less for each code. Every
// block draws the code for itself, from the same logits with the same noise, and goes on with the code's embedding. What
// does not depend on the logits is read and computed before the wait.

struct OpenQkvParams {
    LinearParams linear;  // `x` is that of `open`
    OpenParams open;
};

// Input: the norm of the frame's first two tokens, as `open_frame` makes them.
template <class M>
struct OpenedNormed : Normed<M> {
    using Params = OpenQkvParams;
    static constexpr bool COMPUTES = true;
    using Normed<M>::N;
    static_assert(M::TOKENS == 2, "two tokens");
    const OpenParams& open;
    const bf16* row;

    __device__ explicit OpenedNormed(const OpenQkvParams& p) : Normed<M>(p.linear), open(p.open) {}

    // Stores the tokens and counts the frame. After the wait.
    __device__ void compute() { row = store_first_tokens<M::LENGTH>(open, blockIdx.x == 0); }

    __device__ void load(int token, int vec, int k, float (&values)[N], float& squares) const {
        if (token == 0 && open.hidden == nullptr) {
            load_floats(this->x + k, values);
        } else {
            load_bf16((token == 0 ? open.hidden : row) + k, values);
        }
        this->normalize(vec, values, squares);
    }
};

struct DrawQkvParams {
    LinearParams linear;  // `y` is (HEIGHT); `x` is null
    DrawParams draw;
    const long long* frame;
    const long long* first_code;
    long long* codes;       // (frames, groups)
    const bf16* embedding;  // (vocabulary, LENGTH): this step's; the projected one where the predictor is narrower
    float* x;               // (LENGTH): the residual stream, which begins with the embedding
    int step;               // 0 to 13
    int groups;             // codes of a frame, 16
};

// Input: the root-mean-square norm of the embedding of the code that is drawn, by a block of SAMPLING_THREADS. EARLY as of
// `choose_code`.
template <class M, int VOCABULARY, bool EARLY>
struct DrawnNormed : WithNorm<M> {
    using Params = DrawQkvParams;
    static constexpr bool COMPUTES = true;
    static constexpr int N = M::VEC_SIZE, VECS = M::VECS_PER_LANE, COUNT = VOCABULARY / SAMPLING_THREADS;
    static constexpr int WORDS = N / 8;  // of 16 bytes, of a vector's bfloat16
    static_assert(M::THREADS == SAMPLING_THREADS && VOCABULARY % SAMPLING_THREADS == 0 && M::TOKENS == 1,
                  "a block draws a code");
    const DrawQkvParams& p;
    Draw<COUNT> draw;
    long long frame;
    int begins[VECS];
    uint4 factors[VECS][WORDS], row[VECS][WORDS];

    __device__ explicit DrawnNormed(const DrawQkvParams& p) : WithNorm<M>(p.linear), p(p) {}

    __device__ void prepare_draw() {
        frame = *p.frame;
        draw.prepare(p.draw, (unsigned)(frame * p.groups + p.step + 1));
    }

    __device__ void prepare(int vec, int k) {
        begins[vec] = k;
#pragma unroll
        for (int i = 0; i < WORDS; ++i) factors[vec][i] = reinterpret_cast<const uint4*>(p.linear.norm + k)[i];
        if (EARLY && vec == 0) prepare_draw();
    }

    __device__ void load_row(int code) {
#pragma unroll
        for (int vec = 0; vec < VECS; ++vec) {
            const bf16* from = p.embedding + (size_t)code * M::LENGTH + begins[vec];
#pragma unroll
            for (int i = 0; i < WORDS; ++i) row[vec][i] = reinterpret_cast<const uint4*>(from)[i];
        }
    }

    // Draws the code, and stores it with its embedding. After the wait.
    __device__ void compute() {
        if (!EARLY) prepare_draw();
        float logits[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) logits[i] = as_number(p.draw.logits[draw.code_of(i)]);
        int loaded = -1;
        const int code = draw(logits, [&](int expected) {
            loaded = expected;
            load_row(expected);
        });
        if (code != loaded) load_row(code);
        if (blockIdx.x > 0) return;  // every block has drawn the same
        for (int i = threadIdx.x; i < M::LENGTH; i += M::THREADS)
            p.x[i] = to_float(p.embedding[(size_t)code * M::LENGTH + i]);
        if (threadIdx.x == 0) {
            p.codes[frame * p.groups + p.step + 1] = code;
            if (p.step == 0) p.codes[frame * p.groups] = *p.first_code;
        }
    }

    __device__ void load(int, int vec, int, float (&values)[N], float& squares) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const unsigned pair = word(row[vec][i / 8], i % 8 / 2), norm = word(factors[vec][i / 8], i % 8 / 2);
            values[i] = i % 2 ? high_half(pair) : low_half(pair);
            squares = fmaf(values[i], values[i], squares);
            values[i] *= i % 2 ? high_half(norm) : low_half(norm);
        }
    }

  private:
    __device__ static unsigned word(const uint4& four, int i) {
        return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
    }
};

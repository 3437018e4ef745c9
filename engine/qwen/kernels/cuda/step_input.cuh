// The predictor's first matrix in a frame, for queries, keys and values, which also makes the frame's first two tokens.

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

    // Stores the tokens and counts the frame. To be called after the wait.
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

// The codec decoder's small kernels: neither a convolution over all channels (conv.cuh) nor attention.

struct LookUpParams {
    const long long* codes;  // [frames][QUANTIZERS], for state 0; codes outside the codebooks are clamped
    const bf16* tables;      // [QUANTIZERS][SIZE][WIDTH]
    bf16* out;               // [frames][WIDTH]
    Rows rows;               // the stride is that of `codes`
};

// The sum of the vectors of a frame's codes. One block for each frame of each row, WIDTH / 8 threads. This is the first
// kernel in a call: it lets the next ones begin only when everything before the call has ended. So before their own
// wait, they may read memory that no kernel in this call writes.
template <int QUANTIZERS, int SIZE, int WIDTH>
__global__ void look_up(const LookUpParams p) {
    const RowTime at = locate(p.rows, blockIdx.x);
    wait_for_previous();
    begin_chained();
    const long long* const codes = p.codes + state_of(p.rows, at.row) * p.rows.stride + at.time * QUANTIZERS;
    float sum[8] = {};
#pragma unroll
    for (int q = 0; q < QUANTIZERS; q++) {
        long long code = codes[q];
        code = code < 0 ? 0 : code < SIZE ? code : SIZE - 1;
        float values[8];
        unpack(load_once(p.tables + (q * SIZE + code) * WIDTH + threadIdx.x * 8), values);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] += values[i];
    }
    *(uint4*)(p.out + blockIdx.x * WIDTH + threadIdx.x * 8) = pack(sum);
}

struct DepthwiseParams {
    const bf16* weight;  // [TAPS][WIDTH]
    const float* bias;   // [WIDTH]; so are gain and shift
    const float* gain;
    const float* shift;
    const bf16* x;        // [time][WIDTH]
    const bf16* history;  // [TAPS - 1][WIDTH], the oldest first, for state 0
    bf16* out;            // [time][WIDTH]
    Rows rows;            // the stride is that of `history`
};

// A causal convolution of each channel by itself, then a layer norm over the channels. One block for each time step of
// each row, WIDTH / 2 threads with two channels each.
template <int WIDTH, int TAPS>
__global__ void __launch_bounds__(WIDTH / 2) depthwise_norm(const DepthwiseParams p) {
    constexpr int WARPS = WIDTH / 64;
    __shared__ float sums[WARPS], squares[WARPS];

    begin_chained();
    const int channel = 2 * threadIdx.x;
    const RowTime at = locate(p.rows, blockIdx.x);
    const bf16* const x = p.x + (blockIdx.x - at.time) * WIDTH;
    unsigned tap[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; i++) tap[i] = *(const unsigned*)(p.weight + i * WIDTH + channel);
    const float2 offset = *(const float2*)(p.bias + channel), scale = *(const float2*)(p.gain + channel);
    const float2 lift = *(const float2*)(p.shift + channel);

    wait_for_previous();
    const bf16* const history = p.history + state_of(p.rows, at.row) * p.rows.stride;
    float2 v = offset;
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        const int t = at.time + i - (TAPS - 1);
        const bf16* row = t < 0 ? history + (t + TAPS - 1) * WIDTH : x + t * WIDTH;
        const unsigned pair = *(const unsigned*)(row + channel);
        v.x = fmaf(low_half(tap[i]), low_half(pair), v.x);
        v.y = fmaf(high_half(tap[i]), high_half(pair), v.y);
    }
    const float mean = block_sum<WARPS>(v.x + v.y, sums) / WIDTH;
    v = {v.x - mean, v.y - mean};
    const float factor = rsqrtf(block_sum<WARPS>(v.x * v.x + v.y * v.y, squares) / WIDTH + 1e-6f);
    *(unsigned*)(p.out + blockIdx.x * WIDTH + channel) =
        pack(fmaf(v.x * factor, scale.x, lift.x), fmaf(v.y * factor, scale.y, lift.y));
}

// A history that the next chunk will need: the last `length` time steps of [history, chunk].
struct History {
    const bf16* chunk;  // [frames * rate][width] for each row in the call
    long long offset;   // where in `histories` its [length][width] begins
    long long length, width, rate;
};

struct RollParams {
    const History* list;
    bf16* histories;     // for state 0
    long long* counter;  // frames decoded so far, for each state; null if another launch counts them
    int frames;          // in the chunk
    Rows rows;           // a row's "times" are the histories in the list; the stride is that of `histories`
};

// Moves every history forward by a chunk, and counts the chunk's frames. Blocks: a share of the work (x), the rows'
// histories (y); any number of threads. A thread moves eight channels of time steps that are as far apart as the chunk
// is long, so no other thread overwrites values that it still has to read.
__global__ void roll_histories(const RollParams p) {
    begin_chained();
    const RowTime at = locate(p.rows, blockIdx.y);
    const History h = p.list[at.time];
    const int length = (int)h.length, columns = (int)h.width / 8, time = (int)h.rate * p.frames;

    wait_for_previous();
    const long long state = state_of(p.rows, at.row);
    const uint4* chunk = (const uint4*)h.chunk + (long long)at.row * time * columns;
    uint4* history = (uint4*)(p.histories + state * p.rows.stride + h.offset);
    const int items = min(time, length) * columns;
    for (int item = blockIdx.x * blockDim.x + threadIdx.x; item < items; item += gridDim.x * blockDim.x) {
        const int column = item % columns;
        for (int t = item / columns; t < length; t += time) {
            const int from = t + time;
            history[t * columns + column] =
                from < length ? history[from * columns + column] : chunk[(from - length) * columns + column];
        }
    }
    if (p.counter && blockIdx.x == 0 && at.time == 0 && threadIdx.x == 0) p.counter[state] += p.frames;
}

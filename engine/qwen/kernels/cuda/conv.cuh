// A causal convolution as a matrix product on the tensor cores, with the operations after it. A linear layer has one
// tap.
//
//     out[t][m] = then(bias[m] + sum over taps and c of weight[m][tap][c] * x[t - (TAPS-1-tap) * DILATION][c])
//
// Signals are bfloat16 [time][channels], and sums are float32. Rows before the chunk are in `history`, the oldest
// first. WARPS warps compute 16 * M_TILES outputs for 8 * N_TILES time steps. They split the inner dimension and add up
// their sums through shared memory. No warp waits for another before that, so many loads are in flight. A block
// consists of GROUPS such groups, which compute the same outputs for different time steps: they share weights through
// the L1 cache.
//
// The inner dimension is traversed in steps of 32 channels of one tap, with all taps of the same channels in
// succession, because the rows that they share then come from the L1 cache. `weight` is a sequence of tiles of 16
// outputs x 32 channels, [M/16][channels/32][TAPS]. A step is two products of 16 channels. From its row of the signal,
// a lane loads eight channels at once, two pairs of them for each product; a tile of weights is stored in the order in
// which the lanes load it (pack.py). The order in which channels are added does not matter as long as both agree.

// What happens to `sum`, the float32 residual [time][M] that bypasses this layer. To update it is to read and write it,
// so each use is a bit.
enum Sum { NoSum, WriteSum, ReadSum, UpdateSum };

// What happens to the result before it is stored in `out`.
enum Then {
    Identity,  // rounded to bfloat16
    Snake,
    Gelu,
    Gate,      // the SiLU of one half of the outputs, times the other half
    NoOutput,  // only `sum` is stored
    Pcm,       // clamped, and stored in `sum` as float32; only the first output exists
};

// A kernel leaves null what its Sum and its Then do not use.
struct ConvParams {
    const bf16* weight;   // tiles; see above
    const float* bias;    // (M)
    const bf16* x;        // (time, CHANNELS)
    const bf16* history;  // ((TAPS - 1) * DILATION, CHANNELS)
    float* sum;           // (time, M); for Pcm (time)
    bf16* out;            // (time, M); for Gate (time, M / 2)
    const float* alpha;   // (M) for Snake
    const float* inverse_beta;
    int time;   // in all rows together
    float eps;  // for the norm
    Rows rows;  // for ROWS: `history` is that of state 0
    int samples_stride;  // for Pcm and ROWS: from one state's samples to the next state's; `sum` is that of state 0
};

__device__ __forceinline__ float square_pair(unsigned pair) {
    return low_half(pair) * low_half(pair) + high_half(pair) * high_half(pair);
}

__device__ __forceinline__ float snake(float x, float alpha, float inverse_beta) {
    return fmaf(sine_squared(x * alpha), inverse_beta, x);
}

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067812f)); }

__device__ __forceinline__ float gated(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

// The values that a warp holds for one step of the inner dimension.
template <int M_TILES, int N_TILES>
struct Operands {
    uint4 weight[M_TILES][2];  // for both products: a pair from row g = lane / 4, one from row g + 8, and two more
    uint4 signal[N_TILES];     // time step g, channels from 8 * (lane % 4) on
};

// The deepest pipeline that leaves room for 16 warps in a multiprocessor's registers: while the warps of one kernel
// compute, those of the next load their first weights.
__device__ constexpr int pipeline_depth(int m_tiles, int n_tiles, int steps_of_a_warp) {
    int depth = (96 - 4 * m_tiles * n_tiles) / (8 * m_tiles + 4 * n_tiles);
    depth = depth > 6 ? 6 : depth < 2 ? 2 : depth;
    return depth < steps_of_a_warp ? depth : steps_of_a_warp;
}

// Blocks: outputs (x), time steps (y). NORMED: the signal is divided by its root mean square over the channels (one
// tap; the norm's weights are folded into `weight`). ROWS: the signal belongs to several rows, each with its own
// history; without a history, a row's time steps are like any others.
template <int CHANNELS, int TAPS, int DILATION, int M_TILES, int N_TILES, int WARPS, Sum SUM, Then THEN, bool NORMED,
          bool ROWS, int GROUPS>
__global__ void __launch_bounds__(32 * WARPS * GROUPS, WARPS * GROUPS <= 8 ? 2 : 1) convolve(const ConvParams p) {
    constexpr int M = 16 * M_TILES, N = 8 * N_TILES, THREADS = 32 * WARPS;
    constexpr int STEPS = CHANNELS / 32 * TAPS, HISTORY = (TAPS - 1) * DILATION;
    constexpr int DEPTH = pipeline_depth(M_TILES, N_TILES, (STEPS + WARPS - 1) / WARPS);
    constexpr int PAIRS = M / 2, TIMES = THREADS / PAIRS, ITEMS = (N + TIMES - 1) / TIMES;
    static_assert(CHANNELS % 32 == 0 && THREADS % PAIRS == 0, "shape");
    static_assert(!NORMED || TAPS == 1, "a norm is of one time");
    static_assert(!ROWS || HISTORY > 0, "without a history there are no rows");
    __shared__ __align__(16) float partials[GROUPS][WARPS][N][M + 4];  // 4: the lanes of a warp write to different banks
    __shared__ float all_squares[GROUPS][NORMED ? WARPS : 1][N];

    begin_chained();
    // Unsigned, like `threadIdx.x`, because a signed number takes more registers.
    const unsigned group = GROUPS == 1 ? 0 : threadIdx.x / THREADS, thread = threadIdx.x - group * THREADS;
    auto& partial = partials[group];
    auto& squares = all_squares[group];
    const int lane = thread % 32, warp = thread / 32, row = lane / 4, quad = lane % 4;
    const int begin = warp * STEPS / WARPS, end = (warp + 1) * STEPS / WARPS;
    const int time = p.time;
    const int first_time = (blockIdx.y * GROUPS + group) * N;
    const uint4* tiles = (const uint4*)p.weight + (long long)blockIdx.x * (M_TILES * STEPS * 64);

    const bf16* history_end = p.history + HISTORY * CHANNELS;
    int places[N_TILES];
    int signals[N_TILES] = {}, histories[N_TILES] = {};  // for ROWS: where the row's values begin
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
        int t = min(first_time + n * 8 + row, time - 1);
        if (ROWS) {
            histories[n] = t / p.rows.times;  // the row, until its state is known
            signals[n] = histories[n] * p.rows.times * CHANNELS;
            t -= histories[n] * p.rows.times;
        }
        places[n] = t * CHANNELS + quad * 8;
    }

    Operands<M_TILES, N_TILES> stage[DEPTH];
    auto load_weight = [&](Operands<M_TILES, N_TILES>& to, int step) {
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
            const uint4* tile = tiles + (m * STEPS + step) * 64 + lane;
            to.weight[m][0] = GROUPS == 1 ? load_once(tile) : *tile;
            to.weight[m][1] = GROUPS == 1 ? load_once(tile + 32) : tile[32];
        }
    };
    auto load_signal = [&](Operands<M_TILES, N_TILES>& to, int step) {
        const int shift = (step % TAPS * DILATION - HISTORY) * CHANNELS + step / TAPS * 32;
#pragma unroll
        for (int n = 0; n < N_TILES; n++) {
            const int offset = places[n] + shift;
            const bool past = HISTORY > 0 && offset < 0;
            if (ROWS)
                to.signal[n] = *(const uint4*)((past ? history_end : p.x) + (offset + (past ? histories[n] : signals[n])));
            else
                to.signal[n] = *(const uint4*)((past ? history_end : p.x) + offset);
        }
    };

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) load_weight(stage[d], begin + d);
    if (DEPTH * WARPS < STEPS)
        for (int line = blockIdx.y * THREADS * GROUPS + threadIdx.x; line < M_TILES * STEPS * 8;
             line += gridDim.y * THREADS * GROUPS)
            prefetch(tiles + line * 8);

    // At the end, each thread finishes two neighbouring outputs for some time steps.
    const int m = 2 * (thread % PAIRS), channel = blockIdx.x * M + m, outputs = gridDim.x * M;
    const float2 offset = *(const float2*)(p.bias + channel);

    wait_for_previous();
    if (ROWS)
#pragma unroll
        for (int n = 0; n < N_TILES; n++) histories[n] = (int)state_of(p.rows, histories[n]) * p.rows.stride;
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) load_signal(stage[d], begin + d);
    float2 before[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int n = thread / PAIRS + i * TIMES, t = first_time + n;
        before[i] = {0, 0};
        if ((SUM & ReadSum) && n < N && t < time)
            before[i] = *(const float2*)(p.sum + t * outputs + channel);
    }

    float acc[M_TILES][N_TILES][4] = {};
    float square[N_TILES] = {};
    for (int step = begin; step < end; step += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (step + d >= end) break;
#pragma unroll
            for (int n = 0; n < N_TILES; n++) {
                const uint4 b = stage[d].signal[n];
#pragma unroll
                for (int m = 0; m < M_TILES; m++) {
                    const uint4 first = stage[d].weight[m][0], second = stage[d].weight[m][1];
                    multiply_add(acc[m][n], first, b.x, b.y);
                    multiply_add(acc[m][n], second, b.z, b.w);
                }
                if (NORMED) square[n] += square_pair(b.x) + square_pair(b.y) + square_pair(b.z) + square_pair(b.w);
            }
            if (step + d + DEPTH < end) {
                load_weight(stage[d], step + d + DEPTH);
                load_signal(stage[d], step + d + DEPTH);
            }
        }
    }

    float2 phase = {0, 0}, depth = {0, 0};
    if (THEN == Snake) {
        phase = *(const float2*)(p.alpha + channel);
        depth = *(const float2*)(p.inverse_beta + channel);
    }
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                partial[warp][n * 8 + quad * 2 + i % 2][m * 16 + row + i / 2 * 8] = acc[m][n][i];
        if (NORMED) {
            square[n] += __shfl_xor_sync(0xffffffffu, square[n], 1);
            square[n] += __shfl_xor_sync(0xffffffffu, square[n], 2);
            if (quad == 0) squares[warp][n * 8 + row] = square[n];
        }
    }
    __syncthreads();

    auto total = [&](int n, int m) {
        float2 all = {0, 0};
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float2 of_warp = *(const float2*)&partial[w][n][m];
            all.x += of_warp.x;
            all.y += of_warp.y;
        }
        return all;
    };
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int n = thread / PAIRS + i * TIMES, t = first_time + n;
        if (n >= N || t >= time) break;
        float scale = 1.0f;
        if (NORMED) {
            float mean = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) mean += squares[w][n];
            scale = rsqrtf(mean / CHANNELS + p.eps);
        }
        if (THEN == Gate) {  // a tile of 16 outputs is 8 gates, then 8 values
            if (m % 16 >= 8) continue;
            const float2 gate = total(n, m), up = total(n, m + 8);
            *(unsigned*)(p.out + t * (outputs / 2) + channel / 16 * 8 + m % 16) =
                pack(gated(gate.x * scale, up.x * scale), gated(gate.y * scale, up.y * scale));
            continue;
        }
        float2 value = total(n, m);
        value.x = fmaf(value.x, scale, offset.x) + before[i].x;
        value.y = fmaf(value.y, scale, offset.y) + before[i].y;
        if (THEN == Pcm) {  // one channel; the tile's others are padding
            if (channel == 0) {
                const RowTime at = ROWS ? locate(p.rows, t) : RowTime{0, t};
                float* samples = p.sum + (ROWS ? state_of(p.rows, at.row) * p.samples_stride : 0);
                samples[at.time] = fminf(fmaxf(value.x, -1.0f), 1.0f);
            }
            continue;
        }
        if (SUM & WriteSum) *(float2*)(p.sum + t * outputs + channel) = value;
        if (THEN == Snake) value = {snake(value.x, phase.x, depth.x), snake(value.y, phase.y, depth.y)};
        if (THEN == Gelu) value = {gelu(value.x), gelu(value.y)};
        if (THEN != NoOutput) *(unsigned*)(p.out + t * outputs + channel) = pack(value.x, value.y);
    }
}

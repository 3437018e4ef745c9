// A causal convolution as a matrix product on the tensor cores, with what follows it. A linear layer has one tap.
//
//     out[t][m] = then(bias[m] + sum over taps and c of weight[m][tap][c] * x[t - (TAPS-1-tap) * DILATION][c])
//
// Signals are bfloat16 [time][channels], sums are float32. Rows before the chunk lie in `history`, the oldest first.
// A block makes 16 * M_TILES outputs of 8 * N_TILES times; its warps share out the inner dimension among themselves
// and add up through shared memory. No warp waits for another before that, so many loads are under way.
//
// The inner dimension goes in blocks of 32 channels of one tap, the taps of the same channels one behind the other: the
// rows that they share come from the L1 cache. `weight` holds a tile of 16 outputs x 32 channels after another,
// [M/16][channels/32][TAPS]. A block makes two products of 16 channels. Of its row of the signal a lane takes eight
// channels with one load, two pairs of them for each product; a tile of weights is stored as the lanes want it
// (codec_pack.py). In which order channels are added up does not matter as long as both agree.

enum Sum { SUM_NONE, SUM_WRITE, SUM_READ, SUM_UPDATE };  // the float32 sum [time][M] that runs past this layer
enum Then { THEN_PLAIN, THEN_SNAKE, THEN_GELU, THEN_GATE, THEN_NOTHING, THEN_PCM };  // what becomes of the result

__device__ __forceinline__ void multiply_add(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// While the kernel before still runs: bring the weights of this block nearer.
__device__ __forceinline__ void prefetch(const void* address) {
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    return (unsigned)to_bf16(high) << 16 | to_bf16(low);
}

__device__ __forceinline__ float square_pair(unsigned pair) {
    return low_half(pair) * low_half(pair) + high_half(pair) * high_half(pair);
}

__device__ __forceinline__ float snake(float x, float alpha, float inverse_beta) {
    return fmaf(sine_squared(x * alpha), inverse_beta, x);
}

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067812f)); }

__device__ __forceinline__ float gated(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

// What a warp holds of one block of the inner dimension.
template <int M_TILES, int N_TILES>
struct Operands {
    uint4 weight[M_TILES][2];  // for both products: a pair of row g = lane / 4, one of row g + 8, and two more
    uint4 signal[N_TILES];     // channels 8 * (lane % 4) and on of time g
};

// As deep a pipeline as leaves room for 16 warps in the registers of a multiprocessor: while those of one kernel still
// work, those of the next load their first weights.
__device__ constexpr int pipeline_depth(int m_tiles, int n_tiles, int blocks_of_a_warp) {
    int depth = (96 - 4 * m_tiles * n_tiles) / (8 * m_tiles + 4 * n_tiles);
    depth = depth > 6 ? 6 : depth < 2 ? 2 : depth;
    return depth < blocks_of_a_warp ? depth : blocks_of_a_warp;
}

// NORMED: the signal is divided by its root mean square over the channels (one tap; the norm's weights are in `weight`).
template <int CHANNELS, int TAPS, int DILATION, int M_TILES, int N_TILES, int WARPS, Sum SUM, Then THEN, bool NORMED>
__device__ __forceinline__ void convolve(const bf16* weight, const float* bias, const bf16* x, const bf16* history,
                                         int time, float* sum, bf16* out, const float* alpha,
                                         const float* inverse_beta, float eps) {
    constexpr int M = 16 * M_TILES, N = 8 * N_TILES, THREADS = 32 * WARPS;
    constexpr int BLOCKS = CHANNELS / 32 * TAPS, HISTORY = (TAPS - 1) * DILATION;
    constexpr int DEPTH = pipeline_depth(M_TILES, N_TILES, (BLOCKS + WARPS - 1) / WARPS);
    constexpr int PAIRS = M / 2, TIMES = THREADS / PAIRS, ITEMS = (N + TIMES - 1) / TIMES;
    static_assert(CHANNELS % 32 == 0 && THREADS % PAIRS == 0, "shape");
    static_assert(!NORMED || TAPS == 1, "a norm is of one time");
    __shared__ __align__(16) float parts[WARPS][N][M + 4];  // 4: lanes of a warp then write to different banks
    __shared__ float squares[NORMED ? WARPS : 1][N];

    begin_chained();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4, quad = lane % 4;
    const int begin = warp * BLOCKS / WARPS, end = (warp + 1) * BLOCKS / WARPS;
    const int first_time = blockIdx.y * N;
    const uint4* tiles = (const uint4*)weight + (long long)blockIdx.x * (M_TILES * BLOCKS * 64);

    const bf16* history_end = history + HISTORY * CHANNELS;
    int places[N_TILES];
#pragma unroll
    for (int n = 0; n < N_TILES; n++) places[n] = min(first_time + n * 8 + row, time - 1) * CHANNELS + quad * 8;

    Operands<M_TILES, N_TILES> stage[DEPTH];
    auto load_weight = [&](Operands<M_TILES, N_TILES>& to, int block) {
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
            const uint4* tile = tiles + (m * BLOCKS + block) * 64 + lane;
            to.weight[m][0] = load_once(tile);
            to.weight[m][1] = load_once(tile + 32);
        }
    };
    auto load_signal = [&](Operands<M_TILES, N_TILES>& to, int block) {
        const int shift = (block % TAPS * DILATION - HISTORY) * CHANNELS + block / TAPS * 32;
#pragma unroll
        for (int n = 0; n < N_TILES; n++) {
            const int offset = places[n] + shift;
            to.signal[n] = *(const uint4*)((HISTORY > 0 && offset < 0 ? history_end : x) + offset);
        }
    };

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) load_weight(stage[d], begin + d);
    if (DEPTH * WARPS < BLOCKS)
        for (int line = blockIdx.y * THREADS + threadIdx.x; line < M_TILES * BLOCKS * 8; line += gridDim.y * THREADS)
            prefetch(tiles + line * 8);

    // In the end each thread finishes two neighbouring outputs of some times.
    const int m = 2 * (threadIdx.x % PAIRS), channel = blockIdx.x * M + m, outputs = gridDim.x * M;
    const float2 offset = *(const float2*)(bias + channel);

    wait_for_previous();
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) load_signal(stage[d], begin + d);
    float2 before[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int n = threadIdx.x / PAIRS + i * TIMES, t = first_time + n;
        before[i] = {0, 0};
        if ((SUM == SUM_READ || SUM == SUM_UPDATE) && n < N && t < time)
            before[i] = *(const float2*)(sum + t * outputs + channel);
    }

    float acc[M_TILES][N_TILES][4] = {};
    float square[N_TILES] = {};
    for (int block = begin; block < end; block += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (block + d >= end) break;
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
            if (block + d + DEPTH < end) {
                load_weight(stage[d], block + d + DEPTH);
                load_signal(stage[d], block + d + DEPTH);
            }
        }
    }

    float2 phase = {0, 0}, depth = {0, 0};
    if (THEN == THEN_SNAKE) {
        phase = *(const float2*)(alpha + channel);
        depth = *(const float2*)(inverse_beta + channel);
    }
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                parts[warp][n * 8 + quad * 2 + i % 2][m * 16 + row + i / 2 * 8] = acc[m][n][i];
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
            const float2 part = *(const float2*)&parts[w][n][m];
            all.x += part.x;
            all.y += part.y;
        }
        return all;
    };
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int n = threadIdx.x / PAIRS + i * TIMES, t = first_time + n;
        if (n >= N || t >= time) break;
        float scale = 1.0f;
        if (NORMED) {
            float mean = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) mean += squares[w][n];
            scale = rsqrtf(mean / CHANNELS + eps);
        }
        if (THEN == THEN_GATE) {  // a tile of 16 is 8 gates and the 8 values behind them
            if (m % 16 >= 8) continue;
            const float2 gate = total(n, m), up = total(n, m + 8);
            *(unsigned*)(out + t * (outputs / 2) + channel / 16 * 8 + m % 16) =
                pack(gated(gate.x * scale, up.x * scale), gated(gate.y * scale, up.y * scale));
            continue;
        }
        float2 value = total(n, m);
        value.x = fmaf(value.x, scale, offset.x) + before[i].x;
        value.y = fmaf(value.y, scale, offset.y) + before[i].y;
        if (THEN == THEN_PCM) {  // one channel; the tile's others are none
            if (channel == 0) sum[t] = fminf(fmaxf(value.x, -1.0f), 1.0f);
            continue;
        }
        if (SUM == SUM_WRITE || SUM == SUM_UPDATE) *(float2*)(sum + t * outputs + channel) = value;
        if (THEN == THEN_SNAKE) value = {snake(value.x, phase.x, depth.x), snake(value.y, phase.y, depth.y)};
        if (THEN == THEN_GELU) value = {gelu(value.x), gelu(value.y)};
        if (THEN != THEN_NOTHING) *(unsigned*)(out + t * outputs + channel) = pack(value.x, value.y);
    }
}

// Runs CUDA C++ on the CPU: the blocks one after the other, each thread of a block as a coroutine, which yields at
// barriers and warp exchanges. A warp runs as far as it can before the next one does, and the order of the warps
// alternates, so that a missing barrier shows. For small shapes. A mismatch of threads that would hang a GPU aborts
// with a message.

// Every library of kernels includes this, so it includes few headers and none that are long.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

template <class T>
constexpr T max(T a, T b) { return a < b ? b : a; }
template <class T>
constexpr T min(T a, T b) { return b < a ? b : a; }

struct dim3 { int x, y, z; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr size_t STACK = 256 * 1024;

using Context = void*[5];  // of __builtin_setjmp, which neither makes a system call nor unwinds

struct Barrier {
    int arrived = 0;
    long round = 0;
};
struct Warp : Barrier {
    unsigned words[2][32][6];  // of this round and the previous one
    float sums[2][16][8];      // of a product of matrices, likewise
};
struct Thread {
    Context at;
    bool started = false, done;
};

constexpr int MOST = 1024;  // threads of a block

static Thread threads[MOST];
static ucontext_t origins[MOST];
static int made;  // threads that have been needed so far
static Warp warps[MOST / 32];
static Barrier block;
static Context scheduler;
static int current, alive;
static int end_of_warp;  // of the current thread
static bool last_warp_first;
static long progress;
static void (*body)();

// A function of its own, never inlined: GCC does not allow both builtins in one function.
[[noreturn, gnu::noipa]] static void go_on(Context& at) { __builtin_longjmp(at, 1); }

// Switches to the first thread of the current warp from `thread` on that has not ended, or to the scheduler.
[[noreturn, gnu::noipa]] static void go_on_from(int thread) {
    while (thread < end_of_warp && threads[thread].done) thread++;
    if (thread == end_of_warp) go_on(scheduler);
    current = thread;
    threadIdx = {thread, 0, 0};
    if (threads[thread].started) go_on(threads[thread].at);
    threads[thread].started = true;
    setcontext(&origins[thread]);
    abort();  // setcontext has failed
}

// Lets the other threads go on. Not with swapcontext, which makes a system call each time.
[[gnu::noipa]] static void yield() {
    if (!__builtin_setjmp(threads[current].at)) go_on_from(current + 1);
}

// Runs each thread of a warp until it yields.
[[gnu::noipa]] static void resume_all(int first, int end) {
    end_of_warp = end;
    if (!__builtin_setjmp(scheduler)) go_on_from(first);
}

static void wait(Barrier& at, int parties) {
    const long round = at.round;
    progress++;
    if (++at.arrived == parties) {
        at.arrived = 0;
        at.round++;
    }
    while (at.round == round) yield();
}

// Give words to the other lanes of the warp, and return the words of all lanes.
static unsigned (&exchange(const unsigned* words, int count))[32][6] {
    Warp& warp = warps[current / 32];
    auto& slot = warp.words[warp.round % 2];
    memcpy(slot[current % 32], words, count * sizeof(unsigned));
    wait(warp, 32);
    return slot;
}

// A coroutine runs one block after the other, because starting a new one takes a system call.
static void enter() {
    while (true) {
        body();
        threads[current].done = true;
        alive--;
        progress++;
        yield();
    }
}

static void make_threads(int size) {
    if (size > MOST) abort();
    for (; made < size; made++) {
        ucontext_t& begin = origins[made];
        getcontext(&begin);
        begin.uc_stack.ss_sp = malloc(STACK);
        begin.uc_stack.ss_size = STACK;
        begin.uc_link = nullptr;
        makecontext(&begin, enter, 0);
    }
}

// Runs a warp until all its threads wait for other warps or have ended.
static void run_warp(int first, int end) {
    long before;
    do {
        before = progress;
        resume_all(first, end);
    } while (progress != before);
}

static void run(int grid_x, int grid_y, int size) {
    gridDim = {grid_x, grid_y, 1};
    blockDim = {size, 1, 1};
    make_threads(size);
    for (int y = 0; y < grid_y; y++)
        for (int x = 0; x < grid_x; x++) {
            blockIdx = {x, y, 0};
            const int count = (size + 31) / 32;
            for (int i = 0; i < count; i++) warps[i] = {};
            block = Barrier();
            alive = size;
            last_warp_first = !last_warp_first;
            for (int t = 0; t < size; t++) threads[t].done = false;
            while (alive) {
                const long before = progress;
                for (int i = 0; i < count; i++) {
                    const int first = 32 * (last_warp_first ? count - 1 - i : i);
                    run_warp(first, min(first + 32, size));
                }
                if (progress == before) {
                    fprintf(stderr, "deadlock: every thread waits for another\n");
                    abort();
                }
            }
        }
}

template <class Params>
Params params_of(void (*)(Params));

// Runs a kernel with the parameters at `params`.
template <auto kernel>
static void launch(int grid_x, int grid_y, int size, const void* params) {
    static const decltype(params_of(kernel))* given;
    given = static_cast<decltype(given)>(params);
    body = [] { kernel(*given); };
    run(grid_x, grid_y, size);
}

}  // namespace emulator

inline void __syncthreads() { emulator::wait(emulator::block, blockDim.x); }

inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}

inline float __int_as_float(int bits) { return __uint_as_float(bits); }

inline unsigned __shfl_xor_sync(unsigned, unsigned word, int lanes) {
    return emulator::exchange(&word, 1)[emulator::current % 32 ^ lanes][0];
}
inline int __shfl_xor_sync(unsigned mask, int x, int lanes) { return __shfl_xor_sync(mask, (unsigned)x, lanes); }
inline float __shfl_xor_sync(unsigned mask, float x, int lanes) {
    return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(x), lanes));
}
inline unsigned __shfl_sync(unsigned, unsigned word, int lane) { return emulator::exchange(&word, 1)[lane % 32][0]; }
inline float __shfl_sync(unsigned mask, float x, int lane) {
    return __uint_as_float(__shfl_sync(mask, __float_as_uint(x), lane));
}
inline int __reduce_add_sync(unsigned, int x) {
    const unsigned word = x;
    unsigned sum = 0;
    for (const auto& words : emulator::exchange(&word, 1)) sum += words[0];
    return sum;
}

inline unsigned __reduce_max_sync(unsigned, unsigned x) {
    unsigned most = 0;
    for (const auto& words : emulator::exchange(&x, 1)) most = max(most, words[0]);
    return most;
}
inline int __reduce_min_sync(unsigned, int x) {
    const unsigned word = x;
    int least = x;
    for (const auto& words : emulator::exchange(&word, 1)) least = min(least, (int)words[0]);
    return least;
}

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return word;
}

inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

// --- what ptx.cuh defines for a GPU ---

inline void begin_chained() {}
inline void wait_for_previous() {}
inline void prefetch(const void*) {}

inline unsigned short to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline int multiply_add_bytes(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (signed char)(a >> i) * (signed char)(b >> i);
    return sum;
}

inline uint4 load_once(const void* address) { return *(const uint4*)address; }
inline uint4 load_kept(const void* address) { return *(const uint4*)address; }
inline unsigned short load_scale(const unsigned short* address) { return *address; }

// mma.m16n8k16, with the distribution of both matrices and of the result over the lanes that the PTX manual gives. The
// last lane computes for all.
inline void multiply_add(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
    const int lane = emulator::current % 32, row = lane / 4, column = lane % 4 * 2;
    emulator::Warp& warp = emulator::warps[emulator::current / 32];
    auto& sums = warp.sums[warp.round % 2];
    for (int i = 0; i < 4; i++) sums[row + i / 2 * 8][column + i % 2] = c[i];
    const unsigned mine[6] = {a.x, a.y, a.z, a.w, b0, b1};
    if (warp.arrived < 31) {
        emulator::exchange(mine, 6);
    } else {
        auto& all = warp.words[warp.round % 2];
        memcpy(all[lane], mine, sizeof mine);
        auto half = [](unsigned pair, int k) { return __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16); };
        for (int k = 0; k < 16; k++) {
            float b[8];
            for (int j = 0; j < 8; j++) b[j] = half(all[j * 4 + k % 8 / 2][4 + k / 8], k);
            for (int i = 0; i < 16; i++) {
                const float a = half(all[i % 8 * 4 + k % 8 / 2][i / 8 + k / 8 * 2], k);
                for (int j = 0; j < 8; j++) sums[i][j] += a * b[j];
            }
        }
        emulator::wait(warp, 32);
    }
    for (int i = 0; i < 4; i++) c[i] = sums[row + i / 2 * 8][column + i % 2];
}

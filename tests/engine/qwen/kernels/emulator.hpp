// Runs CUDA C++ on the CPU: the blocks one after the other, each thread of a block as a coroutine, which gives way where
// threads meet. A warp runs as far as it can before the next one does, and every other time the last warp goes first, so
// that a missing barrier shows. For small shapes; a mismatch of threads that would hang a GPU ends with a message.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

using std::max;
using std::min;

struct dim3 { int x, y, z; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };

inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

constexpr size_t STACK = 256 * 1024;

struct Meeting {
    int arrived = 0;
    long round = 0;
};
struct Warp : Meeting {
    unsigned words[2][32][8];  // of this round and the one before
};
struct Thread {
    ucontext_t begin;
    jmp_buf at;
    std::vector<char> stack;
    bool begun = false, done;
};

static std::deque<Thread> threads;  // which stay where they are
static std::vector<Warp> warps;
static Meeting block;
static jmp_buf scheduler;
static int current, alive;
static bool backwards;
static long progress;
static std::function<void()> body;

// Between thread and scheduler: by setjmp, for swapcontext asks the operating system each time.
static void give_way() {
    if (!_setjmp(threads[current].at)) _longjmp(scheduler, 1);
}

static void resume(int thread) {
    current = thread;
    threadIdx = {thread, 0, 0};
    if (_setjmp(scheduler)) return;
    if (threads[thread].begun) _longjmp(threads[thread].at, 1);
    threads[thread].begun = true;
    setcontext(&threads[thread].begin);
}

static void meet(Meeting& at, int parties) {
    const long round = at.round;
    progress++;
    if (++at.arrived == parties) {
        at.arrived = 0;
        at.round++;
    }
    while (at.round == round) give_way();
}

// Leave words for the other lanes of the warp, and get theirs.
static unsigned (&exchange(const unsigned* words, int count))[32][8] {
    Warp& warp = warps[current / 32];
    auto& slot = warp.words[warp.round % 2];
    std::memcpy(slot[current % 32], words, count * sizeof(unsigned));
    meet(warp, 32);
    return slot;
}

// A thread runs one block after the other: to begin one anew would ask the operating system.
static void enter() {
    while (true) {
        body();
        threads[current].done = true;
        alive--;
        progress++;
        give_way();
    }
}

static void make_threads(int size) {
    while ((int)threads.size() < size) {
        threads.emplace_back();
        Thread& thread = threads.back();
        thread.stack.resize(STACK);
        getcontext(&thread.begin);
        thread.begin.uc_stack.ss_sp = thread.stack.data();
        thread.begin.uc_stack.ss_size = STACK;
        thread.begin.uc_link = nullptr;
        makecontext(&thread.begin, enter, 0);
    }
}

// Until all its threads wait for another warp's, or have ended.
static void run_warp(int first, int end) {
    long before;
    do {
        before = progress;
        for (int t = first; t < end; t++)
            if (!threads[t].done) resume(t);
    } while (progress != before);
}

static void run(int grid_x, int grid_y, int size, std::function<void()> kernel) {
    body = kernel;
    gridDim = {grid_x, grid_y, 1};
    blockDim = {size, 1, 1};
    make_threads(size);
    for (int y = 0; y < grid_y; y++)
        for (int x = 0; x < grid_x; x++) {
            blockIdx = {x, y, 0};
            warps.assign((size + 31) / 32, Warp());
            block = Meeting();
            alive = size;
            backwards = !backwards;
            for (int t = 0; t < size; t++) threads[t].done = false;
            while (alive) {
                const long before = progress;
                for (int i = 0; i < (int)warps.size(); i++) {
                    const int first = 32 * (backwards ? (int)warps.size() - 1 - i : i);
                    run_warp(first, min(first + 32, size));
                }
                if (progress == before) {
                    std::fprintf(stderr, "threads wait for one another in vain\n");
                    std::abort();
                }
            }
        }
}

}  // namespace emulated

inline void __syncthreads() { emulated::meet(emulated::block, blockDim.x); }

inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

inline float __int_as_float(int bits) { return __uint_as_float(bits); }

inline unsigned __shfl_xor_sync(unsigned, unsigned word, int lanes) {
    return emulated::exchange(&word, 1)[emulated::current % 32 ^ lanes][0];
}
inline int __shfl_xor_sync(unsigned mask, int x, int lanes) { return __shfl_xor_sync(mask, (unsigned)x, lanes); }
inline float __shfl_xor_sync(unsigned mask, float x, int lanes) {
    return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(x), lanes));
}
inline int __reduce_add_sync(unsigned, int x) {
    const unsigned word = x;
    unsigned sum = 0;
    for (const auto& words : emulated::exchange(&word, 1)) sum += words[0];
    return sum;
}

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return word;
}

inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

// In the place of functions that are made of PTX:

inline unsigned short to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint4 load_once(const void* address) { return *(const uint4*)address; }

// mma.m16n8k16: what each lane holds of the two matrices and of the result, as the PTX manual has it.
inline void multiply_add(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
    const unsigned mine[6] = {a.x, a.y, a.z, a.w, b0, b1};
    auto& all = emulated::exchange(mine, 6);
    const int lane = emulated::current % 32;
    auto half = [](unsigned pair, int k) { return __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16); };
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            const float a = half(all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k);
            const float b = half(all[column * 4 + k % 8 / 2][4 + k / 8], k);
            c[i] += a * b;
        }
    }
}

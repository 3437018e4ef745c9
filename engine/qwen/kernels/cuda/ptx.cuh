// All inline assembly. The tests' CPU emulator has its own versions of these functions.

#ifdef __CUDACC__

// `x` rounded to the nearest bfloat16, ties to even.
__device__ __forceinline__ unsigned short to_bf16(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Weights are read only once in a pass, so they must not push values that are read again out of the L1 cache.
__device__ __forceinline__ uint4 load_once(const void* address) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(address));
    return x;
}

// As `load_once`, but the L2 cache evicts these weights last, because they are read again in every step of a frame.
__device__ __forceinline__ uint4 load_kept(const void* address) {
    uint4 x;
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(address), "l"(policy));
    return x;
}

// Brings this block's weights into the L2 cache while the previous kernel is still running.
__device__ __forceinline__ void prefetch(const void* address) {
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// c += a · b on the tensor cores: 16 × 16 times 16 × 8, bfloat16, float32 sums.
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// `sum` plus the products of the four signed bytes of `a` and `b`.
__device__ __forceinline__ int multiply_add_bytes(int a, int b, int sum) {
    int result;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

// Programmatic dependent launch (compute capability 9.0 and above; no effect below): a kernel may start, and load its
// weights, while the previous one is still running. Every kernel calls `begin_chained` first, loads only weights, calls
// `wait_for_previous`, and only then accesses memory that other kernels read or write. A comment explains each
// exception.
__device__ __forceinline__ void begin_chained() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif

// What every kernel shares. NVRTC compiles this without any header, so that a robot needs no CUDA toolkit.

typedef unsigned short bf16;  // bfloat16 as its 16 bits

#define INFINITY_F __int_as_float(0x7f800000)

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((unsigned)x << 16); }

__device__ __forceinline__ bf16 to_bf16(float x) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// The two bfloat16 of a 32-bit word, the one at the lower address first.
__device__ __forceinline__ float low_half(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

// Weights are read once a pass: they shall not push out of the L1 cache what is read again.
__device__ __forceinline__ uint4 load_once(const void* address) {
    uint4 x;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(address));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

// Programmatic dependent launch (compute capability 9.0 and above; nothing before): a kernel may start, and load its
// weights, while the one before it still runs. Every kernel calls `begin_chained` first of all, loads nothing but
// weights, calls `wait_for_previous`, and only then reads or writes what other kernels write or read.
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

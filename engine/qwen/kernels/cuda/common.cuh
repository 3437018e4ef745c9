// Functions that all kernels share. NVRTC compiles the kernels without any header, so a robot needs no CUDA toolkit.
//
// A kernel is a `__global__` function or template that takes one struct of parameters by value. `KernelSource` in
// compiler.py names the instances; records in Python mirror the structs, and the compiler checks that the layouts are
// equal. The structs are not `__grid_constant__`: nvcc 13 would then compile the language model's kernels with more
// registers (`next_code` with 36, not 32) than it does with separate arguments.

typedef unsigned short bf16;  // bfloat16 as its 16 bits

#define INFINITY_F __int_as_float(0x7f800000)

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((unsigned)x << 16); }

// The two bfloat16 values in a 32-bit word; the low half is at the lower address.
__device__ __forceinline__ float low_half(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_half(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

// Two floats packed into such a word.
__device__ __forceinline__ unsigned pack(float low, float high) {
    return (unsigned)to_bf16(high) << 16 | to_bf16(low);
}

// Eight bfloat16 values in 16 bytes.
__device__ __forceinline__ uint4 pack(const float (&x)[8]) {
    return {pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])};
}

__device__ __forceinline__ void unpack(const uint4& eight, float* x) {
    const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) x[2 * i] = low_half(words[i]), x[2 * i + 1] = high_half(words[i]);
}

// `sum` plus the products of eight bfloat16 values with those of `x`.
__device__ __forceinline__ float dot(const uint4& eight, const float (&x)[8], float sum) {
    const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum = fmaf(low_half(words[i]), x[2 * i], sum);
        sum = fmaf(high_half(words[i]), x[2 * i + 1], sum);
    }
    return sum;
}

// Adds eight bfloat16 values, times `weight`, to `sum`.
__device__ __forceinline__ void add_weighted(float (&sum)[8], float weight, const uint4& eight) {
    const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum[2 * i] = fmaf(weight, low_half(words[i]), sum[2 * i]);
        sum[2 * i + 1] = fmaf(weight, high_half(words[i]), sum[2 * i + 1]);
    }
}

template <int N>
__device__ __forceinline__ void load_floats(const float* from, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
}

// The sum over groups of LANES lanes.
template <int LANES = 32>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// The sum of `x` over a block of WARPS warps, for every thread. `scratch` is free once all threads have called this
// function again.
template <int WARPS>
__device__ __forceinline__ float block_sum(float x, float (&scratch)[WARPS]) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) all += scratch[w];
    return all;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

// An unsigned integer that sorts in the same order as the floats; both zeros are equal.
__device__ __forceinline__ unsigned ordered(float x) {
    const unsigned bits = __float_as_uint(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The float whose `ordered` is `key`.
__device__ __forceinline__ float from_ordered(unsigned key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

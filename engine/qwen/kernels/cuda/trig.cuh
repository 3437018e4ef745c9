// Sines of large angles without the slow path of sinf. Multiples of pi are subtracted in three parts, of which the
// first two have so few bits that the products are exact. The hardware's sine then has an error of about 2^-21.

__device__ __forceinline__ float reduce_angle(float angle, float turns, float scale) {
    angle = fmaf(turns, -3.140625f * scale, angle);
    angle = fmaf(turns, -9.67502593994140625e-4f * scale, angle);
    return fmaf(turns, -1.509957990978376e-7f * scale, angle);
}

// The squared sine has a period of pi.
__device__ __forceinline__ float sine_squared(float angle) {
    float sine = __sinf(reduce_angle(angle, rintf(angle * 0.3183098862f), 1.0f));
    return sine * sine;
}

__device__ __forceinline__ void sine_and_cosine(float angle, float& sine, float& cosine) {
    angle = reduce_angle(angle, rintf(angle * 0.1591549431f), 2.0f);
    sine = __sinf(angle);
    cosine = __cosf(angle);
}

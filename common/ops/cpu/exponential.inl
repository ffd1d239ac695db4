// e^x over a vector type V of floats with its integers I and fused(a, b, c) = a b + c, which the including file defines. For
// kernels of one instruction set: see attention/kernels.inl.

// For x from -87.3 to 88, to about one ulp; NaN of NaN. The polynomial of shared/exp.h.
static inline __attribute__((always_inline)) V exponential_of_normal(V x) {
    const V magic = V{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const V shifted = fused(x, V{} + 1.44269504088896341f, magic);
    const V n = shifted - magic;
    V r = fused(n, V{} + -0.693359375f, x);
    r = fused(n, V{} + 2.12194440e-4f, r);
    V p = V{} + 1.9875691500e-4f;
    p = fused(p, r, V{} + 1.3981999507e-3f);
    p = fused(p, r, V{} + 8.3334519073e-3f);
    p = fused(p, r, V{} + 4.1665795894e-2f);
    p = fused(p, r, V{} + 1.6666665459e-1f);
    p = fused(p, r, V{} + 5.0000001201e-1f);
    const V y = fused(p * r, r, r) + 1.0f;
    const I exponent = (reinterpret_cast<I>(shifted) - reinterpret_cast<I>(magic) + 127) << 23;
    return y * reinterpret_cast<V>(exponent);
}

// The softmax kernels, written once over a vector type V of kWidth floats. The including file defines V,
// I, kWidth, fused(a, b, c) = a b + c, and larger and smaller, which return their second operand
// when one is NaN.
//
// Sums have 16 lanes in a fixed order whatever kWidth is, so sets that fuse alike give the same bits. Nothing
// here may name std: see attention/kernels.inl.

constexpr std::int64_t kStep = 16;  // logits
constexpr int kVectors = kStep / kWidth;

#define TANDEM_SOFTMAX_INLINE inline __attribute__((always_inline))

struct Step {
    V v[kVectors];
};

TANDEM_SOFTMAX_INLINE V splat(float x) {
    return V{} + x;
}

TANDEM_SOFTMAX_INLINE Step load(const float* x) {
    Step result;
    __builtin_memcpy(&result, x, sizeof(result));
    return result;
}

TANDEM_SOFTMAX_INLINE void store(float* x, const Step& step) {
    __builtin_memcpy(x, &step, sizeof(step));
}

// The last logits of a row, filled up with -inf, which neither counts for a maximum nor has a weight.
TANDEM_SOFTMAX_INLINE Step load_part(const float* x, std::int64_t count) {
    float part[kStep];
    for (int i = 0; i < kStep; ++i) part[i] = i < count ? x[i] : -__builtin_inff();
    return load(part);
}

TANDEM_SOFTMAX_INLINE void store_part(float* x, std::int64_t count, const Step& step) {
    float part[kStep];
    store(part, step);
    for (int i = 0; i < count; ++i) x[i] = part[i];
}

// -87.3 and what lies above, or NaN: the exponential of a smaller number is no normal one.
TANDEM_SOFTMAX_INLINE V at_least_low(V x) {
    return larger(splat(-87.3f), x);
}

// e^x for x up to 88; 0 below -87.3, NaN of NaN.
TANDEM_SOFTMAX_INLINE V exponential(V x) {
    const V value = exponential_of_normal(at_least_low(x));
    return reinterpret_cast<V>(reinterpret_cast<I>(value) & ~(x < splat(-87.3f)));
}

// Lanes 8 apart first, then 4, 2 and 1.
TANDEM_SOFTMAX_INLINE float sum_of(const Step& step) {
    float lane[kStep];
    store(lane, step);
    for (int apart = 8; apart > 0; apart /= 2) {
        for (int i = 0; i < apart; ++i) lane[i] += lane[i + apart];
    }
    return lane[0];
}

TANDEM_SOFTMAX_INLINE float max_of(const Step& step) {
    float lane[kStep];
    store(lane, step);
    for (int i = 1; i < kStep; ++i) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    return lane[0];
}

// Calls body(values of 16 logits) along x, the last ones filled up.
template <typename Body>
TANDEM_SOFTMAX_INLINE void for_steps(const float* x, std::int64_t count, const Body& body) {
    std::int64_t i = 0;
    for (; i + kStep <= count; i += kStep) body(load(x + i));
    if (i < count) body(load_part(x + i, count - i));
}

// to[i] = f(from[i])
template <typename F>
TANDEM_SOFTMAX_INLINE void transform(const float* from, float* to, std::int64_t count, const F& f) {
    std::int64_t i = 0;
    Step step;
    for (; i + kStep <= count; i += kStep) {
        step = load(from + i);
        for (int k = 0; k < kVectors; ++k) step.v[k] = f(step.v[k]);
        store(to + i, step);
    }
    if (i == count) return;
    step = load_part(from + i, count - i);
    for (int k = 0; k < kVectors; ++k) step.v[k] = f(step.v[k]);
    store_part(to + i, count - i, step);
}

TANDEM_SOFTMAX_INLINE std::int64_t block_size(std::int64_t begin, std::int64_t count) {
    return count - begin < kSoftmaxBlock ? count - begin : kSoftmaxBlock;
}

void block_max(const float* x, std::int64_t count, float* blocks) {
    for (std::int64_t begin = 0; begin < count; begin += kSoftmaxBlock) {
        Step best;
        for (int k = 0; k < kVectors; ++k) best.v[k] = splat(-__builtin_inff());
        for_steps(x + begin, block_size(begin, count), [&](const Step& step) {
            for (int k = 0; k < kVectors; ++k) best.v[k] = larger(step.v[k], best.v[k]);
        });
        *blocks++ = max_of(best);
    }
}

void block_sums(const float* x, std::int64_t count, float max, float inverse_temperature, float* sums,
                float* weighted) {
    for (std::int64_t begin = 0; begin < count; begin += kSoftmaxBlock) {
        Step total = {}, times_z = {};
        for_steps(x + begin, block_size(begin, count), [&](const Step& step) {
            for (int k = 0; k < kVectors; ++k) {
                const V z = (step.v[k] - splat(max)) * splat(inverse_temperature);
                const V e = exponential(z);
                total.v[k] += e;
                times_z.v[k] = fused(e, at_least_low(z), times_z.v[k]);  // no 0 times -inf
            }
        });
        *sums++ = sum_of(total);
        *weighted++ = sum_of(times_z);
    }
}

void weights(const float* x, std::int64_t count, float max, float inverse_temperature, float* to) {
    transform(x, to, count, [&](V v) { return exponential((v - splat(max)) * splat(inverse_temperature)); });
}

TANDEM_SOFTMAX_INLINE bool any(I lanes) {
    std::uint64_t words[kWidth / 2], all = 0;
    __builtin_memcpy(words, &lanes, sizeof(lanes));
    for (const std::uint64_t word : words) all |= word;
    return all != 0;
}

std::size_t tokens_between(const float* from, std::int64_t count, float low, float high,
                           std::int32_t* tokens) {
    std::size_t found = 0;
    for (std::int64_t i = 0; i < count; i += kStep) {
        const std::int64_t size = count - i < kStep ? count - i : kStep;
        if (size == kStep) {
            const Step step = load(from + i);
            I hits = {};
            for (int k = 0; k < kVectors; ++k) hits |= (step.v[k] >= splat(low)) & (step.v[k] < splat(high));
            if (!any(hits)) continue;
        }
        for (std::int64_t at = i; at < i + size; ++at) {
            tokens[found] = static_cast<std::int32_t>(at);
            found += from[at] >= low && from[at] < high ? 1 : 0;
        }
    }
    return found;
}

// p = e^(x / temperature - lse); the logits of a row are not far above its lse, whoever's lse it is.
TANDEM_SOFTMAX_INLINE V log_probability(V x, float inverse_temperature, float lse) {
    return smaller(splat(88.0f), x * splat(inverse_temperature) - splat(lse));
}

void gradient(float* x, std::int64_t count, float inverse_temperature, float lse, float factor) {
    transform(x, x, count, [&](V v) {
        return splat(-factor) * exponential(log_probability(v, inverse_temperature, lse));
    });
}

void entropy_gradient(float* x, std::int64_t count, float inverse_temperature, float lse, float factor,
                      float spread, float entropy) {
    transform(x, x, count, [&](V v) {
        const V logp = log_probability(v, inverse_temperature, lse);
        const V share = fused(splat(spread), at_least_low(logp) + splat(entropy), splat(factor));
        return -exponential(logp) * share;
    });
}

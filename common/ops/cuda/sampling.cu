// Sampling: a block a sample. Greedy and unrestricted choices walk the row; a restricted one finds where the
// restriction ends and then its token by two radix descents (common/ops/shared/sampling.h), whose histograms
// add integers: every run gives the same.
#include <cmath>

#include "common/ops/cuda/elements.cuh"
#include "common/ops/cuda/logits_walk.cuh"
#include "common/ops/cuda/logprob_rows.cuh"
#include "common/ops/cuda/reduce.cuh"
#include "common/ops/cuda/work.cuh"
#include "common/ops/sampling.h"
#include "common/ops/shared/sampling.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

using shared::kSamplingBuckets;
using shared::kSamplingLevels;
using shared::SamplingPlace;

constexpr int kSamplingThreads = 512;
constexpr int kReplicas = 16;  // of the histogram: lanes of a warp rarely meet at one address
constexpr std::size_t kHistogramBytes = sizeof(unsigned) * 3 * kSamplingBuckets * kReplicas;
constexpr std::int64_t kNone = std::int64_t{1} << 40;  // no token: above all ids
constexpr double kInfinity = 1e300;
constexpr std::int64_t kTile = kSamplingThreads * kVector;

struct SampleRow {
    std::int64_t row;
    float inverse_temperature, min_p;
    std::uint64_t limit;  // tokens that top_k leaves
    double top_p;         // kInfinity: off
    double uniform;
    bool greedy, restricted;
};

struct Logits {
    Elements values;
    std::int64_t base, vocab;
    float largest, inverse_temperature;

    // Of tokens [at, at + 8); 0 for those that are not there.
    __device__ void weights(std::int64_t at, float (&w)[8]) const {
        load8(values, base + at, vocab - at, w);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            w[i] = at + i < vocab ? shared::sampling_weight(w[i], largest, inverse_temperature) : 0.0f;
    }
};

// Every thread gets the best one by Better; `room` is shared memory for 32 values.
template <typename T, typename Better>
__device__ T block_best(T value, T* room, const Better& better) {
    const int warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const T other = __shfl_xor_sync(kAllLanes, value, step);
        if (better(other, value)) value = other;
    }
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[0];
    for (int i = 1; i < warps; ++i) {
        if (better(room[i], value)) value = room[i];
    }
    __syncthreads();
    return value;
}

struct Greater {
    template <typename T>
    __device__ bool operator()(T a, T b) const {
        return a > b;
    }
};

struct Less {
    template <typename T>
    __device__ bool operator()(T a, T b) const {
        return a < b;
    }
};

// The largest logit that a thread has met, and the first token that has it. A NaN in front stays, as on the
// CPU; others lose every comparison.
struct Largest {
    float value;
    int token = 0;

    __device__ explicit Largest(const Logits& row) : value(load1(row.values, row.base)) {
        const auto take = [&]<int kCount>(const float(&x)[kCount], const auto& ids) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                if (x[i] > value) value = x[i], token = ids(i);
            }
        };
        if (row.values.is_bfloat16) {
            walk_logits<kSamplingThreads, true>(row.values, row.base, static_cast<int>(row.vocab), take);
        } else {
            walk_logits<kSamplingThreads, false>(row.values, row.base, static_cast<int>(row.vocab), take);
        }
    }
    // Larger for larger logits, then for earlier tokens; both zeros are one.
    __device__ std::uint64_t key() const {
        const std::uint32_t bits = shared::bits_of(value + 0.0f);
        const std::uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
        return std::uint64_t{ordered} << 32 | ~static_cast<std::uint32_t>(token);
    }
};

// The first token at which the mass of those up to it passes `wanted`; else the last that has any.
__device__ std::int64_t walk(const Logits& row, double wanted, double* sums, std::int64_t* room) {
    double before = 0.0;
    std::int64_t last = -1;
    for (std::int64_t tile = 0; tile < row.vocab; tile += kTile) {
        const std::int64_t at = tile + threadIdx.x * kVector;
        float w[8] = {};
        if (at < row.vocab) row.weights(at, w);
        double mine = 0.0;
#pragma unroll
        for (int i = 0; i < 8; ++i) mine += static_cast<double>(w[i]);
        double all = 0.0;
        double passed = before + block_exclusive_sum(mine, sums, all);
        std::int64_t first = kNone;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (w[i] <= 0.0f) continue;
            last = at + i;
            passed += static_cast<double>(w[i]);
            if (first == kNone && passed > wanted) first = at + i;
        }
        before += all;
        if (before > wanted) {  // the same for all threads
            first = block_best(first, room, Less());
            if (first != kNone) return first;
        }
    }
    return block_best(last, room, Greater());
}

// Counts and masses of the weights of this level and prefix, of at least `floor`.
__device__ void count_weights(const Logits& row, int level, std::uint32_t prefix, std::uint32_t floor,
                              unsigned* histogram, std::uint32_t* counts, double* masses) {
    for (unsigned i = threadIdx.x; i < 3 * kSamplingBuckets * kReplicas; i += kSamplingThreads)
        histogram[i] = 0;
    __syncthreads();
    for (std::int64_t at = threadIdx.x * kVector; at < row.vocab; at += kTile) {
        float w[8];
        row.weights(at, w);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const std::uint32_t bits = shared::bits_of(w[i]);
            if (bits == 0 || bits < floor || !shared::sampling_within(bits, prefix, level)) continue;
            const std::uint32_t units = shared::sampling_units(bits);
            unsigned* const to =
                histogram + shared::sampling_bucket(bits, level) * 3 * kReplicas + threadIdx.x % kReplicas;
            atomicAdd(to, 1u);
            atomicAdd(to + kReplicas, units & 0xfffu);
            atomicAdd(to + 2 * kReplicas, units >> 12);
        }
    }
    __syncthreads();
    if (threadIdx.x < kSamplingBuckets) {
        const unsigned* const from = histogram + threadIdx.x * 3 * kReplicas;
        std::uint32_t count = 0;
        std::uint64_t low = 0, high = 0;
        for (int i = 0; i < kReplicas; ++i) {
            count += from[i];
            low += from[kReplicas + i];
            high += from[2 * kReplicas + i];
        }
        counts[threadIdx.x] = count;
        masses[threadIdx.x] =
            shared::sampling_mass(low + (high << 12), level == 0 ? threadIdx.x : prefix >> 23);
    }
    __syncthreads();
}

// Shared memory of a block that looks for a restricted token.
struct Search {
    std::uint32_t counts[kSamplingBuckets];
    double masses[kSamplingBuckets];
    SamplingPlace place;
    std::uint32_t end_bits;  // the last weight that stays, of which `kept` do; 0: all stay
    std::uint64_t kept;
    double wanted;
    bool all_stay;
};

// The tie-th token, by id, whose weight is `bits`.
__device__ std::int64_t token_of(const Logits& row, std::uint32_t bits, std::uint64_t tie,
                                 std::uint64_t* sums, std::int64_t* room) {
    std::uint64_t before = 0;
    for (std::int64_t tile = 0; tile < row.vocab; tile += kTile) {
        const std::int64_t at = tile + threadIdx.x * kVector;
        float w[8] = {};
        if (at < row.vocab) row.weights(at, w);
        std::uint64_t mine = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) mine += shared::bits_of(w[i]) == bits ? 1 : 0;
        std::uint64_t all = 0;
        std::uint64_t place = before + block_exclusive_sum(mine, sums, all);
        before += all;
        if (before <= tie) continue;  // the same for all threads
        std::int64_t found = kNone;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (shared::bits_of(w[i]) == bits && place++ == tie) found = at + i;
        }
        return block_best(found, room, Less());
    }
    return kNone;
}

// Two descents: to the end of what the restriction leaves, then to the token.
__device__ std::int64_t restricted(const Logits& row, const SampleRow& sample, double total,
                                   unsigned* histogram, Search& search, std::uint64_t* sums,
                                   std::int64_t* room) {
    const std::uint32_t floor = sample.min_p > 0.0f ? shared::bits_of(sample.min_p) : 0u;
    const shared::SamplingCut cut{sample.limit, sample.top_p < kInfinity ? sample.top_p * total : kInfinity};
#pragma unroll 1
    for (int descent = 0; descent < 2; ++descent) {
        if (threadIdx.x == 0) search.place = SamplingPlace();
        __syncthreads();
        bool all_stay = false;
#pragma unroll 1
        for (int level = 0; level < kSamplingLevels && !all_stay; ++level) {
            count_weights(row, level, search.place.bits, floor, histogram, search.counts, search.masses);
            if (threadIdx.x == 0) {
                const bool reached =
                    descent == 0
                        ? shared::sampling_descend(search.place, level, search.counts, search.masses, cut)
                        : shared::sampling_descend(search.place, level, search.counts, search.masses,
                                                   shared::SamplingPick{search.wanted});
                if (descent == 0 && level == 0) search.all_stay = !reached;
            }
            __syncthreads();
            all_stay = descent == 0 && search.all_stay;
        }
        if (threadIdx.x == 0 && descent == 0) {
            const SamplingPlace& place = search.place;
            search.kept = all_stay ? 0 : cut.kept(place);
            search.end_bits = all_stay ? 0 : place.bits;
            const double stays = all_stay ? search.masses[shared::sampling_bucket(place.bits, 0)]
                                          : static_cast<double>(search.kept) *
                                                static_cast<double>(shared::float_of(place.bits));
            search.wanted = sample.uniform * (place.mass + stays);
        }
        __syncthreads();
    }
    std::uint32_t bits = search.place.bits;
    std::uint64_t tie = shared::SamplingPick{search.wanted}.tie(search.place);
    if (bits < search.end_bits || (bits == search.end_bits && tie >= search.kept)) {
        bits = search.end_bits;
        tie = search.kept - 1;
    }
    return token_of(row, bits, tie, sums, room);
}

// The start of every way of choosing: the largest logit, and the first token that has it; kNoToken if it is
// not finite.
__device__ std::int64_t begin(Logits& row, std::uint64_t* room) {
    const Largest mine(row);
    const std::uint64_t best = block_best(mine.key(), room, Greater());
    const auto ordered = static_cast<std::uint32_t>(best >> 32);
    row.largest = mine.value == mine.value
                      ? shared::float_of(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered)
                      : mine.value;  // a NaN in front: all threads have met it
    if ((shared::bits_of(row.largest) & 0x7f800000u) == 0x7f800000u) return kNoToken;
    return ~static_cast<std::uint32_t>(best);
}

// The mass of all weights; NaN if one is NaN.
__device__ double total_of(const Logits& row, double* room) {
    double total = 0.0;
    for (std::int64_t at = threadIdx.x * kVector; at < row.vocab; at += kTile) {
        float w[8];
        row.weights(at, w);
#pragma unroll
        for (int i = 0; i < 8; ++i) total += static_cast<double>(w[i]);
    }
    return block_sum(total, room);
}

// Greedy and unrestricted samples; the others are restricted_kernel's.
__global__ void __launch_bounds__(kSamplingThreads)
    sample_kernel(Elements logits, std::int64_t vocab, const SampleRow* samples, std::int32_t* tokens) {
    __shared__ std::uint64_t keys[32];
    __shared__ double sums[33];
    __shared__ std::int64_t ids[32];
    const SampleRow sample = samples[blockIdx.x];
    if (!sample.greedy && sample.restricted) return;
    Logits row{logits, sample.row * vocab, vocab, 0.0f, sample.inverse_temperature};
    std::int64_t token = begin(row, keys);
    if (token != kNoToken && !sample.greedy) {
        const double total = total_of(row, sums);
        token = total == total ? walk(row, sample.uniform * total, sums, ids) : kNoToken;
    }
    if (threadIdx.x == 0) tokens[blockIdx.x] = static_cast<std::int32_t>(token);
}

__global__ void __launch_bounds__(kSamplingThreads)
    restricted_kernel(Elements logits, std::int64_t vocab, const SampleRow* samples, std::int32_t* tokens) {
    TANDEM_DYNAMIC_SHARED(dynamic);
    __shared__ Search search;
    __shared__ std::uint64_t keys[32];
    __shared__ double sums[32];
    __shared__ std::uint64_t counts[33];
    __shared__ std::int64_t ids[32];
    const SampleRow sample = samples[blockIdx.x];
    if (sample.greedy || !sample.restricted) return;
    Logits row{logits, sample.row * vocab, vocab, 0.0f, sample.inverse_temperature};
    std::int64_t token = kNoToken;
    if (begin(row, keys) != kNoToken) {
        const double total = total_of(row, sums);
        if (total == total)
            token = restricted(row, sample, total, reinterpret_cast<unsigned*>(dynamic), search, counts, ids);
    }
    if (threadIdx.x == 0) tokens[blockIdx.x] = static_cast<std::int32_t>(token);
}

SampleRow described(const Sampling& from) {
    return {.row = from.row,
            .inverse_temperature = 1.0f / from.temperature,
            .min_p = from.min_p,
            .limit = from.top_k > 0 ? static_cast<std::uint64_t>(from.top_k) : std::uint64_t{1} << 40,
            .top_p = from.top_p < 1.0f ? static_cast<double>(from.top_p) : kInfinity,
            .uniform = from.uniform,
            .greedy = from.greedy(),
            .restricted = from.restricted()};
}

}  // namespace

void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs) {
    if (samples.empty()) return;
    Work work(stream, "sample_tokens");
    const auto count = static_cast<std::int64_t>(samples.size());
    std::vector<SampleRow> rows;  // what each of the blocks does
    std::vector<std::int32_t> row_of;
    std::vector<float> temperatures;
    bool any_logprob = false;
    for (const Sampling& sample : samples) {
        rows.push_back(described(sample));
        row_of.push_back(sample.row);
        temperatures.push_back(1.0f / sample.logprob_temperature());
        any_logprob = any_logprob || sample.logprob;
    }
    const std::int64_t vocab = logits.dim(1);
    std::int32_t* const chosen = work.scratch<std::int32_t>(count);
    const SampleRow* const described_rows = work.upload(rows);
    const auto any = [&](bool wanted) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const SampleRow& row) { return (!row.greedy && row.restricted) == wanted; });
    };
    if (any(false))
        work.launch(sample_kernel, count, kSamplingThreads, 0, elements(logits, vocab), vocab, described_rows,
                    chosen);
    if (any(true))
        work.launch(restricted_kernel, count, kSamplingThreads, kHistogramBytes, elements(logits, vocab),
                    vocab, described_rows, chosen);
    if (any_logprob) {
        float* const results = work.scratch<float>(3 * count);
        logprob_rows(work, logits,
                     {.rows = work.upload(row_of),
                      .targets = chosen,
                      .inverse_temperatures = work.upload(temperatures),
                      .logprobs = results,
                      .lse = results + count,
                      .entropies = results + 2 * count},
                     count);
        work.download(results, logprobs);
    }
    work.download(chosen, tokens);
}

}  // namespace tandem::ops::TANDEM_KERNELS

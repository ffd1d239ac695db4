// The engine's forward pass: against the naive fp64 one, and against itself, bit for bit, prefilled or
// decoded.
#include "engine_adapter/embedded/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "common/ops/cross_entropy.h"
#include "common/ops/matmul.h"
#include "common/ops/packed_weight.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {
namespace {

std::vector<std::int32_t> random_tokens(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 40);
    return tokens;
}

struct DecoderRig {
    explicit DecoderRig(const TinyOptions& options, DType dtype = DType::float32, bool pack_weights = true,
                        int sum_parts = 1)
        : config(tiny_config(options)),
          weights(config, dtype, stream),
          cache(config, dtype, 2048, 16),
          decoder(config, weights, cache, stream, pack_weights, true, sum_parts) {
        fill_weights(weights.slots(), 7);
    }
    PrefillSequence sequence(const std::vector<std::int32_t>& tokens, std::int64_t room = 0) {
        PrefillSequence result{tokens, {}};
        const auto length = static_cast<std::int64_t>(tokens.size()) + room;
        for (std::int64_t i = 0; i < cache.pages_for(length); ++i)
            result.pages.push_back(cache.pool().allocate());
        return result;
    }
    model::ModelConfig config;
    Stream stream = Stream::make_inline();
    ModelWeights weights;
    KvCache cache;
    Decoder decoder;
};

model::RopeScaling scaled_rope(model::RopeScaling::Type type) {
    model::RopeScaling rope;
    rope.type = type;
    rope.factor = 4;
    rope.original_max_position_embeddings = 24;
    return rope;
}

// Every family, tied and untied.
std::vector<TinyOptions> families() {
    using Type = model::RopeScaling::Type;
    std::vector<TinyOptions> result;
    for (const bool tied : {true, false}) {
        result.push_back({.qk_norm = true, .tied = tied, .layers = 3});
        result.push_back({.qk_norm = false, .tied = tied, .layers = 3});
        result.push_back({.qk_norm = false, .tied = tied, .qkv_bias = true, .rope = scaled_rope(Type::yarn)});
        result.push_back({.qk_norm = false, .tied = tied, .rope = scaled_rope(Type::llama3)});
        result.push_back({.qk_norm = false, .tied = tied, .qkv_bias = true, .other_biases = true});
    }
    return result;
}

TEST(Decoder, LogprobsMatchTheNaiveForward) {
    for (const TinyOptions& options : families()) {
        DecoderRig rig(options);
        for (const std::size_t length : {1u, 2u, 15u, 16u, 17u, 50u}) {
            const auto tokens = random_tokens(length, length);
            const Tensor logits = rig.decoder.prefill({rig.sequence(tokens)});
            const auto expected = naive_logprobs(rig.config, rig.weights.slots(), tokens).back();
            Stream stream = Stream::make_inline();
            for (std::int32_t target = 0; target < 40; ++target) {
                std::vector<float> logprob(1), lse(1);
                ops::token_logprobs(stream, logits, std::vector<std::int32_t>{target}, 1.0f, logprob, lse);
                EXPECT_NEAR(static_cast<double>(logprob[0]), expected[static_cast<std::size_t>(target)], 2e-5)
                    << rig.config.architecture() << " length " << length << " token " << target;
            }
        }
    }
}

// In parts of its columns, uneven ones too: the same within rounding, other bits, whatever is packed, cut or decoded.
TEST(Decoder, SumsInAsManyPartsAsATrainersRanks) {
    for (const TinyOptions& options : families()) {
        const auto tokens = random_tokens(33, 5);
        DecoderRig one(options);
        const auto whole = one.decoder.prefill({one.sequence(tokens)}).to_vector<float>();
        for (const int parts : {2, 3, 7}) {
            std::vector<std::vector<float>> found;
            for (const bool pack : {true, false}) {
                DecoderRig rig(options, DType::float32, pack, parts);
                found.push_back(rig.decoder.prefill({rig.sequence(tokens)}).to_vector<float>());
                // The last token by itself, after the others.
                const std::vector<std::int32_t> before(tokens.begin(), tokens.end() - 1);
                const PrefillSequence sequence = rig.sequence(before, 8);
                rig.decoder.prefill({sequence});
                found.push_back(
                    rig.decoder.decode({{tokens.back()}, {33}, {sequence.pages}}).to_vector<float>());
                // New weights are cut anew.
                fill_weights(rig.weights.slots(), 8);
                rig.weights.changed();
                EXPECT_NE(rig.decoder.prefill({rig.sequence(tokens)}).to_vector<float>(), found[0]);
            }
            for (const auto& logits : found) {
                EXPECT_EQ(logits, found[0]) << parts;
                ASSERT_EQ(logits.size(), whole.size());
                for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(logits[i], whole[i], 1e-4);
            }
            EXPECT_NE(found[0], whole) << "the order of a sum shows";
        }
    }
}

// Prefill of t tokens and a decode step from t - 1 must agree to the last bit, whatever else is in the batch:
// that is what makes the engine's log-probs equal to the trainer's, and preemption invisible.
void expect_decode_equals_prefill(DType dtype, const TinyOptions& options = {}) {
    DecoderRig rig(options, dtype);
    const auto tokens = random_tokens(70, 3);
    DecoderRig other(options, dtype);
    const std::vector<std::int32_t> start(tokens.begin(), tokens.begin() + 1);
    const PrefillSequence sequence = rig.sequence(start, 70);
    const auto neighbour_tokens = random_tokens(20, 4);
    const PrefillSequence neighbour = rig.sequence(neighbour_tokens, 70);
    rig.decoder.prefill({neighbour, sequence});
    for (std::size_t t = 1; t < tokens.size(); ++t) {
        const DecodeBatch batch{{neighbour_tokens[t % 20], tokens[t]},
                                {static_cast<std::int32_t>(20 + t), static_cast<std::int32_t>(t + 1)},
                                {neighbour.pages, sequence.pages}};
        const Tensor decoded = rig.decoder.decode(batch);
        const std::vector<std::int32_t> prefix(tokens.begin(),
                                               tokens.begin() + static_cast<std::ptrdiff_t>(t) + 1);
        const PrefillSequence whole = other.sequence(prefix);
        const Tensor prefilled = other.decoder.prefill({whole});
        for (const std::int32_t page : whole.pages) other.cache.pool().release(page);
        EXPECT_EQ(decoded.rows(1, 1).to_vector<float>(), prefilled.to_vector<float>()) << "at " << t;
    }
}

TEST(Decoder, DecodeEqualsPrefillBitForBitInFp32) {
    expect_decode_equals_prefill(DType::float32);
}
TEST(Decoder, DecodeEqualsPrefillBitForBitInBf16) {
    expect_decode_equals_prefill(DType::bfloat16);
}

TEST(Decoder, DecodeEqualsPrefillBitForBitWithBiases) {
    const TinyOptions biased{.qk_norm = false,
                             .qkv_bias = true,
                             .other_biases = true,
                             .rope = scaled_rope(model::RopeScaling::Type::yarn)};
    expect_decode_equals_prefill(DType::float32, biased);
    expect_decode_equals_prefill(DType::bfloat16, biased);
}

TEST(Decoder, ARowDoesNotDependOnItsNeighbours) {
    DecoderRig rig({});
    std::vector<PrefillSequence> together;
    for (const std::size_t length : {5u, 33u, 1u, 16u})
        together.push_back(rig.sequence(random_tokens(length, length)));
    const Tensor packed = rig.decoder.prefill(together);
    for (std::size_t s = 0; s < together.size(); ++s) {
        const Tensor alone = rig.decoder.prefill({rig.sequence(together[s].tokens)});
        EXPECT_EQ(packed.rows(static_cast<std::int64_t>(s), 1).to_vector<float>(), alone.to_vector<float>());
    }
}

// What prefill leaves: logits, and keys and values of every position and layer.
struct Left {
    std::vector<float> logits;
    std::vector<std::byte> cached;
    bool operator==(const Left&) const = default;
};

Left left_by(const DecoderRig& rig, const Tensor& logits, const PrefillSequence& whole) {
    Left left{logits.to_vector<float>(), {}};
    const auto length = static_cast<std::int64_t>(whole.tokens.size());
    for (std::size_t layer = 0; layer < rig.weights.layers(); ++layer) {
        for (const Tensor* cache : {&rig.cache.k(layer), &rig.cache.v(layer)}) {
            const Tensor rows = cache->reshape({cache->dim(0) * 16, cache->numel() / (cache->dim(0) * 16)});
            for (std::int64_t i = 0; i < length; ++i) {
                const Tensor row = rows.rows(whole.pages[static_cast<std::size_t>(i / 16)] * 16 + i % 16, 1);
                left.cached.insert(left.cached.end(), row.raw(), row.raw() + row.bytes());
            }
        }
    }
    return left;
}

PrefillSequence piece_of(const PrefillSequence& whole, std::int64_t begin, std::int64_t count) {
    const auto from = whole.tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    const bool ends = begin + count == static_cast<std::int64_t>(whole.tokens.size());
    return {{from, from + static_cast<std::ptrdiff_t>(count)}, whole.pages, begin, ends};
}

// Prefills in pieces of next_count tokens.
Left left_by_pieces(DecoderRig& rig, const PrefillSequence& whole,
                    const std::function<std::int64_t()>& next_count) {
    const auto length = static_cast<std::int64_t>(whole.tokens.size());
    Tensor logits;
    for (std::int64_t begin = 0; begin < length;) {
        const std::int64_t count = std::min(next_count(), length - begin);
        logits = rig.decoder.prefill({piece_of(whole, begin, count)});
        EXPECT_EQ(logits.defined(), begin + count == length);
        begin += count;
    }
    return left_by(rig, logits, whole);
}

void expect_no_cut_shows(const TinyOptions& options, DType dtype, std::size_t length, std::int64_t cuts) {
    DecoderRig rig(options, dtype);
    const auto tokens = random_tokens(length, length);
    const PrefillSequence whole = rig.sequence(tokens), other = rig.sequence(tokens);
    const Left expected = left_by(rig, rig.decoder.prefill({whole}), whole);
    for (std::int64_t cut = 1; cut <= cuts; ++cut)
        EXPECT_EQ(left_by_pieces(rig, other, [&] { return cut; }), expected) << "pieces of " << cut;
    std::mt19937_64 random(length);
    for (int i = 0; i < 8; ++i) {
        const std::uint64_t most = i % 2 == 0 ? 20 : 100;
        EXPECT_EQ(left_by_pieces(rig, other, [&] { return static_cast<std::int64_t>(1 + random() % most); }),
                  expected)
            << "random pieces " << i;
    }
}

TEST(DecoderPieces, AnyCutGivesTheBitsOfWholePrefill) {
    for (const TinyOptions& options : families()) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            expect_no_cut_shows(options, dtype, 150, 33);
            if (HasFailure()) FAIL() << tiny_config(options).architecture() << " " << dtype_name(dtype);
        }
    }
}

TEST(DecoderPieces, WithAnyHeadsToo) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t head_dim : {16, 20, 64, 80, 96, 128, 256})
            expect_no_cut_shows({.layers = 1, .head_dim = head_dim}, dtype, 200, 3);
        expect_no_cut_shows({.heads = 7, .kv_heads = 1}, dtype, 200, 3);
        expect_no_cut_shows({.heads = 3, .kv_heads = 3}, dtype, 200, 3);
    }
}

TEST(DecoderPieces, OnSeveralThreads) {
    ops::set_compute_threads(4);
    for (const DType dtype : {DType::float32, DType::bfloat16}) expect_no_cut_shows({}, dtype, 200, 3);
    ops::set_compute_threads(1);
}

// Pieces of several sequences, at other places of theirs, and a whole one.
TEST(DecoderPieces, OfSeveralSequencesInOnePass) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        DecoderRig rig({}, dtype);
        std::vector<PrefillSequence> whole;
        std::vector<Left> expected;
        for (const std::size_t length : {130u, 61u, 90u, 5u}) {
            whole.push_back(rig.sequence(random_tokens(length, length)));
            expected.push_back(left_by(rig, rig.decoder.prefill({whole.back()}), whole.back()));
        }
        for (PrefillSequence& sequence : whole) sequence = rig.sequence(sequence.tokens);
        rig.decoder.prefill({piece_of(whole[0], 0, 70), piece_of(whole[1], 0, 3)});
        rig.decoder.prefill({piece_of(whole[1], 3, 20), piece_of(whole[2], 0, 50)});
        const Tensor first = rig.decoder.prefill(
            {piece_of(whole[2], 50, 17), piece_of(whole[1], 23, 38), whole[3], piece_of(whole[0], 70, 9)});
        ASSERT_EQ(first.dim(0), 2);
        EXPECT_EQ(left_by(rig, first.rows(0, 1), whole[1]), expected[1]);
        EXPECT_EQ(left_by(rig, first.rows(1, 1), whole[3]), expected[3]);
        const Tensor second = rig.decoder.prefill({piece_of(whole[0], 79, 51), piece_of(whole[2], 67, 23)});
        EXPECT_EQ(left_by(rig, second.rows(0, 1), whole[0]), expected[0]);
        EXPECT_EQ(left_by(rig, second.rows(1, 1), whole[2]), expected[2]);
    }
}

// The logits of a step, and of one after it: that finds what the first wrote to the pages.
std::vector<std::vector<float>> two_steps(std::size_t sequences, DType dtype, int threads) {
    DecoderRig rig({}, dtype);
    DecodeBatch batch;
    for (std::size_t i = 0; i < sequences; ++i) {
        const PrefillSequence prompt = rig.sequence(random_tokens(1 + i % 20, i), 2);
        rig.decoder.prefill({prompt});
        batch.tokens.push_back(static_cast<std::int32_t>(i % 40));
        batch.lengths.push_back(static_cast<std::int32_t>(prompt.tokens.size() + 1));
        batch.block_tables.push_back(prompt.pages);
    }
    ops::set_compute_threads(threads);
    std::vector<std::vector<float>> steps;
    for (int step = 0; step < 2; ++step) {
        steps.push_back(rig.decoder.decode(batch).to_vector<float>());
        for (std::int32_t& length : batch.lengths) ++length;
    }
    ops::set_compute_threads(1);
    return steps;
}

TEST(Decoder, AStepHasTheSameBitsOnAnyNumberOfThreads) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::size_t sequences : {31u, 32u, 37u, 75u}) {
            const auto expected = two_steps(sequences, dtype, 1);
            for (const int threads : {2, 3}) {
                EXPECT_EQ(two_steps(sequences, dtype, threads), expected)
                    << dtype_name(dtype) << ", " << sequences << " sequences on " << threads << " threads";
            }
        }
    }
}

TEST(Decoder, PackedWeightsChangeNoBit) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        DecoderRig packed({}, dtype, true), plain({}, dtype, false);
        const auto tokens = random_tokens(20, 3);
        for (int version = 0; version < 2; ++version) {
            for (DecoderRig* rig : {&packed, &plain}) {
                fill_weights(rig->weights.slots(), static_cast<std::uint64_t>(8 + version));
                rig->weights.changed();
            }
            const Tensor a = packed.decoder.prefill({packed.sequence(tokens)});
            const Tensor b = plain.decoder.prefill({plain.sequence(tokens)});
            EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()) << "version " << version;
        }
        plain.decoder.release_packed();
        const auto held = memory_stats("engine.packed").live_bytes;
        packed.decoder.release_packed();
        EXPECT_EQ(memory_stats("engine.packed").live_bytes, 0U);
        // Where this machine has a better layout, packing took memory, and only packing.
        ops::PackedWeight probe;
        probe.pack(packed.weights.layer(0)[model::Role::q], "probe");
        EXPECT_EQ(held > 0, probe.packed().bytes > 0);
    }
}

TEST(Decoder, Bf16StaysNearFp32) {
    DecoderRig exact({});
    DecoderRig rounded({}, DType::bfloat16);
    const auto tokens = random_tokens(30, 9);
    const auto a = exact.decoder.prefill({exact.sequence(tokens)}).to_vector<float>();
    const auto b = rounded.decoder.prefill({rounded.sequence(tokens)}).to_vector<float>();
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
        largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    }
    EXPECT_LT(worst, 0.1 * largest);
    EXPECT_GT(worst, 0.0) << "bf16 must really have been used";
}

}  // namespace
}  // namespace tandem::engine

// The attention of one layer of SmolLM2-135M in bfloat16 as the trainer runs it, a pack of two sequences, and as the
// engine does, a prefill and then token by token: by the CUDA kernels on the emulated GPU
// (TANDEM_EMULATED_ATTENTION), the same bits; with other parts in decode, others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/comm/launch.h"
#include "common/ops/attention.h"
#include "common/ops/elementwise.h"
#include "engine_adapter/embedded/kv_cache.h"
#include "trainer/nn/attention.h"

namespace tandem::trainer {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};
constexpr std::int64_t kLength = 96, kSequences = 2, kRows = kLength * kSequences;
constexpr std::int64_t kPage = 16;
constexpr std::int64_t kPacked = 20;                    // tokens of the first piece of a prefill
constexpr std::int64_t kPrefix[kSequences] = {33, 50};  // of all of it: the others are decoded

model::ModelConfig smollm2() {
    model::ModelConfig config;
    config.num_hidden_layers = 1;
    config.hidden_size = 576;
    config.num_attention_heads = 9;
    config.num_key_value_heads = 3;
    config.head_dim = 64;
    config.rope_theta = 100000;
    config.max_position_embeddings = 8192;
    config.qk_norm = false;
    return config;
}

class TrainingAndDecode : public testing::Test {
  protected:
    Tensor random(Shape shape, float deviation) {
        std::normal_distribution<float> normal(0.0f, deviation);
        const Tensor values = Tensor::empty(std::move(shape), DType::float32, "test");
        for (float& value : values.values<float>()) value = normal(generator_);
        const Tensor rounded = Tensor::empty(values.shape(), DType::bfloat16, "test");
        Stream here = Stream::make_inline();
        ops::cast(here, values, rounded);
        return on_gpu(rounded);
    }
    Tensor on_gpu(const Tensor& host) {
        Tensor result = host.to(stream_, kGpu, "test");
        stream_.synchronize();
        return result;
    }
    Tensor empty(Shape shape) { return Tensor::empty(stream_, std::move(shape), DType::bfloat16, "test"); }
    Tensor integers(const std::vector<std::int32_t>& values) {
        const Tensor host = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::int32, "test");
        std::copy(values.begin(), values.end(), host.values<std::int32_t>().begin());
        return on_gpu(host);
    }

    // Queries, keys, values and results of the layer's attention, from normed hidden states.
    ContextSaved train();
    // The results of the engine's calls for the same rows.
    Tensor generate(const ContextSaved& trained);
    void prefill(const ContextSaved& trained, const Tensor& out);
    void decode(const ContextSaved& trained, std::int64_t position, const Tensor& out);
    Tensor by_the_cpu(const ContextSaved& trained);

    // Values whose bits differ.
    std::int64_t different(const Tensor& a, const Tensor& b) {
        const std::vector<std::uint16_t> of_a = bits(a), of_b = bits(b);
        std::int64_t count = 0;
        for (std::size_t i = 0; i < of_a.size(); ++i) count += of_a[i] != of_b[i] ? 1 : 0;
        return count;
    }
    std::vector<std::uint16_t> bits(const Tensor& tensor) {
        const Tensor host = tensor.to_host(stream_);
        std::vector<std::uint16_t> result(static_cast<std::size_t>(host.numel()));
        std::memcpy(result.data(), host.raw(), host.bytes());
        return result;
    }

    std::mt19937 generator_{5};
    Stream stream_ = Stream::make_compute(kGpu);
    model::ModelConfig config_ = smollm2();
    float scale_ = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
    engine::KvCache cache_{config_, DType::bfloat16, kRows, kPage, kGpu};
    std::vector<std::int32_t> pages_[kSequences];
};

ContextSaved TrainingAndDecode::train() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t kv = config_.num_key_value_heads * config_.head_dim;
    Parameter parameters[4];
    for (std::size_t i = 0; i < 4; ++i) {
        parameters[i].value_shape = {i == 1 || i == 2 ? kv : hidden, hidden};
        parameters[i].value = random(parameters[i].value_shape, 2.0f / std::sqrt(static_cast<float>(hidden)));
    }
    const auto frequencies = config_.rope_frequencies();
    const Attention attention(
        config_, ops::RopeTable(frequencies.inverse, frequencies.attention_factor),
        {Linear(parameters[0]), Linear(parameters[1]), Linear(parameters[2]), Linear(parameters[3])});
    const auto alone = comm::solo();
    const TensorParallel tensor(*alone, false);
    const std::int64_t lengths[] = {kLength, kLength};
    const auto context = make_local_context(packed_layout(lengths, 1, 0), stream_);
    std::vector<std::int32_t> positions;
    for (std::int32_t row = 0; row < kRows; ++row) positions.push_back(row % kLength);
    Attention::Saved saved;
    attention.forward({stream_, DType::bfloat16, *context, tensor, positions}, random({kRows, hidden}, 1.0f),
                      saved);
    stream_.synchronize();
    return saved.context;
}

Tensor TrainingAndDecode::generate(const ContextSaved& trained) {
    for (auto& pages : pages_) {
        for (std::int64_t i = 0; i < cache_.pages_for(kLength); ++i)
            pages.push_back(cache_.pool().allocate());
    }
    const Tensor out = empty(trained.out.shape());
    prefill(trained, out);
    for (std::int64_t position = 0; position < kLength; ++position) decode(trained, position, out);
    stream_.synchronize();
    return out;
}

// What comes before the decode, as engine_adapter/embedded/decoder.cpp does it: packed at first, the rest behind it
// from the pages.
void TrainingAndDecode::prefill(const ContextSaved& trained, const Tensor& out) {
    std::vector<engine::KvCache::Rows> rows;
    std::vector<ops::AttentionSegment> packed;
    std::vector<ops::PagedSegment> pieces;
    for (std::int64_t s = 0; s < kSequences; ++s) {
        const std::int64_t first = s * kLength, count = kPrefix[s];
        rows.push_back({&pages_[s], 0, first, count});
        packed.push_back({first, kPacked, first, kPacked, true});
        pieces.push_back({first + kPacked, count - kPacked, count, pages_[s]});
    }
    cache_.write(stream_, 0, trained.k, trained.v, rows);
    const Tensor lse = Tensor::empty(stream_, trained.lse.shape(), DType::float32, "test");
    ops::attention_forward(stream_, trained.q, trained.k, trained.v, packed, scale_, out, lse);
    ops::paged_attention_prefill(stream_, trained.q, cache_.k(0), cache_.v(0), pieces, scale_, out);
}

// The token at `position` of those sequences that have come so far.
void TrainingAndDecode::decode(const ContextSaved& trained, std::int64_t position, const Tensor& out) {
    std::vector<std::int64_t> rows;
    std::vector<std::int32_t> pages, lengths;
    for (std::int64_t s = 0; s < kSequences; ++s) {
        if (position < kPrefix[s]) continue;
        rows.push_back(s * kLength + position);
        pages.insert(pages.end(), pages_[s].begin(), pages_[s].end());
        lengths.push_back(static_cast<std::int32_t>(position) + 1);
    }
    if (rows.empty()) return;
    const auto batch = static_cast<std::int64_t>(rows.size());
    const auto gathered = [&](const Tensor& all) {
        Tensor some = empty({batch, all.dim(1), all.dim(2)});
        for (std::int64_t b = 0; b < batch; ++b)
            copy(stream_, all.rows(rows[static_cast<std::size_t>(b)], 1), some.rows(b, 1));
        return some;
    };
    const Tensor tables = integers(pages).reshape({batch, static_cast<std::int64_t>(pages_[0].size())});
    const Tensor of_length = integers(lengths);
    ops::write_pages(stream_, gathered(trained.k), gathered(trained.v), tables, of_length, cache_.k(0),
                     cache_.v(0));
    const Tensor results = empty({batch, out.dim(1), out.dim(2)});
    ops::paged_attention_decode(stream_, gathered(trained.q), cache_.k(0), cache_.v(0), tables, of_length,
                                scale_, results);
    for (std::int64_t b = 0; b < batch; ++b)
        copy(stream_, results.rows(b, 1), out.rows(rows[static_cast<std::size_t>(b)], 1));
}

Tensor TrainingAndDecode::by_the_cpu(const ContextSaved& trained) {
    const Tensor out = Tensor::empty(trained.out.shape(), DType::bfloat16, "test");
    const Tensor lse = Tensor::empty(trained.lse.shape(), DType::float32, "test");
    Stream here = Stream::make_inline();
    ops::attention_forward(here, trained.q.to_host(stream_), trained.k.to_host(stream_),
                           trained.v.to_host(stream_), ops::packed_segments({0, kLength, kRows}), scale_, out,
                           lse);
    return on_gpu(out);
}

TEST_F(TrainingAndDecode, AgreeInEveryBit) {
    const ContextSaved trained = train();
    ASSERT_EQ(trained.out.numel(), 110'592);
    EXPECT_EQ(different(trained.out, generate(trained)), 0);
    EXPECT_GT(different(trained.out, by_the_cpu(trained)), 1000);  // whose sums have another order
}

// TANDEM_EMULATED_ATTENTION=other_parts: decode alone cuts a sequence every 64 keys.
TEST_F(TrainingAndDecode, DifferByOtherPartsInDecode) {
    const ContextSaved trained = train();
    const Tensor generated = generate(trained);
    for (std::int64_t s = 0; s < kSequences; ++s) {
        const auto of = [&](std::int64_t first, std::int64_t count) {
            return different(trained.out.rows(s * kLength + first, count),
                             generated.rows(s * kLength + first, count));
        };
        EXPECT_EQ(of(0, 64), 0);
        EXPECT_GT(of(64, kLength - 64), 100);  // of 18,432
    }
}

}  // namespace
}  // namespace tandem::trainer

// Tensors of more than 2^31 elements, of which only a few rows are touched: kernels' indices have 64 bits
// where they need them. The memory is address space without pages behind it, so both sides can have it all.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <tuple>
#include <utility>

#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

// Zeros wherever nothing has been written.
class Sparse {
  public:
    Sparse(Shape shape, DType dtype) : bytes_(static_cast<std::size_t>(numel(shape)) * dtype_size(dtype)) {
        memory_ =
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory_ == MAP_FAILED) throw std::bad_alloc();
        tensor = Tensor::borrow({static_cast<std::byte*>(memory_), bytes_}, std::move(shape), dtype);
    }
    ~Sparse() { munmap(memory_, bytes_); }
    Sparse(const Sparse&) = delete;
    Sparse& operator=(const Sparse&) = delete;

    // What `from` holds, from element `at` on.
    void put(std::int64_t at, const Tensor& from) {
        std::memcpy(tensor.raw() + at * static_cast<std::int64_t>(dtype_size(tensor.dtype())), from.raw(),
                    from.bytes());
    }
    Tensor tensor;

  private:
    static std::int64_t numel(const Shape& shape) {
        std::int64_t product = 1;
        for (const std::int64_t dim : shape) product *= dim;
        return product;
    }
    std::size_t bytes_;
    void* memory_ = nullptr;
};

constexpr std::int64_t kElements = std::int64_t{5} << 29;  // 2.5 × 2^30: past 2^31

Tensor bfloat16(Shape shape, std::uint64_t seed) {
    return with_dtype(random(std::move(shape), seed), DType::bfloat16);
}

TEST(LargeOnHost, Embedding) {
    constexpr std::int64_t kDim = 1 << 14, kRows = kElements / kDim;
    Sparse table({kRows, kDim}, DType::bfloat16);
    const std::vector<std::int32_t> ids = {kRows - 1, 3, (1 << 17) + 1, kRows - 1};
    for (const std::int32_t id : ids)
        table.put(id * kDim, bfloat16({1, kDim}, static_cast<std::uint64_t>(id)));
    Tensor found = to_tested(bfloat16({4, kDim}, 1)), wanted = bfloat16({4, kDim}, 2);
    Stream cpu = Stream::make_inline();
    ops::embedding(cpu, table.tensor, ids, wanted);
    tested::embedding(tested_stream(), table.tensor, ids, found);
    EXPECT_EQ(values_of(found), values_of(wanted));

    Sparse gradient({kRows, kDim}, DType::float32), expected({kRows, kDim}, DType::float32);
    const Tensor dy = random({4, kDim}, 3);
    ops::embedding_backward(cpu, dy, ids, expected.tensor);
    tested::embedding_backward(tested_stream(), dy, ids, gradient.tensor);
    for (const std::int32_t id : ids)
        EXPECT_EQ(values_of(gradient.tensor.rows(id, 1)), values_of(expected.tensor.rows(id, 1)));
}

TEST(LargeOnHost, Sampling) {
    constexpr std::int64_t kVocab = 1 << 16, kRows = kElements / kVocab;
    Sparse logits({kRows, kVocab}, DType::float32);
    std::vector<ops::Sampling> samples(4);
    for (std::size_t i = 0; i < samples.size(); ++i) {
        samples[i].row = static_cast<std::int32_t>(kRows - 1 - 3 * static_cast<std::int64_t>(i));
        samples[i].top_k = i == 0 ? 1 : (i == 1 ? 40 : -1);
        samples[i].uniform = 0.37;
        samples[i].logprob = true;
        logits.put(samples[i].row * kVocab, random({1, kVocab}, i, 3.0f));
    }
    std::vector<std::int32_t> found(4), wanted(4);
    std::vector<float> found_logprobs(4), logprobs(4);
    Stream cpu = Stream::make_inline();
    ops::sample_tokens(cpu, logits.tensor, samples, wanted, logprobs);
    tested::sample_tokens(tested_stream(), logits.tensor, samples, found, found_logprobs);
    EXPECT_EQ(found, wanted);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(found_logprobs[i], logprobs[i], 1e-4) << i;
}

TEST(LargeOnHost, PagesOfACache) {
    constexpr std::int64_t kPageSize = 8, kHeads = 2, kDim = 64;
    constexpr std::int64_t kPages = kElements / (kPageSize * kHeads * kDim);
    const Shape shape = {kPages, kPageSize, kHeads, kDim};
    Sparse k_cache(shape, DType::bfloat16), v_cache(shape, DType::bfloat16);
    const std::vector<std::int32_t> pages = {kPages - 1, 5, kPages - 7, kPages - 2}, lengths = {11, 16};
    const std::vector<std::vector<std::int32_t>> tables = {{pages[0], pages[1]}, {pages[2], pages[3]}};
    for (const std::int32_t page : pages) {
        const auto seed = static_cast<std::uint64_t>(page);
        k_cache.put(page * kPageSize * kHeads * kDim, bfloat16({kPageSize, kHeads, kDim}, seed));
        v_cache.put(page * kPageSize * kHeads * kDim, bfloat16({kPageSize, kHeads, kDim}, seed + 1));
    }
    const Tensor table = Tensor::from<std::int32_t>(pages, {2, 2});
    const Tensor length = Tensor::from<std::int32_t>(lengths, {2});
    const Tensor k = bfloat16({2, kHeads, kDim}, 8), v = bfloat16({2, kHeads, kDim}, 9);
    tested::write_pages(tested_stream(), k, v, table, length, k_cache.tensor, v_cache.tensor);
    const std::int64_t last = (pages[3] * kPageSize + 7) * kHeads * kDim;  // the 16th position of the second
    EXPECT_EQ(std::memcmp(k_cache.tensor.raw() + 2 * last, k.raw() + k.bytes() / 2, k.bytes() / 2), 0);
    EXPECT_EQ(std::memcmp(v_cache.tensor.raw() + 2 * last, v.raw() + v.bytes() / 2, v.bytes() / 2), 0);

    const Tensor q = bfloat16({2, 4, kDim}, 10);
    Tensor found = to_tested(q), wanted = q.clone("test");
    Stream cpu = Stream::make_inline();
    ops::paged_attention_decode(cpu, q, k_cache.tensor, v_cache.tensor, tables, lengths, 0.2f, wanted);
    tested::paged_attention_decode(tested_stream(), q, k_cache.tensor, v_cache.tensor, table, length, 0.2f,
                                   found);
    expect_close(found, wanted, 1.0 / 128);
}

TEST(LargeOnHost, KeysOfASegment) {
    constexpr std::int64_t kHeads = 2, kDim = 64, kRows = kElements / (kHeads * kDim);
    const Shape shape = {kRows, kHeads, kDim}, q_shape = {20, kHeads, kDim};
    Sparse k(shape, DType::bfloat16), v(shape, DType::bfloat16);
    const std::vector<ops::AttentionSegment> segments = {{0, 20, kRows - 90, 90, true}};
    k.put((kRows - 90) * kHeads * kDim, bfloat16({90, kHeads, kDim}, 1));
    v.put((kRows - 90) * kHeads * kDim, bfloat16({90, kHeads, kDim}, 2));
    const Tensor q = bfloat16(q_shape, 3), dout = bfloat16(q_shape, 4);
    Stream cpu = Stream::make_inline();
    Tensor lse = zeros({kHeads, 20}), delta = zeros({kHeads, 20}), out = bfloat16(q_shape, 5);
    Tensor there_lse = to_tested(random({kHeads, 20}, 6)), there_out = to_tested(out);
    ops::attention_forward(cpu, q, k.tensor, v.tensor, segments, 0.2f, out, lse);
    tested::attention_forward(tested_stream(), q, k.tensor, v.tensor, segments, 0.2f, there_out, there_lse,
                              {});
    expect_close(there_out, out, 1.0 / 128);
    expect_close(there_lse, lse);

    ops::attention_delta(cpu, dout, out, delta);
    Sparse dk(shape, DType::float32), dv(shape, DType::float32), twin_k(shape, DType::float32),
        twin_v(shape, DType::float32);
    Tensor dq = zeros(q_shape), there_dq = to_tested(zeros(q_shape));
    ops::attention_backward(cpu, dout, q, k.tensor, v.tensor, lse, delta, segments, 0.2f, dq, twin_k.tensor,
                            twin_v.tensor);
    tested::attention_backward(tested_stream(), dout, q, k.tensor, v.tensor, lse, delta, segments, 0.2f,
                               there_dq, dk.tensor, dv.tensor, {});
    constexpr double kRounded = 0.05;  // p and ds in bfloat16
    expect_close(there_dq, dq, kRounded);
    expect_close(dk.tensor.rows(kRows - 90, 90), twin_k.tensor.rows(kRows - 90, 90), kRounded);
    expect_close(dv.tensor.rows(kRows - 90, 90), twin_v.tensor.rows(kRows - 90, 90), kRounded);
}

// Rows far apart, copied with their digests and quantised.
TEST(LargeOnHost, RowsFarApart) {
    constexpr std::int64_t kRows = 3, kColumns = 256, kStride = std::int64_t{3} << 30;
    Sparse source({kRows * kStride / 4}, DType::float32);
    for (std::int64_t row = 0; row < kRows; ++row)
        source.put(row * kStride / 4, random({1, kColumns}, static_cast<std::uint64_t>(row)));
    const auto run = [&](bool on_tested) {
        Stream cpu = Stream::make_inline();
        std::vector<std::byte> to(kRows * kColumns * 2);
        ops::Checksum digest;
        ops::CopyItem item;
        item.from = {source.tensor.raw(), kColumns * 4};
        item.to = {to.data(), kColumns * 2};
        item.from_dtype = DType::float32;
        item.to_dtype = DType::bfloat16;
        item.rows = kRows;
        item.from_stride = kStride;
        item.to_stride = kColumns * 2;
        item.checksum = &digest;
        if (on_tested) {
            tested::batched_copy(tested_stream(), {&item, 1});
        } else {
            ops::batched_copy(cpu, {&item, 1});
        }
        const ops::ScaleGrid grid{ops::Quantization::int8_channel, kRows, kColumns};
        const ops::WeightBox box{source.tensor.raw(), kStride, DType::float32, 0, 0, kRows, kColumns};
        std::vector<float> scales(kRows);
        std::vector<std::byte> bytes(kRows * kColumns);
        const Span quantised{bytes.data(), bytes.size()};
        if (on_tested) {
            tested::accumulate_amax(tested_stream(), box, grid, scales);
            ops::amax_to_scale(grid, scales);
            tested::quantize(tested_stream(), box, grid, scales, quantised);
        } else {
            ops::accumulate_amax(box, grid, scales);
            ops::amax_to_scale(grid, scales);
            ops::quantize(box, grid, scales, quantised);
        }
        return std::tuple(to, digest, scales, bytes);
    };
    EXPECT_TRUE(run(true) == run(false));
}

}  // namespace
}  // namespace tandem::tests

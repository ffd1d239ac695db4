// The three forms of context attention against naive attention in double precision: outputs and gradients, on
// rows that come from every rank, with sequences that straddle rank borders and lengths that do not divide.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <future>
#include <mutex>
#include <random>

#include "common/comm/launch.h"
#include "common/deadline.h"
#include "tests/support/eventually.h"
#include "trainer/context/context_parallel.h"

namespace tandem::trainer {
namespace {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kDim = 8;
constexpr float kScale = 0.35f;

// One tensor of a whole pack: [sequence][position][heads * kDim]; only real tokens.
using PackedRows = std::vector<std::vector<std::vector<double>>>;

double as(DType dtype, float value) {
    return static_cast<double>(dtype == DType::float32 ? value : static_cast<float>(bfloat16(value)));
}

PackedRows random_pack(const std::vector<std::int64_t>& lengths, std::int64_t width, unsigned seed,
                       DType dtype) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    PackedRows pack;
    for (const std::int64_t length : lengths) {
        auto& sequence = pack.emplace_back();
        for (std::int64_t i = 0; i < length; ++i) {
            auto& row = sequence.emplace_back();
            for (std::int64_t j = 0; j < width; ++j)
                row.push_back(as(dtype, static_cast<float>(normal(random))));
        }
    }
    return pack;
}

PackedRows zeros_like(const PackedRows& other) {
    PackedRows pack = other;
    for (auto& sequence : pack) {
        for (auto& row : sequence) std::fill(row.begin(), row.end(), 0.0);
    }
    return pack;
}

struct Whole {
    PackedRows q, k, v, dout, out, dq, dk, dv;
};

// Naive causal attention of one head of one sequence, forward and backward.
void naive_head(Whole& w, std::size_t s, std::size_t head) {
    const auto dim = static_cast<std::size_t>(kDim);
    const std::size_t at = head * dim;
    const std::size_t kv = head / static_cast<std::size_t>(kHeads / kKvHeads) * dim;
    for (std::size_t i = 0; i < w.q[s].size(); ++i) {
        std::vector<double> p(i + 1, 0.0);
        double total = 0;
        for (std::size_t j = 0; j <= i; ++j) {
            for (std::size_t d = 0; d < dim; ++d) p[j] += w.q[s][i][at + d] * w.k[s][j][kv + d];
            total += p[j] = std::exp(p[j] * static_cast<double>(kScale));
        }
        double dot = 0;  // sum over keys of p * dp
        std::vector<double> dp(i + 1, 0.0);
        for (std::size_t j = 0; j <= i; ++j) {
            p[j] /= total;
            for (std::size_t d = 0; d < dim; ++d) {
                w.out[s][i][at + d] += p[j] * w.v[s][j][kv + d];
                dp[j] += w.dout[s][i][at + d] * w.v[s][j][kv + d];
                w.dv[s][j][kv + d] += p[j] * w.dout[s][i][at + d];
            }
            dot += p[j] * dp[j];
        }
        for (std::size_t j = 0; j <= i; ++j) {
            const double ds = p[j] * (dp[j] - dot) * static_cast<double>(kScale);
            for (std::size_t d = 0; d < dim; ++d) {
                w.dq[s][i][at + d] += ds * w.k[s][j][kv + d];
                w.dk[s][j][kv + d] += ds * w.q[s][i][at + d];
            }
        }
    }
}

Whole naive(const std::vector<std::int64_t>& lengths, DType dtype) {
    Whole w;
    w.q = random_pack(lengths, kHeads * kDim, 1, dtype);
    w.k = random_pack(lengths, kKvHeads * kDim, 2, dtype);
    w.v = random_pack(lengths, kKvHeads * kDim, 3, dtype);
    w.dout = random_pack(lengths, kHeads * kDim, 4, dtype);
    w.out = w.dq = zeros_like(w.q);
    w.dk = w.dv = zeros_like(w.k);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        for (std::size_t head = 0; head < static_cast<std::size_t>(kHeads); ++head) naive_head(w, s, head);
    }
    return w;
}

// A rank's rows; padding rows hold a constant, as a model's would hold anything.
Tensor local_rows(const PackedRows& pack, const SequenceLayout& layout, std::int64_t heads, float padding,
                  DType dtype, MemoryPool& pool) {
    const Tensor t =
        Tensor::empty({static_cast<std::int64_t>(layout.rows.size()), heads, kDim}, dtype, "test", pool);
    std::size_t at = 0;
    for (const auto& row : layout.rows) {
        for (std::int64_t j = 0; j < heads * kDim; ++j, ++at) {
            const float value =
                layout.is_padding(row)
                    ? padding
                    : static_cast<float>(
                          pack[static_cast<std::size_t>(row.sequence)][static_cast<std::size_t>(row.position)]
                              [static_cast<std::size_t>(j)]);
            if (dtype == DType::float32) {
                t.data<float>()[at] = value;
            } else {
                t.data<bfloat16>()[at] = bfloat16(value);
            }
        }
    }
    return t;
}

// The real tokens' rows, to where they are of.
void take_rows(const Tensor& local, const SequenceLayout& layout, PackedRows& pack) {
    const auto width = static_cast<std::size_t>(local.dim(1) * kDim);
    for (std::size_t r = 0; r < layout.rows.size(); ++r) {
        const auto& row = layout.rows[r];
        if (layout.is_padding(row)) continue;
        for (std::size_t j = 0; j < width; ++j) {
            const std::size_t at = r * width + j;
            pack[static_cast<std::size_t>(row.sequence)][static_cast<std::size_t>(row.position)][j] =
                static_cast<double>(local.dtype() == DType::float32
                                        ? local.data<float>()[at]
                                        : static_cast<float>(local.data<bfloat16>()[at]));
        }
    }
}

void expect_rows(const Tensor& local, const PackedRows& expected, const SequenceLayout& layout,
                 double tolerance, const char* what) {
    const auto width = static_cast<std::size_t>(local.dim(1) * kDim);
    for (std::size_t r = 0; r < layout.rows.size(); ++r) {
        const auto& row = layout.rows[r];
        if (layout.is_padding(row)) continue;
        for (std::size_t j = 0; j < width; ++j) {
            const double wanted =
                expected[static_cast<std::size_t>(row.sequence)][static_cast<std::size_t>(row.position)][j];
            const std::size_t at = r * width + j;
            const double found = local.dtype() == DType::float32
                                     ? static_cast<double>(local.data<float>()[at])
                                     : static_cast<double>(static_cast<float>(local.data<bfloat16>()[at]));
            ASSERT_NEAR(found, wanted, tolerance * (1 + std::abs(wanted)))
                << what << " rank " << layout.rank << " sequence " << row.sequence << " position "
                << row.position;
        }
    }
}

ContextSaved local_inputs(const Whole& w, const SequenceLayout& layout, DType dtype,
                          ContextParallel& context) {
    ContextSaved saved;
    saved.q = local_rows(w.q, layout, kHeads, 0.5f, dtype, cpu_pool());
    saved.k = local_rows(w.k, layout, kKvHeads, 0.5f, dtype, context.memory());
    saved.v = local_rows(w.v, layout, kKvHeads, 0.5f, dtype, context.memory());
    return saved;
}

void expect_like_naive(const std::vector<std::int64_t>& lengths, int cp, bool zigzag, bool worker,
                       DType dtype = DType::float32) {
    const Whole w = naive(lengths, dtype);
    const double tolerance = dtype == DType::float32 ? 2e-5 : 4e-2;
    comm::run_threads(cp, [&](std::shared_ptr<comm::Communicator> world) {
        const SequenceLayout layout =
            zigzag ? zigzag_layout(lengths, cp, world->rank()) : packed_layout(lengths, cp, world->rank());
        Stream compute = Stream::make_inline();
        Stream transfer = worker ? Stream::make_worker("ring") : Stream::make_inline();
        const auto context = make_context(layout, *world, compute, transfer);
        ContextSaved saved = local_inputs(w, layout, dtype, *context);
        const Tensor dout = local_rows(w.dout, layout, kHeads, 0.0f, dtype, cpu_pool());
        for (int repeat = 0; repeat < 2; ++repeat) {  // a context serves every layer in turn
            context->forward(saved, kScale);
            expect_rows(saved.out, w.out, layout, tolerance, "out");
            const ContextGrads grads = context->backward(dout, saved, kScale);
            expect_rows(grads.dq, w.dq, layout, tolerance, "dq");
            expect_rows(grads.dk, w.dk, layout, tolerance, "dk");
            expect_rows(grads.dv, w.dv, layout, tolerance, "dv");
        }
    });
}

const std::vector<std::vector<std::int64_t>> kPacks{{16}, {17}, {1}, {37}, {7, 7, 2}, {5, 1, 9, 20}, {3, 3}};

TEST(Context, LocalIsAttention) {
    for (const auto& lengths : kPacks) expect_like_naive(lengths, 1, false, false);
}

TEST(Context, PackedMatchesNaive) {
    for (const auto& lengths : kPacks) {
        for (const int cp : {2, 4}) expect_like_naive(lengths, cp, false, false);
    }
    expect_like_naive({11, 6}, 3, false, false);
}

TEST(Context, ZigzagMatchesNaive) {
    for (const auto& lengths : kPacks) {
        for (const int cp : {2, 4, 8}) expect_like_naive(lengths, cp, true, false);
    }
    expect_like_naive({29}, 3, true, false);
}

TEST(Context, ZigzagOverlappedOnAWorkerStream) {
    expect_like_naive({37}, 4, true, true);
    expect_like_naive({5, 1, 9, 20}, 2, true, true);
}

TEST(Context, InBfloat16) {
    expect_like_naive({21, 6}, 1, false, false, DType::bfloat16);
    expect_like_naive({21, 6}, 2, false, false, DType::bfloat16);
    expect_like_naive({27}, 2, true, false, DType::bfloat16);
}

// What all ranks of a ring have found, in the order of the sequences.
Whole of_ring(const Whole& inputs, const std::vector<std::int64_t>& lengths, int cp, DType dtype) {
    Whole found = inputs;
    std::mutex mutex;
    comm::run_threads(cp, [&](std::shared_ptr<comm::Communicator> world) {
        const SequenceLayout layout = zigzag_layout(lengths, cp, world->rank());
        Stream compute = Stream::make_inline(), transfer = Stream::make_inline();
        const auto context = make_zigzag_context(layout, *world, compute, transfer);
        ContextSaved saved = local_inputs(inputs, layout, dtype, *context);
        context->forward(saved, kScale);
        const Tensor dout = local_rows(inputs.dout, layout, kHeads, 0.0f, dtype, cpu_pool());
        const ContextGrads grads = context->backward(dout, saved, kScale);
        const std::lock_guard lock(mutex);
        take_rows(saved.out, layout, found.out);
        take_rows(grads.dq, layout, found.dq);
        take_rows(grads.dk, layout, found.dk);
        take_rows(grads.dv, layout, found.dv);
    });
    return found;
}

double farthest(const PackedRows& a, const PackedRows& b) {
    double most = 0.0;
    for (std::size_t s = 0; s < a.size(); ++s) {
        for (std::size_t i = 0; i < a[s].size(); ++i) {
            for (std::size_t j = 0; j < a[s][i].size(); ++j) {
                const double distance = std::abs(a[s][i][j] - b[s][i][j]);
                if (!(distance <= most)) most = distance;  // NaN too
            }
        }
    }
    return most;
}

constexpr auto kResults = {&Whole::out, &Whole::dq, &Whole::dk, &Whole::dv};

TEST(Context, ARingOfAnySizeIsOneRank) {
    for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{150}, {70, 1, 90}}) {
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            const Whole exact = naive(lengths, dtype);
            const Whole one = of_ring(exact, lengths, 1, dtype);
            for (const int cp : {2, 4, 8}) {
                SCOPED_TRACE(fmt::format("{} on {} ranks", dtype_name(dtype), cp));
                const Whole ring = of_ring(exact, lengths, cp, dtype);
                for (const auto result : kResults) {
                    if (dtype == DType::float32)
                        EXPECT_LE(farthest(ring.*result, one.*result), 1e-5);
                    else
                        EXPECT_LE(farthest(ring.*result, exact.*result),
                                  2.0 * farthest(one.*result, exact.*result));
                }
            }
        }
    }
}

// Of each rank's rows: the results in float32 and as they are kept, their lse, and the ring of keys and values. No
// block of results beside them.
TEST(Context, WhatARingHolds) {
    const std::vector<std::int64_t> lengths{160};
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Whole w = naive(lengths, dtype);
        const std::uint64_t before = memory_stats("activations").live_bytes;
        reset_memory_peaks();
        comm::run_threads(4, [&](std::shared_ptr<comm::Communicator> world) {
            const SequenceLayout layout = zigzag_layout(lengths, world->size(), world->rank());
            Stream compute = Stream::make_inline(), transfer = Stream::make_inline();
            const auto context = make_zigzag_context(layout, *world, compute, transfer);
            ContextSaved saved = local_inputs(w, layout, dtype, *context);
            context->forward(saved, kScale);
        });
        const std::uint64_t rows = 160, element = dtype_size(dtype);
        const std::uint64_t results = rows * kHeads * kDim * (4 + (dtype == DType::float32 ? 0 : element));
        const std::uint64_t ring = 4 * rows * kKvHeads * kDim * element;
        EXPECT_EQ(memory_stats("activations").peak_bytes - before, results + rows * kHeads * 4 + ring);
    }
}

#if !defined(__SANITIZE_THREAD__)  // reads what a stream is writing

void exchange(comm::Communicator& world, const ContextGrads& out, const ContextGrads& in) {
    using Kind = comm::P2POp::Kind;
    const int peer = 1 - world.rank();
    const std::array operations{
        comm::P2POp{Kind::send, peer, out.dk.span()}, comm::P2POp{Kind::send, peer, out.dv.span()},
        comm::P2POp{Kind::recv, peer, in.dk.span()}, comm::P2POp{Kind::recv, peer, in.dv.span()}};
    Stream here = Stream::make_inline();
    world.p2p(operations, here).wait(Deadline::after(world.timeout()));
}

// Rank 1 takes the gradients of rank 0's first block only when that has computed its second one.
TEST(Context, GradientsTravelBesideTheNextBlock) {
    const std::vector<std::int64_t> lengths{64};
    const Whole w = naive(lengths, DType::float32);
    std::promise<void> computed;
    comm::run_threads(2, [&](std::shared_ptr<comm::Communicator> world) {
        const SequenceLayout layout = zigzag_layout(lengths, 2, world->rank());
        Stream first = Stream::make_inline(), second = Stream::make_inline();
        const auto context = make_zigzag_context(layout, *world, first, second);
        ContextSaved saved = local_inputs(w, layout, DType::float32, *context);
        const Tensor dout = local_rows(w.dout, layout, kHeads, 0.0f, DType::float32, cpu_pool());
        context->forward(saved, kScale);
        const ContextGrads grads = context->backward(dout, saved, kScale);
        if (world->rank() == 1) {
            const auto like_keys = [&] {
                return Tensor::empty(saved.k.shape(), DType::float32, "test", context->memory());
            };
            const ContextGrads sent{{}, like_keys(), like_keys()}, received{{}, like_keys(), like_keys()};
            exchange(*world, {{}, saved.k, saved.v}, received);
            computed.get_future().wait_for(std::chrono::seconds(60));
            for (int step = 0; step < 2; ++step) exchange(*world, sent, received);
            return;
        }
        Stream compute = Stream::make_worker("blocks"), transfer = Stream::make_worker("ring");
        const auto overlapped = make_zigzag_context(layout, *world, compute, transfer);
        const ContextGrads again = overlapped->backward(dout, saved, kScale);
        EXPECT_TRUE(test::eventually([&] {
            return std::memcmp(again.dq.raw(), grads.dq.raw(), grads.dq.bytes()) == 0;
        })) << "the second block waits for the first one's gradients";
        computed.set_value();
        compute.synchronize();
    });
}
#endif

}  // namespace
}  // namespace tandem::trainer

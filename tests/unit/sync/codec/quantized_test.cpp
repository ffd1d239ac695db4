// Engines that hold weights in fp8 or int8: the same bytes whatever the mesh, as the formats' definition
// says.
#include <gmock/gmock.h>

#include "common/log.h"
#include "sync/codec/naive.h"
#include "tests/unit/sync/codec/quantized_oracle.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

const std::vector<Layout> kLayouts{{{1}, {Shard(0)}},
                                   {{2}, {Shard(0)}},
                                   {{3}, {Shard(0)}},
                                   {{2}, {Shard(1)}},
                                   {{2, 2}, {Shard(0), Replicate()}},
                                   {{2, 2}, {Replicate(), Shard(1)}},
                                   {{2, 2}, {Shard(1), Shard(0)}},
                                   {{2, 2}, {StridedShard(0, 2), Shard(0)}},
                                   {{2, 2}, {StridedShard(1, 2), Shard(1)}}};

TEST(Quantized, EveryLayoutGivesTheSameBytesWithinTheFormatsBound) {
    for (const DType to : {DType::float8_e4m3fn, DType::int8}) {
        for (const DType held : {DType::float32, DType::bfloat16}) {
            for (const Layout& layout : kLayouts) {
                Mode mode = held == DType::bfloat16 ? Mode::direct : Mode::gather;
                if (mode == Mode::direct && to == DType::int8) mode = Mode::alias;
                SCOPED_TRACE(fmt::format("{} from {} {} {}", dtype_name(to), dtype_name(held),
                                         tandem::to_string(layout.placements), mode_name(mode)));
                TestTarget target(engine_tensors(to));
                with_engines(layout, {&target}, model(), held, options_for(mode, 2048),
                             [&](comm::Communicator& world, Session& session, TestSource& source) {
                                 for (int step = 1; step <= 2; ++step) {
                                     source.set_step(step);
                                     session.push(step);
                                     if (world.rank() == 0) expect_quantized(target, held, to, step);
                                     const WeightsMatch match = session.weights_match();
                                     EXPECT_TRUE(match.match) << match.first_mismatch;
                                 }
                             });
                if (HasFailure()) return;
            }
        }
    }
}

// Buckets so small that pieces begin and end inside rows, and so large that one piece joins many rows.
TEST(Quantized, HoweverPiecesAreCut) {
    for (const std::size_t bucket_bytes : {256u, 640u, 16384u, 1u << 20}) {
        for (const Layout& layout : {kLayouts[1], kLayouts[4], kLayouts[6], kLayouts[7], kLayouts[8]}) {
            SCOPED_TRACE(fmt::format("{} {}", bucket_bytes, tandem::to_string(layout.placements)));
            TestTarget target(engine_tensors(DType::float8_e4m3fn));
            with_engines(layout, {&target}, model(), DType::float32, options_for(Mode::gather, bucket_bytes),
                         [&](comm::Communicator& world, Session& session, TestSource&) {
                             session.push(1);
                             if (world.rank() == 0)
                                 expect_quantized(target, DType::float32, DType::float8_e4m3fn, 0);
                         });
            if (HasFailure()) return;
        }
    }
}

// An engine of two ranks: rows of q and k, fused, columns of o; blocks of 128 divide all of them.
std::vector<TensorInfo> engine_slices(int rank, DType dtype, const std::map<std::string, Shape>& shapes) {
    const TensorInfo qk{"qk.weight",
                        {384, 300},
                        dtype,
                        {{"q.weight", {rank * 256, 0}, {256, 300}, 0, {300, 1}},
                         {"k.weight", {rank * 128, 0}, {128, 300}, std::int64_t{256} * 300, {300, 1}}}};
    const std::int64_t columns = rank == 0 ? 256 : 44;
    const TensorInfo o{
        "o.weight", {129, columns}, dtype, {{"o.weight", {0, rank * 256}, {129, columns}, 0, {columns, 1}}}};
    const auto shape_of = [&](const std::string& name) { return shapes.at(name); };
    return {qk, o, scales_of(qk, shape_of), scales_of(o, shape_of)};
}

TEST(Quantized, SlicesOfAnEngineOfTwoRanks) {
    const std::map<std::string, Shape> shapes{
        {"q.weight", {512, 300}}, {"k.weight", {256, 300}}, {"o.weight", {129, 300}}};
    std::vector<TensorInfo> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, shape, DType::float32, {}});
    for (const DType dtype : {DType::float8_e4m3fn, DType::int8}) {
        for (const Mode mode : {Mode::gather, Mode::direct, Mode::alias}) {
            for (const Layout& layout : {kLayouts[1], kLayouts[4], kLayouts[6]}) {
                SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(dtype), mode_name(mode),
                                         tandem::to_string(layout.placements)));
                TestTarget first(engine_slices(0, dtype, shapes));
                TestTarget second(engine_slices(1, dtype, shapes));
                with_engines(layout, {&first, &second}, tensors, DType::bfloat16, options_for(mode, 16384),
                             [&](comm::Communicator& world, Session& session, TestSource&) {
                                 session.push(1);
                                 EXPECT_TRUE(session.weights_match().match);
                                 world.barrier();
                                 if (world.rank() == 0)  // what the engine reads, not what it owns
                                     const_cast<std::byte*>(first.weights()[0].memory.data)[7] ^=
                                         std::byte{1};
                                 world.barrier();
                                 const WeightsMatch match = session.weights_match();
                                 EXPECT_EQ(match.match, mode == Mode::alias);
                                 if (mode != Mode::alias) {
                                     EXPECT_EQ(match.first_mismatch, "qk.weight");
                                 }
                             });
                if (HasFailure()) return;
            }
        }
    }
}

void fill(const TestSource& source, std::size_t tensor, float value) {
    const Tensor& local = source.tensors()[tensor].tensor.local();
    for (std::int64_t i = 0; i < local.numel(); ++i) local.data<float>()[i] = value;
}

TEST(Quantized, ZerosAndTheSmallestValues) {
    const std::size_t a = index_of(model(), "a.weight");
    const std::size_t d = index_of(model(), "d.weight");
    for (const DType to : {DType::float8_e4m3fn, DType::int8}) {
        const std::vector<TensorInfo> tensors = engine_tensors(to);
        TestTarget target(tensors);
        with_engines({{2}, {Shard(0)}}, {&target}, model(), DType::float32, options_for(Mode::gather, 2048),
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         fill(source, a, -0.0f);
                         fill(source, d, 1e-44f);
                         session.push(1);
                         EXPECT_TRUE(session.weights_match().match);
                         if (world.rank() != 0) return;
                         const Span zeros = target.reading(index_of(tensors, "a.weight"));
                         const Span scales = target.reading(index_of(tensors, scale_name("a.weight", to)));
                         const Span tiny = target.reading(index_of(tensors, scale_name("d.weight", to)));
                         for (std::size_t i = 0; i < zeros.bytes; ++i)
                             ASSERT_EQ(zeros.data[i] & std::byte{0x7f}, std::byte{0});
                         for (std::size_t i = 0; i < scales.bytes / 4; ++i)
                             ASSERT_EQ(reinterpret_cast<const float*>(scales.data)[i], 1.0f);
                         EXPECT_EQ(reinterpret_cast<const float*>(tiny.data)[0], 0x1p-126f);
                     });
    }
}

TEST(Quantized, NaNAndInfinityAreRefusedByNameAndTheNextPushWorks) {
    const std::size_t b = index_of(model(), "b.weight");
    for (const float bad : {NAN, -INFINITY}) {
        for (const Layout& layout : {kLayouts[1], kLayouts[4]}) {
            TestTarget target(engine_tensors(DType::float8_e4m3fn));
            with_engines(layout, {&target}, model(), DType::float32, options_for(Mode::gather, 2048),
                         [&](comm::Communicator& world, Session& session, TestSource& source) {
                             session.push(1);
                             const Tensor& local = source.tensors()[b].tensor.local();
                             float& last = local.data<float>()[local.numel() - 1];
                             const float good = last;
                             last = bad;  // on every rank; replicas look at different rows
                             try {
                                 session.push(2);
                                 ADD_FAILURE() << "pushed " << bad;
                             } catch (const SyncError& error) {
                                 EXPECT_THAT(error.what(), HasSubstr("'b.weight'"));
                                 EXPECT_THAT(error.what(), HasSubstr("NaN or infinity"));
                                 EXPECT_EQ(error.phase(), "prepare");
                             }
                             last = good;
                             EXPECT_EQ(session.push(3).version, 3);
                             EXPECT_TRUE(session.weights_match().match);
                             if (world.rank() == 0) {
                                 EXPECT_FALSE(target.refusing());
                             }
                         });
            if (HasFailure()) return;
        }
    }
}

TEST(Quantized, AFlippedBitIsNoticedInValuesAndScales) {
    set_up_logging("test");
    for (const std::string name : {"a.weight", "a.weight_scale_inv"}) {
        // Only this pair: the first bytes of the bucket are known.
        const TensorInfo weight{"a.weight", {300, 200}, DType::float8_e4m3fn, {}};
        TensorInfo scales = scales_of(weight, [](const std::string&) { return Shape(); });
        std::vector<TensorInfo> tensors{weight, scales};
        if (name == scales.name) std::swap(tensors[0], tensors[1]);
        TestTarget target(tensors);
        SessionOptions options = options_for(Mode::gather, 1 << 20);
        bool armed = true;
        options.before_load = [&](int, Span memory) {
            if (armed) memory.data[2] ^= std::byte{4};
        };
        with_engines({{1}, {Shard(0)}}, {&target}, {{"a.weight", {300, 200}, DType::float32, {}}},
                     DType::float32, options, [&](comm::Communicator&, Session& session, TestSource&) {
                         try {
                             session.push(1);
                             ADD_FAILURE() << "a flipped bit of " << name << " went through";
                         } catch (const SyncError& error) {
                             EXPECT_THAT(error.what(), HasSubstr("'" + name + "'"));
                         }
                         armed = false;
                         session.push(2);
                         EXPECT_TRUE(session.weights_match().match);
                     });
    }
}

TEST(Quantized, ASteadySyncAllocatesNothing) {
    for (const Mode mode : {Mode::gather, Mode::direct, Mode::alias}) {
        TestTarget target(engine_tensors(DType::float8_e4m3fn));
        with_engines(kLayouts[4], {&target}, model(), DType::float32, options_for(mode, 2048),
                     [&](comm::Communicator& world, Session& session, TestSource&) {
                         for (int version = 1; version <= 3; ++version) session.push(version);
                         world.barrier();
                         const std::uint64_t before = allocations();
                         world.barrier();
                         for (int version = 4; version <= 8; ++version) session.push(version);
                         world.barrier();
                         EXPECT_EQ(allocations(), before) << mode_name(mode);
                     });
    }
}

// The definition that weights_match uses, against the one written here.
TEST(Quantized, TheNaiveDefinition) {
    for (const DType to : {DType::float8_e4m3fn, DType::int8}) {
        for (const auto& [name, shape] : kWeights) {
            const Oracle oracle(3, shape, DType::float32, to, 5);
            const Tensor full = Tensor::from<float>(oracle.values, shape);
            const NaiveQuantized naive = quantize_naively(full, to);
            for (std::size_t i = 0; i < oracle.values.size(); ++i) {
                ASSERT_EQ(naive.scales.data<float>()[oracle.scale_index(i)], oracle.scale(i));
                ASSERT_EQ(static_cast<std::uint8_t>(naive.values.raw()[i]), oracle.code(i)) << name << i;
            }
        }
    }
}

}  // namespace
}  // namespace tandem::sync

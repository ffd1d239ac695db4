// Engines that hold weights in fp8 or int8: the same bytes whatever the mesh, as the formats' definition
// says, written here once more on its own.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "common/log.h"
#include "common/ops/quantize.h"
#include "sync/codec/naive.h"
#include "sync/codec/scales.h"
#include "tests/unit/sync/session_rig.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

// Blocks that end early in both dims, blocks that a shard's border cuts, odd rows, one row, one column.
const std::map<std::string, Shape> kWeights{{"a.weight", {300, 200}}, {"b.weight", {129, 257}},
                                            {"c.weight", {1, 5}},     {"d.weight", {7, 1000}},
                                            {"e.weight", {97, 31}},   {"f.weight", {260, 1}}};

// The trainer's; what is not in kWeights goes over as it is.
std::vector<TensorInfo> model() {
    std::vector<TensorInfo> tensors{{"embed.weight", {50, 48}, DType::bfloat16, {}},
                                    {"norm.weight", {64}, DType::bfloat16, {}}};
    for (const auto& [name, shape] : kWeights) tensors.push_back({name, shape, DType::bfloat16, {}});
    return tensors;
}

// One engine rank that holds whole tensors, those of kWeights in `dtype`.
std::vector<TensorInfo> engine_tensors(DType dtype) {
    std::vector<TensorInfo> tensors;
    for (TensorInfo tensor : model()) {
        if (kWeights.contains(tensor.name)) {
            tensor.dtype = dtype;
            tensors.push_back(scales_of(tensor, [](const std::string&) { return Shape(); }));
        }
        tensors.push_back(tensor);
    }
    return tensors;
}

SessionOptions options_for(Mode mode, std::size_t bucket_bytes) {
    SessionOptions options;
    options.mode = mode;
    options.bucket_bytes = bucket_bytes;
    options.depth = 2;
    return options;
}

// Value of a trainer's element after set_step(step).
float trainer_value(std::size_t tensor, std::size_t i, DType held, int step) {
    const float value = element_value(tensor, i, step);
    return held == DType::bfloat16 ? static_cast<float>(bfloat16(value)) : value;
}

// The nearest of the format's values by search, ties to the even code, in fp64.
std::uint8_t nearest_e4m3(float value) {
    std::uint8_t best = 0;
    double distance = INFINITY;
    for (int code = 0; code < 0x7f; ++code) {  // 0x7f is NaN
        const int exponent = code >> 3;
        const double mantissa = code & 7;
        const double decoded =
            exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
        const double apart = std::abs(std::abs(static_cast<double>(value)) - decoded);
        if (apart < distance || (apart == distance && code % 2 == 0)) {
            best = static_cast<std::uint8_t>(code);
            distance = apart;
        }
    }
    return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

double decode_e4m3(std::uint8_t code) {
    const int exponent = (code >> 3) & 15;
    const double mantissa = code & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// What an engine must hold of a weight: scales by block or row, then every element. Sampled in `every`th
// elements, since the search is slow.
struct Oracle {
    Oracle(std::size_t tensor, const Shape& shape, DType held, DType to, int step) : shape(shape), to(to) {
        values.resize(static_cast<std::size_t>(numel(shape)));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = trainer_value(tensor, i, held, step);
        for (std::size_t i = 0; i < values.size(); ++i) {
            float& most = amax[scale_index(i)];
            most = std::max(most, std::abs(values[i]));
        }
    }
    std::size_t scale_index(std::size_t i) const {
        const auto columns = static_cast<std::size_t>(shape[1]);
        if (to == DType::int8) return i / columns;
        return i / columns / 128 * ((columns + 127) / 128) + i % columns / 128;
    }
    float scale(std::size_t i) const {
        const float most = amax.at(scale_index(i));
        return most == 0 ? 1.0f : most / (to == DType::int8 ? 127.0f : 448.0f);
    }
    std::uint8_t code(std::size_t i) const {
        const float scaled = values[i] / scale(i);
        if (to == DType::float8_e4m3fn) return nearest_e4m3(scaled);
        return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::lrint(scaled)));
    }
    Shape shape;
    DType to;
    std::vector<float> values;
    std::map<std::size_t, float> amax;
};

std::size_t index_of(const std::vector<TensorInfo>& tensors, const std::string& name) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (tensors[t].name == name) return t;
    }
    ADD_FAILURE() << "no tensor " << name;
    return 0;
}

// Bytes by the definition, and what they mean by the format's bound.
void expect_quantized(const TestTarget& target, DType held, DType to, int step) {
    std::vector<TensorInfo> tensors;
    for (const auto& weight : target.weights()) tensors.push_back(weight.info);
    for (const auto& [name, shape] : kWeights) {
        const Oracle oracle(index_of(model(), name), shape, held, to, step);
        const Span codes = target.reading(index_of(tensors, name));
        const Span memory = target.reading(index_of(tensors, scale_name(name, to)));
        const auto* scales = reinterpret_cast<const float*>(memory.data);
        ASSERT_EQ(memory.bytes, oracle.amax.size() * sizeof(float));
        for (std::size_t i = 0; i < oracle.values.size(); ++i) {
            const auto code = static_cast<std::uint8_t>(codes.data[i]);
            const double scale = scales[oracle.scale_index(i)];
            ASSERT_EQ(static_cast<float>(scale), oracle.scale(i)) << name << " element " << i;
            if (i % 7 == 0) {
                ASSERT_EQ(code, oracle.code(i)) << name << " element " << i;
            }
            const double value = oracle.values[i];
            const bool fp8 = to == DType::float8_e4m3fn;
            const double bound = fp8 ? std::max(std::abs(value) / 16, scale / 1024) : scale / 2;
            const double decoded =
                fp8 ? decode_e4m3(code) : static_cast<double>(static_cast<std::int8_t>(code));
            ASSERT_LE(std::abs(decoded * scale - value), bound + std::ldexp(std::abs(value), -22))
                << name << " element " << i;
        }
    }
}

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
                const bool alias = layout.mesh.size() == 2;
                const Mode mode = alias && held == DType::bfloat16 ? Mode::alias : Mode::gather;
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
        for (const Layout& layout : {kLayouts[1], kLayouts[6], kLayouts[7]}) {
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
        for (const Mode mode : {Mode::gather, Mode::alias}) {
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
                                 if (mode == Mode::gather) {
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
    const auto allocations = [] {
        std::uint64_t sum = 0;
        for (const auto& [tag, stats] : all_memory_stats()) sum += stats.allocations;
        return sum;
    };
    TestTarget target(engine_tensors(DType::float8_e4m3fn));
    with_engines(kLayouts[4], {&target}, model(), DType::float32, options_for(Mode::gather, 2048),
                 [&](comm::Communicator& world, Session& session, TestSource&) {
                     for (int version = 1; version <= 3; ++version) session.push(version);
                     world.barrier();
                     const std::uint64_t before = allocations();
                     world.barrier();
                     for (int version = 4; version <= 8; ++version) session.push(version);
                     world.barrier();
                     EXPECT_EQ(allocations(), before);
                 });
}

std::string refusal(const std::vector<TensorInfo>& trainer, const std::vector<TensorInfo>& engine,
                    Mode mode) {
    TestTarget target(engine);
    try {
        with_engines({{2}, {Shard(0)}}, {&target}, trainer, DType::float32, options_for(mode, 16384),
                     [](comm::Communicator&, Session&, TestSource&) {});
    } catch (const SyncError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Quantized, WhatCannotBeBroughtOverIsRefusedByName) {
    for (const Mode mode : {Mode::direct, Mode::delta}) {
        EXPECT_THAT(refusal(model(), engine_tensors(DType::int8), mode),
                    HasSubstr(fmt::format("mode {} cannot bring quantised tensors over, like 'a.weight': use "
                                          "gather",
                                          mode_name(mode))));
    }
    const std::vector<TensorInfo> trainer{{"w.weight", {256, 256}, DType::float32, {}}};
    const TensorInfo weight{"w.weight", {256, 256}, DType::float8_e4m3fn, {}};
    const TensorInfo scales{"w.weight_scale_inv", {2, 2}, DType::float32, {}};
    EXPECT_EQ(refusal(trainer, {weight, scales}, Mode::gather), "accepted");
    EXPECT_THAT(refusal(trainer, {weight}, Mode::gather),
                HasSubstr("'w.weight' is float8_e4m3fn but has no float32 tensor 'w.weight_scale_inv'"));
    TensorInfo narrow = scales;
    narrow.dtype = DType::bfloat16;
    EXPECT_THAT(refusal(trainer, {weight, narrow}, Mode::gather), HasSubstr("has no float32 tensor"));
    TensorInfo by_row = scales;
    by_row.shape = {256, 1};
    EXPECT_THAT(refusal(trainer, {weight, by_row}, Mode::gather), HasSubstr("'w.weight_scale_inv'"));
    const TensorInfo plain{
        "plain", {256, 256}, DType::bfloat16, {{"w.weight", {0, 0}, {256, 256}, 0, {256, 1}}}};
    EXPECT_THAT(refusal(trainer, {weight, scales, plain}, Mode::gather),
                HasSubstr("'w.weight' is wanted as float8_e4m3fn and as bfloat16"));
    EXPECT_THAT(refusal({{"n.weight", {256}, DType::float32, {}}},
                        {{"n.weight", {256}, DType::float8_e4m3fn, {}}}, Mode::gather),
                HasSubstr("'n.weight' [256] is not a matrix"));
    // A slice across blocks, and scales of another slice.
    const auto slice = [&](std::int64_t start, std::int64_t scale_start) {
        const TensorInfo half{
            "half", {128, 256}, DType::float8_e4m3fn, {{"w.weight", {start, 0}, {128, 256}, 0, {256, 1}}}};
        const TensorInfo its{"half_scale_inv",
                             {1, 2},
                             DType::float32,
                             {{"w.weight_scale_inv", {scale_start, 0}, {1, 2}, 0, {2, 1}}}};
        return refusal(trainer, {half, its}, Mode::gather);
    };
    EXPECT_EQ(slice(128, 1), "accepted");
    EXPECT_THAT(slice(64, 1), HasSubstr("does not lie along blocks of 128×128"));
    EXPECT_THAT(slice(128, 0), HasSubstr("'half_scale_inv' does not hold the scales [1, 2] at [1, 0]"));
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

// Every mode from a GPU's memory into a GPU's memory, on the emulated one: reading it from the
// host crashes, and reading without waiting is too early.
#include <gmock/gmock.h>

#include "common/device/memory.h"
#include "sync/bench/shapes.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/unit/sync/session/engine_ranks.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

const Device kOnGpuDevice{DeviceType::cuda, 0};
const std::vector<Mode> kModesOnGpu{Mode::gather, Mode::direct, Mode::alias};

Layout on_gpu(std::vector<int> mesh, Placements placements) {
    return {std::move(mesh), std::move(placements), kOnGpuDevice};
}

TEST(SyncOnGpu, EveryModeBringsEveryByteFromEveryMesh) {
    for (const Mode mode : kModesOnGpu) {
        for (const auto& [source, target_dtype] :
             {std::pair{DType::float32, DType::bfloat16}, std::pair{DType::bfloat16, DType::bfloat16}}) {
            for (const Layout& layout :
                 {on_gpu({1}, {Shard(0)}), on_gpu({2}, {Shard(0)}), on_gpu({2, 2}, {Shard(1), Shard(0)})}) {
                SCOPED_TRACE(fmt::format("{} {} {}", mode_name(mode), dtype_name(source),
                                         tandem::to_string(layout.placements)));
                TestTarget target(test_tensors(target_dtype), true, kOnGpuDevice);
                const DType source_dtype = source;
                with_session(layout, target, source_dtype, options_for(mode),
                             [&](comm::Communicator& world, Session& session, TestSource& weights) {
                                 for (int step = 1; step <= 3; ++step) {
                                     weights.set_step(step);
                                     session.push(step);
                                     if (world.rank() == 0) expect_weights(target, source_dtype, step);
                                     const WeightsMatch match = session.weights_match();
                                     EXPECT_TRUE(match.match) << match.first_mismatch;
                                 }
                             });
                if (HasFailure()) return;
            }
        }
    }
}

// Of three rows on four ranks the last has none.
TEST(SyncOnGpu, ARankMayHoldEmptyShardsAlone) {
    const std::vector<TensorInfo> tensors{{"w", {3, 40}, DType::bfloat16, {}},
                                          {"v", {2}, DType::bfloat16, {}}};
    for (const Mode mode : kModesOnGpu) {
        SCOPED_TRACE(mode_name(mode));
        TestTarget target(tensors, true, kOnGpuDevice);
        with_session(on_gpu({4}, {Shard(0)}), target, DType::bfloat16, options_for(mode),
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         source.set_step(1);
                         session.push(1);
                         if (world.rank() == 0) expect_weights(target, DType::bfloat16, 1);
                         EXPECT_TRUE(session.weights_match().match);
                     });
    }
}

// As a pipeline stage without parameters: the first rank, or the last. Buckets and their number are left to the session.
TEST(SyncOnGpu, ARankMayHoldNothing) {
    const std::vector<TensorInfo> tensors{{"w", {64, 40}, DType::bfloat16, {}}};
    for (const int holder : {0, 1}) {
        for (const Mode mode : kModesOnGpu) {
            SCOPED_TRACE(fmt::format("rank {} by {}", holder, mode_name(mode)));
            TestTarget target(tensors, true, kOnGpuDevice);
            const Receivers receivers = make_receivers({&target});
            comm::run_threads(2, [&](const std::shared_ptr<comm::Communicator>& world) {
                const DeviceMesh own = make_mesh(world, {2, 1}).slice({"cp"});
                const bool holds = world->rank() == holder;
                TestSource source(holds ? tensors : std::vector<TensorInfo>{}, own, {{Replicate()}},
                                  DType::bfloat16, element_value, kOnGpuDevice);
                Engines engines;
                if (world->rank() == 0) engines.push_back(engine::connect(receivers[0]->address(), soon()));
                SessionOptions options;
                options.mode = mode;
                Session session(world, source, std::move(engines), options);
                source.set_step(1);
                session.push(1);
                if (world->rank() == 0) expect_weights(target, DType::bfloat16, 1);
                EXPECT_TRUE(session.weights_match().match);
            });
        }
    }
}

TEST(SyncOnGpu, EngineRanksGetTheirSlices) {
    const std::vector<model::ParameterSpec> model = model_tensors("tiny");
    for (const Mode mode : kModesOnGpu) {
        SCOPED_TRACE(mode_name(mode));
        const EngineRanks engine(engine_layout(model, {2, 1, true}, DType::bfloat16), kOnGpuDevice);
        with_engines(on_gpu({2}, {Shard(0)}), engine.pointers, tensors_of(model, DType::bfloat16),
                     DType::float32, options_for(mode),
                     [&](comm::Communicator&, Session& session, TestSource& source) {
                         source.set_step(1);
                         session.push(1);
                         const WeightsMatch match = session.weights_match();
                         EXPECT_TRUE(match.match) << match.first_mismatch;
                     });
    }
}

TEST(SyncOnGpu, AWrongByteIsNoticed) {
    for (const Mode mode : {Mode::gather, Mode::direct}) {
        SCOPED_TRACE(mode_name(mode));
        TestTarget target(test_tensors(DType::bfloat16), true, kOnGpuDevice);
        std::atomic<bool> corrupt{false};
        SessionOptions options = options_for(mode);
        std::vector<Span> shards(2);
        options.before_load = [&](int, Span slot) {
            if (!corrupt.exchange(false)) return;
            const Span memory = slot.bytes > 0 ? slot : shards[1];
            std::byte& byte = emulated::host_alias(memory.data)[5];
            byte ^= std::byte{1};
        };
        with_session(on_gpu({2}, {Shard(0)}), target, DType::bfloat16, options,
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         shards[static_cast<std::size_t>(world.rank())] =
                             source.tensors()[0].tensor.local().span();
                         source.set_step(1);
                         session.push(1);
                         if (world.rank() == 0) corrupt = true;
                         try {
                             session.push(2);
                             ADD_FAILURE() << "a corrupted bucket passed";
                         } catch (const SyncError& error) {
                             EXPECT_THAT(error.what(), HasSubstr("is corrupted"));
                         }
                         source.set_step(3);
                         session.push(3);
                         if (world.rank() == 0) expect_weights(target, DType::bfloat16, 3);
                     });
    }
}

TEST(SyncOnGpu, AnEngineThatReadsInPlaceTakesItsWeightsHomeBeforeTheTrainerFreesThem) {
    TestTarget target(test_tensors(DType::bfloat16), true, kOnGpuDevice);
    const Receivers receivers = make_receivers({&target});
    std::vector<TensorInfo> tensors = test_tensors(DType::bfloat16);
    with_receivers(on_gpu({2}, {Shard(0)}), receivers, tensors, DType::float32, options_for(Mode::alias),
                   [&](comm::Communicator& world, Session& session, TestSource& source) {
                       source.set_step(4);
                       session.push(1);
                       if (world.rank() == 0) {
                           EXPECT_NE(target.reading(0).data, target.weights()[0].memory.data);
                       }
                   });
    EXPECT_EQ(target.reading(0).data, target.weights()[0].memory.data);
    EXPECT_EQ(target.version(), 1);
    expect_weights(target, DType::float32, 4);
    EXPECT_EQ(memory_stats("alias arena").live_bytes, 0U);
}

TEST(SyncOnGpu, AliasTakesWhatTheTrainerWritesStraightThere) {
    TestTarget target(test_tensors(DType::float32), true, kOnGpuDevice);
    with_session(on_gpu({2}, {Shard(0)}), target, DType::float32, options_for(Mode::alias),
                 [&](comm::Communicator& world, Session& session, TestSource& source) {
                     for (int step = 1; step <= 3; ++step) {
                         move_to_writable(session, source);
                         source.set_step(step);
                         session.push(step);
                         world.barrier();
                         if (world.rank() == 0) expect_weights(target, DType::float32, step);
                         world.barrier();
                     }
                 });
}

TEST(SyncOnGpu, ASteadySyncAllocatesNothing) {
    for (const Mode mode : kModesOnGpu) {
        SCOPED_TRACE(mode_name(mode));
        TestTarget target(test_tensors(DType::bfloat16), true, kOnGpuDevice);
        with_session(on_gpu({2}, {Shard(0)}), target, DType::float32, options_for(mode),
                     [&](comm::Communicator& world, Session& session, TestSource&) {
                         int version = 0;
                         for (int i = 0; i < 3; ++i) session.push(++version);
                         world.barrier();
                         const std::uint64_t before = allocations();
                         world.barrier();
                         for (int i = 0; i < 4; ++i) session.push(++version);
                         world.barrier();
                         EXPECT_EQ(allocations(), before);
                     });
    }
}

// Setting a session up is refused on every rank, with these words.
void expect_refusal(const Layout& layout, TestTarget& target, Mode mode, const std::string& words) {
    try {
        with_session(layout, target, DType::float32, options_for(mode),
                     [](comm::Communicator&, Session&, TestSource&) {});
        ADD_FAILURE() << "nothing was refused";
    } catch (const SyncError& error) {
        EXPECT_THAT(error.what(), HasSubstr(words));
    }
}

TEST(SyncOnGpu, SaysWhatCannotBeBroughtOver) {
    TestTarget on_cpu(test_tensors(DType::bfloat16));
    TestTarget there(test_tensors(DType::bfloat16), true, kOnGpuDevice);
    expect_refusal(on_gpu({2}, {Shard(0)}), on_cpu, Mode::gather,
                   "the trainer's weights are on a GPU, the engine's on cpu");
    expect_refusal({{2}, {Shard(0)}}, there, Mode::alias,
                   "the trainer's weights are on the CPU, the engine's on cuda:0");
    expect_refusal(on_gpu({2}, {Shard(0)}), there, Mode::delta, "mode delta compares on the CPU");
}

TEST(SyncOnGpu, DirectWantsShardsThatCanBeExported) {
    expect_private_shard_refused(
        kOnGpuDevice, testing::AllOf(HasSubstr("tensor 'w' of rank 1"), HasSubstr("cannot be shared")));
}

}  // namespace
}  // namespace tandem::sync

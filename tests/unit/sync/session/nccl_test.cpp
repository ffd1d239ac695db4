// Sessions over NCCL: two trainer ranks, two engine ranks on (emulated) GPUs of their own, in one group with
// trainer rank 0.
#include <gmock/gmock.h>

#include "sync/bench/shapes.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/unit/sync/session/engine_ranks.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

const Device kNcclGpu{DeviceType::cuda, 0};

// Engine ranks on GPUs 1 and 2; `held`: what each holds, `tensors`: the trainer's.
void with_session_over_nccl(const std::vector<std::vector<TensorInfo>>& held,
                            const std::vector<TensorInfo>& tensors, const SessionOptions& options,
                            const std::function<void(comm::Communicator&, Session&, TestSource&,
                                                     const std::vector<TestTarget*>&)>& body) {
    std::vector<std::unique_ptr<TestTarget>> targets;
    std::vector<TestTarget*> pointers;
    for (const auto& one : held) {
        const Device gpu{DeviceType::cuda, static_cast<int>(targets.size()) + 1};
        targets.push_back(std::make_unique<TestTarget>(one, true, gpu));
        pointers.push_back(targets.back().get());
    }
    const Receivers receivers = make_receivers(pointers);
    comm::run_threads(2, [&](std::shared_ptr<comm::Communicator> world) {
        const DeviceMesh mesh = make_mesh(world, {2});
        TestSource source(tensors, mesh, std::vector<Placements>(tensors.size(), {Shard(0)}), DType::float32,
                          element_value, kNcclGpu);
        std::vector<std::string> addresses;
        for (const auto& receiver : receivers) addresses.push_back(receiver->address());
        Engines engines;
        if (world->rank() == 0)
            engines = engine::connect_ranks(addresses, soon(),
                                            {.nccl = engine::NcclOptions{kNcclGpu, {}, nullptr}});
        Session session(world, source, std::move(engines), options);
        body(*world, session, source, pointers);
    });
}

TEST(SyncOverNccl, WholeTensorsToEveryEngineRank) {
    const std::vector<TensorInfo> tensors = test_tensors(DType::bfloat16);
    with_session_over_nccl({tensors, tensors}, tensors, options_for(Mode::gather),
                           [](comm::Communicator& world, Session& session, TestSource& source,
                              const std::vector<TestTarget*>& targets) {
                               for (int step = 1; step <= 3; ++step) {
                                   source.set_step(step);
                                   session.push(step);
                                   if (world.rank() == 0) {
                                       for (const TestTarget* target : targets)
                                           expect_weights(*target, DType::float32, step);
                                   }
                                   EXPECT_EQ(session.weights_match().first_mismatch, "");
                               }
                           });
}

TEST(SyncOverNccl, ToEachItsSlice) {
    const std::vector<model::ParameterSpec> model = model_tensors("tiny");
    with_session_over_nccl(
        engine_layout(model, {2, 1, true}, DType::bfloat16), tensors_of(model, DType::bfloat16),
        options_for(Mode::gather),
        [](comm::Communicator&, Session& session, TestSource& source, const std::vector<TestTarget*>&) {
            for (int step = 1; step <= 2; ++step) {
                source.set_step(step);
                session.push(step);
                EXPECT_EQ(session.weights_match().first_mismatch, "");
            }
        });
}

// A byte that changes after its checksum was made: the push fails everywhere, the group ends, and the next
// push mends both.
TEST(SyncOverNccl, ACorruptedBucketFailsThePushAndTheNextOneMends) {
    const std::vector<TensorInfo> tensors = test_tensors(DType::bfloat16);
    bool corrupt = true;
    SessionOptions options = options_for(Mode::gather);
    options.before_load = [&](int bucket, Span slot) {
        if (!corrupt || bucket != 1) return;
        *emulated::host_alias(slot.data) ^= std::byte{1};
        corrupt = false;
    };
    with_session_over_nccl({tensors, tensors}, tensors, options,
                           [](comm::Communicator& world, Session& session, TestSource& source,
                              const std::vector<TestTarget*>& targets) {
                               source.set_step(1);
                               try {
                                   session.push(1);
                                   ADD_FAILURE() << "a corrupted bucket passed";
                               } catch (const SyncError& error) {
                                   EXPECT_THAT(error.what(), HasSubstr("is corrupted"));
                                   EXPECT_EQ(error.bucket(), 1);
                               }
                               if (world.rank() == 0) {
                                   EXPECT_TRUE(targets[0]->refusing());
                               }
                               source.set_step(2);
                               session.push(2);
                               if (world.rank() == 0) {
                                   for (const TestTarget* target : targets)
                                       expect_weights(*target, DType::float32, 2);
                               }
                           });
}

TEST(SyncOverNccl, OtherModesSayWhy) {
    const std::vector<TensorInfo> tensors = test_tensors(DType::bfloat16);
    for (const auto& [mode, words] :
         {std::pair{Mode::direct, "another rank's: use mode gather"}, std::pair{Mode::alias, "in place"}}) {
        try {
            with_session_over_nccl({tensors, tensors}, tensors, options_for(mode),
                                   [](comm::Communicator&, Session&, TestSource&,
                                      const std::vector<TestTarget*>&) { ADD_FAILURE() << "was taken"; });
        } catch (const SyncError& error) {
            EXPECT_THAT(error.what(), HasSubstr(words));
        }
    }
}

}  // namespace
}  // namespace tandem::sync

// Promises of the modes whose engines read the trainer's memory where it lies: direct from shards that an engine can
// map, and that may move; alias from an arena that the trainer may not write while an engine reads it.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

using testing::HasSubstr;

TEST(InPlace, DirectWantsShardsThatAnEngineCanMap) {
    expect_private_shard_refused(Device{}, HasSubstr("tensor 'w' of rank 1 does not lie in memory"));
}

TEST(InPlace, DirectFollowsShardsThatMove) {
    TestTarget target(test_tensors(DType::bfloat16));
    with_session({{2}, {Shard(0)}}, target, DType::float32, options_for(Mode::direct),
                 [&](comm::Communicator& world, Session& session, TestSource& source) {
                     source.set_step(1);
                     session.push(1);
                     if (world.rank() == 1) {
                         const Tensor& now = source.tensors()[0].tensor.local();
                         source.move_to(0, Tensor::empty(now.shape(), now.dtype(), "moved", world.memory()));
                     }
                     source.set_step(2);
                     session.push(2);
                     if (world.rank() == 0) expect_weights(target, DType::float32, 2);
                 });
}

// True when a process that writes there survives.
bool may_write(std::byte* at) {
    const pid_t child = ::fork();
    if (child == 0) {
        *reinterpret_cast<volatile std::byte*>(at) = std::byte{1};
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(InPlace, AliasLetsTheTrainerWriteOnlyWhatNoEngineReads) {
    TestTarget target(test_tensors(DType::float32));
    with_session({{2}, {Shard(0)}}, target, DType::float32, options_for(Mode::alias),
                 [&](comm::Communicator& world, Session& session, TestSource& source) {
                     std::byte* previous = nullptr;
                     for (int step = 1; step <= 4; ++step) {
                         move_to_writable(session, source);
                         std::byte* mine = session.writable(0).raw();
                         ASSERT_NE(mine, nullptr);
                         EXPECT_NE(mine, previous);
                         source.set_step(step);
                         session.push(step);
                         world.barrier();
                         if (world.rank() == 0) {
                             expect_weights(target, DType::float32, step);
                             EXPECT_FALSE(may_write(mine)) << "while the engine reads it";
                             EXPECT_TRUE(may_write(session.writable(0).raw()));
                         }
                         const WeightsMatch match = session.weights_match();
                         EXPECT_TRUE(match.match) << match.first_mismatch;
                         previous = mine;
                     }
                 });
}

TEST(InPlace, AliasNeedsAnEngineThatCanReadInPlace) {
    TestTarget target(test_tensors(DType::float32), false);
    EXPECT_THROW(with_session({{2}, {Shard(0)}}, target, DType::float32, options_for(Mode::alias),
                              [](comm::Communicator&, Session&, TestSource&) {}),
                 SyncError);
}

}  // namespace
}  // namespace tandem::sync

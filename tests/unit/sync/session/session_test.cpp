// A session with its ranks as threads and the receiver in the same process: what lands, byte for byte, and
// what a failure leaves behind.
#include "sync/session/session.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "common/device/memory.h"
#include "common/stopwatch.h"
#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class EveryMode : public testing::TestWithParam<Mode> {};

TEST_P(EveryMode, EveryLayoutAndCastLandsByteForByte) {
    const std::vector<Layout> layouts{{{2}, {Shard(0)}},
                                      {{3}, {Replicate()}},
                                      {{2, 2}, {Shard(0), Replicate()}},
                                      {{2, 2}, {StridedShard(0, 2), Shard(0)}},
                                      {{2, 2}, {Shard(0), Shard(1)}}};
    std::vector<std::pair<DType, DType>> casts{{DType::float32, DType::bfloat16},
                                               {DType::bfloat16, DType::bfloat16}};
#if !defined(TANDEM_SANITIZE_address) && !defined(TANDEM_SANITIZE_thread)  // which are for what layouts do
    casts.insert(casts.end(), {{DType::float32, DType::float32}, {DType::bfloat16, DType::float32}});
#endif
    for (const Layout& layout : layouts) {
        for (const auto& [from, to] : casts) {
            SCOPED_TRACE(tandem::to_string(layout.placements));
            TestTarget target(test_tensors(to));
            SessionOptions options;
            options.mode = GetParam();
            options.bucket_bytes = 4096;
            options.depth = 2;
            with_session(layout, target, from, options,
                         [&, from = from](comm::Communicator& world, Session& session, TestSource& source) {
                             for (int step = 1; step <= 3; ++step) {
                                 source.set_step(step);
                                 const SyncReport report = session.push(step);
                                 EXPECT_EQ(session.version(), step);
                                 EXPECT_EQ(session.bytes(), report.bytes);
                                 EXPECT_GT(report.buckets, GetParam() == Mode::gather ? 4 : -1);
                                 EXPECT_LE(report.staging_bytes, 2u * 4096);
                                 if (world.rank() == 0) expect_weights(target, from, step);
                                 const WeightsMatch match = session.weights_match();
                                 EXPECT_TRUE(match.match) << match.first_mismatch;
                             }
                         });
            EXPECT_EQ(target.version(), 3);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Session, EveryMode,
                         testing::Values(Mode::gather, Mode::direct, Mode::alias, Mode::delta),
                         [](const auto& info) { return std::string(mode_name(info.param)); });

// Its steps take so long that nothing else counts.
class SlowEngine final : public ForwardingEngine {
  public:
    using ForwardingEngine::ForwardingEngine;
    double packed_ms() const override { return engine_->packed_ms(); }
    engine::Held held(Deadline deadline) override {
        slowly();
        return ForwardingEngine::held(deadline);
    }
    void pause(Deadline deadline) override {
        slowly();
        ForwardingEngine::pause(deadline);
    }
    double wait_loaded(int bucket, Deadline deadline) override {
        if (bucket == 0) slowly();
        return ForwardingEngine::wait_loaded(bucket, deadline);
    }
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        slowly();
        ForwardingEngine::commit(version, manifest, deadline);
    }
    void resume(Deadline deadline) override {
        slowly();
        ForwardingEngine::resume(deadline);
    }

  private:
    static void slowly() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }
};

TEST_P(EveryMode, ThePhasesOfAPushAreAllOfIt) {
    TestTarget target(test_tensors(DType::float32));
    target.say_packed(12.5);
    with_session(
        {{2}, {Shard(0)}}, target, DType::float32, options_for(GetParam()),
        [](comm::Communicator& world, Session& session, TestSource& source) {
            source.set_step(1);
            const Stopwatch stopwatch;
            const SyncReport report = session.push(1);
            const double whole = stopwatch.ms();
            if (world.rank() != 0) return;
            const PhaseTimes& t = report.phase_ms;
            EXPECT_GT(t.finish, 0);
            EXPECT_LE(t.prepare + report.total_ms + t.finish, whole);
            EXPECT_GE(t.prepare + report.total_ms + t.finish, 0.95 * whole);
            EXPECT_LE(t.pause + t.gather + t.load + t.resume, report.total_ms);
            EXPECT_GE(t.pause + t.gather + t.load + t.resume, 0.95 * report.total_ms);
            EXPECT_EQ(t.pack, 12.5);
        },
        [](std::unique_ptr<engine::Engine> engine) {
            return std::make_unique<SlowEngine>(std::move(engine));
        });
}

TEST(Session, AnyDepthWorksAndStagingStaysUnderItsCap) {
    for (const int depth : {1, 2, 3, 7, 200}) {
        TestTarget target(test_tensors(DType::float32));
        SessionOptions options;
        options.bucket_bytes = 5000;  // not a whole number of pages
        options.depth = depth;
        reset_memory_peaks();
        with_session({{2}, {Shard(0)}}, target, DType::float32, options,
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         source.set_step(depth);
                         session.push(1);
                         if (world.rank() == 0) expect_weights(target, DType::float32, depth);
                     });
        EXPECT_LE(memory_stats("staging").peak_bytes, static_cast<std::size_t>(depth) * 5000);
        EXPECT_GT(memory_stats("staging").peak_bytes, 0u);
    }
}

TEST(Session, ACorruptedBucketFailsOnEveryRankAndTheNextPushHeals) {
    for (const int depth : {1, 3}) {
        SCOPED_TRACE(depth);
        TestTarget target(test_tensors(DType::bfloat16));
        std::atomic<int> corrupt_bucket{-1};
        SessionOptions options;
        options.bucket_bytes = 4096;
        options.depth = depth;
        options.before_load = [&](int bucket, Span slot) {
            if (bucket == corrupt_bucket) slot.data[3] ^= std::byte{0x10};
        };
        std::mutex mutex;
        std::vector<std::string> messages;
        with_session({{2, 2}, {Shard(0), Replicate()}}, target, DType::float32, options,
                     [&](comm::Communicator& world, Session& session, TestSource& source) {
                         source.set_step(1);
                         session.push(1);
                         world.barrier();
                         if (world.rank() == 0) corrupt_bucket = 2;
                         source.set_step(2);
                         try {
                             session.push(2);
                             ADD_FAILURE() << "a corrupted bucket passed";
                         } catch (const SyncError& error) {
                             EXPECT_EQ(error.phase(), "load");
                             EXPECT_EQ(error.bucket(), 2);
                             EXPECT_EQ(error.rank(), 0);
                             const std::lock_guard lock(mutex);
                             messages.emplace_back(error.what());
                         }
                         EXPECT_EQ(session.state(), State::failed);
                         EXPECT_EQ(session.version(), 1);
                         world.barrier();
                         if (world.rank() == 0) {
                             EXPECT_TRUE(target.refusing());
                             EXPECT_EQ(target.version(), 1);
                             corrupt_bucket = -1;
                         }
                         world.barrier();
                         EXPECT_THROW(session.push(2), InvalidArgument);  // spent
                         session.push(3);
                         if (world.rank() == 0) expect_weights(target, DType::float32, 2);
                     });
        ASSERT_EQ(messages.size(), 4u);
        for (const std::string& message : messages) {
            EXPECT_EQ(message, messages[0]);
            EXPECT_THAT(message, HasSubstr("sync of version 2"));
            EXPECT_THAT(message,
                        testing::ContainsRegex(
                            "bucket 2: tensor '[a-z]+' bytes \\[[0-9]+, [0-9]+\\) from rank 0 is corrupted"));
        }
        EXPECT_FALSE(target.refusing());
        EXPECT_EQ(target.version(), 3);
    }
}

// Takes 100 ms for each bucket.
class EngineWithSlowBuckets final : public ForwardingEngine {
  public:
    using ForwardingEngine::ForwardingEngine;
    double wait_loaded(int bucket, Deadline deadline) override {
        std::this_thread::sleep_until(deadline.within(std::chrono::milliseconds(100)).at());
        if (deadline.passed()) throw DeadlineExceeded(peer(), "load", "not loaded in time");
        return ForwardingEngine::wait_loaded(bucket, deadline);
    }
};

// Each bucket of a slow engine is loaded in time, all of them together are not.
TEST(Session, ASlowEngineEndsTheTransferByItsDeadlineOnEveryRank) {
    for (const auto& [mode, depth] :
         {std::pair(Mode::gather, 1), {Mode::gather, 2}, {Mode::direct, 2}, {Mode::delta, 2}}) {
        SCOPED_TRACE(fmt::format("{}, depth {}", mode_name(mode), depth));
        TestTarget target(test_tensors(DType::float32));  // 125 KB: 8 buckets or more
        SessionOptions options = options_for(mode);
        options.depth = depth;
        options.deadlines.transfer = std::chrono::milliseconds(400);
        with_session(
            {{2}, {Shard(0)}}, target, DType::float32, options,
            [&](comm::Communicator&, Session& session, TestSource& source) {
                for (int version = 1; version <= 2; ++version) {
                    source.set_step(version);
                    EXPECT_EQ(phase_of_failure(session, version), "load");
                    EXPECT_EQ(session.state(), State::failed);  // and not broken
                }
            },
            [](std::unique_ptr<engine::Engine> engine) {
                return std::make_unique<EngineWithSlowBuckets>(std::move(engine));
            });
        EXPECT_EQ(target.version(), 0);
    }
}

// Nothing is waited for longer than it may be, and still the whole takes too long: no further bucket is begun.
TEST(Session, RanksThatAreSlowBetweenBucketsEndTheTransferByItsDeadline) {
    for (const Mode mode : {Mode::gather, Mode::delta}) {
        SCOPED_TRACE(mode_name(mode));
        TestTarget target(test_tensors(DType::float32));
        std::atomic<int> begun{0};  // of some 30 buckets
        SessionOptions options = options_for(mode, 4096);
        options.depth = 3;  // the engine has been done with what is waited for
        options.deadlines.transfer = std::chrono::milliseconds(100);
        options.before_load = [&](int, Span) {
            ++begun;
            std::this_thread::sleep_for(std::chrono::milliseconds(40));
        };
        with_session({{2}, {Shard(0)}}, target, DType::float32, options,
                     [&](comm::Communicator&, Session& session, TestSource&) {
                         EXPECT_NE(phase_of_failure(session, 1), "none");
                         EXPECT_EQ(session.state(), State::failed);
                     });
        EXPECT_LT(begun, 10);
    }
}

TEST(Session, WeightsMatchSeesASingleChangedBit) {
    TestTarget target(test_tensors(DType::bfloat16));
    with_session({{2}, {Shard(0)}}, target, DType::float32, {},
                 [&](comm::Communicator& world, Session& session, TestSource&) {
                     session.push(1);
                     EXPECT_TRUE(session.weights_match().match);
                     if (world.rank() == 0) target.weights()[5].memory.data[77] ^= std::byte{1};
                     const WeightsMatch match = session.weights_match();
                     EXPECT_FALSE(match.match);
                     EXPECT_EQ(match.first_mismatch, "gate");
                 });
}

TEST(Session, AnEngineThatGeneratesOnIsAnErrorOnEveryRank) {
    TestTarget target(test_tensors(DType::float32));
    with_session({{2}, {Shard(0)}}, target, DType::float32, {},
                 [&](comm::Communicator& world, Session& session, TestSource&) {
                     session.push(1);
                     world.barrier();
                     if (world.rank() == 0) target.set_paused(false);
                     world.barrier();
                     try {
                         session.push(2);
                         ADD_FAILURE() << "begin passed while generating";
                     } catch (const SyncError& error) {
                         EXPECT_EQ(error.phase(), "begin");
                         EXPECT_THAT(error.what(), HasSubstr("while generating"));
                     }
                     world.barrier();
                     if (world.rank() == 0) {
                         EXPECT_FALSE(target.refusing());  // the old version serves on
                         target.set_paused(true);
                     }
                     world.barrier();
                     session.push(3);
                 });
    EXPECT_EQ(target.version(), 3);
}

TEST(Session, SetUpRefusesTensorsThatDoNotMatchOnEveryRank) {
    const auto attempt = [](std::vector<TensorInfo> held, std::vector<TensorInfo> offered, Placements layout,
                            std::size_t bucket, int depth = 0, Mode mode = Mode::gather) {
        TestTarget target(held);
        engine::Receiver receiver(target);
        std::mutex mutex;
        std::vector<std::string> messages;
        comm::run_threads(2, [&](std::shared_ptr<comm::Communicator> world) {
            const DeviceMesh mesh = make_mesh(world, {2});
            TestSource source(offered, mesh, std::vector<Placements>(offered.size(), layout), DType::float32);
            std::unique_ptr<engine::Engine> engine;
            if (world->rank() == 0) engine = engine::connect(receiver.address(), soon());
            SessionOptions options;
            options.bucket_bytes = bucket;
            options.depth = depth;
            options.mode = mode;
            try {
                const Session session(world, source, std::move(engine), options);
            } catch (const SyncError& error) {
                const std::lock_guard lock(mutex);
                messages.emplace_back(error.what());
            }
        });
        EXPECT_EQ(messages.size(), 2u);
        return messages.empty() ? std::string() : messages[0];
    };
    const TensorInfo a{"a", {8, 4}, DType::float32};
    const TensorInfo b{"b", {8}, DType::float32};
    const TensorInfo other_a{"a", {4, 8}, DType::float32};
    EXPECT_THAT(attempt({a, b}, {a}, {Shard(0)}, 0),
                HasSubstr("the engine holds tensor 'b', the trainer does not"));
    EXPECT_THAT(attempt({a}, {a, b}, {Shard(0)}, 0),
                HasSubstr("the trainer holds tensor 'b', the engine does not"));
    EXPECT_THAT(attempt({a}, {other_a}, {Shard(0)}, 0),
                HasSubstr("tensor 'a' is [4, 8] in the trainer and [8, 4] in the engine"));
    EXPECT_THAT(attempt({a}, {a}, {Shard(0)}, 64), HasSubstr("too small for 2 ranks"));
    EXPECT_THAT(attempt({a}, {a}, {Shard(0)}, 0, -1), HasSubstr("mode gather needs at least 1"));
    EXPECT_THAT(attempt({a}, {a}, {Shard(0)}, 0, 1, Mode::delta), HasSubstr("mode delta needs at least 2"));
}

}  // namespace
}  // namespace tandem::sync

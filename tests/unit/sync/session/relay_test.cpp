// Gather by a relay: the same weights as by messages, and failures in the middle of it.
#include <functional>
#include <thread>

#include "common/error.h"
#include "tests/support/two_cores.h"
#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

using test::OnTwoCores;

// Lets relays through, which ForwardingEngine does not.
class RelayingEngine : public ForwardingEngine, public engine::BucketRelay {
  public:
    using ForwardingEngine::ForwardingEngine;
    engine::BucketRelay* relay() override { return there() == nullptr ? nullptr : this; }
    void take(const engine::Relay& relay, Deadline deadline) override { there()->take(relay, deadline); }
    void take_probe(const engine::Relay& relay, const engine::RelayProbe& probe, Deadline deadline) override {
        there()->take_probe(relay, probe, deadline);
    }
    bool answered() override { return there()->answered(); }
    double wait_taken(Deadline deadline) override { return there()->wait_taken(deadline); }

  private:
    engine::BucketRelay* there() { return engine_->buckets().relay(); }
};

TEST(RelayedSession, GivesTheWeightsAtAnyMeshDepthAndBucket) {
    const OnTwoCores cores;
    for (const std::vector<int>& mesh : {std::vector<int>{2}, std::vector<int>{2, 2}}) {
        for (const int depth : {1, 3}) {
            for (const std::size_t bucket : {std::size_t{1024}, std::size_t{1} << 16}) {
                SCOPED_TRACE(fmt::format("{} axes, depth {}, {} bytes", mesh.size(), depth, bucket));
                TestTarget target(test_tensors(DType::bfloat16));
                SessionOptions options = options_for(Mode::gather, bucket);
                options.depth = depth;
                const Placements placements =
                    mesh.size() == 1 ? Placements{Shard(0)} : Placements{Shard(0), Shard(1)};
                with_session({mesh, placements}, target, DType::float32, options,
                             [&](comm::Communicator& world, Session& session, TestSource& source) {
                                 for (int step = 1; step <= 3; ++step) {
                                     source.set_step(step);
                                     const SyncReport report = session.push(step);
                                     EXPECT_EQ(report.relayed, cores.there_are());
                                     EXPECT_LE(report.staging_bytes,
                                               bucket * static_cast<std::size_t>(depth));
                                     world.barrier();
                                     if (world.rank() == 0) expect_weights(target, DType::float32, step);
                                     world.barrier();
                                 }
                                 EXPECT_TRUE(session.weights_match().match);
                             });
            }
        }
    }
}

// Two tensors, and what an engine rank of two holds of them.
const std::vector<TensorInfo>& two_tensors() {
    static const std::vector<TensorInfo> tensors{{"w", {64, 48}, DType::float32, {}},
                                                 {"v", {10, 96}, DType::float32, {}}};
    return tensors;
}
std::vector<TensorInfo> half_of_two(int rank) {
    return {{"w", {32, 48}, DType::float32, {{"w", {32 * rank, 0}, {32, 48}, 0, {48, 1}}}},
            {"v", {10, 48}, DType::float32, {{"v", {0, 48 * rank}, {10, 48}, 0, {48, 1}}}}};
}

// Tensor-parallel engine ranks: each has its words.
TEST(RelayedSession, GivesEveryEngineRankItsPart) {
    const OnTwoCores cores;
    TestTarget first(half_of_two(0)), second(half_of_two(1));
    SessionOptions options = options_for(Mode::gather, 4096);
    options.depth = 1;
    with_engines({{2}, {Shard(0)}}, {&first, &second}, two_tensors(), DType::float32, options,
                 [&](comm::Communicator&, Session& session, TestSource& source) {
                     for (int step = 1; step <= 3; ++step) {
                         source.set_step(step);
                         EXPECT_EQ(session.push(step).relayed, cores.there_are());
                         EXPECT_TRUE(session.weights_match().match);
                     }
                 });
    EXPECT_EQ(first.version(), 3);
    EXPECT_EQ(second.version(), 3);
}

// Makes the second of two engine ranks an E, to which `made` points from then on.
template <typename E>
auto second_as(E*& made) {
    return [&made, engines = 0](std::unique_ptr<engine::Engine> engine) mutable {
        if (engines++ == 0) return engine;
        auto second = std::make_unique<E>(std::move(engine));
        made = second.get();
        return std::unique_ptr<engine::Engine>(std::move(second));
    };
}

// Begins only when it has been asked twice whether it has answered.
class BeginsLate final : public RelayingEngine {
  public:
    using RelayingEngine::RelayingEngine;
    void take(const engine::Relay& relay, Deadline deadline) override {
        begin_ = [=, this] { RelayingEngine::take(relay, deadline); };
        asked_ = 0;
    }
    bool answered() override {
        if (++asked_ == 2) begin_();
        return asked_ > 2 && RelayingEngine::answered();
    }
    int asked() const { return asked_; }

  private:
    std::function<void()> begin_;
    int asked_ = 0;
};

// An engine rank that has all its buckets long before another has not failed.
TEST(RelayedSession, WaitsForAnEngineRankThatIsFarBehind) {
    const OnTwoCores cores;
    TestTarget first(half_of_two(0)), second(half_of_two(1));
    SessionOptions options = options_for(Mode::gather, std::size_t{1} << 16);
    BeginsLate* late = nullptr;
    with_engines(
        {{2}, {Shard(0)}}, {&first, &second}, two_tensors(), DType::float32, options,
        [&](comm::Communicator& world, Session& session, TestSource& source) {
            for (int step = 1; step <= 2; ++step) {
                source.set_step(step);
                EXPECT_EQ(session.push(step).relayed, cores.there_are());
                if (world.rank() == 0) {
                    EXPECT_EQ(late->asked() > 1, cores.there_are());
                }
                EXPECT_TRUE(session.weights_match().match);
            }
        },
        second_as(late));
    EXPECT_EQ(first.version(), 2);
    EXPECT_EQ(second.version(), 2);
}

// Is told of a rank too few, which it refuses.
class Refuses final : public RelayingEngine {
  public:
    using RelayingEngine::RelayingEngine;
    void take(const engine::Relay& relay, Deadline deadline) override {
        engine::Relay wrong = relay;
        --wrong.ranks;
        RelayingEngine::take(wrong, deadline);
    }
};

// The engine rank that fails is named, with its own words; the one before it only hears that the relay was stopped.
TEST(RelayedSession, NamesTheEngineRankThatFailed) {
    const OnTwoCores cores;
    TestTarget first(half_of_two(0)), second(half_of_two(1));
    SessionOptions options = options_for(Mode::gather, 4096);
    options.depth = 1;
    Refuses* refusing = nullptr;
    with_engines(
        {{2}, {Shard(0)}}, {&first, &second}, two_tensors(), DType::float32, options,
        [&](comm::Communicator&, Session& session, TestSource& source) {
            source.set_step(1);
            if (!cores.there_are()) return static_cast<void>(session.push(1));
            using testing::HasSubstr;
            EXPECT_THAT([&] { session.push(1); },
                        testing::ThrowsMessage<SyncError>(testing::AllOf(
                            HasSubstr("does not say on which cores"), HasSubstr(refusing->peer()))));
        },
        second_as(refusing));
}

TEST(RelayedSession, IsNotRelayedWhereSomebodySeesTheBuckets) {
    const OnTwoCores cores;
    TestTarget target(test_tensors(DType::float32));
    SessionOptions options = options_for(Mode::gather);
    std::atomic<int> seen{0};
    options.before_load = [&](int, Span) { ++seen; };
    with_session({{2}, {Shard(0)}}, target, DType::float32, options,
                 [&](comm::Communicator&, Session& session, TestSource& source) {
                     source.set_step(1);
                     const SyncReport report = session.push(1);
                     EXPECT_FALSE(report.relayed);
                     EXPECT_GT(report.buckets, 1);
                 });
    EXPECT_GT(seen, 1);
}

// Fails once, at some step of a relay.
enum class Step { start, answer, verify };
class FailsOnce final : public RelayingEngine {
  public:
    FailsOnce(std::unique_ptr<engine::Engine> engine, Step step)
        : RelayingEngine(std::move(engine)), step_(step) {}
    void take(const engine::Relay& relay, Deadline deadline) override {
        if (step_ == Step::start) fail_once();
        RelayingEngine::take(relay, deadline);
    }
    double wait_taken(Deadline deadline) override {
        const double ms = RelayingEngine::wait_taken(deadline);
        if (step_ == Step::answer) fail_once();
        return ms;
    }
    double verify(std::span<const ops::Checksum> checksums, Deadline deadline) override {
        std::vector<ops::Checksum> all(checksums.begin(), checksums.end());
        if (step_ == Step::verify && !std::exchange(failed_, true)) all[1].high ^= 2;
        return RelayingEngine::verify(all, deadline);
    }

  private:
    void fail_once() {
        if (!std::exchange(failed_, true)) throw TransportError(peer(), "relay", "once");
    }
    Step step_;
    bool failed_ = false;
};

TEST(RelayedSession, FailsAlikeOnAllRanksAndHeals) {
    const OnTwoCores cores;
    for (const Step step : {Step::start, Step::answer, Step::verify}) {
        SCOPED_TRACE(static_cast<int>(step));
        TestTarget target(test_tensors(DType::float32));
        SessionOptions options = options_for(Mode::gather, 2048);
        options.depth = 1;
        with_session(
            {{2}, {Shard(0)}}, target, DType::float32, options,
            [&](comm::Communicator&, Session& session, TestSource& source) {
                source.set_step(1);
                EXPECT_EQ(phase_of_failure(session, 1), cores.there_are() ? "load" : "none");
                source.set_step(2);
                EXPECT_EQ(session.push(2).relayed, cores.there_are());
                EXPECT_TRUE(session.weights_match().match);
            },
            [&](std::unique_ptr<engine::Engine> engine) {
                return std::make_unique<FailsOnce>(std::move(engine), step);
            });
    }
}

// The receiver ends in the middle: no rank waits for the deadline.
TEST(RelayedSession, EndsWithItsEngine) {
    const OnTwoCores cores;
    TestTarget target(test_tensors(DType::float32));
    Receivers receivers = make_receivers({&target});
    SessionOptions options = options_for(Mode::gather, 1024);
    options.depth = 1;
    std::atomic<int> done{0};
    std::thread killer([&] {
        while (done < 4) std::this_thread::yield();
        receivers.clear();
    });
    std::vector<TensorInfo> tensors;
    for (const auto& weight : target.weights()) tensors.push_back(weight.info);
    const auto start = std::chrono::steady_clock::now();
    with_receivers({{2}, {Shard(0)}}, receivers, tensors, DType::float32, options,
                   [&](comm::Communicator&, Session& session, TestSource& source) {
                       EXPECT_THROW(
                           {
                               for (int step = 1;; ++step) {
                                   source.set_step(step);
                                   session.push(step);
                                   ++done;
                               }
                           },
                           SyncError);
                   });
    killer.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25));
}

}  // namespace
}  // namespace tandem::sync

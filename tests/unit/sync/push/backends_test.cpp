// Pushes into a vLLM by the weight-transfer backends that come with it, CUDA IPC and NCCL: what arrives, in which order
// the server is told what, what each failure leaves, and what the next push makes of that. GPUs are emulated.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "engine_adapter/vllm/server.h"
#include "sync/push/directory_source.h"
#include "tests/support/error_of.h"
#include "tests/unit/sync/push/backends_fixture.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(Backends, IpcBringsEveryVersionInThePause) {
    serve(model("old", 1), {.backend = "ipc"});
    for (int version = 1; version <= 3; ++version) {
        const std::string next = model("next" + std::to_string(version), 10 + version);
        const ServerOutcome outcome = push(next);
        ASSERT_TRUE(outcome.whole) << outcome.error;
        EXPECT_EQ(outcome.kind, "vllm");
        EXPECT_EQ(outcome.version, version);
        expect_served(next, std::to_string(version));
    }
    EXPECT_THAT(calls_in_pause(),
                ElementsAre("POST /pause", "POST /update_weight_version", "POST /start_weight_update",
                            "POST /update_weights", "POST /update_weights", "POST /finish_weight_update",
                            "POST /reset_prefix_cache", "POST /update_weight_version", "GET /weight_info",
                            "POST /resume"));
}

TEST_F(Backends, ChunksAreCutWhereVllmCutsThem) {
    // Larger elements first, 492 and 36 bytes, then 30 and 14; a chunk ends once it is larger than it should be.
    const std::vector<std::pair<std::uint64_t, std::vector<std::size_t>>> cuts{
        {std::uint64_t{1} << 20, {572}},
        {491, {492, 80}},
        {492, {528, 44}},
        {36, {492, 66, 14}},
        {0, {492, 36, 30, 14}}};
    for (const char* backend : {"ipc", "nccl"}) {
        for (const auto& [bytes, sizes] : cuts) {
            packed_bytes_ = bytes;
            serve(mixed_model("old", 1), {.backend = backend, .workers = 1});
            const std::string next = mixed_model("next", 7);
            const ServerOutcome outcome = push(next);
            ASSERT_TRUE(outcome.whole) << outcome.error;
            expect_served(next, "1");
            std::vector<std::size_t> received = backend_->received();
            if (std::string_view(backend) == "ipc" && bytes == 0)
                std::sort(received.rbegin(), received.rend());
            EXPECT_EQ(received, sizes) << backend << " with " << bytes;
            EXPECT_THAT(server_->violations(), IsEmpty());
            server_.reset();
        }
    }
}

TEST_F(Backends, NcclReachesEveryWorkerOfOneGroup) {
    packed_bytes_ = 2000;
    serve(model("old", 1), {.backend = "nccl", .workers = 2});
    const auto engine = [&] { return engine::connect(server_->url(), soon(), options()); };
    const auto world = comm::solo();
    for (const std::string& next : {model("a", 5), model("b", 6)}) {
        const DirectorySource source(next, world);
        Session session(world, source, engine(), options_for(Mode::gather));
        const std::int64_t version = session.push(0 + (next.ends_with("a") ? 1 : 2)).version;
        expect_served(next, std::to_string(version));
    }
    EXPECT_EQ(backend_->groups(), 2);  // one a session
}

TEST_F(Backends, ATrainerOnAGpuStagesThere) {
    const std::vector<TensorInfo> tensors = test_tensors(DType::float32);
    const std::string directory = zeros(tensors);
    for (const char* backend : {"ipc", "nccl"}) {
        serve(directory, {.backend = backend});
        comm::run_threads(2, [&](std::shared_ptr<comm::Communicator> world) {
            const DeviceMesh mesh = make_mesh(world, {2});
            TestSource source(tensors, mesh, std::vector<Placements>(tensors.size(), {Shard(0)}),
                              DType::float32, element_value, kGpu);
            Engines engines;
            if (world->rank() == 0) engines.push_back(engine::connect(server_->url(), soon(), options()));
            Session session(world, source, std::move(engines), options_for(Mode::gather));
            for (int step = 1; step <= 3; ++step) {
                source.set_step(step);
                session.push(step);
            }
        });
        EXPECT_EQ(server_->weight_version(), "3");
        EXPECT_FALSE(server_->paused());
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const std::string held = server_->weights().at(tensors[t].name);
            for (std::size_t i = 0; i < held.size() / sizeof(float); ++i) {
                const float wanted = element_value(t, i, 3);
                ASSERT_EQ(std::memcmp(&wanted, held.data() + i * sizeof wanted, sizeof wanted), 0)
                    << backend << ": " << tensors[t].name << " element " << i;
            }
        }
        EXPECT_LE(backend_->groups(), 1);  // formed once for the session's three pushes
        EXPECT_THAT(server_->violations(), IsEmpty());
        server_.reset();
    }
}

// What a route that fails leaves, and that the next push mends it.
TEST_F(Backends, AFailureIsNamedAndTheNextPushHeals) {
    struct Case {
        const char* route;
        bool serves_on;  // with the weights from before
    };
    for (const char* backend : {"ipc", "nccl"}) {
        for (const Case& one : {Case{"/init_weight_transfer_engine", true}, Case{"/pause", true},
                                Case{"/start_weight_update", false},
                                Case{"/update_weights", std::string_view(backend) == "ipc"},
                                Case{"/finish_weight_update", false}, Case{"/reset_prefix_cache", false}}) {
            const std::string old = model("old", 1);
            serve(old, {.backend = backend});
            const std::string first = model("first", 2);
            ASSERT_TRUE(push(first).whole);
            server_->set_failure(one.route, 500);
            const ServerOutcome outcome = push(model("second", 3));
            EXPECT_FALSE(outcome.whole);
            EXPECT_THAT(outcome.error, AllOf(HasSubstr(server_->url()), HasSubstr(one.route))) << backend;
            server_->mend();
            if (one.serves_on) {
                expect_served(first, "1");
            } else {
                EXPECT_TRUE(server_->paused()) << backend << one.route;
                EXPECT_EQ(server_->weight_version(), "loading 2") << backend << one.route;
            }
            const std::string third = model("third", 4);
            const ServerOutcome healed = push(third);
            EXPECT_TRUE(healed.whole) << backend << one.route << ": " << healed.error;
            expect_served(third, std::to_string(healed.version));
            EXPECT_THAT(server_->violations(), IsEmpty()) << backend << one.route;
            server_.reset();
        }
    }
}

// vLLM would count what it has of that layer among the next update's weights.
TEST_F(Backends, AnUpdateThatEndedBetweenTwoWeightsIsBroughtToItsEndFirst) {
    for (const char* backend : {"ipc", "nccl"}) {
        packed_bytes_ = 0;
        serve(model("old", 1), {.backend = backend});
        backend_->set_before_load([](const std::string& name) {
            if (name == "model.norm.weight") throw Error("no room for the norm");
        });
        const ServerOutcome outcome = push(model("next", 2));
        EXPECT_FALSE(outcome.whole);
        EXPECT_THAT(outcome.error, AllOf(HasSubstr("/update_weights"), HasSubstr("no room for the norm")));
        EXPECT_TRUE(server_->paused());
        backend_->set_before_load({});
        const std::string healing = model("healing", 3);
        EXPECT_TRUE(push(healing).whole);
        expect_served(healing, "1");
        EXPECT_THAT(server_->violations(), IsEmpty()) << backend;
        server_.reset();
    }
}

TEST_F(Backends, AnUpdateThatAKilledPusherLeftOpenIsClosedFirst) {
    serve(model("old", 1), {.backend = "ipc"});
    engine::VllmServer other(server_->url(), "");
    other.pause(engine::InFlight::wait, soon());
    other.set_weight_version("loading 1", soon());
    other.start_weight_update(soon());
    const std::string next = model("next", 2);
    const ServerOutcome outcome = push(next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    expect_served(next, "1");
}

TEST_F(Backends, AServerThatCannotOpenOurMemoryKeepsItsWeights) {
    const std::vector<std::pair<VllmBackendStandIn::Options, std::string>> cases{
        {{.backend = "ipc", .opens_pickles = false}, "VLLM_ALLOW_INSECURE_SERIALIZATION=1"},
        {{.backend = "ipc", .uuid = "another"}, "IPC handle not found for GPU UUID another"}};
    for (const auto& [options, words] : cases) {
        const std::string old = model("old", 1);
        serve(old, options);
        const ServerOutcome outcome = push(model("next", 2));
        EXPECT_FALSE(outcome.whole);
        EXPECT_THAT(outcome.error,
                    AllOf(HasSubstr(words), HasSubstr("does not open memory of cuda:0 (gpu 0)")));
        expect_served(old, "default");
        EXPECT_THAT(server_->violations(), IsEmpty());
        server_.reset();
    }
}

// Whether a server opens our memory is asked once; and anew of one that says another version than this trainer's last.
TEST_F(Backends, AServerThatHasOpenedOurMemoryIsNotAskedWhetherItDoes) {
    const std::vector<TensorInfo> tensors = test_tensors(DType::float32);
    serve(zeros(tensors), {.backend = "ipc"});
    const auto world = comm::solo();
    TestSource source(tensors, make_mesh(world, {1}), std::vector<Placements>(tensors.size(), {Shard(0)}),
                      DType::float32, element_value, kGpu);
    Engines engines;
    engines.push_back(engine::connect(server_->url(), soon(), options()));
    Session session(world, source, std::move(engines), options_for(Mode::gather));
    const auto updates = [&](std::int64_t version) {
        source.set_step(static_cast<int>(version));
        session.push(version);
        EXPECT_EQ(server_->weight_version(), std::to_string(version));
        const std::vector<std::string> calls = calls_in_pause();
        return std::count(calls.begin(), calls.end(), "POST /update_weights");
    };
    EXPECT_EQ(updates(1), 2);
    EXPECT_EQ(updates(2), 1);
    EXPECT_EQ(updates(3), 1);
    engine::VllmServer(server_->url(), "").set_weight_version("77", soon());
    EXPECT_EQ(updates(78), 2);
    EXPECT_EQ(updates(79), 1);
    const float wanted = element_value(0, 5, 79);
    EXPECT_EQ(std::memcmp(server_->weights().at(tensors[0].name).data() + 5 * sizeof wanted, &wanted,
                          sizeof wanted),
              0);
    EXPECT_THAT(server_->violations(), IsEmpty());
}

TEST_F(Backends, WhereTheyCannotBeServedFromHereTheServerIsLeftAlone) {
    const std::string old = model("old", 1);
    serve(old, {.backend = "ipc", .workers = 2});
    EXPECT_THAT(push(model("next", 2)).error, AllOf(HasSubstr("has 2 GPUs"), HasSubstr("\"nccl\"")));
    gpu_.index = 7;
    const std::string error = push(model("next", 2)).error;
    EXPECT_THAT(error,
                AllOf(HasSubstr("its weight-transfer backend is \"ipc\""), HasSubstr("cuda:7 is not there"),
                      HasSubstr("without --weight-transfer-config")));
    expect_served(old, "default");
    EXPECT_THAT(server_->calls(), Not(testing::Contains("POST /pause")));
}

TEST_F(Backends, NcclThatRefusesTheGroupIsNamed) {
    const std::string old = model("old", 1);
    serve(old, {.backend = "nccl"});
    comm::nccl::fake::set({.init = comm::nccl::Result::invalid_usage});
    const ServerOutcome outcome = push(model("next", 2));
    EXPECT_FALSE(outcome.whole);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("join of the workers"), HasSubstr("the backend \"ipc\"")));
    comm::nccl::fake::reset();
    expect_served(old, "default");
    const std::string next = model("next", 2);
    EXPECT_TRUE(push(next).whole);
    expect_served(next, "1");
}

}  // namespace
}  // namespace tandem::sync

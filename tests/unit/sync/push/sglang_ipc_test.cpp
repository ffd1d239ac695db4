// Pushes into SGLang servers from a GPU by checkpoint-engine's protocol. The server's routes and its worker, on libzmq, are
// stand-ins; GPUs are emulated.
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/http/client.h"
#include "tests/support/eventually.h"
#include "tests/support/sglang_ipc_stand_in.h"
#include "tests/unit/sync/push/sglang_gpu_fixture.h"

namespace tandem::sync {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kScheme = "sglang+ipc";

// The generation that asks for checkpoint-engine 0.1.2 has it here; the newer one has 0.4.2.
class SglangIpc : public SglangGpu {
  protected:
    SglangIpc() {
        fs::create_directory(folder_);
        ::setenv("TMPDIR", folder_.c_str(), 1);
    }
    ~SglangIpc() override {
        EXPECT_TRUE(fs::is_empty(folder_));  // of folders with sockets
        ::unsetenv("TMPDIR");
        fs::remove_all(folder_);
    }

    void add_routes(SglangStandIn& server) override {
        SglangGpu::add_routes(server);
        worker_.add_routes(server);
    }
    bool newer() const { return GetParam() == "0.5.23"; }

    const fs::path folder_ = fs::temp_directory_path() / fmt::format("sglang_ipc_test_{}", ::getpid());
    test::SglangIpcStandIn worker_{GetParam() == "0.5.23"};
};

INSTANTIATE_TEST_SUITE_P(Generations, SglangIpc, kSglangGenerations);

TEST_P(SglangIpc, EveryByteLandsInBuckets) {
    serve(model("old", 1));
    packed_bytes_ = 2000;
    for (int version = 1; version <= 2; ++version) {
        const std::string next = model("next" + std::to_string(version), 10 + version);
        const ServerOutcome outcome = push_by(kScheme, next);
        ASSERT_TRUE(outcome.whole) << outcome.error;
        EXPECT_EQ(outcome.kind, "sglang");
        expect_served(next, std::to_string(version));
    }
    EXPECT_GT(worker_.buckets().size(), 3U);
    EXPECT_THAT(worker_.buckets(), Each(testing::Gt(0U)));
}

TEST_P(SglangIpc, ItIsAskedForInItsOrder) {
    serve(model("old", 1));
    ASSERT_TRUE(push_by(kScheme, model("next", 2)).whole);
    const std::vector<std::string> wanted{"/pause_generation",        "/update_weight_version",
                                          "/update_weights_from_ipc", "/flush_cache",
                                          "/update_weight_version",   "/continue_generation"};
    EXPECT_EQ(posts(*server_), wanted);
}

TEST_P(SglangIpc, ABufferThatCannotBeOpenedLeavesTheOldWeightsServing) {
    const std::string old = model("old", 1);
    serve(old);
    worker_.fail_to_open("CUDA error: invalid resource handle");
    EXPECT_THAT(push_by(kScheme, model("next", 2)).error,
                AllOf(HasSubstr(url(kScheme)), HasSubstr("invalid resource handle"),
                      HasSubstr(newer() ? "opening the buffer" : "/update_weights_from_ipc")));
    expect_served(old, "default");
    expect_healed_by(kScheme);
}

TEST_P(SglangIpc, AServerWithoutThePackageServesOn) {
    const std::string old = model("old", 1);
    serve(old);
    server_->set_refusal(
        "/update_weights_from_ipc",
        "IPC weight update failed: ImportError checkpoint-engine is not installed. Please install it "
        "with: pip install sglang[checkpoint-engine]");
    EXPECT_THAT(
        push_by(kScheme, model("next", 2)).error,
        AllOf(HasSubstr("/update_weights_from_ipc"), HasSubstr("pip install sglang[checkpoint-engine]")));
    expect_served(old, "default");
    expect_healed_by(kScheme);
}

TEST_P(SglangIpc, ALoadThatFailsInTheMiddleHoldsItBack) {
    packed_bytes_ = 2000;
    serve(model("old", 1));
    worker_.fail_in_bucket(2);
    EXPECT_THAT(push_by(kScheme, model("next", 2)).error,
                AllOf(HasSubstr("a rank stumbles"),
                      HasSubstr(newer() ? "loading bucket 1" : "/update_weights_from_ipc")));
    expect_held_back();
    expect_healed_by(kScheme);
}

TEST_P(SglangIpc, AWorkerThatNeverConnectsIsNamed) {
    serve(model("old", 1));
    server_->set_failure("/update_weights_from_ipc", 0);
    EXPECT_THAT(push_by(kScheme, model("next", 2), std::chrono::milliseconds(700)).error,
                AllOf(HasSubstr(url(kScheme)), HasSubstr("deadline")));
    expect_held_back();
    EXPECT_FALSE(fs::is_empty(folder_));  // it may still connect
    expect_healed_by(kScheme);
    fs::remove_all(folder_);
    fs::create_directory(folder_);
}

// As a push leaves it that is killed: its worker waits, and the server with it.
TEST_P(SglangIpc, AServerWhoseWorkerWaitsIsFreedByTheNextPush) {
    serve(model("old", 1));
    const fs::path left = folder_ / "tandem-ce-killed";
    fs::create_directory(left);
    fs::permissions(left, fs::perms::owner_all);
    std::ofstream(left / "lock");
    std::ofstream(left / "server") << server_->url().substr(9);
    std::ofstream(left / "0.waits").put(' ');
    const nlohmann::json body = {{"zmq_handles", {{"GPU-gpu 0", "ipc://" + (left / "0.sock").string()}}},
                                 {"flush_cache", false}};
    server_->set_paused(true);
    std::thread stuck([&] {
        http::Client client("http" + server_->url().substr(6));
        const Deadline deadline = Deadline::after_ms(20'000);
        EXPECT_EQ(client.request("POST", "/update_weights_from_ipc", body.dump(), deadline).status, 400);
    });
    // The stand-in answers nothing else meanwhile.
    ASSERT_TRUE(test::eventually([&] { return worker_.loads() == 1; }));
    const std::string next = model("next", 2);
    const ServerOutcome outcome = push_by("sglang", next);
    EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(server_->weights(), bytes_of_directory(next));
    stuck.join();
}

TEST_P(SglangIpc, WhereItCannotBeServedFromHereItIsLeftAlone) {
    const std::string old = model("old", 1), next = model("next", 2);
    serve(old);
    gpu_ = {DeviceType::cuda, 7};
    EXPECT_THAT(push_by(kScheme, next).error,
                AllOf(HasSubstr("cuda:7 is not there"), HasSubstr("sglang://")));
    gpu_ = {DeviceType::cuda, 0};
    in_flight_ = engine::InFlight::wait;
    EXPECT_THAT(push_by(kScheme, next).error, HasSubstr("--abort-running"));
    in_flight_ = engine::InFlight::abort;
    EXPECT_THAT(posts(*server_), IsEmpty());
    expect_served(old, "default");
    serve(old, 2);
    EXPECT_THAT(push_by(kScheme, next).error, HasSubstr("2 ranks"));
    EXPECT_THAT(posts(*server_), IsEmpty());
}

}  // namespace
}  // namespace tandem::sync

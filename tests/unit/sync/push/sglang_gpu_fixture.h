// Pushes from a GPU into stand-ins for SGLang, of each generation, whose ranks have emulated GPUs.
#pragma once

#include <memory>
#include <string>

#include "tests/support/sglang_group_stand_in.h"
#include "tests/unit/common/comm/fake_nccl.h"
#include "tests/unit/sync/push/sglang_fixture.h"

namespace tandem::sync {

class SglangGpu : public SglangPush {
  protected:
    SglangGpu() { comm::nccl::fake::reset(); }
    ~SglangGpu() override {
        if (!server_) return;
        EXPECT_THAT(server_->violations(), testing::IsEmpty());
        EXPECT_THAT(staged(), testing::IsEmpty());
    }

    void serve(const std::string& directory, int ranks = 1, bool stranger = false) {
        ranks_ = std::make_unique<test::SglangGroupStandIn>(test::SglangGroupStandIn::Options{
            .ranks = ranks, .nccl = &comm::nccl::fake::api(), .stranger = stranger});
        auto options = started(directory);
        options.tp = ranks;
        options.device = "cuda";
        options.open_cuda = test::SglangGroupStandIn::open_cuda;
        options.more_routes = [&](SglangStandIn& server) { add_routes(server); };
        server_ = std::make_unique<SglangStandIn>(options);
    }
    virtual void add_routes(SglangStandIn& server) { ranks_->add_routes(server); }
    std::string url(const std::string& scheme) const { return scheme + server_->url().substr(6); }
    engine::ConnectOptions options() const {
        return {.in_flight = in_flight_,
                .staging = staging(),
                .nccl = engine::NcclOptions{gpu_, {}, &comm::nccl::fake::api()},
                .packed_bytes = packed_bytes_};
    }
    ServerOutcome push_by(const std::string& scheme, const std::string& directory,
                          std::chrono::milliseconds deadline = std::chrono::seconds(20)) const {
        PushOptions push;
        push.model = directory;
        push.servers = {url(scheme)};
        push.deadline = deadline;
        return push_directory(push, [&](const std::string& name,
                                        Deadline until) { return engine::connect(name, until, options()); })
            .front();
    }
    void expect_served(const std::string& directory, const std::string& version) const {
        EXPECT_EQ(server_->weights(), bytes_of_directory(directory));
        EXPECT_EQ(server_->weight_version(), version);
        EXPECT_FALSE(server_->paused());
        EXPECT_FALSE(ranks_->in_group());
    }
    void expect_healed_by(const std::string& scheme) {
        server_->mend();
        const std::string next = model("healing", 77);
        const ServerOutcome outcome = push_by(scheme, next);
        EXPECT_TRUE(outcome.whole) << outcome.error;
        expect_served(next, "1");
    }
    void expect_held_back() const {
        EXPECT_TRUE(server_->paused());
        EXPECT_EQ(server_->weight_version(), "loading 1");
    }

    Device gpu_{DeviceType::cuda, 0};
    engine::InFlight in_flight_ = engine::InFlight::abort;
    std::uint64_t packed_bytes_ = std::uint64_t{256} << 20;
    std::unique_ptr<test::SglangGroupStandIn> ranks_;  // outlives the server
    std::unique_ptr<SglangStandIn> server_;
};

}  // namespace tandem::sync

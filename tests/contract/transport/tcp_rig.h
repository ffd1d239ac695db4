// A trainer and an engine with a data plane over TCP between them, through a proxy that can do the network's worst.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/tandem/engine.h"
#include "tests/contract/transport/tcp_proxy.h"
#include "tests/support/error_of.h"
#include "tests/support/soon.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {

using test::soon;

using test::error_of;
using test::Mischief;

inline ReceiverOptions listening(const std::string& key = "a key", bool anybody = false) {
    ReceiverOptions options;
    options.data_plane = TcpListen{.key = key, .anybody = anybody};
    options.data_plane->patience = std::chrono::milliseconds(300);
    return options;
}

class OverTcp : public testing::Test {
  protected:
    static constexpr std::size_t kElements = 1 << 20;  // of the one tensor, float32

    explicit OverTcp(const ReceiverOptions& options = listening())
        : target_(big()), receiver_(std::make_unique<Receiver>(target_, options)) {
        memory_.resize(kElements * 4);
        proxy_ = std::make_unique<test::TcpProxy>(receiver_->data_port());
    }
    static std::vector<TensorInfo> big() { return {{"big", {kElements}, DType::float32}}; }
    // Four buckets of 1 MiB.
    static TransferPlan buckets() {
        TransferPlan plan;
        constexpr std::uint64_t kBytes = kElements;  // of a bucket
        for (std::uint64_t b = 0; b < 4; ++b) {
            plan.transfers.push_back({0, 3, 0, DType::float32, 1, kBytes / 4, b * kBytes, 0, b * kBytes, 0});
            plan.first.push_back(b + 1);
        }
        return plan;
    }
    // Control here, data through the proxy.
    std::unique_ptr<TandemEngine> trainer(int connections = 2) {
        for (int i = 0;; ++i) {
            try {
                auto engine = std::make_unique<TandemEngine>(Channel::connect(receiver_->address(), soon()),
                                                             ConnectOptions{}, soon());
                engine->go_over_tcp({"127.0.0.1", std::to_string(proxy_->port())},
                                    {.connections = connections});
                engine->attach({{{memory_.data(), memory_.size()}}}, plan_, soon());
                return engine;
            } catch (const TransportError&) {
                if (i == 500) throw;
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
    }
    void fill(int value) { std::memset(memory_.data(), value, memory_.size()); }
    std::vector<ops::Checksum> checksums() const {
        std::vector<ops::Checksum> all;
        for (std::size_t b = 0; b < 4; ++b)
            all.push_back(ops::checksum({memory_.data() + b * kElements, kElements}));
        return all;
    }
    void push(Engine& engine, std::int64_t version, int value, Deadline deadline) {
        fill(value);
        const auto all = checksums();
        engine.begin(version, deadline);
        for (int b = 0; b < 4; ++b)
            engine.buckets().load(b, std::span(all).subspan(static_cast<std::size_t>(b), 1), deadline);
        for (int b = 0; b < 4; ++b) engine.buckets().wait_loaded(b, deadline);
        engine.commit(version, manifest_checksum(version, big(), plan_, all), deadline);
    }
    void expect_all(int value) const {
        const Span memory = target_.reading(0);
        for (std::size_t i = 0; i < memory.bytes; ++i)
            ASSERT_EQ(std::to_integer<int>(memory.data[i]), value) << "byte " << i;
    }
    // A failed push over version 1, all sevens: whether a bucket was written before the failure is a matter of time. If
    // not, version 1 is whole and serves; if one was, nothing does until the next push.
    void intact_or_refusing_and_healed(Engine& engine, int value) {
        engine.abort("the test gives it up", soon());
        wait_until_idle();
        if (!target_.refusing()) {
            EXPECT_EQ(target_.version(), 1);
            expect_all(7);
        }
        proxy_->misbehave(Mischief::none, 0);
        push(engine, 9, value, soon());
        expect_all(value);
        EXPECT_FALSE(target_.refusing());
        EXPECT_EQ(target_.version(), 9);
    }
    void wait_until_idle() const {
        for (int i = 0; i < 500 && target_.aborts() == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_GT(target_.aborts(), 0);
    }

    TransferPlan plan_ = buckets();
    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
    std::vector<std::byte> memory_;
    std::unique_ptr<test::TcpProxy> proxy_;
};

}  // namespace tandem::engine

#include "tests/multiproc/network/push_bodies.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "common/http/access.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/receiver/receiver.h"
#include "engine_adapter/transport/tcp/dial.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::engine {
namespace {

constexpr std::size_t kBuckets = 16, kBucketBytes = 2 << 20;

std::vector<TensorInfo> tensors() {
    return {{"big", {kBuckets * kBucketBytes / 4}, DType::float32}};
}

TransferPlan plan() {
    TransferPlan all;
    for (std::uint64_t b = 0; b < kBuckets; ++b) {
        all.transfers.push_back(
            {0, 0, 0, DType::float32, 1, kBucketBytes / 4, b * kBucketBytes, 0, b * kBucketBytes, 0});
        all.first.push_back(b + 1);
    }
    return all;
}

Deadline two_seconds() {
    return Deadline::after_ms(2000);
}

void tell(const std::string& file, const std::string& text) {
    std::FILE* out = std::fopen(file.c_str(), "a");
    std::fprintf(out, "%s\n", text.c_str());
    std::fclose(out);
}

int run_engine(const std::string& address, const std::string& file) {
    const TcpAddress at = parse_tcp_address(address);
    TestTarget target(tensors());
    ReceiverOptions options;
    options.data_plane = TcpListen{at.host, at.port, http::key_from_environment()};
    const Receiver receiver(target, options);
    tell(file, "listening");
    for (;;) ::pause();
}

void push(Engine& engine, std::vector<std::byte>& memory, std::int64_t version) {
    std::memset(memory.data(), static_cast<int>(version % 251), memory.size());
    std::vector<ops::Checksum> sums;
    for (std::size_t b = 0; b < kBuckets; ++b)
        sums.push_back(ops::checksum({memory.data() + b * kBucketBytes, kBucketBytes}));
    engine.pause(two_seconds());
    engine.begin(version, two_seconds());
    for (std::size_t b = 0; b < kBuckets + 3; ++b) {
        if (b >= 3) engine.buckets().wait_loaded(static_cast<int>(b - 3), two_seconds());
        if (b < kBuckets)
            engine.buckets().load(static_cast<int>(b), std::span(sums).subspan(b, 1), two_seconds());
    }
    engine.commit(version, manifest_checksum(version, tensors(), plan(), sums), two_seconds());
    engine.resume(two_seconds());
}

int run_trainer(const std::string& address, const std::string& file) {
    const auto engine = connect("tcp://" + address, two_seconds());
    std::vector<std::byte> memory(kBuckets * kBucketBytes);
    engine->attach({{{memory.data(), memory.size()}}}, plan(), two_seconds());
    for (std::int64_t version = 1;; ++version) {
        try {
            push(*engine, memory, version);
            tell(file, "pushed " + std::to_string(version));
        } catch (const std::exception& error) {
            tell(file, std::string("failed: ") + error.what());
            try {
                engine->abort("a step failed", two_seconds());
            } catch (const std::exception& late) {
                tell(file, std::string("not aborted: ") + late.what());
            }
        }
    }
}

}  // namespace

int run_push_body(const std::string& body, const std::string& address, const std::string& file) {
    try {
        return body == "engine" ? run_engine(address, file) : run_trainer(address, file);
    } catch (const std::exception& error) {
        tell(file, error.what());
        return 1;
    }
}

}  // namespace tandem::engine

// Pushes into a vLLM by one of the weight-transfer backends that come with it: a stand-in with that backend, whose workers
// and whose pusher have emulated GPUs.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/vllm_backend_stand_in.h"
#include "tests/unit/common/comm/fake_nccl.h"
#include "tests/unit/sync/push/push_fixture.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {

using test::VllmBackendStandIn;
using testing::IsEmpty;

inline constexpr Device kGpu{DeviceType::cuda, 0};

class Backends : public Push {
  protected:
    ~Backends() override {
        if (!server_) return;
        EXPECT_THAT(server_->violations(), IsEmpty());
        EXPECT_THAT(staged(), IsEmpty());
        server_.reset();
    }

    // The server's only process; holds `directory`'s weights.
    void serve(const std::string& directory, VllmBackendStandIn::Options options,
               const std::string& dtype = "float32") {
        options.nccl = &comm::nccl::fake::api();
        comm::nccl::fake::reset();
        backend_ = std::make_unique<VllmBackendStandIn>(options);
        server_ = std::make_unique<VllmStandIn>(
            VllmStandIn::Options{.model = directory,
                                 .dtype = dtype,
                                 .sleep_mode = true,
                                 .backend = options.backend,
                                 .more_routes = [&](auto& server) { backend_->add_routes(server); }});
    }

    // Tensors of two dtypes that take turns, in the order of their names too; those of two bytes have odd sizes.
    std::string mixed_model(const std::string& name, int seed) {
        const fs::path directory = folder_ / name;
        fs::create_directories(directory);
        std::vector<std::pair<std::string, Tensor>> tensors;
        int salt = seed;
        for (const auto& [tensor, shape, dtype] : std::vector<std::tuple<std::string, Shape, DType>>{
                 {"model.embed_tokens.weight", {41, 3}, DType::float32},
                 {"model.layers.0.w.weight", {5, 3}, DType::bfloat16},
                 {"model.layers.0.z.weight", {3, 3}, DType::float32},
                 {"model.norm.weight", {7}, DType::bfloat16}}) {
            Tensor values = Tensor::empty(shape, dtype, "test");
            for (std::int64_t i = 0; i < values.numel(); ++i)
                put_value(values.raw() + static_cast<std::size_t>(i) * dtype_size(dtype), dtype,
                          static_cast<float>((i * 37 + salt * 11) % 101));
            ++salt;
            tensors.emplace_back(tensor, values);
        }
        model::write_safetensors((directory / "model.safetensors").string(), tensors);
        std::ofstream(directory / "config.json") << R"({"tie_word_embeddings": true})";
        return directory.string();
    }

    engine::ConnectOptions options() const {
        return {.staging = staging(),
                .nccl = engine::NcclOptions{gpu_, {}, &comm::nccl::fake::api()},
                .packed_bytes = packed_bytes_};
    }
    ServerOutcome push(const std::string& directory,
                       std::chrono::milliseconds deadline = std::chrono::seconds(20)) const {
        PushOptions push;
        push.model = directory;
        push.servers = {server_->url()};
        push.deadline = deadline;
        return push_directory(push, [&](const std::string& url,
                                        Deadline until) { return engine::connect(url, until, options()); })
            .front();
    }
    void expect_served(const std::string& directory, const std::string& version) const {
        EXPECT_EQ(server_->weights(), bytes_of_directory(directory));
        EXPECT_EQ(server_->weight_version(), version);
        EXPECT_FALSE(server_->paused());
        EXPECT_FALSE(backend_->update_open());
    }
    // From the last pause on.
    std::vector<std::string> calls_in_pause() const {
        const std::vector<std::string> calls = server_->calls();
        const auto paused = std::find(calls.rbegin(), calls.rend(), "POST /pause");
        return {paused == calls.rend() ? calls.begin() : paused.base() - 1, calls.end()};
    }

    // A model of zeros, of these tensors.
    std::string zeros(const std::vector<TensorInfo>& tensors) {
        std::vector<std::pair<std::string, Tensor>> named;
        for (const TensorInfo& tensor : tensors) {
            named.emplace_back(tensor.name, Tensor::empty(tensor.shape, tensor.dtype, "test"));
            std::memset(named.back().second.raw(), 0, named.back().second.bytes());
        }
        const fs::path directory = folder_ / "zeros";
        fs::create_directories(directory);
        model::write_safetensors((directory / "model.safetensors").string(), named);
        std::ofstream(directory / "config.json") << "{}";
        return directory.string();
    }

    Device gpu_ = kGpu;
    std::uint64_t packed_bytes_ = std::uint64_t{256} << 20;
    std::unique_ptr<VllmBackendStandIn> backend_;  // outlives the server
    std::unique_ptr<VllmStandIn> server_;
};

}  // namespace tandem::sync

// Models of a few tensors, a staging directory of the test's own, and pushes into stand-ins for vLLM.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model/safetensors.h"
#include "engine_adapter/connect.h"
#include "sync/push/push.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::sync {

namespace fs = std::filesystem;
using test::bytes_of_directory;
using test::VllmStandIn;

class Push : public testing::Test {
  protected:
    Push() {
        std::string name = (fs::temp_directory_path() / "push_test.XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        fs::create_directory(staging());
    }
    ~Push() override { fs::remove_all(folder_); }

    // Two matrices and a norm; other values for each seed.
    std::string model(const std::string& name, int seed, DType dtype = DType::float32,
                      std::int64_t rows = 40) {
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const auto& [tensor, shape] :
             std::vector<std::pair<std::string, Shape>>{{"model.embed_tokens.weight", {rows, 24}},
                                                        {"model.layers.0.w.weight", {24, 24}},
                                                        {"model.norm.weight", {24}}}) {
            Tensor values = Tensor::empty(shape, dtype, "test");
            for (std::int64_t i = 0; i < values.numel(); ++i) {
                const float value = static_cast<float>((i * 37 + seed * 11) % 101) * 0.03125f + 0.001f;
                if (dtype == DType::float32)
                    reinterpret_cast<float*>(values.raw())[i] = value;
                else
                    reinterpret_cast<bfloat16*>(values.raw())[i] = bfloat16(value);
            }
            tensors.emplace_back(tensor, values);
        }
        const fs::path directory = folder_ / name;
        fs::create_directories(directory);
        model::write_safetensors((directory / "model.safetensors").string(), tensors);
        std::ofstream(directory / "config.json") << R"({"tie_word_embeddings": true})";
        return directory.string();
    }

    std::vector<ServerOutcome> push(const std::string& model, const std::vector<std::string>& servers,
                                    std::int64_t version = 0, const std::string& key = "",
                                    std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
        PushOptions options;
        options.model = model;
        options.servers = servers;
        options.version = version;
        options.deadline = deadline;
        options.dry_run = dry_run_;
        return push_directory(options, [&](const std::string& url, Deadline until) {
            return engine::connect(url, until, {.key = key, .staging = staging(), .share = share_});
        });
    }

    fs::path staging() const { return folder_ / "shm"; }
    std::vector<std::string> staged() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(staging())) names.push_back(entry.path().filename());
        return names;
    }

    fs::path folder_;
    bool dry_run_ = false;
    std::shared_ptr<engine::StagingShare> share_;
};

}  // namespace tandem::sync

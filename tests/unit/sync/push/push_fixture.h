// Models of a few tensors, a staging directory of the test's own, pushes into stand-ins for third-party servers, and what is
// expected of one that is not as it should be.
#pragma once

#include <gmock/gmock.h>
#include <sys/stat.h>

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
#include "engine_adapter/hf_directory/staged_directory.h"
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
        staging_ = folder_ / "shm";
        fs::create_directory(staging_);
        ::mkdir((folder_ / "runtime").c_str(), 0700);
        ::setenv("XDG_RUNTIME_DIR", (folder_ / "runtime").c_str(), 1);  // where locks of pushes are
    }
    ~Push() override {
        ::unsetenv("XDG_RUNTIME_DIR");
        fs::remove_all(folder_);
    }

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
                else if (dtype == DType::float16)
                    reinterpret_cast<_Float16*>(values.raw())[i] = static_cast<_Float16>(value);
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
        const auto connect = [&](const std::string& url, Deadline until) {
            return engine::connect(
                url, until, {.key = key, .in_flight = in_flight_, .staging = staging_, .share = share_});
        };
        return push_directory(options, connect, progress_);
    }

    // The broken server keeps what it has, the error says all of `words`, and a healthy one is updated beside it.
    template <class StandIn>
    void expect_left_alone(StandIn& broken, const testing::Matcher<std::string>& words,
                           const std::string& key = "",
                           std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
        const auto before = broken.weights();
        const std::string version = broken.weight_version();
        const bool paused = broken.paused();
        expect_named(broken.url(), words, key, deadline);
        EXPECT_EQ(broken.weights(), before);
        EXPECT_EQ(broken.weight_version(), version);
        EXPECT_EQ(broken.paused(), paused);
        EXPECT_THAT(broken.violations(), testing::IsEmpty());
    }
    void expect_named(const std::string& url, const testing::Matcher<std::string>& words,
                      const std::string& key = "",
                      std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
        const std::string next = model("next", 9);
        VllmStandIn healthy({.model = model("old", 1), .api_key = key});
        const auto outcomes = push(next, {url, healthy.url()}, 0, key, deadline);
        EXPECT_FALSE(outcomes[0].whole);
        EXPECT_THAT(outcomes[0].error, words);
        EXPECT_TRUE(outcomes[1].whole) << outcomes[1].error;
        EXPECT_EQ(healthy.weights(), bytes_of_directory(next));
        EXPECT_THAT(staged(), testing::IsEmpty());
    }

    const fs::path& staging() const { return staging_; }
    // As a push has it under way; of model "a".
    engine::StagedDirectory stage() const {
        return {staging(), folder_ / "a", {{"w", {1000}, DType::float32, {}}}, 4};
    }
    std::vector<std::string> staged() const { return names_in(staging()); }
    std::vector<std::string> locks() const { return names_in(folder_ / "runtime" / "tandem"); }
    static std::vector<std::string> names_in(const fs::path& folder) {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
        return names;
    }

    fs::path folder_;
    fs::path staging_;
    engine::InFlight in_flight_ = engine::InFlight::wait;
    bool dry_run_ = false;
    PushProgress progress_;
    std::shared_ptr<engine::StagingShare> share_;
};

}  // namespace tandem::sync

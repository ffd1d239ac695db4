// Pushes into a vLLM with our plug-in: the server's routes and its worker are stand-ins, and the worker really receives.
#pragma once

#include <gmock/gmock.h>

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
#include "tests/support/vllm_worker_stand_in.h"

namespace tandem::sync {

namespace fs = std::filesystem;
using test::bytes_of_directory;
using test::VllmStandIn;
using test::VllmWorkerStandIn;

class PluginPush : public testing::Test {
  protected:
    // As the plug-in takes them from its environment.
    explicit PluginPush(const std::string& data_listen = "", const std::string& key = "") {
        std::string name = (fs::temp_directory_path() / "plugin_test.XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        old_ = model("old", 1);
        worker_ = std::make_unique<VllmWorkerStandIn>(old_, data_listen, key);
        server_ = std::make_unique<VllmStandIn>(
            VllmStandIn::Options{.model = old_, .sleep_mode = true, .plugin = worker_.get()});
    }
    ~PluginPush() override {
        EXPECT_THAT(server_->violations(), testing::IsEmpty());
        server_.reset();
        fs::remove_all(folder_);
    }

    // A matrix and a norm; other values for each seed.
    std::string model(const std::string& name, int seed) {
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const auto& [tensor, shape] : std::vector<std::pair<std::string, Shape>>{
                 {"model.embed_tokens.weight", {40, 24}}, {"model.norm.weight", {24}}}) {
            Tensor values = Tensor::empty(shape, DType::float32, "test");
            for (std::int64_t i = 0; i < values.numel(); ++i)
                reinterpret_cast<float*>(values.raw())[i] = static_cast<float>((i * 37 + seed * 11) % 101);
            tensors.emplace_back(tensor, values);
        }
        const fs::path directory = folder_ / name;
        fs::create_directories(directory);
        model::write_safetensors((directory / "model.safetensors").string(), tensors);
        std::ofstream(directory / "config.json") << R"({"tie_word_embeddings": true})";
        return directory.string();
    }

    std::string url() const { return server_->url() + options_; }
    std::unique_ptr<engine::Engine> connect(Deadline until = Deadline::after_ms(20'000)) const {
        return engine::connect(url(), until);
    }
    ServerOutcome push(const std::string& model,
                       std::chrono::milliseconds deadline = std::chrono::seconds(20)) const {
        PushOptions options;
        options.model = model;
        options.servers = {url()};
        options.deadline = deadline;
        return push_directory(options, [](const std::string& url,
                                          Deadline until) { return engine::connect(url, until); })
            .front();
    }
    void expect_served(const std::string& directory, const std::string& version) const {
        EXPECT_EQ(server_->weights(), bytes_of_directory(directory));
        EXPECT_EQ(server_->weight_version(), version);
        EXPECT_FALSE(server_->paused());
        EXPECT_EQ(worker_->note(), "");
    }
    void expect_healed_by_the_next_push(const std::string& version) {
        const std::string next = model("healing", 77);
        const ServerOutcome outcome = push(next);
        EXPECT_TRUE(outcome.whole) << outcome.error;
        expect_served(next, version);
        EXPECT_TRUE(worker_->whole());
    }

    fs::path folder_;
    std::string options_;  // of the URL
    std::string old_;
    std::unique_ptr<VllmWorkerStandIn> worker_;
    std::unique_ptr<VllmStandIn> server_;
};

}  // namespace tandem::sync

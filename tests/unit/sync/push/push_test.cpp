// A push into third-party servers: what lands, and in which order it is asked for.
#include "sync/push/push.h"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/mesh/device_mesh.h"
#include "sync/push/directory_source.h"
#include "sync/session/finite.h"
#include "tests/support/error_of.h"
#include "tests/unit/sync/push/push_fixture.h"
#include "tests/unit/sync/session/forwarding_engine.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(Push, EveryByteLandsInOrderUnderAFreshName) {
    VllmStandIn server({.model = model("a", 1)});
    for (int version = 1; version <= 3; ++version) {
        const std::string next = model("b" + std::to_string(version), 10 + version);
        const auto outcomes = push(next, {server.url()});
        ASSERT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_EQ(outcomes[0].kind, "vllm");
        EXPECT_EQ(outcomes[0].before, version - 1);
        EXPECT_EQ(outcomes[0].version, version);
        EXPECT_GT(outcomes[0].paused_ms, 0);
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
        EXPECT_EQ(server.weight_version(), std::to_string(version));
        EXPECT_FALSE(server.paused());
        EXPECT_THAT(staged(), IsEmpty());
    }
    EXPECT_THAT(server.violations(), IsEmpty());
}

// After a push that was cut off no version is whole, and those that were are not counted anew.
TEST_F(Push, TheNextVersionIsAboveAllThatTheServerHasHad) {
    struct HasHadSeven final : ForwardingEngine {
        explicit HasHadSeven(std::unique_ptr<engine::Engine> engine)
            : ForwardingEngine(std::move(engine)), told_(engine_->capabilities()) {
            told_.version = 0;
            told_.newest = 7;
        }
        const engine::Capabilities& capabilities() const override { return told_; }
        engine::Capabilities told_;
    };
    VllmStandIn server({.model = model("a", 1)});
    PushOptions options;
    options.model = model("next", 2);
    options.servers = {server.url()};
    const auto outcomes = push_directory(options, [&](const std::string& url, Deadline until) {
        return std::make_unique<HasHadSeven>(engine::connect(url, until, {.staging = staging_}));
    });
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(outcomes[0].version, 8);
    EXPECT_EQ(server.weight_version(), "8");
}

TEST_F(Push, AVersionThatIsNotAboveTheServersIsRefusedByADryRunToo) {
    VllmStandIn server({.model = model("a", 1)});
    ASSERT_TRUE(push(model("next", 2), {server.url()}, 5)[0].whole);
    const std::string other = model("other", 3);
    for (const bool dry_run : {true, false}) {
        dry_run_ = dry_run;
        const auto outcomes = push(other, {server.url()}, 5);
        EXPECT_FALSE(outcomes[0].whole);
        EXPECT_THAT(outcomes[0].error,
                    HasSubstr("version 5 is not above 5, which it has had: push a higher one"));
    }
    EXPECT_EQ(server.weights(), bytes_of_directory(model("next", 2)));
}

TEST_F(Push, WeightsAreCastToWhatTheServerComputesIn) {
    const std::string narrow = model("narrow", 7, DType::bfloat16);
    const std::string wide = model("wide", 7);
    VllmStandIn in_bfloat16({.model = model("a", 1), .dtype = "bfloat16"});
    VllmStandIn in_float32({.model = model("c", 1, DType::bfloat16), .dtype = "float32"});
    const auto outcomes = push(wide, {in_bfloat16.url(), in_float32.url()});
    for (const ServerOutcome& outcome : outcomes) EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(in_bfloat16.weights(), bytes_of_directory(narrow));
    EXPECT_EQ(in_float32.weights(), bytes_of_directory(wide));
}

TEST_F(Push, HalfPrecisionIsCastBothWays) {
    const std::string half = model("half", 7, DType::float16), wide = model("wide", 7);
    VllmStandIn in_float16({.model = model("a", 1), .dtype = "float16"});
    VllmStandIn halves({.model = model("b", 1, DType::float16), .dtype = "float16"});
    VllmStandIn in_float32({.model = model("c", 1), .dtype = "float32"});
    for (const ServerOutcome& outcome : push(wide, {in_float16.url(), halves.url()}))
        EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(in_float16.weights(), bytes_of_directory(half));
    EXPECT_EQ(halves.weights(), bytes_of_directory(half));
    for (const ServerOutcome& outcome : push(half, {in_float16.url(), in_float32.url()}))
        EXPECT_TRUE(outcome.whole) << outcome.error;
    EXPECT_EQ(in_float16.weights(), bytes_of_directory(half));
}

TEST_F(Push, WhatHalfPrecisionCannotHoldIsRefusedBeforeAnythingChanges) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const std::string next = model("next", 7, dtype);
        {  // element [3, 5] of the embedding, in the file
            const auto files = model::Safetensors::open(next);
            const std::string file = files.file("model.embed_tokens.weight");
            std::vector<std::pair<std::string, Tensor>> tensors;
            for (const std::string& name : files.names()) tensors.emplace_back(name, files.tensor(name));
            for (auto& [name, tensor] : tensors) {
                if (name != "model.embed_tokens.weight") continue;
                if (dtype == DType::float32)
                    tensor.data<float>()[3 * 24 + 5] = -65520.0f;
                else
                    tensor.data<bfloat16>()[3 * 24 + 5] = bfloat16(-65536.0f);
            }
            model::write_safetensors(file, tensors);
        }
        VllmStandIn server({.model = model("a", 1), .dtype = "float16"});
        const auto before = server.weights();
        const auto outcomes = push(next, {server.url()});
        EXPECT_FALSE(outcomes[0].whole);
        EXPECT_THAT(outcomes[0].error,
                    AllOf(HasSubstr("tensor 'model.embed_tokens.weight', row 3, column 5: -655"),
                          HasSubstr("does not fit float16")));
        EXPECT_EQ(server.weights(), before);
        EXPECT_FALSE(server.paused());
        VllmStandIn other({.model = model("b", 1), .dtype = "bfloat16"});  // which holds it
        EXPECT_TRUE(push(next, {other.url()})[0].whole);
    }
}

// Files of Llama 2's time hold them; what saves such a model today leaves them out, and no engine takes them.
TEST_F(Push, BuffersOfTheRotaryEmbeddingAreNoWeights) {
    const auto with_buffers = [](std::string directory) {
        const auto files = model::Safetensors::open(directory);
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (const std::string& name : files.names()) tensors.emplace_back(name, files.tensor(name));
        tensors.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq",
                             Tensor::zeros({12}, DType::float32, "test"));
        model::write_safetensors(files.file(files.names().front()), tensors);
        return directory;
    };
    const std::string today = model("today", 7), then = with_buffers(model("then", 8));
    VllmStandIn of_today({.model = model("a", 1)}), of_then({.model = with_buffers(model("b", 1))});
    for (const std::string& next : {then, today}) {
        for (const ServerOutcome& outcome : push(next, {of_today.url(), of_then.url()}))
            EXPECT_TRUE(outcome.whole) << outcome.error;
    }
    EXPECT_EQ(of_today.weights(), bytes_of_directory(today));
    EXPECT_EQ(bytes_of_directory(then).size(), of_today.weights().size() + 1);
}

TEST_F(Push, AConfigThatIsAPointerIsRefused) {
    const std::string next = model("next", 7);
    std::ofstream(next + "/config.json")
        << "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    VllmStandIn server({.model = model("a", 1)});
    try {
        push(next, {server.url()});
        ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("config.json: is a Git LFS pointer"));
    }
}

TEST_F(Push, TheLookForWhatIsNotFiniteEndsWhereItIsToldTo) {
    const std::string next = model("next", 7);
    {
        std::fstream file(next + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
        const float infinite = std::numeric_limits<float>::infinity();
        file.seekp(-static_cast<std::streamoff>(sizeof infinite), std::ios::end);
        file.write(reinterpret_cast<const char*>(&infinite), sizeof infinite);
    }
    const DirectorySource source(std::make_shared<DirectoryWeights>(next), comm::solo());
    EXPECT_EQ(find_non_finite(source).size(), 1u);
    EXPECT_EQ(find_non_finite(source, [] { return false; }).size(), 1u);
    EXPECT_THAT(find_non_finite(source, [] { return true; }), IsEmpty());
}

TEST_F(Push, NamesOfAWrapperAreSaidToBeThat) {
    const std::string next = model("next", 7);
    const auto files = model::Safetensors::open(next);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& name : files.names())
        tensors.emplace_back("_orig_mod." + name, files.tensor(name));
    model::write_safetensors(next + "/model.safetensors", tensors);
    VllmStandIn server({.model = model("a", 1)});
    EXPECT_THAT(push(next, {server.url()})[0].error,
                AllOf(HasSubstr("torch.compile"), HasSubstr("strip it")));
}

// Whatever config.json says: a third-party server is never refused for what it does not say.
TEST_F(Push, AServerThatDoesNotSayItsArchitectureIsNotCompared) {
    VllmStandIn server({.model = model("a", 1)});
    const std::string next = model("b", 2);
    for (const char* config :
         {R"({"architectures": ["GPT2LMHeadModel"], "tie_word_embeddings": true})",
          R"({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true, "hidden_act": "gelu"})"}) {
        std::ofstream(next + "/config.json") << config;
        const auto outcomes = push(next, {server.url()});
        ASSERT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_FALSE(outcomes[0].compared);
        EXPECT_THAT(push_table({}, outcomes), HasSubstr("its architecture is not compared"));
        EXPECT_EQ(push_json({}, outcomes)["servers"][0]["architecture"], "not compared");
    }
}

// It may have been told more than its directory says: the user is told, and decides.
TEST_F(Push, AServerThatWasStartedWithAnotherModelsDirectoryIsWarnedOf) {
    const auto config = [](const std::string& directory, double theta) {
        std::ofstream(directory + "/config.json")
            << R"({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true, "hidden_size": 24,
                   "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40,
                   "rope_theta": )"
            << theta << "}";
    };
    const std::string served = model("a", 1), next = model("b", 2);
    config(served, 10000);
    VllmStandIn server({.model = served});
    for (const double theta : {10000.0, 500000.0}) {
        config(next, theta);
        testing::internal::CaptureStdout();  // where a program logs that has not set up logging
        const auto outcomes = push(next, {server.url()});
        const std::string log = testing::internal::GetCapturedStdout();
        EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
        const auto warned = AllOf(HasSubstr("rope_theta is 500000.0 in the model that is pushed and 10000.0"),
                                  HasSubstr(served));
        if (theta == 10000.0) {
            EXPECT_THAT(log, testing::Not(HasSubstr("rope_theta")));
        } else {
            EXPECT_THAT(log, warned);
        }
    }
}

// As trainers start them: the weights come with the first push.
TEST_F(Push, AServerThatWasStartedWithoutWeightsLoadsFiles) {
    VllmStandIn server({.model = model("a", 1), .load_format = "dummy"});
    for (const int seed : {2, 3}) {
        const std::string next = model("b" + std::to_string(seed), seed);
        const auto outcomes = push(next, {server.url()});
        EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
    }
    EXPECT_THAT(server.violations(), IsEmpty());
}

// On the CPU it would go on with the head that it packed before. Its version does not tell: "0.32.0" there, too.
TEST_F(Push, ATiedHeadIsStagedWhereItIsPackedApart) {
    const std::string next = model("b", 2);
    for (const char* device : {"cpu", "", "cuda"}) {
        SCOPED_TRACE(device);
        VllmStandIn server({.model = model("a", 1), .device = device});
        const auto outcomes = push(next, {server.url()});
        ASSERT_TRUE(outcomes[0].whole) << outcomes[0].error;
        auto wanted = bytes_of_directory(next);
        if (device != std::string("cuda")) wanted["lm_head.weight"] = wanted.at("model.embed_tokens.weight");
        EXPECT_EQ(server.weights(), wanted);
    }
}

// As the servers see it, whatever the files hold beside.
TEST_F(Push, AHeadThatConfigTiesIsNotPushedWhereTheFilesHoldAnother) {
    const auto contradicting = [&](const std::string& name, int seed) {
        const auto body = model::Safetensors::open(model("body_of_" + name, seed));
        const auto other = model::Safetensors::open(model("head_of_" + name, seed + 1));
        std::vector<std::pair<std::string, Tensor>> tensors{
            {"lm_head.weight", other.tensor("model.embed_tokens.weight")}};
        for (const std::string& tensor : body.names()) tensors.emplace_back(tensor, body.tensor(tensor));
        const std::string directory = model(name, seed);
        model::write_safetensors(directory + "/model.safetensors", tensors);
        return directory;
    };
    const std::string next = contradicting("b", 2);
    VllmStandIn server({.model = contradicting("a", 1), .device = "cuda"});
    auto wanted = bytes_of_directory(next);
    wanted["lm_head.weight"] = server.weights().at("lm_head.weight");  // what it does not look at
    const auto outcomes = push(next, {server.url()});
    ASSERT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(server.weights(), wanted);
}

TEST_F(Push, SeveralTrainerRanksGatherIntoOneServer) {
    const std::string next = model("b", 5);
    VllmStandIn server({.model = model("a", 1)});
    comm::run_threads(3, [&](std::shared_ptr<comm::Communicator> world) {
        struct Sharded final : WeightSource {
            std::vector<NamedTensor> named;
            const std::vector<NamedTensor>& tensors() const override { return named; }
            Event ready() const override { return {}; }
        } source;
        const auto files = model::Safetensors::open(next);
        const DeviceMesh mesh = DeviceMesh::create(world, {3}, {"dp"});
        for (const std::string& name : files.names())
            source.named.push_back({name, DTensor::distribute(files.tensor(name), mesh, {Shard(0)})});
        std::unique_ptr<engine::Engine> engine;
        if (world->rank() == 0)
            engine = engine::connect(server.url(), Deadline::after_ms(20'000), {.staging = staging()});
        SessionOptions options;
        options.bucket_bytes = 4096;
        Session session(world, source, std::move(engine), options);
        session.push(7);
        EXPECT_THAT(test::error_of([&] { session.weights_match(); }),
                    HasSubstr("cannot tell which bytes it holds"));
    });
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
    EXPECT_EQ(server.weight_version(), "7");
    EXPECT_THAT(server.violations(), IsEmpty());
    EXPECT_THAT(staged(), IsEmpty());
}

TEST_F(Push, OtherModesAreRefused) {
    VllmStandIn server({.model = model("a", 1)});
    for (const Mode mode : {Mode::direct, Mode::alias, Mode::delta}) {
        const auto world = comm::solo();
        const DirectorySource source(model("b", 2), world);
        SessionOptions options;
        options.mode = mode;
        EXPECT_THAT(test::error_of([&] {
                        Session(
                            world, source,
                            engine::connect(server.url(), Deadline::after_ms(20'000), {.staging = staging()}),
                            options);
                    }),
                    AllOf(HasSubstr(server.url()), HasSubstr("use gather")));
    }
}

// A dry run asks and plans.
TEST_F(Push, ADryRunChangesNothing) {
    const std::string old = model("a", 1);
    VllmStandIn server({.model = old});
    VllmStandIn other({.model = model("c", 1, DType::float32, 44)});
    dry_run_ = true;
    const auto outcomes = push(model("b", 2), {server.url(), other.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_EQ(outcomes[0].version, 1);
    EXPECT_FALSE(outcomes[1].whole);
    EXPECT_EQ(server.weights(), bytes_of_directory(old));
    EXPECT_EQ(server.weight_version(), "default");
    EXPECT_THAT(server.calls(), testing::Not(testing::Contains(HasSubstr("POST"))));
}

// As by a trainer that saves over the directory: what was read may be parts of two checkpoints.
TEST_F(Push, AFileThatIsWrittenMeanwhileIsNotCommitted) {
    VllmStandIn server({.model = model("a", 1)});
    const std::string next = model("b", 2);
    const auto before = server.weights();
    progress_ = [&](std::size_t) {
        model("b", 3);
    };  // replaced by a rename: the one that is open stays whole
    EXPECT_TRUE(push(next, {server.url()})[0].whole);
    const auto replaced = server.weights();
    EXPECT_NE(replaced, before);
    progress_ = [&](std::size_t) {
        std::fstream file(next + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-4, std::ios::end).write("over", 4);
    };
    const auto outcomes = push(next, {server.url()});
    EXPECT_THAT(outcomes[0].error, AllOf(HasSubstr(server.url()), HasSubstr("model.safetensors"),
                                         HasSubstr("written to while it was being pushed")));
    EXPECT_EQ(server.weights(), replaced);
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(staged(), IsEmpty());
    progress_ = {};
    EXPECT_TRUE(push(next, {server.url()})[0].whole);
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
}

TEST_F(Push, WhatIsInterruptedBeforeItsCommitChangesNothing) {
    const std::string old = model("a", 1);
    VllmStandIn server({.model = old});
    PushOptions options;
    options.model = model("b", 2);
    options.servers = {server.url()};
    options.stop = [] { return true; };
    const auto outcomes = push_directory(options, [&](const std::string& url, Deadline until) {
        return engine::connect(url, until, {.staging = staging()});
    });
    EXPECT_FALSE(outcomes[0].whole);
    EXPECT_THAT(outcomes[0].error, HasSubstr("interrupted"));
    EXPECT_EQ(server.weights(), bytes_of_directory(old));
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(server.calls(), testing::Not(testing::Contains(HasSubstr("POST"))));
    EXPECT_THAT(staged(), IsEmpty());
}

TEST_F(Push, APauseOfSomebodyElseStays) {
    VllmStandIn server({.model = model("a", 1)});
    server.set_paused(true);
    const std::string next = model("b", 2);
    const auto outcomes = push(next, {server.url()});
    EXPECT_TRUE(outcomes[0].whole) << outcomes[0].error;
    EXPECT_TRUE(server.paused());
    EXPECT_EQ(server.weights(), bytes_of_directory(next));
}

}  // namespace
}  // namespace tandem::sync

// Hugging Face directories out of a sharded policy and back in: the same bytes from every mesh, no temporary
// left, nothing read but a rank's own rows.
#include "trainer/checkpoint/checkpoint.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/model/check_weights.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

namespace fs = std::filesystem;
using model::TemporaryDirectory;
using Values = std::map<std::string, std::vector<float>>;

constexpr MeshSizes kMeshes[] = {{1, 1}, {3, 1}, {1, 2}, {2, 2}, {4, 1, 2}, {4, 1, 4}};

PolicyOptions options_of(MeshSizes sizes, std::uint64_t seed) {
    PolicyOptions options;
    options.seed = seed;
    if (sizes.dp_replicate > 0) options.shard_axes = {"dp_shard"};
    return options;
}

// body(policy, world) on a mesh; returns what rank 0 then holds in full.
template <typename Body>
Values on_mesh(MeshSizes sizes, std::uint64_t seed, const Body& body) {
    Values result;
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        Policy policy(make_mesh(world, sizes), tiny_config(), options_of(sizes, seed));
        body(policy, *world);
        Values values = full_values(policy.parameters());
        if (world->rank() == 0) result = std::move(values);
    });
    return result;
}

std::map<std::string, std::string> files_of(const std::string& directory) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(directory)) {
        std::ifstream in(entry.path(), std::ios::binary);
        files[entry.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
}

TEST(Checkpoint, EveryMeshWritesTheSameBytesAndReadsThem) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::size_t shard_bytes : {std::size_t{1} << 30, std::size_t{1000}, std::size_t{1}}) {
            const TemporaryDirectory folder;
            std::map<std::string, std::string> first;
            for (const MeshSizes& mesh : kMeshes) {
                const Values values = on_mesh(mesh, 7, [&](Policy& policy, comm::Communicator& world) {
                    save_checkpoint(policy, world, folder.file("out"), {dtype, shard_bytes, ""});
                });
                const auto files = files_of(folder.file("out"));
                EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
                if (first.empty()) first = files;
                EXPECT_TRUE(files == first);  // far too long to print
                EXPECT_EQ(files.contains("model.safetensors"), shard_bytes == std::size_t{1} << 30);

                const Values loaded = on_mesh(mesh, 8, [&](Policy& policy, comm::Communicator&) {
                    load_checkpoint(policy, folder.file("out"));
                });
                for (const auto& [name, expected] : values) {
                    const std::vector<float>& found = loaded.at(name);
                    for (std::size_t i = 0; i < expected.size(); ++i) {
                        const float rounded =
                            dtype == DType::float32 ? expected[i] : static_cast<float>(bfloat16(expected[i]));
                        ASSERT_EQ(found[i], rounded) << name << " " << i;
                    }
                }
            }
        }
    }
}

TEST(Checkpoint, ShardedFilesAreAsLargeAsAskedAndTheirIndexIsWhole) {
    const TemporaryDirectory folder;
    on_mesh({2, 1}, 7, [&](Policy& policy, comm::Communicator& world) {
        save_checkpoint(policy, world, folder.file("out"), {DType::float32, 1000, ""});
    });
    const auto files = model::Safetensors::open(folder.file("out"));
    EXPECT_TRUE(check_weights(files, model::read_model_config(folder.file("out"))).empty());
    std::map<std::string, std::size_t> bytes;
    std::size_t total = 0;
    for (const std::string& name : files.names()) {
        bytes[files.file(name)] += files.tensor(name).bytes();
        total += files.tensor(name).bytes();
    }
    EXPECT_GT(bytes.size(), 3u);
    for (const auto& [file, size] : bytes) EXPECT_LE(size, 1000u) << file;
    const auto index = nlohmann::json::parse(folder.read("out/model.safetensors.index.json"));
    EXPECT_EQ(index["metadata"]["total_size"], total);
    EXPECT_THAT(fs::path(bytes.begin()->first).filename().string(),
                ::testing::MatchesRegex("model-00001-of-000[0-9][0-9].safetensors"));
}

TEST(Checkpoint, WhatTheSourceHasBesideTheWeightsComesAlong) {
    const TemporaryDirectory folder;
    fs::create_directories(folder.file("source"));
    nlohmann::json config = nlohmann::json::parse(model::to_json(tiny_config()));
    config["some_key_of_theirs"] = {1, 2};
    config["torch_dtype"] = "float32";
    folder.write("source/config.json", config.dump());
    folder.write("source/tokenizer.json", "tokens");
    folder.write("source/unrelated.bin", "x");
    on_mesh({2, 1}, 7, [&](Policy& policy, comm::Communicator& world) {
        save_checkpoint(policy, world, folder.file("out"),
                        {DType::bfloat16, std::size_t{1} << 30, folder.file("source")});
    });
    config["torch_dtype"] = "bfloat16";
    EXPECT_EQ(nlohmann::json::parse(folder.read("out/config.json")), config);
    EXPECT_EQ(folder.read("out/tokenizer.json"), "tokens");
    EXPECT_FALSE(fs::exists(folder.file("out/unrelated.bin")));
}

TEST(Checkpoint, WhatTheSourceHadWhenTheRunBeganComesAlong) {
    const TemporaryDirectory folder;
    fs::create_directories(folder.file("source/additional_chat_templates"));
    const std::string config = model::to_json(tiny_config());
    folder.write("source/config.json", config);
    folder.write("source/tokenizer.json", "tokens");
    folder.write("source/additional_chat_templates/tools.jinja", "tools");
    folder.write("source/generation_config.json", "{}");
    SaveOptions options{.source = folder.file("source")};
    const std::uint64_t bytes = copied_bytes(options);
    options.files = std::make_shared<const CopiedFiles>(read_copied_files(options));
    EXPECT_EQ(bytes, 13u);
    EXPECT_EQ(copied_bytes(options), bytes);
    const auto save = [&] {
        on_mesh({2, 1}, 7, [&](Policy& policy, comm::Communicator& world) {
            save_checkpoint(policy, world, folder.file("out"), options);
        });
        EXPECT_EQ(nlohmann::json::parse(folder.read("out/config.json")), nlohmann::json::parse(config));
        EXPECT_EQ(folder.read("out/tokenizer.json"), "tokens");
        EXPECT_EQ(folder.read("out/additional_chat_templates/tools.jinja"), "tools");
        EXPECT_EQ(folder.read("out/generation_config.json"), "{}");
        EXPECT_FALSE(fs::exists(folder.file("out/vocab.json")));
    };
    folder.write("source/config.json", "{}");
    folder.write("source/tokenizer.json", "of another model");
    folder.write("source/vocab.json", "{}");
    save();
    fs::remove_all(folder.file("source"));
    save();
}

TEST(Checkpoint, AnEarlierOneIsReplacedAndLeftoversGo) {
    const TemporaryDirectory folder;
    fs::create_directories(folder.file("out"));
    folder.write("out/stale", "x");
    fs::create_directories(folder.file("out.partial"));
    folder.write("out.partial/stale", "x");
    on_mesh({2, 1}, 7, [&](Policy& policy, comm::Communicator& world) {
        save_checkpoint(policy, world, folder.file("out"));
    });
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
    EXPECT_FALSE(fs::exists(folder.file("out/stale")));
    EXPECT_TRUE(fs::exists(folder.file("out/model.safetensors")));
}

TEST(Checkpoint, HalfPrecisionFilesLoad) {
    const TemporaryDirectory folder;
    const model::ModelConfig config = tiny_config();
    std::vector<std::pair<std::string, Tensor>> tensors;
    on_mesh({1, 1}, 7, [&](Policy& policy, comm::Communicator&) {
        for (const auto& [name, parameter] : policy.parameters()) {
            Tensor half = Tensor::zeros(parameter.shape(), DType::float16, "test");
            for (auto& value : half.values<float16>()) value = float16(0x3555);
            tensors.emplace_back(name, half);
        }
    });
    model::write_safetensors(folder.file("model.safetensors"), tensors);
    const Values values = on_mesh(
        {3, 1}, 7, [&](Policy& policy, comm::Communicator&) { load_checkpoint(policy, folder.path()); });
    for (const auto& [name, found] : values) {
        for (const float value : found) ASSERT_EQ(value, 0x1.554p-2f) << name;
    }
}

TEST(Checkpoint, AnotherShapeIsRefused) {
    const TemporaryDirectory folder;
    model::write_safetensors(folder.file("model.safetensors"),
                             {{"model.embed_tokens.weight", Tensor::zeros({3, 10}, DType::float32, "test")}});
    EXPECT_THROW(
        on_mesh({1, 1}, 7,
                [&](Policy& policy, comm::Communicator&) { load_checkpoint(policy, folder.path()); }),
        ConfigError);
}

}  // namespace
}  // namespace tandem::trainer::testing

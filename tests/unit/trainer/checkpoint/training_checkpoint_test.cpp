// Training checkpoints: what was saved is what is loaded, on any mesh, and training goes on as if nothing had
// been; and every way in which one can be broken.
#include "trainer/checkpoint/training.h"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/model/safetensors.h"
#include "tests/support/grpo_loss.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/trainer/policy/policy_run.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer::testing {
namespace {

namespace fs = std::filesystem;
using model::TemporaryDirectory;
using ::testing::HasSubstr;
using Values = std::map<std::string, std::vector<float>>;

constexpr MeshSizes kTrainingMeshes[] = {{1, 1}, {3, 1}, {1, 2}, {2, 2}, {4, 1, 2}};

Values everything(const Policy& policy) {
    Values values;
    for (const auto& [name, tensor] : policy.training_state()) {
        const Tensor full = tensor.full_tensor();
        if (full.dtype() == DType::float32) {
            values[name] = full.to_vector<float>();
        } else {
            for (const bfloat16 v : full.values<bfloat16>()) values[name].push_back(static_cast<float>(v));
        }
    }
    return values;
}

void train(Policy& policy, int first, int steps) {
    for (int step = first; step < first + steps; ++step) {
        policy.accumulate(
            random_samples({11, 3, 9, 6}, tiny_config().vocab_size, static_cast<unsigned>(step)),
            grpo_loss(0.2f, 0.2f));
        policy.apply(1e-2);
    }
}

// body(policy, world) on a mesh; returns everything that rank 0 then sees.
template <typename Body>
Values on_mesh(MeshSizes sizes, std::uint64_t seed, DType dtype, const Body& body) {
    Values result;
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        PolicyOptions options;
        options.seed = seed;
        options.compute_dtype = dtype;
        options.value_head = true;
        if (sizes.dp_replicate > 0) options.shard_axes = {"dp_shard"};
        Policy policy(make_mesh(world, sizes), tiny_config(), options);
        body(policy, *world);
        Values values = everything(policy);
        if (world->rank() == 0) result = std::move(values);
    });
    return result;
}

class TrainingCheckpoints : public ::testing::Test {
  protected:
    TrainingCheckpoints() { folder.write("metrics.jsonl", "{\"step\": 1}\n"); }
    TrainingCheckpoint to(std::int64_t step, std::int64_t keep = 2) const {
        TrainingCheckpoint checkpoint;
        checkpoint.folder = folder.file("checkpoints");
        checkpoint.logs = {folder.file("metrics.jsonl")};
        checkpoint.keep = keep;
        checkpoint.manifest.step = step;
        checkpoint.manifest.config = {{"grpo.clip", 0.2}};
        return checkpoint;
    }
    std::string at(std::int64_t step) const {
        return folder.file("checkpoints/step-" + std::to_string(step));
    }
    // One step of training, then a checkpoint.
    void write(std::int64_t step, MeshSizes mesh = {2, 1}, std::int64_t keep = 2) const {
        on_mesh(mesh, 7, DType::float32, [&](Policy& policy, comm::Communicator& world) {
            train(policy, 1, 1);
            write_training_checkpoint(policy.training_state(), world, to(step, keep));
        });
    }
    std::string damage(const std::string& directory) const {
        try {
            verify(read_manifest(directory), directory);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "whole";
    }

    TemporaryDirectory folder;
};

// What the model began with does not count; moments and value heads have no model to be excused by.
TEST_F(TrainingCheckpoints, TellsWhatTrainingMadeInfiniteOrNan) {
    const auto poison = [](Policy& policy, const std::string& name, std::int64_t row) {
        for (const auto& [found, tensor] : policy.training_state()) {
            const TensorBlock held = held_block(tensor);
            if (found != name || row < held.first_row || row >= held.end_row()) continue;
            const Tensor rows = local_rows(tensor, row, 1);
            rows.values<float>()[1] = std::numeric_limits<float>::quiet_NaN();
        }
    };
    const std::string model = folder.file("model");
    const auto found = [&](std::int64_t step, const std::string& began) {
        return became_non_finite(read_manifest(at(step)), at(step), began);
    };
    for (const MeshSizes& mesh : kMeshes) {
        on_mesh(mesh, 7, DType::float32, [&](Policy& policy, comm::Communicator& world) {
            write_training_checkpoint(policy.training_state(), world, to(1, 4));
            poison(policy, "weights/model.embed_tokens.weight", 5);
            save_checkpoint(policy, world, model);
            write_training_checkpoint(policy.training_state(), world, to(2, 4));
            poison(policy, "weights/model.embed_tokens.weight", 6);
            poison(policy, "exp_avg/value_head.weight", 0);
            write_training_checkpoint(policy.training_state(), world, to(3, 4));
        });
        EXPECT_EQ(found(1, ""), "");
        EXPECT_EQ(found(2, model), "");
        EXPECT_EQ(found(2, ""), "weights/model.embed_tokens.weight (1 element, the first in row 5)");
        EXPECT_EQ(
            found(3, model),
            "weights/model.embed_tokens.weight (1 element, the first in row 6), exp_avg/value_head.weight "
            "(1 element, the first in row 0)");
    }
}

TEST_F(TrainingCheckpoints, AnyMeshGoesOnFromAnyOther) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const MeshSizes& writer : kTrainingMeshes) {
            Values saved, later;
            later = on_mesh(writer, 7, dtype, [&](Policy& policy, comm::Communicator& world) {
                train(policy, 1, 1);
                policy.set_reference();
                train(policy, 2, 2);
                const Values now = everything(policy);
                if (world.rank() == 0) saved = now;
                auto checkpoint = to(3);
                checkpoint.manifest.optimizer_steps = policy.optimizer_steps();
                write_training_checkpoint(policy.training_state(), world, checkpoint);
                train(policy, 4, 2);
            });
            EXPECT_TRUE(saved.contains("exp_avg_sq/value_head.weight"));
            EXPECT_TRUE(saved.contains("reference/model.norm.weight"));
            EXPECT_EQ(damage(at(3)), "whole");
            EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("checkpoints")), {}), 1);
            for (const MeshSizes& reader : kTrainingMeshes) {
                Values loaded;
                const Values end = on_mesh(reader, 8, dtype, [&](Policy& policy, comm::Communicator& world) {
                    policy.set_reference();
                    read_training_checkpoint(at(3), policy.training_state());
                    policy.set_optimizer_steps(read_manifest(at(3)).optimizer_steps);
                    const Values now = everything(policy);
                    if (world.rank() == 0) loaded = now;
                    train(policy, 4, 2);
                });
                EXPECT_TRUE(loaded == saved);
                const bool same_mesh = reader.dp == writer.dp && reader.cp == writer.cp &&
                                       reader.dp_replicate == writer.dp_replicate;
                if (same_mesh) {
                    EXPECT_TRUE(end == later);
                } else if (dtype == DType::float32) {
                    for (const auto& [name, expected] : later) {
                        EXPECT_LE(relative_difference(end.at(name), expected), 2e-3) << name;
                    }
                }
            }
        }
    }
}

TEST_F(TrainingCheckpoints, AsManyAsAskedAreKept) {
    for (const std::int64_t step : {5, 10, 9, 20, 30}) write(step);
    EXPECT_THAT(training_checkpoints(folder.file("checkpoints")), ::testing::ElementsAre(at(30), at(20)));
    write(40, {2, 1}, 1);
    EXPECT_THAT(training_checkpoints(folder.file("checkpoints")), ::testing::ElementsAre(at(40)));
    write(40, {3, 1}, 1);  // again, by others: replaced
    EXPECT_EQ(read_manifest(at(40)).files.size(), 4u);
    EXPECT_EQ(damage(at(40)), "whole");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("checkpoints")), {}), 1);
    EXPECT_TRUE(training_checkpoints(folder.file("nowhere")).empty());
}

TEST_F(TrainingCheckpoints, DamageIsFoundAndNamed) {
    write(1);
    EXPECT_EQ(damage(at(1)), "whole");
    const std::string file = "checkpoints/step-1/rank-00001.safetensors", whole = folder.read(file);
    for (const std::size_t place : {std::size_t{3}, std::size_t{100}, whole.size() - 1}) {
        std::string broken = whole;
        broken[place] = static_cast<char>(broken[place] ^ 1);
        folder.write(file, broken);
        EXPECT_THAT(damage(at(1)),
                    ::testing::ContainsRegex("rank-00001.safetensors: is damaged: its XXH3-128 is "
                                             "[0-9a-f]{32}, its manifest says [0-9a-f]{32}"));
    }
    folder.write(file, whole.substr(0, whole.size() - 1));
    EXPECT_THAT(damage(at(1)), HasSubstr("rank-00001.safetensors: is " + std::to_string(whole.size() - 1) +
                                         " bytes long, its manifest says " + std::to_string(whole.size())));
    fs::remove(folder.file(file));
    EXPECT_THAT(damage(at(1)), HasSubstr("rank-00001.safetensors: cannot be opened"));
    folder.write(file, whole);
    folder.write("checkpoints/step-1/metrics.jsonl", "{\"step\": 2}\n");
    EXPECT_THAT(damage(at(1)), HasSubstr("metrics.jsonl: is damaged"));
}

TEST_F(TrainingCheckpoints, EveryTruncatedManifestIsRefused) {
    write(1);
    const std::string file = "checkpoints/step-1/manifest.json", whole = folder.read(file);
    for (std::size_t length = 0; length + 2 < whole.size(); length += 97) {
        folder.write(file, whole.substr(0, length));
        EXPECT_THAT(damage(at(1)), HasSubstr("manifest.json: ")) << length;
    }
    folder.write(file, "{\"format\": \"something else\"}");
    EXPECT_THAT(damage(at(1)), HasSubstr("manifest.json: format: is not"));
    folder.write(file, "{\"format\": \"tandem training checkpoint 1\"}");
    EXPECT_THAT(damage(at(1)), HasSubstr("step"));
    fs::remove(folder.file(file));
    EXPECT_THAT(damage(at(1)), HasSubstr("manifest.json: cannot be opened"));
}

TEST_F(TrainingCheckpoints, AnotherModelsTensorsAreRefused) {
    write(1);
    const auto refusal = [&](const std::function<void(model::ModelConfig&)>& change) {
        std::string message = "accepted";
        comm::run_threads(1, [&](std::shared_ptr<comm::Communicator> world) {
            model::ModelConfig config = tiny_config();
            change(config);
            PolicyOptions options;
            options.value_head = true;
            Policy policy(make_mesh(world, {1, 1}), config, options);
            try {
                read_training_checkpoint(at(1), policy.training_state());
            } catch (const ConfigError& error) {
                message = error.what();
            }
        });
        return message;
    };
    EXPECT_EQ(refusal([](auto&) {}), "accepted");
    EXPECT_THAT(refusal([](auto& config) { config.num_hidden_layers = 3; }),
                HasSubstr("model.layers.2.input_layernorm.weight: is not in this checkpoint"));
    EXPECT_THAT(refusal([](auto& config) { config.vocab_size = 14; }),
                HasSubstr("model.embed_tokens.weight: is [13, 10] of float32, the run needs [14, 10]"));
}

// A manifest and files that lie of shapes and rows, with checksums that fit: what a stranger hands over.
TEST_F(TrainingCheckpoints, LiesOfShapesAndRowsAreRefusedByName) {
    const std::string name = "weights/model.embed_tokens.weight", file = "checkpoints/step-1/manifest.json";
    write(1);
    const auto honest = nlohmann::json::parse(folder.read(file));
    const auto refusal = [&](const std::function<void(nlohmann::json & entry)>& lie) {
        auto manifest = honest;
        lie(manifest["tensors"][name]);
        folder.write(file, manifest.dump());
        std::string said = "accepted";
        try {
            on_mesh({1, 1}, 7, DType::float32, [&](Policy& policy, comm::Communicator&) {
                read_training_checkpoint(at(1), policy.training_state());
            });
        } catch (const std::exception& error) {
            said = error.what();
        }
        return said;
    };
    EXPECT_EQ(refusal([](auto&) {}), "accepted");
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    for (const auto& rows :
         {std::pair<std::int64_t, std::int64_t>{most, most}, {1, most}, {most - 1, 2}, {8, 6}, {-1, 2}}) {
        SCOPED_TRACE(rows.first);
        EXPECT_THAT(refusal([&](auto& entry) {
                        entry["rows"][0] = {rows.first, rows.second};
                    }),
                    HasSubstr("manifest.json: "));
    }
    EXPECT_THAT(refusal([](auto& entry) { entry["rows"].erase(0); }), HasSubstr("rows of 1 ranks"));
    // As many rows as there are, one of them twice and one nowhere.
    EXPECT_THAT(refusal([](auto& entry) {
                    entry["rows"] = {{0, 7}, {6, 6}};
                }),
                HasSubstr("manifest.json: " + name + ": row 6, column 0 is there twice"));
    EXPECT_THAT(refusal([](auto& entry) { entry["shape"] = nlohmann::json::array(); }),
                HasSubstr("manifest.json: "));
    EXPECT_THAT(refusal([](auto& entry) { entry["shape"][0] = 13.5; }), HasSubstr("no whole number"));
    folder.write(file, honest.dump());
    model::write_safetensors(at(1) + "/" + rank_file(0), {{name, Tensor::empty({}, DType::float32, "test")}});
    const std::string wanted = rank_file(0) + ": " + name + ": is [] of float32, the manifest says [7, 10]";
    EXPECT_THAT(refusal([](auto&) {}), HasSubstr(wanted));
    std::string found = "nothing";
    try {
        found = became_non_finite(read_manifest(at(1)), at(1), "");
    } catch (const ConfigError& error) {
        found = error.what();
    }
    EXPECT_THAT(found, HasSubstr(rank_file(0)));
}

TEST_F(TrainingCheckpoints, LeftoversGoAndWhatWasBeingReplacedComesBack) {
    write(1);
    write(2);
    fs::create_directories(folder.file("checkpoints/.step-3.partial/x"));
    fs::create_directories(folder.file("checkpoints/step-2.old"));
    fs::rename(at(1), at(1) + ".old");
    clean_up_checkpoints(folder.file("checkpoints"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("checkpoints")), {}), 2);
    EXPECT_EQ(damage(at(1)), "whole");
    EXPECT_EQ(damage(at(2)), "whole");
    clean_up_checkpoints(folder.file("nowhere"));
}

}  // namespace
}  // namespace tandem::trainer::testing

// Checkpoints of tensors that are cut along rows and columns: every element is written once, every mesh writes the files that
// one rank does and reads what any other wrote; and manifests that lie of blocks.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/tensor/host_access.h"
#include "tests/support/error_of.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/trainer/policy/block_tensors.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/checkpoint/room.h"
#include "trainer/checkpoint/training.h"
#include "trainer/checkpoint/weight_files.h"

namespace tandem::trainer::testing {
namespace {

namespace fs = std::filesystem;
using model::TemporaryDirectory;
using nlohmann::json;
using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using World = std::shared_ptr<comm::Communicator>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void save(const NamedTensors& tensors, comm::Communicator& world, const std::string& folder, DType dtype,
          std::size_t shard_bytes) {
    const auto files = plan_weight_files(tensors, dtype, shard_bytes);
    together(world, [&] {
        if (world.rank() == 0) create_weight_files(files, folder);
    });
    together(world, [&] { write_own_blocks(files, tensors, folder, dtype); });
    if (world.rank() != 0 || files.size() == 1) return;
    json index = {{"weight_map", json::object()}};
    for (const WeightFile& file : files) {
        for (const std::size_t i : file.tensors) index["weight_map"][tensors[i].first] = file.name;
    }
    write_durably(folder + "/model.safetensors.index.json", index.dump());
}

// The same tensors, with nothing in them yet.
NamedTensors empty_tensors(const World& world, const BlockMesh& mesh) {
    NamedTensors tensors = block_tensors(world, mesh);
    for (const auto& [name, tensor] : tensors) {
        const Tensor nothing = Tensor::empty(tensor.local().shape(), DType::float32, "test");
        for (float& value : nothing.values<float>()) value = kNan;
        HostAccess().write(nothing, tensor.local());
    }
    return tensors;
}

float rounded(float value, DType dtype) {
    return dtype == DType::float32 ? value : static_cast<float>(bfloat16(value));
}

void expect_as_saved(const NamedTensors& found, const NamedTensors& saved, DType dtype) {
    for (std::size_t i = 0; i < saved.size(); ++i) {
        std::vector<float> expected = values_on_host(saved[i].second.local());
        for (float& value : expected) value = rounded(value, dtype);
        EXPECT_EQ(values_on_host(found[i].second.local()), expected) << found[i].first;
    }
}

std::map<std::string, std::string> files_of(const TemporaryDirectory& folder, const std::string& name) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder.file(name))) {
        const std::string file = entry.path().filename().string();
        files[file] = folder.read(name + "/" + file);
    }
    return files;
}

TEST(Blocks, AllRanksTogetherWriteEveryElementOnce) {
    for (const BlockMesh& mesh : kBlockMeshes) {
        std::vector<std::vector<int>> written;
        for (const auto& spec : block_specs(mesh.tp)) written.emplace_back(numel(spec.shape), 0);
        std::mutex mutex;
        comm::run_threads(mesh.ranks(), [&](const World& world) {
            const NamedTensors tensors = block_tensors(world, mesh);
            const std::lock_guard guard(mutex);
            for (std::size_t i = 0; i < tensors.size(); ++i) {
                const TensorBlock block = written_block(tensors[i].second);
                const std::int64_t columns = whole_block(tensors[i].second.shape()).columns;
                for (std::int64_t row = block.first_row; row < block.end_row(); ++row) {
                    for (std::int64_t column = block.first_column; column < block.end_column(); ++column)
                        ++written[i].at(static_cast<std::size_t>(row * columns + column));
                }
            }
        });
        for (const auto& times : written) EXPECT_THAT(times, ::testing::Each(1)) << mesh.text();
    }
}

TEST(Blocks, EveryMeshWritesTheModelThatOneRankDoesAndReadsIt) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::size_t shard_bytes : {std::size_t{1} << 30, std::size_t{200}}) {
            const TemporaryDirectory folder;
            std::map<std::string, std::string> first;
            for (const BlockMesh& mesh : kBlockMeshes) {
                SCOPED_TRACE(mesh.text());
                comm::run_threads(mesh.ranks(), [&](const World& world) {
                    save(block_tensors(world, mesh), *world, folder.file("out"), dtype, shard_bytes);
                });
                const auto files = files_of(folder, "out");
                if (first.empty()) first = files;
                EXPECT_TRUE(files == first);
                comm::run_threads(mesh.ranks(), [&](const World& world) {
                    const NamedTensors loaded = empty_tensors(world, mesh);
                    read_own_blocks(loaded, folder.file("out"));
                    expect_as_saved(loaded, block_tensors(world, mesh), dtype);
                });
            }
        }
    }
}

// The staging buffer's 8 MiB end in the middle of a row of the block.
TEST(Blocks, ABlockThatIsLargerThanTheStagingBufferIsCast) {
    const model::ParameterSpec spec{.name = "down", .shape = {2051, 4099}, .cut = model::Cut::row};
    const TemporaryDirectory folder;
    std::map<std::string, std::string> first;
    for (const BlockMesh& mesh : {BlockMesh{1, 1, 1}, BlockMesh{1, 1, 2}}) {
        comm::run_threads(mesh.ranks(), [&](const World& world) {
            save({{"down", as_held(world, mesh, spec, values_of(spec))}}, *world, folder.file("out"),
                 DType::bfloat16, std::size_t{1} << 30);
        });
        const auto files = files_of(folder, "out");
        if (first.empty()) first = files;
        EXPECT_TRUE(files == first);
    }
}

class TrainingBlocks : public ::testing::Test {
  protected:
    void write(const BlockMesh& mesh, const std::function<void(const NamedTensors&)>& change = {}) const {
        comm::run_threads(mesh.ranks(), [&](const World& world) {
            const NamedTensors tensors = block_tensors(world, mesh);
            if (change) change(tensors);
            TrainingCheckpoint checkpoint;
            checkpoint.folder = folder.path();
            write_training_checkpoint(tensors, *world, checkpoint);
        });
    }
    void expect_read_by(const BlockMesh& mesh) const {
        SCOPED_TRACE("read by " + mesh.text());
        comm::run_threads(mesh.ranks(), [&](const World& world) {
            const NamedTensors loaded = empty_tensors(world, mesh);
            read_training_checkpoint(folder.file("step-0"), loaded);
            expect_as_saved(loaded, block_tensors(world, mesh), DType::float32);
        });
    }
    json manifest() const { return json::parse(folder.read("step-0/manifest.json")); }
    // What reading says when a tensor's entry was changed.
    std::string refusal(const std::string& name, const std::function<void(json& entry)>& lie) const {
        const std::string honest = folder.read("step-0/manifest.json");
        json changed = json::parse(honest);
        lie(changed["tensors"][name]);
        folder.write("step-0/manifest.json", changed.dump());
        const std::string said = error_of([&] {
            comm::run_threads(1, [&](const World& world) {
                read_training_checkpoint(folder.file("step-0"), block_tensors(world, {}));
            });
        });
        folder.write("step-0/manifest.json", honest);
        return said;
    }

    TemporaryDirectory folder;
};

TEST_F(TrainingBlocks, AnyMeshReadsWhatAnyOtherWrote) {
    for (const BlockMesh& writer : kBlockMeshes) {
        SCOPED_TRACE("written by " + writer.text());
        write(writer);
        const Manifest found = read_manifest(folder.file("step-0"));
        verify(found, folder.file("step-0"));
        EXPECT_EQ(became_non_finite(found, folder.file("step-0"), ""), "");
        for (const BlockMesh& reader : kBlockMeshes) expect_read_by(reader);
    }
}

// Where nothing is cut along columns nothing tells of them: the manifests of before tensor parallelism.
TEST_F(TrainingBlocks, ColumnsAreInTheManifestOfTensorsThatAreCutAlongThem) {
    for (const BlockMesh& mesh : kBlockMeshes) {
        write(mesh);
        const json tensors = manifest()["tensors"];
        for (const auto& spec : block_specs(mesh.tp)) {
            const bool cut = mesh.tp > 1 && spec.cut == model::Cut::row;
            EXPECT_EQ(tensors[spec.name].contains("columns"), cut) << mesh.text() << spec.name;
        }
    }
    write({1, 2, 2});
    EXPECT_EQ(manifest()["tensors"]["o"], json::parse(R"({"dtype": "float32", "shape": [7, 11],
        "rows": [[0, 4], [0, 4], [4, 3], [4, 3]], "columns": [[0, 6], [6, 5], [0, 6], [6, 5]]})"));
    EXPECT_EQ(manifest()["tensors"]["experts"]["columns"], json::parse("[[0, 6], [6, 4], [0, 6], [6, 4]]"));
    Manifest whole;
    whole.tensors["w"] = {DType::float32, {7, 10}, {{0, 4, 0, 10}, {4, 3, 0, 10}}};
    const std::string text = to_json(whole), from = "\"tensors\": ";
    EXPECT_EQ(
        text.substr(text.find(from)),
        "\"tensors\": {\n  \"w\": {\n   \"dtype\": \"float32\",\n   \"shape\": [\n    7,\n    10\n   ],\n"
        "   \"rows\": [\n    [\n     0,\n     4\n    ],\n    [\n     4,\n     3\n    ]\n   ]\n  }\n }\n}\n");
}

TEST_F(TrainingBlocks, LiesOfBlocksAreRefusedByFileAndTensor) {
    write({1, 2, 2});
    EXPECT_EQ(refusal("o", [](json&) {}), "");
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const std::vector<std::pair<const char*, std::function<void(json&)>>> lies = {
        {"11 columns from 1 on, of 11",
         [](json& o) {
             o["columns"][0] = {1, 11};
         }},
        {"no whole number from 0 to 11",
         [](json& o) {
             o["columns"][0] = {0, 12};
         }},
        {"no whole number from 0 to 11",
         [](json& o) {
             o["columns"][0] = {-1, 6};
         }},
        {"no whole number",
         [](json& o) {
             o["columns"][0] = {0, 5.5};
         }},
        {"no whole number",
         [&](json& o) {
             o["columns"][0] = {most, most};
         }},
        {"row 0, column 6 is there twice",
         [](json& o) {
             o["columns"][0] = {0, 7};
         }},
        {"row 0, column 5 is there twice",
         [](json& o) {
             o["columns"][1] = {5, 6};
         }},
        {"row 4, column 0 is there twice",
         [](json& o) {
             o["rows"][0] = {0, 5};
         }},
        {"4 of its 77 elements are nowhere",
         [](json& o) {
             o["columns"][0] = {0, 5};
         }},
        {"20 of its 77 elements are nowhere",
         [](json& o) {
             o["columns"][1] = {6, 0};
         }},
        {"5 of its 77 elements are nowhere",
         [](json& o) {
             o["rows"][3] = {4, 2};
         }},
        // As many elements as there are, some of them twice.
        {"row 4, column 0 is there twice",
         [](json& o) {
             o["rows"][0] = {1, 4};
         }},
        {"is there twice",
         [](json& o) {
             o["columns"][0] = {1, 6};
         }},
        {"columns of 3 ranks, rows of 4", [](json& o) { o["columns"].erase(3); }},
        {"rows of 3 ranks, another tensor of 4",
         [](json& o) {
             o["columns"].erase(3);
             o["rows"].erase(3);
         }},
        {"is there twice", [](json& o) { o.erase("columns"); }},
        {"", [](json& o) { o["columns"] = json::object(); }},
        {"", [](json& o) { o["columns"] = 4; }},
        {"no dims", [](json& o) { o["shape"] = json::array(); }},
        {"overflows", [&](json& o) {
             o["shape"] = {7, most, 2};
         }}};
    for (const auto& [says, lie] : lies)
        EXPECT_THAT(refusal("o", lie), AllOf(HasSubstr("manifest.json: o: "), HasSubstr(says)));
    // Half of an index of dim 1.
    EXPECT_THAT(
        refusal("experts", [](json& e) { e["columns"] = json::parse("[[0, 5], [5, 5], [0, 5], [5, 5]]"); }),
        AllOf(HasSubstr("manifest.json: experts: "), HasSubstr("not whole indices of dim 1")));
    // Blocks that tile the tensor, and are not what the files hold.
    const std::string said =
        refusal("o", [](json& o) { o["columns"] = json::parse("[[0, 5], [5, 6], [0, 5], [5, 6]]"); });
    EXPECT_THAT(said, HasSubstr(rank_file(0) + ": o: is [4, 6] of float32, the manifest says [4, 5]"));
}

// Blocks drawn at random, most of them nearly a tiling, are taken if and only if each element is in exactly one.
TEST_F(TrainingBlocks, OnlyTilingsAreTaken) {
    std::mt19937 random(1);
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random()) % n; };
    int taken = 0;
    constexpr std::int64_t kRows = 4, kColumns = 5;
    for (int round = 0; round < 2000; ++round) {
        std::vector<TensorBlock> blocks = {{0, kRows, 0, kColumns}};
        while (blocks.size() < 5) {
            TensorBlock& cut =
                blocks[static_cast<std::size_t>(below(static_cast<std::int64_t>(blocks.size())))];
            TensorBlock rest = cut;
            if (below(2) == 0) {
                cut.rows = below(cut.rows + 1);
                rest = {cut.end_row(), rest.rows - cut.rows, rest.first_column, rest.columns};
            } else {
                cut.columns = below(cut.columns + 1);
                rest = {rest.first_row, rest.rows, cut.end_column(), rest.columns - cut.columns};
            }
            blocks.push_back(rest);
        }
        std::shuffle(blocks.begin(), blocks.end(), random);
        if (below(2) == 0) blocks[0] = {below(2), 1 + below(3), below(2), 1 + below(4)};
        std::array<int, kRows * kColumns> times{};
        for (const TensorBlock& block : blocks) {
            for (std::int64_t row = block.first_row; row < block.end_row(); ++row) {
                for (std::int64_t column = block.first_column; column < block.end_column(); ++column)
                    ++times.at(static_cast<std::size_t>(row * kColumns + column));
            }
        }
        const bool tiles = std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
        Manifest written;
        written.tensors["w"] = {DType::float32, {kRows, kColumns}, blocks};
        folder.write("manifest.json", to_json(written));
        EXPECT_EQ(error_of([&] { read_manifest(folder.path()); }).empty(), tiles);
        taken += tiles;
    }
    EXPECT_GT(taken, 900);
    EXPECT_LT(taken, 1900);
}

// Rows of a tensor's columns are on several ranks; the model that it began with excuses what is its own.
TEST_F(TrainingBlocks, TellsWhatTrainingMadeInfiniteOrNan) {
    const model::ParameterSpec spec{.name = "weights/o", .shape = {7, 11}, .cut = model::Cut::row};
    const auto with_nan = [&](const std::vector<std::int64_t>& places) {
        const Tensor full = values_of(spec);
        for (const std::int64_t place : places) full.values<float>()[static_cast<std::size_t>(place)] = kNan;
        return full;
    };
    for (const BlockMesh& mesh : kBlockMeshes) {
        SCOPED_TRACE(mesh.text());
        comm::run_threads(mesh.ranks(), [&](const World& world) {
            const Tensor before = with_nan({2 * 11 + 9});
            save({{"o", as_held(world, mesh, spec, before)}}, *world, folder.file("model"), DType::float32,
                 std::size_t{1} << 30);
            TrainingCheckpoint checkpoint;
            checkpoint.folder = folder.path();
            const Tensor now = with_nan({2 * 11 + 9, 3 * 11 + 10, 3 * 11, 5 * 11 + 6});
            write_training_checkpoint({{spec.name, as_held(world, mesh, spec, now)}}, *world, checkpoint);
        });
        const Manifest found = read_manifest(folder.file("step-0"));
        EXPECT_EQ(became_non_finite(found, folder.file("step-0"), ""),
                  "weights/o (4 elements, the first in row 2)");
        EXPECT_EQ(became_non_finite(found, folder.file("step-0"), folder.file("model")),
                  "weights/o (3 elements, the first in row 3)");
    }
}

}  // namespace
}  // namespace tandem::trainer::testing

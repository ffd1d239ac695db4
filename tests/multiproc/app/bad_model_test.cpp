// Model directories that lie or are broken, given to both programs: exit code 2, the file and the place by
// name, and nothing is started or written.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::HasSubstr;

void write_file(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
}

std::string header_of(const std::string& file) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    return file.substr(8, length);
}

std::string with_header(const std::string& file, const std::string& header) {
    std::string result(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(result.data(), &length, sizeof(length));
    return result + header + file.substr(8 + header_of(file).size());
}

class BadModel : public testing::Test {
  protected:
    // A whole model to break, made once.
    static void SetUpTestSuite() {
        made_ = new Folder;
        Program program(tiny_run(made_->path(), {"mesh.dp=1", "mesh.cp=1", "sft.steps=1", "grpo.steps=0"}));
        ASSERT_EQ(program.wait(), 0) << program.err();
    }
    static void TearDownTestSuite() { delete made_; }

    BadModel() : model_(folder_ / "model"), output_(folder_ / "runs") {
        fs::copy(*made_ / "tiny/checkpoint", model_);
        weights_ = read_file(file());
        config_ = ordered_json::parse(read_file(model_ + "/config.json"));
    }
    std::string file() const { return model_ + "/model.safetensors"; }
    template <typename Edit>
    void edit_header(const Edit& edit) const {
        ordered_json header = ordered_json::parse(header_of(weights_));
        edit(header);
        write_file(file(), with_header(weights_, header.dump()));
    }
    void with_index(const ordered_json& weight_map) const {
        fs::rename(file(), model_ + "/one.safetensors");
        write_file(model_ + "/model.safetensors.index.json", ordered_json{{"weight_map", weight_map}}.dump());
    }
    ordered_json all_in(const std::string& name) const {
        ordered_json map;
        const ordered_json header = ordered_json::parse(header_of(weights_));
        for (const auto& [tensor, entry] : header.items()) {
            if (tensor != "__metadata__") map[tensor] = name;
        }
        return map;
    }

    void expect_refused(const std::string& where, const std::string& message) const {
        Program train(tiny_run(output_, {"model.path=" + model_}));
        EXPECT_EQ(train.wait(), 2) << train.err();
        EXPECT_THAT(train.err(),
                    testing::AllOf(HasSubstr("tandem-train: "), HasSubstr(where), HasSubstr(message)));
        EXPECT_FALSE(fs::exists(output_));
        Program engine({"tandem-engine", "serve", "--model", model_, "--listen", "127.0.0.1:0",
                        "--ready-file", folder_ / "ready"});
        EXPECT_EQ(engine.wait(), 2) << engine.err();
        EXPECT_THAT(engine.err(),
                    testing::AllOf(HasSubstr("tandem-engine: "), HasSubstr(where), HasSubstr(message)));
        EXPECT_FALSE(fs::exists(folder_ / "ready"));
    }

    static Folder* made_;
    Folder folder_;
    std::string model_, output_;
    std::string weights_;
    ordered_json config_;
};
Folder* BadModel::made_ = nullptr;

TEST_F(BadModel, ATruncatedFile) {
    fs::resize_file(file(), weights_.size() - 1);
    expect_refused("model.safetensors: ", "lie outside the file's");
    fs::resize_file(file(), 100);
    expect_refused("model.safetensors: ", "truncated or not safetensors: header of ");
    fs::resize_file(file(), 3);
    expect_refused("model.safetensors: ", "truncated: 3 bytes");
    fs::resize_file(file(), 0);
    expect_refused("model.safetensors: ", "is empty or cannot be mapped");
}

TEST_F(BadModel, AHeaderLengthThatCannotBe) {
    for (const char* length :
         {"\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\x7f\0\0\0", "\0\0\0\0\0\0\0"}) {
        std::string broken = weights_;
        std::memcpy(broken.data(), length, 8);
        write_file(file(), broken);
        expect_refused("model.safetensors: ", "");
    }
}

TEST_F(BadModel, OffsetsThatOverlapOrLeaveHoles) {
    edit_header([](ordered_json& header) {
        auto& entry = header["model.layers.1.mlp.down_proj.weight"]["data_offsets"];
        entry = {entry[0].get<std::size_t>() - 4, entry[1].get<std::size_t>() - 4};
    });
    expect_refused("model.safetensors: model.layers.1.mlp.down_proj.weight", "overlaps another tensor");
    edit_header([](ordered_json& header) { header.erase("model.layers.0.input_layernorm.weight"); });
    expect_refused("model.safetensors: model.layers.0.", "leaves a hole before it");
    edit_header([](ordered_json& header) { header["model.norm.weight"]["shape"] = {63}; });
    expect_refused("model.safetensors: model.norm.weight",
                   "[63] of F32 needs 252 bytes, data_offsets hold 256");
    edit_header([](ordered_json& header) { header["model.norm.weight"]["shape"] = {1ll << 40, 1ll << 40}; });
    expect_refused("model.safetensors: model.norm.weight", "overflows");
}

TEST_F(BadModel, WrongDtypes) {
    edit_header([](ordered_json& header) { header["model.norm.weight"]["dtype"] = "I32"; });
    expect_refused("model.safetensors: model.norm.weight",
                   "is int32; float32, bfloat16 or float16 is needed");
    edit_header([](ordered_json& header) { header["model.norm.weight"]["dtype"] = "F12"; });
    expect_refused("model.safetensors: model.norm.weight", "dtype \"F12\" is not supported");
}

TEST_F(BadModel, TensorsThatAreMissingExtraOrTwice) {
    edit_header([](ordered_json& header) {
        header["model.norn.weight"] = header["model.norm.weight"];
        header.erase("model.norm.weight");
    });
    expect_refused(model_ + ": model.norm.weight", "missing from the safetensors files");
    edit_header([](ordered_json& header) {
        const auto end = header["model.norm.weight"]["data_offsets"][1];
        header["score.weight"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {end, end}}};
    });
    expect_refused("model.safetensors: score.weight", "not a parameter of Qwen3ForCausalLM");
    std::string header = header_of(weights_);
    header.insert(1, "\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},");
    write_file(file(), with_header(weights_, header));
    expect_refused("model.safetensors: model.norm.weight", "is there twice");
}

TEST_F(BadModel, IndicesThatDoNotAgree) {
    ordered_json map = all_in("one.safetensors");
    map["model.norm.weight"] = "two.safetensors";
    with_index(map);
    const std::string index = model_ + "/model.safetensors.index.json";
    expect_refused("one.safetensors: model.norm.weight", "is here, although the index names two.safetensors");
    map["model.norm.weight"] = "../one.safetensors";
    write_file(index, ordered_json{{"weight_map", map}}.dump());
    expect_refused("index.json: model.norm.weight", "must name a file of the same directory");
    map["model.norm.weight"] = "one.safetensors";
    map["b"] = "two.safetensors";
    write_file(index, ordered_json{{"weight_map", map}}.dump());
    expect_refused("two.safetensors", "cannot be opened");
    write_file(index, "{\"weight_map\": ");
    expect_refused("index.json: ", "malformed JSON");
}

TEST_F(BadModel, ConfigsThatCannotBeComputed) {
    const std::string config = model_ + "/config.json";
    config_["architectures"] = {"GPT2LMHeadModel"};
    write_file(config, config_.dump());
    expect_refused("config.json: architectures", "\"GPT2LMHeadModel\" is not supported");
    config_["architectures"] = {"Qwen3ForCausalLM"};
    config_["num_hidden_layers"] = 1 << 28;
    write_file(config, config_.dump());
    expect_refused("config.json: num_hidden_layers", "must be a positive size of at most");
    config_["num_hidden_layers"] = 2;
    config_["hidden_size"] = 32;
    write_file(config, config_.dump());
    expect_refused("model.safetensors: model.embed_tokens.weight", "config.json implies [16, 32]");
    config_["hidden_size"] = 64;
    config_["tie_word_embeddings"] = false;
    write_file(config, config_.dump());
    expect_refused(model_ + ": lm_head.weight", "missing, and config.json does not say that it is tied");
    write_file(config, "{\"vocab_size\": 16, \"vocab_size\": 17}");
    expect_refused("config.json: vocab_size", "is there twice");
    write_file(config, "{");
    expect_refused("config.json: ", "malformed JSON");
    fs::remove(config);
    expect_refused("config.json: ", "cannot be opened");
    fs::remove_all(model_);
    expect_refused(model_ + ": ", "is not a directory");
}

TEST_F(BadModel, AnEarlierRunIsNotTouched) {
    Program first(tiny_run(output_, {"mesh.dp=1", "mesh.cp=1", "sft.steps=1", "grpo.steps=0"}));
    ASSERT_EQ(first.wait(), 0) << first.err();
    const std::string before = read_file(output_ + "/tiny/summary.json");
    fs::resize_file(file(), weights_.size() - 1);
    Program second(tiny_run(output_, {"model.path=" + model_}));
    EXPECT_EQ(second.wait(), 2);
    EXPECT_EQ(read_file(output_ + "/tiny/summary.json"), before);
    EXPECT_EQ(std::distance(fs::directory_iterator(output_), {}), 1);
}

}  // namespace
}  // namespace tandem::test

#include "trainer/checkpoint/checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"
#include "common/model/safetensors_index.h"
#include "trainer/checkpoint/copied_files.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/room.h"
#include "trainer/checkpoint/weight_files.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGeneration = "generation_config.json";

// Of everything beside weights and copies: config.json, the index, and what blocks round up.
constexpr std::uint64_t kSmallFileBytes = std::uint64_t{64} << 10;

using nlohmann::ordered_json;

ordered_json object_of(const std::string& text, const std::string& file) {
    const ordered_json parsed = parse_json_file(text, file);
    if (!parsed.is_object()) throw ConfigError(file, "", "is not a JSON object");
    return parsed;
}

// As transformers writes it: one id by itself.
ordered_json eos_of(const model::ModelConfig& config) {
    if (config.eos_token_id < 0) return nullptr;
    if (config.more_eos_token_ids.empty()) return config.eos_token_id;
    ordered_json ids = ordered_json::array({config.eos_token_id});
    for (const std::int32_t id : config.more_eos_token_ids) ids.push_back(id);
    return ids;
}

std::string config_json(const Policy& policy, const SaveOptions& options, const CopiedFiles& copied) {
    model::ModelConfig config = policy.config();
    config.torch_dtype = options.dtype;
    if (options.source.empty()) return model::to_json(config);
    ordered_json json = object_of(copied.config, options.source + "/config.json");
    // transformers 4 reads torch_dtype alone, 5 dtype where there is one.
    for (const char* key : {"dtype", "torch_dtype"}) {
        if (json.contains(key) || std::string_view(key) == "torch_dtype")
            json[key] = dtype_name(options.dtype);
    }
    if (!options.tokenizer.empty()) json["eos_token_id"] = eos_of(config);
    return json.dump(2) + "\n";
}

void write_copied(const Policy& policy, const fs::path& directory, const SaveOptions& options,
                  const CopiedFiles& copied) {
    for (const auto& [name, text] : copied.others) {
        const fs::path file = directory / name;
        fs::create_directories(file.parent_path());  // of templates
        write_durably(file.string(), text);
        if (file.parent_path() != directory) sync_folder(file.parent_path().string());
    }
    if (copied.generation.empty()) return;
    const std::string file = (directory / kGeneration).string();
    if (options.tokenizer.empty()) return write_durably(file, copied.generation);
    ordered_json json = object_of(copied.generation, options.generation + "/" + kGeneration);
    json["eos_token_id"] = eos_of(policy.config());
    write_durably(file, json.dump(2) + "\n");
}

void write_small_files(const Policy& policy, const std::vector<WeightFile>& files,
                       const std::string& directory, const SaveOptions& options) {
    if (files.size() > 1) {
        model::SafetensorsIndex index;
        std::size_t bytes = 0;
        for (const WeightFile& file : files) {
            for (const std::size_t i : file.tensors) index[policy.parameters()[i].first] = file.name;
            bytes += file.layout.bytes - file.layout.head.size();
        }
        write_durably(directory + "/model.safetensors.index.json", model::to_json(index, bytes));
    }
    const auto copied =
        options.files ? options.files : std::make_shared<const CopiedFiles>(read_copied_files(options));
    write_durably(directory + "/config.json", config_json(policy, options, *copied));
    write_copied(policy, directory, options, *copied);
}

}  // namespace

std::uint64_t checkpoint_bytes(const Policy& policy, const SaveOptions& options) {
    std::uint64_t bytes = kSmallFileBytes;
    for (const WeightFile& file : plan_weight_files(policy.parameters(), options.dtype, options.shard_bytes))
        bytes += file.layout.bytes;
    return bytes + copied_bytes(options);
}

std::uint64_t checkpoint_bytes(const model::ModelConfig& config, const SaveOptions& options) {
    return static_cast<std::uint64_t>(config.parameter_count()) * dtype_size(options.dtype) +
           kSmallFileBytes + copied_bytes(options);
}

void save_checkpoint(const Policy& policy, comm::Communicator& world, const std::string& directory,
                     const SaveOptions& options) {
    const std::vector<WeightFile> files =
        plan_weight_files(policy.parameters(), options.dtype, options.shard_bytes);
    const std::string working = directory + ".partial";
    const bool first = world.rank() == 0;
    try {
        together(world, [&] {
            if (first) create_weight_files(files, working);
        });
        together(world, [&] { write_own_blocks(files, policy.parameters(), working, options.dtype); });
        together(world, [&] {
            if (!first) return;
            write_small_files(policy, files, working, options);
            replace_folder(working, directory);
        });
    } catch (const NoRoom&) {
        std::error_code none;
        if (first) fs::remove_all(working, none);
        throw;
    }
}

void load_checkpoint(Policy& policy, const std::string& directory) {
    read_own_blocks(policy.parameters(), directory);
    policy.weights_written();
}

}  // namespace tandem::trainer

#include "trainer/checkpoint/checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"
#include "common/model/safetensors_index.h"
#include "common/text_file.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/room.h"
#include "trainer/checkpoint/weight_files.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

// Files of a Hugging Face directory beside the weights, to be copied. config.json is not: it is rewritten.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json",    "tokenizer_config.json",
                                           "added_tokens.json", "special_tokens_map.json",
                                           "vocab.json",        "vocab.txt",
                                           "merges.txt",        "tokenizer.model",
                                           "spiece.model",      "sentencepiece.bpe.model",
                                           "tekken.json",       "chat_template.jinja",
                                           "chat_template.json"};
constexpr const char* kMoreTemplates = "additional_chat_templates";  // transformers 5's folder of *.jinja
constexpr const char* kGeneration = "generation_config.json";

// Of everything beside weights and copies: config.json, the index, and what blocks round up.
constexpr std::uint64_t kSmallFileBytes = std::uint64_t{64} << 10;

// The directory whose tokenizer and templates are copied; empty: none.
fs::path tokenizer_source(const SaveOptions& options) {
    return options.tokenizer.empty() ? options.source : options.tokenizer;
}

std::uint64_t copied_bytes(const SaveOptions& options) {
    const fs::path from = tokenizer_source(options);
    if (from.empty()) return 0;
    std::uint64_t bytes = 0;
    const auto count = [&](const fs::path& file) {
        std::error_code none;
        const auto size = fs::file_size(file, none);
        if (!none) bytes += size;
    };
    for (const char* name : kTokenizerFiles) count(from / name);
    count((options.generation.empty() ? from : fs::path(options.generation)) / kGeneration);
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(from / kMoreTemplates, none)) count(entry.path());
    return bytes;
}

using nlohmann::ordered_json;

ordered_json read_object(const std::string& file) {
    const ordered_json parsed = parse_json_file(read_text_file(file), file);
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

std::string config_json(const Policy& policy, const SaveOptions& options) {
    model::ModelConfig config = policy.config();
    config.torch_dtype = options.dtype;
    if (options.source.empty()) return model::to_json(config);
    ordered_json json = read_object(options.source + "/config.json");
    // transformers 4 reads torch_dtype alone, 5 dtype where there is one.
    for (const char* key : {"dtype", "torch_dtype"}) {
        if (json.contains(key) || std::string_view(key) == "torch_dtype")
            json[key] = dtype_name(options.dtype);
    }
    if (!options.tokenizer.empty()) json["eos_token_id"] = eos_of(config);
    return json.dump(2) + "\n";
}

void copy_if_there(const fs::path& from, const fs::path& to) {
    if (fs::is_regular_file(from))
        write_durably(to.string(), read_text_file(from.string(), std::size_t{1} << 30));
}

void write_tokenizer(const Policy& policy, const fs::path& directory, const SaveOptions& options) {
    const fs::path from = tokenizer_source(options);
    const fs::path generation = options.generation.empty() ? from : fs::path(options.generation);
    if (from.empty()) return;
    for (const char* name : kTokenizerFiles) copy_if_there(from / name, directory / name);
    if (fs::is_directory(from / kMoreTemplates)) {
        fs::create_directories(directory / kMoreTemplates);
        for (const auto& entry : fs::directory_iterator(from / kMoreTemplates)) {
            if (entry.path().extension() == ".jinja")
                copy_if_there(entry.path(), directory / kMoreTemplates / entry.path().filename());
        }
        sync_folder((directory / kMoreTemplates).string());
    }
    if (options.tokenizer.empty()) return copy_if_there(generation / kGeneration, directory / kGeneration);
    if (!fs::is_regular_file(generation / kGeneration)) return;
    ordered_json json = read_object((generation / kGeneration).string());
    json["eos_token_id"] = eos_of(policy.config());
    write_durably((directory / kGeneration).string(), json.dump(2) + "\n");
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
    write_durably(directory + "/config.json", config_json(policy, options));
    write_tokenizer(policy, directory, options);
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

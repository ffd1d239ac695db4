#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"
#include "common/model/safetensors_index.h"
#include "common/model/safetensors_layout.h"
#include "common/ops/elementwise.h"
#include "common/tensor/host_access.h"
#include "common/text_file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/own_rows.h"
#include "trainer/checkpoint/room.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using NamedTensors = std::vector<std::pair<std::string, DTensor>>;

constexpr std::int64_t kStagingBytes = std::int64_t{8} << 20;

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

struct PlannedFile {
    std::string name;
    std::vector<std::size_t> tensors;  // indices into the policy's parameters
    model::SafetensorsLayout layout;
};

// The same on every rank. A tensor is never cut: a file is closed before the tensor that would make it larger
// than asked.
std::vector<PlannedFile> plan_files(const NamedTensors& tensors, DType dtype, std::size_t shard_bytes) {
    std::vector<PlannedFile> files(1);
    std::vector<std::vector<model::SafetensorsItem>> items(1);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const model::SafetensorsItem item{tensors[i].first, dtype, tensors[i].second.shape()};
        if (bytes > 0 && bytes + item.bytes() > shard_bytes) {
            files.emplace_back();
            items.emplace_back();
            bytes = 0;
        }
        bytes += item.bytes();
        files.back().tensors.push_back(i);
        items.back().push_back(item);
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
        files[i].name = files.size() == 1
                            ? "model.safetensors"
                            : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
        files[i].layout = model::safetensors_layout(items[i]);
    }
    return files;
}

void write_rows(OutputFile& file, std::size_t begin, const DTensor& tensor, DType dtype, Tensor& staging,
                HostAccess& access) {
    const RowRange rows = written_rows(tensor);
    if (rows.count == 0) return;
    const Tensor own = local_rows(tensor, rows);
    const std::int64_t row_numel = own.numel() / rows.count;
    const std::size_t at = begin + static_cast<std::size_t>(rows.first * row_numel) * dtype_size(dtype);
    if (own.dtype() == dtype && own.device() == Device{}) return file.write_at(at, own.span());
    Stream stream = Stream::make_inline();
    const Tensor flat = own.reshape({own.numel()});
    for (std::int64_t done = 0; done < own.numel(); done += staging.numel()) {
        const std::int64_t count = std::min(staging.numel(), own.numel() - done);
        const Tensor part = staging.rows(0, count);
        ops::cast(stream, access.read(flat.rows(done, count)), part);
        stream.synchronize();
        file.write_at(at + static_cast<std::size_t>(done) * dtype_size(dtype), part.span());
    }
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

void write_small_files(const Policy& policy, const std::vector<PlannedFile>& files,
                       const std::string& directory, const SaveOptions& options) {
    if (files.size() > 1) {
        model::SafetensorsIndex index;
        std::size_t bytes = 0;
        for (const PlannedFile& file : files) {
            for (const std::size_t i : file.tensors) index[policy.parameters()[i].first] = file.name;
            bytes += file.layout.bytes - file.layout.head.size();
        }
        write_durably(directory + "/model.safetensors.index.json", model::to_json(index, bytes));
    }
    write_durably(directory + "/config.json", config_json(policy, options));
    write_tokenizer(policy, directory, options);
}

}  // namespace

namespace {

void create_files(const std::vector<PlannedFile>& files, const std::string& working) {
    fs::remove_all(working);
    fs::create_directories(working);
    std::uint64_t bytes = 0;
    for (const PlannedFile& file : files) bytes += file.layout.bytes;
    need_room(working, bytes);
    for (const PlannedFile& file : files) {
        OutputFile out(working + "/" + file.name, OutputFile::Open::create);
        out.resize(file.layout.bytes);
        out.write_at(0, file.layout.head);
    }
}

void write_own_rows(const Policy& policy, const std::vector<PlannedFile>& files, const std::string& working,
                    DType dtype) {
    Tensor staging;
    HostAccess access;
    if (dtype != DType::float32 || policy.device() != Device{}) {
        const auto numel = kStagingBytes / static_cast<std::int64_t>(dtype_size(dtype));
        staging = Tensor::empty({numel}, dtype, "checkpoint");
    }
    for (const PlannedFile& file : files) {
        OutputFile out(working + "/" + file.name, OutputFile::Open::existing);
        for (std::size_t i = 0; i < file.tensors.size(); ++i) {
            const DTensor& tensor = policy.parameters()[file.tensors[i]].second;
            write_rows(out, file.layout.begins[i], tensor, dtype, staging, access);
        }
        out.sync();
    }
}

}  // namespace

std::uint64_t checkpoint_bytes(const Policy& policy, const SaveOptions& options) {
    std::uint64_t bytes = kSmallFileBytes;
    for (const PlannedFile& file : plan_files(policy.parameters(), options.dtype, options.shard_bytes))
        bytes += file.layout.bytes;
    return bytes + copied_bytes(options);
}

std::uint64_t checkpoint_bytes(const model::ModelConfig& config, const SaveOptions& options) {
    return static_cast<std::uint64_t>(config.parameter_count()) * dtype_size(options.dtype) +
           kSmallFileBytes + copied_bytes(options);
}

void save_checkpoint(const Policy& policy, comm::Communicator& world, const std::string& directory,
                     const SaveOptions& options) {
    const std::vector<PlannedFile> files =
        plan_files(policy.parameters(), options.dtype, options.shard_bytes);
    const std::string working = directory + ".partial";
    const bool first = world.rank() == 0;
    try {
        together(world, [&] {
            if (first) create_files(files, working);
        });
        together(world, [&] { write_own_rows(policy, files, working, options.dtype); });
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

}  // namespace tandem::trainer

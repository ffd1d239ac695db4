#include "trainer/checkpoint/copied_files.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "common/text_file.h"
#include "trainer/checkpoint/checkpoint.h"

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
constexpr std::size_t kMostBytes = std::size_t{1} << 30;             // of one file

// The directory whose tokenizer and templates are copied; empty: none.
fs::path tokenizer_source(const SaveOptions& options) {
    return options.tokenizer.empty() ? options.source : options.tokenizer;
}

fs::path generation_file(const SaveOptions& options) {
    return fs::path(options.generation.empty() ? tokenizer_source(options) : fs::path(options.generation)) /
           "generation_config.json";
}

// Of tokenizer and templates, those that are there; their names in the directory.
std::vector<fs::path> names_of_others(const fs::path& from) {
    std::vector<fs::path> names;
    std::error_code none;
    for (const char* name : kTokenizerFiles) {
        if (fs::is_regular_file(from / name, none)) names.emplace_back(name);
    }
    for (const auto& entry : fs::directory_iterator(from / kMoreTemplates, none)) {
        if (entry.path().extension() == ".jinja" && entry.is_regular_file(none))
            names.push_back(kMoreTemplates / entry.path().filename());
    }
    return names;
}

}  // namespace

std::uint64_t CopiedFiles::bytes() const {
    std::uint64_t sum = generation.size();
    for (const auto& [name, text] : others) sum += text.size();
    return sum;
}

CopiedFiles read_copied_files(const SaveOptions& options) {
    CopiedFiles files;
    if (!options.source.empty()) files.config = read_text_file(options.source + "/config.json");
    const fs::path from = tokenizer_source(options);
    if (from.empty()) return files;
    for (const fs::path& name : names_of_others(from))
        files.others[name.string()] = read_text_file((from / name).string(), kMostBytes);
    const fs::path generation = generation_file(options);
    std::error_code none;
    if (fs::is_regular_file(generation, none)) files.generation = read_text_file(generation.string());
    return files;
}

std::uint64_t copied_bytes(const SaveOptions& options) {
    if (options.files) return options.files->bytes();
    const fs::path from = tokenizer_source(options);
    if (from.empty()) return 0;
    std::uint64_t bytes = 0;
    const auto count = [&](const fs::path& file) {
        std::error_code none;
        const auto size = fs::file_size(file, none);
        if (!none) bytes += size;
    };
    for (const fs::path& name : names_of_others(from)) count(from / name);
    count(generation_file(options));
    return bytes;
}

}  // namespace tandem::trainer

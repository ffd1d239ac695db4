#include "engine_adapter/hf_directory/served_model.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/error.h"
#include "common/text_file.h"
#include "engine_adapter/hf_directory/staged_directory.h"

namespace tandem::engine {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// huggingface_hub.constants.HF_HUB_CACHE
fs::path hub_cache() {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
        if (const std::string cache = environment(name); !cache.empty()) return cache;
    }
    if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
    fs::path cache = environment("XDG_CACHE_HOME");
    if (cache.empty()) cache = fs::path(environment("HOME")) / ".cache";
    return cache / "huggingface/hub";
}

bool is_folder(const fs::path& path) {
    std::error_code error;
    return fs::is_directory(path, error);
}

// "Qwen/Qwen3-0.6B", or "gpt2", of the branch main.
std::optional<fs::path> snapshot_of(const std::string& name) {
    const auto allowed = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view("-_./").find(c) != std::string_view::npos;
    };
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), allowed) &&
                       std::count(name.begin(), name.end(), '/') <= 1 && name.find("..") == std::string::npos;
    if (!plain || name.starts_with('/') || name.starts_with('.')) return {};
    std::string folder = "models--" + name;
    if (const auto slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
    const fs::path repository = hub_cache() / folder;
    constexpr std::size_t kMostBytes = 256;
    std::string revision = read_text_file_if_there((repository / "refs/main").string(), kMostBytes);
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())) != 0)
        revision.pop_back();
    if (revision.empty() || revision.find('/') != std::string::npos) return {};
    const fs::path snapshot = repository / "snapshots" / revision;
    return is_folder(snapshot) ? std::optional(snapshot) : std::nullopt;
}

bool has(const fs::path& directory, const char* file) {
    std::error_code error;
    return fs::exists(directory / file, error);
}

bool has_weights(const fs::path& directory) {
    return has(directory, "model.safetensors") || has(directory, "model.safetensors.index.json");
}

// "s3://bucket/key", "gs://…": not a path, and no name of the hub.
bool is_object_url(const std::string& name) {
    const auto scheme = name.find("://");
    return scheme != std::string::npos && scheme > 0;
}

[[noreturn]] void refuse(const std::string& server, const std::string& names, const char* why) {
    throw Error(fmt::format("probe with {}: it serves {}: {}", server, names, why));
}

}  // namespace

ServedModel served_model(const std::string& server, const std::vector<std::string>& said,
                         const fs::path& pushed) {
    const bool streamed = std::any_of(said.begin(), said.end(), is_object_url);
    std::string names;
    fs::path config;         // of one that streams: its folder with all files but the weights
    bool elsewhere = false;  // it has a folder that is not here
    for (const std::string& name : said) {
        if (name.empty()) continue;
        if (names.find("'" + name + "'") == std::string::npos)
            names += (names.empty() ? "'" : ", '") + name + "'";
        if (is_object_url(name) || is_staged_directory(name)) continue;  // a push's, gone by now
        const std::optional<fs::path> here = is_folder(name) ? fs::path(name) : snapshot_of(name);
        if (!here) {
            elsewhere = elsewhere || name.starts_with('/');
        } else if (has_weights(*here) || (!streamed && has(*here, "config.json"))) {
            return {*here, *here};  // without weights: whoever reads them says what is missing
        } else if (config.empty() && has(*here, "config.json")) {
            config = *here;
        }
    }
    if (!streamed) {
        refuse(
            server, names,
            "neither a directory here nor in the Hugging Face cache (HF_HUB_CACHE): weights are brought over "
            "in shared memory, so server and pusher must see the same file system; start the server with a "
            "directory that both see (SGLang: --model-path, and the tokenizer from there)");
    }
    if (elsewhere) {
        refuse(server, names,
               "its own folder is not here: weights are brought over in shared memory, so server and pusher "
               "must see the same file system");
    }
    if (pushed.empty()) {
        refuse(server, names,
               "which tensors it wants is not known here: push a directory (tandem-sync push), whose "
               "config.json says it, or start the server with tandem's plug-in");
    }
    return {pushed, config};
}

void require_known_quantization(const std::string& server, const ServedModel& model,
                                const std::string& quantization) {
    enforce(
        model.files_are_here() || quantization.empty(),
        "{} serves a model that is quantised ({}), and the files that say how are not here: start it with "
        "a directory",
        server, quantization);
}

bool loads_as_auto(const std::string& server, const std::string& load_format,
                   std::span<const std::string_view> of_directories,
                   std::span<const std::string_view> replaced) {
    // One that does not say its format loads directories.
    if (load_format.empty() || std::ranges::find(of_directories, load_format) != of_directories.end())
        return false;
    enforce(std::ranges::find(replaced, load_format) != replaced.end(),
            "{} was started with --load-format {}, whose loader may load something else than the directory "
            "that it is given: start it with --load-format auto, or with tandem's plug-in",
            server, load_format);
    return true;
}

}  // namespace tandem::engine

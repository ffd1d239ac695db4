// What a server serves, by the names that it was started with: a directory of this host, a model of the Hugging Face hub
// (then the snapshot in this host's cache), or "s3://…" and its like, whose files nobody here has.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

struct ServedModel {
    // Whose tensors the server wants, and whose JSON files go with them.
    std::filesystem::path directory;
    // With the config.json that it computes by; empty: none is here. The same as `directory` but for "s3://…".
    std::filesystem::path config;
    bool files_are_here() const { return directory == config; }  // its own
};

// `said`: the names in the order in which they are believed; empty ones are passed over. `pushed`: the directory that is
// pushed, whose files stand for those of a model that is not here; empty: it is none. Throws Error naming `server`: nothing
// of it is here, so that server and pusher may not see the same file system.
ServedModel served_model(const std::string& server, const std::vector<std::string>& said,
                         const std::filesystem::path& pushed);

// Throws BadInput: `model`'s own files are not here, and it is quantised ("fp8"; empty: it is not), which they would say how.
void require_known_quantization(const std::string& server, const ServedModel& model,
                                const std::string& quantization);

// Whether a server that was started with `load_format` must be told to load "auto" for it to load a directory that it is given:
// its own format is among `replaced`, which load none, other files or others' URLs into the same model. Throws BadInput: it is
// not, nor among those `of_directories`, so that the directory might be ignored, or be taken for something else.
bool loads_as_auto(const std::string& server, const std::string& load_format,
                   std::span<const std::string_view> of_directories,
                   std::span<const std::string_view> replaced);

}  // namespace tandem::engine

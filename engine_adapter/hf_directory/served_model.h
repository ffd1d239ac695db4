// What a server serves, by the names that it was started with: a directory of this host, a model of the Hugging Face hub
// (then the snapshot in this host's cache), or "s3://…" and its like, whose files nobody here has.
#pragma once

#include <filesystem>
#include <string>
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

// "s3://bucket/key", "gs://…": not a path, and no name of the hub.
bool is_object_url(const std::string& name);

}  // namespace tandem::engine

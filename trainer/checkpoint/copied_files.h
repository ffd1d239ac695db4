// What a checkpoint repeats of the directories that a run began with: config.json, tokenizer, chat templates and
// generation_config.json. Read when the run begins: when it ends, hours later, they may be gone or another model's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tandem::trainer {

struct SaveOptions;

struct CopiedFiles {
    std::string config;                         // config.json's; empty: there is no source
    std::map<std::string, std::string> others;  // by their name in the directory, as they are
    std::string generation;                     // generation_config.json's; empty: there is none

    std::uint64_t bytes() const;
};

// Those that are there. Throws ConfigError: the source has no config.json, or a file cannot be read.
CopiedFiles read_copied_files(const SaveOptions& options);
// How many bytes those will be, without reading them.
std::uint64_t copied_bytes(const SaveOptions& options);

}  // namespace tandem::trainer

// The files that a run learns from, data.prompts and data.held_out_file: read once a host, and known by their
// content.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/data/file_copy.h"

namespace tandem::trainer {

// While it lives, whoever asks for one of the files in this process (FileCopy::of) gets the copy that it
// holds.
class DataFiles {
  public:
    // Reads them. Throws ConfigError.
    explicit DataFiles(const RunConfig& config);
    // Takes the copies of the process that started this one (environment()), or reads where there are none.
    static DataFiles of_parent(const RunConfig& config);
    // Collective: one rank of each host reads, the others of that host take its copies. Throws ConfigError
    // also when two hosts have files of different content.
    static DataFiles of_host(const RunConfig& config, comm::Communicator& world);

    // "KEY=value" for processes that call of_parent, while this object lives.
    std::vector<std::string> environment() const;

  private:
    DataFiles() = default;
    std::vector<std::shared_ptr<const FileCopy>> copies_;  // in the order of the keys
};

// What the files hold now: key -> path, bytes, lines, XXH3-128, and that of the first lines up to some marks.
// Empty for a task without files.
nlohmann::ordered_json data_digests(const RunConfig& config);

// data_digests of a checkpoint against what the files hold now: one sentence for each key whose content is
// another, which says how much is the same. Empty: the same content, wherever it lies.
std::vector<std::string> data_differences(const nlohmann::ordered_json& then, const RunConfig& now);

}  // namespace tandem::trainer

#include "trainer/run/disk_check.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "trainer/checkpoint/room.h"
#include "trainer/data/make_task.h"
#include "trainer/loss/config.h"
#include "trainer/run/earlier_run.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBesideTensors = std::uint64_t{64} << 10;  // of a checkpoint to resume from

// The folder of the runs, or the one in which it will be made.
fs::path existing_folder(const std::string& output) {
    fs::path folder = fs::absolute(output);
    while (!fs::exists(folder) && folder.has_parent_path() && folder != folder.parent_path())
        folder = folder.parent_path();
    return folder;
}

// Blocks of the files in a folder.
std::uint64_t bytes_on_disk(const std::string& folder) {
    std::uint64_t bytes = 0;
    std::error_code none;
    for (fs::recursive_directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
        struct stat status {};
        if (::lstat(at->path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
            bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
    return bytes;
}

// Those that are there at once: one more than are kept, while it is written.
std::int64_t most_training_checkpoints(const RunConfig& c) {
    if (c.checkpoint.every == 0) return 0;
    const std::int64_t steps = c.sft.steps + c.grpo.steps;
    const std::int64_t written = (steps + c.checkpoint.every - 1) / c.checkpoint.every;
    return std::min(c.checkpoint.keep + 1, written);
}

}  // namespace

SaveOptions save_options(const RunConfig& c) {
    SaveOptions options;
    options.dtype = dtype_from_name(c.checkpoint.dtype);
    options.shard_bytes =
        static_cast<std::size_t>(c.checkpoint.shard_gib * static_cast<double>(std::size_t{1} << 30));
    options.source = c.model.path;
    options.tokenizer = c.data.tokenizer;
    options.generation = generation_directory(c);
    return options;
}

std::uint64_t training_bytes(const RunConfig& c, const model::ModelConfig& model) {
    const std::uint64_t states = needs_reference(c) ? 4 : 3;  // weights, two moments, the reference model
    return states * sizeof(float) * static_cast<std::uint64_t>(model.parameter_count()) + kBesideTensors;
}

void check_room(const RunConfig& c, const config::Schema& s, const model::ModelConfig& model) {
    const fs::path folder = existing_folder(c.run.output);
    const std::uint64_t last = checkpoint_bytes(model, save_options(c));
    const std::uint64_t training = training_bytes(c, model);
    const auto several = static_cast<std::uint64_t>(most_training_checkpoints(c));
    std::uint64_t there = room_in(folder.string());
    // What an earlier run left in the working folder goes, or is some of it.
    if (fate_of_working_folder(c) != RunDirectory::Earlier::keep) there += bytes_on_disk(c.working_folder());
    const std::uint64_t needed = last + several * training;
    if (needed <= there) return;
    const std::string others =
        several == 0 ? ""
                     : fmt::format(", and {} of {} bytes to resume from (checkpoint.keep, and the next)",
                                   several, training);
    s.refuse("run.output",
             fmt::format("the run's checkpoints need {} bytes in '{}', {} are there, {} are missing: "
                         "{} for the one at its end{}; make room or choose another folder",
                         needed, folder.string(), there, needed - there, last, others));
}

}  // namespace tandem::trainer

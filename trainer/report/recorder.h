// The loop's output: metrics.jsonl, one line per step, and the progress bar. A default-constructed recorder
// is silent, as on every rank but 0.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/progress.h"

namespace tandem::trainer {

class Recorder {
  public:
    Recorder();
    // Creates the file, and samples.jsonl in its folder; or appends to those of a resumed run.
    // Throws SystemError.
    explicit Recorder(const std::string& metrics_file, bool append = false);
    ~Recorder();

    Recorder(Recorder&&) noexcept;
    Recorder& operator=(Recorder&&) noexcept;

    // One step of a phase ("sft", "grpo", "eval"), numbered from 1; `values` is an object. Written at
    // once; where the disk is full it waits in memory for the next line or flush().
    void step(const std::string& phase, std::int64_t step, std::int64_t total,
              const nlohmann::ordered_json& values);

    // Completions, as lines of samples.jsonl beside the metrics: the objects, with phase and step.
    void samples(const std::string& phase, std::int64_t step,
                 const std::vector<nlohmann::ordered_json>& samples);
    // Writes what waits. Throws SystemError.
    void flush();
    bool silent() const { return file_ == nullptr; }

  private:
    class LineFile;
    void write(LineFile& file, const nlohmann::ordered_json& line) const;

    std::unique_ptr<LineFile> file_;
    std::unique_ptr<LineFile> samples_;
    std::unique_ptr<Progress> progress_;
    std::string phase_;
};

}  // namespace tandem::trainer

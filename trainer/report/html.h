// report.html: one self-contained page about a run, from the files in its folder. No network, no scripts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tandem::trainer {

// summary: summary.json. metrics, samples: the lines of metrics.jsonl and samples.jsonl. config: the run's
// TOML. pipeline: pipeline.json, null without stages. Missing fields are left out of the page.
std::string report_html(const nlohmann::ordered_json& summary,
                        const std::vector<nlohmann::ordered_json>& metrics,
                        const std::vector<nlohmann::ordered_json>& samples, const std::string& config,
                        const nlohmann::ordered_json& pipeline = nullptr);

// Reads DIR/summary.json, metrics.jsonl, samples.jsonl and pipeline.json where they are, and config.toml and writes
// DIR/report.html. Throws ConfigError naming a file that cannot be read, SystemError.
void write_report(const std::string& run_directory);

// The same of a run that has not ended, which the page says: figures come from the steps so far, a last line
// that is being written does not count. facts: what summary.json would say of the configuration (name, task,
// mesh, world_size, seed, version). Returns how far it came: "12 of 60 steps".
std::string write_unfinished_report(const std::string& run_directory, const nlohmann::ordered_json& facts,
                                    std::int64_t total_steps);

}  // namespace tandem::trainer

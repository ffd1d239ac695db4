// report.html: one self-contained page about a run, from the files in its folder. No network, no scripts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tandem::trainer {

// summary: summary.json. metrics, samples: the lines of metrics.jsonl and samples.jsonl. config: the run's
// TOML. Missing fields are left out of the page.
std::string report_html(const nlohmann::ordered_json& summary,
                        const std::vector<nlohmann::ordered_json>& metrics,
                        const std::vector<nlohmann::ordered_json>& samples, const std::string& config);

// Reads DIR/summary.json, metrics.jsonl, samples.jsonl where it is, and config.toml and writes
// DIR/report.html. Throws ConfigError naming the file.
void write_report(const std::string& run_directory);

}  // namespace tandem::trainer

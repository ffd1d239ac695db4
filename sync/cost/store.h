// Measured costs, kept for later sessions of this user: one JSON file, TANDEM_CACHE_DIR/costs.json, else
// $XDG_CACHE_HOME/tandem/costs.json, else ~/.cache/tandem/costs.json. A cache: what cannot be read counts as
// not there, what cannot be written is not kept.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "sync/cost/costs.h"

namespace tandem::sync {

constexpr std::chrono::seconds kCostsValid = std::chrono::hours(7 * 24);

std::filesystem::path costs_file();  // empty: the user has no such folder
std::int64_t seconds_since_1970();

// Nothing where the file has none for this key, or only what was measured longer ago than kCostsValid.
std::optional<Costs> stored_costs(const std::filesystem::path& file, const std::string& key,
                                  std::int64_t now);
// Other keys' costs stay. Readers see the old file or the new one.
void store_costs(const std::filesystem::path& file, const std::string& key, const Costs& costs);

}  // namespace tandem::sync

// The bench's result as a page: `tandem-sync bench --html FILE`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::sync {

// One self-contained page: no network, no scripts, light and dark, fit to print. `result` is run_bench's
// (bench.h); parts whose fields it lacks (totals_ms, predicted_ms, sweep, …) are left out.
std::string bench_html(const nlohmann::json& result);

}  // namespace tandem::sync

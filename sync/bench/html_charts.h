// The pictures of the bench's page, each from run_bench's result.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::sync {

std::string ms(double value);  // "0.35 ms", "121.4 ms"

std::string phase_chart(const nlohmann::json& result);         // one sync on a time line
std::string iterations_chart(const nlohmann::json& result);    // needs totals_ms
std::string distribution_chart(const nlohmann::json& result);  // needs totals_ms
std::string comparison_chart(const nlohmann::json& result);    // measured, predicted, speed of light
std::string staging_chart(const nlohmann::json& result);
std::string sweep_charts(const nlohmann::json& result);  // empty without a sweep

}  // namespace tandem::sync

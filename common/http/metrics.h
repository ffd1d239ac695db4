// A single value of what a server says in Prometheus's text format (GET /metrics).
#pragma once

#include <optional>
#include <string_view>

namespace tandem::http {

// Of the first line of the metric `name` that has this label: metric_value(text, "vllm:engine_sleep_state",
// "sleep_state=\"awake\""). Nothing where there is none.
std::optional<double> metric_value(std::string_view text, std::string_view name, std::string_view label);

}  // namespace tandem::http

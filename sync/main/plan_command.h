// `tandem-sync plan`: which bytes would travel from a trainer's layout to an engine's.
#pragma once

#include <string>

#include "sync/bench/plan_report.h"

namespace CLI {
class App;
}

namespace tandem::sync {

struct PlanArguments {
    PlanReportOptions options;  // but the dtypes
    std::string source_dtype = "bfloat16";
    std::string engine_dtype = "bfloat16";
    bool json = false;
};

void add_options(CLI::App& app, PlanArguments& arguments);
int plan_command(PlanArguments arguments);  // returns the exit code

}  // namespace tandem::sync

#include "common/json_text.h"
#include "sync/main/commands.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/error.h"
#include "common/ops/half.h"

namespace tandem::sync {
namespace {

DType dtype_option(const char* option, const std::string& name) {
    try {
        const DType dtype = dtype_from_name(name);
        enforce(ops::copy_casts(DType::float32, dtype),
                "must be float32, bfloat16 or float16: what is quantised travels as bench shows it");
        return dtype;
    } catch (const InvalidArgument& error) {
        throw ConfigError("command line", option, error.what());
    }
}

}  // namespace

void add_options(CLI::App& app, PlanArguments& plan) {
    const auto option = [&app](const char* name, auto& value, const std::string& help) {
        return app.add_option(name, value, help)->capture_default_str();
    };
    option("--shapes", plan.options.shapes, "model: a JSON file or a name, as for bench");
    add_mesh(app, plan.options.mesh,
             "sizes of the trainer's mesh, or axes by name: dp=8,tp=4,pp=2 (dp, dp_replicate, cp, tp, pp)");
    option("--placements", plan.options.placements,
           "one for each axis, like S(0),R; default: sharded along dim 0 over the last axis");
    option("--expert-mesh", plan.options.expert_mesh, "ep,fsdp: each expert lies on fsdp ranks")
        ->delimiter(',');
    option("--engine-tp", plan.options.engine.tp, "tensor-parallel engine ranks");
    option("--engine-ep", plan.options.engine.ep, "expert-parallel engine ranks");
    app.add_flag("!--unfused", plan.options.engine.fused, "q, k, v, gate and up as tensors of their own");
    option("--source-dtype", plan.source_dtype, "as the trainer holds it");
    option("--engine-dtype", plan.engine_dtype, "as the engine holds it");
    app.add_flag("--json", plan.json, "one JSON object instead of a table");
}

int plan_command(PlanArguments plan) {
    plan.options.source_dtype = dtype_option("--source-dtype", plan.source_dtype);
    plan.options.engine_dtype = dtype_option("--engine-dtype", plan.engine_dtype);
    const nlohmann::json report = plan_report(plan.options);
    std::cout << (plan.json ? text_of_json(report, 2) + "\n" : plan_table(report));
    return 0;
}

}  // namespace tandem::sync

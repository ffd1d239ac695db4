#include <fmt/core.h>

#include "sync/bench/bench.h"
#include "sync/bench/trainer_mesh.h"

namespace tandem::sync {
namespace {

std::string mib(const nlohmann::json& bytes) {
    return fmt::format("{:.1f} MiB", bytes.get<double>() / 1048576.0);
}
std::string row(const std::string& name, const std::string& value, const std::string& note = "") {
    return fmt::format("  {:<18}{:>12}   {}\n", name, value, note);
}

// Whether its cores share a cache, what it copied then, and what that made of the syncs.
std::string machine_rows(const nlohmann::json& r) {
    const nlohmann::json& machine = r.at("machine");
    std::string note = "when last seen";
    if (const double ns = machine.at("core_ns").get<double>(); ns > 0)
        note = fmt::format("a line takes {:.0f} ns between them", ns);
    if (r.contains("calibration")) {
        const nlohmann::json& costs = r.at("calibration");
        note += fmt::format("; calibrated {} s ago at {:.1f} GB/s", costs.at("age_s").get<std::int64_t>(),
                            costs.at("copy_gbps").get<double>());
    }
    const int again = machine.at("measured_again").get<int>(),
              changed = machine.at("buckets_changed").get<int>();
    if (again + changed > 0) note += fmt::format("; again {} x, other buckets {} x", again, changed);
    std::string text = row("cores", machine.at("cores").get<std::string>(), note);
    if (r.at("by_cores").size() < 2) return text;
    for (const auto& [cores, part] : r.at("by_cores").items()) {
        text += row("  " + cores, fmt::format("{:.2f} x", part.at("speed_of_light_ratio").get<double>()),
                    fmt::format("{} syncs, {:.2f} ms at {:.1f} GB/s", part.at("syncs").get<int>(),
                                part.at("median_ms").get<double>(), part.at("copy_gbps").get<double>()));
    }
    return text;
}

}  // namespace

std::string bench_table(const nlohmann::json& r) {
    const auto ms = [](const nlohmann::json& value) { return fmt::format("{:.2f} ms", value.get<double>()); };
    const nlohmann::json& phase = r.at("phase_ms");
    const std::string mesh = mesh_text(r.at("mesh"));
    std::string text =
        fmt::format("{} · {} → {} · mesh {} · {} · {} buckets of {}, depth {}\n",
                    r.at("shapes").get<std::string>(), r.at("source_dtype").get<std::string>(),
                    r.at("engine_dtype").get<std::string>(), mesh, r.at("mode").get<std::string>(),
                    r.at("buckets").get<int>(), mib(r.at("bucket_bytes")), r.at("depth").get<int>());
    text += r.at("hardware").get<std::string>() + "\n\n";
    text += row("pause to resume", ms(r.at("median_ms")),
                fmt::format("median of {}; p95 {}", r.at("iterations").get<int>(), ms(r.at("p95_ms"))));
    text += row("speed of light", ms(r.at("speed_of_light_ms")),
                fmt::format("one copy of the same {} at {:.1f} GB/s", mib(r.at("bytes")),
                            r.at("copy_gbps").get<double>()));
    text += row("ratio", fmt::format("{:.2f} x", r.at("speed_of_light_ratio").get<double>()),
                fmt::format("{:.1f} GB/s; {:.2f} x with prepare", r.at("gbps").get<double>(),
                            r.at("prepared_ratio").get<double>()));
    if (r.contains("predicted_ms")) {
        const double predicted = r.at("predicted_ms").get<double>();
        text += row("predicted", ms(r.at("predicted_ms")),
                    fmt::format("{:+.0f}% of what was measured; buckets by {}",
                                100 * (predicted / r.at("median_ms").get<double>() - 1),
                                r.at("chosen_by").get<std::string>()));
    }
    if (r.contains("machine")) text += machine_rows(r);
    text += row("moved", mib(r.at("bytes_moved")),
                fmt::format("from the trainer's memory to the engine's{}",
                            r.value("relayed", false) ? ", handed over on each core" : ""));
    text += row("prepare", ms(phase.at("prepare")), "before the pause");
    text += row("pause", ms(phase.at("pause")), "engine stopped, version opened");
    text += row("gather", ms(phase.at("gather")), "ranks filling buckets (overlaps copy)");
    text += row("copy", ms(phase.at("copy")), "engine copying and verifying (overlaps gather)");
    text += row("load", ms(phase.at("load")), "what gather did not hide, and the commit");
    text += row("resume", ms(phase.at("resume")));
    text += row("finish", ms(phase.at("finish")), "after it: the ranks agree on the outcome");
    text += row("pack", ms(phase.at("pack")), "engine's layout for products, at its first request");
    text += row("staging", mib(r.at("staging_peak_bytes")), "peak; cap " + mib(r.at("staging_cap_bytes")));
    text += row("allocations", std::to_string(r.at("steady_state_allocations").get<std::int64_t>()),
                "in the timed syncs");
    text += row("verified", r.at("verified").get<bool>() ? "yes" : "NO",
                "first and last iteration, every byte, by XXH3-128");
    return text;
}

}  // namespace tandem::sync

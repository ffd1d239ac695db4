// ops_bench [--json] [PART]…: rates of the CPU ops, all or some parts of them (kParts), each verified first, with the
// machine's own rates measured in the same run.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "common/ops/matmul.h"
#include "tests/bench/ops/bench.h"

namespace tandem::bench {

namespace {

double thread_ms() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double ms_of(const std::function<void()>& body) {
    const double start = thread_ms();
    body();
    return thread_ms() - start;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace

double median_ms(const std::function<void()>& body, int runs) {
    body();
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) times.push_back(ms_of(body));
    return median(times);
}

InTurns in_turns(const std::function<void()>& body, const std::function<void()>& light, int runs) {
    body();
    light();
    std::vector<double> times, ratios;
    double before = ms_of(light);
    for (int i = 0; i < runs; ++i) {
        times.push_back(ms_of(body));
        const double behind = ms_of(light);
        ratios.push_back((before + behind) / 2 / times.back());
        before = behind;
    }
    return {median(times), median(ratios)};
}

Tensor random_tensor(const Shape& shape, DType dtype, unsigned seed) {
    std::minstd_rand generator(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    Tensor result = Tensor::zeros(shape, dtype, "bench");
    if (dtype == DType::float32) {
        for (float& value : result.values<float>()) value = uniform(generator);
    } else {
        for (bfloat16& value : result.values<bfloat16>()) value = bfloat16(uniform(generator));
    }
    return result;
}

namespace {

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown CPU";
}

void print(const Table& table, bool json) {
    if (json) {
        nlohmann::json rows = nlohmann::json::array();
        for (const Row& row : table.rows) {
            rows.push_back({{"what", row.what},
                            {"median_ms", row.median_ms},
                            {"rate", row.rate},
                            {"unit", row.unit},
                            {"ratio", row.ratio},
                            {"against", row.against}});
        }
        fmt::print(
            "{}\n",
            nlohmann::json{{"cpu", cpu_model()}, {"threads", ops::compute_threads()}, {"rows", rows}}.dump(
                2));
        return;
    }
    fmt::print("{}, {} thread(s)\n{:<52}{:>11}{:>11}\n", cpu_model(), ops::compute_threads(), "", "median ms",
               "rate");
    for (const Row& row : table.rows) {
        fmt::print("{:<52}{:>11.3f}{:>11.1f} {}", row.what, row.median_ms, row.rate, row.unit);
        if (row.ratio > 0) fmt::print("  {:.2f} of {}", row.ratio, row.against);
        fmt::print("\n");
    }
}

struct Part {
    std::string_view option;
    void (*measure)(Table& table);
};
constexpr Part kParts[] = {{"--products", matmul_rows},
                           {"--attention", attention_rows},
                           {"--copies", copy_rows},
                           {"--encodings", encode_rows},  // of deltas, quantized
                           {"--rows", row_rows}};         // what goes over rows alone

int run(std::span<char*> arguments) {
    bool json = false;
    std::vector<const Part*> chosen;
    for (const std::string_view argument : arguments) {
        const auto* part = std::find_if(std::begin(kParts), std::end(kParts),
                                        [&](const Part& each) { return each.option == argument; });
        if (part != std::end(kParts)) {
            chosen.push_back(part);
        } else if (argument == "--json") {
            json = true;
        } else {
            fmt::print(stderr, "usage: ops_bench [--json]");
            for (const Part& each : kParts) fmt::print(stderr, " [{}]", each.option);
            fmt::print(stderr, "\n");
            return 2;
        }
    }
    Table table;
    for (const Part& part : kParts) {
        if (chosen.empty() || std::find(chosen.begin(), chosen.end(), &part) != chosen.end())
            part.measure(table);
    }
    print(table, json);
    return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
    return tandem::bench::run({argv + 1, argv + argc});
}

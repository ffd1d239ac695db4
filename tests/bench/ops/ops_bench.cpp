// ops_bench [--json] [--products | --attention | --rows]: rates of the CPU ops (of products, attention or what goes over
// rows alone), each verified first, with the machine's own rates measured in the same run.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "common/ops/matmul.h"
#include "tests/bench/ops/bench.h"

namespace tandem::bench {

namespace {

double thread_ms() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

}  // namespace

double median_ms(const std::function<void()>& body, int runs) {
    body();
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) {
        const double start = thread_ms();
        body();
        times.push_back(thread_ms() - start);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

Tensor random_tensor(const Shape& shape, DType dtype, unsigned seed) {
    std::minstd_rand generator(seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    Tensor result = Tensor::zeros(shape, dtype, "bench");
    for (std::int64_t i = 0; i < result.numel(); ++i) {
        if (dtype == DType::float32) {
            result.data<float>()[i] = uniform(generator);
        } else {
            result.data<bfloat16>()[i] = bfloat16(uniform(generator));
        }
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

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
    bool json = false, products = true, attention = true, others = true, rows = true;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--json") {
            json = true;
        } else if (argument == "--products") {
            attention = others = rows = false;
        } else if (argument == "--attention") {
            products = others = rows = false;
        } else if (argument == "--rows") {
            products = attention = others = false;
        } else {
            fmt::print(stderr, "usage: ops_bench [--json] [--products | --attention | --rows]\n");
            return 2;
        }
    }
    tandem::bench::Table table;
    if (products) tandem::bench::matmul_rows(table);
    if (attention) tandem::bench::attention_rows(table);
    if (others) {
        tandem::bench::copy_rows(table);
        tandem::bench::encode_rows(table);
    }
    if (rows) tandem::bench::row_rows(table);
    tandem::bench::print(table, json);
    return 0;
}

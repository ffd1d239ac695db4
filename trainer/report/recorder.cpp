#include "trainer/report/recorder.h"

#include <fmt/core.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace tandem::trainer {
namespace {

// The metrics of a step that the terminal shows.
std::string progress_text(const nlohmann::ordered_json& values) {
    const auto add = [&](std::string& text, const char* key, fmt::format_string<double> format) {
        if (values.contains(key)) text += fmt::format(format, values.at(key).get<double>());
    };
    std::string text;
    if (!values.contains("reward")) {
        add(text, "loss", "loss {:.3f}");
        return text;
    }
    add(text, "reward", "reward {:.3f}");
    add(text, "response_length_mean", "  length {:.1f}");
    add(text, "entropy", "  entropy {:.2f}");
    return text;
}

}  // namespace

Recorder::Recorder() : file_(nullptr, std::fclose), samples_(nullptr, std::fclose) {}

Recorder::Recorder(const std::string& metrics_file, bool append)
    : file_(std::fopen(metrics_file.c_str(), append ? "a" : "w"), std::fclose),
      samples_(nullptr, std::fclose) {
    if (file_ == nullptr) throw SystemError("create " + metrics_file, errno);
    const std::string samples_file =
        std::filesystem::path(metrics_file).replace_filename("samples.jsonl").string();
    samples_.reset(std::fopen(samples_file.c_str(), append ? "a" : "w"));
    if (samples_ == nullptr) throw SystemError("create " + samples_file, errno);
}

Recorder::~Recorder() = default;

// Flushed at once. A completion need not be UTF-8.
void Recorder::write(const File& file, const nlohmann::ordered_json& line) const {
    const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    fmt::print(file.get(), "{}\n", text);
    if (std::fflush(file.get()) != 0) throw SystemError("write metrics", errno);
}

void Recorder::samples(const std::string& phase, std::int64_t step,
                       const std::vector<nlohmann::ordered_json>& samples) {
    if (silent()) return;
    for (const auto& sample : samples) {
        nlohmann::ordered_json line{{"phase", phase}, {"step", step}};
        line.update(sample);
        write(samples_, line);
    }
}

void Recorder::step(const std::string& phase, std::int64_t step, std::int64_t total,
                    const nlohmann::ordered_json& values) {
    if (file_ == nullptr) return;
    nlohmann::ordered_json line{{"phase", phase}, {"step", step}};
    line.update(values);
    write(file_, line);

    if (phase == "eval") {
        progress_.reset();
        phase_.clear();
        std::string sampled;
        if (values.contains("reward"))
            sampled = fmt::format("{:.3f} sampled, ", values["reward"].get<double>());
        fmt::print(stderr, "eval   after {} steps: reward {}{:.3f} greedy (held-out prompts)\n", step,
                   sampled, values.at("greedy").get<double>());
        return;
    }
    if (phase != phase_) {
        progress_.reset();
        progress_ = std::make_unique<Progress>(phase, total);
        phase_ = phase;
    }
    progress_->update(step, progress_text(values));
}

}  // namespace tandem::trainer

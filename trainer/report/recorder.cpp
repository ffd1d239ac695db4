#include "trainer/report/recorder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/console.h"
#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/json_text.h"
#include "common/log.h"

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

// A file that grows by lines.
class Recorder::LineFile {
  public:
    LineFile(const std::string& path, bool append)
        : path_(path),
          file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC),
                       0644)) {
        if (!file_) throw SystemError("create " + path, errno);
    }
    void add(const std::string& text) {
        const bool waited = !waiting_.empty();
        waiting_ += text;
        const int error = write_out();
        if (error == 0) return;
        if (error != ENOSPC && error != EDQUOT) throw SystemError("write " + path_, error);
        if (!waited) log_warn("{} has no room on the disk: its lines wait in memory", path_);
    }
    void flush() {
        if (const int error = write_out(); error != 0) throw SystemError("write " + path_, error);
    }

  private:
    int write_out() {
        while (!waiting_.empty()) {
            const ssize_t written = ::write(file_.get(), waiting_.data(), waiting_.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return written < 0 ? errno : ENOSPC;
            waiting_.erase(0, static_cast<std::size_t>(written));
        }
        return 0;
    }

    std::string path_;
    FileDescriptor file_;
    std::string waiting_;
};

Recorder::Recorder() = default;

Recorder::Recorder(const std::string& metrics_file, bool append)
    : file_(std::make_unique<LineFile>(metrics_file, append)),
      samples_(std::make_unique<LineFile>(
          std::filesystem::path(metrics_file).replace_filename("samples.jsonl").string(), append)) {}

Recorder::~Recorder() = default;
Recorder::Recorder(Recorder&&) noexcept = default;
Recorder& Recorder::operator=(Recorder&&) noexcept = default;

// A completion need not be UTF-8.
void Recorder::write(LineFile& file, const nlohmann::ordered_json& line) const {
    file.add(text_of_json(line) + "\n");
}

void Recorder::flush() {
    if (silent()) return;
    file_->flush();
    samples_->flush();
}

void Recorder::samples(const std::string& phase, std::int64_t step,
                       const std::vector<nlohmann::ordered_json>& samples) {
    if (silent()) return;
    for (const auto& sample : samples) {
        nlohmann::ordered_json line{{"phase", phase}, {"step", step}};
        line.update(sample);
        write(*samples_, line);
    }
}

void Recorder::step(const std::string& phase, std::int64_t step, std::int64_t total,
                    const nlohmann::ordered_json& values) {
    if (file_ == nullptr) return;
    nlohmann::ordered_json line{{"phase", phase}, {"step", step}};
    line.update(values);
    write(*file_, line);

    if (phase == "eval") {
        progress_.reset();
        phase_.clear();
        std::string sampled;
        if (values.contains("reward"))
            sampled = fmt::format("{:.3f} sampled, ", values["reward"].get<double>());
        tell(stderr, fmt::format("eval   after {} steps: reward {}{:.3f} greedy (held-out prompts)\n", step,
                                 sampled, values.at("greedy").get<double>()));
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

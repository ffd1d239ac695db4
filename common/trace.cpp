// The recorder behind trace.h: one list of finished spans under a lock, written out as Chrome trace events.
#include "common/trace.h"

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/json_text.h"

namespace tandem::trace {
namespace {

struct Span {
    std::string name;
    std::string category;
    std::int64_t start_us;
    std::int64_t duration_us;
    int thread;
};

struct Recorder {
    std::atomic<bool> on{false};
    std::mutex mutex;
    std::string process_name;
    int process_id = 0;
    std::vector<Span> spans;
    std::unordered_map<std::thread::id, int>
        threads;  // small numbers for the viewer's rows, in order of first span
};

Recorder& recorder() {
    static Recorder* instance = new Recorder;  // outlives scopes in static destructors
    return *instance;
}

thread_local int t_muted = 0;  // Muteds that live

// steady_clock is CLOCK_MONOTONIC on Linux, which every process of a host shares.
std::int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

void enable(const std::string& process_name, int process_id) {
    Recorder& r = recorder();
    const std::lock_guard lock(r.mutex);
    r.process_name = process_name;
    r.process_id = process_id;
    r.on.store(true);
}

bool enabled() {
    return recorder().on.load(std::memory_order_relaxed);
}

Scope::Scope(std::string_view name, std::string_view category) {
    if (!enabled() || t_muted > 0) return;
    name_ = name;
    category_ = category;
    start_us_ = now_us();
}

Muted::Muted() {
    ++t_muted;
}

Muted::~Muted() {
    --t_muted;
}

Scope::~Scope() {
    if (start_us_ < 0) return;
    const std::int64_t end_us = now_us();
    Recorder& r = recorder();
    const std::lock_guard lock(r.mutex);
    const int thread =
        r.threads.try_emplace(std::this_thread::get_id(), static_cast<int>(r.threads.size())).first->second;
    r.spans.push_back({std::move(name_), std::move(category_), start_us_, end_us - start_us_, thread});
}

std::string take_json() {
    Recorder& r = recorder();
    std::vector<Span> spans;
    std::string process_name;
    int process_id = 0;
    {
        const std::lock_guard lock(r.mutex);
        spans = std::exchange(r.spans, {});
        process_name = r.process_name;
        process_id = r.process_id;
    }
    auto events = nlohmann::json::array();
    if (enabled()) {
        events.push_back(
            {{"name", "process_name"}, {"ph", "M"}, {"pid", process_id}, {"args", {{"name", process_name}}}});
    }
    for (const Span& span : spans) {
        events.push_back({{"name", span.name},
                          {"cat", span.category},
                          {"ph", "X"},
                          {"ts", span.start_us},
                          {"dur", span.duration_us},
                          {"pid", process_id},
                          {"tid", span.thread}});
    }
    return text_of_json(events);
}

}  // namespace tandem::trace

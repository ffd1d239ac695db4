// EmbeddedEngine between two steps, with the lock held: queues new requests, applies pauses, aborts and
// commits, and answers the requests that have ended.
#include <algorithm>
#include <memory>

#include "common/error.h"
#include "engine_adapter/embedded/embedded_engine.h"

namespace tandem::engine {

std::vector<std::function<void()>> EmbeddedEngine::serve_requests() {
    if (restart_) scheduler_.restart_all();
    restart_ = false;
    for (Live& live : live_) {
        if (live.job->outputs.empty()) scheduler_.add(live.job);
    }
    std::vector<std::function<void()>> calls;
    apply_aborts();
    for (Pause& pause : std::exchange(pauses_, {})) {
        if (pause.mode == PauseMode::abort) {
            aborts_.emplace_back();
            apply_aborts();
        } else if (pause.mode == PauseMode::retract) {
            scheduler_.retract_all();
        }
        calls.push_back(std::move(pause.paused));
    }
    if (stopping_) {
        answer_all({Code::unavailable, "the engine is shutting down"});
    } else if (const std::string reason = refusal(); !reason.empty()) {
        answer_all({Code::unavailable, reason});
    }
    drop_late_and_gone();
    for (auto live = live_.begin(); live != live_.end();) {
        const auto next = std::next(live);
        if (live->job->unfinished == 0) answer(live, {});
        live = next;
    }
    serve_idle_waiters(calls);
    counts_ = scheduler_.counts();
    pages_free_ = cache_.pool().free();
    for (auto& work : std::exchange(work_, {})) calls.push_back(std::move(work));
    for (Answer& answer : std::exchange(answers_, {})) {
        calls.push_back([answer = std::make_shared<Answer>(std::move(answer))] {
            answer->done(std::move(answer->result));
        });
    }
    return calls;
}

namespace {

std::vector<bool> named_by(const std::string& id, const GenerateRequest& request) {
    std::vector<bool> named;
    for (const Prompt& prompt : request.prompts) {
        named.push_back(request.named ? prompt.id.starts_with(id) : prompt.id == id || request.id == id);
    }
    return named;
}

}  // namespace

// Requests of which nothing is left to do are answered by serve_requests().
void EmbeddedEngine::apply_aborts() {
    for (const std::string& id : std::exchange(aborts_, {})) {
        for (auto live = live_.begin(); live != live_.end();) {
            const auto next = std::next(live);
            if (id.empty()) {
                answer(live, {});
            } else {
                scheduler_.abort(*live->job, named_by(id, live->job->request));
            }
            live = next;
        }
    }
}

void EmbeddedEngine::serve_idle_waiters(std::vector<std::function<void()>>& calls) {
    const bool idle = live_.empty();
    std::erase_if(idle_waiters_, [&](IdleWaiter& waiter) {
        if (!idle && !stopping_ && !waiter.deadline.passed()) return false;
        calls.emplace_back([done = std::move(waiter.done), idle] { done(idle); });
        return true;
    });
}

void EmbeddedEngine::drop_late_and_gone() {
    const auto now = std::chrono::steady_clock::now();
    for (auto live = live_.begin(); live != live_.end();) {
        const auto next = std::next(live);
        if (now - live->arrived > options_.request_timeout) {
            const double seconds = std::chrono::duration<double>(options_.request_timeout).count();
            answer(live, {Code::deadline,
                          fmt::format("request {} was not finished within {} s{}", live->job->request.id,
                                      seconds, paused_ || held_ ? "; generation is paused" : "")});
        } else if (live->gone && live->gone()) {
            answer(live, {Code::unavailable, "the client went away"});
        }
        live = next;
    }
}

void EmbeddedEngine::answer(std::list<Live>::iterator live, Status status) {
    const std::shared_ptr<Job> job = live->job;
    scheduler_.remove(*job);
    GenerateResult result;
    result.status = std::move(status);
    if (result.status.ok()) result.samples = std::move(job->outputs);
    for (SampleOutput& sample : result.samples) {
        if (sample.tokens.empty()) sample.version = version_;  // it never ran
    }
    result.latency_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - live->arrived).count();
    count(job->request, -1);
    answers_.push_back({std::move(live->done), std::move(result)});
    live_.erase(live);
}

void EmbeddedEngine::answer_all(const Status& status) {
    while (!live_.empty()) answer(live_.begin(), status);
}

}  // namespace tandem::engine

#include "tests/multiproc/fire/clients.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <utility>

#include "common/error.h"
#include "common/http/client.h"

namespace tandem::fire {

using Clock = std::chrono::steady_clock;

namespace {

// Refusals that tell of different versions, requests and addresses count as one.
std::string without_numbers(const std::string& text) {
    static const std::regex number("[0-9a-f]*[0-9][0-9a-f]*");
    return std::regex_replace(text, number, "#");
}

}  // namespace

Clients::Clients(const std::string& url, int count) {
    for (int i = 0; i < count; ++i)
        threads_.emplace_back([this, url, i] { run(url, static_cast<std::uint64_t>(i)); });
}

void Clients::run(const std::string& url, std::uint64_t client) {
    for (std::uint64_t i = 0; !stopping_; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(15));
        if (far_ahead()) continue;
        try {
            e2e::Sample sample = e2e::ask(url, client * 1'000'000 + i);
            newest_version_ = std::max(newest_version_.load(), sample.version);
            const std::lock_guard lock(mutex_);
            samples_.push_back(std::move(sample));
        } catch (const DeadlineExceeded&) {
            const std::lock_guard lock(mutex_);
            ++unanswered_;
        } catch (const std::exception& error) {
            const std::lock_guard lock(mutex_);
            ++refusals_[without_numbers(error.what())];
        }
    }
}

bool Clients::far_ahead() {
    const std::lock_guard lock(mutex_);
    return samples_.size() >= kAhead;
}

std::vector<e2e::Sample> Clients::take() {
    constexpr std::size_t kFew = 10;
    const std::lock_guard lock(mutex_);
    const auto from = samples_.end() - static_cast<std::ptrdiff_t>(std::min(kFew, samples_.size()));
    std::vector<e2e::Sample> few(std::make_move_iterator(from), std::make_move_iterator(samples_.end()));
    samples_.erase(from, samples_.end());
    return few;
}

void Clients::stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
}

Availability::Availability(const std::string& url) : thread_([this, url] { run(url); }) {}

void Availability::run(const std::string& url) {
    const nlohmann::json question = {{"input_ids", {1}}, {"sampling_params", {{"max_new_tokens", 1}}}};
    http::Client client(url);
    std::optional<Clock::time_point> last;
    while (!stopping_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        try {
            client.post_json("/generate", question, Deadline::after_ms(20'000));
        } catch (const std::exception&) {
            continue;
        }
        const auto now = Clock::now();
        if (last) {
            const double gap = std::chrono::duration<double>(now - *last).count();
            (now - *last < kGap ? able_ : unable_) += gap;
            longest_ = std::max(longest_, gap);
        }
        last = now;
    }
}

void Availability::stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

double Availability::share() const {
    return able_ + unable_ > 0 ? able_ / (able_ + unable_) : 0;
}

}  // namespace tandem::fire

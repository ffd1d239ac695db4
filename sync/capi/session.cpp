// The sessions of the C ABI.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/rendezvous.h"
#include "common/error.h"
#include "common/json_text.h"
#include "common/thread.h"
#include "engine_adapter/connect.h"
#include "sync/capi/errors.h"
#include "sync/capi/region.h"
#include "sync/capi/tandem_sync.h"
#include "sync/capi/tensors.h"
#include "sync/cost/speed_of_light.h"
#include "sync/session/finite.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"

namespace {

using namespace tandem;
using namespace tandem::sync;
using capi::guarded;
using capi::read_struct;
using capi::write_struct;
using std::chrono::milliseconds;

// --- a caller's structs in our terms, and back

milliseconds to_ms(double seconds, const char* what) {
    enforce(seconds >= 0.0 && seconds <= 1e6, "{} is {} seconds", what, seconds);
    return milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// Cut to what the caller has room for; nothing where that is nowhere.
void write_text(const std::string& text, char* to, std::size_t capacity) {
    if (to == nullptr || capacity == 0) return;
    const std::size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(to, text.data(), length);
    to[length] = '\0';
}

Deadlines deadlines_of(milliseconds phase) {
    Deadlines all;
    all.prepare = all.pause = all.load = all.commit = phase;
    all.begin = all.abort = all.resume = std::min(all.begin, phase);
    all.transfer = phase * 4;
    return all;
}

// The texts of all ranks, over a gather of equally many bytes from each.
comm::AllGather over(const td_group& group) {
    return [group](const std::string& mine) {
        const auto ranks = static_cast<std::size_t>(group.world_size);
        const auto gather = [&](const void* own, std::size_t bytes, void* all) {
            const int failed = group.all_gather(group.context, own, bytes, all);
            if (failed != 0) {
                throw TransportError("the other ranks", "rendezvous",
                                     fmt::format("the caller's all_gather failed with {}", failed));
            }
        };
        const std::uint64_t length = mine.size();
        std::vector<std::uint64_t> lengths(ranks);
        gather(&length, sizeof length, lengths.data());
        const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
        enforce(longest <= std::uint64_t{1} << 20, "rendezvous: a rank says {} bytes", longest);
        std::vector<std::string> texts(ranks);
        if (longest == 0) return texts;
        std::vector<char> padded(longest);
        std::copy(mine.begin(), mine.end(), padded.begin());
        std::vector<char> all(longest * ranks);
        gather(padded.data(), padded.size(), all.data());
        for (std::size_t rank = 0; rank < ranks; ++rank)
            texts[rank].assign(all.data() + rank * longest, lengths[rank]);
        return texts;
    };
}

struct Options {
    explicit Options(const td_options* given) {
        const td_options options = read_struct(given, "td_options");
        enforce(options.engines != nullptr || options.engine_count == 0, "td_options.engines is NULL");
        for (std::size_t i = 0; i < options.engine_count; ++i) {
            enforce(options.engines[i] != nullptr, "td_options.engines[{}] is NULL", i);
            engines.emplace_back(options.engines[i]);
        }
        const std::string wanted = options.mode == nullptr ? "auto" : options.mode;
        if (wanted != "auto") mode = mode_from_name(wanted);
        phase = options.deadline_s == 0 ? milliseconds(30'000) : to_ms(options.deadline_s, "deadline_s");
        enforce(phase.count() > 0, "a deadline of {} seconds", options.deadline_s);
        session.deadlines = deadlines_of(phase);
        enforce(options.bucket_bytes <= std::size_t{1} << 40, "buckets of {} bytes", options.bucket_bytes);
        enforce(options.depth >= 0, "a depth of {} buckets", options.depth);
        session.bucket_bytes = options.bucket_bytes;
        session.depth = options.depth;
        connect.rollback = options.rollback != 0;
        if (options.in_flight != nullptr) connect.in_flight = engine::in_flight_from_name(options.in_flight);
        if (options.key != nullptr) connect.key = options.key;
    }
    std::vector<std::string> engines;
    std::optional<Mode> mode;  // none: auto
    milliseconds phase{};
    SessionOptions session;
    engine::ConnectOptions connect;
};

td_report report_of(const SyncReport& from, Mode mode, double speed_of_light_ms) {
    td_report report{};
    report.version = from.version;
    report.paused_ms = from.total_ms;
    report.transfer_ms = std::max(0.0, from.total_ms - from.phase_ms.pause - from.phase_ms.resume);
    report.prepare_ms = from.phase_ms.prepare;
    report.speed_of_light_ms = speed_of_light_ms;
    report.bytes = from.bytes;
    report.bytes_moved = from.bytes_moved;
    report.buckets = from.buckets;
    report.mode = mode_name(mode).data();  // of the table's literals
    return report;
}

}  // namespace

// --- the session behind the handle

struct td_session {
    td_session(const td_options* given, const td_group* given_group) : options(given) {
        td_group group{};
        group.world_size = 1;
        if (given_group != nullptr) {
            group = read_struct(given_group, "td_group");
            enforce(group.world_size == 1 || group.all_gather != nullptr, "td_group.all_gather is NULL");
        }
        world = comm::meet(over(group), group.rank, group.world_size, Deadline::after(options.phase));
        world->set_timeout(options.phase * 2);
        connect();
        source = std::make_unique<capi::PublishedTensors>(world);
    }

    void connect() {
        PushStatus status;
        try {
            if (world->rank() == 0) {
                enforce(!options.engines.empty(), "rank 0 was given no engine");
                engines =
                    engine::connect_ranks(options.engines, Deadline::after(options.phase), options.connect);
            }
        } catch (const TransportError& error) {
            status.fail("connect", error.peer(), -1, error.what());
        } catch (const std::exception& error) {
            status.fail("connect", "", -1, error.what());
        }
        throw_on_any_failure(*world, status, "opening the session");
    }

    void publish(const td_tensor* tensors, std::size_t count) {
        if (session) return source->set(tensors, count);
        source->clear();  // of a publishing that failed
        PushStatus status;
        try {
            source->set(tensors, count);
        } catch (const std::exception& error) {
            status.fail("publish", "", -1, error.what());
        }
        throw_on_any_failure(*world, status, "publishing the weights");
        // Engines that a failed set-up has used are connected to anew.
        if (world->rank() == 0 && engines.empty()) reconnect = true;
        if (reconnect) connect();
        reconnect = true;
        mode = options.mode ? *options.mode : choose_mode();
        options.session.mode = mode;
        const bool said = all_say_their_architecture();
        session = std::make_unique<Session>(world, *source, std::move(engines), options.session);
        compared = said && source->architecture() != nullptr;
    }

    bool all_say_their_architecture() const {  // rank 0's
        return !engines.empty() && std::all_of(engines.begin(), engines.end(), [](const auto& one) {
            return one->capabilities().architecture.has_value();
        });
    }

    Mode choose_mode() {
        const bool gathered =
            std::any_of(engines.begin(), engines.end(),  // rank 0's
                        [](const auto& one) { return one->capabilities().takes_gathered_only(); });
        const std::string mine = source->all_shared() && !gathered ? "direct" : "gather";
        const std::vector<std::string> all = gather_texts(*world, mine);
        const bool direct =
            std::all_of(all.begin(), all.end(), [](const auto& one) { return one == "direct"; });
        return direct ? Mode::direct : Mode::gather;
    }

    td_report push(std::int64_t version) {
        enforce(session != nullptr, "nothing has been published: call td_session_publish first");
        return report_of(session->push(version), mode, speed_of_light_ms);
    }

    Options options;
    std::shared_ptr<comm::Communicator> world;
    Engines engines;
    bool reconnect = false;
    bool compared = false;  // the architectures of engines and source
    std::unique_ptr<capi::PublishedTensors> source;
    std::unique_ptr<Session> session;
    Mode mode = Mode::gather;
    double speed_of_light_ms = 0;
    class Turn;
    std::atomic<const char*> busy = nullptr;  // why no other call may begin
};

// One call's turn at a session. Throws BadInput where there is none, or somebody else has it.
class td_session::Turn {
  public:
    explicit Turn(td_session* session, const char* why = "another thread is in a call of this session")
        : session_(session) {
        enforce(session != nullptr, "session is NULL");
        const char* busy = nullptr;
        if (!session->busy.compare_exchange_strong(busy, why)) throw BadInput(busy);
    }
    ~Turn() {
        if (session_ != nullptr) session_->busy = nullptr;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    td_session& operator*() const { return *session_; }
    td_session* operator->() const { return session_; }
    td_session* take() { return std::exchange(session_, nullptr); }  // nobody has a turn after it

  private:
    td_session* session_;
};
using Turn = td_session::Turn;

struct td_push {
    td_push(td_session* of, std::int64_t version)
        : session(of, "a push of this session is not freed yet: td_push_free"),
          result(start_call("for a push", [this, version] { return session->push(version); })) {}
    ~td_push() { result.wait(); }
    Turn session;
    std::shared_future<td_report> result;
};

// --- the functions of tandem_sync.h

uint32_t td_abi_version(void) {
    return TD_ABI_VERSION;
}

int td_session_open(const td_options* options, const td_group* group, td_session** out) {
    return guarded([&] {
        enforce(out != nullptr, "out is NULL");
        *out = nullptr;
        *out = std::make_unique<td_session>(options, group).release();
    });
}

int td_session_close(td_session* session) {
    return guarded([&] {
        if (session == nullptr) return;
        delete Turn(session).take();
    });
}

int td_session_publish(td_session* session, const td_tensor* tensors, size_t count) {
    return guarded([&] { Turn(session)->publish(tensors, count); });
}

int td_session_config(td_session* session, const char* config_json) {
    return guarded([&] {
        const Turn turn(session);
        enforce(turn->session == nullptr, "td_session_config comes before the first td_session_publish");
        if (config_json == nullptr) return turn->source->describe({});
        try {
            const nlohmann::json config = parse_json_file(config_json, "config.json");
            enforce(config.is_object(), "config.json must be a JSON object");
            turn->source->describe({config, "config.json"});
        } catch (const ConfigError& error) {
            throw BadInput(error.what());
        }
    });
}

int td_session_compared(td_session* session, int32_t* compared) {
    return guarded([&] {
        enforce(compared != nullptr, "compared is NULL");
        *compared = Turn(session)->compared ? 1 : 0;
    });
}

int td_session_region(td_session* session, size_t bytes, int32_t versioned, void** out) {
    return guarded([&] {
        enforce(out != nullptr, "out is NULL");
        *out = nullptr;
        const Turn turn(session);
        const auto& world = turn->world;
        *out = versioned != 0 ? static_cast<void*>(capi::make_versioned_region(world, bytes))
                              : static_cast<void*>(capi::make_region(world, bytes));
    });
}

int td_session_push(td_session* session, int64_t version, td_report* out) {
    return guarded([&] { write_struct(out, Turn(session)->push(version), "td_report"); });
}

int td_session_push_async(td_session* session, int64_t version, td_push** out) {
    return guarded([&] {
        enforce(out != nullptr, "out is NULL");
        *out = nullptr;
        *out = std::make_unique<td_push>(session, version).release();
    });
}

int td_push_wait(td_push* push, double timeout_s, td_report* out) {
    return guarded([&] {
        enforce(push != nullptr, "push is NULL");
        if (push->result.wait_for(to_ms(timeout_s, "timeout_s")) != std::future_status::ready)
            throw DeadlineExceeded("the push", "wait", fmt::format("not done after {} seconds", timeout_s));
        write_struct(out, push->result.get(), "td_report");
    });
}

int td_push_abort(td_push* push, const char* reason) {
    return guarded([&] {
        enforce(push != nullptr, "push is NULL");
        push->session->world->abort(reason == nullptr ? "the caller aborted the push" : reason);
    });
}

int td_push_free(td_push* push) {
    return guarded([&] { delete push; });
}

int td_session_check(td_session* session, int32_t* match, char* mismatch, size_t capacity) {
    return guarded([&] {
        const Turn mine(session);
        enforce(match != nullptr, "match is NULL");
        enforce(mine->session != nullptr, "nothing has been published: call td_session_publish first");
        const WeightsMatch found = mine->session->weights_match();
        *match = found.match ? 1 : 0;
        write_text(found.first_mismatch, mismatch, capacity);
    });
}

int td_session_finite(td_session* session, int32_t* finite, char* found, size_t capacity) {
    return guarded([&] {
        const Turn mine(session);
        enforce(finite != nullptr, "finite is NULL");
        enforce(mine->session != nullptr, "nothing has been published: call td_session_publish first");
        const std::string text = non_finite_text(*mine->source, *mine->world);
        *finite = text.empty() ? 1 : 0;
        write_text(text, found, capacity);
    });
}

int td_session_speed_of_light(td_session* session, double* ms) {
    return guarded([&] {
        const Turn mine(session);
        enforce(ms != nullptr, "ms is NULL");
        std::size_t bytes = 0;
        for (const NamedTensor& named : mine->source->tensors())
            bytes += static_cast<std::size_t>(numel(named.tensor.shape())) * dtype_size(named.tensor.dtype());
        enforce(bytes > 0, "nothing has been published: call td_session_publish first");
        SpeedOfLight light(*mine->world, bytes);
        double best = light.measure_ms();
        for (int again = 0; again < 4; ++again) best = std::min(best, light.measure_ms());
        *ms = mine->speed_of_light_ms = best;
    });
}

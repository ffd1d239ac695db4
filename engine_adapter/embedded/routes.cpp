#include "engine_adapter/embedded/routes.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/deadline.h"
#include "common/error.h"
#include "common/json_text.h"
#include "common/ops/batched_copy.h"
#include "engine_adapter/embedded/body_json.h"
#include "engine_adapter/embedded/request_json.h"
#include "engine_adapter/receiver/weight_writer.h"
#include "engine_adapter/transport/tcp/dial.h"

namespace tandem::engine {
namespace {

using http::Request;
using http::Responder;
using nlohmann::json;

RequestLimits limits_of(const EmbeddedEngine& engine, const RouteInfo& info) {
    RequestLimits limits{engine.config().vocab_size, engine.config().max_position_embeddings,
                         engine.options().kv_tokens, info.tokenizer};
    if (!info.no_tokenizer.empty()) limits.no_tokenizer = info.no_tokenizer;
    return limits;
}

const char* name_of(WeightState state) {
    switch (state) {
        case WeightState::none:
            return "none";
        case WeightState::whole:
            return "whole";
        case WeightState::updating:
            return "updating";
        case WeightState::broken:
            return "broken";
    }
    return "none";
}

// A large answer is written elsewhere: the engine's thread has other samples to go on with.
void answer_generate(const RouteInfo& info, const std::shared_ptr<GenerateRequest>& parsed,
                     GenerateResult result, const Responder& responder) {
    constexpr std::size_t kFewSamples = 64;
    if (!result.status.ok()) return responder.fail(result.status);
    const bool few = result.samples.size() <= kFewSamples;
    const auto write = [tokenizer = info.tokenizer, parsed, responder,
                        held = std::make_shared<GenerateResult>(std::move(result))] {
        try {
            responder.send(200, generate_answer(*parsed, *held, tokenizer));
        } catch (const std::exception& error) {
            responder.fail(to_status(error));
        }
    };
    info.background == nullptr || few ? write() : info.background->add(write);
}

void generate_from(EmbeddedEngine& engine, const RouteInfo& info, const std::string& body,
                   const Responder& responder) {
    static std::atomic<std::uint64_t> number{0};
    auto parsed = std::make_shared<GenerateRequest>(parse_generate(body, limits_of(engine, info), number++));
    const auto done = [parsed, responder, info](GenerateResult result) {
        answer_generate(info, parsed, std::move(result), responder);
    };
    engine.generate(*parsed, done, [responder] { return responder.client_gone(); });
}

// Parsing and tokenising a large body takes up to seconds, in which other clients want their answers.
void generate(EmbeddedEngine& engine, const RouteInfo& info, Request& request, const Responder& responder) {
    constexpr std::size_t kSmall = 16384;
    if (info.background == nullptr || request.body.size() <= kSmall)
        return generate_from(engine, info, request.body, responder);
    const auto work = [&engine, info, responder, held = std::make_shared<Request>(std::move(request))] {
        try {
            generate_from(engine, info, held->body, responder);
        } catch (const std::exception& error) {
            responder.fail(to_status(error));
        }
    };
    if (!info.background->post(work))
        responder.fail({Code::unavailable, "too many large requests wait to be parsed"});
}

void pause(EmbeddedEngine& engine, const Request& request, const Responder& responder) {
    const json body = parse_body(request.body);
    check_keys(body, {"mode", "rid", "http_worker_ipc"});
    const json mode = body.value("mode", json("abort"));
    PauseMode wanted = PauseMode::abort;
    if (mode == "retract") {
        wanted = PauseMode::retract;
    } else if (mode == "in_place") {
        wanted = PauseMode::in_place;
    } else {
        enforce(mode == "abort", "mode must be \"abort\", \"retract\" or \"in_place\", is {}", mode.dump());
    }
    engine.pause_generation(wanted, [responder] {
        responder.send(200, {{"status", "ok"}, {"message", "Generation paused"}});
    });
}

void resume(EmbeddedEngine& engine, const Request& request, const Responder& responder) {
    check_keys(parse_body(request.body), {"torch_empty_cache", "rid", "http_worker_ipc"});
    engine.continue_generation();
    responder.send(200, {{"status", "ok"}, {"message", "Generation continued"}});
}

// Of "timeout=SECONDS"; 0 where there is none.
std::chrono::nanoseconds timeout_of(const std::string& query) {
    constexpr std::string_view kName = "timeout=";
    constexpr double kMost = 86400;
    const auto at = ("&" + query).find("&" + std::string(kName));
    if (at == std::string::npos) return {};
    const std::string text = query.substr(at + kName.size(), query.find('&', at) - at - kName.size());
    double seconds = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    enforce(error == std::errc() && end == text.data() + text.size() && seconds >= 0 && seconds <= kMost,
            "timeout must be seconds from 0 to {}, is \"{}\"", kMost, text);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

// Nothing is cached between requests, so an idle cache is a flushed one.
void flush_cache(EmbeddedEngine& engine, const Request& request, const Responder& responder) {
    check_keys(parse_body(request.body), {});
    const Deadline deadline = Deadline::after(timeout_of(request.query));
    engine.when_idle(deadline, [&engine, responder](bool idle) {
        if (idle) return responder.send(200, "Cache flushed.\n", "text/plain");
        const SchedulerCounts counts = engine.state().counts;
        responder.send(400,
                       fmt::format("Cache not flushed: {} samples are running and {} waiting.\n",
                                   counts.running, counts.waiting),
                       "text/plain");
    });
}

// SGLang's tags; "cuda_graph" releases nothing here. None, or an empty list: all.
void memory_occupation(EmbeddedEngine& engine, const Request& request, const Responder& responder,
                       bool release) {
    enforce(request.method == "POST" || !request.body.empty(),
            "{} needs POST, or a body (SGLang's {{}}) where it is {}: a link must not change anything",
            request.path, request.method);
    const json body = parse_body(request.body);
    check_keys(body, {"tags", "rid", "http_worker_ipc"});
    const json tags = body.value("tags", json());
    enforce(tags.is_null() || tags.is_array(), "tags must be a list of \"kv_cache\" and \"weights\"");
    bool kv_cache = tags.empty();
    bool weights = tags.empty();
    for (const json& tag : tags) {
        enforce(tag == "kv_cache" || tag == "weights" || tag == "cuda_graph", "no memory has the tag {}",
                tag.dump());
        kv_cache = kv_cache || tag == "kv_cache";
        weights = weights || tag == "weights";
    }
    engine.between_steps([&engine, responder, release, kv_cache, weights] {
        try {
            release ? engine.release_memory(kv_cache, weights) : engine.restore_memory(kv_cache, weights);
            responder.send(200, "", "text/plain");
        } catch (const std::exception& error) {
            responder.fail(to_status(error));
        }
    });
}

void abort_request(EmbeddedEngine& engine, const Request& request, const Responder& responder) {
    const json body = parse_body(request.body);
    check_keys(body, {"rid", "abort_all", "http_worker_ipc"});
    const json all = body.value("abort_all", json(false));
    const json rid = body.value("rid", json());
    enforce(all.is_boolean(), "abort_all must be true or false");
    enforce(
        all == true || (rid.is_string() && rid != ""),
        "rid (a string that is not empty: the requests whose rid begins so) or abort_all = true is needed");
    if (all == true && request.granted != http::Access::admin) {
        return responder.send(
            403,
            http::error_json("abort_all ends requests of others: it needs the admin API key", "invalid"));
    }
    engine.abort(all == true ? "" : rid.get<std::string>());
    responder.send(200, json::object());
}

void model_info(const EmbeddedEngine& engine, const RouteInfo& info, const Responder& responder) {
    const EngineState state = engine.state();
    json tandem = {{"pid", ::getpid()},
                   {"version", state.version},
                   {"weights", name_of(state.weights)},
                   {"paused", state.paused},
                   {"dtype", dtype_name(engine.options().dtype)},
                   {"vocab_size", engine.config().vocab_size},
                   {"architecture", json(engine.architecture()->as_json())},
                   {"context_length", engine.config().max_position_embeddings}};
    if (!info.receiver.empty()) {
        tandem["receiver"] = info.receiver;
        tandem["host"] = tcp::host_fingerprint();
        if (info.data_port != 0) tandem["data_port"] = info.data_port;
    }
    if (!info.incarnation.empty()) tandem["incarnation"] = info.incarnation;
    if (!state.reason.empty()) tandem["reason"] = state.reason;
    responder.send(200, {{"model_path", info.model_path},
                         {"tokenizer_path", info.tokenizer != nullptr ? json(info.model_path) : json()},
                         {"is_generation", true},
                         {"weight_version", std::to_string(state.version)},
                         {"tandem", std::move(tandem)}});
}

void server_info(const EmbeddedEngine& engine, const RouteInfo& info, const Responder& responder) {
    const EngineState state = engine.state();
    const EmbeddedOptions& options = engine.options();
    responder.send(200, {{"model_path", info.model_path},
                         {"dtype", dtype_name(options.dtype)},
                         {"max_total_num_tokens", options.kv_tokens},
                         {"max_running_requests", options.max_running},
                         {"page_size", options.page_size},
                         {"random_seed", options.random_seed},
                         {"skip_tokenizer_init", info.tokenizer == nullptr},
                         {"disable_cuda_graph", options.disable_cuda_graph},
                         {"cuda_graphs", state.counts.graphs.recorded},
                         {"cuda_graph_steps", state.counts.graphs.replayed},
                         {"pages_free", state.pages_free},
                         {"pages_total", state.pages_total},
                         {"running", state.counts.running},
                         {"waiting", state.counts.waiting},
                         {"prefill_tokens", state.counts.prefill_tokens},
                         {"decode_tokens", state.counts.decode_tokens},
                         {"preemptions", state.counts.preemptions}});
}

Status health_of(const EngineState& state) {
    if (!state.reason.empty()) return {Code::unavailable, state.reason};
    if (state.weights == WeightState::updating) return {Code::unavailable, "new weights are being written"};
    return {};
}

void health(const EmbeddedEngine& engine, const Responder& responder) {
    const Status status = health_of(engine.state());
    if (!status.ok()) return responder.fail(status);
    responder.send(200, "", "text/plain");
}

// Those who wait for one answer, which is found once for all of them: it takes the engine's time.
class Waiters {
  public:
    // True for the first one: the others get its answer.
    bool add(const Responder& responder) {
        const std::lock_guard lock(mutex_);
        const bool first = waiting_.empty();
        if (waiting_.size() >= most_) {  // those who have gone need none, and come again
            std::erase_if(waiting_, [](const Responder& one) { return one.client_gone(); });
            most_ = std::max<std::size_t>(64, 2 * waiting_.size());
        }
        waiting_.push_back(responder);
        return first;
    }
    std::vector<Responder> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(waiting_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<Responder> waiting_;
    std::size_t most_ = 64;  // without a look at who is still there
};

void health_generate(EmbeddedEngine& engine, const std::shared_ptr<Waiters>& waiters,
                     const Responder& responder) {
    const EngineState state = engine.state();
    Status status = health_of(state);
    if (status.ok() && state.paused) status = {Code::unavailable, "generation is paused"};
    if (!status.ok()) return responder.fail(status);
    if (!waiters->add(responder)) return;
    GenerateRequest request;
    request.id = "health";
    Prompt& prompt = request.prompts.emplace_back();
    prompt.tokens = {0};
    prompt.params.max_new_tokens = 1;
    const auto done = [waiters](const GenerateResult& result) {
        for (const Responder& one : waiters->take()) {
            result.status.ok() ? one.send(200, "", "text/plain") : one.fail(result.status);
        }
    };
    engine.generate(std::move(request), done);
}

void weights_checker(EmbeddedEngine& engine, const std::shared_ptr<Waiters>& waiters, const Request& request,
                     const Responder& responder) {
    const json body = parse_body(request.body);
    check_keys(body, {"action", "allow_quant_error", "rid", "http_worker_ipc"});
    const json action = body.value("action", json("checksum"));
    enforce(action == "checksum", "action must be \"checksum\", is {}", action.dump());
    if (!waiters->add(responder)) return;
    engine.between_steps([&engine, waiters] {
        const std::vector<Responder> all = waiters->take();
        if (engine.state().weights == WeightState::updating) {
            for (const Responder& one : all) one.fail({Code::unavailable, "new weights are being written"});
            return;
        }
        json checksums = json::object();
        WeightWriter weights(engine.device());
        for (const WeightSlot& slot : engine.current_weights())
            checksums[slot.info.name] = ops::to_hex(weights.checksum(slot.memory));
        const json answer = {{"success", true},
                             {"message", "XXH3-128 of each tensor's bytes"},
                             {"ranks", json::array({{{"checksums", std::move(checksums)}}})}};
        const std::string text = answer.dump();
        for (const Responder& one : all) one.send(200, text);
    });
}

}  // namespace

void add_routes(http::Server& server, EmbeddedEngine& engine, const RouteInfo& info) {
    // A route that reads nothing from its body still refuses one that is not JSON.
    const auto bodiless = [](std::function<void(const Responder&)> answer) -> http::Handler {
        return [answer = std::move(answer)](const Request& request, const Responder& responder) {
            check_keys(parse_body(request.body), {});
            answer(responder);
        };
    };
    using http::Access;
    const auto admin = [&](const std::string& path, const http::Handler& handler) {
        server.route("POST", path, handler, Access::admin);
    };
    const auto admin_by_get_too = [&](const std::string& path, const http::Handler& handler) {
        for (const char* method : {"GET", "POST"}) server.route(method, path, handler, Access::admin);
    };
    for (const char* method : {"POST", "PUT"}) {
        server.route(method, "/generate",
                     [&engine, info](Request& r, Responder out) { generate(engine, info, r, out); });
    }
    server.route("POST", "/abort_request",
                 [&engine](const Request& r, Responder out) { abort_request(engine, r, out); });
    admin("/pause_generation", [&](const Request& r, Responder out) { pause(engine, r, out); });
    admin("/continue_generation", [&](const Request& r, Responder out) { resume(engine, r, out); });
    admin_by_get_too("/flush_cache", [&](const Request& r, Responder out) { flush_cache(engine, r, out); });
    for (const bool release : {true, false}) {
        admin_by_get_too(release ? "/release_memory_occupation" : "/resume_memory_occupation",
                         [&engine, release](const Request& r, Responder out) {
                             memory_occupation(engine, r, out, release);
                         });
    }
    admin_by_get_too("/weights_checker",
                     [&engine, waiters = std::make_shared<Waiters>()](const Request& r, Responder out) {
                         weights_checker(engine, waiters, r, out);
                     });
    for (const char* path : {"/model_info", "/get_model_info"}) {
        server.route("GET", path,
                     bodiless([&engine, info](const Responder& out) { model_info(engine, info, out); }));
    }
    for (const char* path : {"/server_info", "/get_server_info"}) {
        server.route("GET", path,
                     bodiless([&engine, info](const Responder& out) { server_info(engine, info, out); }));
    }
    server.route("GET", "/health", bodiless([&](const Responder& out) { health(engine, out); }),
                 Access::open);
    server.route("GET", "/health_generate",
                 bodiless([&engine, waiters = std::make_shared<Waiters>()](const Responder& out) {
                     health_generate(engine, waiters, out);
                 }),
                 Access::open);
}

}  // namespace tandem::engine

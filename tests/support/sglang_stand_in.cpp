#include "tests/support/sglang_stand_in.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_adapter/http_api/versions.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {
namespace {

using nlohmann::json;

bool has_type(const json& value, const std::string& type) {
    if (type == "any") return true;
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "number") return value.is_number();
    if (type == "strings") {
        return value.is_array() &&
               std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_string(); });
    }
    return value.is_string() && type.find("[" + value.get<std::string>() + "]") != std::string::npos;
}

}  // namespace

SglangStandIn::SglangStandIn(Options options)
    : options_(std::move(options)),
      weights_(bytes_of_directory(options_.model)),
      model_path_(started_with()),
      server_(
          {.listen = "127.0.0.1:0", .api_key = options_.api_key, .admin_api_key = options_.admin_api_key}) {
    add_info_routes();
    if (options_.update_routes) {
        add_update_routes();
        add_tensor_routes();
    }
    add_memory_routes();
    if (options_.more_routes) options_.more_routes(*this);
    server_.start();
}

SglangStandIn::Answer SglangStandIn::success(const std::string& message) {
    return {200, json{{"success", true}, {"message", message}}.dump()};
}

SglangStandIn::Answer SglangStandIn::failure(const std::string& message) {
    return {400, json{{"success", false}, {"message", message}}.dump()};
}

SglangStandIn::~SglangStandIn() {
    late_.clear();
    server_.stop();
}

void SglangStandIn::hold_some(const std::map<std::string, std::string>& tensors) {
    for (const auto& [name, bytes] : tensors) weights_.at(name) = bytes;
    stale_cache_ = true;
}

bool SglangStandIn::sessions() const {
    return engine::version_numbers(options_.version) >= std::array{0, 5, 21};
}

void SglangStandIn::add_info_routes() {
    const auto user = http::Access::user;
    route(
        "GET", "/model_info", {}, [this](const json&, const std::string&) { return info(); }, user);
    route(
        "GET", "/get_model_info", {}, [this](const json&, const std::string&) { return info(); }, user);
    route(
        "GET", "/server_info", {},
        [this](const json&, const std::string&) {
            // Newer ones keep what they were started with here.
            json body = {{"version", options_.version},
                         {"model_path", sessions() ? started_with() : model_path_},
                         {"dtype", options_.dtype},
                         {"device", options_.device},
                         {"load_format", options_.load_format},
                         {"tp_size", options_.tp},
                         {"dp_size", 1},
                         {"enable_deterministic_inference", false},
                         {"enable_memory_saver", options_.memory_saver},
                         {"internal_states", json::array({json::object()})}};
            if (!options_.quantization.empty()) body["quantization"] = options_.quantization;
            if (options_.plugin != nullptr) {
                body["custom_weight_loader"] = {"tandem_sync.sglang.load"};
                body["internal_states"][0]["tandem"] = options_.plugin->state();
            }
            return Answer{200, body.dump()};
        },
        user);
    route(
        "GET", "/weight_version", {},
        [](const json&, const std::string&) {
            return Answer{404, json{{"object", "error"},
                                    {"message",
                                     "Endpoint '/get_weight_version' or '/weight_version' is "
                                     "deprecated. Please use '/model_info' instead."},
                                    {"code", 404}}
                                   .dump()};
        },
        user);
    if (!sessions()) return;
    route(
        "GET", "/ready", {},
        [this](const json&, const std::string&) {
            return Answer{paused_ ? 503 : 200, ""};
        },
        http::Access::open);
}

SglangStandIn::Answer SglangStandIn::info() const {
    const std::string& tokenizer = options_.tokenizer.empty() ? started_with() : options_.tokenizer;
    const json body = {{"model_path", model_path_},
                       {"tokenizer_path", tokenizer},
                       {"is_generation", true},
                       {"weight_version", version_}};
    return {200, body.dump()};
}

void SglangStandIn::add_update_routes() {
    const auto admin = http::Access::admin;
    const json ok = {{"message", "done"}, {"status", "ok"}};
    route(
        "POST", "/pause_generation", {{"mode", "[abort][retract][in_place]"}},
        [=, this](const json& body, const std::string&) {
            paused_ = true;
            if (body.value("mode", "abort") == "retract") retracted_ += std::exchange(running_, 0);
            if (body.value("mode", "abort") != "abort") return Answer{200, ok.dump()};
            running_ = stray_ = 0;
            run_waiting();
            return Answer{200, ok.dump()};
        },
        admin);
    route(
        "POST", "/continue_generation", {{"torch_empty_cache", "boolean"}},
        [=, this](const json&, const std::string&) {
            if (options_.plugin != nullptr && !options_.plugin->whole())
                violate("resumed with parts of two versions");
            if (stale_cache_) violate("resumed with a prefix cache of weights from before");
            if (version_.starts_with("loading")) violate("resumed while it says that it loads");
            if (session_) violate("resumed in the middle of an update");
            paused_ = stopped_ = false;
            running_ += std::exchange(retracted_, 0);
            return Answer{200, ok.dump()};
        },
        admin);
    route(
        "POST", "/update_weights_from_disk",
        {{"model_path", "string", true},
         {"load_format", "string"},
         {"abort_all_requests", "boolean"},
         {"weight_version", "string"},
         {"is_async", "boolean"},
         {"torch_empty_cache", "boolean"},
         {"keep_pause", "boolean"},
         {"recapture_cuda_graph", "boolean"},
         {"token_step", "number"},
         {"flush_cache", "boolean"}},
        [this](const json& body, const std::string&) { return load(body); }, admin);
    const auto flush_route = [this](const json&, const std::string&) {
        if (running_ + stray_ > 0) return Answer{400, "Flush cache failed.\n"};
        stale_cache_ = false;
        return Answer{200, "Cache flushed.\n"};
    };
    route("POST", "/flush_cache", {}, flush_route, admin);
    route("GET", "/flush_cache", {}, flush_route, admin);
    route(
        "POST", "/update_weight_version",
        {{"new_version", "string", true}, {"abort_all_requests", "boolean"}},
        [this](const json& body, const std::string&) {
            if (body.value("abort_all_requests", true)) {
                violate("the version's route was let end all requests");
                running_ = stray_ = 0;
            }
            version_ = body["new_version"].get<std::string>();
            return success("Weight version updated to " + version_);
        },
        admin);
}

// SGLang ignores fields that it does not know, so that a misspelt one is lost in silence.
std::string SglangStandIn::schema_error(const std::string& path, const std::vector<Field>& fields,
                                        const json& body) {
    if (!body.is_object()) return "Field required";
    for (const auto& [name, value] : body.items()) {
        const auto known = [&, &key = name](const Field& field) { return field.name == key; };
        if (std::none_of(fields.begin(), fields.end(), known)) violate(path + " was sent an unknown " + name);
    }
    for (const Field& field : fields) {
        if (!body.contains(field.name)) {
            if (field.required) return "'" + field.name + "': Field required";
        } else if (!has_type(body[field.name], field.type)) {
            return "'" + field.name + "': Input should be a valid " + field.type;
        }
    }
    return "";
}

void SglangStandIn::route(const std::string& method, const std::string& path, std::vector<Field> fields,
                          Respond respond, http::Access access) {
    const bool has_body = method == "POST" && path != "/flush_cache";
    const auto handle = [=, this](http::Request& request, http::Responder responder) {
        const std::lock_guard lock(mutex_);
        calls_.push_back(method + " " + path);
        const auto fails = options_.fails.find(path);
        if (dead_ || (fails != options_.fails.end() && fails->second == 0)) {
            never_.push_back(std::move(responder));
            return;
        }
        const auto send = [this, responder](const Answer& answer) {
            if (options_.delay.count() == 0) return responder.send(answer.first, answer.second);
            late_.emplace_back([delay = options_.delay, responder, answer] {
                std::this_thread::sleep_for(delay);
                responder.send(answer.first, answer.second);
            });
        };
        if (fails != options_.fails.end()) return send({fails->second, "Internal Server Error"});
        const json body = has_body ? json::parse(request.body, nullptr, false) : json::object();
        if (const std::string error = schema_error(path, fields, body); !error.empty())
            return send({400, json{{"object", "error"}, {"message", error}, {"code", 400}}.dump()});
        if (const auto refuses = options_.refuses.find(path); refuses != options_.refuses.end())
            return send(failure(refuses->second));
        const auto answer = [this, send, respond, body, query = request.query, responder] {
            const Answer said = respond(body, query);
            if (dead_) return never_.push_back(responder);
            send(said);
        };
        // What takes the writer's side of its lock.
        const bool locks = path.starts_with("/update_weights_from");
        if (locks && !paused_ && running_ > 0) return waiting_.push_back(answer);
        answer();
    };
    server_.route(method, path, handle, access);
}

void SglangStandIn::run_waiting() {
    for (const auto& update : std::exchange(waiting_, {})) update();
}

SglangStandIn::Answer SglangStandIn::load(const json& body) {
    if (!paused_ && !body.value("flush_cache", true))
        violate("loaded while it runs, and its prefix cache not emptied in the same step");
    const std::string directory = body["model_path"].get<std::string>();
    if (asleep("weights")) violate("loaded while the memory of its weights is released");
    // What an update does not say is as the server was started with.
    const std::string format = body.value("load_format", options_.load_format);
    if (format != "auto") return failure("Failed to get model loader: " + format + ".");
    Answer answer = load_directory(directory);
    if (answer.first != 200 || dead_) return answer;
    stale_cache_ = true;
    answer = flush_and_take(body);
    if (answer.first == 200 && !dead_) model_path_ = directory;
    return answer;
}

SglangStandIn::Answer SglangStandIn::flush_and_take(const json& body) {
    const Answer answer = flush(body, success("Succeeded to update model weights."));
    if (answer.first == 200 && !dead_ && body.contains("weight_version"))
        version_ = body["weight_version"].get<std::string>();
    return answer;
}

SglangStandIn::Answer SglangStandIn::load_directory(const std::string& directory) {
    std::map<std::string, std::string> found;
    try {
        found = bytes_of_directory(directory);
    } catch (const std::exception& error) {
        return failure(std::string("Failed to get weights iterator: ") + error.what() + ".");
    }
    for (const auto& [name, bytes] : weights_) {
        if (!found.contains(name)) violate("the directory lacks " + name);
    }
    for (const auto& [name, bytes] : found) {
        if (weights_.contains(name)) continue;
        // It reads the same directory again to roll back, which fails again, outside of any handler.
        violate("told to load an unknown " + name);
        dead_ = true;
    }
    if (!dead_) weights_ = std::move(found);
    return success("Succeeded to update model weights.");
}

// The answer to an update that has been done.
SglangStandIn::Answer SglangStandIn::flush(const json& body, Answer answer) {
    if (!body.value("flush_cache", true)) return answer;
    if (running_ + stray_ == 0) {
        stale_cache_ = false;
        return answer;
    }
    if (engine::version_numbers(options_.version) < std::array{0, 5, 23}) {
        violate("a flush that failed an assertion");
        dead_ = true;
    }
    return failure(kNotFlushed);
}

std::string SglangStandIn::url() const {
    return "sglang://127.0.0.1:" + std::to_string(server_.port());
}
void SglangStandIn::set_failure(const std::string& route, int status) {
    const std::lock_guard lock(mutex_);
    options_.fails[route] = status;
}
void SglangStandIn::set_refusal(const std::string& route, const std::string& message) {
    const std::lock_guard lock(mutex_);
    options_.refuses[route] = message;
}
void SglangStandIn::mend() {
    const std::lock_guard lock(mutex_);
    options_.fails.clear();
    options_.refuses.clear();
}
void SglangStandIn::set_running(int requests) {
    const std::lock_guard lock(mutex_);
    running_ = requests;
    if (running_ == 0) run_waiting();
}
void SglangStandIn::set_stray(int requests) {
    const std::lock_guard lock(mutex_);
    stray_ = requests;
}
std::map<std::string, std::string> SglangStandIn::weights() const {
    const std::lock_guard lock(mutex_);
    return weights_;
}
std::string SglangStandIn::weight_version() const {
    const std::lock_guard lock(mutex_);
    return version_;
}
bool SglangStandIn::paused() const {
    const std::lock_guard lock(mutex_);
    return paused_ || stopped_;
}
void SglangStandIn::set_paused(bool paused) {
    const std::lock_guard lock(mutex_);
    paused_ = paused;
}
bool SglangStandIn::dead() const {
    const std::lock_guard lock(mutex_);
    return dead_;
}
std::vector<std::string> SglangStandIn::violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
}
std::vector<std::string> SglangStandIn::calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
}

}  // namespace tandem::test

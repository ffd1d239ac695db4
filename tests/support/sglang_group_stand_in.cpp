#include "tests/support/sglang_group_stand_in.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "tests/unit/common/store/raw_client.h"
#include "tests/unit/engine_adapter/torch_store/words.h"

namespace tandem::test {
namespace {

using nlohmann::json;
namespace store = engine::torch_store;

json answer_of(bool success, const std::string& message) {
    return {{"success", success}, {"message", message}};
}

}  // namespace

// As PyTorch's client: counts itself in, and waits for a key before it gets it.
class SglangGroupStandIn::StoreClient {
  public:
    explicit StoreClient(int port) : socket_(port) {
        socket_.send(store::validate());
        socket_.send(
            store::ask(store::Operation::add, store::text("init/") + store::number<std::int64_t>(1)));
        enforce(socket_.receive(sizeof(std::int64_t)).size() == sizeof(std::int64_t), "no store answers");
    }
    std::string get(const std::string& key) {
        socket_.send(store::ask_keys(store::Operation::wait, {key}));
        enforce(socket_.receive(1) == store::kStop, "the store is gone");
        socket_.send(store::get(key));
        std::uint64_t bytes = 0;
        const std::string size = socket_.receive(sizeof bytes);
        enforce(size.size() == sizeof bytes, "the store is gone");
        std::memcpy(&bytes, size.data(), sizeof bytes);
        return socket_.receive(bytes);
    }

  private:
    RawClient socket_;
};

SglangGroupStandIn::SglangGroupStandIn(Options options) : options_(std::move(options)) {}
SglangGroupStandIn::~SglangGroupStandIn() = default;

void SglangGroupStandIn::add_routes(SglangStandIn& server) {
    const auto admin = http::Access::admin;
    const auto under_lock = [this](auto respond) {
        return [this, respond](const json& body, const std::string&) {
            const std::lock_guard lock(mutex_);
            return respond(body);
        };
    };
    server.route("POST", "/init_weights_update_group",
                 {{"master_address", "string", true},
                  {"master_port", "number", true},
                  {"rank_offset", "number", true},
                  {"world_size", "number", true},
                  {"group_name", "string"},
                  {"backend", "string"}},
                 under_lock([this](const json& body) { return init(body); }), admin);
    server.route("POST", "/destroy_weights_update_group", {{"group_name", "string"}},
                 under_lock([this](const json& body) { return destroy(body); }), admin);
    std::vector<SglangStandIn::Field> fields{{"names", "strings", true},
                                             {"dtypes", "strings", true},
                                             {"shapes", "any", true},
                                             {"group_name", "string"},
                                             {"load_format", "[flattened_bucket]"},
                                             {"flush_cache", "boolean"},
                                             {"abort_all_requests", "boolean"},
                                             {"weight_version", "string"},
                                             {"torch_empty_cache", "boolean"}};
    if (server.sessions()) fields.push_back({"selector", "[target][draft][all]"});
    server.route("POST", "/update_weights_from_distributed", fields,
                 under_lock([this, &server](const json& body) { return update(server, body); }), admin);
}

SglangGroupStandIn::Answer SglangGroupStandIn::init(const json& body) {
    try {
        enforce(body.value("backend", "nccl") == "nccl" && body["rank_offset"] == 1, "{}", body.dump());
        enforce(body["master_address"] == "127.0.0.1", "{} is not where it can be reached", body.dump());
        enforce(body["world_size"] == 1 + options_.ranks, "a group of {}", body["world_size"].dump());
        enforce(group_.empty(), "group {} is still there", group_);
        const int port = body["master_port"].get<int>();
        if (options_.stranger) {
            stranger_ = std::make_unique<RawClient>(port);
            stranger_->send(store::validate() + store::ask_keys(store::Operation::wait, {"/x"}));
        }
        store_ = std::make_unique<StoreClient>(port);
        world_ = body["world_size"].get<int>();
        group_ = body.value("group_name", "weight_update_group");
        return {200, answer_of(true, "Succeeded to initialize custom process group.").dump()};
    } catch (const std::exception& error) {
        return {400,
                answer_of(false, fmt::format("Failed to initialize custom process group: {}.", error.what()))
                    .dump()};
    }
}

SglangGroupStandIn::Answer SglangGroupStandIn::destroy(const json& body) {
    if (body.value("group_name", "weight_update_group") != group_)
        return {400, answer_of(false, "The group to be destroyed does not exist.").dump()};
    workers_.reset();
    store_.reset();
    group_.clear();
    return {200, answer_of(true, "Succeeded to destroy custom process group.").dump()};
}

SglangGroupStandIn::Answer SglangGroupStandIn::update(SglangStandIn& server, const json& body) {
    if (server.sessions() && !server.in_session())
        return {400, answer_of(false,
                               "update_weights_from_distributed must run between begin_weight_update() and "
                               "end_weight_update()")
                         .dump()};
    if (!server.held_back()) server.violate("sent tensors while it runs");
    try {
        server.hold_some(receive(body));
        return {200, answer_of(true, "Succeeded to update parameter online.").dump()};
    } catch (const std::exception& error) {
        return {400, answer_of(false, fmt::format("Failed to receive weights: {}", error.what())).dump()};
    }
}

// PyTorch makes NCCL's communicator with the first collective.
std::map<std::string, std::string> SglangGroupStandIn::receive(const json& body) {
    enforce(body.value("group_name", "weight_update_group") == group_ && !group_.empty(),
            "Please call `init_weights_update_group` first.");
    enforce(body["load_format"] == "flattened_bucket" && !body.value("flush_cache", true), "{}", body.dump());
    if (!workers_) {
        workers_ = std::make_unique<NcclWorkers>(
            *options_.nccl, store_->get("/" + group_ + "/default_pg//cuda//0"), 1, world_, options_.ranks);
        ++groups_;
    }
    std::vector<std::pair<std::string, std::size_t>> tensors;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < body["names"].size(); ++i) {
        const std::size_t element = dtype_size(dtype_from_name(body["dtypes"].at(i).get<std::string>()));
        enforce(bytes % element == 0, "Unaligned received tensor {}", body["names"][i].dump());
        const auto size = static_cast<std::size_t>(numel(body["shapes"].at(i).get<Shape>())) * element;
        tensors.emplace_back(body["names"][i].get<std::string>(), size);
        bytes += size;
    }
    const std::string bucket = workers_->broadcast(bytes);
    received_.push_back(bytes);
    if (options_.fails_in_update > 0 && --options_.fails_in_update == 0) throw BadInput("a rank stumbles");
    std::map<std::string, std::string> found;
    std::size_t begin = 0;
    for (const auto& [name, size] : tensors)
        found[name] = bucket.substr(std::exchange(begin, begin + size), size);
    return found;
}

std::string SglangGroupStandIn::open_cuda(const json& arguments, std::size_t bytes) {
    enforce(arguments.at(6) == "gpu 0", "no GPU has the UUID {}", arguments.at(6).dump());
    return opened_cuda_memory(arguments, bytes);
}

void SglangGroupStandIn::fail_in_update(int number) {
    const std::lock_guard lock(mutex_);
    options_.fails_in_update = number;
}
std::vector<std::size_t> SglangGroupStandIn::received() const {
    const std::lock_guard lock(mutex_);
    return received_;
}
int SglangGroupStandIn::groups() const {
    const std::lock_guard lock(mutex_);
    return groups_;
}
bool SglangGroupStandIn::stranger_was_told() {
    const std::lock_guard lock(mutex_);
    return stranger_->receive(1) == store::kStop;
}
bool SglangGroupStandIn::in_group() const {
    const std::lock_guard lock(mutex_);
    return !group_.empty();
}

}  // namespace tandem::test

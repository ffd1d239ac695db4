// The routes of the stand-in for SGLang that take tensors, and what opens their payloads.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "tests/support/sglang_stand_in.h"
#include "tests/support/unpickle.h"

namespace tandem::test {
namespace {

using nlohmann::json;

// The bytes of a file of shared memory behind PyTorch's header, whose count goes as an opened storage's does.
std::string open_shared_file(const std::string& name, std::size_t bytes) {
    enforce(name.starts_with("/") && name.find('/', 1) == std::string::npos, "'{}' is no name of shm_open",
            name);
    const std::string path = "/dev/shm" + name;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::int32_t count = 0;
    file.read(reinterpret_cast<char*>(&count), sizeof(count));
    std::string content(bytes, '\0');
    file.seekg(64);
    file.read(content.data(), static_cast<std::streamsize>(bytes));
    enforce(file.good(), "{} lacks {} bytes", path, bytes);
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&--count), sizeof(count));
    if (count == 0) std::filesystem::remove(path);
    return content;
}

json arguments_of(const json& value, const std::string& callable) {
    enforce(value.is_object() && value.value("call", "") == callable, "{} instead of a call of {}",
            value.dump(), callable);
    return value["arguments"];
}

constexpr const char* kReductions = "torch.multiprocessing.reductions.";

std::string open_shared_tensor(const json& tensor) {
    const std::string reductions = kReductions;
    const json flat = arguments_of(tensor, reductions + "rebuild_tensor");
    const json typed = arguments_of(flat.at(1), reductions + "rebuild_typed_storage");
    const json untyped = arguments_of(typed.at(0), reductions + "rebuild_storage_filename");
    enforce(untyped.at(0).at("global") == "torch.storage.UntypedStorage", "another storage");
    enforce(typed.at(1).at("global") == "torch.uint8", "a bucket of no bytes");
    const auto bytes = untyped.at(3).get<std::size_t>();
    const json size = arguments_of(flat.at(2).at(1), "torch.Size").at(0);
    enforce(size == json::array({bytes}) && flat.at(2).at(0) == 0, "a bucket that is not the whole storage");
    const auto& name = untyped.at(2).get_binary();
    return open_shared_file({name.begin(), name.end()}, bytes);
}

// As PyTorch, SGLang's list of what a pickle may name, and its FlattenedTensorBucket do. open_cuda: of a tensor's arguments.
std::map<std::string, std::string> open_flattened_bucket(
    const std::string& pickle,
    const std::function<std::string(const json& arguments, std::size_t bytes)>& open_cuda) {
    const json opened = unpickle(pickle);
    const json& flat = opened.at("flattened_tensor");
    std::string content;
    if (open_cuda) {
        const json arguments = arguments_of(flat, std::string(kReductions) + "rebuild_cuda_tensor");
        content =
            open_cuda(arguments, arguments_of(arguments.at(1), "torch.Size").at(0).at(0).get<std::size_t>());
    } else {
        content = open_shared_tensor(flat);
    }
    const std::size_t bytes = content.size();
    std::map<std::string, std::string> tensors;
    for (const json& one : opened.at("metadata")) {
        const json fields = arguments_of(one, "sglang.srt.weight_sync.tensor_bucket.FlattenedTensorMetadata");
        const std::string dtype = fields.at(2).at("global").get<std::string>().substr(6);  // torch.
        const auto begin = fields.at(3).get<std::size_t>(), end = fields.at(4).get<std::size_t>();
        const Shape shape = arguments_of(fields.at(1), "torch.Size").at(0).get<Shape>();
        const std::size_t element = dtype_size(dtype_from_name(dtype));
        enforce(begin % element == 0 && end <= bytes && end - begin == fields.at(5) &&
                    end - begin == static_cast<std::size_t>(numel(shape)) * element,
                "{}", one.dump());
        tensors[fields.at(0).get<std::string>()] = content.substr(begin, end - begin);
    }
    return tensors;
}

}  // namespace

void SglangStandIn::add_tensor_routes() {
    const auto admin = http::Access::admin;
    const char* selector = "[target][draft][all]";
    std::vector<Field> fields{{"serialized_named_tensors", "strings", true},
                              {"load_format", "string"},
                              {"flush_cache", "boolean"},
                              {"abort_all_requests", "boolean"},
                              {"weight_version", "string"},
                              {"torch_empty_cache", "boolean"}};
    fields.push_back(sessions() ? Field{"selector", selector} : Field{"disable_draft_model", "boolean"});
    route(
        "POST", "/update_weights_from_tensor", fields,
        [this](const json& body, const std::string&) { return load_tensors(body); }, admin);
    route(
        "POST", "/set_internal_state", {{"server_args", "any", true}},
        [this](const json& body, const std::string&) {
            const json& args = body["server_args"];
            const bool ours = options_.plugin != nullptr && args.contains("tandem_note");
            if (!ours) violate("was told an unknown setting: " + args.dump());
            if (ours) options_.plugin->leave_note(args["tandem_note"].get<int>());
            return Answer{200, json::array({ours}).dump()};
        },
        admin);
    if (!sessions()) return;
    route(
        "POST", "/begin_weight_update", {{"selector", selector}},
        [this](const json&, const std::string&) {
            if (session_)
                return failure("a weight-update session is already open; call end_weight_update() first");
            if (!paused_) violate("begun an update while it runs");
            session_ = true;
            return success("Success");
        },
        admin);
    route(
        "POST", "/end_weight_update", {},
        [this](const json&, const std::string&) {
            if (!session_)
                return failure("no weight-update session is open; call begin_weight_update() first");
            session_ = false;
            return success("Success");
        },
        admin);
}

// What its scheduler does not catch ends it.
SglangStandIn::Answer SglangStandIn::load_tensors(const json& body) {
    if (options_.plugin != nullptr && body.value("load_format", "") == "tandem_sync.sglang.load")
        return load_staged(body);
    if (sessions() && !session_)
        return failure(
            "update_weights_from_tensor must run between begin_weight_update() and end_weight_update()");
    if (!paused_) violate("given tensors while it runs");
    std::map<std::string, std::string> found;
    try {
        for (int rank = 0; rank < options_.tp; ++rank) {
            const auto payload = body["serialized_named_tensors"].at(static_cast<std::size_t>(rank));
            enforce(body.value("load_format", "") == "flattened_bucket", "another load_format");
            found = open_flattened_bucket(from_base64(payload.get<std::string>()), options_.open_cuda);
        }
        hold_some(found);
    } catch (const std::exception& error) {
        violate(std::string("given what it could not open: ") + error.what());
        dead_ = true;
        return {};
    }
    return flush(body, success("Success"));
}

// In one step, sessions or not, paused or not.
SglangStandIn::Answer SglangStandIn::load_staged(const json& body) {
    if (body["serialized_named_tensors"].size() != static_cast<std::size_t>(options_.tp))
        violate("not a payload a rank");
    if (body.value("flush_cache", true))
        violate("an update of the plug-in that SGLang empties its cache for");
    for (const json& payload : body["serialized_named_tensors"]) {
        if (unpickle(from_base64(payload.get<std::string>())) != json::array())
            violate("a payload that is no empty list");
    }
    const auto version = body.at("weight_version").get<std::string>();
    try {
        weights_ = options_.plugin->load(std::stoll(version));
    } catch (const std::invalid_argument& error) {
        return failure(std::string("tandem: nothing was loaded: ") + error.what());
    } catch (const std::runtime_error& error) {
        stopped_ = true;
        return failure(std::string("tandem: parts of two versions are loaded: ") + error.what());
    }
    stale_cache_ = true;
    if (running_ + stray_ > 0) return failure(kNotFlushed);
    stale_cache_ = false;
    version_ = version;
    return success("Success");
}

}  // namespace tandem::test

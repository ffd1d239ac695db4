#include "tests/support/vllm_backend_stand_in.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/error.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "tests/support/nccl_workers.h"
#include "tests/support/unpickle.h"

namespace tandem::test {

using nlohmann::json;

namespace {

struct ToldTensor {
    std::string name;
    DType dtype = DType::float32;
    std::size_t bytes = 0;
    std::size_t element = 0;  // bytes
};

// PyTorch views no bytes as elements that do not begin at a multiple of their size.
std::string viewed(const std::string& chunk, std::size_t begin, const ToldTensor& tensor) {
    enforce(begin % tensor.element == 0, "storage_offset {} must be divisible by {}", begin, tensor.element);
    return chunk.substr(begin, tensor.bytes);
}

std::vector<ToldTensor> tensors_of(const json& info) {
    const auto& names = info.at("names");
    const auto& dtypes = info.at("dtype_names");
    const auto& shapes = info.at("shapes");
    enforce(dtypes.size() == names.size() && shapes.size() == names.size(), "lists of several lengths");
    std::vector<ToldTensor> tensors;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const DType dtype = dtype_from_name(dtypes[i].get<std::string>());
        enforce(dtype_name(dtype) == dtypes[i], "{} is no name of PyTorch's", dtypes[i].dump());
        const Shape shape = shapes[i].get<Shape>();
        const std::size_t element = dtype_size(dtype);
        tensors.push_back({names[i], dtype, static_cast<std::size_t>(numel(shape)) * element, element});
    }
    return tensors;
}

void require_fields(const json& info, std::vector<std::string> known) {
    for (const auto& [name, value] : info.items())
        enforce(std::find(known.begin(), known.end(), name) != known.end(), "unexpected field {}", name);
}

// A patch as vLLM's checkpoint_weight_patch.py takes it: elements of a tensor, and where they go.
struct Patch {
    ToldTensor tensor;
    std::vector<std::int32_t> indices;
    std::string values;
};

bool is_nan(DType dtype, const char* at) {
    if (dtype == DType::float32) {
        float value = 0;
        std::memcpy(&value, at, sizeof value);
        return std::isnan(value);
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return (bits & 0x7fff) > (dtype == DType::bfloat16 ? 0x7f80 : 0x7c00);
}

void check_patch(const Patch& patch) {
    const auto& [tensor, indices, values] = patch;
    enforce(
        tensor.dtype == DType::float32 || tensor.dtype == DType::bfloat16 || tensor.dtype == DType::float16,
        "{}: sparse checkpoint patches require a floating dtype", tensor.name);
    std::set<std::int32_t> seen;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const bool inside =
            indices[i] >= 0 && static_cast<std::size_t>(indices[i]) < tensor.bytes / tensor.element;
        enforce(inside && seen.insert(indices[i]).second &&
                    !is_nan(tensor.dtype, values.data() + i * tensor.element),
                "Sparse checkpoint patches contain NaN values, out-of-range indices, or duplicate indices");
    }
}

}  // namespace

VllmBackendStandIn::VllmBackendStandIn(Options options) : options_(std::move(options)) {}
VllmBackendStandIn::~VllmBackendStandIn() = default;

void VllmBackendStandIn::add_routes(VllmStandIn& server) {
    // As vLLM: whatever a worker throws is an internal error, and closes the session.
    const auto route = [&](const char* path, auto body) {
        server.route("POST", path, [this, body](const http::Request& request) {
            const std::lock_guard lock(mutex_);
            try {
                body(json::parse(request.body, nullptr, false));
                return std::pair{200, json{{"message", "done"}}.dump()};
            } catch (const std::exception& error) {
                return std::pair{500, json{{"error", {{"message", error.what()}}}}.dump()};
            }
        });
    };
    route("/init_weight_transfer_engine", [this](const json& body) { init(body.at("init_info")); });
    route("/shutdown_weight_transfer_engine", [this](const json&) {
        enforce(!open_, "Cannot release a trainer connection during a weight update");
        group_.reset();
    });
    route("/start_weight_update", [this, &server](const json&) { start(server); });
    route("/update_weights", [this, &server](const json& body) { update(server, body.at("update_info")); });
    route("/finish_weight_update", [this, &server](const json& body) {
        finish(server);
        if (body.is_object() && body.contains("weight_version")) server.hold_version(body["weight_version"]);
    });
    server.route("GET", "/get_world_size", [this](const http::Request&) {
        return std::pair{200, json{{"world_size", options_.workers}}.dump()};
    });
}

void VllmBackendStandIn::init(const json& info) {
    packed_ = info.value("packed", false);
    if (options_.backend == "ipc") {
        require_fields(info, {"packed"});
    } else {
        std::vector<std::string> fields{"nccl_unique_id_b64", "rank_offset", "world_size"};
        if (options_.backend == "nccl") {
            fields.insert(fields.end(), {"packed", "packed_buffer_size_bytes", "packed_num_buffers"});
            packed_bytes_ = info.at("packed_buffer_size_bytes").get<std::uint64_t>();
        }
        require_fields(info, fields);
        group_.reset();
        const std::string id = from_base64(info.at("nccl_unique_id_b64").get<std::string>());
        group_ = std::make_unique<NcclWorkers>(*options_.nccl, id, info.at("rank_offset").get<int>(),
                                               info.at("world_size").get<int>(), options_.workers);
        group_->sum();
        ++groups_;
    }
    ready_ = true;
}

void VllmBackendStandIn::start(VllmStandIn& server) {
    enforce(!open_, "start_weight_update called while a weight update is already active");
    if (!server.is_paused()) server.violate("an update began while it runs: its weights are taken away");
    open_ = true;
    patches_.clear();
}

// A layer keeps what it was given in a session that failed, and counts it when the next begins to load.
void VllmBackendStandIn::update(VllmStandIn& server, const json& info) {
    enforce(open_, "start_weight_update must be called before update_weights");
    enforce(ready_, "not initialized");
    server.told_to_load();
    try {
        if (options_.backend == "sparse_nccl") return take_sparse(server, info);
        options_.backend == "ipc" ? take_ipc(server, info) : take_nccl(server, info);
    } catch (...) {
        open_ = false;
        unfinished_ = !loaded_.empty();
        throw;
    }
}

void VllmBackendStandIn::load(VllmStandIn& server, const std::string& name, std::string bytes) {
    if (options_.before_load) options_.before_load(name);
    if (unfinished_) server.violate("weights of one update were counted among those of another");
    enforce(server.held_weights().count(name) == 1 && server.held_weights().at(name).size() == bytes.size(),
            "it has no {} of {} bytes", name, bytes.size());
    loaded_[name] = std::move(bytes);
}

void VllmBackendStandIn::finish(VllmStandIn& server) {
    enforce(open_, "finish_weight_update called without a matching start_weight_update");
    server.hold(std::exchange(loaded_, {}));
    open_ = unfinished_ = false;
}

void VllmBackendStandIn::take_ipc(VllmStandIn& server, const json& info) {
    require_fields(info, {"names", "dtype_names", "shapes", "ipc_handles_pickled", "tensor_sizes"});
    const std::vector<ToldTensor> tensors = tensors_of(info);
    enforce(options_.opens_pickles,
            "Refusing to deserialize `ipc_handles_pickled` without VLLM_ALLOW_INSECURE_SERIALIZATION=1");
    const json handles = unpickle(from_base64(info.at("ipc_handles_pickled").get<std::string>()));
    const auto arguments_of = [&](const json& by_gpu) -> const json& {
        enforce(by_gpu.is_object() && by_gpu.contains(options_.uuid), "IPC handle not found for GPU UUID {}",
                options_.uuid);
        return by_gpu.at(options_.uuid);
    };
    if (!packed_) {
        enforce(handles.is_array() && handles.size() == tensors.size(), "a handle for each tensor");
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const json& arguments = arguments_of(handles[i]);
            enforce(arguments[1].at("arguments")[0] == info.at("shapes")[i], "another shape");
            enforce(arguments[5] == json{{"global", "torch." + info["dtype_names"][i].get<std::string>()}},
                    "another dtype");
            received_.push_back(tensors[i].bytes);
            load(server, tensors[i].name, opened_cuda_memory(arguments, tensors[i].bytes));
        }
        return;
    }
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        enforce(info.at("tensor_sizes")[i] == tensors[i].bytes, "a size that is not the tensor's");
        bytes += tensors[i].bytes;
    }
    const std::string chunk = opened_cuda_memory(arguments_of(handles), bytes);
    if (!tensors.empty()) received_.push_back(bytes);
    std::size_t begin = 0;
    for (const ToldTensor& tensor : tensors)
        load(server, tensor.name, viewed(chunk, std::exchange(begin, begin + tensor.bytes), tensor));
}

// The chunks are cut from the tensors' sizes alone, as the sender must have cut them.
void VllmBackendStandIn::take_nccl(VllmStandIn& server, const json& info) {
    require_fields(info, {"names", "dtype_names", "shapes"});
    enforce(group_ != nullptr, "NCCL weight transfer not initialized");
    const std::vector<ToldTensor> tensors = tensors_of(info);
    for (std::size_t first = 0; first < tensors.size();) {
        std::size_t bytes = 0;
        std::size_t end = first;
        do bytes += tensors[end++].bytes;
        while (packed_ && end < tensors.size() && bytes <= packed_bytes_);
        const std::string chunk = group_->broadcast(bytes);
        received_.push_back(bytes);
        for (std::size_t begin = 0; first < end; begin += tensors[first++].bytes)
            load(server, tensors[first].name, viewed(chunk, begin, tensors[first]));
    }
}

// All patches of a call are taken and checked, then written in place, one by one: nothing is undone.
void VllmBackendStandIn::take_sparse(VllmStandIn& server, const json& info) {
    require_fields(info, {"names", "dtype_names", "shapes", "num_updates_list"});
    const auto counts = info.at("num_updates_list").get<std::vector<std::size_t>>();
    enforce(!counts.empty(), "`num_updates_list` cannot be empty for sparse updates");
    enforce(group_ != nullptr, "NCCL weight transfer not initialized");
    std::vector<Patch> patches;
    for (ToldTensor& tensor : tensors_of(info)) {
        enforce(patches.size() < counts.size(), "lists of several lengths");
        const std::size_t count = counts[patches.size()];
        const std::string indices = group_->broadcast(count * sizeof(std::int32_t));
        const std::string values = group_->broadcast(count * tensor.element);
        patches.push_back({std::move(tensor), std::vector<std::int32_t>(count), values});
        std::memcpy(patches.back().indices.data(), indices.data(), indices.size());
    }
    enforce(patches.size() == counts.size(), "lists of several lengths");
    for (const Patch& patch : patches) check_patch(patch);
    Patches& noted = patches_.emplace_back();
    std::size_t bytes = 0;
    for (const auto& [tensor, indices, values] : patches) {
        if (options_.before_load) options_.before_load(tensor.name);
        noted.emplace_back(tensor.name, indices.size());
        bytes += indices.size() * sizeof(std::int32_t) + values.size();
        const auto held = server.held_weights().find(tensor.name);
        enforce(held != server.held_weights().end() && held->second.size() == tensor.bytes,
                "it has no {} of {} bytes", tensor.name, tensor.bytes);
        std::string now = held->second;
        for (std::size_t i = 0; i < indices.size(); ++i)
            now.replace(static_cast<std::size_t>(indices[i]) * tensor.element, tensor.element,
                        values.substr(i * tensor.element, tensor.element));
        server.hold({{tensor.name, now}});
    }
    received_.push_back(bytes);
}

void VllmBackendStandIn::set_before_load(std::function<void(const std::string& name)> before_load) {
    const std::lock_guard lock(mutex_);
    options_.before_load = std::move(before_load);
}
std::vector<std::size_t> VllmBackendStandIn::received() const {
    const std::lock_guard lock(mutex_);
    return received_;
}
std::vector<VllmBackendStandIn::Patches> VllmBackendStandIn::patches() const {
    const std::lock_guard lock(mutex_);
    return patches_;
}
int VllmBackendStandIn::groups() const {
    const std::lock_guard lock(mutex_);
    return groups_;
}
bool VllmBackendStandIn::update_open() const {
    const std::lock_guard lock(mutex_);
    return open_;
}

}  // namespace tandem::test

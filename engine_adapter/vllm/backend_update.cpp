#include "engine_adapter/vllm/backend_update.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

using nlohmann::json;
using pickle::Values;

// Every worker replaces the device by its own.
std::string handles_of(const TorchCudaMemory& memory, const Shape& shape, DType dtype) {
    return pickle::dict({{pickle::text(memory.device_uuid), pickle::tuple(pickle::rebuild_cuda_arguments(
                                                                memory, shape, dtype, pickle::integer(0)))}});
}

void add_handles(json& info, const std::string& handles) {
    info["ipc_handles_pickled"] = base64(pickle::document(handles));
}

// Null: it has begun. Else what the server refused with.
std::exception_ptr try_start(VllmServer& server, Deadline deadline) {
    try {
        server.start_weight_update(deadline);
        return nullptr;
    } catch (const DeadlineExceeded&) {
        throw;
    } catch (const TransportError& error) {
        log_warn("{}: {}; closing the update that may be open", server.name(), error.what());
        return std::current_exception();
    }
}

}  // namespace

json update_info(Tensors tensors) {
    json info = {{"names", json::array()}, {"dtype_names", json::array()}, {"shapes", json::array()}};
    for (const TensorInfo* tensor : tensors) {
        info["names"].push_back(tensor->name);
        info["dtype_names"].push_back(dtype_name(tensor->dtype));
        info["shapes"].push_back(tensor->shape);
    }
    return info;
}

json sparse_update_info(Tensors tensors, std::span<const std::uint64_t> counts) {
    require(counts.size() == tensors.size(), "{} counts for {} tensors", counts.size(), tensors.size());
    json info = update_info(tensors);
    info["num_updates_list"] = counts;
    return info;
}

json packed_ipc_update(const TorchCudaMemory& memory, Tensors tensors) {
    json info = update_info(tensors);
    info["tensor_sizes"] = json::array();
    std::uint64_t end = 0;
    for (const TensorInfo* tensor : tensors) {
        info["tensor_sizes"].push_back(tensor_bytes(*tensor));
        end += tensor_bytes(*tensor);
    }
    require(end <= memory.bytes, "a packed update of {} bytes in memory of {}", end, memory.bytes);
    add_handles(info, handles_of(memory, {static_cast<std::int64_t>(memory.bytes)}, DType::uint8));
    return info;
}

json ipc_update(std::span<const TorchCudaMemory> memory, Tensors tensors) {
    require(memory.size() == tensors.size(), "{} pieces of memory for {} tensors", memory.size(),
            tensors.size());
    json info = update_info(tensors);
    Values handles;
    for (std::size_t i = 0; i < tensors.size(); ++i)
        handles.push_back(handles_of(memory[i], tensors[i]->shape, tensors[i]->dtype));
    add_handles(info, pickle::list(handles));
    return info;
}

void open_update(VllmServer& server, bool broken, Deadline deadline) {
    const std::exception_ptr refused = try_start(server, deadline);
    if (!refused && !broken) return;
    try {
        close_update(server, deadline);
    } catch (const TransportError&) {
        if (refused) std::rethrow_exception(refused);  // none was open: that was not why
        throw;
    }
    server.start_weight_update(deadline);
}

void close_update(VllmServer& server, Deadline deadline) {
    server.finish_weight_update(deadline);
}

bool take_back_update(VllmServer& server, Deadline deadline) {
    try {
        try_start(server, deadline);  // the failure closed the session, as far as it got
        close_update(server, deadline);
        return true;
    } catch (const Error& error) {
        log_warn("{} does not take its update back: {}", server.name(), error.what());
        return false;
    }
}

}  // namespace tandem::engine

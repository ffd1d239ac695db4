#include "tests/support/nccl_workers.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem::test {

using comm::nccl::Api;
using comm::nccl::Comm;

namespace {

constexpr std::chrono::seconds kPatience{20};

}  // namespace

template <typename Body>
void NcclWorkers::each(Body&& body) {
    std::vector<std::string> errors(members_.size());
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < members_.size(); ++i) {
            threads.emplace_back([&, i] {
                try {
                    body(i, members_[i]);
                } catch (const std::exception& error) {
                    errors[i] = error.what();
                }
            });
        }
    }
    for (const std::string& error : errors) enforce(error.empty(), "{}", error);
}

template <typename Call>
void NcclWorkers::launch(Member& member, Call&& call) {
    const auto native = api_.native_stream(*member.stream);
    const Deadline deadline = Deadline::after(kPatience);
    member.handle->launch("worker", deadline, [&](const Api&, Comm comm) { return call(comm, native); });
    member.stream->record().wait(deadline);
}

NcclWorkers::NcclWorkers(const Api& api, const std::string& id, int rank_offset, int world, int workers)
    : api_(api), members_(static_cast<std::size_t>(workers)) {
    comm::nccl::UniqueId unique{};
    enforce(id.size() == sizeof unique.bytes, "an id of {} bytes", id.size());
    std::memcpy(unique.bytes, id.data(), id.size());
    each([&](std::size_t i, Member& member) {
        const int index = static_cast<int>(i);
        member.stream.emplace(Stream::make({DeviceType::cuda, index + 1}, "worker"));
        member.handle = std::make_unique<comm::nccl::Handle>(api_, unique, rank_offset + index, world,
                                                             "worker", Deadline::after(kPatience));
    });
}

NcclWorkers::~NcclWorkers() {
    for (Member& member : members_) {
        if (member.handle) member.handle->abort();
    }
}

void NcclWorkers::sum() {
    each([&](std::size_t, Member& member) {
        const Buffer one(sizeof(float), "test", device_pool(member.stream->device()));
        launch(member, [&](Comm comm, comm::nccl::NativeStream stream) {
            return api_.all_reduce(one.data(), one.data(), 1, comm::nccl::Type::float32, comm::nccl::Op::sum,
                                   comm, stream);
        });
    });
}

std::string NcclWorkers::broadcast(std::size_t bytes) {
    std::vector<std::string> got(members_.size());
    each([&](std::size_t i, Member& member) {
        const Buffer buffer(bytes, "test", device_pool(member.stream->device()));
        launch(member, [&](Comm comm, comm::nccl::NativeStream stream) {
            return api_.broadcast(buffer.data(), buffer.data(), bytes, comm::nccl::Type::uint8, 0, comm,
                                  stream);
        });
        got[i].assign(reinterpret_cast<const char*>(emulated::host_alias(buffer.data())), bytes);
    });
    for (const std::string& one : got) enforce(one == got.front(), "workers got different bytes");
    return got.front();
}

std::string opened_cuda_memory(const nlohmann::json& arguments, std::size_t bytes) {
    using nlohmann::json;
    enforce(arguments.size() == 15 && arguments[3] == 0, "not the arguments of rebuild_cuda_tensor");
    enforce(arguments[0] == json{{"global", "torch.Tensor"}}, "no torch.Tensor");
    enforce(arguments[4] == json{{"global", "torch.storage.TypedStorage"}}, "no TypedStorage");
    enforce(arguments[8].get<std::size_t>() >= bytes, "a storage that is too small");
    const auto& binary = arguments[7].get_binary();
    IpcHandle handle{};
    enforce(binary.size() == handle.size(), "a handle of {} bytes", binary.size());
    std::memcpy(handle.data(), binary.data(), handle.size());
    return emulated::exported_bytes(handle, arguments[9].get<std::uint64_t>(), bytes);
}

}  // namespace tandem::test

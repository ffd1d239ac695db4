// The functions of NCCL that we call, as a table: filled from libnccl.so.2 when it is first needed, so that
// no program depends on it at its start, or by a test with its own. Types and numbers are those of NCCL's
// ABI, named here so that this header needs neither NCCL nor CUDA (abi_check.cpp compares them with nccl.h
// where CUDA is).
#pragma once

#include <climits>
#include <cstddef>
#include <functional>
#include <string>

#include "common/device/stream.h"

struct ncclComm;

namespace tandem::comm::nccl {

using Comm = ncclComm*;
using NativeStream = void*;  // cudaStream_t

enum class Result : int {
    success = 0,
    unhandled_cuda_error = 1,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6,
    in_progress = 7
};
// Neither success nor in progress: a list of calls ends at the first such result.
inline bool failed(Result result) {
    return result != Result::success && result != Result::in_progress;
}

enum class Type : int { uint8 = 1, int64 = 4, float32 = 7, bfloat16 = 9 };
enum class Op : int { sum = 0, max = 2, min = 3, avg = 4 };

struct UniqueId {
    char bytes[128];
};

// ncclConfig_t as of 2.18: NCCL reads as much of it as `size` says, and later fields keep their defaults.
struct Config {
    std::size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = INT_MIN;
    int cga_cluster_size = INT_MIN;
    int min_ctas = INT_MIN;
    int max_ctas = INT_MIN;
    const char* net_name = nullptr;
    int split_share = INT_MIN;
};

struct Api {
    Result (*get_version)(int*) = nullptr;
    Result (*get_unique_id)(UniqueId*) = nullptr;
    Result (*comm_init_rank_config)(Comm*, int size, UniqueId, int rank, Config*) = nullptr;
    Result (*comm_finalize)(Comm) = nullptr;
    Result (*comm_destroy)(Comm) = nullptr;
    Result (*comm_abort)(Comm) = nullptr;
    Result (*comm_get_async_error)(Comm, Result*) = nullptr;
    Result (*comm_register)(Comm, void*, std::size_t, void** handle) = nullptr;  // null: not offered
    Result (*comm_deregister)(Comm, void* handle) = nullptr;                     // null: not offered
    const char* (*get_error_string)(Result) = nullptr;
    const char* (*get_last_error)(Comm) = nullptr;
    Result (*group_start)() = nullptr;
    Result (*group_end)() = nullptr;
    Result (*all_gather)(const void*, void*, std::size_t send_count, Type, Comm, NativeStream) = nullptr;
    Result (*reduce_scatter)(const void*, void*, std::size_t recv_count, Type, Op, Comm,
                             NativeStream) = nullptr;
    Result (*all_reduce)(const void*, void*, std::size_t count, Type, Op, Comm, NativeStream) = nullptr;
    Result (*broadcast)(const void*, void*, std::size_t count, Type, int root, Comm, NativeStream) = nullptr;
    Result (*send)(const void*, std::size_t count, Type, int peer, Comm, NativeStream) = nullptr;
    Result (*recv)(void*, std::size_t count, Type, int peer, Comm, NativeStream) = nullptr;

    // Not NCCL's: the CUDA stream behind ours, its device made current on the calling thread.
    std::function<NativeStream(Stream&)> native_stream;
};

// From libnccl.so.2, or the file that TANDEM_NCCL names. Throws DeviceUnavailable: not found, a function
// missing, older than 2.18.
const Api& loaded();

// The table for `device`: the library's, or the registered one where the CPU computes. Throws
// DeviceUnavailable.
const Api& api_for(Device device);

// Before main(), by a kind of GPU that libnccl does not know (common/device/device_backend.h).
void register_api(const Api& (*api)());

}  // namespace tandem::comm::nccl

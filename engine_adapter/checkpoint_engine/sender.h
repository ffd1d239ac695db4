// Sends weights to a server's workers as checkpoint-engine does: they lie in a buffer on each worker's GPU, which the worker
// opens by CUDA IPC, and ZeroMQ says bucket by bucket what is in it. The server's part is a call that it is asked for
// beside (SGLang: POST /update_weights_from_ipc with zmq_handles), and that returns once all is over.
//
//   Sender ─▶ the call begins ─▶ open ─▶ load… ─▶ end ─▶ the call returns
//
// A worker waits for its next message for ever: the protocol has no deadline. One that fails, or whose sender gives up,
// is told so; one whose sender was killed, or that connects too late, is freed by free_waiting_workers (socket_folder.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "engine_adapter/checkpoint_engine/request_socket.h"
#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine::checkpoint_engine {

struct SenderOptions {
    std::string server;                // whose workers these are, for errors
    std::vector<std::string> devices;  // of the workers, as they call them: "GPU-<uuid>"
    // Whether the server has answered the call; throws, once at least, what the call threw. Asked now and then by the thread
    // that waits.
    std::function<bool()> call_returned;
    std::filesystem::path folder = std::filesystem::temp_directory_path();  // for socket files; short
};

class SocketFolder;

// One thread. Errors name the worker by its server and its device, and what it was asked for; after one the workers are
// told to give up, and only the destructor may be called.
class Sender {
  public:
    // Listens. Throws Error: no libzmq, or the folder cannot be used.
    explicit Sender(SenderOptions options);
    // Not ended: tells the workers to give up, which may take up to two seconds.
    ~Sender();
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;

    // For the server's call: where each device's worker is to connect.
    const std::map<std::string, std::string>& zmq_handles() const { return handles_; }

    // Each throws DeadlineExceeded; TransportError where a worker has failed, the server's call has, or it has returned;
    // ProtocolError.
    //
    // Workers open their buffers. memory: [device], all of one size; what is in them may change from load to load.
    void open(std::span<const TorchCudaMemory> memory, Deadline deadline);
    // Workers load the same tensors out of their buffers. When it returns they have read them.
    void load(std::span<const BucketTensor> tensors, Deadline deadline);
    // Workers give their buffers back and end the load. The call returns soon after.
    void end(Deadline deadline);

  private:
    struct Worker;
    using Message = std::function<std::string(std::size_t worker)>;

    // Asks all workers, and waits for all their answers. last: a worker may leave instead.
    void ask(const std::string& phase, const Message& message, Deadline deadline, bool last = false);
    void check_answer(const Worker& worker, const std::string& phase, const std::string& answer) const;
    void give_up(const std::string& why) noexcept;
    std::string name_of(const Worker& worker) const;
    bool call_is_over() const noexcept;

    const SenderOptions options_;
    std::unique_ptr<SocketFolder> folder_;
    zmq::Context context_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::map<std::string, std::string> handles_;
    std::uint64_t buffer_bytes_ = 0;
    std::size_t loads_ = 0;
    bool over_ = false;
};

}  // namespace tandem::engine::checkpoint_engine

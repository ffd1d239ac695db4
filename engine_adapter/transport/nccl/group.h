// The trainer's end of one NCCL group: trainer rank 0 is its rank 0, engine rank i its rank 1 + i, as in
// SGLang's /init_weights_update_group and in vLLM. The id and all messages travel over the engines' channels;
// NCCL carries bytes only.
//
// A failure anywhere ends the group (NCCL cannot recover it), and the next use forms a new one. No side waits
// in vain: an engine rank reads its channel while it waits for bytes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/comm/nccl/handle.h"
#include "common/device/stream.h"
#include "engine_adapter/channel/connection.h"
#include "engine_adapter/transport/nccl/messages.h"
#include "engine_adapter/transport/nccl/runs.h"

namespace tandem::engine {

struct NcclOptions {
    Device device{DeviceType::cuda, 0};    // of the trainer's memory
    std::optional<NcclForm> form = {};     // without: broadcast what every engine rank wants, send the rest
    const comm::nccl::Api* api = nullptr;  // null: found at run time
};

// Used by one thread at a time.
class NcclGroup {
  public:
    // The engine ranks in their order. Throws InvalidArgument: not on a GPU, no engine.
    NcclGroup(std::vector<std::shared_ptr<Connection>> engines, NcclOptions options);
    ~NcclGroup();  // ends the group in order, unless something is in flight or was thrown
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    Device device() const { return options_.device; }
    int engines() const { return static_cast<int>(engines_.size()); }

    // Forms the group unless it exists. Throws ProtocolError when two ranks share a GPU (NCCL refuses that),
    // DeadlineExceeded naming the ranks that did not join, TransportError, and what an engine answers.
    void form(const std::string& phase, Deadline deadline);
    // What to send to engine rank `engine` from now on. `regions` are this process's.
    void attach(int engine, const std::vector<Span>& regions, const TransferPlan& plan);

    // A bucket is sent in two steps, with the message to the engine between them. Throws InvalidArgument when
    // engine ranks are told of buckets in different orders.
    NcclForm choose_form(int engine, int bucket);
    // The engine rank has been told (its answer will be that of `request`). A broadcast starts when all ranks
    // have. Throws DeadlineExceeded, TransportError, CudaError; the group has then ended.
    void launch(int engine, int bucket, std::int64_t request, const std::string& phase, Deadline deadline);

    // Returns when `request` is answered. Throws DeadlineExceeded naming the late ranks, TransportError when
    // NCCL failed, the group has ended, or any engine rank is gone.
    void wait_answered(int engine, std::int64_t request, const std::string& phase, Deadline deadline);
    // An engine rank's deadline has passed: ends the group, then throws DeadlineExceeded naming the ranks
    // that do not answer a ping, or else those busy with an earlier bucket. Returns when there are none.
    void throw_naming_late_ranks(const std::string& phase, const std::string& reason);
    // After the answer: returns when NCCL has read the bucket's memory, which is then the caller's again.
    // Throws DeadlineExceeded.
    void wait_sent(int engine, int bucket, Deadline deadline);

    // Ends the group: the memory of what was in flight is the caller's again. Idempotent.
    void abort(const std::string& reason) noexcept;
    bool broken() const { return !reason_.empty(); }

  private:
    struct Member {
        std::shared_ptr<Connection> connection;
        std::vector<std::vector<Span>> buckets;  // of this process's memory
    };
    struct Broadcast {  // that not all engine ranks have been told of yet
        int bucket;
        std::set<int> told;
    };
    struct InFlight {
        std::int64_t request;
        Event sent = {};  // NCCL has read the bucket's memory
    };
    struct Sending {
        int engine;
        std::int64_t request;
    };

    const comm::nccl::Api& api();
    Connection& connection(int engine) { return *engines_[static_cast<std::size_t>(engine)].connection; }
    const std::vector<Span>& pieces(int engine, int bucket) const;
    bool same_for_all(int bucket) const;
    void require_own_gpus(const std::string& phase, Deadline deadline);
    std::vector<std::int64_t> send_joins(const comm::nccl::UniqueId& id, const std::string& phase,
                                         Deadline deadline);
    void send(NcclForm form, int bucket, const std::vector<Sending>& to, const std::string& phase,
              Deadline deadline);
    // Calls throw_naming_late_ranks; when that returns, throws DeadlineExceeded naming `waited_for`.
    [[noreturn]] void throw_late(const std::string& waited_for, const std::string& phase);
    struct Pings {  // names of engine ranks that did not answer, or were busy
        std::vector<std::string> silent, busy;
    };
    Pings ping_all();

    NcclOptions options_;
    std::vector<Member> engines_;
    bool gpus_checked_ = false;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> handle_;
    std::optional<Broadcast> broadcast_;
    std::map<std::pair<int, int>, InFlight> in_flight_;  // by engine and bucket
    std::string reason_;                                 // why the last group ended, until the next
};

}  // namespace tandem::engine

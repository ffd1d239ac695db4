// The trainer's end of one NCCL group: trainer rank 0 is its rank 0, engine rank i its rank 1 + i, as
// SGLang's /init_weights_update_group and vLLM's count them. The id and everything that is said travel over
// the engines' channels; NCCL carries bytes only.
//
// A group that something failed in is ended (NCCL has no way back), and the next use forms a new one. So no
// side waits for what will not come: an engine rank looks at its channel while it waits for bytes.
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
    const comm::nccl::Api* api = nullptr;  // null: NCCL as it is found
};

// Used by one thread at a time.
class NcclGroup {
  public:
    // The engine ranks in their order. Throws InvalidArgument: not on a GPU, no engine.
    NcclGroup(std::vector<std::shared_ptr<Connection>> engines, NcclOptions options);
    ~NcclGroup();  // the orderly end where nothing is in flight and nothing was thrown
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    Device device() const { return options_.device; }
    int engines() const { return static_cast<int>(engines_.size()); }

    // Joins all engine ranks unless they are. Throws ProtocolError when two ranks share a GPU (NCCL refuses
    // that), DeadlineExceeded naming who did not come, TransportError, what an engine answers.
    void form(const std::string& phase, Deadline deadline);
    // What engine rank `engine` takes from now on. `regions` are this process's.
    void attach(int engine, const std::vector<Span>& regions, const TransferPlan& plan);

    // A bucket leaves in two steps, the engine's message between them. admit says how it leaves; throws
    // InvalidArgument when engine ranks were told of buckets in different orders.
    NcclForm admit(int engine, int bucket);
    // The engine rank knows (its answer is `request`). A broadcast starts when all do. Throws
    // DeadlineExceeded, TransportError, CudaError; the group has then ended.
    void launch(int engine, int bucket, std::int64_t request, const std::string& phase, Deadline deadline);

    // Returns when `request` is answered. Throws DeadlineExceeded naming who is late, TransportError when
    // NCCL failed, the group has ended, or any engine rank is gone.
    void attend(int engine, std::int64_t request, const std::string& phase, Deadline deadline);
    // An engine rank's deadline has passed: throws DeadlineExceeded with the names of those who do not
    // answer, or else of those who are busy with what came before, if there are any; else returns. The group
    // has then ended.
    void blame_late(const std::string& phase, const std::string& reason);
    // The bucket has been taken; returns when NCCL has done with its memory, which is the caller's again.
    // Throws DeadlineExceeded.
    void finished(int engine, int bucket, Deadline deadline);

    // Ends the group: the memory of what was in flight is the caller's again. Idempotent.
    void give_up(const std::string& reason) noexcept;
    bool broken() const { return !reason_.empty(); }

  private:
    struct Member {
        std::shared_ptr<Connection> connection;
        std::vector<std::vector<Span>> buckets;  // what travels, of this process's memory
    };
    struct Broadcast {  // that not all engine ranks know of yet
        int bucket;
        std::set<int> told;
    };
    struct InFlight {
        std::int64_t request;
        Event sent = {};  // what it left for NCCL to read has been read
    };
    struct Sending {
        int engine;
        std::int64_t request;
    };

    const comm::nccl::Api& api();
    Connection& connection(int engine) { return *engines_[static_cast<std::size_t>(engine)].connection; }
    const std::vector<Span>& pieces(int engine, int bucket) const;
    bool same_for_all(int bucket) const;
    void require_own_seats(const std::string& phase, Deadline deadline);
    std::vector<std::int64_t> call_in(const comm::nccl::UniqueId& id, const std::string& phase,
                                      Deadline deadline);
    void send(NcclForm form, int bucket, const std::vector<Sending>& to, const std::string& phase,
              Deadline deadline);
    // Ends the group, then throws DeadlineExceeded with the names of those who do not answer at all, or else
    // of `waited_for`.
    [[noreturn]] void late(const std::string& waited_for, const std::string& phase);
    struct RollCall {  // names of engine ranks
        std::vector<std::string> silent, busy;
    };
    RollCall roll_call();

    NcclOptions options_;
    std::vector<Member> engines_;
    bool seats_checked_ = false;
    std::optional<Stream> stream_;
    std::optional<comm::nccl::Handle> handle_;
    std::optional<Broadcast> gathering_;
    std::map<std::pair<int, int>, InFlight> in_flight_;  // by engine and bucket
    std::string reason_;                                 // why the last group ended, until the next
};

}  // namespace tandem::engine

// Small collectives that a session needs: texts of one rank or of all on every rank, and one common outcome
// of a step that any rank may have failed. All block, over the communicator's own timeout.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/error.h"
#include "sync/strategy/push_status.h"

namespace tandem::sync {

// A sync that failed, the same on every rank: which rank noticed, in which phase, with whom, at which bucket.
class SyncError : public Error {
  public:
    SyncError(const std::string& message, int rank, std::string phase, int bucket, std::string peer = "")
        : Error(message), rank_(rank), phase_(std::move(phase)), peer_(std::move(peer)), bucket_(bucket) {}
    int rank() const { return rank_; }
    const std::string& phase() const { return phase_; }
    const std::string& peer() const { return peer_; }  // "engine 127.0.0.1:30000"; empty: nobody
    int bucket() const { return bucket_; }             // -1: none

  private:
    int rank_;
    std::string phase_;
    std::string peer_;
    int bucket_;
};

std::string broadcast_text(comm::Communicator& world, const std::string& text_of_rank_0);

// Every rank's text, on every rank.
std::vector<std::string> gather_texts(comm::Communicator& world, const std::string& mine);

// Throws the same SyncError on every rank when any rank's `mine` says that it failed there; `what` opens the
// message.
void throw_on_any_failure(comm::Communicator& world, const PushStatus& mine, const std::string& what);

}  // namespace tandem::sync

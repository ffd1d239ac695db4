// A trainer rank of these tests: the world, a source, and a session with the engine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/comm/communicator.h"
#include "common/error.h"
#include "sync/session/modes.h"
#include "sync/session/session.h"
#include "tests/multiproc/sync/process_source.h"
#include "tests/support/setting.h"
#include "tests/support/two_cores.h"

namespace tandem::sync {

using test::setting;

class Rank {
  public:
    Rank();
    // A new session instead of the one before.
    void connect(const std::string& engine, SessionOptions options = {}, Mode mode = mode_of_test());

    comm::Communicator& world() { return *world_; }
    ProcessSource& source() { return *source_; }
    Session& session() { return *session_; }

    SyncReport push(std::int64_t version) {
        source_->set_version(version);
        const SyncReport report = session_->push(version);
        if (relayed() && two_->there_are() && !report.relayed) throw ProtocolError("no relay");
        return report;
    }

    static bool relayed() { return setting("TEST_RELAYED") == "1"; }

  private:
    static Mode mode_of_test();
    std::optional<test::OnTwoCores> two_;
    std::shared_ptr<comm::Communicator> world_;
    std::unique_ptr<ProcessSource> source_;
    std::unique_ptr<Session> session_;
};

}  // namespace tandem::sync

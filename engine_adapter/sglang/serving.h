// What a push makes of one SGLang server, from pause to resume or abort: whether it is paused, by whom, and which version
// it says that it has. How it comes to its weights is its engine's (engine.h, plugin_engine.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/sglang/server.h"

namespace tandem::engine {

class SglangServing {
  public:
    // note(true, …): before this push pauses the server; for a successor of this process, should it be killed before it has
    // resumed it. note(false, …): it has been resumed, or is left to its weight version, which says more.
    using Note = std::function<void(bool, Deadline)>;
    SglangServing(SglangServer& server, InFlight in_flight, Note note);
    ~SglangServing();  // warns where the server is left paused

    bool touched() const { return state_ != State::as_found; }
    // It is paused for a load, its requests not waited for: that was asked for, or none of them would end.
    bool pauses() const { return in_flight_ != InFlight::wait || torn_; }

    // Asked before anything is touched. noted: a push left a note that has not been taken back. torn: its ranks
    // hold parts of two versions, and stopped serving, whatever it says.
    void find(const std::string& weight_version, bool noted, bool torn, Deadline deadline);
    // `load` tells the server to, and how it answered; SglangUpdate::cached where it was not told to empty its cache.
    // Returns when it holds the version, serves none of another one's cached keys and values, and says so.
    void load(std::int64_t version, const std::function<SglangAnswer()>& load, Deadline deadline);
    // For the `load` of a server that is not paused: a deadline that passes says what was waited for.
    SglangAnswer once_requests_end(const std::function<SglangAnswer()>& update) const;
    // The server goes on, if this push or one before it paused it. Throws ProtocolError: it has not said that it loaded
    // what it was told to.
    void resume(Deadline deadline);
    // It goes on as it was found, or, where it may hold parts of two versions, is held back until the next push.
    void abort(const std::string& reason, Deadline deadline);

  private:
    enum class State : std::uint8_t {
        as_found,  // no push has touched it
        paused,    // by this push, with the weights from before; or it has loaded
        loading,   // was told to load, and has not said that it did
        broken     // said that it failed
    };
    void pause(Deadline deadline);
    void hold_back(const std::string& reason, Deadline deadline);

    SglangServer& server_;
    InFlight in_flight_;
    Note note_;
    State state_ = State::as_found;
    std::string found_;         // the version that it said at first
    std::int64_t loading_ = 0;  // the version that it was told to load
    bool torn_ = false;         // its ranks stopped serving
    bool others_paused_ = false;
    bool left_paused_ = false;  // by a push, which did not come to its end or is at it
    bool broken_ = false;       // it holds no whole version that is known
};

}  // namespace tandem::engine

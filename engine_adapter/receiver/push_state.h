// What a trainer has under way with an engine rank's weights, as a value: what each request does, and what the rank
// does when the push ends before it is over. Pure; VersionUpdate acts on it, and tests/unit/sync/protocol explores it.
//
//   request             needs                       afterwards
//   pause               nothing open                held: nothing is generated
//   begin               nothing open                open: weights may be written
//   (the first byte)    open                        dirty: the weights that were served are no more
//   commit              open                        whole; held: served from resume on, else at once
//   resume              nothing open                not held: what is committed is served
//   abort, or the       -                           open, clean: as before the push
//   trainer or its                                  open, dirty: broken until the next commit
//   lease is gone                                   committed, not resumed: withheld until the next commit, or
//                                                   served where that can harm nobody (may_serve)
// resume is what decides: before it no rank serves the version, after it every rank has it.
#pragma once

#include <cstdint>

namespace tandem::engine {

class PushState {
  public:
    enum class End : std::uint8_t {
        nothing,    // nothing was under way
        as_before,  // the weights and the version from before the push are served
        served,     // the version that was committed is served
        broken,     // parts of two versions: refuse
        withheld,   // one version, which other ranks may not have: refuse
    };

    // Throw ProtocolError when something is open that must not be, or nothing that must be.
    void pause();
    void begin(std::int64_t version);
    void write();
    void commit(std::int64_t version);
    void resume();
    void require_idle(const char* what) const;  // nothing is open: else `what` came too early

    // The push is over, in whatever state. may_serve: this is the engine's only rank, so that no other may lack the version,
    // and what was committed lies in the engine's own memory, which no trainer writes to.
    End end(bool may_serve);

    bool held() const { return held_; }
    bool open() const { return open_; }
    bool dirty() const { return dirty_; }
    bool undecided() const { return undecided_; }      // committed, and not yet resumed
    std::int64_t version() const { return version_; }  // that is open, or was last
    bool under_way() const { return held_ || open_; }
    friend bool operator==(const PushState&, const PushState&) = default;

  private:
    bool held_ = false;
    bool open_ = false;
    bool dirty_ = false;
    bool undecided_ = false;
    std::int64_t version_ = 0;
};

}  // namespace tandem::engine

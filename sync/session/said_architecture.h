// The architecture of a source's weights as its config.json says it, where there is one: read at once, and refused only when
// it is asked for, because a server that does not say its own is not compared, whatever is pushed there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/error.h"
#include "common/model/architecture.h"

namespace tandem::sync {

class SaidArchitecture {
  public:
    SaidArchitecture() = default;  // nothing is said
    // Throws nothing for what config.json says. file: its name in errors.
    SaidArchitecture(const nlohmann::json& config, const std::string& file);
    // DIR/config.json; nothing where there is none. Throws ConfigError: it cannot be read, or is no JSON.
    static SaidArchitecture of_directory(const std::string& directory);

    // Null: nothing is said. Throws ConfigError naming file and key: an architecture that we do not compute, so that no
    // engine of ours can be of it.
    const model::Architecture* get() const;
    // The same without throwing: null there, too.
    const model::Architecture* known() const { return architecture_ ? &*architecture_ : nullptr; }

  private:
    std::optional<model::Architecture> architecture_;
    std::optional<ConfigError> refused_;
};

}  // namespace tandem::sync

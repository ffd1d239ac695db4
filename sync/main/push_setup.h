// What one push and a watch set up alike.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine_adapter/connect.h"
#include "sync/main/commands.h"

namespace tandem::sync {

// Checks the servers' names, reads the keys, fills in how long a server may take, how it is asked, and that what is not at its
// commit ends where interrupted(). Throws ConfigError, BadInput.
engine::ConnectOptions prepare(PushArguments& push);

// From here on, where servers may be half way: the first SIGINT or SIGTERM lets none be, those at their commit are finished. The
// second ends the program at once; what it leaves the next push removes. Until here, the first does.
void end_orderly_by_signals();
bool interrupted();  // one has come

// Of a server: what it says after prompts. What `model`'s weights should say.
Ask make_ask(const engine::ConnectOptions& connect);
Probe make_probe(const std::string& model, const Ask& ask);

// As in a shell. Whether a name matches one of the patterns; an empty function where there are none.
bool matches(const std::string& pattern, const std::string& name);
std::function<bool(const std::string& name)> any_of(const std::vector<std::string>& patterns);

// Names of directories and what servers say need not be UTF-8. Ends with a newline.
std::string json_line(const nlohmann::json& report, int indent = -1);

}  // namespace tandem::sync

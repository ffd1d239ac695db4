// Layouts as text, exchanged before planning: a source's tensors and their groups, an engine layout.
#pragma once

#include <string>
#include <vector>

#include "sync/plan/layout.h"
#include "sync/weight_source.h"

namespace tandem::sync {

std::string to_text(const EngineLayout& layout);
EngineLayout engine_layout_from_text(const std::string& text);

// One rank's tensors, each with the group that it shares it with.
std::string to_text(const WeightSource& source);
// All ranks' announcements joined: every tensor once, in the order of its first appearance. Throws
// InvalidArgument naming a tensor that two ranks describe differently.
SourceLayout join_sources(const std::vector<std::string>& texts);

}  // namespace tandem::sync

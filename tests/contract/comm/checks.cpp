#include "tests/contract/comm/checks.h"

namespace tandem::comm::contract {

const std::vector<Check>& all_checks() {
    static const std::vector<Check> checks = [] {
        std::vector<Check> all;
        for (const auto& part :
             {gather_checks(), reduce_checks(), p2p_checks(), order_checks(), failure_checks()}) {
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }();
    return checks;
}

const Check& check_named(const std::string& name) {
    for (const auto& check : all_checks()) {
        if (check.name == name) return check;
    }
    throw Failure("no check '" + name + "'");
}

std::vector<Case> cases(const std::vector<int>& sizes) {
    std::vector<Case> list;
    for (const auto& check : all_checks()) {
        for (const int size : sizes) {
            if (size >= check.min_size) list.push_back({check, size});
        }
    }
    return list;
}

}  // namespace tandem::comm::contract

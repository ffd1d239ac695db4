#include "trainer/loss/kl.h"

#include <cmath>

#include "common/error.h"

namespace tandem::trainer {
namespace {

constexpr float kLowVarBound = 10.0f;

}  // namespace

KlTerm kl_term(KlForm form, float log_ratio) {
    if (form == KlForm::k1) return {log_ratio, 1.0f};
    if (form == KlForm::k2) return {0.5f * log_ratio * log_ratio, log_ratio};
    const float grown = std::expm1(-log_ratio);
    const KlTerm k3{grown + log_ratio, -grown};
    if (form == KlForm::low_var && k3.value > kLowVarBound) return {kLowVarBound, 0.0f};
    return k3;
}

KlForm kl_form_from_name(const std::string& name) {
    if (name == "k1") return KlForm::k1;
    if (name == "k2") return KlForm::k2;
    if (name == "k3") return KlForm::k3;
    enforce(name == "low_var", "unknown KL estimator '{}': k1, k2, k3 or low_var", name);
    return KlForm::low_var;
}

}  // namespace tandem::trainer

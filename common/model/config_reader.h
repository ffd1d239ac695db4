// Reads config.json one key after another, with errors that name file and key. Only for the .cpp files here.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/error.h"

namespace tandem::model {

class ConfigReader {
  public:
    // `prefix` names the object in the messages: "rope_scaling.".
    ConfigReader(const nlohmann::json& object, std::string file, std::string prefix = "")
        : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

    bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

    std::int64_t integer(const char* key) const {
        if (!has(key)) refuse(key, "missing");
        if (!object_[key].is_number_integer()) refuse(key, "must be an integer");
        return object_[key].get<std::int64_t>();
    }
    std::int64_t integer(const char* key, std::int64_t fallback) const {
        return has(key) ? integer(key) : fallback;
    }
    double number(const char* key) const {
        if (!has(key)) refuse(key, "missing");
        if (!object_[key].is_number()) refuse(key, "must be a number");
        return object_[key].get<double>();
    }
    double number(const char* key, double fallback) const { return has(key) ? number(key) : fallback; }
    bool boolean(const char* key, bool fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_boolean()) refuse(key, "must be true or false");
        return object_[key].get<bool>();
    }
    std::string text(const char* key, const std::string& fallback) const {
        if (!has(key)) return fallback;
        if (!object_[key].is_string()) refuse(key, "must be a string");
        return object_[key].get<std::string>();
    }
    const nlohmann::json& at(const char* key) const { return object_[key]; }
    const std::string& file() const { return file_; }
    bool given(const char* key) const { return object_.contains(key); }  // null too
    [[noreturn]] void refuse(const char* key, const std::string& message) const {
        throw ConfigError(file_, prefix_ + key, message);
    }

  private:
    const nlohmann::json& object_;
    std::string file_;
    std::string prefix_;
};

}  // namespace tandem::model

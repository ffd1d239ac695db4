// A library that is opened when it is first needed, so that no program depends on it at its start. It stays for the life
// of the process.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace tandem {

class SharedLibrary {
  public:
    explicit SharedLibrary(std::string file)
        : file_(std::move(file)), handle_(::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ != nullptr) return;
        const char* why = ::dlerror();
        why_not_ = why == nullptr ? file_ : why;
    }

    bool loaded() const { return handle_ != nullptr; }
    const std::string& file() const { return file_; }
    const std::string& why_not() const { return why_not_; }

    // False, and null: it has no such function.
    template <typename Function>
    bool find(const char* name, Function& function) const {
        function = reinterpret_cast<Function>(::dlsym(handle_, name));
        return function != nullptr;
    }

  private:
    std::string file_;
    void* handle_;
    std::string why_not_;
};

// The file that the variable names, or `usual`.
inline std::string library_file(const char* variable, const char* usual) {
    const char* named = std::getenv(variable);
    return named != nullptr && *named != '\0' ? named : usual;
}

}  // namespace tandem

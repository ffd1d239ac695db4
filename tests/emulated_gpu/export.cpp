// Exported memory and events of the emulated GPU: memfds, found through the exporter's /proc.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "common/device/ipc_refusal.h"
#include "common/device/memory_stats.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/emulated_gpu/export.h"
#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/stream.h"

namespace tandem::emulated {
namespace {

constexpr std::uint64_t kMagic = 0x31756765646e6174;
constexpr auto kTimeout = std::chrono::seconds(60);  // of a stream that waits for another process's record

enum class Kind : std::uint32_t { memory, event };

// What a test wants refused, as a real GPU would: TANDEM_EMULATED_IPC.
enum class Refused { nothing, vmm, user, peer };

Refused refused() {
    static const Refused asked = [] {
        const char* text = std::getenv("TANDEM_EMULATED_IPC");
        const std::string word = text == nullptr ? "" : text;
        if (word == "vmm") return Refused::vmm;
        if (word == "user") return Refused::user;
        if (word == "peer") return Refused::peer;
        if (word.empty()) return Refused::nothing;
        throw ConfigError("environment", "TANDEM_EMULATED_IPC",
                          fmt::format("'{}' is not vmm, user or peer: what the emulated GPU refuses", word));
    }();
    return asked;
}

constexpr const char* kAsked = "TANDEM_EMULATED_IPC wants it so";

struct Ticket {
    std::uint64_t magic = kMagic;
    std::uint64_t bytes = 0;
    std::uint64_t inode = 0;
    std::int32_t pid = 0;
    std::int32_t fd = -1;
    Kind kind = Kind::memory;
};
static_assert(sizeof(Ticket) <= sizeof(IpcHandle));

// A file descriptor of a memfd, owned.
class File {
  public:
    File(const char* name, std::size_t bytes) : fd_(::memfd_create(name, MFD_CLOEXEC)), bytes_(bytes) {
        if (fd_ < 0) throw SystemError("memfd_create", errno);
        if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
            const int error = errno;
            ::close(fd_);
            throw SystemError(fmt::format("ftruncate of an emulated GPU's memory to {} bytes", bytes), error);
        }
    }
    File(const IpcHandle& handle, Kind kind, std::size_t bytes) : bytes_(bytes) {
        const char* what = kind == Kind::memory ? "memory" : "event";
        Ticket ticket;
        std::memcpy(&ticket, handle.data(), sizeof ticket);
        if (ticket.magic != kMagic || ticket.kind != kind)
            throw IpcRefused(fmt::format("these 64 bytes are no handle of an emulated GPU's {}", what));
        if (ticket.pid == ::getpid())
            throw IpcRefused(
                fmt::format("a process cannot open the handle of its own {}: use it directly", what));
        if (ticket.bytes < bytes)
            throw IpcRefused(fmt::format("{} bytes were exported, {} asked for", ticket.bytes, bytes));
        if (refused() == Refused::user || refused() == Refused::peer) {
            throw detail::not_opened({DeviceType::cuda, 0}, what,
                                     refused() == Refused::peer ? detail::NotOpened::no_peer_access
                                                                : detail::NotOpened::gone_or_foreign,
                                     kAsked);
        }
        const std::string path = fmt::format("/proc/{}/fd/{}", ticket.pid, ticket.fd);
        fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        struct stat info {};
        if (fd_ >= 0 && ::fstat(fd_, &info) == 0 && info.st_ino == ticket.inode) return;
        const int error = errno;
        if (fd_ >= 0) ::close(fd_);
        throw IpcRefused(
            fmt::format("process {} does not offer this {} any more ({}): it ended, freed it, or runs "
                        "as another user",
                        ticket.pid, what, fd_ >= 0 ? "another file" : std::strerror(error)));
    }
    ~File() { ::close(fd_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    int fd() const { return fd_; }
    std::size_t bytes() const { return bytes_; }
    IpcHandle handle(Kind kind) const {
        struct stat info {};
        ::fstat(fd_, &info);
        const Ticket ticket{kMagic, bytes_, info.st_ino, ::getpid(), fd_, kind};
        IpcHandle handle{};
        std::memcpy(handle.data(), &ticket, sizeof ticket);
        return handle;
    }

  private:
    int fd_ = -1;
    std::size_t bytes_;
};

struct Arenas {  // exported by this process, by address
    std::mutex mutex;
    std::map<std::byte*, const ExportArena::Impl*> by_address;
};

Arenas& arenas() {
    static Arenas* instance = new Arenas;
    return *instance;
}

class Arena final : public ExportArena::Impl {
  public:
    Arena(Device device, std::size_t bytes, std::string_view tag)
        : device_(device), file_("tandem:emulated", bytes), tag_(tag.empty() ? -1 : detail::memory_tag(tag)) {
        try {
            take(device, bytes);
        } catch (const OutOfMemory& error) {
            throw error.with_tag(tag);
        }
        try {
            data_ = map(file_.fd(), bytes);
        } catch (...) {
            emulated::give_back(device, bytes);
            throw;
        }
        if (tag_ >= 0) detail::count_allocation(tag_, bytes);
        const std::lock_guard lock(arenas().mutex);
        arenas().by_address[data_] = this;
    }
    ~Arena() override {
        {
            const std::lock_guard lock(arenas().mutex);
            arenas().by_address.erase(data_);
        }
        drain_streams(device_);
        unmap(data_, file_.bytes());
        emulated::give_back(device_, file_.bytes());
        if (tag_ >= 0) detail::count_release(tag_, file_.bytes());
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return {data_, file_.bytes()}; }
    IpcHandle handle() const override {
        if (refused() == Refused::vmm) throw detail::not_shareable(device_, kAsked);
        return file_.handle(Kind::memory);
    }

  private:
    Device device_;
    File file_;
    std::byte* data_ = nullptr;
    int tag_;
};

class Opened final : public OpenedArena::Impl {
  public:
    Opened(Device device, const IpcHandle& handle, std::size_t bytes)
        : device_(device), file_(handle, Kind::memory, bytes), data_(map(file_.fd(), bytes)) {}
    ~Opened() override {
        drain_streams(device_);
        unmap(data_, file_.bytes());
    }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

    Device device() const override { return device_; }
    Span span() const override { return {data_, file_.bytes()}; }

  private:
    Device device_;
    File file_;
    std::byte* data_;
};

struct Counters {
    std::atomic<std::uint64_t> recorded;   // calls of record()
    std::atomic<std::uint64_t> completed;  // the last of them that its stream has passed
};

// Kept alive by the work that is still queued on streams.
class Page {
  public:
    explicit Page(std::unique_ptr<File> file) : file_(std::move(file)) {
        void* data = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file_->fd(), 0);
        if (data == MAP_FAILED) throw SystemError("mmap of an emulated event", errno);
        counters_ = static_cast<Counters*>(data);
    }
    ~Page() { ::munmap(counters_, sizeof(Counters)); }
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;

    Counters& counters() const { return *counters_; }
    const File& file() const { return *file_; }

    void wait_for(std::uint64_t count, Deadline deadline) const {
        while (counters_->completed.load() < count) {
            if (deadline.passed())
                throw DeadlineExceeded("another process", "shared event", "not reached within the deadline");
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }

  private:
    std::unique_ptr<File> file_;
    Counters* counters_;
};

class Shared final : public SharedEvent::Impl {
  public:
    explicit Shared(std::unique_ptr<File> file) : page_(std::make_shared<Page>(std::move(file))) {}
    IpcHandle handle() const override { return page_->file().handle(Kind::event); }
    void record(Stream& stream) override {
        const std::uint64_t count = page_->counters().recorded.fetch_add(1) + 1;
        launch(stream, [page = page_, count] { page->counters().completed.store(count); });
    }
    void wait(Stream& stream) override {
        const std::uint64_t count = page_->counters().recorded.load();
        launch(stream, [page = page_, count] { page->wait_for(count, Deadline::after(kTimeout)); });
    }
    void wait(Deadline deadline) override { page_->wait_for(page_->counters().recorded.load(), deadline); }

  private:
    std::shared_ptr<Page> page_;
};

}  // namespace

std::shared_ptr<ExportArena::Impl> make_export_arena(Device device, std::size_t bytes, std::string_view tag) {
    return std::make_shared<Arena>(device, bytes, tag);
}

std::shared_ptr<OpenedArena::Impl> open_arena(Device device, const IpcHandle& handle, std::size_t bytes) {
    return std::make_shared<Opened>(device, handle, bytes);
}

std::string exported_bytes(const IpcHandle& handle, std::uint64_t offset, std::size_t bytes) {
    Ticket ticket;
    std::memcpy(&ticket, handle.data(), sizeof ticket);
    enforce(ticket.magic == kMagic && ticket.kind == Kind::memory && ticket.pid == ::getpid(),
            "these 64 bytes are no handle of an emulated GPU's memory in this process");
    std::string read(bytes, '\0');
    const ssize_t count = ::pread(ticket.fd, read.data(), bytes, static_cast<off_t>(offset));
    enforce(count == static_cast<ssize_t>(bytes), "{} bytes at {} are not inside what was exported", bytes,
            offset);
    return read;
}

ExportedRange export_range(Device device, ConstSpan range) {
    Arenas& a = arenas();
    const std::lock_guard lock(a.mutex);
    auto after = a.by_address.upper_bound(const_cast<std::byte*>(range.data));
    if (after != a.by_address.begin()) {
        const ExportArena::Impl& arena = *std::prev(after)->second;
        const auto offset = static_cast<std::size_t>(range.data - arena.span().data);
        if (offset + range.bytes <= arena.span().bytes) return {arena.handle(), offset, arena.span().bytes};
    }
    throw IpcRefused(
        fmt::format("{} bytes on {} cannot be shared: they are not in an export arena "
                    "(ExportArena::create)",
                    range.bytes, to_string(device)));
}

std::shared_ptr<SharedEvent::Impl> make_shared_event(Device) {
    return std::make_shared<Shared>(std::make_unique<File>("tandem:event", sizeof(Counters)));
}

std::shared_ptr<SharedEvent::Impl> open_shared_event(Device, const IpcHandle& handle) {
    return std::make_shared<Shared>(std::make_unique<File>(handle, Kind::event, sizeof(Counters)));
}

}  // namespace tandem::emulated

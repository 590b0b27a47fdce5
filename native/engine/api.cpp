// The C interface: checks arguments, turns exceptions into statuses, keeps the last error.

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "engine/network.h"
#include "kernels/cpu.h"

struct dbq_net {
    dbq::Network network;
    double load_milliseconds;
};

namespace {

using dbq::Bytes;
using dbq::Error;
using dbq::fail;

constexpr int MAX_THREADS = 256;
constexpr dbq_limits DEFAULT_LIMITS = {10'000'000'000'000, uint64_t{1} << 31};

// The Python binding mirrors dbq_layer: five pointers, three ints, padding, two 64-bit numbers.
static_assert(sizeof(void*) != 8 || (sizeof(dbq_layer) == 72 && offsetof(dbq_layer, weight_bytes) == 56));

// A fixed buffer: reporting that memory ran out must not allocate.
thread_local char last_error[1024] = "";
thread_local dbq_status last_status = DBQ_OK;

dbq_status remember(dbq_status status, const char* text) noexcept {
    last_status = status;
    strncpy(last_error, text, sizeof last_error - 1);
    for (char* c = last_error; *c; ++c)
        if (static_cast<unsigned char>(*c) < ' ') *c = ' ';  // names in a file may hold control characters
    return status;
}

// Calls function() and turns whatever it throws into a status.
template <typename Function> dbq_status guard(const Function& function) noexcept {
    try {
        function();
        return DBQ_OK;
    } catch (const Error& error) {
        return remember(error.status, error.text.c_str());
    } catch (const std::bad_alloc&) {
        return remember(DBQ_NO_MEMORY, "not enough memory: free some, or use a smaller network or batch");
    } catch (const std::length_error&) {
        return remember(DBQ_NO_MEMORY, "not enough memory: free some, or use a smaller network or batch");
    } catch (const std::system_error&) {
        return remember(DBQ_NO_MEMORY, "the system starts no more threads: ask for fewer");
    } catch (const std::exception& error) {
        return remember(DBQ_INTERNAL, error.what());
    } catch (...) {
        return remember(DBQ_INTERNAL, "unknown exception: please report this");
    }
}

// Does not block: opening a named pipe would wait until somebody writes to it.
struct File {
    explicit File(const char* path) : descriptor(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    ~File() {
        if (descriptor >= 0) close(descriptor);
    }
    File(const File&) = delete;
    const int descriptor;
};

[[noreturn]] void cannot_read(int reason) {
    const std::string text = std::generic_category().message(reason);  // strerror is not for threads
    fail(DBQ_CANNOT_READ, "cannot be read: %s; give the path of a .dbq file", text.c_str());
}

std::vector<uint8_t> read_file(const char* path) {
    const File file(path);
    struct stat status;
    if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) cannot_read(errno);
    if (!S_ISREG(status.st_mode)) cannot_read(S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    std::vector<uint8_t> content(size_t(status.st_size));
    for (size_t at = 0; at < content.size();) {
        const ssize_t count = read(file.descriptor, content.data() + at, content.size() - at);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) cannot_read(errno);
        if (count == 0) content.resize(at);  // the file shrank while it was read; the loader will notice
        at += size_t(count);
    }
    return content;
}

dbq_net* load(Bytes file, const dbq_limits* limits) {
    const auto start = std::chrono::steady_clock::now();
    const dbq::Simd* simd = dbq::choose_simd(dbq::this_cpu(), std::getenv("DBQ_ISA"));
    try {
        auto net = std::unique_ptr<dbq_net>(new dbq_net{{file, simd, limits ? *limits : DEFAULT_LIMITS}, 0});
        const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
        net->load_milliseconds = taken.count();
        return net.release();
    } catch (Error& error) {
        if (error.status == DBQ_BAD_FILE) error.text += "; the file is damaged: copy or export it again";
        throw;
    }
}

// What loading needs for a while lies between what it keeps, so that a heap does not shrink by itself:
// without this, a process with MobileNetV1 holds 8.1 MB for it instead of 6.9.
void release_free_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void require(bool condition, const char* problem) {
    if (!condition) fail(DBQ_BAD_ARGUMENT, "%s", problem);
}

bool has_output(const dbq_net* net, int index) { return index >= 0 && index < dbq_outputs(net); }

void set(int* number, int value) {
    if (number) *number = value;
}

}  // namespace

extern "C" {

const char* dbq_last_error(void) { return last_error; }
dbq_status dbq_last_status(void) { return last_status; }

dbq_net* dbq_load(const char* path) { return dbq_load_limited(path, nullptr); }

dbq_net* dbq_load_limited(const char* path, const dbq_limits* limits) {
    dbq_net* net = nullptr;
    guard([&] {
        require(path, "the path is NULL, expected the path of a .dbq file");
        try {
            const std::vector<uint8_t> content = read_file(path);
            net = load({content.data(), content.size()}, limits);
        } catch (Error& error) {
            error.text = std::string(path) + ": " + error.text;
            throw;
        }
    });
    release_free_memory();
    return net;
}

dbq_net* dbq_load_memory(const void* data, size_t size) {
    return dbq_load_memory_limited(data, size, nullptr);
}

dbq_net* dbq_load_memory_limited(const void* data, size_t size, const dbq_limits* limits) {
    dbq_net* net = nullptr;
    guard([&] {
        require(data, "the data is NULL, expected the bytes of a .dbq file");
        net = load({static_cast<const uint8_t*>(data), size}, limits);
    });
    release_free_memory();
    return net;
}

void dbq_free(dbq_net* net) { delete net; }

dbq_status dbq_run(const dbq_net* net, const uint8_t* images, size_t count, float* logits) {
    return guard([&] {
        require(net, "the network is NULL, expected one that dbq_load returned");
        require(count == 0 || (images && logits), "images or logits are NULL, expected arrays");
        net->network.run(images, count, logits);
    });
}

dbq_status dbq_profile(const dbq_net* net, const uint8_t* image, double* microseconds) {
    return guard([&] {
        require(net && image && microseconds, "an argument is NULL, expected a network and two arrays");
        net->network.profile(image, microseconds);
    });
}

dbq_status dbq_set_threads(dbq_net* net, int threads) {
    return guard([&] {
        require(net, "the network is NULL, expected one that dbq_load returned");
        if (threads < 1 || threads > MAX_THREADS)
            fail(DBQ_BAD_ARGUMENT, "%d threads, expected 1 to %d", threads, MAX_THREADS);
        net->network.set_threads(threads);
    });
}

int dbq_threads(const dbq_net* net) { return net ? net->network.threads() : 0; }

void dbq_cancel(dbq_net* net) {
    if (net) net->network.cancel();
}

void dbq_input_shape(const dbq_net* net, int* height, int* width, int* channels) {
    const dbq::Shape shape = net ? net->network.input() : dbq::Shape{};
    set(height, shape.height);
    set(width, shape.width);
    set(channels, shape.channels);
}

size_t dbq_output_size(const dbq_net* net) { return net ? net->network.output_size() : 0; }

int dbq_outputs(const dbq_net* net) { return net ? int(net->network.program().outputs.size()) : 0; }

const char* dbq_output_name(const dbq_net* net, int index) {
    return has_output(net, index) ? net->network.program().outputs[size_t(index)].name.c_str() : "";
}

void dbq_output_shape(const dbq_net* net, int index, int shape[3]) {
    if (!shape) return;
    const dbq::Shape found = has_output(net, index) ? net->network.output(size_t(index)) : dbq::Shape{};
    shape[0] = found.channels;
    shape[1] = found.height;
    shape[2] = found.width;
}

const char* dbq_name(const dbq_net* net) { return net ? net->network.program().name.c_str() : ""; }
const char* dbq_metadata(const dbq_net* net) { return net ? net->network.program().metadata.c_str() : ""; }
const char* dbq_isa(const dbq_net* net) { return net ? dbq::isa_name(net->network.simd()) : ""; }
uint64_t dbq_work(const dbq_net* net) { return net ? net->network.work() : 0; }
size_t dbq_peak_memory(const dbq_net* net) { return net ? net->network.peak_memory() : 0; }
double dbq_load_milliseconds(const dbq_net* net) { return net ? net->load_milliseconds : 0; }
int dbq_layers(const dbq_net* net) { return net ? int(net->network.program().operations.size()) : 0; }

dbq_status dbq_layer_info(const dbq_net* net, int index, dbq_layer* layer) {
    return guard([&] {
        require(net && layer, "an argument is NULL, expected a network and a dbq_layer");
        if (index < 0 || index >= dbq_layers(net))
            fail(DBQ_BAD_ARGUMENT, "layer %d, expected 0 to %d", index, dbq_layers(net) - 1);
        *layer = net->network.layer(size_t(index));
    });
}

const char* dbq_version(void) { return DBQ_VERSION; }

const char* dbq_available_isas(void) {
    const char* names = "";  // if there is no memory for them
    guard([&] {
        static const std::string found = dbq::available_isas(dbq::this_cpu());
        names = found.c_str();
    });
    return names;
}

}  // extern "C"

/* libtandem_sync: brings a trainer's weights into inference engines, version by version. Plain C; the library is C++ inside
 * and lets no exception out.
 *
 *   td_session_open → [td_session_region] → td_session_publish → td_session_push … → td_session_close
 *
 * Rules for every function
 *  - It returns TD_OK or a td_status; then td_last_error() says what went wrong, where, and what to do, and
 *    td_last_error_details() who. Both are of the calling thread and live until its next call.
 *  - Structs begin with `size`: set it to sizeof. A newer library reads what an older caller has, and fills no more.
 *  - "Collective": all ranks call it, in the same order. A failure of one rank is the same failure on all of them.
 *  - A session is used by one thread at a time: a call that comes while another one is in it, or before a td_push is freed, is
 *    refused with TD_INVALID. A td_push may be waited for or aborted by another thread.
 *  - Blocking calls end within the deadlines that td_options gives, and say who is late. */
#ifndef TANDEM_SYNC_H
#define TANDEM_SYNC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(TD_BUILDING)
#define TD_API __attribute__((visibility("default")))
#else
#define TD_API
#endif

#define TD_ABI_VERSION 1
TD_API uint32_t td_abi_version(void); /* of the library; TD_ABI_VERSION is the header's */

typedef enum td_status {
    TD_OK = 0,
    TD_INVALID = 1, /* an argument, a name, a layout: nothing was done */
    TD_NOT_FOUND = 2,
    TD_CONFLICT = 3,
    TD_UNAVAILABLE = 4, /* a peer is not there or went away */
    TD_DEADLINE = 5,    /* a peer is late */
    TD_CORRUPT = 6,     /* a checksum or a protocol was violated */
    TD_INTERNAL = 7,
    TD_SYNC_FAILED = 8 /* set-up or push failed on a rank: see the details */
} td_status;

typedef struct td_error {
    size_t size;
    int32_t status;
    int32_t rank;      /* that failed; -1: this one, before ranks agreed */
    int32_t bucket;    /* -1: none */
    const char* phase; /* "connect", "publish", "plan", "prepare", "pause", "load", "commit", …; or "" */
    const char* peer;  /* "engine 127.0.0.1:30000", "rank 3"; or "" */
    const char* message;
} td_error;

TD_API const char* td_last_error(void); /* "" after a call that went well */
TD_API int td_last_error_details(td_error* out);

/* -- the ranks ---------------------------------------------------------------------------------------------------- */

/* The caller's ranks, and how they reach each other while the session opens. all_gather: every rank gives `bytes` bytes,
 * and finds those of all ranks in `all`, by rank; returns 0, or another number when it failed. Called by the thread that
 * called td_session_open, before that returns, and never again. */
typedef struct td_group {
    size_t size;
    int32_t rank, world_size;
    int (*all_gather)(void* context, const void* mine, size_t bytes, void* all);
    void* context;
} td_group;

typedef struct td_options {
    size_t size;
    const char* const* engines; /* URLs, a rank of an engine each; only rank 0's are used */
    size_t engine_count;
    const char* mode;    /* a mode; NULL, "auto": direct where engines can open all the memory, else gather */
    double deadline_s;   /* for each phase of a push; 0: 30. All buckets together may take four of them */
    size_t bucket_bytes; /* 0: chosen for this machine */
    int32_t depth;       /* slots of staging, 1 only for gather; 0: chosen */
    int32_t rollback;    /* 1: the first version need not be above those that the engines have had */
    /* Requests that a third-party server works on: "wait" for their end (NULL), "abort", or "keep": they go on with the
     * new weights, and their answers may be of several versions. */
    const char* in_flight;
    const char* key; /* that engines ask for; NULL: TANDEM_API_KEY of the environment, where it is set */
} td_options;

typedef struct td_session td_session;

/* Collective. Joins the ranks and connects to the engines. `group` NULL: one rank, this one. */
TD_API int td_session_open(const td_options* options, const td_group* group, td_session** out);

/* Ends what is left of a push and frees the session; regions stay until their own deleters are called. NULL is allowed. */
TD_API int td_session_close(td_session* session);

/* -- the weights -------------------------------------------------------------------------------------------------- */

typedef enum td_dtype {
    TD_FLOAT32 = 0,
    TD_BFLOAT16 = 1,
    TD_INT32 = 2,
    TD_INT64 = 3,
    TD_UINT8 = 4,
    TD_FLOAT8_E4M3FN = 5,
    TD_INT8 = 6,
    TD_FLOAT16 = 7
} td_dtype;

enum { TD_CPU = 1, TD_CUDA = 2 }; /* device types: DLPack's numbers */

typedef enum td_placement_kind { TD_REPLICATE = 0, TD_SHARD = 1, TD_STRIDED_SHARD = 2 } td_placement_kind;

/* How one axis of a mesh holds a tensor: PyTorch's placements. TD_SHARD cuts `dim` as torch.chunk does. */
typedef struct td_placement {
    int32_t kind, dim;
    int32_t split_factor; /* of TD_STRIDED_SHARD */
    int32_t reserved;     /* 0 */
} td_placement;

typedef struct td_mesh {
    size_t size;
    int32_t ndim;
    const int32_t* sizes; /* [ndim] */
    const int32_t* ranks; /* row-major; this rank must be one of them. NULL: 0, 1, … */
} td_mesh;

/* What this rank holds of a tensor: row-major memory without gaps, which the caller keeps until the session is closed or
 * publishes another address. */
typedef struct td_tensor {
    size_t size;
    const char* name; /* Hugging Face name */
    void* data;       /* NULL only where the local shape has no element */
    int32_t dtype, device_type, device_id, ndim;
    const int64_t* global_shape;    /* [ndim] */
    const int64_t* local_shape;     /* [ndim]; NULL: what mesh and placements give this rank */
    const td_mesh* mesh;            /* NULL: every rank holds the whole tensor, with the same values */
    const td_placement* placements; /* [mesh->ndim] */
} td_tensor;

/* Collective the first time: plans, and attaches the engines. Each rank gives the tensors that it holds a part of, in the
 * same order. Later calls must give the same names, shapes, dtypes and layouts; they only take the new addresses, and are
 * not collective. Names, shapes and layouts are copied. */
TD_API int td_session_publish(td_session* session, const td_tensor* tensors, size_t count);

/* What the tensors are a model of: the text of its config.json, or NULL for nothing. Before the first td_session_publish, which
 * then fails (TD_SYNC_FAILED, phase "plan") where an engine says that it computes something else: another rope_theta shows
 * in no tensor. Only rank 0's is used. One that is no JSON object is TD_INVALID; what is not known here is never refused for
 * an engine that does not say its own. */
TD_API int td_session_config(td_session* session, const char* config_json);

/* After td_session_publish: 1 where config and engines were compared, and are equal; 0: nothing was said on one side. Of rank
 * 0; elsewhere 0. */
TD_API int td_session_compared(td_session* session, int32_t* compared);

/* Memory of the CPU that engines of this host can open: weights that lie in it need no copy on the way. `out` becomes a
 * DLManagedTensorVersioned* (DLPack 1.x) of uint8 [bytes] where `versioned` is 1, else a DLManagedTensor*: call its
 * deleter when nothing uses it. It outlives the session. */
TD_API int td_session_region(td_session* session, size_t bytes, int32_t versioned, void** out);

/* -- versions ----------------------------------------------------------------------------------------------------- */

typedef struct td_report {
    size_t size;
    int64_t version;
    double paused_ms;         /* from the first pause to the last resume */
    double transfer_ms;       /* of that, without pausing and resuming: transfer and commit */
    double prepare_ms;        /* before the pause */
    double speed_of_light_ms; /* as td_session_speed_of_light measured it; 0: not measured */
    uint64_t bytes;           /* in the engines' weights */
    uint64_t bytes_moved;     /* from the trainer's memory to the engines' */
    int32_t buckets;
    const char* mode; /* static */
} td_report;

/* Collective. Blocks until the engines serve the tensors' values as `version`, which grows from push to push. When it
 * fails they serve the version from before where that is intact, or else refuse, until a push succeeds. What wrote the
 * values must be done (a GPU's stream synchronized). */
TD_API int td_session_push(td_session* session, int64_t version, td_report* out);

/* The same in a thread of the library. Until it is done: the values may not change and the session may not be used. */
typedef struct td_push td_push;
TD_API int td_session_push_async(td_session* session, int64_t version, td_push** out);
/* TD_DEADLINE with the peer "the push": not done yet; wait again. */
TD_API int td_push_wait(td_push* push, double timeout_s, td_report* out);
/* Ends the push on every rank, and with it the session, which can then only be closed. A push that has reached the
 * engines' commit is carried out. Returns at once: wait for the push. */
TD_API int td_push_abort(td_push* push, const char* reason);
TD_API int td_push_free(td_push* push); /* waits for its end; NULL is allowed */

/* Collective. Whether the engines hold what the trainer holds now: whole tensors, gathered apart from the push, by
 * XXH3-128. `mismatch` (may be NULL) becomes the name of the first tensor that differs, cut to `capacity`. */
TD_API int td_session_check(td_session* session, int32_t* match, char* mismatch, size_t capacity);

/* Collective. Whether every element that the ranks hold now is finite, before a push: one that is not is pushed like any
 * other. `found` (may be NULL) becomes "NAME has N elements that are infinite or NaN, the first in row R …", cut to
 * `capacity`. Reads the weights once. */
TD_API int td_session_finite(td_session* session, int32_t* finite, char* found, size_t capacity);

/* Collective. Copies the published bytes once by the machine's best copy; later reports carry the time. */
TD_API int td_session_speed_of_light(td_session* session, double* ms);

/* -- the other end ------------------------------------------------------------------------------------------------ */

/* For plug-ins of inference servers: whole versions are received, verified and kept beside the weights that the server
 * serves, which then loads them its own way.
 *
 *   td_receiver_open → (a trainer connects to the address and stages a version) → td_receiver_take → the server loads what
 *   lies in the tensors → td_receiver_give_back → … → td_receiver_close
 *
 * A version is staged when its trainer has committed it: every byte there, every checksum equal. One that was given up on
 * the way leaves tensors that hold parts of two, which take then refuses. These functions may be called from any thread. */
typedef struct td_receiver td_receiver;

typedef struct td_receiver_options {
    size_t size;
    const char* engine; /* what trainers are told that this is: "vllm" */
    int32_t threads;    /* that copy; 0: the machine's cores, at most 4 */
    const char*
        data_listen; /* "HOST:PORT" for trainers of other hosts, over TCP; PORT 0: a free one; NULL: none */
    const char* key; /* that those must know; a data_listen without one is refused */
} td_receiver_options;

/* Listens for one trainer at a time, of the same user or with the key, in threads of its own. `tensors`: what a version consists of, each
 * whole (mesh NULL) in memory of the CPU that the caller keeps until the receiver is closed; it is written while a version
 * is being staged. */
TD_API int td_receiver_open(const td_receiver_options* options, const td_tensor* tensors, size_t count,
                            td_receiver** out);

/* Where a trainer connects, "unix-abstract:NAME". TD_INVALID where it does not fit into `capacity`. */
TD_API int td_receiver_address(td_receiver* receiver, char* address, size_t capacity);

/* The name of this host: two processes that can share memory are given the same one, be they of different users. TD_INVALID
 * where it does not fit into `capacity`. */
TD_API int td_host(char* host, size_t capacity);

/* What a trainer of another host needs: the port of data_listen (0: none), and td_host's name, by which it is told that this
 * is another host. */
TD_API int td_receiver_data_plane(td_receiver* receiver, int32_t* port, char* host, size_t capacity);

/* The version that lies whole in the tensors; 0: none. */
TD_API int td_receiver_staged(td_receiver* receiver, int64_t* version);

/* From here until td_receiver_give_back nothing is written: a trainer that begins a version meanwhile is refused.
 * TD_CONFLICT, and nothing is taken: another version is staged, or none, or one is on its way, or it is taken already. */
TD_API int td_receiver_take(td_receiver* receiver, int64_t version);
TD_API int td_receiver_give_back(td_receiver* receiver); /* without effect where nothing is taken */

/* Ends what a trainer has under way. NULL is allowed. */
TD_API int td_receiver_close(td_receiver* receiver);

#ifdef __cplusplus
}
#endif

#endif
